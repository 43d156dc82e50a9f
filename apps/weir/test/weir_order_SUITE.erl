%% Messages of a socket arrive in the order of its bytes, and its end last, at an owner whose message queue has a
%% buffer for each sender. Such a queue keeps only the order of each sender.
-module(weir_order_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2]).
-import(weir_test_wait, [patience/0, wait_for_messages/1]).
-import(weir_test_machine, [on_machine/3]).

-include_lib("weir_testing/include/weir_test.hrl").
-include("poller_suite.hrl").

%% Two senders may share a buffer, or their buffers may be emptied in the right order by chance. That does not happen
%% for this many.
-define(PROCESSES, 12).
-define(OPTIONS, [binary, {active, false}, {packet, 4}, {nodelay, true}]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, four_schedulers}].

groups() ->
    [
        {four_schedulers, [], [
            asked_for_again_and_again,
            moved_between_messages,
            moved_while_the_owner_does_not_run,
            pollers_killed_between_messages,
            end_found_by_another_process,
            passive_is_told_after_the_last_message,
            passive_is_told_when_the_call_returns,
            given_away_with_messages,
            once_is_one_message_for_both_owners,
            owner_that_dies_during_a_change_of_the_sender,
            changes_of_the_sender_outlive_their_server
        ]}
    ].

init_per_group(four_schedulers, Config) ->
    [{machine, weir_test_machine:start("", ["+S", "4:4"])} | Config].

