%% Listeners, relays and groups when what they rest on dies at the worst moment: supervisors, owners, pollers and peers, and
%% several of them at once. What one death does to each is in the suites of the three. After each case descriptors, sockets,
%% relays and listeners are what they were before.
-module(weir_fastpath_misfortune_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    connect_raw/1, socket_pair/2, socket_pair/3, keep/1, reset/1, async/1, await/1, await/2, kill/1, pid/1,
    wait_until/1, recv_all/1, recv_exactly/2
]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(PATIENCE, 20000).
%% How long to wait for many at once.
-define(LONG, 60000).

suite() ->
    [{timetrap, {seconds, 120}}].

all() ->
    [{group, listeners}, {group, relays}, {group, groups}].

groups() ->
    [
        {listeners, [], [
            supervisor_of_listeners_killed,
            names_of_listeners_killed,
            keeper_of_pollers_killed,
            killed_before_their_handshake,
            started_and_stopped_in_a_storm,
            killed_while_they_move,
            relayed_by_handlers_that_are_killed
        ]},
        {relays, [], [
            a_reader_stops_and_the_other_side_is_reset,
            a_reader_stops_and_the_other_side_is_killed,
            a_reader_stops_and_is_killed_itself,
            sockets_die_while_they_become_a_relay,
            pollers_of_streams_are_killed,
            relays_in_havoc
        ]},
        {groups, [], [
            slow_members_of_every_policy_die,
            broadcasters_killed,
            members_move_and_close,
            groups_deleted_while_broadcasts_fly,
            everybody_joins_and_leaves_at_once,
            a_reactor_of_members_killed,
            members_become_relays
        ]}
    ].

init_per_group(_Group, Config) ->
    Weir = weir_test_peer:init_group(weir, Config),
    io:format("seed: ~p~n", [rand:export_seed_s(rand:seed(exsss))]),
    Weir.

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(Case, Config) ->
    ok = weir_test_peer:silence_pollers(),
    [{name, Case}, {relays, length(weir:relays())} | weir_test_peer:init_case(Config)].

end_per_testcase(_Case, Config) ->
    [ok = weir:stop_listener(Name) || Name <- weir:listeners()],
    _ = weir_test_peer:unsilence_pollers(),
    case weir_test_peer:end_case(Config) of
        ok ->
            case length(weir:relays()) =< ?config(relays, Config) of
                true -> ok;
                false -> {fail, {relays_left, weir:relays()}}
            end;
        Fail ->
            Fail
    end.

%% Short enough to come in between, and never the same.
pause() ->
    timer:sleep(rand:uniform(5)).

one_of(Choices) ->
    lists:nth(rand:uniform(length(Choices)), Choices).

kill_pollers() ->
    [exit(Poller, kill) || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)].

