%% Several channels on one URL: as with Nchan, and resumed in each.
-module(weir_pubsub_multi_reader_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [
    by_configuration/3, publish/3, wait_for_subscribers/3, request/4, request/5, begin_request/4, answer/1, normal/1
]).
-import(weir_pubsub_http_test, [read_until/3]).

-include("pubsub_http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, nchan}, {group, ours}].

groups() ->
    [
        {nchan, [], [
            publishing,
            telling_and_deleting,
            too_many,
            held,
            ids_that_are_wrong,
            event_stream,
            multipart,
            chunked,
            websocket,
            twice_the_same_channel,
            one_is_deleted,
            interval_poll
        ]},
        {ours, [], [
            who_may,
            resumed_by_streams,
            resumed_by_parts,
            resumed_by_websockets,
            resumed_by_polls,
            resumed_by_new_polls,
            resumed_by_what_a_client_puts_together,
            a_gap_in_one,
            a_client_that_does_not_read,
            a_client_that_does_not_read_is_disconnected,
            a_client_that_goes_away,
            a_shard_is_killed,
            gone_as_a_shard_is_killed,
            some_cannot_be_published
        ]}
    ].

same(Config, Script) -> weir_pubsub_nchan:same(Config, port(), Script).

%% Messages one after the other, in several channels, to one client.
spoken(Port, Fields, Ends) ->
    Socket = begin_request(Port, <<"GET">>, "/sub/a,b,c", Fields),
    [ok = wait_for_subscribers(Port, Channel, 1) || Channel <- ["a", "b", "c"]],
    Bytes = lists:foldl(
        fun({Channel, Data}, Before) ->
            {201, _, _} = publish(Port, Channel, Data),
            read_until(Socket, iolist_to_binary([Data, Ends]), Before)
        end,
        <<>>,
        [{"b", <<"B1">>}, {"a", <<"A1">>}, {"b", <<"B2">>}, {"c", <<"C1">>}]
    ),
    ok = gen_tcp:close(Socket),
    weir_pubsub_nchan:parsed(Bytes).

%% As Nchan --------------------------------------------------------------------------------

publishing(Config) ->
    same(Config, fun(Port) ->
        [
            {first, publish(Port, "a,b", <<"x">>)},
            {one, publish(Port, "b", <<"y">>)},
            {json, request(Port, <<"POST">>, "/pub/a,b,c", [{"Accept", "text/json"}], <<"z">>)},
            {what_is_there, request(Port, <<"GET">>, "/sub/c", [])}
        ]
    end).

telling_and_deleting(Config) ->
    same(Config, fun(Port) ->
        _ = publish(Port, "a,b", <<"x">>),
        Told = request(Port, <<"GET">>, "/pub/a,b", []),
        {200, _, _} = request(Port, <<"DELETE">>, "/pub/a,b", []),
        [{told, Told}]
    end),
    nothing_comes(Config).

%% Neither channel has a message for a client of both.
nothing_comes(Config) ->
    set(#{publishers => any, poll_timeout => 1000}),
    Path = by_configuration(Config, "/brief/a,b", "/sub/a,b"),
    same(Config, fun(Port) -> [{timeout, request(Port, <<"GET">>, Path(Port), [])}] end).

too_many(Config) ->
    Names = fun(Count) -> lists:join($,, [integer_to_list(N) || N <- lists:seq(1, Count)]) end,
    same(Config, fun(Port) ->
        [{Count, publish(Port, Names(Count), <<"x">>)} || Count <- [255, 256]] ++
            [{subscribe, request(Port, <<"GET">>, ["/sub/", Names(256)], [])}]
    end).

held(Config) ->
    same(Config, fun(Port) ->
        Waits = begin_request(Port, <<"GET">>, "/sub/a,b", []),
        [ok = wait_for_subscribers(Port, Channel, 1) || Channel <- ["a", "b"]],
        _ = publish(Port, "b", <<"B1">>),
        First = answer(Waits),
        {_, Fields, _} = First,
        Resume = [
            {"If-Modified-Since", proplists:get_value(<<"last-modified">>, Fields)},
            {"If-None-Match", proplists:get_value(<<"etag">>, Fields)}
        ],
        Again = begin_request(Port, <<"GET">>, "/sub/a,b", Resume),
        [ok = wait_for_subscribers(Port, Channel, 1) || Channel <- ["a", "b"]],
        _ = publish(Port, "a", <<"A1">>),
        [{first, First}, {second, answer(Again)}]
    end).

ids_that_are_wrong(Config) ->
    Date = {"If-Modified-Since", "Sat, 21 Nov 2026 23:13:24 GMT"},
    same(Config, fun(Port) ->
        _ = publish(Port, "a", <<"x">>),
        [
            {Fields, without_tag(request(Port, <<"GET">>, "/sub/a,b", Fields))}
         || Fields <- [
                [Date],
                [{"If-None-Match", "foo"}],
                [Date, {"If-None-Match", "foo"}],
                [Date, {"If-None-Match", "[0],-,-"}]
            ]
        ]
    end).

%% Nchan repeats an invalid one.
without_tag({400, Fields, Body}) -> {400, lists:keydelete(<<"vary">>, 1, lists:keydelete(<<"etag">>, 1, Fields)), Body};
without_tag(Answer) -> Answer.

event_stream(Config) ->
    same(Config, fun(Port) -> [{stream, spoken(Port, [{"Accept", "text/event-stream"}], "\n\n")}] end).

multipart(Config) ->
    same(Config, fun(Port) -> [{parts, spoken(Port, [{"Accept", "multipart/mixed"}], "\r\n--")}] end).

chunked(Config) ->
    same(Config, fun(Port) -> [{chunks, spoken(Port, [{"TE", "chunked"}], "\r\n")}] end).

websocket(Config) ->
    #{port := Nchan} = proplists:get_value(nchan, Config),
    Script = fun(Port) ->
        {Answer, Socket} = weir_pubsub_nchan:websocket(Port, "/pubsub/a,b", "ws+meta.nchan"),
        [ok = wait_for_subscribers(Port, Channel, 1) || Channel <- ["a", "b"]],
        Frames = [
            begin
                {201, _, _} = request(Port, <<"POST">>, ["/pub/", Channel], [{"Content-Type", "text/x-foo"}], Data),
                weir_pubsub_nchan:frames(Socket, 1)
            end
         || {Channel, Data} <- [{"b", <<"B1">>}, {"a", <<"A1">>}, {"b", <<"B2">>}]
        ],
        %% A message of the client goes to both channels.
        ok = weir_pubsub_nchan:send_frame(Socket, 1, <<"both">>),
        [Answer, Frames, lists:sort(weir_pubsub_nchan:frames(Socket, 2))]
    end,
    ?assertEqual(Script(Nchan), Script(port())).

twice_the_same_channel(Config) ->
    same(Config, fun(Port) ->
        _ = publish(Port, "a", <<"x">>),
        Socket = begin_request(Port, <<"GET">>, "/sub/a,a", [{"Accept", "text/event-stream"}]),
        Bytes = read_until(Socket, <<"data: x\n\n">>, <<>>),
        Both =
            case binary:matches(Bytes, <<"data: x\n\n">>) of
                [_, _] -> Bytes;
                [{Start, Length}] ->
                    <<First:(Start + Length)/binary, Rest/binary>> = Bytes,
                    <<First/binary, (read_until(Socket, <<"data: x\n\n">>, Rest))/binary>>
            end,
        ok = gen_tcp:close(Socket),
        [{both, weir_pubsub_nchan:parsed(Both)}]
    end).

one_is_deleted(Config) ->
    same(Config, fun(Port) ->
        Waits = begin_request(Port, <<"GET">>, "/pubsub/a,b", []),
        [ok = wait_for_subscribers(Port, Channel, 1) || Channel <- ["a", "b"]],
        {200, _, _} = request(Port, <<"DELETE">>, "/pub/b", []),
        Answer = answer(Waits),
        ok = wait_for_subscribers(Port, "a", 0),
        [{gone, Answer}]
    end).

interval_poll(Config) ->
    set(#{publishers => any, plain => interval_poll}),
    #{port := Nchan} = proplists:get_value(nchan, Config),
    Paths = [{Nchan, "/poll/"}, {port(), "/sub/"}],
    [Theirs, Ours] = [
        begin
            Nothing = request(Port, <<"GET">>, [Path, "a,b"], []),
            _ = publish(Port, "b", <<"x">>),
            [normal(Nothing), normal(request(Port, <<"GET">>, [Path, "a,b"], []))]
        end
     || {Port, Path} <- Paths
    ],
    ?assertEqual(Theirs, Ours).

%% Ours ------------------------------------------------------------------------------------

who_may(_Config) ->
    May = fun(_Request, Channel) -> Channel =/= <<"secret">> end,
    set(#{publishers => May, subscribers => May}),
    {202, _, _} = publish(port(), "a,b", <<"x">>),
    [{403, _, _} = publish(port(), Names, <<"x">>) || Names <- ["a,secret", "secret,a", "a,,b", ","]],
    [{403, _, _} = request(port(), <<"GET">>, ["/sub/", Names], []) || Names <- ["a,secret", "secret,a", "a,,b", ","]],
    {ok, #{messages := 1}} = weir_pubsub:info(<<"a">>),
    {error, no_channel} = weir_pubsub:info(<<"secret">>).

%% Clients that reconnect again and again get every message of every channel once, in order, and no gap.
resumed_by_streams(_Config) ->
    resumed(fun(Id) ->
        read_events([{"Accept", "text/event-stream"}, {"Last-Event-ID", Id}], "id: ([^\n]+)\ndata: ([^\n]+)\n\n")
    end).

resumed_by_parts(_Config) ->
    resumed(fun(Id) ->
        read_events(
            [{"Accept", "multipart/mixed"}, {"If-None-Match", Id}],
            "Etag: ([^\r]+)\r\nContent-Type: [^\r]+\r\n\r\n([^\r]+)\r\n--"
        )
    end).

read_events(Fields, Pattern) ->
    Socket = begin_request(port(), <<"GET">>, "/sub/a,b,c", Fields),
    try
        read_events(Socket, Pattern, <<>>)
    after
        gen_tcp:close(Socket)
    end.

read_events(Socket, Pattern, Bytes) ->
    case re:run(Bytes, Pattern, [global, {capture, all_but_first, binary}]) of
        {match, Found} ->
            {Found, weir_pubsub_nchan:parsed(Bytes)};
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            read_events(Socket, Pattern, <<Bytes/binary, More/binary>>)
    end.

resumed_by_websockets(_Config) ->
    resumed(fun(Id) ->
        {_, Socket} = weir_pubsub_nchan:websocket(port(), ["/sub/a,b,c?last_event_id=", Id], "ws+meta.nchan"),
        {ok, <<16#81, Length>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
        {ok, Data} = gen_tcp:recv(Socket, Length, weir_test_wait:patience()),
        ok = gen_tcp:close(Socket),
        {match, Found} = re:run(Data, "id: ([^\n]+)\ncontent-type: [^\n]+\n\n(.*)", [{capture, all_but_first, binary}]),
        {[Found], {200, [], <<>>}}
    end).

resumed_by_polls(_Config) -> resumed(fun(Id) -> poll("/sub/a,b,c", Id) end).

poll(Path, Id) ->
    {200, Fields, Data} = Answer = request(port(), <<"GET">>, Path, [{"If-None-Match", Id}]),
    {[[proplists:get_value(<<"etag">>, Fields), Data]], Answer}.

%% The client of Nchan puts an id together from a date and a tag, and sends it back: in a field, or in a query.
resumed_by_what_a_client_puts_together(_Config) ->
    _ = [publish(port(), Channel, Data) || {Channel, Data} <- [{"a", <<"A1">>}, {"b", <<"B1">>}]],
    {200, Fields, First} = request(port(), <<"GET">>, "/sub/a,b", []),
    Seconds = weir_http_nif:parse_date(proplists:get_value(<<"last-modified">>, Fields)),
    Id = <<(integer_to_binary(Seconds))/binary, ":", (proplists:get_value(<<"etag">>, Fields))/binary>>,
    [Other] = [<<"A1">>, <<"B1">>] -- [First],
    {200, _, Other} = request(port(), <<"GET">>, "/sub/a,b", [{"Etag", Id}]),
    {200, _, Other} = request(port(), <<"GET">>, ["/sub/a,b?last_event_id=", uri_string:quote(Id)], []).

%% A client that begins with `new' does not miss the messages between two polls.
resumed_by_new_polls(_Config) ->
    _ = [publish(port(), Channel, <<"old">>) || Channel <- ["a", "b"]],
    Path = "/sub/a,b?from=new",
    First = begin_request(port(), <<"GET">>, Path, []),
    [ok = wait_for_subscribers(port(), Channel, 1) || Channel <- ["a", "b"]],
    _ = publish(port(), "a", <<"A">>),
    {200, Fields, <<"A">>} = answer(First),
    _ = publish(port(), "b", <<"B">>),
    {[[_, <<"B">>]], _} = poll(Path, proplists:get_value(<<"etag">>, Fields)).

resumed(Read) ->
    Count = 40,
    Channels = ["a", "b", "c"],
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => Count}}]}),
    Type = [{"Content-Type", "text/plain"}],
    Said = [
        {lists:nth(rand:uniform(3), Channels), integer_to_binary(Number)}
     || Number <- lists:seq(1, Count)
    ],
    Publisher = spawn_monitor(fun() ->
        lists:foreach(
            fun({Channel, Data}) ->
                {_, _, _} = request(port(), <<"POST">>, ["/pub/", Channel], Type, <<
                    (list_to_binary(Channel))/binary, Data/binary
                >>)
            end,
            Said
        )
    end),
    Got = come_back(Read, <<>>, Count, []),
    ?assertEqual(normal, weir_pubsub_test:ended(Publisher)),
    [
        ?assertEqual([<<(list_to_binary(C))/binary, D/binary>> || {C, D} <- Said, C =:= Channel], [
            G
         || <<First, _/binary>> = G <- Got, [First] =:= Channel
        ])
     || Channel <- Channels
    ].

%% One of the messages that came is used, so the next request begins after it.
come_back(_Read, _Id, 0, Got) ->
    lists:reverse(Got);
come_back(Read, Id, Left, Got) ->
    {[[Next, Data] | _], {200, Fields, Body}} = Read(Id),
    ?assertEqual(undefined, proplists:get_value(<<"weir-missed">>, Fields)),
    ?assertEqual(nomatch, binary:match(Body, <<"event: gap">>)),
    come_back(Read, Next, Left - 1, [Data | Got]).

a_gap_in_one(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := {Epoch, 1}}}, _, _] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    {ok, #{id := Other}} = weir_pubsub:publish(<<"b">>, "B"),
    Id = weir_pubsub_id:to_text({several, 2, [{Epoch, 1}, Other]}),
    {200, Fields, <<"3">>} = request(port(), <<"GET">>, "/sub/a,b", [{"If-None-Match", Id}]),
    ?assertEqual(<<"1">>, proplists:get_value(<<"weir-missed">>, Fields)),
    ?assertEqual(weir_pubsub_id:to_tag({several, 1, [{Epoch, 3}, Other]}), proplists:get_value(<<"etag">>, Fields)),
    Socket = begin_request(port(), <<"GET">>, "/sub/a,b", [{"Accept", "text/event-stream"}, {"Last-Event-ID", Id}]),
    Bytes = read_until(Socket, <<"data: 3\n\n">>, <<>>),
    Gap = ["event: gap\nid: ", weir_pubsub_id:to_text({several, 1, [{Epoch, 2}, Other]}), "\ndata: 1\n\n"],
    ?assertMatch({_, _}, binary:match(Bytes, iolist_to_binary(Gap))).

%% Its queue is bounded; it gets what is kept, and a gap for the rest.
a_client_that_does_not_read(_Config) ->
    start_with_small_buffers(),
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 4, max_bytes => 10000000}}]}),
    Socket = begin_request(port(), <<"GET">>, "/sub/a,b", [{"Accept", "text/event-stream"}]),
    [ok = wait_for_subscribers(port(), Channel, 1) || Channel <- ["a", "b"]],
    #{gaps := Before} = weir_pubsub:counters(),
    Data = binary:copy(<<"x">>, 50000),
    Count = 100,
    _ = [publish(port(), "a", <<(integer_to_binary(N))/binary, $:, Data/binary>>) || N <- lists:seq(1, Count)],
    Body = element(
        3,
        weir_pubsub_nchan:parsed(
            read_until(Socket, <<"data: ", (integer_to_binary(Count))/binary, ":", Data/binary, "\n\n">>, <<>>)
        )
    ),
    {match, Found} = re:run(Body, "data: ([0-9]+)([\n:])", [global, {capture, all_but_first, binary}]),
    Missed = lists:foldl(
        fun
            ([Number, <<":">>], Last) ->
                ?assertEqual(Last + 1, binary_to_integer(Number)),
                Last + 1;
            ([Gone, <<"\n">>], Last) ->
                Last + binary_to_integer(Gone)
        end,
        0,
        Found
    ),
    ?assertEqual(Count, Missed),
    #{gaps := After} = weir_pubsub:counters(),
    ?assert(After > Before).

a_client_that_does_not_read_is_disconnected(_Config) ->
    start_with_small_buffers(),
    ok = weir_pubsub:configure(#{
        channels => [{<<"*">>, #{max_messages => 4, max_bytes => 10000000, slow => disconnect}}]
    }),
    Socket = begin_request(port(), <<"GET">>, "/sub/a,b", [{"Accept", "text/event-stream"}]),
    [ok = wait_for_subscribers(port(), Channel, 1) || Channel <- ["a", "b"]],
    #{slow := Before} = weir_pubsub:counters(),
    Data = binary:copy(<<"x">>, 50000),
    Flood = fun Flood(Left) ->
        {ok, #{subscribers := Subscribers}} = weir_pubsub:info(<<"a">>),
        Left > 0 andalso Subscribers > 0 andalso
            begin
                _ = publish(port(), "a", Data),
                Flood(Left - 1)
            end
    end,
    false = Flood(1000),
    ok = wait_for_subscribers(port(), "b", 0),
    ?waitEqual(Before + 1, maps:get(slow, weir_pubsub:counters())),
    ok = gen_tcp:close(Socket).

a_client_that_goes_away(_Config) ->
    Poll = begin_request(port(), <<"GET">>, "/sub/a,b", []),
    Stream = begin_request(port(), <<"GET">>, "/sub/b,a", [{"Accept", "text/event-stream"}]),
    {_, WebSocket} = weir_pubsub_nchan:websocket(port(), "/sub/a,b", none),
    [ok = wait_for_subscribers(port(), Channel, 3) || Channel <- ["a", "b"]],
    [ok = gen_tcp:close(Socket) || Socket <- [Poll, Stream, WebSocket]],
    [ok = wait_for_subscribers(port(), Channel, 0) || Channel <- ["a", "b"]].

%% It is subscribed again, and gets a gap.
a_shard_is_killed(_Config) ->
    Socket = begin_request(port(), <<"GET">>, "/sub/a,b", [{"Accept", "text/event-stream"}]),
    [ok = wait_for_subscribers(port(), Channel, 1) || Channel <- ["a", "b"]],
    Shards = lists:usort([weir_pubsub_test:shard_of(Channel) || Channel <- [<<"a">>, <<"b">>]]),
    [true = exit(whereis(Shard), kill) || Shard <- Shards],
    [ok = wait_for_subscribers(port(), Channel, 1) || Channel <- ["a", "b"]],
    {201, _, _} = publish(port(), "b", <<"x">>),
    Bytes = read_until(Socket, <<"data: x\n\n">>, <<>>),
    ?assertMatch([_, _], binary:matches(Bytes, <<"data: unknown\n\n">>)).

%% Requests in its mailbox are lost. The next shard does not take over subscriptions that were ended.
gone_as_a_shard_is_killed(_Config) ->
    Gone = fun(Fields) ->
        Socket = begin_request(port(), <<"GET">>, "/sub/a,b", Fields),
        [ok = wait_for_subscribers(port(), Channel, 1) || Channel <- ["a", "b"]],
        Shard = whereis(weir_pubsub_test:shard_of(<<"a">>)),
        ok = weir_pubsub_test:suspend(Shard),
        ok = gen_tcp:close(Socket),
        ?waitMatch([_ | _], [told || {'$gen_cast', _} <- element(2, process_info(Shard, messages))]),
        ok = weir_pubsub_test:kill_shard_of(<<"a">>),
        %% It answers after it has taken over the subscriptions.
        ok = weir_pubsub_test:idle(<<"a">>),
        ?waitEqual(0, weir_pubsub_test:used(total, subscribers)),
        ok
    end,
    ok = Gone([]),
    ok = Gone([{"Accept", "text/event-stream"}]).

%% The other channels get the message.
some_cannot_be_published(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"b">>, #{max_message => 1}}]}),
    {413, _, _} = publish(port(), "a,b", <<"xx">>),
    {200, _, <<"xx">>} = request(port(), <<"GET">>, "/sub/a", []),
    {202, _, _} = publish(port(), "a,b", <<"x">>),
    {200, _, _} = request(port(), <<"DELETE">>, "/pub/a,nothing", []),
    {404, _, _} = request(port(), <<"DELETE">>, "/pub/nothing,either", []).
