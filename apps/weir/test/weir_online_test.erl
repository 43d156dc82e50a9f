%% A machine with eight schedulers, two of them online, as in a container with a quota, and listeners there.
-module(weir_online_test).

-export([start_machine/0]).
-export([two_online/1]).
-export([online/1]).
-export([used/0]).
-export([listening/0]).
-export([pollsets_of/1]).
-export([workers/1]).
-export([schedulers_of_reactors/0]).
-export([one_on_each/3]).
-export([where/2]).
-export([change_under/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_socket.hrl").

-import(weir_listener_test, [ask/2, connect/1, is_served/1]).
-import(weir_test_peer, [async/1, await/1, pid/1]).
-import(weir_test_streams, [assert_streams_go_on/1, start_streams/2, stop_streams/1]).
-import(weir_test_wait, [patience/0]).

-define(LOOPBACK, {127, 0, 0, 1}).

start_machine() -> weir_test_machine:start("", ["+S", "8:2"]).

%% The initial state of a case, also after one that failed.
two_online(_Config) ->
    _ = [weir:stop_listener(Name) || Name <- weir:listeners()],
    online(2).

%% Returns when the pollsets have followed.
online(Count) ->
    ok = weir_test_schedulers:set_online(Count),
    ?waitEqual(lists:seq(1, Count), weir_pollsets:online()),
    ok.

%% The pollsets of schedulers that have sockets.
used() -> [Number || #{pollset := Number, sockets := Count} <- weir:pollsets(), Count > 0].

%% The listening sockets of this machine.
listening() ->
    [Socket || Socket = ?SOCKET(Handle) <- weir:sockets(), {ok, #{state := listening}} <- [weir_nif:info(Handle)]].

pollsets_of(Sockets) -> [Pollset || ?SOCKET(Handle) <- Sockets, {ok, #{pollset := Pollset}} <- [weir_nif:info(Handle)]].

workers(Name) -> length(weir_listener_names:call(Name, which_children)).

schedulers_of_reactors() -> lists:sort([Scheduler || #{scheduler := Scheduler} <- weir:reactors()]).

%% Opens connections until there is one on each of this many pollsets.
one_on_each(Count, _Listener, Found) when map_size(Found) =:= Count -> Found;
one_on_each(Count, Listener, Found) ->
    Peer = is_served(connect(weir:get_port(Listener))),
    one_on_each(Count, Listener, Found#{where(Peer, Listener) => Peer}).

%% The pollset of a peer's connection.
where(Peer, Listener) ->
    {ok, Name} = inet:sockname(Peer),
    [Pollset] = [
        Pollset
     || {Socket = ?SOCKET(Handle), _} <- weir:connections(Listener), {ok, Name} =:= inet:peername(Socket),
        {ok, #{pollset := Pollset}} <- [weir_nif:info(Handle)]
    ],
    Pollset.

%% Clients connect, are served and close, over and over.
change_under(Port) ->
    Clients = [async(fun() -> connect_until_stopped(Port) end) || _ <- lists:seq(1, 8)],
    Streams = start_streams(Port, 8),
    lists:foreach(
        fun(Online) ->
            ok = online(Online),
            assert_streams_go_on(Streams)
        end,
        [8, 1, 4, 2, 3, 1, 8, 5, 2]
    ),
    _ = [pid(Client) ! stop || Client <- Clients],
    ?assertEqual([ok || _ <- Clients], [await(Client) || Client <- Clients]),
    stop_streams(Streams).

connect_until_stopped(Port) ->
    receive
        stop -> ok
    after 0 ->
        {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()),
        {ok, <<"hello">>} = ask(Socket, <<"hello">>),
        ok = gen_tcp:close(Socket),
        connect_until_stopped(Port)
    end.