%% Kills them again and again, with so many milliseconds in between, until it is sent `stop'.
killer_of_pollers(Pause) ->
    async(fun Kill() ->
        _ = kill_pollers(),
        receive
            stop -> ok
        after Pause -> Kill()
        end
    end).

%% Kills a registered process that has a supervisor, and waits for its successor.
kill_registered(Name) ->
    Old = whereis(Name),
    exit(Old, kill),
    wait_until(fun() -> is_pid(whereis(Name)) andalso whereis(Name) =/= Old end).

%% Sends until it fails, and says nothing of that.
flood(Socket) ->
    case gen_tcp:send(Socket, binary:copy(<<"flood">>, 2000)) of
        ok -> flood(Socket);
        {error, _} -> ok
    end.

%% Gives a socket of the caller's to a process that runs a function with it.
given(Socket, Fun) ->
    Async = async(fun() -> receive go -> Fun(Socket) end end),
    case gen_tcp:controlling_process(Socket, pid(Async)) of
        ok -> ok;
        %% The socket was closed by others, which is for the function to see.
        {error, _} -> ok
    end,
    pid(Async) ! go,
    Async.

%% Listeners -------------------------------------------------------------------

echo(Socket, Args) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            echo(Socket, Args);
        {error, _} ->
            ok
    end.

start(Name, Options) ->
    start(Name, Options, fun ?MODULE:echo/2).

start(Name, Options, Handler) ->
    {ok, _} = weir:start_listener(Name, maps:merge(#{ip => ?LOOPBACK}, Options), Handler, args),
    weir:get_port(Name).

is_served(Socket) ->
    ok = gen_tcp:send(Socket, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Socket, 5, ?PATIENCE)),
    Socket.

count(Name) ->
    maps:get(connections, weir:info(Name)).

is_over(Socket) ->
    {_, Reason} = recv_all(Socket),
    ?assertNotEqual(timeout, Reason).

%% Clients that connect to the port that a function says, again and again, whatever comes of it.
storm(Port, Count) ->
    [async(fun() -> storm(Port) end) || _ <- lists:seq(1, Count)].

storm(Port) ->
    receive
        stop -> ok
    after 0 ->
        case gen_tcp:connect(?LOOPBACK, Port(), [binary, {active, false}], 2000) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, <<"hello">>),
                _ = gen_tcp:recv(Socket, 5, 100),
                case rand:uniform(2) of
                    1 -> gen_tcp:close(Socket);
                    2 -> reset(Socket)
                end;
            {error, _} ->
                timer:sleep(2)
        end,
        storm(Port)
    end.

calm(Storm) ->
    [pid(Client) ! stop || Client <- Storm],
    [ok = await(Client, ?LONG) || Client <- Storm].

%% A virtual machine has one supervisor of each kind, and gives up when they die too often: such cases have one of their own.
on_node(Case) ->
    weir_test_peer:on_node(?MODULE, Case, "", ["+S", "2"]).

supervisor_of_listeners_killed(_Config) ->
    on_node(kill_supervisor_of_listeners).

%% Its listeners end with it, in order, and nothing is in the way of those who start again.
kill_supervisor_of_listeners(_Config) ->
    Handlers = [{fun_of_it, fun ?MODULE:echo/2}, {protocol, weir_listener_protocol}, {reactor, weir_listener_reactor}],
    Listeners = [{Name, start(Name, #{}, Handler), Handler} || {Name, Handler} <- Handlers],
    Clients = [is_served(connect_raw(Port)) || {_, Port, _} <- Listeners, _ <- lists:seq(1, 20)],
    kill_registered(weir_listener_sup),
    lists:foreach(fun is_over/1, Clients),
    wait_until(fun() -> weir:listeners() =:= [] end),
    [?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])) || {_, Port, _} <- Listeners],
    [
        begin
            Port = start(Name, #{port => Port}, Handler),
            _ = is_served(connect_raw(Port)),
            ?assertEqual(1, count(Name)),
            ok = weir:stop_listener(Name)
        end
     || {Name, Port, Handler} <- Listeners
    ].

names_of_listeners_killed(_Config) ->
    on_node(kill_names_of_listeners).

%% Who is known by a name stays known, and so does what a successor inherits.
kill_names_of_listeners(_Config) ->
    Port = start(kept, #{}),
    Gone = start(gone, #{}),
    Clients = [is_served(connect_raw(Port)) || _ <- lists:seq(1, 5)],
    kill_registered(weir_listener_names),
    ?assertEqual([gone, kept], lists:sort(weir:listeners())),
    ?assertEqual({Port, 5}, {weir:get_port(kept), count(kept)}),
    ?assertMatch({error, {already_started, _}}, weir:start_listener(kept, #{}, fun ?MODULE:echo/2, args)),
    Old = weir_listener_names:whereis_name(kept),
    exit(Old, kill),
    wait_until(fun() ->
        New = weir_listener_names:whereis_name(kept),
        is_pid(New) andalso New =/= Old
    end),
    ?assertEqual({Port, 5}, {weir:get_port(kept), count(kept)}),
    lists:foreach(fun is_served/1, [connect_raw(Port) | Clients]),
    ok = weir:stop_listener(gone),
    ?assertEqual([kept], weir:listeners()),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Gone, [])),
    ok = weir:stop_listener(kept).

keeper_of_pollers_killed(_Config) ->
    on_node(kill_keeper_of_pollers).

kill_keeper_of_pollers(_Config) ->
    ok = weir_test_peer:silence_pollers(),
    Port = start(streams, #{}),
    Streams = weir_test_peer:start_streams(Port, 4),
    [
        begin
            weir_test_peer:assert_streams_go_on(Streams),
            kill_registered(weir_pollsets)
        end
     || _ <- lists:seq(1, 3)
    ],
    weir_test_peer:assert_streams_go_on(Streams),
    weir_test_peer:stop_streams(Streams),
    _ = is_served(connect_raw(Port)),
    ok = weir:stop_listener(streams).

%% The places of those who never came to serve are given back.
killed_before_their_handshake(Config) ->
    Name = ?config(name, Config),
    Options = #{max_connections => 10, proxy_protocol => true, handshake_timeout => infinity},
    <<Half:10/binary, Rest/binary>> = weir_proxy_header:build(#{version => 2, command => local}),
    [
        begin
            Port = start(Name, Options, Handler),
            [
                begin
                    Clients = [connect_raw(Port) || _ <- lists:seq(1, 10)],
                    [ok = gen_tcp:send(Client, Half) || Client <- Clients],
                    wait_until(fun() -> length(weir:connections(Name)) =:= 10 end),
                    [exit(Pid, kill) || {_, Pid} <- weir:connections(Name)],
                    lists:foreach(fun is_over/1, Clients),
                    wait_until(fun() -> count(Name) =:= 0 end)
                end
             || _ <- lists:seq(1, 3)
            ],
            Client = connect_raw(Port),
            ok = gen_tcp:send(Client, [Half, Rest]),
            _ = is_served(Client),
            ok = weir:stop_listener(Name)
        end
     || Handler <- [fun ?MODULE:echo/2, weir_listener_protocol]
    ].

started_and_stopped_in_a_storm(Config) ->
    Name = ?config(name, Config),
    Current = atomics:new(1, []),
    atomics:put(Current, 1, weir_test_peer:free_port()),
    Storm = storm(fun() -> atomics:get(Current, 1) end, 6),
    [
        begin
            atomics:put(Current, 1, start(Name, #{max_connections => 5, overload => Overload}, Handler)),
            pause(),
            ok = weir:suspend_listener(Name),
            pause(),
            _ = weir:resume_listener(Name),
            pause(),
            ok = weir:stop_listener(Name)
        end
     || _ <- lists:seq(1, 5),
        Overload <- [pause, reset],
        Handler <- [fun ?MODULE:echo/2, weir_listener_protocol, weir_listener_reactor]
    ],
    calm(Storm),
    ?assertEqual([], weir:listeners()).

killed_while_they_move(Config) ->
    Name = ?config(name, Config),
    Port = start(Name, #{max_connections => 30, balance => #{interval => 10, threshold => 10}}),
    Storm = storm(fun() -> Port end, 6),
    Pollsets = weir_pollsets:all(),
    [
        begin
            [
                case rand:uniform(4) of
                    1 -> exit(Pid, kill);
                    _ -> weir:migrate(Socket, one_of(Pollsets))
                end
             || {Socket, Pid} <- weir:connections(Name)
            ],
            _ = N rem 10 =:= 0 andalso kill_pollers(),
            pause()
        end
     || N <- lists:seq(1, 100)
    ],
    calm(Storm),
    wait_until(fun() -> count(Name) =:= 0 end),
    _ = is_served(connect_raw(Port)).

%% Each connection is relayed to one of another listener. Whoever dies, both ends go, and so do their places.
relayed_by_handlers_that_are_killed(_Config) ->
    Back = start(back, #{}),
    Relay = fun(Client, _) ->
        case gen_tcp:connect(?LOOPBACK, Back, [{tcp_module, weir_tcp}, binary, {active, false}]) of
            {ok, Server} ->
                case weir:relay(Client, Server, #{}) of
                    {ok, Relayed} -> receive {weir_relay, Relayed, _, _} -> ok end;
                    {error, _} -> gen_tcp:close(Server)
                end;
            {error, _} ->
                ok
        end
    end,
    Front = start(front, #{max_connections => 40}, Relay),
    Storm = storm(fun() -> Front end, 6),
    [
        begin
            [exit(Pid, kill) || {_, Pid} <- weir:connections(one_of([front, back])), rand:uniform(2) =:= 1],
            [weir:stop_relay(Stopped) || Stopped <- weir:relays(), rand:uniform(4) =:= 1],
            _ = N rem 10 =:= 0 andalso kill_pollers(),
            pause()
        end
     || N <- lists:seq(1, 100)
    ],
    calm(Storm),
    wait_until(fun() -> {count(front), count(back), weir:relays()} =:= {0, 0, []} end),
    _ = is_served(connect_raw(Front)).

%% Relays ----------------------------------------------------------------------

%% Two stock peers with a relay of the caller's between them, that have little room.
relay(Config, Options) ->
    Pair = fun() -> socket_pair(Config, [binary, {active, false}, {sndbuf, 8192}], [{recbuf, 8192}, {sndbuf, 8192}]) end,
    {A, Client} = Pair(),
    {B, Server} = Pair(),
    {ok, Relay} = weir:relay(A, B, Options),
    {Relay, Client, Server}.

%% For every way of moving bytes and both directions: the writer's side is full, since nobody reads at the other.
full_relays(Config) ->
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => Splice, buffer => Buffer}),
            {From, To} =
                case Direction of
                    a_to_b -> {Client, Server};
                    b_to_a -> {Server, Client}
                end,
            Writer = given(From, fun flood/1),
            wait_until(fun() -> stands_still(Relay, Direction) end),
            {Relay, From, Writer, To}
        end
     || Splice <- [auto, true, false],
        Buffer <- [1000, 65536],
        Direction <- [a_to_b, b_to_a]
    ].

stands_still(Relay, Direction) ->
    Bytes = fun() ->
        {ok, #{Direction := #{bytes := Count}}} = weir:relay_info(Relay),
        Count
    end,
    Before = Bytes(),
    timer:sleep(20),
    Before > 0 andalso Bytes() =:= Before.

has_ended(Relay) ->
    receive
        {weir_relay, Relay, Result, _} -> Result
    after ?PATIENCE -> ct:fail({not_ended, weir:relay_info(Relay)})
    end.

%% A reset does not wait behind bytes that nobody reads.
a_reader_stops_and_the_other_side_is_reset(Config) ->
    [
        begin
            ok = inet:setopts(From, [{linger, {true, 0}}]),
            ok = kill(Writer),
            ?assertMatch({error, _}, has_ended(Relay)),
            is_over(To)
        end
     || {Relay, From, Writer, To} <- full_relays(Config)
    ].

%% The bytes that its kernel has taken are still delivered, and the end behind them.
a_reader_stops_and_the_other_side_is_killed(Config) ->
    [
        begin
            ok = kill(Writer),
            {Data, closed} = recv_all(To),
            ?assert(byte_size(Data) > 0),
            ?assertEqual(Data, binary:part(binary:copy(<<"flood">>, byte_size(Data) div 5 + 1), 0, byte_size(Data))),
            ok = gen_tcp:close(To),
            ?assertEqual(closed, has_ended(Relay))
        end
     || {Relay, _From, Writer, To} <- full_relays(Config)
    ].

a_reader_stops_and_is_killed_itself(Config) ->
    [
        begin
            Reader = given(To, fun(_) -> receive never -> ok end end),
            ok = kill(Reader),
            %% What it has not read makes of its close a reset.
            ?assertMatch({error, _}, has_ended(Relay)),
            ok = await(Writer)
        end
     || {Relay, _From, Writer, To} <- full_relays(Config)
    ].

sockets_die_while_they_become_a_relay(Config) ->
    Pollsets = weir_pollsets:all(),
    [
        begin
            [{A, Client}, {B, Server}] = [socket_pair(Config, [binary, {active, false}]) || _ <- [a, b]],
            Owner = async(fun() ->
                receive go -> ok end,
                case weir:relay(A, B, #{splice => one_of([auto, true, false])}) of
                    {ok, Relay} -> receive {weir_relay, Relay, _, _} -> ok end;
                    {error, _} -> [gen_tcp:close(Socket) || Socket <- [A, B]]
                end
            end),
            [ok = gen_tcp:controlling_process(Socket, pid(Owner)) || Socket <- [A, B]],
            Others = [
                async(fun() -> [weir:migrate(Socket, one_of(Pollsets)) || _ <- lists:seq(1, 20)] end) || Socket <- [A, B]
            ],
            _ = gen_tcp:send(Client, <<"for the other side">>),
            pid(Owner) ! go,
            case N rem 5 of
                0 -> gen_tcp:close(A);
                1 -> kill(Owner);
                2 -> reset(Client);
                3 -> gen_tcp:close(Server);
                4 -> [reset(Peer) || Peer <- [Client, Server]]
            end,
            [await(Other) || Other <- Others],
            [gen_tcp:close(Peer) || Peer <- [Client, Server]],
            wait_until(fun() -> not is_process_alive(pid(Owner)) orelse weir:relays() =:= [] end)
        end
     || N <- lists:seq(1, 500)
    ],
    wait_until(fun() -> weir:relays() =:= [] end).

%% A poller that serves a stream is in a dirty call, and what such a call sends after the kill is lost. Here a relay ends, and
%% a socket of the same pollset gets data, while pollers die.
pollers_of_streams_are_killed(Config) ->
    Killer = killer_of_pollers(2),
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => true}),
            {ok, #{pollset := Pollset}} = weir:relay_info(Relay),
            {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
            ok = weir:migrate(Socket, Pollset),
            Reader = given(Server, fun weir_test_peer:recv_all/1),
            Writer = given(Client, fun flood/1),
            Numbers = <<<<N:32>> || N <- lists:seq(1, 50)>>,
            [
                begin
                    ok = gen_tcp:send(Peer, <<Number:32>>),
                    timer:sleep(1)
                end
             || <<Number:32>> <= Numbers
            ],
            ok = kill(Writer),
            _ = has_ended(Relay),
            ok = gen_tcp:close(Peer),
            ?assertEqual(Numbers, messages_until_closed(Socket)),
            _ = await(Reader)
        end
     || _ <- lists:seq(1, 30)
    ],
    pid(Killer) ! stop,
    ok = await(Killer).

messages_until_closed(Socket) ->
    receive
        {tcp, Socket, Data} -> <<Data/binary, (messages_until_closed(Socket))/binary>>;
        {tcp_closed, Socket} -> <<>>
    after ?PATIENCE -> ct:fail(not_closed)
    end.

%% Everything that may happen to relays happens to some of them at the same time.
relays_in_havoc(Config) ->
    Relays = [owned_relay(Config) || _ <- lists:seq(1, 40)],
    %% A stock socket that has bytes to send stays when its owner is killed, until they are taken: there, maybe, by nobody.
    [ok = inet:setopts(Socket, [{linger, {true, 0}}]) || {_, _, Client, Server} <- Relays, Socket <- [Client, Server]],
    Busy = [given(Socket, fun flood_or_read/1) || {_, _, Client, Server} <- Relays, Socket <- [Client, Server]],
    Killer = killer_of_pollers(20),
    exit(whereis(weir_relay_timer), kill),
    [
        begin
            pause(),
            case N rem 5 of
                0 -> kill(Owner);
                1 -> weir:stop_relay(Relay);
                2 -> gen_tcp:shutdown(Client, write);
                3 -> kill(lists:nth(2 * N + 2, Busy));
                4 -> [kill(lists:nth(2 * N + Side, Busy)) || Side <- [1, 2]]
            end
        end
     || {N, {Owner, Relay, Client, _}} <- lists:zip(lists:seq(0, length(Relays) - 1), Relays)
    ],
    [kill(Process) || Process <- Busy],
    wait_until(fun() -> weir:relays() =:= [] end),
    pid(Killer) ! stop,
    ok = await(Killer),
    %% Each owner that lives has been told once.
    [?assertMatch([{weir_relay, Relay, _, _}], told(Owner)) || {Owner, Relay, _, _} <- Relays, is_process_alive(pid(Owner))].

told(Owner) ->
    weir_test_peer:messages_of(pid(Owner)).

owned_relay(Config) ->
    [{A, Client}, {B, Server}] = [socket_pair(Config, [binary, {active, false}]) || _ <- [a, b]],
    Options = #{
        splice => one_of([auto, true, false]),
        buffer => one_of([1, 1000, 65536]),
        idle_timeout => one_of([infinity, 50, 5000]),
        half_close_timeout => one_of([infinity, 50, 5000])
    },
    Owner = async(fun() -> receive go -> element(2, {ok, _} = weir:relay(A, B, Options)) end end),
    [ok = gen_tcp:controlling_process(Socket, pid(Owner)) || Socket <- [A, B]],
    pid(Owner) ! go,
    {Owner, await(Owner), Client, Server}.

flood_or_read(Socket) ->
    case rand:uniform(3) of
        1 -> flood(Socket);
        2 -> recv_all(Socket);
        3 -> receive never -> ok end
    end.

%% Groups ----------------------------------------------------------------------

new_group(Options) ->
    {ok, Group} = weir_group:new(Options),
    Group.

%% A member, its peer, and who owns them; neither has much room.
member(Config, Group) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]),
    ok = weir_group:join(Group, Socket),
    Owner = given(Socket, fun(_) -> receive never -> ok end end),
    {Owner, Socket, Peer}.

reader(Peer) ->
    given(Peer, fun weir_test_peer:recv_all/1).

%% Messages are numbers, each of so many bytes.
-define(BYTES, 500).

number(N) ->
    <<N:64, 0:((?BYTES - 8) * 8)>>.

numbers(Data) ->
    [N || <<N:64, _:(?BYTES - 8)/binary>> <= Data].

%% Broadcasts numbers until it is told to stop, or the group is deleted; says how many.
broadcaster(Group) ->
    broadcaster(Group, fun erlang:yield/0).

%% Calls a function after each broadcast.
broadcaster(Group, Pause) ->
    async(fun() -> broadcast(Group, Pause, 1) end).

broadcast(Group, Pause, N) ->
    receive
        stop -> N - 1
    after 0 ->
        case weir_group:broadcast(Group, number(N)) of
            {ok, _} ->
                _ = Pause(),
                broadcast(Group, Pause, N + 1);
            {error, busy} ->
                erlang:yield(),
                broadcast(Group, Pause, N);
            {error, closed} ->
                N - 1
        end
    end.

stop(Broadcaster) ->
    pid(Broadcaster) ! stop,
    await(Broadcaster, ?LONG).

%% What a member got are messages in the order of the broadcasts, each once. The last may be cut by a death.
is_in_order(Data) ->
    Numbers = numbers(Data),
    ?assertEqual(lists:usort(Numbers), Numbers).

broadcasts(Group) ->
    {ok, #{broadcasts := Count}} = weir_group:info(Group),
    Count.

%% With every policy there are members that read and members that do not; of both some are killed, some reset and some
%% left alone. Memory for those who do not read is bounded by the policy.
slow_members_of_every_policy_die(Config) ->
    [
        begin
            Group = new_group(#{policy => Policy, max_messages => 4}),
            Slow = [member(Config, Group) || _ <- lists:seq(1, 9)],
            Reading = [{Member, reader(Peer)} || {_, _, Peer} = Member <- [member(Config, Group) || _ <- lists:seq(1, 9)]],
            Broadcaster = broadcaster(Group),
            wait_until(fun() -> broadcasts(Group) > 200 end),
            ?assert(queued(Slow) =< 9 * 5 * ?BYTES),
            [
                begin
                    pause(),
                    case N rem 3 of
                        0 -> kill(Owner);
                        1 -> reset(Peer);
                        2 -> ok
                    end
                end
             || {N, {Owner, _, Peer}} <- lists:zip(lists:seq(1, 9), Slow)
            ],
            [kill(Owner) || {N, {{Owner, _, _}, _}} <- lists:zip(lists:seq(1, 9), Reading), N rem 3 =:= 0],
            [kill(Reader) || {N, {_, Reader}} <- lists:zip(lists:seq(1, 9), Reading), N rem 3 =:= 1],
            Now = broadcasts(Group),
            wait_until(fun() -> broadcasts(Group) > Now + 100 end),
            _ = stop(Broadcaster),
            [kill(Owner) || {Owner, _, _} <- Slow],
            [kill(Owner) || {{Owner, _, _}, _} <- Reading],
            wait_until(fun() -> weir_group:size(Group) =:= 0 end),
            [
                begin
                    {Data, _} = await(Reader),
                    is_in_order(Data)
                end
             || {_, Reader} <- Reading, is_process_alive(pid(Reader))
            ],
            ok = weir_group:delete(Group)
        end
     || Policy <- [drop_oldest, drop_newest, conflate, disconnect]
    ].

%% What waits in the send queues of members.
queued(Members) ->
    lists:sum([
        Bytes
     || {_, Socket, _} <- Members,
        {ok, [{send_pend, Bytes}]} <- [inet:getstat(Socket, [send_pend])]
    ]).

%% Nobody is there to be told when the broadcasts are through.
broadcasters_killed(Config) ->
    Group = new_group(#{}),
    Members = [member(Config, Group) || _ <- lists:seq(1, 5)],
    Readers = [reader(Peer) || {_, _, Peer} <- Members],
    Insist = fun Insist() ->
        _ = weir_group:broadcast(Group, number(1), #{notify => make_ref()}),
        Insist()
    end,
    [
        begin
            Broadcaster = async(Insist),
            pause(),
            kill(Broadcaster)
        end
     || _ <- lists:seq(1, 30)
    ],
    wait_until(fun() -> {ok, #{pending := Pending}} = weir_group:info(Group), Pending =:= 0 end),
    [kill(Owner) || {Owner, _, _} <- Members],
    [?assertMatch({<<_:?BYTES/binary, _/binary>>, closed}, await(Reader, ?LONG)) || Reader <- Readers].

members_move_and_close(Config) ->
    Group = new_group(#{}),
    Broadcaster = broadcaster(Group),
    Pollsets = weir_pollsets:all(),
    [
        begin
            {_Owner, Socket, Peer} = member(Config, Group),
            Reader = reader(Peer),
            Mover = async(fun() -> [weir:migrate(Socket, one_of(Pollsets)) || _ <- lists:seq(1, 50)] end),
            _ = N rem 10 =:= 0 andalso kill_pollers(),
            pause(),
            ok = gen_tcp:close(Socket),
            _ = await(Mover),
            {Data, closed} = await(Reader, ?LONG),
            is_in_order(Data)
        end
     || N <- lists:seq(1, 60)
    ],
    ?assertEqual(0, weir_group:size(Group)),
    _ = stop(Broadcaster).

%% Members outlive their groups, and what came of each is whole.
groups_deleted_while_broadcasts_fly(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    Reader = reader(Peer),
    [
        begin
            Group = new_group(#{}),
            ok = weir_group:join(Group, Socket),
            Broadcasters = [broadcaster(Group) || _ <- [1, 2]],
            pause(),
            ok = weir_group:delete(Group),
            %% They end by themselves.
            [await(Broadcaster) || Broadcaster <- Broadcasters],
            ?assertEqual({error, closed}, weir_group:info(Group))
        end
     || _ <- lists:seq(1, 50)
    ],
    ok = gen_tcp:send(Socket, <<"open">>),
    ok = gen_tcp:close(Socket),
    {Data, closed} = await(Reader, ?LONG),
    ?assertEqual(4, byte_size(Data) rem ?BYTES),
    ?assertEqual(<<"open">>, binary:part(Data, byte_size(Data), -4)).

everybody_joins_and_leaves_at_once(Config) ->
    Groups = [new_group(#{policy => Policy}) || Policy <- [drop_oldest, drop_newest, conflate]],
    Pairs = [socket_pair(Config, [binary, {active, false}]) || _ <- lists:seq(1, 8)],
    Readers = [reader(Peer) || {_, Peer} <- Pairs],
    Broadcasters = [broadcaster(Group) || Group <- Groups],
    Pollsets = weir_pollsets:all(),
    Joiners = [
        async(fun() ->
            [
                begin
                    ok = weir_group:join(one_of(Groups), Socket),
                    _ = weir:migrate(Socket, one_of(Pollsets)),
                    _ = weir_group:leave(one_of(Groups), Socket),
                    _ = weir_group:broadcast(one_of(Groups), number(0), #{except => Socket})
                end
             || _ <- lists:seq(1, 2000)
            ]
        end)
     || {Socket, _} <- Pairs,
        _ <- [1, 2]
    ],
    [await(Joiner, ?LONG) || Joiner <- Joiners],
    lists:foreach(fun stop/1, Broadcasters),
    [ok = gen_tcp:close(Socket) || {Socket, _} <- Pairs],
    [?assertMatch({_, closed}, await(Reader, ?LONG)) || Reader <- Readers],
    ?assertEqual([0, 0, 0], [weir_group:size(Group) || Group <- Groups]).

%% Its connections are members no more; those of processes are, and get everything.
a_reactor_of_members_killed(Config) ->
    process_flag(trap_exit, true),
    Group = new_group(#{max_messages => 10_000, max_bytes => 10_000 * ?BYTES}),
    {_, _, Peer} = Steady = member(Config, Group),
    Reader = reader(Peer),
    %% A broadcaster that outruns a reader has messages dropped, as the group's policy is.
    Broadcaster = broadcaster(Group, fun() -> wait_until(fun() -> queued([Steady]) < 1000 * ?BYTES end) end),
    [
        begin
            {ok, Listen} = keep(gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {ip, ?LOOPBACK}])),
            {ok, Port} = inet:port(Listen),
            {ok, Reactor} = weir_reactor:start_link(#{module => reactor_probe, args => #{tell => self()}, listen => Listen}),
            Peers = [connect_raw(Port) || _ <- lists:seq(1, 10)],
            [receive {init, Socket} -> ok = weir_group:join(Group, Socket) end || _ <- Peers],
            [recv_exactly(Each, ?BYTES) || Each <- Peers],
            exit(Reactor, kill),
            receive {'EXIT', Reactor, killed} -> ok end,
            [is_over(Each) || Each <- Peers],
            wait_until(fun() -> weir_group:size(Group) =:= 1 end),
            ok = gen_tcp:close(Listen)
        end
     || _ <- lists:seq(1, 5)
    ],
    Count = stop(Broadcaster),
    wait_until(fun() -> {ok, #{pending := Pending}} = weir_group:info(Group), Pending =:= 0 end),
    kill(element(1, Steady)),
    {Data, closed} = await(Reader, ?LONG),
    ?assertEqual(Count, length(numbers(Data))),
    is_in_order(Data),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% What a member has got before it becomes one side of a relay are whole messages, and after them what the other side says.
members_become_relays(Config) ->
    Group = new_group(#{policy => drop_newest}),
    Broadcaster = broadcaster(Group),
    [
        begin
            %% One that has heard the end may still say that it has ended itself.
            Pair = fun() -> socket_pair(Config, [binary, {active, false}], [{exit_on_close, false}]) end,
            [{A, Client}, {B, Server}] = [Pair() || _ <- [a, b]],
            [ok = weir_group:join(Group, Socket) || Socket <- [A, B]],
            Readers = [reader(Peer) || Peer <- [Client, Server]],
            pause(),
            {ok, Relay} = weir:relay(A, B, #{prefix => <<"prefix">>}),
            pause(),
            ok = gen_tcp:shutdown(Client, write),
            ok = gen_tcp:shutdown(Server, write),
            [{ToClient, closed}, {ToServer, closed}] = [await(Reader, ?LONG) || Reader <- Readers],
            closed = has_ended(Relay),
            ?assertEqual(0, byte_size(ToClient) rem ?BYTES),
            ?assertEqual(6, byte_size(ToServer) rem ?BYTES),
            ?assertEqual(<<"prefix">>, binary:part(ToServer, byte_size(ToServer), -6)),
            [is_in_order(Data) || Data <- [ToClient, ToServer]]
        end
     || _ <- lists:seq(1, 40)
    ],
    ?assertEqual(0, weir_group:size(Group)),
    _ = stop(Broadcaster).
