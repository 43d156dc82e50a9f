%% @doc Measures the contestants of a scenario in turn: A B C, A B C, ..., so that other work on the machine affects
%% all alike. Each measurement starts a new server.
-module(weir_bench_rounds).

-export([run/5]).

-export_type([results/0]).

%% For each contestant in order: the results of its rounds, or why there are none, the first round first.
-type results() :: [{weir_bench_scenario:contestant(), [result()]}].
-type result() :: {ok, weir_bench_sample:sample()} | {skipped | error, binary()}.

%% @doc Runs a scenario. `Before' is called before each measurement with the contestant and the round, from 1. `After'
%% is called after each with the results so far.
-spec run(weir_bench_scenario:scenario(), Rounds :: pos_integer(), weir_bench_machine:cores(), Before, After) ->
    results()
when
    Before :: fun((weir_bench_scenario:contestant(), Round :: pos_integer()) -> term()),
    After :: fun((results()) -> term()).
run(#{contestants := Contestants} = Scenario, Rounds, Cores, Before, After) ->
    lists:foldl(
        fun(Round, Results) -> round(Scenario, Round, Cores, Before, After, Results) end,
        [{Contestant, []} || Contestant <- Contestants],
        lists:seq(1, Rounds)
    ).

round(#{contestants := [First | _] = Contestants} = Scenario, Round, Cores, Before, After, Sofar) ->
    Whole = whole(weir_bench_scenario:run(Scenario, First), Cores),
    lists:foldl(
        fun(Contestant, Results) ->
            Before(Contestant, Round),
            Result =
                case rated(weir_bench_scenario:run(Scenario, Contestant), Whole) of
                    {ok, Run} -> measure(Run, Cores);
                    NotMeasured -> NotMeasured
                end,
            {Contestant, Earlier} = lists:keyfind(Contestant, 1, Results),
            Now = lists:keyreplace(Contestant, 1, Results, {Contestant, Earlier ++ [Result]}),
            After(Now),
            Now
        end,
        Sofar,
        Contestants
    ).

%% The rate that `share' is a percentage of: the first contestant in a closed loop.
whole(#{share := _} = Run, Cores) -> measure(maps:remove(share, Run), Cores);
whole(_Run, _Cores) -> none.

rated(#{share := Share} = Run, {ok, #{metrics := #{requests_per_s := Whole}}}) ->
    {ok, (maps:remove(share, Run))#{rate => max(1, round(Whole * Share / 100))}};
rated(#{share := _}, NotMeasured) ->
    NotMeasured;
rated(Run, _Whole) ->
    {ok, Run}.

measure(#{needs := Needs} = Run, Cores) ->
    case weir_bench_peers:missing(Needs) of
        [] -> measured(Run, Cores);
        [What | _] -> {skipped, <<(atom_to_binary(What))/binary, " is not installed">>}
    end.

measured(#{search := #{over := Over} = Search} = Run, Cores) ->
    weir_bench_search:most(Search, fun(Value) -> measured((maps:remove(search, Run))#{Over => Value}, Cores) end);
measured(#{driver := node} = Run, Cores) ->
    {Pin, _} = weir_bench_machine:placement(apart, Cores),
    weir_bench_node:measure(Run, Pin);
measured(#{connections := Connections} = Run, Cores) ->
    case Run of
        %% A native server has one thread, so there are several processes.
        #{backend := reference, schedulers := Copies} ->
            measured(Run, evenly(Connections, Copies), Cores);
        _ ->
            Shares = weir_bench_machine:shares(Connections, maps:get(spread, Run, false)),
            told_of_shares(Connections, Shares, measured(Run, Shares, Cores))
    end.

measured(Run, Shares, Cores) ->
    %% A proxy needs its backend's port before the backend listens.
    Backend = weir_bench_machine:free_port(),
    {ServerPin, DriverPins} = weir_bench_machine:placement(placement(Run), Cores),
    Started = [weir_bench_server:start(Run, ServerPin, Backend) || _ <- Shares],
    Servers = [Server || {ok, Server} <- Started],
    Result =
        case [Reason || {error, Reason} <- Started] of
            [] ->
                Load = fun(Now) -> load(loads(Now, lists:zip(Shares, Servers), DriverPins), Backend) end,
                Loaded = weir_bench_changes:during(Run, hd(Servers), fun() -> Load(Run) end),
                weir_bench_counts:add(Run, Servers, Load, Loaded);
            [Reason | _] ->
                {error, Reason}
        end,
    lists:foreach(fun weir_bench_daemon:stop/1, Servers),
    Result.

%% Divides the run among the drivers of each server.
loads(Run, Servers, Pins) ->
    Count = length(Servers),
    lists:append([
        begin
            Own = own(Number, Count, Pins),
            Part = part(Run, Share, [Other || {Other, _} <- Servers]),
            [{Of, Server, Pin} || {Of, Pin} <- lists:zip(among(Part, length(Own)), Own)]
        end
     || {Number, {Share, Server}} <- lists:zip(lists:seq(0, Count - 1), Servers)
    ]).

%% With fewer drivers than servers, a driver serves several.
own(Number, Count, Pins) when length(Pins) < Count -> [lists:nth(Number rem length(Pins) + 1, Pins)];
own(Number, Count, Pins) ->
    [Pin || {At, Pin} <- lists:zip(lists:seq(0, length(Pins) - 1), Pins), At rem Count =:= Number].

among(#{together := true} = Run, Drivers) ->
    lists:duplicate(Drivers, Run);
among(#{connections := Connections} = Run, Drivers) ->
    Shares = evenly(Connections, Drivers),
    [part(Run, Share, Shares) || Share <- Shares].

evenly(Connections, Count) ->
    [max(1, (Connections + Number) div Count) || Number <- lists:seq(0, Count - 1)].

%% Each share gets its part of the settings that are divided among connections.
part(Run, Share, [Share]) ->
    Run#{connections := Share};
part(Run, Share, Shares) ->
    All = lists:sum(Shares),
    Divided = maps:map(fun(_, Whole) -> max(1, round(Whole * Share / All)) end, maps:with([rooms, rate], Run)),
    maps:merge(Run#{connections := Share}, Divided).

load([{#{driver := weir_load}, _, _} = Load], _Backend) -> together([], weir_bench_load:measure(Load));
load(Loads, Backend) -> together([Server || {_, Server, _} <- Loads], weir_bench_driver:measure(Loads, Backend)).

%% First adds up what several drivers measured on the same server, then what several servers did.
together(Servers, {ok, [_, _ | _] = Samples}) ->
    Measured = lists:zip(Servers, Samples),
    OfEach = [
        weir_bench_sample:sum([Sample || {#{port := Of}, Sample} <- Measured, Of =:= Port])
     || Port <- lists:usort([Port || #{port := Port} <- Servers])
    ],
    case OfEach of
        [One] -> {ok, One};
        _ -> {ok, weir_bench_sample:side_by_side(OfEach)}
    end;
together(_Servers, {ok, [Sample]}) ->
    {ok, Sample};
together(_Servers, {error, _} = Error) ->
    Error.

%% Adds a note if fewer connections were measured, or more servers were used.
told_of_shares(Connections, [Fewer], {ok, Sample}) when Fewer < Connections ->
    Note = io_lib:format("~ts of ~ts connections, the limit of descriptors allows no more", [
        weir_bench_table:number(Fewer), weir_bench_table:number(Connections)
    ]),
    {ok, weir_bench_sample:note(iolist_to_binary(Note), Sample)};
told_of_shares(_Connections, [_, _ | _] = Shares, {ok, Sample}) ->
    Note = io_lib:format("spread over ~b servers, as the limit of descriptors needs it", [length(Shares)]),
    {ok, weir_bench_sample:note(iolist_to_binary(Note), Sample)};
told_of_shares(_Connections, _Shares, Result) ->
    Result.

placement(#{pinned := false}) -> anywhere;
placement(#{drivers := Drivers} = Run) -> {apart, maps:get(schedulers, Run, 1), Drivers};
placement(#{together := true, schedulers := Schedulers}) -> {together, Schedulers};
placement(_) -> apart.
