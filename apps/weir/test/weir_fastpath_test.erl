%% What the suites of deaths (weir_fastpath_*) share.
-module(weir_fastpath_test).

-export([pause/0]).
-export([one_of/1]).
-export([kill_pollers/0]).
-export([given/2]).
-export([is_over/1]).
-export([relay/2]).
-export([has_ended/1]).
-export([stop/1]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/3, async/1, await/2, pid/1, recv_all/1]).

-define(PATIENCE, 20000).
%% How long to wait for many at once.
-define(LONG, 60000).

%% Short enough to come in between, and never the same.
pause() ->
    timer:sleep(rand:uniform(5)).

one_of(Choices) ->
    lists:nth(rand:uniform(length(Choices)), Choices).

kill_pollers() ->
    [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)].

%% Gives a socket of the caller's to a process that runs a function with it.
given(Socket, Fun) ->
    Async = async(fun() -> receive go -> Fun(Socket) end end),
    case gen_tcp:controlling_process(Socket, pid(Async)) of
        ok -> ok;
        %% The socket was closed by others, which is for the function to see.
        {error, _} -> ok
    end,
    pid(Async) ! go,
    Async.

is_over(Socket) ->
    {_, Reason} = recv_all(Socket),
    ?assertNotEqual(timeout, Reason).

%% Relays ----------------------------------------------------------------------

%% Two stock peers with a relay of the caller's between them, that have little room.
relay(Config, Options) ->
    Pair = fun() -> socket_pair(Config, [binary, {active, false}, {sndbuf, 8192}], [{recbuf, 8192}, {sndbuf, 8192}]) end,
    {A, Client} = Pair(),
    {B, Server} = Pair(),
    {ok, Relay} = weir:relay(A, B, Options),
    {Relay, Client, Server}.

has_ended(Relay) ->
    receive
        {weir_relay, Relay, Result, _} -> Result
    after ?PATIENCE -> ct:fail({not_ended, weir:relay_info(Relay)})
    end.

stop(Broadcaster) ->
    pid(Broadcaster) ! stop,
    await(Broadcaster, ?LONG).
