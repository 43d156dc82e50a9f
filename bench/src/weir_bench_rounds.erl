%% @doc Has the contestants of a scenario take turns: A B C, A B C, ..., so that what else the machine does meets them
%% all alike. Each measurement has a fresh server.
-module(weir_bench_rounds).

-export([run/5]).

-export_type([results/0]).

%% For each contestant of a scenario, in its order: what was measured, or why not, the first round first.
-type results() :: [{weir_bench_scenarios:contestant(), [result()]}].
-type result() :: {ok, weir_bench_sample:sample()} | {skipped | error, binary()}.

%% @doc Runs a scenario. `Before' is told each measurement before it is taken: the contestant and the round, from 1.
%% `After' is given the results so far after each.
-spec run(weir_bench_scenarios:scenario(), Rounds :: pos_integer(), weir_bench_machine:cores(), Before, After) ->
    results()
when
    Before :: fun((weir_bench_scenarios:contestant(), Round :: pos_integer()) -> term()),
    After :: fun((results()) -> term()).
run(#{contestants := Contestants} = Scenario, Rounds, Cores, Before, After) ->
    Turns = [{Round, Contestant} || Round <- lists:seq(1, Rounds), Contestant <- Contestants],
    lists:foldl(
        fun({Round, Contestant}, Results) ->
            Before(Contestant, Round),
            Result = measure(maps:merge(maps:remove(contestants, Scenario), Contestant), Cores),
            {Contestant, Earlier} = lists:keyfind(Contestant, 1, Results),
            Now = lists:keyreplace(Contestant, 1, Results, {Contestant, Earlier ++ [Result]}),
            After(Now),
            Now
        end,
        [{Contestant, []} || Contestant <- Contestants],
        Turns
    ).

measure(#{needs := What} = Run, Cores) ->
    case is_installed(What) of
        true -> measure(maps:remove(needs, Run), Cores);
        false -> {skipped, <<(atom_to_binary(What))/binary, " is not installed">>}
    end;
measure(Run, Cores) ->
    %% A proxy is told its backend's port before the backend listens.
    Backend = weir_bench_machine:free_port(),
    {ServerPin, DriverPins} = weir_bench_machine:placement(placement(Run), Cores),
    case weir_bench_server:start(Run, ServerPin, Backend) of
        {ok, Server} ->
            Measured = weir_bench_driver:measure(Run, Server, DriverPins, Backend),
            ok = weir_bench_server:stop(Server),
            case Measured of
                {ok, Reports} -> {ok, weir_bench_sample:sum([weir_bench_sample:from_report(Of) || Of <- Reports])};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

placement(#{together := true, schedulers := Schedulers}) -> {together, Schedulers};
placement(_) -> apart.

is_installed(haproxy) ->
    weir_bench_haproxy:executable() =/= false;
is_installed(Application) ->
    %% The servers run on our own emulator, and find what we find.
    code:where_is_file(atom_to_list(Application) ++ ".app") =/= non_existing.
