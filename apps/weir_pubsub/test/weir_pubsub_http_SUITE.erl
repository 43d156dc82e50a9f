%% Channels over HTTP: what Nchan answers, and what it does not know.
-module(weir_pubsub_http_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pubsub_shard.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [publish/3, wait_for_subscribers/3, request/4, request/5, begin_request/4, answer/1, read_stream/2, normal/1]).

-define(PATIENCE, 10000).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [{group, nchan}, {group, ours}].

groups() ->
    [
        {nchan, [], [
            publishing, information, long_poll, held, resumed, ids_that_are_wrong, timeouts, deleting, event_stream,
            event_stream_goes_on, chunked, multipart, raw, interval_poll, websocket, websocket_with_ids, websocket_publishes, websocket_for_publishers, streams_time_out, channel_events, methods, options, pages_of_other_sites
        ]},
        {ours, [], [
            head, local_publishers_only, who_may, who_may_is_said_later, tokens, gaps, bytes_for_all_clients, a_gap_between_parts, limits, messages_that_are_too_large, a_client_that_goes_away, a_gap_for_a_websocket, a_type_that_is_no_text, a_flood_of_messages,
            a_frame_compressed_once, two_polls_on_a_connection, a_shard_is_killed,
            a_shard_at_work_answers_later, a_poll_that_need_not_wait, clients_that_do_not_read, clients_that_read_late, publishers_at_once,
            shards_killed_while_reactors_publish, options_that_are_wrong
        ]}
    ].

init_per_group(Group, Config) -> weir_pubsub_nchan:init_group(Group, Config).

end_per_group(_Group, _Config) -> ok.

init_per_testcase(Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    start(#{publishers => any, poll_timeout => 1000}),
    weir_pubsub_nchan:init_case(Case, groups(), Config).

end_per_testcase(_Case, Config) ->
    _ = weir_http:stop_listener(?MODULE),
    ok = application:stop(weir_pubsub),
    weir_pubsub_nchan:end_case(Config).

start(Options) ->
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(Options)).

port() -> weir:get_port(?MODULE).

same(Config, Script) -> weir_pubsub_nchan:same(Config, port(), Script).

field(Name, {_, Fields, _}) -> proplists:get_value(Name, Fields).

%% What a client that comes back says.
resume(Answer) ->
    [{"If-Modified-Since", field(<<"last-modified">>, Answer)}, {"If-None-Match", field(<<"etag">>, Answer)}].

%% As Nchan --------------------------------------------------------------------------------

publishing(Config) ->
    same(Config, fun(Port) ->
        [
            {no_subscriber, publish(Port, "a", <<"hello">>)},
            {put, request(Port, <<"PUT">>, "/pub/a", [], <<"x">>)},
            {empty, publish(Port, "b", <<>>)},
            {json, request(Port, <<"POST">>, "/pub/a", [{"Accept", "application/json"}], <<"x">>)},
            {pubsub, request(Port, <<"POST">>, "/pubsub/a", [], <<"x">>)},
            {encoded, request(Port, <<"POST">>, "/pub/caf%C3%A9", [], <<"x">>)},
            {long_name, request(Port, <<"POST">>, ["/pub/", lists:duplicate(1025, $x)], [], <<"x">>)}
        ]
    end).

information(Config) ->
    same(Config, fun(Port) ->
        _ = publish(Port, "a", <<"hello">>),
        [{nothing, request(Port, <<"GET">>, "/pub/nothing", [])}] ++
            [
                {Accept, request(Port, <<"GET">>, "/pub/a", [{"Accept", Accept}])}
             || Accept <- ["*/*", "text/plain", "text/json", "application/json", "text/xml", "application/xml", "text/yaml", "text/x-yaml", "application/yaml", "image/png"]
            ]
    end).

long_poll(Config) ->
    same(Config, fun(Port) ->
        _ = request(Port, <<"POST">>, "/pub/a", [{"Content-Type", "text/x-foo"}], <<"hello">>),
        _ = publish(Port, "b", <<"no type">>),
        [{typed, request(Port, <<"GET">>, "/sub/a", [])}, {untyped, request(Port, <<"GET">>, "/sub/b", [])}, {pubsub, request(Port, <<"GET">>, "/pubsub/a", [])}]
    end).

held(Config) ->
    same(Config, fun(Port) ->
        One = begin_request(Port, <<"GET">>, "/sub/a", []),
        Other = begin_request(Port, <<"GET">>, "/sub/a", []),
        ok = wait_for_subscribers(Port, "a", 2),
        Published = publish(Port, "a", <<"hello">>),
        [{published, without(<<"last requested: [0-9-]+">>, Published)}, {one, answer(One)}, {other, answer(Other)}]
    end).

without(Pattern, {Status, Fields, Body}) -> {Status, Fields, re:replace(Body, Pattern, "", [{return, binary}])}.

resumed(Config) ->
    same(Config, fun(Port) ->
        _ = [publish(Port, "a", <<Data>>) || Data <- "123"],
        First = request(Port, <<"GET">>, "/sub/a", []),
        Second = request(Port, <<"GET">>, "/sub/a", resume(First)),
        Third = request(Port, <<"GET">>, "/sub/a", resume(Second)),
        Waits = begin_request(Port, <<"GET">>, "/sub/a", resume(Third)),
        ok = wait_for_subscribers(Port, "a", 1),
        _ = publish(Port, "a", <<"4">>),
        [{first, First}, {second, Second}, {third, Third}, {fourth, answer(Waits)}]
    end).

ids_that_are_wrong(Config) ->
    Date = {"If-Modified-Since", "Sat, 21 Nov 2026 23:13:24 GMT"},
    same(Config, fun(Port) ->
        _ = publish(Port, "a", <<"x">>),
        [
            {Fields, without_gap(request(Port, <<"GET">>, "/sub/a", Fields))}
         || Fields <- [
                [{"If-None-Match", "foo"}],
                [{"If-Modified-Since", "yesterday"}],
                [{"If-Modified-Since", "yesterday"}, {"If-None-Match", "0"}],
                [Date],
                [Date, {"If-None-Match", "foo"}],
                [Date, {"If-None-Match", "\"0\""}],
                [{"Last-Event-ID", "foo"}]
            ]
        ]
    end).

%% Nchan does not know that something is missing.
without_gap({Status, Fields, Body}) -> {Status, lists:keydelete(<<"weir-missed">>, 1, Fields), Body}.

timeouts(Config) ->
    same(Config, fun(Port) -> [{nothing_comes, without_etag(request(Port, <<"GET">>, "/sub/a", []))}] end).

%% That of Nchan's says nothing that a client could use.
without_etag({Status, Fields, Body}) -> {Status, lists:keydelete(<<"etag">>, 1, Fields), Body}.

deleting(Config) ->
    same(Config, fun(Port) ->
        Poll = begin_request(Port, <<"GET">>, "/sub/a", []),
        ok = wait_for_subscribers(Port, "a", 1),
        Deleted = request(Port, <<"DELETE">>, "/pub/a", []),
        [
            {nothing, request(Port, <<"DELETE">>, "/pub/nothing", [])},
            {deleted, without(<<"last requested: .*">>, Deleted)},
            {gone, without_etag(answer(Poll))}
        ]
    end).

event_stream(Config) ->
    same(Config, fun(Port) ->
        _ = publish(Port, "a", <<"one">>),
        _ = request(Port, <<"POST">>, "/pub/a", [{"X-EventSource-Event", "named"}], <<"two\nlines">>),
        Stream = begin_request(Port, <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
        ok = wait_for_subscribers(Port, "a", 1),
        _ = publish(Port, "a", <<"three">>),
        [{stream, read_stream(Stream, <<"three\n\n">>)}]
    end).

event_stream_goes_on(Config) ->
    same(Config, fun(Port) ->
        _ = [publish(Port, "a", Data) || Data <- [<<"one">>, <<"two">>, <<"three">>]],
        {200, _, Text} = read_stream(begin_request(Port, <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]), <<"three\n\n">>),
        {match, [_, Second | _]} = re:run(Text, "id: ([0-9:]+)", [global, {capture, all_but_first, list}]),
        Again = begin_request(Port, <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}, {"Last-Event-ID", Second}]),
        ByQuery = begin_request(Port, <<"GET">>, ["/sub/a?last_event_id=", Second], [{"Accept", "text/event-stream"}]),
        [{again, read_stream(Again, <<"three\n\n">>)}, {by_query, read_stream(ByQuery, <<"three\n\n">>)}]
    end).

