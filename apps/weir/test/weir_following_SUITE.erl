%% A socket moves to the pollset of the scheduler that its owner runs on.
-module(weir_following_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1]).
-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_test_machine, [on_machine/3]).

-include_lib("weir_testing/include/weir_test.hrl").
-include("poller_suite.hrl").

-define(OPTIONS, [binary, {active, false}, {nodelay, true}]).
%% More requests than a socket needs to follow its owner.
-define(MANY, 50).
%% Number of owners that keep changing their schedulers, and of numbers that each is sent.
-define(OWNERS, 8).
-define(NUMBERS, 4000).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, four_schedulers}].

groups() ->
    [
        {four_schedulers, [], [
            joins_where_its_owner_asks,
            joins_where_it_is_received,
            joins_with_each_owner,
            follows_an_owner_that_asks,
            follows_an_owner_that_receives,
            follows_an_owner_that_sends,
            stays_where_it_was_placed,
            stays_where_its_listener_placed_it,
            stays_while_it_is_a_member,
            stays_while_something_is_queued,
            stays_while_pollers_rest,
            numbers_are_in_order_while_sockets_follow
        ]}
    ].

init_per_group(four_schedulers, Config) ->
    [{machine, weir_test_machine:start("", ["+S", "4:4"])} | Config].

end_per_group(four_schedulers, Config) ->
    weir_test_machine:stop(proplists:get_value(machine, Config)).

%%% Joining.

joins_where_its_owner_asks(Config) -> on_machine(?MODULE, join_where_the_owner_asks, Config).

join_where_the_owner_asks(Config) ->
    [
        begin
            {Socket, _Peer} = socket_pair(Config, ?OPTIONS),
            Before = moves(),
            Owner = owner(Socket, 3),
            ok = run(Owner, fun() -> inet:setopts(Socket, [{active, Mode}]) end),
            ?assertEqual({3, Mode}, {pollset(Socket), Mode}),
            %% A socket that was never waited for had no pollset, so this is not a move.
            ?assertEqual({Before, Mode}, {moves(), Mode})
        end
     || Mode <- [once, true, 10]
    ].

joins_where_it_is_received(Config) -> on_machine(?MODULE, join_where_it_is_received, Config).

