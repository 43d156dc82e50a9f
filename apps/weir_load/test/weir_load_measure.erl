%% Runs loads for suites against a server with chosen replies. Returns documents.
-module(weir_load_measure).

-export([at_once/0]).
-export([open_loop/3]).
-export([measure/2]).
-export([run/2]).
-export([run_until_answered/3]).
-export([start/1]).
-export([document/1]).
-export([plan/2]).

-define(SECOND, 1_000_000_000).
-define(MS, 1_000_000).

at_once() -> fun(_Number) -> {after_ms, 0} end.

open_loop(Behaviour, Segments, Plan) ->
    Duration = weir_load_schedule:duration(weir_load_schedule:new(Segments)),
    measure(Behaviour, Plan#{load => {open, Segments, even}, duration => Duration}).

measure(Behaviour, Plan) ->
    Server = weir_load_server:start(Behaviour),
    Document = run(Server, Plan),
    ok = weir_load_server:stop(Server),
    Document.

run(Server, Plan) ->
    {ok, Outcome} = weir_load_run:run(plan(Server, Plan), fun(_News) -> ok end),
    document([Outcome]).

%% Stops the run at the end of the second in which Count requests have been answered or have failed.
run_until_answered(Count, Server, Plan) ->
    {Pid, Monitor} = start(plan(Server, Plan#{duration => 3600 * ?SECOND})),
    ok = until_answered(Count, Pid),
    Pid ! stop,
    receive
        {'DOWN', Monitor, process, Pid, {ok, Outcome}} -> document([Outcome])
    after weir_test_wait:patience() -> error(not_stopped)
    end.

%% Starts a run that sends its progress to the caller and ends at most a second after it.
start(Plan) ->
    Test = self(),
    spawn_monitor(fun() ->
        Show = fun(News) -> true = is_process_alive(Test), Test ! {self(), News}, ok end,
        exit(weir_load_run:run(Plan, Show))
    end).

until_answered(Count, _Pid) when Count =< 0 ->
    ok;
until_answered(Count, Pid) ->
    receive
        {Pid, {second, #{answered := Answered, error_count := Failed}}} ->
            until_answered(Count - Answered - Failed, Pid)
    after weir_test_wait:patience() -> error({missing, Count})
    end.

document(Outcomes) ->
    weir_load_document:new(
        #{
            scenario => <<"echo">>, target => <<"test">>, loop => open, rate => null, arrivals => null, seed => null,
            concurrency => null, connections => 10, depth => 1, tls => false, observe => null, nodes => [node()],
            duration_ns => ?SECOND, warmup_ns => 0,
            timeout_ns => ?SECOND, max_lag_ns => 10 * ?MS, started => <<>>, promises => []
        },
        Outcomes
    ).

plan(#{port := Port}, Plan) ->
    maps:merge(
        #{
            scenario => weir_load_echo,
            options => #{size => 64},
            address => {127, 0, 0, 1},
            port => Port,
            connections => 10,
            connect_rate => unlimited,
            depth => 1,
            duration => ?SECOND,
            warmup => 0,
            timeout => weir_test_wait:patience() * ?MS,
            drivers => 2,
            nodes => [node()],
            observe => none
        },
        Plan
    ).
