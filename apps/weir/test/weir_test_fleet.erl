%% Many concurrent connections, on several nodes if one process has too few descriptors.
%%
%% Half of the nodes are servers, listeners with echo reactors; the others are clients, reactors with a share of the
%% connections each. Each client has its server. Connections come from as many addresses of 127.0.0.0/8 as their ports
%% need. The limit of descriptors decides the number of pairs: one if it is high.
-module(weir_test_fleet).
-behaviour(weir_reactor).

-export([start/1]).
-export([stop/1]).
-export([round/2]).

%% Runs on the nodes.
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

-include_lib("weir_testing/include/weir_test.hrl").

-define(SERVER, {127, 0, 0, 1}).

%% Descriptors of a node besides connections: files, epolls, listening sockets.
-define(OWN, 500).

%% Connections from one address, which has 28,000 ports by default.
-define(OF_AN_ADDRESS, 10000).

%% Connections that are opened before the backlogs are checked again.
-define(WAVE, 500).

%% Interval of checks whether memory shrinks.
-define(LOOK_MS, 300).

%% Counters of a client.
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
    %% User memory of the servers with all connections idle, and bytes of it for each connection.
    resident := pos_integer(),
    bytes_per_connection := float(),
    seconds := #{atom() => float()}
}.

-export_type([fleet/0, report/0]).

%% @doc Starts the nodes for this many connections. They end with the caller.
-spec start(pos_integer()) -> fleet().
start(Connections) ->
    Pairs = pairs(Connections),
    [start_pair(Number, share(Number, Pairs, Connections)) || Number <- lists:seq(1, Pairs)].

pairs(Connections) ->
    case descriptors() of
        unlimited -> 1;
        Limit -> (Connections + Limit - ?OWN - 1) div (Limit - ?OWN)
    end.

%% Equal shares, and one more for the first ones while there is a remainder.
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

%% @doc Opens all connections, leaves them idle, uses each once and ends them: a third after a message of the client,
%% a third by a reset, a third by the end of the server. Fails unless every node is as it was before.
%%
%% No client closes before its server does: otherwise all ports would be in TIME_WAIT for a minute, and other tests
%% might find none free.
%%
%% Memory is measured when it has not shrunk for `Settled' milliseconds: the emulator keeps freed memory for a while,
%% and returns it over some seconds.
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

%% Idle connections cause no work.
idle({_, Server, _, Connections}, Settled) ->
    #{events := Events} = call(Server, server, []),
    #{events := Events, connections := Connections} = settled(Server, Settled).

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
    become_equal(fun() -> call(Client, client, []) end, #{ended => Connections, wrong => 0}),
    lists:foreach(
        fun(Node) ->
            become_equal(fun() -> call(Node, left, []) end, #{
                more_descriptors => 0, sockets => 0, counted => 0, abandoned => 0
            })
        end,
        [Server, Client]
    ).

%% Waits until a server and its client have these figures.
becomes({_, Server, Client, _}, OfServer, OfClient) ->
    become_equal(fun() -> call(Client, client, []) end, OfClient),
    become_equal(fun() -> call(Server, server, []) end, OfServer).

become_equal(Look, Wanted) ->
    _ = ?waitEqual(Wanted, maps:with(maps:keys(Wanted), Look())),
    ok.

call(Node, Function, Arguments) ->
    peer:call(Node, ?MODULE, Function, Arguments, weir_test_wait:patience()).

%% Concurrently for all elements.
each(List, Fun) ->
    Asyncs = [weir_test_peer:async(fun() -> Fun(Element) end) || Element <- List],
    [weir_test_peer:await(Async, infinity) || Async <- Asyncs].

now_seconds() -> erlang:monotonic_time(microsecond) / 1.0e6.

%% On a server ----------------------------------------------------------------

start_server() ->
    {ok, _} = application:ensure_all_started(weir),
    %% Permanent allocations must exist before anything is counted.
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

%% Resident memory of this process in bytes.
resident() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [KiB]} = re:run(Status, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    1024 * list_to_integer(KiB).

remember_descriptors() ->
    wait_until_abandoned(),
    persistent_term:put({?MODULE, descriptors}, weir_test_peer:descriptors()).

wait_until_abandoned() ->
    weir_test_wait:wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% What exists that did not exist at the start.
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
    %% The reactor ends with its parent.
    _ = spawn(fun() ->
        {ok, _} = weir_reactor:start_link(#{module => ?MODULE, name => ?MODULE}),
        Self ! started,
        receive never -> ok end
    end),
    receive started -> ok end,
    remember_descriptors().

%% Opens the connections with the numbers First to Last.
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

%% A client sends its number and expects the same back.
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
