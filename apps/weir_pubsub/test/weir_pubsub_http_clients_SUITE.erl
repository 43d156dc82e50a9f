%% Channels over HTTP: clients that are slow or gone, many publishers, and shards that are busy or killed.
-module(weir_pubsub_http_clients_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub_shard.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [publish/3, wait_for_subscribers/3, request/4, begin_request/4, answer/1]).
-import(weir_pubsub_http_test, [field/2, resume/1, wait_for_number/2, close_frame/1, read_until/2]).
-import(weir_pubsub_test, [suspend/1, until_asked/2]).

-include("pubsub_http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, ours}].

groups() ->
    [
        {ours, [], [
            a_client_that_goes_away,
            a_flood_of_messages,
            a_flood_of_channels,
            a_flood_of_subscriptions,
            a_shard_is_killed,
            asked_of_a_shard_that_is_killed,
            a_shard_at_work_answers_later,
            a_poll_that_need_not_wait,
            clients_that_do_not_read,
            clients_that_read_late,
            slow_clients_have_all_when_publishing_stops,
            publishers_at_once,
            shards_killed_while_reactors_publish
        ]}
    ].

a_client_that_goes_away(_Config) ->
    Poll = begin_request(port(), <<"GET">>, "/sub/a", []),
    Stream = begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    ok = wait_for_subscribers(port(), "a", 2),
    ok = gen_tcp:close(Poll),
    ok = gen_tcp:close(Stream),
    ok = wait_for_subscribers(port(), "a", 0).

%% Messages that a client sends faster than they can be published do not pile up without a bound.
a_flood_of_messages(_Config) ->
    set(#{publishers => any}),
    {_, Socket} = weir_pubsub_nchan:websocket(port(), "/pubsub/a", none),
    ok = wait_for_subscribers(port(), "a", 1),
    %% Messages that were published no longer count.
    Send = fun(Count) -> [_ = weir_pubsub_nchan:send_frame(Socket, 1, <<"x">>) || _ <- lists:seq(1, Count)] end,
    [
        begin
            _ = Send(1000),
            ok = wait_for_number(<<"a">>, 1000 * Batch)
        end
     || Batch <- lists:seq(1, 11)
    ],
    ok = suspend(shard()),
    _ = Send(10001),
    ?assertMatch(<<1008:16, _/binary>>, close_frame(Socket)),
    ok = sys:resume(shard(), weir_test_wait:patience()).

%% Channels that clients invent: as many as the limit allows, and existing ones continue.
a_flood_of_channels(_Config) ->
    ok = weir_pubsub:configure(#{total => #{channels => 100}}),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    Request = fun(Number, Last) ->
        ["POST /pub/", integer_to_list(Number), " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n", Last, "\r\nx"]
    end,
    ok = gen_tcp:send(Socket, [
        [Request(Number, []) || Number <- lists:seq(1, 999)], Request(1000, "Connection: close\r\n")
    ]),
    Bytes = weir_pubsub_http_test:read_until_end(Socket, <<>>),
    Answers = fun(Status) -> length(binary:matches(Bytes, <<"HTTP/1.1 ", Status/binary>>)) end,
    ?assertEqual({100, 900}, {Answers(<<"202 ">>), Answers(<<"403 ">>)}),
    ?assertMatch({ok, #{channels := 100}}, weir_pubsub:usage(total)),
    ?assertMatch({202, _, _}, publish(port(), "1", <<"y">>)).

%% Subscriptions beyond the limit are refused, and nothing is left of clients that leave.
a_flood_of_subscriptions(_Config) ->
    ok = weir_pubsub:configure(#{total => #{subscribers => 50}}),
    #{refused := Before} = weir_pubsub:counters(),
    Stream = fun(Number) ->
        begin_request(port(), <<"GET">>, ["/sub/", integer_to_list(Number rem 20)], [{"Accept", "text/event-stream"}])
    end,
    Streams = [Stream(Number) || Number <- lists:seq(1, 200)],
    Subscribers = fun() ->
        {ok, #{subscribers := Count}} = weir_pubsub:usage(total),
        Count
    end,
    ?waitEqual(Before + 150, maps:get(refused, weir_pubsub:counters())),
    ?assertEqual(50, Subscribers()),
    [ok = gen_tcp:close(Socket) || Socket <- Streams],
    ?waitEqual(0, Subscribers()),
    Again = Stream(1),
    ?waitEqual(1, Subscribers()),
    {201, _, _} = publish(port(), "1", <<"x">>),
    _ = read_until(Again, <<"data: x">>),
    ok = gen_tcp:close(Again).

a_shard_is_killed(_Config) ->
    Poll = begin_request(port(), <<"GET">>, "/sub/a", []),
    Stream = begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    ok = wait_for_subscribers(port(), "a", 2),
    ok = weir_pubsub_test:kill_shard_of(<<"a">>),
    {200, _, Text} = answer(Stream),
    ?assertMatch({_, _}, binary:match(Text, <<"503 Service Unavailable">>)),
    %% A poll is taken over, and gets the gap.
    ok = wait_for_subscribers(port(), "a", 1),
    _ = publish(port(), "a", <<"x">>),
    {200, _, <<"x">>} = Answer = answer(Poll),
    ?assertEqual(<<"unknown">>, field(<<"weir-missed">>, Answer)).

%% Requests in its mailbox are lost with it. Clients are told so, and none waits forever.
asked_of_a_shard_that_is_killed(_Config) ->
    set(#{publishers => any}),
    {_, Publisher} = weir_pubsub_nchan:websocket(port(), "/pubsub/a", none),
    ok = wait_for_subscribers(port(), "a", 1),
    Shard = whereis(shard()),
    ok = suspend(Shard),
    Ask = fun(Method, Path, Fields) -> begin_request(port(), Method, Path, Fields) end,
    Held = [Ask(<<"GET">>, "/sub/a", []), Ask(<<"GET">>, "/sub/a,b", []), Ask(<<"DELETE">>, "/pub/a", [])],
    Streams = [Ask(<<"GET">>, Path, [{"Accept", "text/event-stream"}]) || Path <- ["/sub/a", "/sub/b,a"]],
    Parts = Ask(<<"GET">>, "/sub/a", [{"Accept", "multipart/mixed"}]),
    {_, Subscriber} = weir_pubsub_nchan:websocket(port(), "/sub/a", none),
    ok = weir_pubsub_nchan:send_frame(Publisher, 1, <<"x">>),
    ok = until_asked([<<"a">>], length(Held) + length(Streams) + 3),
    true = exit(Shard, kill),
    [?assertMatch({503, _, _}, answer(Request)) || Request <- Held],
    [
        begin
            {200, _, Text} = answer(Stream),
            ?assertMatch({_, _}, binary:match(Text, <<"503 Service Unavailable">>))
        end
     || Stream <- Streams
    ],
    ?assertMatch({200, _, _}, answer(Parts)),
    [?assertMatch(<<1013:16, _/binary>>, close_frame(Socket)) || Socket <- [Publisher, Subscriber]],
    %% Nothing is left of them.
    ?waitMatch({ok, #{subscribers := 0}}, weir_pubsub:usage(total)),
    %% Subscriptions to several channels of which one has ended: the others are ended.
    ?waitEqual([], ets:tab2list(requests())),
    {202, _, _} = publish(port(), "a", <<"y">>),
    {200, _, <<"y">>} = request(port(), <<"GET">>, "/sub/a", []).

shard() ->
    {ok, #shard{index = Index}} = weir_pubsub_shards:of_channel(<<"a">>),
    weir_pubsub_shards:name(Index).

requests() ->
    {ok, #shard{requests = Requests}} = weir_pubsub_shards:of_channel(<<"a">>),
    Requests.

%% The reactor does not wait for the shard: other requests are answered.
a_shard_at_work_answers_later(_Config) ->
    {ok, #shard{claim = Claim}} = weir_pubsub_shards:of_channel(<<"a">>),
    ok = weir_pubsub_shard_lock:take(Claim),
    Held = begin_request(port(), {<<"POST">>, <<"x">>}, "/pub/a", []),
    {404, _, _} = request(port(), <<"GET">>, "/pub/nothing", []),
    {error, timeout} = gen_tcp:recv(Held, 0, 50),
    ok = weir_pubsub_shard_lock:release(Claim),
    {202, _, _} = answer(Held),
    {ok, #{messages := [{message, _, <<"x">>, _}]}} = weir_pubsub:history(<<"a">>, #{}).

%% Messages that are kept are read without the shard; later ones come from it.
a_poll_that_need_not_wait(_Config) ->
    _ = publish(port(), "a", <<"x">>),
    %% The shard handles the news of a new channel, and is busy for a moment.
    ok = weir_pubsub_test:idle(<<"a">>),
    #{subscribed := Before} = weir_pubsub:counters(),
    {200, _, <<"x">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    ?assertMatch(#{subscribed := Before}, weir_pubsub:counters()),
    {ok, #{requested := Ago}} = weir_pubsub:info(<<"a">>),
    ?assert(is_integer(Ago)),
    Waits = begin_request(port(), <<"GET">>, "/sub/a", resume(First)),
    ok = wait_for_subscribers(port(), "a", 1),
    _ = publish(port(), "a", <<"y">>),
    {200, _, <<"y">>} = answer(Waits),
    %% If the channel has `events', the poll has to subscribe.
    ok = weir_pubsub:configure(#{channels => [{<<"a">>, #{events => <<"events">>}}]}),
    {ok, _} = weir_pubsub:subscribe(<<"events">>, #{}),
    {200, _, <<"x">>} = request(port(), <<"GET">>, "/sub/a", []),
    receive
        {weir_pubsub, <<"events">>, {message, _, <<"subscriber_enqueue a">>, _}} -> ok
    after weir_test_wait:patience() -> error(not_told)
    end.

%% By each transport that reports gaps: messages are in order, every gap is announced, and queues are bounded.
clients_that_read_late(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_queue => 4, max_messages => 2, max_bytes => 10000000}}]}),
    start_with_small_buffers(),
    Data = binary:copy(<<"x">>, 50000),
    Count = 100,
    Streams = [
        {
            begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
            fun weir_pubsub_http_test:body/1,
            "data: ([0-9]+)([\n:])"
        },
        {
            begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "multipart/mixed"}]),
            fun weir_pubsub_http_test:body/1,
            "\r\n\r\n([0-9]+)(\r|:)"
        },
        {
            element(2, weir_pubsub_nchan:websocket(port(), "/sub/a", "ws+meta.nchan")),
            fun(Bytes) -> Bytes end,
            "\n\n([0-9]+)(:|[^0-9x]|$)"
        }
    ],
    ok = wait_for_subscribers(port(), "a", length(Streams)),
    #{lagged := Before, slow := Slow} = weir_pubsub:counters(),
    [
        {201, _, _} = publish(port(), "a", <<(integer_to_binary(Number))/binary, $:, Data/binary>>)
     || Number <- lists:seq(1, Count)
    ],
    %% Clients that read now get the rest, and what is published after that.
    [
        begin
            Bytes = read_until(Socket, <<(integer_to_binary(Count))/binary, $:, Data/binary>>),
            {match, Found} = re:run(Text(Bytes), Pattern, [global, {capture, all_but_first, binary}]),
            ?assertEqual(Count, lists:foldl(fun weir_pubsub_http_test:seen/2, 0, Found)),
            ?assert(length(Found) < Count)
        end
     || {Socket, Text, Pattern} <- Streams
    ],
    #{lagged := After, slow := Same} = weir_pubsub:counters(),
    ?assertEqual(Slow, Same),
    ?assert(After >= Before + length(Streams)),
    {201, _, _} = publish(port(), "a", <<"end">>),
    [
        begin
            _ = read_until(Socket, <<"end">>),
            ok = gen_tcp:close(Socket)
        end
     || {Socket, _, _} <- Streams
    ].

%% They are closed and counted, and the others get every message.
clients_that_do_not_read(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_queue => 4, max_messages => 2, slow => disconnect}}]}),
    start_with_small_buffers(),
    Ask = fun(Count) ->
        [begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]) || _ <- lists:seq(1, Count)]
    end,
    Deaf = Ask(3),
    Quick = Ask(3),
    {_, WebSocket} = weir_pubsub_nchan:websocket(port(), "/sub/a", none),
    ok = wait_for_subscribers(port(), "a", 7),
    #{slow := Before} = weir_pubsub:counters(),
    Data = binary:copy(<<"x">>, 100000),
    Flood = fun Flood(Number) ->
        Message = <<(integer_to_binary(Number))/binary, $:, Data/binary>>,
        {201, _, _} = publish(port(), "a", Message),
        [_ = read_until(Socket, <<"data: ", Message/binary>>) || Socket <- Quick],
        {ok, #{subscribers := Left}} = weir_pubsub:info(<<"a">>),
        Left > 3 andalso Number < 1000 andalso Flood(Number + 1)
    end,
    false = Flood(1),
    ?assertMatch({ok, #{subscribers := 3}}, weir_pubsub:info(<<"a">>)),
    ?assertMatch(#{slow := Slow} when Slow =:= Before + 4, weir_pubsub:counters()),
    [ok = gen_tcp:close(Socket) || Socket <- [WebSocket | Deaf ++ Quick]].

%% Clients on slow links: the kernel buffers little for them, and each reads at its own pace. They fall behind and
%% catch up again and again. When nothing more is published, each ends with the last message, and has got a gap for
%% every message that it has not got.
slow_clients_have_all_when_publishing_stops(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1000, max_queue => 8}}]}),
    lists:foreach(fun all_when_publishing_stops/1, [4096, 16384]).

-define(SLOW_CLIENTS, 8).
-define(SLOW_MESSAGES, 800).

all_when_publishing_stops(Sndbuf) ->
    ok = weir_http:stop_listener(?MODULE),
    %% They must come back when all is written, not when the queue is down at the low watermark.
    start(#{publishers => any}, #{socket_opts => [{sndbuf, Sndbuf}, {high_watermark, 4096}, {low_watermark, 4096}]}),
    #{lagged := Before} = weir_pubsub:counters(),
    Kinds = [
        {
            fun() -> begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]) end,
            <<":last\n\n\r\n">>,
            fun weir_pubsub_http_test:body/1,
            "data: ([0-9]+)([\n:])"
        },
        {
            fun() -> element(2, weir_pubsub_nchan:websocket(port(), "/sub/a", "ws+meta.nchan")) end,
            <<":last">>,
            fun(Bytes) -> Bytes end,
            "\n\n([0-9]+)(:|[^0-9x]|$)"
        }
    ],
    Clients = [spawn_monitor(fun() -> slow_client(Kind) end) || _ <- lists:seq(1, ?SLOW_CLIENTS), Kind <- Kinds],
    ok = wait_for_subscribers(port(), "a", length(Clients)),
    Publish = fun(Number, Data) -> {ok, _} = weir_pubsub:publish(<<"a">>, [integer_to_binary(Number), $:, Data]) end,
    lists:foreach(
        fun(Number) ->
            Publish(Number, binary:copy(<<"x">>, 100 + rand:uniform(100))),
            rand:uniform(128) =:= 1 andalso timer:sleep(rand:uniform(20))
        end,
        lists:seq(1, ?SLOW_MESSAGES - 1)
    ),
    Publish(?SLOW_MESSAGES, <<"last">>),
    Ends = [receive {'DOWN', Monitor, process, Pid, Reason} -> Reason end || {Pid, Monitor} <- Clients],
    #{lagged := After} = weir_pubsub:counters(),
    ct:log("send buffers of ~b bytes: clients have come back ~b times", [Sndbuf, After - Before]),
    ?assertEqual([], [Reason || Reason <- Ends, Reason =/= normal]),
    ?assert(After > Before),
    {ok, _} = weir_pubsub:delete(<<"a">>).

slow_client({Subscribe, End, Text, Pattern}) ->
    Socket = Subscribe(),
    ok = inet:setopts(Socket, [{recbuf, 4096}, {buffer, 1500}]),
    Bytes = read_slowly(Socket, rand:uniform(8), End, <<>>),
    {match, Found} = re:run(Text(Bytes), Pattern, [global, {capture, all_but_first, binary}]),
    ?SLOW_MESSAGES = lists:foldl(fun weir_pubsub_http_test:seen/2, 0, Found),
    ok = gen_tcp:close(Socket).

%% Random pauses, no longer than the pace of a client.
read_slowly(Socket, Pace, End, Bytes) ->
    timer:sleep(rand:uniform(Pace) - 1),
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, More} ->
            Tail = binary:part(Bytes, byte_size(Bytes), -min(byte_size(Bytes), byte_size(End))),
            case binary:match(<<Tail/binary, More/binary>>, End) of
                nomatch -> read_slowly(Socket, Pace, End, <<Bytes/binary, More/binary>>);
                _ -> <<Bytes/binary, More/binary>>
            end;
        {error, Reason} ->
            exit({Reason, behind, binary:part(Bytes, byte_size(Bytes), -min(byte_size(Bytes), 100))})
    end.

%% Reactors and processes publish to one channel: all see one order, and nothing is lost.
publishers_at_once(_Config) ->
    {ok, {Epoch, 0}} = weir_pubsub:subscribe(<<"a">>, #{}),
    Each = 100,
    Publish = [
        fun(_) -> {201, _, _} = publish(port(), "a", <<"x">>) end,
        fun(_) -> {201, _, _} = publish(port(), "a", <<"x">>) end,
        fun(_) -> {ok, _} = weir_pubsub:publish(<<"a">>, <<"x">>) end
    ],
    Publishers = [spawn_monitor(fun() -> lists:foreach(One, lists:seq(1, Each)) end) || One <- Publish],
    [normal = weir_pubsub_test:ended(Publisher) || Publisher <- Publishers],
    Got = [
        receive
            {weir_pubsub, <<"a">>, {message, {Epoch, N}, <<"x">>, _}} -> N
        after weir_test_wait:patience() -> error(nothing_comes)
        end
     || _ <- lists:seq(1, 3 * Each)
    ],
    ?assertEqual(lists:seq(1, 3 * Each), Got).

%% The claim is free again, whichever process had it, and every publisher is answered.
shards_killed_while_reactors_publish(_Config) ->
    Channels = lists:zip(lists:seq(1, 4), ["a", "b", "c", "d"]),
    Stop = atomics:new(1, []),
    Answered = counters:new(length(Channels), []),
    Publish = fun Publish({Number, Channel}) ->
        {Status, _, _} = publish(port(), Channel, <<"x">>),
        true = lists:member(Status, [202, 500, 503]),
        ok = counters:add(Answered, Number, 1),
        atomics:get(Stop, 1) =:= 0 andalso Publish({Number, Channel})
    end,
    Publishers = [spawn_monitor(fun() -> Publish(Channel) end) || Channel <- Channels],
    Shards = lists:usort([weir_pubsub_test:shard_of(list_to_binary(Channel)) || {_, Channel} <- Channels]),
    [
        begin
            %% The second answer is to a request that was made after the shard before had ended.
            [
                ?waitMatch(true, counters:get(Answered, Number) >= Before + 2)
             || {Number, Before} <- answered_by_now(Answered, Channels)
            ],
            true = exit(
                weir_test_wait:wait_match(
                    fun() -> whereis(lists:nth(1 + Round rem length(Shards), Shards)) end, fun is_pid/1, #{}
                ),
                kill
            )
        end
     || Round <- lists:seq(1, 8)
    ],
    ok = atomics:put(Stop, 1, 1),
    [normal = weir_pubsub_test:ended(Publisher) || Publisher <- Publishers],
    [?waitEqual(202, element(1, publish(port(), Channel, <<"x">>))) || {_, Channel} <- Channels].

answered_by_now(Answered, Channels) -> [{Number, counters:get(Answered, Number)} || {Number, _} <- Channels].