end_per_group(four_schedulers, Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

%% The poller delivers a message, and the owner itself the next one, by setopts.
asked_for_again_and_again(Config) ->
    on_machine(?MODULE, ask_again_and_again, Config).

ask_again_and_again(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    {error, timeout} = gen_tcp:recv(Socket, 0, 0),
    Rounds = 20,
    Asked = atomics:new(1, []),
    Owner = start_owner([Socket], fun() ->
        [
            begin
                ok = inet:setopts(Socket, [{active, once}]),
                ok = atomics:put(Asked, 1, Round),
                spin(fun() -> received(Socket) =:= 2 * Round - 1 end),
                ok = inet:setopts(Socket, [{active, once}]),
                spin(fun() -> received(Socket) =:= 2 * Round end)
            end
         || Round <- lists:seq(1, Rounds)
        ]
    end),
    [
        begin
            spin(fun() -> atomics:get(Asked, 1) =:= Round end),
            ok = gen_tcp:send(Peer, [packet(2 * Round - 1), packet(2 * Round)])
        end
     || Round <- lists:seq(1, Rounds)
    ],
    assert_seen([{Socket, lists:seq(1, 2 * Rounds)}], Owner).

moved_between_messages(Config) ->
    on_machine(?MODULE, move_between_messages, Config).

move_between_messages(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Owner = start_active_owner([Socket]),
    [
        begin
            ok = gen_tcp:send(Peer, packet(Number)),
            ?waitEqual(Number, received(Socket)),
            ok = weir:migrate(Socket, 1 + Number rem 4)
        end
     || Number <- lists:seq(1, 20)
    ],
    assert_seen([{Socket, lists:seq(1, 20)}], Owner).

moved_while_the_owner_does_not_run(Config) ->
    on_machine(?MODULE, move_while_the_owner_does_not_run, Config).

move_while_the_owner_does_not_run(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    {Pid, _} = Owner = start_active_owner([Socket]),
    true = erlang:suspend_process(Pid),
    [
        begin
            ok = gen_tcp:send(Peer, packet(Number)),
            ?waitEqual(Number, received(Socket)),
            ok = weir:migrate(Socket, 1 + Number rem 4)
        end
     || Number <- lists:seq(1, 20)
    ],
    true = erlang:resume_process(Pid),
    assert_seen([{Socket, lists:seq(1, 20)}], Owner).

pollers_killed_between_messages(Config) ->
    on_machine(?MODULE, kill_pollers_between_messages, Config).

kill_pollers_between_messages(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Owner = start_active_owner([Socket]),
    [
        begin
            ok = gen_tcp:send(Peer, packet(Number)),
            ?waitEqual(Number, received(Socket)),
            lists:foreach(fun weir_poller_SUITE:kill_poller/1, weir:pollsets())
        end
     || Number <- lists:seq(1, 5)
    ],
    assert_seen([{Socket, lists:seq(1, 5)}], Owner).

end_found_by_another_process(Config) ->
    on_machine(?MODULE, have_another_process_find_the_end, Config).

have_another_process_find_the_end(Config) ->
    Pairs = [pair_on(Number, Config) || Number <- lists:seq(1, ?PROCESSES)],
    Sockets = [Socket || {Socket, _} <- Pairs],
    Owner = start_active_owner(Sockets),
    [ok = gen_tcp:send(Peer, packet(1)) || {_, Peer} <- Pairs],
    [?waitEqual(1, received(Socket)) || Socket <- Sockets],
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    [true = erlang:suspend_process(Poller) || Poller <- Pollers],
    Senders = [
        begin
            ok = weir_test_peer:reset(Peer),
            [spawn(fun() -> ok end) || _ <- lists:seq(1, 7)],
            spawn_monitor(fun() -> send_until_it_fails(Socket) end)
        end
     || {Socket, Peer} <- Pairs
    ],
    [
        receive
            {'DOWN', Monitor, process, Sender, Reason} -> ?assertEqual(closed, Reason)
        after patience() -> ct:fail(still_sending)
        end
     || {Sender, Monitor} <- Senders
    ],
    [true = erlang:resume_process(Poller) || Poller <- Pollers],
    assert_seen([{Socket, [1, closed]} || Socket <- Sockets], Owner).

send_until_it_fails(Socket) ->
    case gen_tcp:send(Socket, <<"more">>) of
        ok -> send_until_it_fails(Socket);
        {error, Reason} -> exit(Reason)
    end.

passive_is_told_after_the_last_message(Config) ->
    on_machine(?MODULE, become_passive_after_a_message, Config).

become_passive_after_a_message(Config) ->
    [
        begin
            {Socket, Peer} = pair_on(Number, Config),
            {error, timeout} = gen_tcp:recv(Socket, 0, 0),
            Active = atomics:new(1, []),
            Owner = start_owner([Socket], fun() ->
                ok = inet:setopts(Socket, [{active, 5}]),
                ok = atomics:put(Active, 1, 1),
                spin(fun() -> received(Socket) =:= 1 end),
                ok = inet:setopts(Socket, [{active, -4}])
            end),
            spin(fun() -> atomics:get(Active, 1) =:= 1 end),
            ok = gen_tcp:send(Peer, packet(1)),
            assert_seen([{Socket, [1, passive]}], Owner)
        end
     || Number <- lists:seq(1, ?PROCESSES)
    ].

passive_is_told_when_the_call_returns(Config) ->
    on_machine(?MODULE, look_for_passive_after_the_call, Config).

look_for_passive_after_the_call(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    [
        begin
            ok = inet:setopts(Socket, [{active, 5}]),
            ok = gen_tcp:send(Peer, packet(1)),
            ok = wait_for_messages(1),
            ok = inet:setopts(Socket, [{active, -4}]),
            ?assertEqual([{tcp, Socket, <<1:32>>}, {tcp_passive, Socket}], weir_test_wait:messages())
        end
     || Queue <- [on_heap, off_heap], _ <- [process_flag(message_queue_data, Queue)]
    ].

%% Messages in the old owner's mailbox are moved first.
given_away_with_messages(Config) ->
    on_machine(?MODULE, give_away_with_messages, Config).

give_away_with_messages(Config) ->
    [
        begin
            {Socket, Peer} = pair_on(Number, Config),
            Self = self(),
            Former = spawn_link(fun() ->
                receive
                    go -> ok
                end,
                ok = inet:setopts(Socket, [{active, true}]),
                ok = wait_for_messages(1),
                Self ! {self(), start_owner([Socket], fun() -> ok end)},
                %% Its exit would make the owner read its queue.
                receive
                    done -> ok
                end
            end),
            ok = gen_tcp:controlling_process(Socket, Former),
            ok = gen_tcp:send(Peer, packet(1)),
            Former ! go,
            receive
                {Former, Owner} ->
                    ok = gen_tcp:send(Peer, packet(2)),
                    ?waitEqual(2, received(Socket)),
                    assert_seen([{Socket, [1, 2]}], Owner),
                    Former ! done
            after patience() -> ct:fail(not_given_away)
            end
        end
     || Number <- lists:seq(1, ?PROCESSES)
    ].

%% The message arrives while the socket is given away: it is the only one.
once_is_one_message_for_both_owners(Config) ->
    on_machine(?MODULE, give_away_while_a_message_comes, Config).

give_away_while_a_message_comes(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Sender = spawn_link(fun() -> send_when_asked(Peer) end),
    [
        begin
            Self = self(),
            ok = inet:setopts(Socket, [{active, once}]),
            Next = spawn_link(fun() -> pass_back(Socket, Self) end),
            Sender ! send,
            ok = gen_tcp:controlling_process(Socket, Next),
            Next ! go,
            receive
                {Next, Count, Active} -> ?assertEqual({1, false}, {Count, Active})
            after patience() -> ct:fail(not_given_back)
            end,
            %% The second message of the pair.
            ?assertMatch({ok, _}, gen_tcp:recv(Socket, 0, patience()))
        end
     || _ <- lists:seq(1, 1000)
    ].

send_when_asked(Peer) ->
    receive
        send -> ok = gen_tcp:send(Peer, [packet(1), packet(2)])
    end,
    send_when_asked(Peer).

pass_back(Socket, To) ->
    receive
        go -> ok
    end,
    receive
        {tcp, Socket, <<1:32>>} -> ok
    end,
    Count = 1 + length([second || {tcp, S, _} <- weir_test_wait:messages(), S =:= Socket]),
    {ok, [{active, Active}]} = inet:getopts(Socket, [active]),
    ok = gen_tcp:controlling_process(Socket, To),
    To ! {self(), Count, Active}.

owner_that_dies_during_a_change_of_the_sender(Config) ->
    on_machine(?MODULE, kill_the_owner_during_a_change, Config).

kill_the_owner_during_a_change(Config) ->
    [
        begin
            {Socket, Peer} = socket_pair(Config, ?OPTIONS),
            {Owner, _} = start_active_owner([Socket]),
            true = unlink(Owner),
            ok = gen_tcp:send(Peer, packet(1)),
            ?waitEqual(1, received(Socket)),
            ok = weir:migrate(Socket, 1 + Number rem 4),
            ok = gen_tcp:send(Peer, packet(2)),
            exit(Owner, kill),
            ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, patience()))
        end
     || Number <- lists:seq(1, 20)
    ].

changes_of_the_sender_outlive_their_server(Config) ->
    on_machine(?MODULE, change_the_sender_without_a_server, Config).

change_the_sender_without_a_server(Config) ->
    {{'$inet', weir_tcp, Handle} = Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Owner = start_active_owner([Socket]),
    ok = gen_tcp:send(Peer, packet(1)),
    ?waitEqual(1, received(Socket)),
    {ok, #{pollset := Pollset}} = weir_nif:info(Handle),
    ok = sys:suspend(weir_succession),
    ok = weir:migrate(Socket, 1 + Pollset rem 4),
    ok = gen_tcp:send(Peer, packet(2)),
    Server = whereis(weir_succession),
    ?waitMatch({message_queue_len, 1}, process_info(Server, message_queue_len)),
    exit(Server, kill),
    ?waitEqual(2, received(Socket)),
    assert_seen([{Socket, [1, 2]}], Owner).

%% Uses the pollers in turn. Processes that are started one after the other have consecutive buffers, so others are
%% started in between.
pair_on(Number, Config) ->
    [spawn(fun() -> ok end) || _ <- lists:seq(1, 7)],
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    ok = weir:migrate(Socket, 1 + Number rem 4),
    {Socket, Peer}.

packet(Number) -> <<4:32, Number:32>>.

received(Socket) ->
    case inet:getstat(Socket, [recv_cnt]) of
        {ok, [{recv_cnt, Count}]} -> Count;
        Error -> Error
    end.

%% A process with a buffer for each sender that owns the sockets, runs the function, and receives no message before it
%% is told to, so that its queue stays as the senders leave it.
start_owner(Sockets, Act) ->
    _ = erts_debug:set_internal_state(available_internal_state, true),
    Step = atomics:new(1, []),
    Owner = spawn_link(fun() ->
        _ = process_flag(message_queue_data, off_heap),
        true = erts_debug:set_internal_state(proc_sig_buffers, true),
        ok = atomics:put(Step, 1, 1),
        spin(fun() -> atomics:get(Step, 1) =:= 2 end),
        _ = Act(),
        spin(fun() -> atomics:get(Step, 1) =:= 3 end),
        receive
            {tell, To, Counts} -> To ! {self(), [{Socket, take(Socket, Count)} || {Socket, Count} <- Counts]}
        end
    end),
    spin(fun() -> atomics:get(Step, 1) =:= 1 end),
    [ok = gen_tcp:controlling_process(Socket, Owner) || Socket <- Sockets],
    ok = atomics:put(Step, 1, 2),
    {Owner, Step}.

%% An owner that is active before messages arrive, on sockets known to be empty: the poller sends the first message.
start_active_owner(Sockets) ->
    [{error, timeout} = gen_tcp:recv(Socket, 0, 0) || Socket <- Sockets],
    Asked = atomics:new(1, []),
    Owner = start_owner(Sockets, fun() ->
        [ok = inet:setopts(Socket, [{active, true}]) || Socket <- Sockets],
        ok = atomics:put(Asked, 1, 1)
    end),
    spin(fun() -> atomics:get(Asked, 1) =:= 1 end),
    Owner.

assert_seen(Expected, {Owner, Step}) ->
    ok = atomics:put(Step, 1, 3),
    Owner ! {tell, self(), [{Socket, length(Messages)} || {Socket, Messages} <- Expected]},
    receive
        {Owner, Seen} -> ?assertEqual(Expected, Seen)
    after patience() -> ct:fail(nothing_seen)
    end.

take(_Socket, 0) ->
    [];
take(Socket, Count) ->
    Message =
        receive
            {tcp, Socket, <<Number:32>>} -> Number;
            {tcp_passive, Socket} -> passive;
            {tcp_closed, Socket} -> closed
        after patience() -> missing
        end,
    [Message | take(Socket, Count - 1)].

%% Waits without reading the mailbox.
spin(Condition) -> spin(Condition, erlang:monotonic_time(millisecond) + patience()).

spin(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error(never_true),
            erlang:yield(),
            spin(Condition, Deadline)
    end.
