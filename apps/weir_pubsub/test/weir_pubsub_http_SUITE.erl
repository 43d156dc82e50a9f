%% Channels over HTTP, with the responses of Nchan.
-module(weir_pubsub_http_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [
    by_configuration/3,
    publish/3,
    wait_for_subscribers/3,
    request/4, request/5,
    begin_request/4,
    answer/1,
    read_stream/2,
    normal/1
]).
-import(weir_pubsub_http_test, [resume/1, read_until/3]).

-include("pubsub_http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, nchan}].

groups() ->
    [
        {nchan, [], [
            publishing,
            information,
            long_poll,
            held,
            resumed,
            ids_that_are_wrong,
            timeouts,
            deleting,
            event_stream,
            event_stream_goes_on,
            chunked,
            multipart,
            raw,
            interval_poll,
            websocket,
            websocket_with_ids,
            websocket_publishes,
            websocket_for_publishers,
            streams_time_out,
            channel_events,
            methods,
            options,
            pages_of_other_sites
        ]}
    ].

same(Config, Script) -> weir_pubsub_nchan:same(Config, port(), Script).

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
             || Accept <- [
                    "*/*",
                    "text/plain",
                    "text/json",
                    "application/json",
                    "text/xml",
                    "application/xml",
                    "text/yaml",
                    "text/x-yaml",
                    "application/yaml",
                    "image/png"
                ]
            ]
    end).

long_poll(Config) ->
    same(Config, fun(Port) ->
        _ = request(Port, <<"POST">>, "/pub/a", [{"Content-Type", "text/x-foo"}], <<"hello">>),
        _ = publish(Port, "b", <<"no type">>),
        [
            {typed, request(Port, <<"GET">>, "/sub/a", [])},
            {untyped, request(Port, <<"GET">>, "/sub/b", [])},
            {pubsub, request(Port, <<"GET">>, "/pubsub/a", [])}
        ]
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

%% Nchan does not report gaps.
without_gap({Status, Fields, Body}) -> {Status, lists:keydelete(<<"weir-missed">>, 1, Fields), Body}.

timeouts(Config) ->
    set(#{publishers => any, poll_timeout => 1000}),
    Path = by_configuration(Config, "/brief/a", "/sub/a"),
    same(Config, fun(Port) -> [{nothing_comes, without_etag(request(Port, <<"GET">>, Path(Port), []))}] end).

%% The tag of Nchan has nothing that a client could use.
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
        {200, _, Text} = read_stream(
            begin_request(Port, <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]), <<"three\n\n">>
        ),
        {match, [_, Second | _]} = re:run(Text, "id: ([0-9:]+)", [global, {capture, all_but_first, list}]),
        Again = begin_request(Port, <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}, {"Last-Event-ID", Second}]),
        ByQuery = begin_request(Port, <<"GET">>, ["/sub/a?last_event_id=", Second], [{"Accept", "text/event-stream"}]),
        [{again, read_stream(Again, <<"three\n\n">>)}, {by_query, read_stream(ByQuery, <<"three\n\n">>)}]
    end).

chunked(Config) -> bytes(Config, fun(_) -> "/sub/a" end, [{"TE", "chunked"}]).

multipart(Config) -> bytes(Config, fun(_) -> "/sub/a" end, [{"Accept", "multipart/mixed"}]).

raw(Config) ->
    set(#{plain => raw, publishers => any}),
    bytes(Config, by_configuration(Config, "/raw/a", "/sub/a"), []).

%% Messages that are kept, messages that come, and the end.
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
    Path = by_configuration(Config, "/poll/a", "/sub/a"),
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

%% Events of a channel in another channel: subscriptions that begin and end, publications, and the deletion.
channel_events(Config) ->
    set(#{publishers => any}),
    ok = weir_pubsub:configure(#{channels => [{<<"watched">>, #{events => <<"ev">>}}]}),
    #{port := Nchan} = proplists:get_value(nchan, Config),
    [Theirs, Ours] = [
        begin
            Events = begin_request(Port, <<"GET">>, Told, [{"Accept", "text/event-stream"}]),
            %% One after the other: the order of events from two places is not defined.
            Then = fun(Bytes, Act, Event) ->
                Act(),
                read_until(Events, <<"data: ", Event/binary, " watched\n\n">>, Bytes)
            end,
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

%% A message restarts the timeout.
streams_time_out(Config) ->
    set(#{publishers => any, stream_timeout => 1000}),
    Path = by_configuration(Config, "/brief/a", "/sub/a"),
    same(Config, fun(Port) -> at_the_end_of_the_time(Port, Path(Port)) end).

at_the_end_of_the_time(Port, Path) ->
    [Stream, Parts, Chunks] = Asked = [
        begin_request(Port, <<"GET">>, Path, [Field])
     || Field <- [{"Accept", "text/event-stream"}, {"Accept", "multipart/mixed"}, {"TE", "chunked"}]
    ],
    {_, WebSocket} = weir_pubsub_nchan:websocket(Port, Path, none),
    %% Their timeout is not over, and would be a second from now.
    timer:sleep(500),
    Begin = erlang:monotonic_time(millisecond),
    {_, _, Published} = publish(Port, "a", <<"x">>),
    case binary:match(Published, <<"active subscribers: 4">>) of
        {_, _} ->
            Frames = weir_pubsub_nchan:frames(WebSocket, 2),
            {Status, Fields, Body} = answer(Stream),
            Ends = [
                %% Our comment follows the standard, Nchan's does not.
                {stream, {Status, Fields, re:replace(Body, ": 408: 408", ":408: 408", [{return, binary}])}},
                {parts, answer(Parts)},
                {chunks, answer(Chunks)},
                {websocket, {200, [], term_to_binary(Frames)}}
            ],
            %% Nchan's clock is coarse.
            Took = erlang:monotonic_time(millisecond) - Begin,
            ?assert(Port =/= port() orelse Took >= 1000, Took),
            Ends;
        nomatch ->
            %% On this machine the timeout was over, or some clients had not come yet.
            [ok = gen_tcp:close(Socket) || Socket <- [WebSocket | Asked]],
            {200, _, _} = request(Port, <<"DELETE">>, "/pub/a", []),
            at_the_end_of_the_time(Port, Path)
    end.

%% Each message gets the response of a request, in order.
websocket_for_publishers(Config) ->
    same_frames(Config, fun(Port) ->
        [
            begin
                {Answer, Socket} = weir_pubsub_nchan:websocket(Port, Path, Protocol),
                [
                    ok = weir_pubsub_nchan:send_frame(Socket, Opcode, Data)
                 || {Opcode, Data} <- [{1, <<"hello">>}, {2, <<0, 255>>}, {1, <<>>}]
                ],
                Frames = [answered(Frame) || Frame <- weir_pubsub_nchan:frames(Socket, 3)],
                ok = gen_tcp:close(Socket),
                {Answer, Frames, [
                    element(3, normal(request(Port, <<"GET">>, ["/pub/", Name], [])))
                 || Name <- ["a", "b"]
                ]}
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
            {wrong,
                request(Port, <<"GET">>, "/sub/a", [{"If-Modified-Since", "Sat, 21 Nov 2026 23:13:24 GMT"} | Origin])}
        ]
    end).