join_where_it_is_received(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Owner = owner(Socket, 2),
    Received = async(fun() -> run(Owner, fun() -> gen_tcp:recv(Socket, 0) end) end),
    ?waitEqual(2, pollset(Socket)),
    ok = gen_tcp:send(Peer, <<"x">>),
    ?assertEqual({ok, <<"x">>}, await(Received)).

joins_with_each_owner(Config) -> on_machine(?MODULE, join_with_each_owner, Config).

join_with_each_owner(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Self = self(),
    [
        ok = run(owner(Socket, Scheduler), fun() ->
            ok = inet:setopts(Socket, [{active, once}]),
            ok = gen_tcp:send(Peer, <<"x">>),
            receive {tcp, Socket, <<"x">>} -> ok end,
            ?assertEqual(Scheduler, pollset(Socket)),
            gen_tcp:controlling_process(Socket, Self)
        end)
     || Scheduler <- [4, 1, 3]
    ].

%%% Following.

follows_an_owner_that_asks(Config) -> on_machine(?MODULE, follow_an_owner_that_asks, Config).

follow_an_owner_that_asks(Config) ->
    keep_busy(1, Config),
    [
        begin
            {Socket, Peer} = socket_pair(Config, ?OPTIONS),
            Owner = owner(Socket, 1),
            ok = run(Owner, fun() ->
                _ = process_flag(message_queue_data, Queue),
                ok = inet:setopts(Socket, [{active, Mode}]),
                go_to(2),
                wait_until(fun() -> ask_and_answer(Socket, Peer, Mode), pollset(Socket) =:= 2 end)
            end)
        end
     || Mode <- [once, 1], Queue <- [on_heap, off_heap]
    ].

follows_an_owner_that_receives(Config) -> on_machine(?MODULE, follow_an_owner_that_receives, Config).

follow_an_owner_that_receives(Config) ->
    keep_busy(1, Config),
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Echo = spawn_link(fun() -> echo(Peer) end),
    ok = gen_tcp:controlling_process(Peer, Echo),
    ok = run(owner(Socket, 1), fun() ->
        {error, timeout} = gen_tcp:recv(Socket, 0, 1),
        go_to(2),
        wait_until(fun() ->
            ok = gen_tcp:send(Socket, <<"x">>),
            {ok, <<"x">>} = gen_tcp:recv(Socket, 0),
            pollset(Socket) =:= 2
        end)
    end).

follows_an_owner_that_sends(Config) -> on_machine(?MODULE, follow_an_owner_that_sends, Config).

follow_an_owner_that_sends(Config) ->
    keep_busy(1, Config),
    [
        begin
            {Socket, Peer} = socket_pair(Config, ?OPTIONS),
            ok = run(owner(Socket, 1), fun() ->
                ok = inet:setopts(Socket, [{active, Mode}]),
                go_to(2),
                wait_until(fun() -> ask_and_answer(Socket, Peer, Mode), pollset(Socket) =:= 2 end)
            end)
        end
     || Mode <- [true, 10_000]
    ].

%% A request of the peer, and the owner's answer.
ask_and_answer(Socket, Peer, Mode) ->
    ok = gen_tcp:send(Peer, <<"request">>),
    receive {tcp, Socket, <<"request">>} -> ok end,
    ok = gen_tcp:send(Socket, <<"answer">>),
    {ok, <<"answer">>} = gen_tcp:recv(Peer, 6),
    Mode =:= 1 andalso receive {tcp_passive, Socket} -> ok end,
    Mode =:= true orelse Mode =:= 10_000 orelse inet:setopts(Socket, [{active, Mode}]).

%%% Staying.

stays_where_it_was_placed(Config) -> on_machine(?MODULE, stay_where_it_was_placed, Config).

stay_where_it_was_placed(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    ok = weir:migrate(Socket, 4),
    ok = stay(Socket, Peer, 4).

stays_where_its_listener_placed_it(Config) -> on_machine(?MODULE, stay_where_the_listener_placed_it, Config).

stay_where_the_listener_placed_it(Config) ->
    Test = self(),
    Serve = fun(Socket, _) ->
        Placed = pollset(Socket),
        go_to(1 + Placed rem 4),
        ok = inet:setopts(Socket, [{active, once}]),
        Test ! {served, self()},
        answer(Socket, ?MANY),
        Test ! {self(), Placed, pollset(Socket)}
    end,
    {ok, _} = weir:start_listener(?MODULE, #{port => 0, placement => least_loaded, socket_opts => [binary]}, Serve, []),
    keep_busy(1, Config),
    Peer = weir_test_peer:connect_raw(weir:get_port(?MODULE)),
    Server = receive {served, Pid} -> Pid end,
    [begin ok = gen_tcp:send(Peer, <<"x">>), {ok, <<"x">>} = gen_tcp:recv(Peer, 1) end || _ <- lists:seq(1, ?MANY)],
    receive {Server, Placed, Now} -> ?assertEqual(Placed, Now) end,
    ok = weir:stop_listener(?MODULE).

answer(_Socket, 0) ->
    ok;
answer(Socket, Left) ->
    Data = receive {tcp, Socket, Received} -> Received end,
    ok = inet:setopts(Socket, [{active, once}]),
    ok = gen_tcp:send(Socket, Data),
    answer(Socket, Left - 1).

%% After many requests of an owner on the second scheduler.
stay(Socket, Peer, Pollset) ->
    run(owner(Socket, 2), fun() ->
        ok = inet:setopts(Socket, [{active, once}]),
        [ask_and_answer(Socket, Peer, once) || _ <- lists:seq(1, ?MANY)],
        ?assertEqual(Pollset, pollset(Socket)),
        ok
    end).

stays_while_it_is_a_member(Config) -> on_machine(?MODULE, stay_as_a_member, Config).

stay_as_a_member(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    {ok, Group} = weir_group:new(#{}),
    ok = weir_group:join(Group, Socket),
    Pollset = 4,
    ok = weir:migrate(Socket, Pollset),
    ok = stay(Socket, Peer, Pollset),
    ok = weir_group:delete(Group).

stays_while_something_is_queued(Config) -> on_machine(?MODULE, stay_with_a_queue, Config).

stay_with_a_queue(Config) ->
    {Socket, Peer} = socket_pair(Config, [{sndbuf, 4096} | ?OPTIONS]),
    Owner = owner(Socket, 1),
    ok = run(Owner, fun() -> inet:setopts(Socket, [{active, once}]) end),
    ?assertEqual(1, pollset(Socket)),
    Data = rand:bytes(6_000_000),
    ok = run(Owner, fun() ->
        go_to(2),
        ok = gen_tcp:send(Socket, Data),
        [
            begin
                ok = gen_tcp:send(Peer, <<"x">>),
                receive {tcp, Socket, <<"x">>} -> ok end,
                ok = inet:setopts(Socket, [{active, once}])
            end
         || _ <- lists:seq(1, ?MANY)
        ],
        ?assertEqual(1, pollset(Socket)),
        ok
    end),
    ?assertEqual({ok, Data}, gen_tcp:recv(Peer, byte_size(Data), patience())).

%% Another poller would have to wake up for each message, while the present one is idle.
stays_while_pollers_rest(Config) -> on_machine(?MODULE, stay_while_pollers_rest, Config).

stay_while_pollers_rest(Config) ->
    {Socket, Peer} = socket_pair(Config, ?OPTIONS),
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets()],
    ok = run(owner(Socket, 1), fun() ->
        ok = inet:setopts(Socket, [{active, once}]),
        go_to(2),
        [
            begin
                ok = gen_tcp:send(Peer, <<"x">>),
                receive {tcp, Socket, <<"x">>} -> ok end,
                wait_until(fun() -> lists:all(fun sleeps/1, Pollers) end),
                ok = inet:setopts(Socket, [{active, once}])
            end
         || _ <- lists:seq(1, ?MANY)
        ],
        ?assertEqual(1, pollset(Socket)),
        ok
    end).

sleeps(Poller) -> process_info(Poller, status) =:= {status, waiting}.

%%% Order.

numbers_are_in_order_while_sockets_follow(Config) -> on_machine(?MODULE, send_numbers_while_sockets_follow, Config).

send_numbers_while_sockets_follow(Config) ->
    Before = moves(),
    Owners = [
        begin
            {Socket, Peer} = socket_pair(Config, [{packet, 4} | ?OPTIONS]),
            Owner = async(fun() -> receive {begin_with, Queue} -> hop(Socket, Mode, Queue) end end),
            ok = gen_tcp:controlling_process(Socket, weir_test_peer:pid(Owner)),
            weir_test_peer:pid(Owner) ! {begin_with, Queue},
            Sender = async(fun() -> send_numbers(Peer) end),
            {Owner, Sender}
        end
     || Number <- lists:seq(1, ?OWNERS),
        Mode <- [lists:nth(1 + Number rem 3, [once, true, 7])],
        Queue <- [lists:nth(1 + Number rem 2, [on_heap, off_heap])]
    ],
    [begin ok = await(Sender), ok = await(Owner) end || {Owner, Sender} <- Owners],
    ?assert(moves() > Before).

send_numbers(Peer) ->
    Sender = async(fun() -> [ok = gen_tcp:send(Peer, <<4:32, Number:32>>) || Number <- lists:seq(1, ?NUMBERS)], ok end),
    {ok, _} = gen_tcp:recv(Peer, 5 * ?NUMBERS),
    ok = await(Sender),
    gen_tcp:close(Peer).

%% Each number is answered with the scheduler that the owner runs on.
hop(Socket, Mode, Queue) ->
    _ = process_flag(message_queue_data, Queue),
    ok = inet:setopts(Socket, [{active, Mode}]),
    [
        begin
            Number rem 40 =:= 0 andalso go_to(rand:uniform(4)),
            ?assertEqual(Number, next_number(Socket, Mode)),
            Mode =:= once andalso inet:setopts(Socket, [{active, once}]),
            ok = gen_tcp:send(Socket, <<"x">>)
        end
     || Number <- lists:seq(1, ?NUMBERS)
    ],
    Mode =:= once orelse inet:setopts(Socket, [{active, true}]),
    receive {tcp_closed, Socket} -> ok end.

next_number(Socket, Mode) ->
    receive
        {tcp, Socket, <<Number:32>>} -> Number;
        {tcp_passive, Socket} -> ok = inet:setopts(Socket, [{active, Mode}]), next_number(Socket, Mode);
        {tcp_closed, Socket} -> closed
    end.

%%% Owners.

%% Keeps the pollset's poller busy until the case ends.
keep_busy(Pollset, Config) ->
    [
        begin
            {Socket, Peer} = socket_pair(Config, ?OPTIONS),
            ok = weir:migrate(Socket, Pollset),
            Echo = spawn_link(fun() -> receive go -> echo_actively(Socket) end end),
            ok = gen_tcp:controlling_process(Socket, Echo),
            Echo ! go,
            Client = spawn_link(fun() -> receive go -> ask_for_ever(Peer) end end),
            ok = gen_tcp:controlling_process(Peer, Client),
            Client ! go
        end
     || _ <- lists:seq(1, 4)
    ].

echo_actively(Socket) ->
    case inet:setopts(Socket, [{active, once}]) of
        ok ->
            receive
                {tcp, Socket, Data} -> _ = gen_tcp:send(Socket, Data), echo_actively(Socket);
                {tcp_closed, Socket} -> ok
            end;
        {error, einval} ->
            ok
    end.

ask_for_ever(Peer) ->
    case gen_tcp:send(Peer, <<"x">>) =:= ok andalso gen_tcp:recv(Peer, 1) of
        {ok, _} -> ask_for_ever(Peer);
        _ -> ok
    end.

%% A process on a scheduler that gets the caller's socket and runs functions.
owner(Socket, Scheduler) ->
    Owner = erlang:spawn_opt(fun() -> go_to(Scheduler), obey() end, [link]),
    ok = run(Owner, fun() -> ok end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner.

obey() ->
    receive
        {run, From, Do} -> From ! {self(), Do()}, obey()
    end.

run(Owner, Do) ->
    Owner ! {run, self(), Do},
    receive
        {Owner, Result} -> Result
    end.

%% Binds the process to a scheduler.
go_to(Scheduler) ->
    _ = erlang:process_flag(scheduler, Scheduler),
    erlang:yield(),
    ?assertEqual(Scheduler, erlang:system_info(scheduler_id)).

echo(Peer) ->
    case gen_tcp:recv(Peer, 0) of
        {ok, Data} -> ok = gen_tcp:send(Peer, Data), echo(Peer);
        {error, closed} -> ok
    end.

pollset({'$inet', weir_tcp, Handle}) ->
    {ok, #{pollset := Pollset}} = weir_nif:info(Handle),
    Pollset.

moves() -> lists:sum([Count || #{moved_in := Count} <- weir:pollsets()]).