chunked(Config) -> bytes(Config, fun(_) -> "/sub/a" end, [{"TE", "chunked"}]).

multipart(Config) -> bytes(Config, fun(_) -> "/sub/a" end, [{"Accept", "multipart/mixed"}]).

raw(Config) ->
    set(#{plain => raw, publishers => any}),
    bytes(Config, by_configuration(Config, "/raw/a"), []).

%% What Nchan has at another path, and a listener of ours for all.
by_configuration(Config, Path) ->
    #{port := Nchan} = proplists:get_value(nchan, Config),
    fun(Port) -> case Port of Nchan -> Path; _ -> "/sub/a" end end.

%% What is there, what comes, and the end.
bytes(Config, Path, Fields) ->
    same(Config, fun(Port) ->
        _ = request(Port, <<"POST">>, "/pub/a", [{"Content-Type", "text/x-foo"}], <<"one">>),
        _ = publish(Port, "a", <<"two\nlines">>),
        OfAnother = begin_request(Port, <<"GET">>, Path(Port), [{"Origin", "http://x.y"} | Fields]),
        Stream = begin_request(Port, <<"GET">>, Path(Port), Fields),
        ok = wait_for_subscribers(Port, "a", 2),
        _ = publish(Port, "a", <<"three">>),
        _ = request(Port, <<"DELETE">>, "/pub/a", []),
        [{stream, answer(Stream)}, {page, answer(OfAnother)}]
    end).

interval_poll(Config) ->
    set(#{plain => interval_poll, publishers => any}),
    Path = by_configuration(Config, "/poll/a"),
    same(Config, fun(Port) ->
        Nothing = request(Port, <<"GET">>, Path(Port), []),
        _ = request(Port, <<"POST">>, "/pub/a", [{"Content-Type", "text/x-foo"}], <<"one">>),
        _ = publish(Port, "a", <<"two">>),
        One = request(Port, <<"GET">>, Path(Port), []),
        Two = request(Port, <<"GET">>, Path(Port), resume(One)),
        [{nothing, Nothing}, {one, One}, {two, Two}, {no_more, request(Port, <<"GET">>, Path(Port), resume(Two))}]
    end).

websocket(Config) ->
    same_frames(Config, fun(Port) ->
        _ = publish(Port, "a", <<"one">>),
        _ = request(Port, <<"POST">>, "/pub/a", [{"Content-Type", "application/octet-stream"}], <<1, 255>>),
        {Answer, Socket} = weir_pubsub_nchan:websocket(Port, "/sub/a", none),
        History = weir_pubsub_nchan:frames(Socket, 2),
        _ = publish(Port, "a", <<"two">>),
        New = weir_pubsub_nchan:frames(Socket, 1),
        _ = request(Port, <<"DELETE">>, "/pub/a", []),
        [Answer, History, New, weir_pubsub_nchan:frames(Socket, 1)]
    end).

websocket_with_ids(Config) ->
    same_frames(Config, fun(Port) ->
        _ = request(Port, <<"POST">>, "/pub/a", [{"Content-Type", "text/x-foo"}], <<"one">>),
        {Answer, Socket} = weir_pubsub_nchan:websocket(Port, "/sub/a", "ws+meta.nchan, other"),
        [Answer, weir_pubsub_nchan:frames(Socket, 1)]
    end).

websocket_publishes(Config) ->
    same_frames(Config, fun(Port) ->
        {Answer, Socket} = weir_pubsub_nchan:websocket(Port, "/pubsub/a", none),
        {_, Subscriber} = weir_pubsub_nchan:websocket(Port, "/sub/a", none),
        ok = wait_for_subscribers(Port, "a", 2),
        ok = weir_pubsub_nchan:send_frame(Socket, 1, <<"hello">>),
        ok = weir_pubsub_nchan:send_frame(Socket, 2, <<1, 255>>),
        Both = [weir_pubsub_nchan:frames(S, 2) || S <- [Socket, Subscriber]],
        ok = weir_pubsub_nchan:send_frame(Subscriber, 1, <<"no">>),
        [Answer, Both, weir_pubsub_nchan:frames(Subscriber, 1)]
    end).

%% What happens in a channel, in another channel: who comes and goes, what is published, that it is deleted.
channel_events(Config) ->
    set(#{publishers => any}),
    ok = weir_pubsub:configure(#{channels => [{<<"watched">>, #{events => <<"ev">>}}]}),
    #{port := Nchan} = proplists:get_value(nchan, Config),
    [Theirs, Ours] = [
        begin
            Events = begin_request(Port, <<"GET">>, Told, [{"Accept", "text/event-stream"}]),
            %% One after the other: who asks two places is not told in which order they heard of it.
            Then = fun(Bytes, Act, Event) -> Act(), read_until(Events, <<"data: ", Event/binary, " watched\n\n">>, Bytes) end,
            Published = Then(<<>>, fun() -> request(Port, <<"POST">>, Pub, [], <<"x">>) end, <<"channel_publish">>),
            Stream = begin_request(Port, <<"GET">>, Sub, [{"Accept", "text/event-stream"}]),
            Came = Then(Published, fun() -> ok end, <<"subscriber_enqueue">>),
            Went = Then(Came, fun() -> ok = gen_tcp:close(Stream) end, <<"subscriber_dequeue">>),
            Deleted = Then(Went, fun() -> request(Port, <<"DELETE">>, Pub, [], <<>>) end, <<"channel_delete">>),
            ok = gen_tcp:close(Events),
            normal(weir_pubsub_nchan:parsed(Deleted))
        end
     || {Port, Pub, Sub, Told} <- [
            {Nchan, "/evpub/watched", "/evsub/watched", "/events"},
            {port(), "/pub/watched", "/sub/watched", "/sub/ev"}
        ]
    ],
    ?assertEqual(Theirs, Ours).

%% A message begins the time anew.
streams_time_out(Config) ->
    set(#{publishers => any, stream_timeout => 1000}),
    same(Config, fun(Port) ->
        Ask = fun(Fields) -> begin_request(Port, <<"GET">>, "/sub/a", Fields) end,
        Stream = Ask([{"Accept", "text/event-stream"}]),
        Parts = Ask([{"Accept", "multipart/mixed"}]),
        Chunks = Ask([{"TE", "chunked"}]),
        {_, WebSocket} = weir_pubsub_nchan:websocket(Port, "/sub/a", none),
        ok = wait_for_subscribers(Port, "a", 4),
        timer:sleep(500),
        {201, _, _} = publish(Port, "a", <<"x">>),
        Frames = weir_pubsub_nchan:frames(WebSocket, 2),
        {Status, Fields, Body} = answer(Stream),
        [
            %% Ours is a comment by the standard, which Nchan's is not.
            {stream, {Status, Fields, re:replace(Body, ": 408: 408", ":408: 408", [{return, binary}])}},
            {parts, answer(Parts)},
            {chunks, answer(Chunks)},
            {websocket, {200, [], term_to_binary(Frames)}}
        ]
    end).

%% Each message is answered, in their order, as a request would be.
websocket_for_publishers(Config) ->
    same_frames(Config, fun(Port) ->
        [
            begin
                {Answer, Socket} = weir_pubsub_nchan:websocket(Port, Path, Protocol),
                [ok = weir_pubsub_nchan:send_frame(Socket, Opcode, Data) || {Opcode, Data} <- [{1, <<"hello">>}, {2, <<0, 255>>}, {1, <<>>}]],
                Frames = [answered(Frame) || Frame <- weir_pubsub_nchan:frames(Socket, 3)],
                ok = gen_tcp:close(Socket),
                {Answer, Frames, [element(3, normal(request(Port, <<"GET">>, ["/pub/", Name], []))) || Name <- ["a", "b"]]}
            end
         || {Path, Protocol} <- [{"/pub/a", none}, {"/pub/a", "ws+meta.nchan"}, {"/pub/a,b", none}]
        ]
    end).

answered({Opcode, Text}) -> {Opcode, re:replace(Text, "last requested: [0-9-]+", "", [{return, binary}])}.

same_frames(Config, Script) ->
    #{port := Nchan} = proplists:get_value(nchan, Config),
    ?assertEqual(Script(Nchan), Script(port())).

methods(Config) ->
    same(Config, fun(Port) ->
        [
            {Method, request(Port, Method, "/sub/a", [], <<"x">>)}
         || Method <- [<<"POST">>, <<"PUT">>, <<"DELETE">>]
        ]
    end).

%% All but the body. Nothing waits: what would be waited for is no message.
head(_Config) ->
    _ = publish(port(), "a", <<"x">>),
    [
        begin
            {Status, Expected, _} = request(port(), <<"GET">>, Path, Fields),
            {200, Told, <<>>} = request(port(), <<"HEAD">>, Path, Fields),
            ?assertEqual({Path, 200, without_date(Expected)}, {Path, Status, without_date(Told)})
        end
     || {Path, Fields} <- [{"/sub/a", []}, {"/pubsub/a", []}, {"/pub/a", [{"Accept", "text/json"}]}]
    ],
    ?assertMatch({408, _, <<>>}, request(port(), <<"HEAD">>, "/sub/b", [])),
    ?assertMatch({404, _, <<>>}, request(port(), <<"HEAD">>, "/pub/c", [])),
    {200, Stream, <<>>} = request(port(), <<"HEAD">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    ?assertMatch(<<"text/event-stream", _/binary>>, proplists:get_value(<<"content-type">>, Stream)),
    ?assertEqual({error, no_channel}, weir_pubsub:info(<<"b">>)).

without_date(Fields) -> lists:sort(lists:keydelete(<<"date">>, 1, Fields)).

options(Config) ->
    same(Config, fun(Port) ->
        [
            {{Path, Fields}, request(Port, <<"OPTIONS">>, Path, Fields)}
         || Path <- ["/sub/a", "/pub/a", "/pubsub/a"], Fields <- [[], [{"Origin", "http://x.y"}]]
        ]
    end).

pages_of_other_sites(Config) ->
    same(Config, fun(Port) ->
        Origin = [{"Origin", "http://x.y"}],
        [
            {published, request(Port, <<"POST">>, "/pub/a", Origin, <<"x">>)},
            {read, request(Port, <<"GET">>, "/sub/a", Origin)},
            {wrong, request(Port, <<"GET">>, "/sub/a", [{"If-Modified-Since", "Sat, 21 Nov 2026 23:13:24 GMT"} | Origin])}
        ]
    end).

%% Ours ------------------------------------------------------------------------------------

set(Options) -> ok = weir_http:set_routes(?MODULE, weir_pubsub_http:routes(Options)).

local_publishers_only(_Config) ->
    set(#{}),
    {202, _, _} = publish(port(), "a", <<"x">>),
    Origin = [{"Origin", "http://x.y"}],
    [{403, _, <<>>} = request(port(), Method, "/pub/a", Origin, <<"x">>) || Method <- [<<"POST">>, <<"PUT">>, <<"DELETE">>]],
    {403, _, <<>>} = request(port(), <<"GET">>, "/pub/a", Origin),
    {200, _, <<"x">>} = request(port(), <<"GET">>, "/sub/a", Origin).

who_may(_Config) ->
    May = fun(Name) -> fun(Request, Channel) -> {weir_http_request:field(<<"x-who">>, Request), Channel} =:= {Name, <<"a">>} end end,
    set(#{publishers => May(<<"writer">>), subscribers => May(<<"reader">>)}),
    Who = fun(Name) -> [{"X-Who", Name}] end,
    {202, _, _} = request(port(), <<"POST">>, "/pub/a", Who("writer"), <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/b", Who("writer"), <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/a", Who("reader"), <<"x">>),
    {200, _, <<"x">>} = request(port(), <<"GET">>, "/sub/a", Who("reader")),
    {403, _, _} = request(port(), <<"GET">>, "/sub/a", Who("writer")).

%% A fun that waits is run in a process, and what follows is as ever.
who_may_is_said_later(_Config) ->
    Later = fun(_Request, Channel) -> {wait, fun() -> timer:sleep(10), Channel =:= <<"a">> end} end,
    set(#{publishers => Later, subscribers => Later}),
    {202, _, _} = publish(port(), "a", <<"x">>),
    {403, _, _} = publish(port(), "b", <<"x">>),
    {403, _, _} = publish(port(), "a,b", <<"x">>),
    {200, _, <<"x">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    {403, _, _} = request(port(), <<"GET">>, "/sub/b", []),
    Held = weir_pubsub_nchan:begin_request(port(), <<"GET">>, "/sub/a", [
        {"If-Modified-Since", field(<<"last-modified">>, First)}, {"If-None-Match", field(<<"etag">>, First)}
    ]),
    {_, _, _} = publish(port(), "a", <<"y">>),
    {200, _, <<"y">>} = weir_pubsub_nchan:answer(Held),
    Stream = weir_pubsub_nchan:begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    {200, _, _} = weir_pubsub_nchan:read_stream(Stream, <<"data: y">>),
    {{101, _}, Socket} = weir_pubsub_nchan:websocket(port(), "/pubsub/a", none),
    ok = weir_pubsub_nchan:send_frame(Socket, 1, <<"z">>),
    Chunks = weir_pubsub_nchan:begin_request(port(), <<"GET">>, "/sub/a", [{"TE", "chunked"}]),
    {200, _, _} = weir_pubsub_nchan:read_stream(Chunks, <<"z">>),
    {200, _, _} = request(port(), <<"DELETE">>, "/pub/a", []).

%% As the README of another server would have it: a field, or the query.
tokens(_Config) ->
    Secret = binary:copy(<<"secret">>, 6),
    File = filename:join("/tmp", "weir_secret_" ++ os:getpid()),
    ok = file:write_file(File, Secret),
    ok = weir_pubsub_keys:load(?MODULE, [{secret, File}]),
    ok = file:delete(File),
    By = fun(Right) -> weir_pubsub_access:by_token(Right, ?MODULE, #{require_exp => false}) end,
    set(#{publishers => By(publish), subscribers => By(subscribe)}),
    Url = fun(Bytes) -> <<<<(case C of $+ -> $-; $/ -> $_; _ -> C end)>> || <<C>> <= base64:encode(Bytes), C =/= $=>> end,
    Signed = <<(Url(<<"{\"alg\":\"HS256\"}">>))/binary, ".", (Url(<<"{\"weir\":{\"publish\":[\"a\"],\"subscribe\":[\"*\"]}}">>))/binary>>,
    Token = <<Signed/binary, ".", (Url(crypto:mac(hmac, sha256, Secret, Signed)))/binary>>,
    Bearer = [{"Authorization", ["Bearer ", Token]}],
    {202, _, _} = request(port(), <<"POST">>, "/pub/a", Bearer, <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/b", Bearer, <<"x">>),
    {403, _, _} = request(port(), <<"POST">>, "/pub/a", [], <<"x">>),
    {200, _, <<"x">>} = request(port(), <<"GET">>, ["/sub/a?access_token=", Token], []),
    {403, _, _} = request(port(), <<"GET">>, ["/sub/a?access_token=", Token, "x"], []),
    {403, _, _} = request(port(), <<"GET">>, "/sub/a", [{"Authorization", ["Basic ", Token]}]).

gaps(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := First}}, _, {ok, _}] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    Id = weir_pubsub_id:to_text(First),
    Poll = request(port(), <<"GET">>, "/sub/a", [{"If-None-Match", Id}]),
    {200, _, <<"3">>} = Poll,
    ?assertEqual(<<"1">>, field(<<"weir-missed">>, Poll)),
    Unknown = request(port(), <<"GET">>, "/sub/a", [{"If-None-Match", "77:1"}]),
    ?assertEqual(<<"unknown">>, field(<<"weir-missed">>, Unknown)),
    {200, _, Text} = read_stream(begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}, {"Last-Event-ID", Id}]), <<"data: 3\n\n">>),
    ?assertMatch({_, _}, binary:match(Text, <<"event: gap\n">>)),
    ?assertMatch({_, _}, binary:match(Text, <<"data: 1\n\n">>)).

%% A client of HTTP/1.0 gets no chunks, and an empty message is not the end of the body.
bytes_for_all_clients(_Config) ->
    Ask = fun(Version) ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
        ok = gen_tcp:send(Socket, ["GET /sub/a HTTP/", Version, "\r\nHost: x\r\nTE: chunked\r\n\r\n"]),
        Socket
    end,
    [publish(port(), "a", Data) || Data <- [<<"one">>, <<>>, <<"two">>]],
    Old = Ask("1.0"),
    New = Ask("1.1"),
    ok = wait_for_subscribers(port(), "a", 2),
    _ = request(port(), <<"DELETE">>, "/pub/a", []),
    ?assertMatch({200, _, <<"onetwo">>}, answer(New)),
    Body = read_until_end(Old, <<>>),
    ?assertEqual(<<"onetwo">>, lists:last(binary:split(Body, <<"\r\n\r\n">>))).

read_until_end(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, More} -> read_until_end(Socket, <<Bytes/binary, More/binary>>);
        {error, closed} -> Bytes
    end.

a_gap_between_parts(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := First}}, _, {ok, _}] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    Fields = [{"Accept", "multipart/mixed"}, {"Last-Event-ID", weir_pubsub_id:to_text(First)}],
    {200, _, Parts} = read_stream(begin_request(port(), <<"GET">>, "/sub/a", Fields), <<"\r\n\r\n3\r\n">>),
    ?assertMatch({_, _}, binary:match(Parts, <<"Content-Type: weir/gap\r\n\r\n1\r\n">>)).

limits(_Config) ->
    ok = weir_pubsub:configure(#{total => #{channels => 1, subscribers => 0}}),
    {202, _, _} = publish(port(), "a", <<"x">>),
    {403, _, _} = publish(port(), "b", <<"x">>),
    {403, _, _} = request(port(), <<"GET">>, "/sub/a", []),
    {200, _, Text} = answer(begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}])),
    ?assertEqual(<<": 403: 403 Forbidden\n\n">>, Text).

messages_that_are_too_large(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_message => 10}}]}),
    {413, _, _} = publish(port(), "a", <<"12345678901">>),
    {202, _, _} = publish(port(), "a", <<"1234567890">>).

