%% @doc The full matrix: runs the scenarios and records what comes out.
-module(weir_bench_matrix).

-export([list/0]).
-export([run/1]).

%% @doc The scenarios, a line each.
-spec list() -> iodata().
list() ->
    Scenarios = weir_bench_scenarios:all(),
    Width = lists:max([length(atom_to_list(Name)) || #{name := Name} <- Scenarios]),
    [
        io_lib:format("  ~s   ~ts; ~b contestants~n", [
            string:pad(atom_to_list(Name), Width), Title, length(Contestants)
        ])
     || #{name := Name, title := Title, contestants := Contestants} <- Scenarios
    ].

%% @doc Runs the scenarios of `only', or all, `repeat' rounds each, and writes DATE-otpRELEASE.json and .md to `results'
%% after every measurement. A measurement that fails is recorded and does not stop the others, but fails the run.
-spec run(#{
    repeat := pos_integer(),
    quick := boolean(),
    only => [weir_bench_scenarios:name()],
    results => file:filename(),
    _ => _
}) -> ok | {failed, iodata()}.
run(#{repeat := Rounds, quick := Quick} = Options) ->
    Scenarios = [shortened(Scenario, Quick) || Scenario <- chosen(Options)],
    Directory = maps:get(results, Options, weir_bench_tree:results()),
    case weir_bench_tree:missing() of
        [] ->
            Files = files(Directory),
            Record = #{
                machine => weir_bench_machine:description(),
                started => list_to_binary(calendar:system_time_to_rfc3339(erlang:system_time(second))),
                rounds => Rounds,
                quick => Quick,
                complete => false,
                scenarios => []
            },
            %% The emptiest record first: where it cannot go, the others could not either.
            case create(Record, Files) of
                ok -> measure(Scenarios, Rounds, Record, Files);
                {error, Reason} -> {failed, ["cannot write to ", Directory, ": ", file:format_error(Reason)]}
            end;
        Missing ->
            {failed, Missing}
    end.

chosen(#{only := Names}) ->
    [Scenario || #{name := Name} = Scenario <- weir_bench_scenarios:all(), lists:member(Name, Names)];
chosen(_) ->
    weir_bench_scenarios:all().

shortened(Scenario, true) -> weir_bench_scenarios:quick(Scenario);
shortened(Scenario, false) -> Scenario.

measure(Scenarios, Rounds, #{machine := #{pinning := Pinning}} = Record, {Json, Markdown} = Files) ->
    Minutes = Rounds * lists:sum([weir_bench_scenarios:seconds(Scenario) || Scenario <- Scenarios]) / 60,
    io:format("~ts~n~b scenarios, ~b rounds: about ~b minutes~n", [
        Pinning, length(Scenarios), Rounds, ceil(Minutes)
    ]),
    io:format("results come to ~ts and ~ts~n", [Json, Markdown]),
    Cores = weir_bench_machine:cores(),
    #{scenarios := Measured} = Whole = lists:foldl(
        fun(Scenario, #{scenarios := Before} = SoFar) ->
            Add = fun(Results) -> SoFar#{scenarios := Before ++ [{Scenario, Results}]} end,
            Results = weir_bench_rounds:run(
                Scenario, Rounds, Cores,
                fun(Contestant, Round) ->
                    progress(Scenario, Contestant, Round, Rounds, length(Before), length(Scenarios))
                end,
                fun(Results) -> ok = write(Add(Results), Files) end
            ),
            Add(Results)
        end,
        Record,
        Scenarios
    ),
    ok = write(Whole#{complete := true}, Files),
    weir_bench_progress:clear(),
    io:format("done: ~ts~n", [Markdown]),
    case [Reason || {_, Results} <- Measured, {_, Measurements} <- Results, {error, Reason} <- Measurements] of
        [] -> ok;
        [First | _] = Failures ->
            {failed, io_lib:format("~b measurements failed, the first: ~ts", [length(Failures), First])}
    end.

progress(#{title := Title}, #{title := Contestant}, Round, Rounds, Done, All) ->
    weir_bench_progress:show("~b/~b ~ts: round ~b of ~b, ~ts", [Done + 1, All, Title, Round, Rounds, Contestant]).

create(Record, {Json, _} = Files) ->
    case filelib:ensure_dir(Json) of
        ok -> write(Record, Files);
        {error, _} = Error -> Error
    end.

write(Record, {Json, Markdown}) ->
    case weir_bench_report:write(Json, weir_bench_report:json(Record)) of
        ok -> weir_bench_report:write(Markdown, unicode:characters_to_binary(weir_bench_report:markdown(Record)));
        {error, _} = Error -> Error
    end.

%% Of today and this release; with a number if there are some already, which stay.
files(Directory) ->
    {{Year, Month, Day}, _} = calendar:local_time(),
    Base = io_lib:format("~4..0b-~2..0b-~2..0b-otp~s", [Year, Month, Day, erlang:system_info(otp_release)]),
    files(filename:join(Directory, Base), 1).

files(Base, Number) ->
    Stem = case Number of 1 -> Base; _ -> Base ++ "-" ++ integer_to_list(Number) end,
    case filelib:is_file(Stem ++ ".json") of
        true -> files(Base, Number + 1);
        false -> {Stem ++ ".json", Stem ++ ".md"}
    end.
