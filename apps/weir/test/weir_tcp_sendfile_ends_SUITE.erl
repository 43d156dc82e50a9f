%% sendfile while sockets, peers, owners and the files themselves end.
-module(weir_tcp_sendfile_ends_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, async/1, await/1, assert_waits/1, kill/1, pid/1, reset/1, descriptors/0]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_all/1, recv_exactly/2]).
-import(weir_tcp_send_test, [narrow_pair/2]).
-import(weir_tcp_sendfile_test, [
    assert_refused/2, contents/1, file/2, is_weir/1, open/2, open_with/2, pair/1, send_whole/2, stuck/2
]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        many_at_once,
        again_and_again,
        not_the_owner,
        after_controlling_process,
        listener,
        closed_socket,
        socket_that_the_peer_closed,
        after_shutdown_write,
        shutdown_read_meanwhile,
        peer_resets_meanwhile,
        peer_resets_meanwhile_active,
        peer_closes_meanwhile_active,
        half_close_meanwhile,
        socket_closed_meanwhile,
        send_timeout_close_meanwhile,
        owner_killed_meanwhile,
        ended_at_any_moment,
        file_deleted_meanwhile,
        file_truncated_meanwhile,
        file_grows_meanwhile
    ].

many_at_once(Config) ->
    Contents = contents(2000000),
    Name = file(Config, Contents),
    {Listener, Port} = listen(Config, [binary, {active, false}, {backlog, 64}]),
    Servers = [
        async(fun() ->
            {ok, Socket} = gen_tcp:accept(Listener),
            Result = file:sendfile(Name, Socket),
            ok = gen_tcp:close(Socket),
            Result
        end)
     || _ <- lists:seq(1, 20)
    ],
    Readers = [
        async(fun() ->
            {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {buffer, 1 bsl 18}]),
            {Received, closed} = recv_all(Peer),
            ok = gen_tcp:close(Peer),
            Received =:= Contents
        end)
     || _ <- lists:seq(1, 20)
    ],
    [?assertEqual({ok, 2000000}, await(Server)) || Server <- Servers],
    [?assertEqual(true, await(Reader)) || Reader <- Readers].

again_and_again(Config) ->
    {Socket, Peer} = pair(Config),
    Contents = contents(1000),
    File = open(Config, Contents),
    Before = descriptors(),
    Reader = async(fun() -> recv_exactly(Peer, 500 * 1004) end),
    [
        begin
            ok = gen_tcp:send(Socket, <<N:32>>),
            ?assertEqual({ok, 1000}, send_whole(File, Socket))
        end
     || N <- lists:seq(1, 500)
    ],
    ?assert(iolist_to_binary([[<<N:32>>, Contents] || N <- lists:seq(1, 500)]) =:= await(Reader)),
    wait_until(fun() -> descriptors() =< Before end),
    ok = file:close(File).

not_the_owner(Config) ->
    {Socket, Peer} = pair(Config),
    Name = file(Config, <<"mine">>),
    ?assertEqual({error, not_owner}, await(async(fun() -> file:sendfile(Name, Socket) end))),
    Out = async(fun() ->
        File = open_with(Name, [read, raw, binary]),
        Result = file:sendfile(File, Socket, -1, 0, []),
        ok = file:close(File),
        Result
    end),
    ?assertEqual({error, not_owner}, await(Out)),
    ?assertEqual({ok, 4}, file:sendfile(Name, Socket)),
    ?assertEqual(<<"mine">>, recv_exactly(Peer, 4)).

after_controlling_process(Config) ->
    {Socket, Peer} = pair(Config),
    Name = file(Config, <<"handed over">>),
    Other = async(fun() ->
        receive
            go -> file:sendfile(Name, Socket)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, pid(Other)),
    ?assertEqual({error, not_owner}, file:sendfile(Name, Socket)),
    pid(Other) ! go,
    ?assertEqual({ok, 11}, await(Other)),
    ?assertEqual(<<"handed over">>, recv_exactly(Peer, 11)).

listener(Config) ->
    {Listener, _Port} = listen(Config, []),
    ?assertEqual({error, enotconn}, file:sendfile(file(Config, <<"x">>), Listener)).

closed_socket(Config) ->
    {Socket, _Peer} = pair(Config),
    ok = gen_tcp:close(Socket),
    ?assertEqual({error, einval}, file:sendfile(file(Config, <<"x">>), Socket)).

socket_that_the_peer_closed(Config) ->
    {Socket, Peer} = pair(Config),
    Name = file(Config, contents(1000)),
    ok = gen_tcp:close(Peer),
    %% The first ones may succeed before the peer's answer is known.
    wait_until(fun() -> file:sendfile(Name, Socket) =:= {error, closed} end),
    ?assertEqual({error, enotconn}, file:sendfile(Name, Socket)),
    assert_refused(Config, Socket),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0)).