a_client_that_goes_away(_Config) ->
    Poll = begin_request(port(), <<"GET">>, "/sub/a", []),
    Stream = begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    ok = wait_for_subscribers(port(), "a", 2),
    ok = gen_tcp:close(Poll),
    ok = gen_tcp:close(Stream),
    ok = wait_for_subscribers(port(), "a", 0).

%% With the subprotocol a client is told of a gap; and publishing over it is for publishers.
a_gap_for_a_websocket(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := First}}, _, _] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    set(#{}),
    {_, Socket} = weir_pubsub_nchan:websocket(port(), ["/pubsub/a?last_event_id=", weir_pubsub_id:to_text(First)], "ws+meta.nchan"),
    ?assertEqual(
        [{1, <<"id: ID\ncontent-type: weir/gap\n\n1">>}, {1, <<"id: ID\n\n3">>}], weir_pubsub_nchan:frames(Socket, 2)
    ),
    ok = weir_pubsub_nchan:send_frame(Socket, 1, <<"hello">>),
    [{1, <<"id: ID\n\nhello">>}] = weir_pubsub_nchan:frames(Socket, 1),
    set(#{publishers => fun(_, _) -> false end}),
    {_, Other} = weir_pubsub_nchan:websocket(port(), "/pubsub/b", none),
    ok = weir_pubsub_nchan:send_frame(Other, 1, <<"hello">>),
    [{8, <<1008:16, _/binary>>}] = weir_pubsub_nchan:frames(Other, 1),
    ?assertEqual({error, no_channel}, weir_pubsub:history(<<"c">>, #{})).

%% What a publisher sends does not end the connections of subscribers.
a_type_that_is_no_text(_Config) ->
    set(#{publishers => any}),
    {_, Socket} = weir_pubsub_nchan:websocket(port(), "/sub/a", "ws+meta.nchan"),
    {_, Plain} = weir_pubsub_nchan:websocket(port(), "/sub/a", none),
    ok = wait_for_subscribers(port(), "a", 2),
    _ = request(port(), <<"POST">>, "/pub/a", [{"Content-Type", <<"text/", 255>>}], <<"x">>),
    ?assertEqual([{2, <<"id: ID\ncontent-type: text/", 255, "\n\nx">>}], weir_pubsub_nchan:frames(Socket, 1)),
    ?assertEqual([{1, <<"x">>}], weir_pubsub_nchan:frames(Plain, 1)).

%% What a client sends faster than it can be published does not pile up without a bound.
a_flood_of_messages(_Config) ->
    set(#{publishers => any}),
    {_, Socket} = weir_pubsub_nchan:websocket(port(), "/pubsub/a", none),
    ok = wait_for_subscribers(port(), "a", 1),
    %% What has been published does not count any more.
    Send = fun(Count) -> [_ = weir_pubsub_nchan:send_frame(Socket, 1, <<"x">>) || _ <- lists:seq(1, Count)] end,
    [
        begin
            _ = Send(1000),
            ok = wait_for_number(<<"a">>, 1000 * Batch)
        end
     || Batch <- lists:seq(1, 11)
    ],
    {ok, #shard{index = Index}} = weir_pubsub_shards:of_channel(<<"a">>),
    Shard = weir_pubsub_shards:name(Index),
    ok = sys:suspend(Shard),
    _ = Send(10001),
    ?assertMatch(<<1008:16, _/binary>>, close_frame(Socket)),
    ok = sys:resume(Shard).

wait_for_number(Channel, Number) ->
    case weir_pubsub:info(Channel) of
        {ok, #{last_id := {_, Number}}} -> ok;
        {ok, _} -> timer:sleep(5), wait_for_number(Channel, Number)
    end.

close_frame(Socket) ->
    case weir_pubsub_nchan:frames(Socket, 1) of
        [{8, Data}] -> Data;
        _ -> close_frame(Socket)
    end.

%% Those that have agreed to the same get the same bytes; others get it plain, or with a window of theirs.
a_frame_compressed_once(_Config) ->
    set(#{publishers => any, deflate => true}),
    Offers = ["permessage-deflate", "permessage-deflate; client_max_window_bits", "permessage-deflate; server_max_window_bits=9", none],
    Sockets = [element(2, weir_pubsub_nchan:websocket(port(), "/sub/a", none, Offer)) || Offer <- Offers],
    ok = wait_for_subscribers(port(), "a", length(Sockets)),
    Data = binary:copy(<<"hello ">>, 40),
    _ = publish(port(), "a", Data),
    [One, Two, Three, Plain] = [
        begin
            {ok, <<Head:8, Short:8>>} = gen_tcp:recv(Socket, 2, ?PATIENCE),
            Size = case Short of 126 -> {ok, <<Long:16>>} = gen_tcp:recv(Socket, 2, ?PATIENCE), Long; _ -> Short end,
            {ok, Bytes} = gen_tcp:recv(Socket, Size, ?PATIENCE),
            {Head, Bytes}
        end
     || Socket <- Sockets
    ],
    ?assertEqual({16#81, Data}, Plain),
    ?assertEqual(One, Two),
    [?assertEqual({16#C1, Data}, {Head, inflated(Bytes)}) || {Head, Bytes} <- [One, Three]].

inflated(Bytes) ->
    Zlib = zlib:open(),
    ok = zlib:inflateInit(Zlib, -15),
    iolist_to_binary(zlib:inflate(Zlib, <<Bytes/binary, 0, 0, 255, 255>>)).

%% What the first one still gets is not the answer to the second.
two_polls_on_a_connection(_Config) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    Ask = fun(Channel) -> ok = gen_tcp:send(Socket, ["GET /sub/", Channel, " HTTP/1.1\r\nHost: x\r\n\r\n"]) end,
    ok = Ask("a"),
    ok = wait_for_subscribers(port(), "a", 1),
    _ = [publish(port(), "a", Data) || Data <- [<<"first">>, <<"unasked">>]],
    _ = read_until(Socket, <<"first">>),
    ok = Ask("b"),
    ok = wait_for_subscribers(port(), "b", 1),
    _ = publish(port(), "b", <<"second">>),
    Second = read_until(Socket, <<"second">>),
    ?assertEqual(nomatch, binary:match(Second, <<"unasked">>)).

read_until(Socket, Text) -> read_until(Socket, Text, <<>>).

read_until(_Socket, <<>>, Bytes) -> Bytes;
read_until(Socket, Text, Bytes) -> read_until(Socket, Text, Bytes, 0).

%% It does not begin before From.
read_until(Socket, Text, Bytes, From) ->
    case binary:match(Bytes, Text, [{scope, {From, byte_size(Bytes) - From}}]) of
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, ?PATIENCE),
            read_until(Socket, Text, <<Bytes/binary, More/binary>>, max(0, byte_size(Bytes) - byte_size(Text)));
        _ ->
            Bytes
    end.

a_shard_is_killed(_Config) ->
    Poll = begin_request(port(), <<"GET">>, "/sub/a", []),
    Stream = begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    ok = wait_for_subscribers(port(), "a", 2),
    [exit(whereis(weir_pubsub_shards:name(Index)), kill) || Index <- lists:seq(1, erlang:system_info(schedulers))],
    {200, _, Text} = answer(Stream),
    ?assertMatch({_, _}, binary:match(Text, <<"503 Service Unavailable">>)),
    %% A poll is taken over, and told of the gap.
    ok = wait_for_subscribers(port(), "a", 1),
    _ = publish(port(), "a", <<"x">>),
    {200, _, <<"x">>} = Answer = answer(Poll),
    ?assertEqual(<<"unknown">>, field(<<"weir-missed">>, Answer)).

%% The reactor does not wait for the shard: other requests are answered meanwhile.
a_shard_at_work_answers_later(_Config) ->
    {ok, #shard{claim = Claim}} = weir_pubsub_shards:of_channel(<<"a">>),
    true = weir_pubsub_claim:try_take(Claim),
    Held = begin_request(port(), {<<"POST">>, <<"x">>}, "/pub/a", []),
    {404, _, _} = request(port(), <<"GET">>, "/pub/nothing", []),
    {error, timeout} = gen_tcp:recv(Held, 0, 50),
    ok = weir_pubsub_claim:release(Claim),
    {202, _, _} = answer(Held),
    {ok, #{messages := [{message, _, <<"x">>, _}]}} = weir_pubsub:history(<<"a">>, #{}).

%% What is there already is read without the shard; what is not waits for it.
a_poll_that_need_not_wait(_Config) ->
    _ = publish(port(), "a", <<"x">>),
    #{subscribed := Before} = weir_pubsub:counters(),
    {200, _, <<"x">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    ?assertMatch(#{subscribed := Before}, weir_pubsub:counters()),
    {ok, #{requested := Ago}} = weir_pubsub:info(<<"a">>),
    ?assert(is_integer(Ago)),
    Waits = begin_request(port(), <<"GET">>, "/sub/a", resume(First)),
    ok = wait_for_subscribers(port(), "a", 1),
    _ = publish(port(), "a", <<"y">>),
    {200, _, <<"y">>} = answer(Waits),
    %% Where somebody wants to hear of subscriptions, it is one.
    ok = weir_pubsub:configure(#{channels => [{<<"a">>, #{events => <<"events">>}}]}),
    {ok, _} = weir_pubsub:subscribe(<<"events">>, #{}),
    {200, _, <<"x">>} = request(port(), <<"GET">>, "/sub/a", []),
    receive {weir_pubsub, <<"events">>, {message, _, <<"subscriber_enqueue a">>, _}} -> ok after ?PATIENCE -> error(not_told) end.

%% By each transport that can tell of a gap: all that comes is in order, every hole is announced, and what waits is bounded.
clients_that_read_late(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_queue => 4, max_messages => 2, max_bytes => 10000000}}]}),
    Data = binary:copy(<<"x">>, 50000),
    Count = 400,
    Streams = [
        {begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]), fun body/1, "data: ([0-9]+)([\n:])"},
        {begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "multipart/mixed"}]), fun body/1, "\r\n\r\n([0-9]+)(\r|:)"},
        {element(2, weir_pubsub_nchan:websocket(port(), "/sub/a", "ws+meta.nchan")), fun(Bytes) -> Bytes end, "\n\n([0-9]+)(:|[^0-9x]|$)"}
    ],
    ok = wait_for_subscribers(port(), "a", length(Streams)),
    #{lagged := Before, slow := Slow} = weir_pubsub:counters(),
    [{201, _, _} = publish(port(), "a", <<(integer_to_binary(Number))/binary, $:, Data/binary>>) || Number <- lists:seq(1, Count)],
    %% Those that read now get the rest, and what is published then.
    [
        begin
            Bytes = read_until(Socket, <<(integer_to_binary(Count))/binary, $:, Data/binary>>),
            {match, Found} = re:run(Text(Bytes), Pattern, [global, {capture, all_but_first, binary}]),
            ?assertEqual(Count, lists:foldl(fun seen/2, 0, Found)),
            ?assert(length(Found) < Count)
        end
     || {Socket, Text, Pattern} <- Streams
    ],
    #{lagged := After, slow := Same} = weir_pubsub:counters(),
    ?assertEqual(Slow, Same),
    ?assert(After >= Before + length(Streams)),
    {201, _, _} = publish(port(), "a", <<"end">>),
    [begin _ = read_until(Socket, <<"end">>), ok = gen_tcp:close(Socket) end || {Socket, _, _} <- Streams].

body(Bytes) -> element(3, weir_pubsub_nchan:parsed(Bytes)).

%% A message comes behind the one before it; a gap says how many are missing.
seen([Number, <<":">>], Last) -> ?assertEqual(Last + 1, binary_to_integer(Number)), Last + 1;
seen([Missed, _], Last) -> Last + binary_to_integer(Missed).

%% They are closed and counted, and the others get every message.
clients_that_do_not_read(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_queue => 4, max_messages => 2, slow => disconnect}}]}),
    Ask = fun(Count) -> [begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]) || _ <- lists:seq(1, Count)] end,
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
    [receive {'DOWN', Monitor, process, Pid, Reason} -> normal = Reason end || {Pid, Monitor} <- Publishers],
    Got = [
        receive {weir_pubsub, <<"a">>, {message, {Epoch, N}, <<"x">>, _}} -> N after ?PATIENCE -> error(nothing_comes) end
     || _ <- lists:seq(1, 3 * Each)
    ],
    ?assertEqual(lists:seq(1, 3 * Each), Got).

%% Whoever had the claim: it is free again, and every publisher is answered.
shards_killed_while_reactors_publish(_Config) ->
    Stop = atomics:new(1, []),
    Publish = fun Publish(Channel) ->
        {Status, _, _} = publish(port(), Channel, <<"x">>),
        true = lists:member(Status, [202, 500, 503]),
        atomics:get(Stop, 1) =:= 0 andalso Publish(Channel)
    end,
    Publishers = [spawn_monitor(fun() -> Publish(Channel) end) || Channel <- ["a", "b", "c", "d"]],
    Names = [weir_pubsub_shards:name(Index) || Index <- lists:seq(1, erlang:system_info(schedulers))],
    [
        begin
            timer:sleep(250),
            Pid = whereis(lists:nth(1 + Round rem length(Names), Names)),
            is_pid(Pid) andalso exit(Pid, kill)
        end
     || Round <- lists:seq(1, 8)
    ],
    ok = atomics:put(Stop, 1, 1),
    [receive {'DOWN', Monitor, process, Pid, Reason} -> false = Reason =/= normal end || {Pid, Monitor} <- Publishers],
    timer:sleep(100),
    [{202, _, _} = publish(port(), Channel, <<"x">>) || Channel <- ["a", "b", "c", "d"]].

options_that_are_wrong(_Config) ->
    [
        ?assertError({bad_option, Name, Value, _}, weir_pubsub_http:routes(#{Name => Value}))
     || {Name, Value} <- [{publishers, nobody}, {subscribers, local}, {poll_timeout, 0}, {stream_timeout, 0}, {deflate, 1}, {deflate, #{context => true}}, {plain, poll}, {max_body, 0}, {other, 1}]
    ].
