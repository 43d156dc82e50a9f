%% @doc What servers do with more schedulers: each contestant of `priv/scaling.config' with each number of them. Where the machine has
%% cores enough, the server has as many as schedulers and its drivers have others, and rates are told. Where not, they share all cores,
%% and counts for a request are told, which depend on that less.
-module(weir_bench_scaling).

-export([read/0]).
-export([numbers/1]).
-export([mode/2]).
-export([over/3]).
-export([run/2]).

-export_type([mode/0]).

%% Cores that programs may be pinned to.
-type mode() :: {apart, Cores :: pos_integer()} | counted.

%% On a machine of few cores: one, two as most measurements can have, and many in each other's way.
-define(COUNTED, [1, 2, 8]).
%% Of the machine's cores one is the driver's for each of the server's, at least; and two at most.
-define(DRIVERS, 2).

%% @doc The scenarios as they are written, with one contestant for all numbers of schedulers.
-spec read() -> {ok, weir_bench_suite:suite()} | {error, iodata()}.
read() -> weir_bench_suite:read(weir_bench_tree:scaling()).

%% @doc The numbers of schedulers that are measured unless others are asked for, by the cores of the machine.
-spec numbers(Cores :: non_neg_integer()) -> [pos_integer(), ...].
numbers(Cores) ->
    case [Number || Power <- lists:seq(0, 9), Number <- [1 bsl Power], 2 * Number =< Cores] of
        [_, _, _ | _] = Apart -> Apart;
        _ -> ?COUNTED
    end.

%% @doc Whether rates can be told: all of a run or nothing, so that what is compared was measured alike. Never on two cores, where one
%% scheduler would have its own and two would share theirs.
-spec mode([pos_integer(), ...], Cores :: non_neg_integer()) -> mode().
mode(Numbers, Cores) ->
    case Cores > 2 andalso 2 * lists:max(Numbers) =< Cores of
        true -> {apart, Cores};
        false -> counted
    end.

%% @doc A scenario with each of its contestants once for each number of schedulers.
-spec over(weir_bench_scenario:scenario(), [pos_integer(), ...], mode()) -> weir_bench_scenario:scenario().
over(#{contestants := Contestants, metrics := Metrics} = Scenario, Numbers, Mode) ->
    Scenario#{
        over => schedulers,
        counts => true,
        metrics := metrics(Metrics, Mode),
        contestants := [
            maps:merge(Contestant#{title := title(Contestant, Number), schedulers => Number}, placed(Number, Scenario, Mode))
         || Contestant <- Contestants, Number <- Numbers
        ]
    }.

%% Rates come last where they mean little.
metrics(Metrics, {apart, _}) -> Metrics;
metrics(Metrics, counted) -> [Metric || Metric <- Metrics, Metric =/= requests_per_s, Metric =/= p99_us] ++ [requests_per_s].

title(#{title := Title}, Number) -> iolist_to_binary(io_lib:format("~ts, ~b:~b", [Title, Number, Number])).

placed(_Number, _Scenario, counted) -> #{pinned => false};
%% What is said in a room is for all of it, so one driver has all of them.
placed(_Number, #{load := chat}, {apart, _Cores}) -> #{drivers => 1};
placed(Number, _Scenario, {apart, Cores}) -> #{drivers => min(?DRIVERS * Number, Cores - Number)}.

%% @doc Measures, as {@link weir_bench_matrix:run/2} does with the same options, and `schedulers', the numbers of them.
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
