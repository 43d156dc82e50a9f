%% @doc Measures servers with more schedulers: each contestant of `priv/scaling.config' with each number of
%% schedulers. If the machine has enough cores, the server gets one for each scheduler, its drivers get others, and
%% rates are reported. Otherwise they share all cores, and counts for a request come first, which depend less on
%% sharing.
-module(weir_bench_scaling).

-export([read/0]).
-export([numbers/1]).
-export([mode/2]).
-export([over/3]).
-export([run/2]).

-export_type([mode/0]).

%% The number of cores that programs may be pinned to.
-type mode() :: {apart, Cores :: pos_integer()} | counted.

%% For a machine with few cores: one scheduler, two as in most measurements, and many that compete.
-define(COUNTED, [1, 2, 8]).
%% Each core of the server needs a driver on a core of its own; two at most.
-define(DRIVERS, 2).

%% @doc Reads the scenarios; each contestant occurs once.
-spec read() -> {ok, weir_bench_suite:suite()} | {error, iodata()}.
read() -> weir_bench_suite:read(weir_bench_tree:scaling()).

%% @doc Returns the default numbers of schedulers for a machine with this many cores.
-spec numbers(Cores :: non_neg_integer()) -> [pos_integer(), ...].
numbers(Cores) ->
    case [Number || Power <- lists:seq(0, 9), Number <- [1 bsl Power], 2 * Number =< Cores] of
        [_, _, _ | _] = Apart -> Apart;
        _ -> ?COUNTED
    end.

%% @doc Whether rates are reported. It is the same for a whole run, so that its results are comparable. Never on two
%% cores, where one scheduler would have its own core and two would share theirs with drivers.
-spec mode([pos_integer(), ...], Cores :: non_neg_integer()) -> mode().
mode(Numbers, Cores) ->
    case Cores > 2 andalso 2 * lists:max(Numbers) =< Cores of
        true -> {apart, Cores};
        false -> counted
    end.

%% @doc Returns a scenario in which each contestant occurs once for each number of schedulers.
-spec over(weir_bench_scenario:scenario(), [pos_integer(), ...], mode()) -> weir_bench_scenario:scenario().
over(#{contestants := Contestants, metrics := Metrics} = Scenario, Numbers, Mode) ->
    Scenario#{
        over => schedulers,
        counts => true,
        metrics := metrics(Metrics, Mode),
        contestants := [
            maps:merge(
                Contestant#{title := title(Contestant, Number), schedulers => Number}, placed(Number, Scenario, Mode)
            )
         || Contestant <- Contestants, Number <- Numbers
        ]
    }.

%% With shared cores, rates mean little and come last.
metrics(Metrics, {apart, _}) ->
    Metrics;
metrics(Metrics, counted) ->
    [Metric || Metric <- Metrics, Metric =/= requests_per_s, Metric =/= p99_us] ++ [requests_per_s].

title(#{title := Title}, Number) -> iolist_to_binary(io_lib:format("~ts, ~b:~b", [Title, Number, Number])).

placed(_Number, _Scenario, counted) -> #{pinned => false};
%% A chat has one driver, because a message goes to all clients of its room.
placed(_Number, #{load := chat}, {apart, _Cores}) -> #{drivers => 1};
placed(Number, _Scenario, {apart, Cores}) -> #{drivers => min(?DRIVERS * Number, Cores - Number)}.

%% @doc Measures with the options of {@link weir_bench_matrix:run/2}, and `schedulers', the numbers of schedulers.
-spec run(weir_bench_suite:suite(), #{schedulers => [pos_integer(), ...], atom() => term()}) -> ok | {failed, iodata()}.
run(#{scenarios := Scenarios} = Suite, Options) ->
    Cores = weir_bench_machine:allowed(),
    Numbers = maps:get(schedulers, Options, numbers(Cores)),
    Mode = mode(Numbers, Cores),
    weir_bench_matrix:run(
        Suite#{scenarios := [over(Scenario, Numbers, Mode) || Scenario <- Scenarios]},
        Options#{name => "scaling", pinning => pinning(Mode)}
    ).

pinning({apart, Cores}) ->
    iolist_to_binary(io_lib:format("a server has as many of ~b cores as schedulers, its drivers have others", [Cores]));
pinning(counted) ->
    iolist_to_binary(
        io_lib:format("counted on ~b cores, which servers and drivers share: rates and latencies mean little", [
            erlang:system_info(logical_processors)
        ])
    ).
