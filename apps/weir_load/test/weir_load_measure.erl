%% Loads of suites against a server whose replies they choose, as documents.
-module(weir_load_measure).

-export([at_once/0]).
-export([open_loop/3]).
-export([measure/2]).
-export([run/2]).
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
            timeout => 10 * ?SECOND,
            drivers => 2,
            nodes => [node()],
            observe => none
        },
        Plan
    ).
