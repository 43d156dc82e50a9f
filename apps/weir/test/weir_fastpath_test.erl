%% Shared by the suites of deaths (weir_fastpath_*).
-module(weir_fastpath_test).

-export([init_group/1]).
-export([init_case/2]).
-export([end_case/1]).
-export([pause/0]).
-export([one_of/1]).
-export([kill_pollers/0]).
-export([new_engine/0]).
-export([given/2]).
-export([is_over/1]).
-export([relay/2]).
-export([has_ended/1]).
-export([stop/1]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/3, async/1, await/2, pid/1]).
-import(weir_test_wait, [patience/0, recv_all/1]).


init_group(Config) ->
    Weir = weir_test_peer:init_group(weir, Config),
    io:format("seed: ~p~n", [rand:export_seed_s(rand:seed(exsss))]),
    Weir.

init_case(Case, Config) ->
    ok = weir_test_peer:silence_pollers(),
    [{name, Case} | weir_relay_test:init_case(Config)].

%% The numbers of descriptors, sockets, relays and listeners are as before.
end_case(Config) ->
    [ok = weir:stop_listener(Name) || Name <- weir:listeners()],
    _ = weir_test_peer:unsilence_pollers(),
    weir_relay_test:end_case(Config).

%% Short and random, to interrupt at different moments.
pause() ->
    timer:sleep(rand:uniform(5)).

one_of(Choices) ->
    lists:nth(rand:uniform(length(Choices)), Choices).

%% The engine's supervisor gives up after five deaths in ten seconds. A case that kills its children starts a new
%% supervisor first, so that earlier deaths do not count. No socket of Weir may exist then.
new_engine() ->
    _ = supervisor:terminate_child(kernel_safe_sup, weir_engine),
    weir_engine:start().

kill_pollers() ->
    [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)].

%% Gives a socket of the caller to a process that runs a function with it.
given(Socket, Fun) ->
    Async = async(fun() -> receive go -> Fun(Socket) end end),
    case gen_tcp:controlling_process(Socket, pid(Async)) of
        ok -> ok;
        %% The socket is already closed, which the function will notice.
        {error, _} -> ok
    end,
    pid(Async) ! go,
    Async.

is_over(Socket) ->
    {_, Reason} = recv_all(Socket),
    ?assertNotEqual(timeout, Reason).

%% Relays ----------------------------------------------------------------------

%% Two stock peers with a relay between them that belongs to the caller. Buffers are small.
relay(Config, Options) ->
    Pair = fun() ->
        socket_pair(Config, [binary, {active, false}, {sndbuf, 8192}], [{recbuf, 8192}, {sndbuf, 8192}])
    end,
    {A, Client} = Pair(),
    {B, Server} = Pair(),
    {ok, Relay} = weir:relay(A, B, Options),
    {Relay, Client, Server}.

has_ended(Relay) ->
    receive
        {weir_relay, Relay, Result, _} -> Result
    after patience() -> ct:fail({not_ended, weir:relay_info(Relay)})
    end.

stop(Broadcaster) ->
    pid(Broadcaster) ! stop,
    await(Broadcaster, patience()).
