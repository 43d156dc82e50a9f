%% The controlling process: it gets the messages, and its end closes the socket.
-module(weir_tcp_owner_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    socket_pair/2, listen/2, keep/1, connect_raw/1, async/1, await/1, assert_waits/1, kill/1, pid/1
]).
-import(weir_test_wait, [
    patience/0, messages_of/1, wait_until/1, wait_for_messages/1, messages/0, next_message/0, assert_no_message/0,
    recv_all/1, recv_exactly/2
]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        owner_gets_the_messages,
        new_owner_gets_the_messages,
        only_the_owner_gives,
        to_the_owner_itself,
        to_the_present_owner_by_another,
        to_a_dead_process,
        to_something_else,
        messages_in_the_mailbox_move,
        messages_of_other_sockets_stay,
        closed_in_the_mailbox_stays,
        mode_is_kept,
        waiting_data_goes_to_the_new_owner,
        handed_on_in_the_middle_of_a_stream,
        end_of_the_owner_closes,
        end_of_the_former_owner_does_not,
        end_of_a_user_does_not,
        end_of_the_owner_ends_a_recv,
        owner_of_a_listener,
        end_of_the_owner_of_a_listener
    ].

%% A process that only holds what it is given.
idle() ->
    async(fun() -> ok end).

end_of_owner(Socket, Reason) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        receive
            {exit, Why} -> exit(Why)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    case Reason of
        kill -> exit(Pid, kill);
        _ -> Pid ! {exit, Reason}
    end,
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

owner_gets_the_messages(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Peer, <<"mine">>),
    ?assertEqual({tcp, Socket, <<"mine">>}, next_message()).

new_owner_gets_the_messages(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Owner = idle(),
    ?assertEqual(ok, gen_tcp:controlling_process(Socket, pid(Owner))),
    ok = gen_tcp:send(Peer, <<"yours">>),
    ?assertEqual([{tcp, Socket, <<"yours">>}], messages_of(pid(Owner))),
    assert_no_message().

only_the_owner_gives(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Taker = async(fun() -> gen_tcp:controlling_process(Socket, self()) end),
    ?assertEqual({error, not_owner}, await(Taker)),
    Owner = idle(),
    ok = gen_tcp:controlling_process(Socket, pid(Owner)),
    ?assertEqual({error, not_owner}, gen_tcp:controlling_process(Socket, self())),
    ?assertEqual({error, not_owner}, gen_tcp:controlling_process(Socket, pid(Taker))),
    ok = gen_tcp:send(Peer, <<"yours">>),
    ?assertEqual([{tcp, Socket, <<"yours">>}], messages_of(pid(Owner))).

to_the_owner_itself(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Peer, <<"before">>),
    wait_for_messages(1),
    ?assertEqual(ok, gen_tcp:controlling_process(Socket, self())),
    ?assertEqual({tcp, Socket, <<"before">>}, next_message()),
    ok = gen_tcp:send(Peer, <<"after">>),
    ?assertEqual({tcp, Socket, <<"after">>}, next_message()).

to_the_present_owner_by_another(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, true}]),
    Self = self(),
    ?assertEqual(ok, await(async(fun() -> gen_tcp:controlling_process(Socket, Self) end))).

%% The socket stays with its owner, passive.
to_a_dead_process(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Dead = idle(),
    ok = kill(Dead),
    ?assertEqual({error, badarg}, gen_tcp:controlling_process(Socket, pid(Dead))),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])),
    ok = inet:setopts(Socket, [{active, true}]),
    ok = gen_tcp:send(Peer, <<"still mine">>),
    ?assertEqual({tcp, Socket, <<"still mine">>}, next_message()).

