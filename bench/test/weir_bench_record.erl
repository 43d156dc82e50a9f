%% Made-up results of a run.
-module(weir_bench_record).

-export([record/0]).
-export([in_tree/0]).

%% Sets the root of the tree as bin/weir does: the directory above the current one, or above the build.
in_tree() ->
    {ok, Directory} = file:get_cwd(),
    [Root | _] = roots(Directory) ++ roots(filename:absname(code:which(?MODULE))),
    true = os:putenv("WEIR_ROOT", Root),
    ok.

roots("/") -> [];
roots(Below) ->
    case filelib:is_regular(filename:join(Below, "bin/weir")) of
        true -> [Below];
        false -> roots(filename:dirname(Below))
    end.

record() ->
    {ok, #{scenarios := Scenarios} = Suite} = weir_bench_suite:read(),
    Of = fun(Wanted) -> hd([Scenario || #{name := Name} = Scenario <- Scenarios, Name =:= Wanted]) end,
    Sample = fun(Rate, Errors) -> {ok, #{metrics => #{requests_per_s => Rate}, errors => Errors}} end,
    Titled = fun(Title, Backend) -> #{title => Title, backend => Backend} end,
    #{
        suite => Suite#{targets := []},
        machine => #{
            processor => <<"A <processor>">>, cores => 2, kernel => <<"6.1">>, otp => <<"25.2">>, erts => <<"13">>,
            commit => <<"c0ffee">>, pinning => <<"server on core 0">>, peers => #{nginx => <<"1.22">>}
        },
        started => <<"2026-11-21T10:30:00+00:00">>,
        rounds => 3,
        quick => false,
        complete => false,
        scenarios => [
            {Of('echo-100'), [
                {Titled(<<"inet once">>, inet), [Sample(90, 0), Sample(110, 0), Sample(100, 0)]},
                {Titled(<<"weir once">>, weir), [Sample(240, 2)]},
                {Titled(<<"native">>, reference), [{error, <<"it fell">>}]},
                {Titled(<<"go">>, go), [{skipped, <<"go is not installed">>}]}
            ]},
            {Of('fast-connect'), [
                {Titled(<<"inet passive">>, inet), [ramp(1)]},
                {Titled(<<"</script><script>throw 1</script>">>, weir), [ramp(3)]}
            ]}
        ]
    }.

ramp(Times) ->
    {ok, #{
        metrics => #{held_per_s => 2000 * Times, cpu_us_per_request => 20.0},
        errors => 0,
        notes => [<<"held to the end, it may hold more">>],
        seconds => [
            #{offered => 1000 * Second, p50_us => 100 * Second / Times, p99_us => 1000 * Second / Times}
         || Second <- lists:seq(1, 8)
        ]
    }}.
