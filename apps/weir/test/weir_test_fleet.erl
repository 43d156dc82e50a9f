%% Many connections at once, over more nodes than one process has descriptors for.
%%
%% Half of the nodes are servers, a listener of reactors that send back what comes; the others are clients, a reactor with
%% a share of the connections each. Client and server go in pairs. Connections come from as many addresses of 127.0.0.0/8
%% as their ports need. How many pairs there are follows from the limit of descriptors: one where that is high.
-module(weir_test_fleet).
-behaviour(weir_reactor).

-export([start/1]).
-export([stop/1]).
-export([round/2]).

%% What runs on the nodes.
-export([start_server/0]).
-export([open_server/0]).
-export([server/0]).
-export([close_server/0]).
-export([start_client/0]).
-export([connect/4]).
-export([tell_all/1]).
-export([client/0]).
-export([left/0]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_info/2]).
-export([handle_close/3]).
-export([terminate/2]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [wait_until/1, patience/0]).

-define(SERVER, {127, 0, 0, 1}).

%% Descriptors that a node needs for itself: files, epolls, listening sockets.
-define(OWN, 500).

%% Connections of an address, which has 28,000 ports by default.
-define(OF_AN_ADDRESS, 10000).

%% Connections that are made before the backlogs are looked at again.
-define(WAVE, 500).

%% How often is looked whether memory becomes less.
-define(LOOK_MS, 300).

%% How long idle connections cause no event.
-define(QUIET_MS, 100).

%% What a client counts.
-define(CONNECTED, 1).
-define(REFUSED, 2).
-define(ANSWERED, 3).
-define(WRONG, 4).
-define(ENDED, 5).

-type pair() :: {Number :: pos_integer(), Server :: pid(), Client :: pid(), Connections :: pos_integer()}.
-type fleet() :: [pair()].
-type report() :: #{
    connections := pos_integer(),
    nodes := pos_integer(),
    %% User memory of the servers while all connections were idle, and what of it each of those took, in bytes.
    resident := pos_integer(),
    bytes_per_connection := float(),
    seconds := #{atom() => float()}
}.

-export_type([fleet/0, report/0]).

%% @doc Starts the nodes for so many connections. They end with the caller.
-spec start(pos_integer()) -> fleet().
start(Connections) ->
    Pairs = pairs(Connections),
    [start_pair(Number, share(Number, Pairs, Connections)) || Number <- lists:seq(1, Pairs)].

pairs(Connections) ->
    case descriptors() of
        unlimited -> 1;
        Limit -> (Connections + Limit - ?OWN - 1) div (Limit - ?OWN)
    end.

%% The same for all, and one more for the first as long as something is left over.
share(Number, Pairs, Connections) when Number =< Connections rem Pairs -> Connections div Pairs + 1;
share(_Number, Pairs, Connections) -> Connections div Pairs.

%% The limit of this process, which the nodes inherit.
descriptors() ->
    {ok, Limits} = file:read_file("/proc/self/limits"),
    {match, [Soft]} = re:run(Limits, "Max open files +(\\w+)", [{capture, all_but_first, list}]),
    case Soft of
        "unlimited" -> unlimited;
        _ -> list_to_integer(Soft)
    end.

start_pair(Number, Connections) ->
    [Server, Client] = [weir_test_node:start_node("", ["+S", "1:1"]) || _ <- [server, client]],
    ok = call(Server, start_server, []),
    ok = call(Client, start_client, []),
    {Number, Server, Client, Connections}.

-spec stop(fleet()) -> ok.
stop(Fleet) ->
    lists:foreach(fun({_, Server, Client, _}) -> ok = peer:stop(Server), ok = peer:stop(Client) end, Fleet).