to_something_else(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    [?assertError(_, gen_tcp:controlling_process(Socket, Other)) || Other <- [foo, 1, Socket]],
    ok = gen_tcp:send(Peer, <<"still mine">>),
    ?assertEqual({tcp, Socket, <<"still mine">>}, next_message()).

messages_in_the_mailbox_move(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    [
        begin
            ok = gen_tcp:send(Peer, <<N>>),
            wait_for_messages(N)
        end
     || N <- [1, 2, 3]
    ],
    Owner = idle(),
    ?assertEqual(ok, gen_tcp:controlling_process(Socket, pid(Owner))),
    assert_no_message(),
    ok = gen_tcp:send(Peer, <<4>>),
    Expected = [{tcp, Socket, <<N>>} || N <- [1, 2, 3, 4]],
    wait_until(fun() -> {messages, Expected} =:= process_info(pid(Owner), messages) end).

messages_of_other_sockets_stay(Config) ->
    {Given, PeerOfGiven} = socket_pair(Config, [binary, {active, true}]),
    {Kept, PeerOfKept} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(PeerOfKept, <<"kept">>),
    ok = gen_tcp:send(PeerOfGiven, <<"given">>),
    self() ! unrelated,
    wait_for_messages(3),
    Owner = idle(),
    ok = gen_tcp:controlling_process(Given, pid(Owner)),
    ?assertEqual([{tcp, Given, <<"given">>}], messages_of(pid(Owner))),
    ?assertEqual(lists:sort([unrelated, {tcp, Kept, <<"kept">>}]), lists:sort(messages())).

%% The socket is closed, so it cannot be given away, and its messages stay here.
closed_in_the_mailbox_stays(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Peer, <<"last">>),
    wait_for_messages(1),
    ok = gen_tcp:close(Peer),
    wait_for_messages(2),
    Owner = idle(),
    wait_until(fun() -> gen_tcp:send(Socket, <<>>) =:= {error, closed} end),
    ?assertEqual({error, closed}, gen_tcp:controlling_process(Socket, pid(Owner))),
    ?assertEqual([{tcp, Socket, <<"last">>}, {tcp_closed, Socket}], messages()).

mode_is_kept(Config) ->
    lists:foreach(
        fun(Active) ->
            {Socket, _Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = gen_tcp:controlling_process(Socket, pid(idle())),
            ?assertEqual({ok, [{active, Active}]}, inet:getopts(Socket, [active]))
        end,
        [false, true, once, 3, 32767]
    ).

waiting_data_goes_to_the_new_owner(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = gen_tcp:send(Peer, <<"a waits">>),
    <<"a">> = recv_exactly(Socket, 1),
    Owner = idle(),
    ok = gen_tcp:controlling_process(Socket, pid(Owner)),
    ok = inet:setopts(Socket, [{active, once}]),
    ?assertEqual([{tcp, Socket, <<" waits">>}], messages_of(pid(Owner))).

%% A stream continues while its socket passes from process to process: each byte arrives at one of them, in order.
handed_on_in_the_middle_of_a_stream(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Size = 400000,
    Stream = <<<<N:32>> || N <- lists:seq(1, Size div 4)>>,
    Sender = async(fun() -> gen_tcp:send(Peer, Stream) end),
    Self = self(),
    Last = async(fun() -> pass_on(Socket, Self, Size) end),
    First = async(fun() -> pass_on(Socket, pid(Last), 1) end),
    ok = gen_tcp:controlling_process(Socket, pid(First)),
    ?assert(Stream =:= iolist_to_binary(gather(Size))),
    ?assertEqual(ok, await(Sender)),
    ?assertEqual([], messages()).

%% Passes on the data and, after this many bytes, the socket.
pass_on(Socket, Next, Size) ->
    receive
        {tcp, Socket, Data} when byte_size(Data) < Size ->
            Next ! {part, Data},
            pass_on(Socket, Next, Size - byte_size(Data));
        {tcp, Socket, Data} ->
            Next ! {part, Data},
            _ = gen_tcp:controlling_process(Socket, Next),
            relay(Socket, Next);
        {part, Data} ->
            Next ! {part, Data},
            pass_on(Socket, Next, Size - byte_size(Data))
    end.

relay(Socket, Next) ->
    receive
        Message ->
            Next ! Message,
            relay(Socket, Next)
    end.

gather(Size) when Size =< 0 ->
    [];
gather(Size) ->
    case next_message() of
        {part, Data} -> [Data | gather(Size - byte_size(Data))];
        {tcp, _Socket, Data} -> [Data | gather(Size - byte_size(Data))]
    end.

end_of_the_owner_closes(Config) ->
    lists:foreach(
        fun({Active, Reason}) ->
            {Socket, Peer} = socket_pair(Config, [binary, {active, Active}]),
            ok = gen_tcp:send(Socket, <<"bye">>),
            ok = end_of_owner(Socket, Reason),
            ?assertEqual({<<"bye">>, closed}, recv_all(Peer)),
            wait_until(fun() -> gen_tcp:send(Socket, <<"x">>) =:= {error, closed} end),
            ?assertEqual({error, einval}, inet:getopts(Socket, [active]))
        end,
        [{Active, Reason} || Active <- [false, true], Reason <- [normal, failed, kill]]
    ),
    assert_no_message().

end_of_the_former_owner_does_not(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Former = async(fun() ->
        receive
            {give_to, Pid} -> gen_tcp:controlling_process(Socket, Pid)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, pid(Former)),
    pid(Former) ! {give_to, self()},
    ?assertEqual(ok, await(Former)),
    ok = kill(Former),
    ok = gen_tcp:send(Peer, <<"alive">>),
    ?assertEqual({tcp, Socket, <<"alive">>}, next_message()),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"alive">>)).

end_of_a_user_does_not(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    User = async(fun() ->
        ok = gen_tcp:send(Socket, <<"used">>),
        {ok, <<"too">>} = gen_tcp:recv(Socket, 3),
        inet:setopts(Socket, [{nodelay, true}])
    end),
    ok = gen_tcp:send(Peer, <<"too">>),
    ?assertEqual(ok, await(User)),
    ok = kill(User),
    ?assertEqual(<<"used">>, recv_exactly(Peer, 4)),
    ?assertEqual(ok, gen_tcp:send(Socket, <<"alive">>)),
    ?assertEqual(<<"alive">>, recv_exactly(Peer, 5)).

end_of_the_owner_ends_a_recv(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Receiver = async(fun() -> gen_tcp:recv(Socket, 0) end),
    assert_waits(Receiver),
    ok = end_of_owner(Socket, kill),
    ?assertEqual({error, closed}, await(Receiver)),
    ?assertEqual({<<>>, closed}, recv_all(Peer)).

owner_of_a_listener(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, true}]),
    ?assertEqual(
        {error, not_owner}, await(async(fun() -> gen_tcp:controlling_process(Listener, self()) end))
    ),
    Owner = idle(),
    ?assertEqual(ok, gen_tcp:controlling_process(Listener, pid(Owner))),
    %% An accepted socket belongs to the process that calls accept.
    Peer = connect_raw(Port),
    {ok, Socket} = keep(gen_tcp:accept(Listener, patience())),
    ok = gen_tcp:send(Peer, <<"mine">>),
    ?assertEqual({tcp, Socket, <<"mine">>}, next_message()).

end_of_the_owner_of_a_listener(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    assert_waits(Acceptor),
    ok = end_of_owner(Listener, kill),
    ?assertEqual({error, closed}, await(Acceptor)),
    ?assertEqual({error, closed}, gen_tcp:accept(Listener, 100)),
    ok = gen_tcp:send(Accepted, <<"alive">>),
    ?assertEqual(<<"alive">>, recv_exactly(Peer, 5)).
