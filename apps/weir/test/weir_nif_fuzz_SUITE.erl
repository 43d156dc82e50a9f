%% Fuzzes the native boundary on another virtual machine, so that a crash is noticed here.
-module(weir_nif_fuzz_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_wait, [wait_until/1]).
-import(weir_test_streams, [start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1]).
-import(weir_test_node, [on_node/4]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [sockets, pollsets].

sockets(_Config) ->
    on_node(?MODULE, fuzz_sockets, "", []).

pollsets(_Config) ->
    on_node(?MODULE, fuzz_pollsets, "", []).

fuzz_sockets(Config) ->
    fuzz(prop_nif:prop_sockets(), 500),
    wait_until(fun() -> weir:sockets() =:= [] end),
    serves(Config).

fuzz_pollsets(Config) ->
    %% reap/2 accepts only sockets without an owner.
    ?assertError(badarg, weir_nif:reap(1, 0)),
    fuzz(prop_nif:prop_pollsets(), 100),
    %% The present pollers have lost their tokens, so they are replaced.
    exit(whereis(weir_pollsets), kill),
    wait_until(fun() -> weir:sockets() =:= [] end),
    serves(Config).

%% Reports the failure at once: it may not recur while shrinking, which would use up the time.
fuzz(Property, Cases) ->
    case proper:quickcheck(Property, [{numtests, Cases}, quiet, long_result, noshrink]) of
        true -> ok;
        Counterexample -> ct:fail("~0p~nwrong: ~p", [Counterexample, get(prop_nif)])
    end.

serves(Config) ->
    {_Listener, Port} = start_echo(Config, [passive, once, true, 10]),
    Streams = start_streams(Port, 4),
    assert_streams_go_on(Streams),
    stop_streams(Streams).
