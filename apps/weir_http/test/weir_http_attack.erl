%% Attacking clients, an honest one beside them, and the resources that a server holds afterwards.
-module(weir_http_attack).

-export([start/2, listen/3, stop/1, port/1]).
-export([left/1, at_rest/2]).
-export([resets/2, floods/3, bombs/2, idle/2]).
-export([honest/2, percentile/2]).

%% Starts a listener in its own VM, so that descriptors and memory are those of the server.
start(Options, Arguments) ->
    Paths = ["-pa" | [Path || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)]],
    {ok, Peer, _} = peer:start(#{
        connection => standard_io, wait_boot => weir_test_wait:patience(), args => Arguments ++ Paths
    }),
    {ok, _} = peer:call(Peer, application, ensure_all_started, [weir_http], weir_test_wait:patience()),
    {ok, _} = peer:call(
        Peer,
        weir_http,
        start_listener,
        [
            attacked,
            Options#{ip => {127, 0, 0, 1}},
            [
                {"/", weir_http_echo, {reply, 200, [{<<"content-type">>, <<"text/plain">>}], <<"hello">>}},
                {"/large", weir_http_echo, {reply, 200, [], binary:copy(<<"x">>, 300000)}},
                {"/echo", weir_http_echo, echo, #{methods => [<<"POST">>]}},
                {"/websocket", weir_http_websocket_handler, #{options => #{deflate => true}}}
            ]
        ],
        weir_test_wait:patience()
    ),
    {Peer, peer:call(Peer, weir, get_port, [attacked], weir_test_wait:patience())}.

%% Starts another listener in that VM. Returns its port.
listen(Name, Options, {Peer, _Port}) ->
    {ok, _} = peer:call(
        Peer, weir_http, start_listener, [Name, Options#{ip => {127, 0, 0, 1}}, []], weir_test_wait:patience()
    ),
    peer:call(Peer, weir, get_port, [Name], weir_test_wait:patience()).

stop({Peer, _Port}) -> peer:stop(Peer).

port({_Peer, Port}) -> Port.

%% Returns the number of connections, of open descriptors, and the bytes of memory.
left({Peer, _Port}) ->
    _ = [
        peer:call(Peer, erlang, garbage_collect, [Pid], weir_test_wait:patience())
     || Pid <- peer:call(Peer, erlang, processes, [], weir_test_wait:patience())
    ],
    #{connections := Connections} = peer:call(Peer, weir_http, info, [attacked], weir_test_wait:patience()),
    Pid = peer:call(Peer, os, getpid, [], weir_test_wait:patience()),
    {ok, Descriptors} = file:list_dir(filename:join(["/proc", Pid, "fd"])),
    {Connections, length(Descriptors), peer:call(Peer, erlang, memory, [total], weir_test_wait:patience())}.

%% Waits until there are no connections and no further descriptors, and at most 8 MiB more memory than before.
at_rest(Server, Before = {_, Descriptors, Memory}) ->
    IsAtRest = fun() ->
        {Connections, Now, Bytes} = left(Server),
        Connections =:= 0 andalso Now =< Descriptors + 8 andalso Bytes =< Memory + 8388608
    end,
    case weir_test_wait:becomes_true(IsAtRest, weir_test_wait:patience()) of
        true -> ok;
        false -> {still, left(Server), before, Before}
    end.

%% Resets connections: before a request, in the middle of one, and while a response is sent.
resets(Port, Count) ->
    lists:foreach(
        fun(N) ->
            {ok, Socket} = connect(Port),
            _ = gen_tcp:send(
                Socket,
                element(
                    N rem 4 + 1,
                    {<<>>, <<"GET / HT">>, <<"GET /large HTTP/1.1\r\nHost: a\r\n\r\n">>,
                        <<"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx">>}
                )
            ),
            ok = inet:setopts(Socket, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Socket)
        end,
        lists:seq(1, Count)
    ).

%% Sends that many megabytes made by a fun, and reconnects when the server closes.
floods(Port, Megabytes, Make) -> floods(Port, Megabytes * 16, Make, connect(Port)).

floods(_Port, 0, _Make, {ok, Socket}) -> gen_tcp:close(Socket);
floods(Port, Pieces, Make, {ok, Socket}) ->
    case gen_tcp:send(Socket, Make(65536)) of
        ok -> floods(Port, Pieces - 1, Make, {ok, Socket});
        {error, _} ->
            ok = gen_tcp:close(Socket),
            floods(Port, Pieces - 1, Make, connect(Port))
    end.

%% Sends WebSocket messages of 20 KB that inflate to 20 MB, each on its own connection.
bombs(Port, Count) ->
    Bomb = weir_http_websocket_client:frame(16#c2, compressed(<<0:20000000/unit:8>>)),
    lists:foreach(
        fun(_) ->
            Socket = weir_http_websocket_client:open(Port, "Sec-WebSocket-Extensions: permessage-deflate\r\n"),
            ok = weir_http_websocket_client:send(Socket, Bomb),
            1009 = weir_http_websocket_client:closes(Socket),
            ok = weir_http_websocket_client:close(Socket)
        end,
        lists:seq(1, Count)
    ).

%% As in RFC 7692: without the four bytes that end a flush.
compressed(Plain) ->
    Stream = zlib:open(),
    ok = zlib:deflateInit(Stream, default, deflated, -15, 8, default),
    Bytes = iolist_to_binary(zlib:deflate(Stream, Plain, sync)),
    ok = zlib:close(Stream),
    binary:part(Bytes, 0, byte_size(Bytes) - 4).

idle(Port, Count) -> [element(2, {ok, _} = connect(Port)) || _ <- lists:seq(1, Count)].

connect(Port) ->
    gen_tcp:connect(
        {127, 0, 0, 1},
        Port,
        [binary, {active, false}, {send_timeout, weir_test_wait:patience()}],
        weir_test_wait:patience()
    ).

%% An honest client: sends that many requests one after the other, every tenth on a new connection. Returns
%% microseconds.
honest(Port, Count) -> honest(Port, Count, none, []).

honest(_Port, 0, Socket, Times) ->
    ok = gen_tcp:close(Socket),
    lists:sort(Times);
honest(Port, Count, Socket, Times) when Socket =:= none; Count rem 10 =:= 0 ->
    _ = Socket =/= none andalso gen_tcp:close(Socket),
    {Time, New} = timer:tc(fun() ->
        {ok, New} = connect(Port),
        asked(New)
    end),
    honest(Port, Count - 1, New, [Time | Times]);
honest(Port, Count, Socket, Times) ->
    {Time, Socket} = timer:tc(fun() -> asked(Socket) end),
    honest(Port, Count - 1, Socket, [Time | Times]).

asked(Socket) ->
    ok = gen_tcp:send(Socket, <<"GET / HTTP/1.1\r\nHost: a\r\n\r\n">>),
    {ok, <<"HTTP/1.1 200 ", _/binary>>} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    Socket.

percentile(Times, Percent) -> lists:nth(max(1, length(Times) * Percent div 100), Times).
