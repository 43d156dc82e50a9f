%% WebSockets whose clients do not read, those with their own process, and TLS.
-module(weir_http_websocket_process_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1, connect/2]).
-import(weir_http_websocket_client, [
    open/1, upgrade/2, handshake/1, send/2, send/3, frame/2, text/1, recv/1, recv/2, closes/1
]).
-import(weir_http_websocket_handler, [with/1, telling/1, telling_open/1]).
-import(weir_http_serving, [told/0, watch/1, watched/0]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_client_that_does_not_read,
        a_client_that_does_not_read_what_it_asked_for,
        frames_are_dropped,
        a_process,
        a_process_that_is_slow,
        empty_messages_are_bounded,
        a_process_ends,
        a_process_is_told_of_the_end,
        a_process_whose_reactor_is_killed_ends,
        the_same_with_tls
    ].

start(Funs) -> start(Funs, #{}).

start(Funs, Options) -> weir_http_websocket_handler:start(?LISTENER, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Back-pressure.

%% A client that reads nothing is closed, and uses bounded memory.
a_client_that_does_not_read(_Config) ->
    Port = start(telling(telling_open(with(#{max_pending => 100000, close_timeout => 50}))), #{
        idle_timeout => 100, socket_opts => [{sndbuf, 10000}]
    }),
    Client = open(Port),
    Socket = told(),
    Frame = {binary, binary:copy(<<0>>, 10000)},
    ?waitEqual({error, closed}, weir_http_websocket:send(Socket, Frame)),
    slow = told(),
    ?waitEqual(1, counter(websocket_slow)),
    ok = gen_tcp:close(Client).

frames_are_dropped(_Config) ->
    Port = start(telling_open(with(#{max_pending => 100000, slow => drop})), #{socket_opts => [{sndbuf, 10000}]}),
    Client = connect(Port, [{recbuf, 4096}]),
    {101, _} = upgrade(Client, ""),
    Socket = told(),
    Frames = [{binary, <<N:32, (binary:copy(<<0>>, 10000))/binary>>} || N <- lists:seq(1, 1000)],
    [ok = weir_http_websocket:send(Socket, Frame) || Frame <- Frames],
    ok = wait_until(fun() -> counter(websocket_dropped) > 0 end),
    ok = send(Client, text("end")),
    Numbers = until_end(Client, []),
    ?assertEqual(1000, length(Numbers) + counter(websocket_dropped)),
    ?assertEqual(Numbers, lists:usort(Numbers)).

until_end(Client, Numbers) ->
    case recv(Client) of
        {binary, <<N:32, _/binary>>} -> until_end(Client, [N | Numbers]);
        {text, <<"end">>} -> lists:reverse(Numbers)
    end.

%% Each message asks for much output: messages are handled only as fast as the client reads.
a_client_that_does_not_read_what_it_asked_for(_Config) ->
    Large = {binary, binary:copy(<<0>>, 50000)},
    Port = start(telling_open(#{message => fun(_, State) -> {send, Large, State} end}), #{
        socket_opts => [{sndbuf, 65536}]
    }),
    Client = connect(Port, [{recbuf, 4096}]),
    {101, _} = upgrade(Client, ""),
    Socket = told(),
    Count = 300,
    ok = send(Client, binary:copy(text("more"), Count)),
    ok = wait_until(fun() -> counter(websocket_messages) > 1 end),
    Pending = fun() ->
        {ok, [{send_pend, Bytes}]} = inet:getstat(Socket, [send_pend]),
        Bytes
    end,
    [?assert(Pending() < 200000) || _ <- lists:seq(1, 100)],
    ?assert(counter(websocket_messages) < Count),
    [?assertMatch({binary, <<0:400000>>}, recv(Client)) || _ <- lists:seq(1, Count)],
    ?waitEqual(Count, counter(websocket_messages)).

%%% Processes.

processing(Fun) -> telling(#{open => fun(_, _) -> {process, Fun} end}).

a_process(_Config) ->
    Port = start(processing(fun echo/1)),
    Client = open(Port),
    [ok = send(Client, text(integer_to_list(N))) || N <- lists:seq(1, 100)],
    ?assertEqual([{text, integer_to_binary(N)} || N <- lists:seq(1, 100)], recv(Client, 100)),
    ok = send(Client, 16#88, <<1000:16>>),
    1000 = closes(Client).

echo(Socket) ->
    case weir_http_websocket:recv(Socket) of
        {closed, _} ->
            ok;
        Message ->
            ok = weir_http_websocket:send(Socket, Message),
            echo(Socket)
    end.

a_process_that_is_slow(_Config) ->
    Self = self(),
    Port = start(processing(fun(Socket) ->
        timeout = weir_http_websocket:recv(Socket, 0),
        Self ! {told, {self(), Socket}},
        receive go -> echo(Socket) end
    end)),
    Client = open(Port),
    {Pid, Socket} = told(),
    Frame = frame(16#82, binary:copy(<<0>>, 10000)),
    ok = inet:setopts(Client, [{send_timeout, 100}]),
    Sent = send_until_full(Client, Frame, 0),
    %% The client was blocked, so the server has enough waiting.
    ?waitEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])),
    %% The process has asked for one message.
    ?waitEqual({message_queue_len, 1}, process_info(Pid, message_queue_len)),
    Pid ! go,
    %% Not a list comprehension: common_test would print its result.
    lists:foreach(fun(_) -> {binary, <<0:80000>>} = recv(Client) end, lists:seq(1, Sent)).

%% Sends until sending blocks. Returns how many frames were sent completely.
send_until_full(Client, Frame, Sent) ->
    case gen_tcp:send(Client, Frame) of
        ok when Sent < 10000 -> send_until_full(Client, Frame, Sent + 1);
        {error, timeout} -> Sent
    end.

%% Empty messages use memory as well.
empty_messages_are_bounded(_Config) ->
    Self = self(),
    Port = start(processing(fun(Socket) ->
        Self ! {told, {self(), Socket}},
        receive go -> echo(Socket) end
    end)),
    Client = open(Port),
    {Pid, Socket} = told(),
    Sent = send_until_not_read(Client, binary:copy(frame(16#82, ""), 1000), Socket, 1),
    Pid ! go,
    lists:foreach(fun(_) -> {binary, <<>>} = recv(Client) end, lists:seq(1, Sent * 1000)).

%% Sends thousands of frames until the connection is not read. Returns how many thousands were sent.
send_until_not_read(Client, Frames, Socket, Sent) when Sent =< 20 ->
    ok = send(Client, Frames),
    IsRead = fun() -> inet:getopts(Socket, [active]) =/= {ok, [{active, false}]} end,
    ok = wait_until(fun() -> counter(websocket_messages) >= Sent * 1000 orelse not IsRead() end),
    case IsRead() of
        true -> send_until_not_read(Client, Frames, Socket, Sent + 1);
        false -> Sent
    end.

a_process_ends(_Config) ->
    Port = start(processing(fun(Socket) ->
        case weir_http_websocket:recv(Socket) of
            {text, <<"normal">>} -> ok;
            {text, <<"kill">>} -> exit(self(), kill);
            {text, <<"fail">>} -> exit(on_purpose)
        end
    end)),
    [
        begin
            Client = open(Port),
            ok = send(Client, text(Text)),
            {close, Code, _} = recv(Client)
        end
     || {Text, Code} <- [{"normal", 1000}, {"fail", 1011}, {"kill", 1011}]
    ],
    ?waitEqual(2, counter(crashes)).

a_process_is_told_of_the_end(_Config) ->
    Self = self(),
    Port = start(processing(fun(Socket) ->
        Self ! {told, self()},
        receive go -> ok end,
        Self ! {told, [weir_http_websocket:recv(Socket) || _ <- lists:seq(1, 3)]}
    end)),
    Client = open(Port),
    Pid = told(),
    ok = send(Client, [text("one"), text("two"), frame(16#88, <<4000:16, "bye">>)]),
    4000 = closes(Client),
    Pid ! go,
    [{text, <<"one">>}, {text, <<"two">>}, {closed, {peer, 4000, <<"bye">>}}] = told().

a_process_whose_reactor_is_killed_ends(_Config) ->
    Self = self(),
    Port = start(#{
        open => fun(_, _) ->
            Reactor = self(),
            {process, fun(Socket) ->
                Self ! {told, {self(), Reactor}},
                watched(),
                echo(Socket)
            end}
        end
    }),
    _Client = open(Port),
    {Pid, Reactor} = told(),
    Monitor = watch(Pid),
    exit(Reactor, kill),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> {shutdown, client_gone} = Reason
    after weir_test_wait:patience() -> error(lives)
    end.

the_same_with_tls(_Config) ->
    ok = weir_http_client:with_tls(),
    Port = start(telling_open(#{}), weir_http_client:options(#{})),
    Client = connect(Port),
    ok = ssl:send(Client, handshake("")),
    {ok, <<"HTTP/1.1 101 ", _/binary>>} = ssl:recv(Client, 0, weir_test_wait:patience()),
    Socket = told(),
    ok = ssl:send(Client, text("Hello")),
    {ok, <<16#81, 5, "Hello">>} = ssl:recv(Client, 7, weir_test_wait:patience()),
    ok = weir_http_websocket:send(Socket, {text, "unasked"}),
    {ok, <<16#81, 7, "unasked">>} = ssl:recv(Client, 9, weir_test_wait:patience()),
    ok = ssl:send(Client, frame(16#88, <<1000:16>>)),
    {ok, <<16#88, 2, 1000:16>>} = ssl:recv(Client, 4, weir_test_wait:patience()),
    {error, closed} = ssl:recv(Client, 0, weir_test_wait:patience()),
    {error, closed} = weir_http_websocket:send(Socket, {text, "late"}).
