%% What can be observed of pollsets: their counters, pollers and sockets.
-module(weir_pollsets_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, connect_raw/1, socket_pair/2, socket_pair/3, keep/1, async/1, await/1]).
-import(weir_test_wait, [patience/0, wait_until/1, next_message/0, recv_exactly/2]).

-include("poller_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        one_for_each_scheduler,
        traffic_is_counted,
        short_writes_are_counted,
        accepts_are_counted,
        polls_fall_into_the_histogram,
        sockets_are_counted_where_they_are,
        no_such_pollset,
        sleeps_are_counted,
        idle_pollers_sleep,
        only_streams_into_wide_buffers_are_gathered,
        is_weir_tells_sockets_apart,
        table_of_sockets,
        table_of_other_families,
        table_without_sockets,
        started_by_its_first_user,
        unbound_pollers_serve
    ].

%% A counter, summed over all pollsets.
total(Name) ->
    lists:sum([maps:get(Name, Pollset) || Pollset <- weir:pollsets()]).

%% Returns how much a function adds to counters.
added(Names, Fun) ->
    Before = [total(Name) || Name <- Names],
    Fun(),
    all_asleep(),
    [{Name, total(Name) - Old} || {Name, Old} <- lists:zip(Names, Before)].

%% Waits until all pollers sleep, because then all events are counted.
all_asleep() ->
    wait_until(fun() ->
        lists:all(
            fun(#{poller := Poller}) ->
                is_pid(Poller) andalso process_info(Poller, status) =:= {status, waiting}
            end,
            weir:pollsets()
        )
    end).

%% Before OTP 29 a bare family before the module makes gen_tcp use OTP's module, which only is_weir/1 shows.
is_weir_tells_sockets_apart(_Config) ->
    {ok, Ours} = keep(gen_tcp:listen(0, [{tcp_module, weir_tcp}, inet])),
    {ok, OfIPv6} = keep(gen_tcp:listen(0, [{tcp_module, weir_tcp6}])),
    {ok, Bare} = keep(gen_tcp:listen(0, [inet, {tcp_module, weir_tcp}])),
    {ok, Stock} = keep(gen_tcp:listen(0, [])),
    {ok, OfSocket} = keep(gen_tcp:listen(0, [{inet_backend, socket}])),
    ?assertEqual([true, true], [weir:is_weir(Socket) || Socket <- [Ours, OfIPv6]]),
    ?assertEqual(is_tuple(Bare), weir:is_weir(Bare)),
    ?assertEqual([false, false], [weir:is_weir(Socket) || Socket <- [Stock, OfSocket]]),
    ok = gen_tcp:close(Ours),
    ?assert(weir:is_weir(Ours)),
    ?assertEqual([false, false, false], [
        weir:is_weir(Other)
     || Other <- [undefined, {sslsocket}, {'$inet', weir_tcp, a}]
    ]).

one_for_each_scheduler(_Config) ->
    Pollsets = weir:pollsets(),
    Schedulers = lists:seq(1, erlang:system_info(schedulers)),
    ?assertEqual(Schedulers, [Number || #{pollset := Number} <- Pollsets]),
    ?assertEqual(Schedulers, [Scheduler || #{scheduler := Scheduler} <- Pollsets]),
    Counters = [
        sockets,
        polls,
        empty_polls,
        events,
        events_min,
        events_max,
        events_log2,
        sleeps,
        asleep_ns,
        gathers,
        reads,
        read_bytes,
        writes,
        written_bytes,
        short_writes,
        accepts,
        asked_away,
        moved_in,
        moved_out,
        file_waits,
        wakes_by_thread,
        wakes_by_process,
        polling_ns,
        between_ns,
        files_cut,
        faults,
        contended
    ],
    lists:foreach(
        fun(Pollset = #{poller := Poller, events_log2 := Histogram}) ->
            ?assert(is_process_alive(Poller)),
            ?assertEqual(lists:sort([pollset, poller, scheduler | Counters]), lists:sort(maps:keys(Pollset))),
            Numbers = maps:values(maps:with(Counters -- [events_log2], Pollset)) ++ Histogram,
            ?assertEqual([], [N || N <- Numbers, not (is_integer(N) andalso N >= 0)])
        end,
        Pollsets
    ).

traffic_is_counted(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Rounds = 100,
    Added = added([read_bytes, written_bytes, reads, writes, short_writes, events], fun() ->
        [
            begin
                ok = gen_tcp:send(Peer, binary:copy(<<N>>, 64)),
                ?assertEqual({tcp, Socket, binary:copy(<<N>>, 64)}, next_message()),
                ok = gen_tcp:send(Socket, [binary:copy(<<N>>, 40), <<N:192>>]),
                _ = recv_exactly(Peer, 64)
            end
         || N <- lists:seq(1, Rounds)
        ]
    end),
    ?assertMatch(
        [
            {read_bytes, 6400},
            {written_bytes, 6400},
            {reads, Reads},
            {writes, Rounds},
            {short_writes, 0},
            {events, Events}
        ] when Reads >= Rounds andalso Events >= Rounds,
        Added
    ).

short_writes_are_counted(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {sndbuf, 8192}], [{recbuf, 8192}]),
    Size = 1000000,
    [{short_writes, Short}, {writes, Writes}, {written_bytes, Size}] =
        added([short_writes, writes, written_bytes], fun() ->
            Written = total(written_bytes),
            ok = gen_tcp:send(Socket, binary:copy(<<"x">>, Size)),
            _ = recv_exactly(Peer, Size),
            %% The last write is counted after it has returned.
            wait_until(fun() -> total(written_bytes) - Written >= Size end)
        end),
    ?assert(Short >= 1),
    ?assert(Writes > Short).

accepts_are_counted(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Before = {total(accepts), total(sockets)},
    [
        begin
            _ = connect_raw(Port),
            {ok, _} = keep(gen_tcp:accept(Listener, patience()))
        end
     || _ <- lists:seq(1, 5)
    ],
    {Accepts, Sockets} = Before,
    wait_until(fun() -> {total(accepts), total(sockets)} =:= {Accepts + 5, Sockets + 5} end),
    all_asleep(),
    ?assertEqual({Accepts + 5, Sockets + 5}, {total(accepts), total(sockets)}).

polls_fall_into_the_histogram(Config) ->
    traffic_is_counted(Config),
    all_asleep(),
    lists:foreach(
        fun(#{polls := Polls, empty_polls := Empty, events := Events, events_log2 := Histogram} = Pollset) ->
            #{events_min := Min, events_max := Max} = Pollset,
            ?assertEqual(Polls - Empty, lists:sum(Histogram)),
            ?assert(Min =< Max),
            ?assert(Events >= Min * (Polls - Empty)),
            ?assert(Events =< Max * (Polls - Empty))
        end,
        weir:pollsets()
    ).

sockets_are_counted_where_they_are(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun(To) ->
            ?assertEqual(ok, weir:migrate(Socket, To)),
            Sockets = [{Number, Count} || #{pollset := Number, sockets := Count} <- weir:pollsets(), Count > 0],
            ?assertEqual([{To, 1}], Sockets),
            ?assertMatch(#{pollset := To}, weir_tcp:info(Socket))
        end,
        [Number || #{pollset := Number} <- weir:pollsets()]
    ).

no_such_pollset(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [?assertError(badarg, weir:migrate(Socket, Number)) || Number <- [-1, 1023, 100000, one, 1.0]],
    ?assertError(badarg, weir_nif:counters(1023)).

sleeps_are_counted(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    all_asleep(),
    [{sleeps, Sleeps}, {asleep_ns, Asleep}] = added([sleeps, asleep_ns], fun() ->
        ok = gen_tcp:send(Peer, <<"wake">>),
        ?assertEqual({tcp, Socket, <<"wake">>}, next_message())
    end),
    ?assert(Sleeps >= 1),
    ?assert(Asleep > 0).

%% Idle sockets cause no work, however many there are.
idle_pollers_sleep(Config) ->
    Pairs = [socket_pair(Config, [binary, {active, Active}]) || Active <- [true, once, false, 5]],
    %% On a busy machine an earlier event may still wake a poller.
    wait_until(fun() ->
        all_asleep(),
        [{polls, 0}, {sleeps, 0}] =:= added([polls, sleeps], fun() -> timer:sleep(100) end)
    end),
    [ok = gen_tcp:send(Peer, <<"wake">>) || {_, Peer} <- Pairs],
    Awake = [Socket || {Socket, _} <- Pairs, inet:getopts(Socket, [active]) =/= {ok, [{active, false}]}],
    [_ = next_message() || _ <- Awake].

table_of_sockets(Config) ->
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    Peer = connect_raw(Port),
    {ok, Socket} = keep(gen_tcp:accept(Listener, patience())),
    ok = gen_tcp:send(Socket, <<"seven b">>),
    _ = recv_exactly(Peer, 7),
    {ok, PeerPort} = inet:port(Peer),
    [Header | Rows] = printed(fun weir:i/0),
    ?assertEqual(
        ["Socket", "Pollset", "Recv", "Sent", "Owner", "Local", "Address", "Foreign", "Address", "State"],
        string:lexemes(Header, " ")
    ),
    Local = "127.0.0.1:" ++ integer_to_list(Port),
    Foreign = "127.0.0.1:" ++ integer_to_list(PeerPort),
    Expected = [
        row(Listener, ["0", "0", pid_to_list(self()), Local, "*:*", "LISTENING"]),
        row(Socket, ["0", "7", pid_to_list(self()), Local, Foreign, "CONNECTED"])
    ],
    ?assertEqual(lists:sort(Expected), lists:sort([string:lexemes(Row, " ") || Row <- Rows])).

table_of_other_families(Config) ->
    Path = "/tmp/weir_" ++ os:getpid() ++ "_table",
    Name = "weir" ++ os:getpid(),
    {ok, Inet6} = weir_test_peer:listen(Config, 0, [{ip, {0, 0, 0, 0, 0, 0, 0, 1}}]),
    {ok, Local} = weir_test_peer:listen(Config, 0, [{ifaddr, {local, Path}}]),
    {ok, Abstract} = weir_test_peer:listen(Config, 0, [
        {ifaddr, {local, <<0, (list_to_binary(Name))/binary, 7, "table">>}}
    ]),
    ok = file:delete(Path),
    {ok, Port} = inet:port(Inet6),
    [_Header | Rows] = printed(fun weir:i/0),
    Expected = [
        row(Socket, ["0", "0", pid_to_list(self()), Address, "*:*", "LISTENING"])
     || {Socket, Address} <- [
            {Inet6, "[::1]:" ++ integer_to_list(Port)},
            {Local, "local:" ++ Path},
            {Abstract, "local:@" ++ Name ++ ".table"}
        ]
    ],
    ?assertEqual(lists:sort(Expected), lists:sort([string:lexemes(Row, " ") || Row <- Rows])).

row({'$inet', weir_tcp, Handle} = Socket, Rest) ->
    #{pollset := Pollset} = weir_tcp:info(Socket),
    [integer_to_list(Handle), integer_to_list(Pollset) | Rest].

table_without_sockets(_Config) ->
    ?assertEqual(1, length(printed(fun weir:i/0))).

%% Returns the lines that a function prints.
printed(Fun) ->
    ok = ct:capture_start(),
    ok = Fun(),
    ok = ct:capture_stop(),
    string:lexemes(lists:append(ct:capture_get([])), "\n").

started_by_its_first_user(Config) ->
    ok = supervisor:terminate_child(kernel_safe_sup, weir_engine),
    ?assertEqual(undefined, whereis(weir_pollsets)),
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ?assert(is_pid(whereis(weir_pollsets))),
    ok = gen_tcp:send(Peer, <<"started">>),
    ?assertEqual({tcp, Socket, <<"started">>}, next_message()),
    ?assertEqual(ok, weir_pollsets:ensure_started()).

%% The thread of a pollset waits for more data of a stream before it wakes the poller, if the kernel has room for it.
%% The kernel doubles the requested size, and the limit is 384 KiB.
only_streams_into_wide_buffers_are_gathered(Config) ->
    Before = total(gathers),
    pour(Config, 64 * 1024, fun(Received) -> Received >= 16 * 1024 * 1024 end),
    ?assertEqual(Before, total(gathers)),
    pour(Config, 208 * 1024, fun(_Received) -> total(gathers) > Before end).

%% Sends a stream into a socket with this receive buffer until the condition is true.
pour(Config, ReceiveBuffer, IsEnough) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}, {recbuf, ReceiveBuffer}]),
    Sender = async(fun() -> send_on(Peer, binary:copy(<<1>>, 1024 * 1024)) end),
    ok = receive_until(Socket, 0, IsEnough),
    ok = gen_tcp:close(Socket),
    ok = forget(Socket),
    ?assertMatch({error, _}, await(Sender)).

send_on(Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> send_on(Socket, Data);
        {error, _} = Error -> Error
    end.

receive_until(Socket, Received, IsEnough) ->
    receive
        {tcp, Socket, Data} ->
            case IsEnough(Received + byte_size(Data)) of
                true -> ok;
                false -> receive_until(Socket, Received + byte_size(Data), IsEnough)
            end
    after patience() ->
        ct:fail({not_enough, Received})
    end.

forget(Socket) ->
    receive
        {tcp, Socket, _} -> forget(Socket)
    after 0 -> ok
    end.

%% The behaviour on a VM that does not bind processes to schedulers.
unbound_pollers_serve(Config) ->
    ok = weir_fastpath_test:new_engine(),
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    %% A poller that has not claimed its pollset yet would do so after ours.
    all_asleep(),
    %% A bound poller that notices would be replaced, and its successor would take over from ours.
    Suspended = whereis(weir_pollsets),
    ok = sys:suspend(Suspended),
    Pollers =
        try
            served_by_unbound(Socket, Peer)
        after
            %% Their tokens become invalid when the bound pollers are back.
            exit(Suspended, kill)
        end,
    wait_until(fun() -> not lists:member(whereis(weir_pollsets), [undefined, Suspended]) end),
    ok = gen_tcp:send(Peer, <<"bound">>),
    ?assertEqual({tcp, Socket, <<"bound">>}, next_message()),
    [
        begin
            unlink(Poller),
            exit(Poller, kill)
        end
     || Poller <- Pollers
    ],
    ok = gen_tcp:send(Peer, <<"still">>),
    ?assertEqual({tcp, Socket, <<"still">>}, next_message()).

served_by_unbound(Socket, Peer) ->
    Pollers = [weir_poller:spawn_link(Number, anywhere) || Number <- weir_pollsets:all()],
    wait_until(fun() ->
        lists:all(fun(Poller) -> process_info(Poller, status) =:= {status, waiting} end, Pollers)
    end),
    [
        begin
            ok = gen_tcp:send(Peer, <<N>>),
            ?assertEqual({tcp, Socket, <<N>>}, next_message())
        end
     || N <- lists:seq(1, 100)
    ],
    [?assert(is_process_alive(Poller)) || Poller <- Pollers],
    Pollers.
