%% Relays when owners, pollers and peers die, several at once.
-module(weir_fastpath_relays_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, reset/1, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [patience/0, wait_until/1, recv_all/1]).
-import(weir_fastpath_test, [
    given/2, has_ended/1, is_over/1, kill_pollers/0, new_engine/0, one_of/1, pause/0, relay/2
]).

-include("fastpath_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, relays}].

groups() ->
    [
        {relays, [], [
            a_reader_stops_and_the_other_side_is_reset,
            a_reader_stops_and_the_other_side_is_killed,
            a_reader_stops_and_is_killed_itself,
            sockets_die_while_they_become_a_relay,
            pollers_of_streams_are_killed,
            relays_in_havoc
        ]}
    ].

%% Kills pollers repeatedly with a pause in milliseconds, until it is sent `stop'.
killer_of_pollers(Pause) ->
    async(fun Kill() ->
        _ = kill_pollers(),
        receive
            stop -> ok
        after Pause -> Kill()
        end
    end).

flood(Socket) ->
    case gen_tcp:send(Socket, binary:copy(<<"flood">>, 2000)) of
        ok -> flood(Socket);
        {error, _} -> ok
    end.

%% For every way of moving bytes and both directions: the writer's side is full, because the other side does not read.
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
            wait_until(fun() -> stands_still(From, Relay, Direction) end),
            {Relay, From, Writer, To}
        end
     || Splice <- [auto, true, false],
        Buffer <- [1000, 65536],
        Direction <- [a_to_b, b_to_a]
    ].

%% The writer has more than its kernel takes, and the relay has moved nothing since the last check.
stands_still(From, Relay, Direction) ->
    {ok, [{send_pend, Waiting}]} = inet:getstat(From, [send_pend]),
    {ok, #{Direction := #{bytes := Moved}}} = weir:relay_info(Relay),
    put(Relay, Moved) =:= Moved andalso Moved > 0 andalso Waiting > 0.

%% A reset does not wait behind unread bytes.
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

%% Bytes that the writer's kernel has taken are still delivered, then the end.
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
            %% Unread data turns its close into a reset.
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
                receive
                    go -> ok
                end,
                case weir:relay(A, B, #{splice => one_of([auto, true, false])}) of
                    {ok, Relay} ->
                        receive
                            {weir_relay, Relay, _, _} -> ok
                        end;
                    {error, _} ->
                        [gen_tcp:close(Socket) || Socket <- [A, B]]
                end
            end),
            [ok = gen_tcp:controlling_process(Socket, pid(Owner)) || Socket <- [A, B]],
            Others = [
                async(fun() -> [weir:migrate(Socket, one_of(Pollsets)) || _ <- lists:seq(1, 20)] end)
             || Socket <- [A, B]
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

%% A poller that serves a stream is in a dirty call, and messages that such a call sends after the kill are lost. A
%% relay ends, and a socket of the same pollset gets data, while pollers die. Each message is awaited, so that no
%% later one can hide a lost wake-up.
pollers_of_streams_are_killed(Config) ->
    Killer = killer_of_pollers(2),
    [
        begin
            {Relay, Client, Server} = relay(Config, #{splice => true}),
            {ok, #{pollset := Pollset}} = weir:relay_info(Relay),
            {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
            ok = weir:migrate(Socket, Pollset),
            Reader = given(Server, fun weir_test_wait:recv_all/1),
            Writer = given(Client, fun flood/1),
            [
                begin
                    ok = gen_tcp:send(Peer, <<Number:32>>),
                    receive
                        {tcp, Socket, Data} -> ?assertEqual(<<Number:32>>, Data)
                    after patience() -> ct:fail({lost, Number})
                    end
                end
             || Number <- lists:seq(1, 50)
            ],
            ok = kill(Writer),
            _ = has_ended(Relay),
            ok = gen_tcp:close(Peer),
            receive {tcp_closed, Socket} -> ok after patience() -> ct:fail(not_closed) end,
            _ = await(Reader)
        end
     || _ <- lists:seq(1, 30)
    ],
    pid(Killer) ! stop,
    ok = await(Killer).

%% Every event that can happen to relays happens to some of them at the same time.
relays_in_havoc(Config) ->
    ok = new_engine(),
    Relays = [owned_relay(Config) || _ <- lists:seq(1, 40)],
    %% A stock socket with unsent bytes stays open after its owner is killed, until they are read, here perhaps never.
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
    %% Each living owner has got exactly one message.
    [
        ?assertMatch([{weir_relay, Relay, _, _}], told(Owner))
     || {Owner, Relay, _, _} <- Relays, is_process_alive(pid(Owner))
    ].

told(Owner) ->
    weir_test_wait:messages_of(pid(Owner)).

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