after_shutdown_write(Config) ->
    {Socket, Peer} = pair(Config),
    ok = gen_tcp:shutdown(Socket, write),
    ?assertEqual({error, closed}, file:sendfile(file(Config, <<"x">>), Socket)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

shutdown_read_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Sender = stuck(Socket, file(Config, Contents)),
    ?assertEqual(ok, gen_tcp:shutdown(Socket, read)),
    ?assert(Contents =:= recv_exactly(Peer, 500000)),
    ?assertEqual({ok, 500000}, await(Sender)).

%% sendfile returns closed, even with show_econnreset.
peer_resets_meanwhile(Config) ->
    lists:foreach(
        fun({Show, Reason}) ->
            {Socket, Peer} = narrow_pair(Config, [{show_econnreset, Show}]),
            Sender = stuck(Socket, file(Config, contents(500000))),
            ok = reset(Peer),
            ?assertEqual({error, closed}, await(Sender)),
            assert_refused(Config, Socket),
            ?assertEqual({error, Reason}, gen_tcp:recv(Socket, 0, patience()))
        end,
        [{false, closed}, {true, econnreset}]
    ).

peer_resets_meanwhile_active(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{active, true}]),
    Sender = stuck(Socket, file(Config, contents(500000))),
    ok = reset(Peer),
    ?assertEqual({error, closed}, await(Sender)),
    wait_until(fun() -> gen_tcp:send(Socket, <<"x">>) =:= {error, closed} end).

peer_closes_meanwhile_active(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{active, true}]),
    Sender = stuck(Socket, file(Config, contents(500000))),
    ok = gen_tcp:shutdown(Peer, write),
    ?assertEqual({error, closed}, await(Sender)),
    wait_until(fun() -> gen_tcp:send(Socket, <<"x">>) =:= {error, closed} end),
    {Received, closed} = recv_all(Peer),
    ?assert(byte_size(Received) < 500000).

%% Stock returns closed, and goes on sending.
half_close_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{active, true}, {exit_on_close, false}]),
    Contents = contents(500000),
    Sender = stuck(Socket, file(Config, Contents)),
    ok = gen_tcp:shutdown(Peer, write),
    case is_weir(Config) of
        true ->
            assert_waits(Sender),
            ?assert(Contents =:= recv_exactly(Peer, 500000)),
            ?assertEqual({ok, 500000}, await(Sender));
        false ->
            ?assertEqual({error, closed}, await(Sender))
    end.

%% On stock the sending process waits for ever.
socket_closed_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Sender = stuck(Socket, file(Config, Contents)),
    ?assertEqual(ok, gen_tcp:close(Socket)),
    {Received, closed} = recv_all(Peer),
    ?assert(byte_size(Received) < 500000),
    ?assert(Received =:= binary:part(Contents, 0, byte_size(Received))),
    case is_weir(Config) of
        true -> ?assertEqual({error, closed}, await(Sender));
        false -> assert_waits(Sender)
    end.

send_timeout_close_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, [{send_timeout, 50}, {send_timeout_close, true}]),
    Sender = stuck(Socket, file(Config, contents(500000))),
    ?assertEqual({error, timeout}, gen_tcp:send(Socket, rand:bytes(100000))),
    {Received, closed} = recv_all(Peer),
    ?assert(byte_size(Received) < 500000),
    case is_weir(Config) of
        true -> ?assertEqual({error, closed}, await(Sender));
        false -> assert_waits(Sender)
    end.

%% The file ends there, and data queued after it is dropped.
owner_killed_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Sender = stuck(Socket, file(Config, Contents)),
    ok = gen_tcp:send(Socket, <<"behind">>),
    ok = kill(Sender),
    {Received, closed} = recv_all(Peer),
    ?assert(byte_size(Received) < 500000),
    ?assert(Received =:= binary:part(Contents, 0, byte_size(Received))),
    ?assertEqual({error, closed}, gen_tcp:send(Socket, <<"x">>)).

%% Also while the kernel sends, outside all locks.
ended_at_any_moment(Config) ->
    Contents = contents(16 * 1024 * 1024),
    Name = file(Config, Contents),
    Before = descriptors(),
    [
        begin
            {Socket, Peer} = pair(Config),
            Sender = async(fun() ->
                receive
                    go -> file:sendfile(Name, Socket)
                end
            end),
            ok = gen_tcp:controlling_process(Socket, pid(Sender)),
            Reader = async(fun() -> recv_all(Peer) end),
            pid(Sender) ! go,
            receive
                never_sent -> ok
            after N - 1 -> ok
            end,
            ok = End(Socket, Sender),
            {Received, _} = await(Reader),
            ?assert(Received =:= binary:part(Contents, 0, byte_size(Received))),
            ok = kill(Sender),
            ok = gen_tcp:close(Peer)
        end
     || N <- lists:seq(1, 8),
        End <- [fun(Socket, _) -> gen_tcp:close(Socket) end, fun(_, Sender) -> kill(Sender) end]
    ],
    wait_until(fun() -> descriptors() =< Before end).

file_deleted_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Contents = contents(500000),
    Name = file(Config, Contents),
    Sender = stuck(Socket, Name),
    ok = file:delete(Name),
    ?assert(Contents =:= recv_exactly(Peer, 500000)),
    ?assertEqual({ok, 500000}, await(Sender)).

file_truncated_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Name = file(Config, contents(1000000)),
    Sender = stuck(Socket, Name),
    {ok, File} = file:open(Name, [read, write, raw]),
    {ok, 500000} = file:position(File, 500000),
    ok = file:truncate(File),
    ok = file:close(File),
    Reader = async(fun() -> recv_all(Peer) end),
    ?assertEqual({ok, 500000}, await(Sender)),
    ok = await(async(fun() -> gen_tcp:close(Socket) end)),
    ?assertEqual({contents(500000), closed}, await(Reader)).

file_grows_meanwhile(Config) ->
    {Socket, Peer} = narrow_pair(Config, []),
    Name = file(Config, contents(500000)),
    Sender = stuck(Socket, Name),
    ok = file:write_file(Name, <<"more">>, [append]),
    ?assertEqual(<<(contents(500000))/binary, "more">>, recv_exactly(Peer, 500004)),
    ?assertEqual({ok, 500004}, await(Sender)).