%% @doc Opens all connections, leaves them idle, uses each of them once and ends them: a third when the client has said
%% goodbye, a third by a reset, a third by the end of the server. Fails unless every node is as it was before.
%%
%% No client closes before its server does: the ports of so many would be in TIME_WAIT for a minute, where other tests look
%% for a free one.
%%
%% Memory is measured when it has not become less for `Settled' milliseconds: what the emulator has freed it keeps for a
%% while, and gives back in the course of some seconds.
-spec round(fleet(), Settled :: non_neg_integer()) -> report().
round(Fleet, Settled) ->
    Count = lists:sum([Connections || {_, _, _, Connections} <- Fleet]),
    Ports = each(Fleet, fun({_, Server, _, _}) -> call(Server, open_server, []) end),
    Before = each(Fleet, fun({_, Server, _, _}) -> settled(Server, Settled) end),
    Opening = now_seconds(),
    _ = each(lists:zip(Fleet, Ports), fun({Pair, Port}) -> open(Pair, Port) end),
    Opened = now_seconds(),
    Idle = each(Fleet, fun(Pair) -> idle(Pair, Settled) end),
    Using = now_seconds(),
    _ = each(Fleet, fun use/1),
    Closing = now_seconds(),
    _ = each(Fleet, fun close/1),
    Closed = now_seconds(),
    [Then, Now] = [lists:sum([maps:get(resident, Server) || Server <- Servers]) || Servers <- [Before, Idle]],
    #{
        connections => Count,
        nodes => 2 * length(Fleet),
        resident => Now,
        bytes_per_connection => (Now - Then) / Count,
        seconds => #{open => Opened - Opening, use => Closing - Using, close => Closed - Closing}
    }.

open(Pair = {_, _, Client, Connections}, Port) ->
    Waves = [{First, min(First + ?WAVE - 1, Connections)} || First <- lists:seq(1, Connections, ?WAVE)],
    {Number, _, _, _} = Pair,
    lists:foreach(
        fun({First, Last}) ->
            ok = call(Client, connect, [Number, Port, First, Last]),
            becomes(Pair, #{connections => Last}, #{connected => Last, refused => 0, ended => 0})
        end,
        Waves
    ).

%% Idle connections are nobody's work. The last events of their beginnings may still be on their way.
idle({_, Server, _, Connections}, Settled) ->
    wait_until(fun() ->
        #{events := Before} = call(Server, server, []),
        timer:sleep(?QUIET_MS),
        #{events := After, connections := Connections} = call(Server, server, []),
        After =:= Before orelse {events, After - Before}
    end),
    settled(Server, Settled).

settled(Server, For) ->
    settled(Server, For, call(Server, server, []), For).

settled(_Server, _For, Least, Left) when Left =< 0 ->
    Least;
settled(Server, For, Least = #{resident := Before}, Left) ->
    timer:sleep(?LOOK_MS),
    case call(Server, server, []) of
        #{resident := Now} = Less when Now < Before -> settled(Server, For, Less, For);
        #{} -> settled(Server, For, Least, Left - ?LOOK_MS)
    end.

use(Pair = {_, _, Client, Connections}) ->
    ok = call(Client, tell_all, [ask]),
    becomes(Pair, #{connections => Connections}, #{answered => Connections, wrong => 0, ended => 0}).

close(Pair = {_, Server, Client, Connections}) ->
    ok = call(Client, tell_all, [leave]),
    Stay = length([Number || Number <- lists:seq(1, Connections), manner(Number) =:= stay]),
    becomes(Pair, #{connections => Stay}, #{ended => Connections - Stay}),
    ok = call(Server, close_server, []),
    becomes_true(fun() -> call(Client, client, []) end, #{ended => Connections, wrong => 0}),
    lists:foreach(
        fun(Node) ->
            becomes_true(fun() -> call(Node, left, []) end, #{more_descriptors => 0, sockets => 0, counted => 0, abandoned => 0})
        end,
        [Server, Client]
    ).

%% Waits until a server and its client are such.
becomes({_, Server, Client, _}, OfServer, OfClient) ->
    becomes_true(fun() -> call(Client, client, []) end, OfClient),
    becomes_true(fun() -> call(Server, server, []) end, OfServer).

becomes_true(Look, Wanted) ->
    wait_until(fun() ->
        Seen = maps:with(maps:keys(Wanted), Look()),
        Seen =:= Wanted orelse {seen, Seen, expected, Wanted}
    end).

call(Node, Function, Arguments) ->
    peer:call(Node, ?MODULE, Function, Arguments, patience()).

%% At the same time for all.
each(List, Fun) ->
    Asyncs = [weir_test_peer:async(fun() -> Fun(Element) end) || Element <- List],
    [weir_test_peer:await(Async, 4 * patience()) || Async <- Asyncs].

now_seconds() -> erlang:monotonic_time(microsecond) / 1.0e6.

%% On a server ----------------------------------------------------------------

start_server() ->
    {ok, _} = application:ensure_all_started(weir),
    %% What is made once and stays is there before anything is counted.
    _ = open_server(),
    ok = close_server(),
    remember_descriptors().

open_server() ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?SERVER, max_connections => infinity}, ?MODULE, server),
    weir:get_port(?MODULE).

close_server() ->
    weir:stop_listener(?MODULE).

server() ->
    #{connections := Connections} = weir:info(?MODULE),
    Events = lists:sum([Events || #{events := Events} <- weir:pollsets()]),
    #{connections => Connections, events => Events, resident => resident()}.

%% Bytes of this process that are in memory.
resident() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [KiB]} = re:run(Status, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    1024 * list_to_integer(KiB).

remember_descriptors() ->
    wait_until_abandoned(),
    persistent_term:put({?MODULE, descriptors}, weir_test_peer:descriptors()).

wait_until_abandoned() ->
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% What is there that was not at the start.
left() ->
    #{
        more_descriptors => max(0, weir_test_peer:descriptors() - persistent_term:get({?MODULE, descriptors})),
        sockets => length(weir:sockets()),
        counted => lists:sum([Sockets || #{sockets := Sockets} <- weir:pollsets()]),
        abandoned => length(weir_nif:abandoned())
    }.

%% On a client ----------------------------------------------------------------

start_client() ->
    {ok, _} = application:ensure_all_started(weir),
    Counters = counters:new(?ENDED, []),
    persistent_term:put({?MODULE, counters}, Counters),
    Self = self(),
    %% It ends with its parent.
    _ = spawn(fun() ->
        {ok, _} = weir_reactor:start_link(#{module => ?MODULE, name => ?MODULE}),
        Self ! started,
        receive never -> ok end
    end),
    receive started -> ok end,
    remember_descriptors().

%% Connections with the numbers First to Last.
connect(Client, Port, First, Last) ->
    Counters = persistent_term:get({?MODULE, counters}),
    First =:= 1 andalso [counters:put(Counters, Counter, 0) || Counter <- lists:seq(1, ?ENDED)],
    lists:foreach(
        fun(Number) ->
            From = {127, Client, 1 + Number div ?OF_AN_ADDRESS, 1},
            Linger = [{linger, {true, 0}} || manner(Number) =:= reset],
            Options = [{ip, From}, {packet, raw}, {args, {Number, Counters}} | Linger],
            {ok, _} = weir_reactor:connect(?MODULE, ?SERVER, Port, Options)
        end,
        lists:seq(First, Last)
    ).

%% How a connection ends.
manner(Number) -> element(1 + Number rem 3, {goodbye, reset, stay}).

tell_all(Message) ->
    lists:foreach(fun(Socket) -> weir_reactor:send(Socket, Message) end, weir:sockets()).

client() ->
    Counters = persistent_term:get({?MODULE, counters}),
    maps:map(
        fun(_, Counter) -> counters:get(Counters, Counter) end,
        #{connected => ?CONNECTED, refused => ?REFUSED, answered => ?ANSWERED, wrong => ?WRONG, ended => ?ENDED}
    ).

%% A client sends its own number and gets that back.
init(_Socket, server) ->
    {ok, server};
init(_Socket, {Number, Counters}) ->
    counters:add(Counters, ?CONNECTED, 1),
    {ok, {Number, Counters, <<>>}}.

handle_info(ask, State = {Number, _, _}) -> {send, <<Number:64>>, State};
handle_info(leave, State = {Number, _, _}) ->
    case manner(Number) of
        goodbye -> {send, <<"goodbye">>, State};
        reset -> {close, State};
        stay -> {ok, State}
    end.

handle_data(_Socket, <<"goodbye">>, server) ->
    {close, server};
handle_data(_Socket, Data, server) ->
    {send, Data, server};
handle_data(_Socket, Data, {Number, Counters, Before}) ->
    case <<Before/binary, Data/binary>> of
        <<Number:64>> = All ->
            counters:add(Counters, ?ANSWERED, 1),
            {ok, {Number, Counters, All}};
        Part when byte_size(Part) < 8 ->
            {ok, {Number, Counters, Part}};
        Wrong ->
            counters:add(Counters, ?WRONG, 1),
            {ok, {Number, Counters, Wrong}}
    end.

handle_close(_Socket, {connect, _}, {_, Counters}) ->
    counters:add(Counters, ?REFUSED, 1),
    {ok, refused};
handle_close(_Socket, _Reason, State) ->
    {ok, State}.

terminate(_Reason, server) ->
    ok;
terminate(_Reason, {_, Counters, _}) ->
    counters:add(Counters, ?ENDED, 1).
