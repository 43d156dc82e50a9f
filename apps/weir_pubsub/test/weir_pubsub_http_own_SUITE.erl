%% Channels over HTTP: what Nchan does not have.
-module(weir_pubsub_http_own_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [
    publish/3, wait_for_subscribers/3, request/4, request/5, begin_request/4, answer/1, read_stream/2
]).
-import(weir_pubsub_http_test, [field/2, read_until_end/2, inflated/1, read_until/2]).

-include("pubsub_http_suite.hrl").
-include("../src/weir_pubsub_subscriber.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, ours}].

groups() ->
    [
        {ours, [], [
            head, gaps, bytes_for_all_clients, a_gap_between_parts, a_gap_for_a_websocket, a_type_that_is_no_text,
            a_frame_compressed_once, two_polls_on_a_connection, fields_that_are_no_text,
            what_is_said_of_an_earlier_poll
        ]}
    ].

%% All but the body. HEAD does not wait for a message.
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

gaps(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := First}}, _, {ok, _}] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    Id = weir_pubsub_id:to_text(First),
    Poll = request(port(), <<"GET">>, "/sub/a", [{"If-None-Match", Id}]),
    {200, _, <<"3">>} = Poll,
    ?assertEqual(<<"1">>, field(<<"weir-missed">>, Poll)),
    Unknown = request(port(), <<"GET">>, "/sub/a", [{"If-None-Match", "77:1"}]),
    ?assertEqual(<<"unknown">>, field(<<"weir-missed">>, Unknown)),
    {200, _, Text} = read_stream(
        begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}, {"Last-Event-ID", Id}]),
        <<"data: 3\n\n">>
    ),
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

a_gap_between_parts(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := First}}, _, {ok, _}] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    Fields = [{"Accept", "multipart/mixed"}, {"Last-Event-ID", weir_pubsub_id:to_text(First)}],
    {200, _, Parts} = read_stream(begin_request(port(), <<"GET">>, "/sub/a", Fields), <<"\r\n\r\n3\r\n">>),
    ?assertMatch({_, _}, binary:match(Parts, <<"Content-Type: weir/gap\r\n\r\n1\r\n">>)).

%% With the subprotocol a client gets gaps; publishing over it needs the right to publish.
a_gap_for_a_websocket(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1}}]}),
    [{ok, #{id := First}}, _, _] = [weir_pubsub:publish(<<"a">>, Data) || Data <- ["1", "2", "3"]],
    set(#{}),
    {_, Socket} = weir_pubsub_nchan:websocket(
        port(), ["/pubsub/a?last_event_id=", weir_pubsub_id:to_text(First)], "ws+meta.nchan"
    ),
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

%% A publisher cannot end the connections of subscribers.
a_type_that_is_no_text(_Config) ->
    set(#{publishers => any}),
    {_, Socket} = weir_pubsub_nchan:websocket(port(), "/sub/a", "ws+meta.nchan"),
    {_, Plain} = weir_pubsub_nchan:websocket(port(), "/sub/a", none),
    ok = wait_for_subscribers(port(), "a", 2),
    _ = request(port(), <<"POST">>, "/pub/a", [{"Content-Type", <<"text/", 255>>}], <<"x">>),
    ?assertEqual([{2, <<"id: ID\ncontent-type: text/", 255, "\n\nx">>}], weir_pubsub_nchan:frames(Socket, 1)),
    ?assertEqual([{1, <<"x">>}], weir_pubsub_nchan:frames(Plain, 1)).

%% Clients with the same parameters get the same bytes; others get plain frames, or frames with their own window.
a_frame_compressed_once(_Config) ->
    set(#{publishers => any, deflate => true}),
    Offers = [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=9",
        none
    ],
    Sockets = [element(2, weir_pubsub_nchan:websocket(port(), "/sub/a", none, Offer)) || Offer <- Offers],
    ok = wait_for_subscribers(port(), "a", length(Sockets)),
    Data = binary:copy(<<"hello ">>, 40),
    _ = publish(port(), "a", Data),
    [One, Two, Three, Plain] = [
        begin
            {ok, <<Head:8, Short:8>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
            Size =
                case Short of
                    126 ->
                        {ok, <<Long:16>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
                        Long;
                    _ ->
                        Short
                end,
            {ok, Bytes} = gen_tcp:recv(Socket, Size, weir_test_wait:patience()),
            {Head, Bytes}
        end
     || Socket <- Sockets
    ],
    ?assertEqual({16#81, Data}, Plain),
    ?assertEqual(One, Two),
    [?assertEqual({16#C1, Data}, {Head, inflated(Bytes)}) || {Head, Bytes} <- [One, Three]].

%% A message that the first poll still gets is not the answer to the second.
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

%% A client may send any bytes in a field: they have no meaning, and do no harm.
fields_that_are_no_text(_Config) ->
    Bytes = <<$", 255, 254, $">>,
    ?assertMatch({202, _, _}, request(port(), <<"POST">>, "/pub/a", [{"Accept", Bytes}], <<"x">>)),
    [
        ?assertMatch({Name, {200, _, <<"x">>}}, {Name, request(port(), <<"GET">>, "/sub/a", [{Name, Bytes}])})
     || Name <- ["Accept", "TE", "Upgrade", "If-None-Match", "Etag", "Last-Event-ID"]
    ].

%% A shard that does not know yet that the poll is over may send to it when the connection is an event stream.
what_is_said_of_an_earlier_poll(_Config) ->
    Stream = begin_request(port(), <<"GET">>, "/sub/a", [{"Accept", "text/event-stream"}]),
    ok = wait_for_subscribers(port(), "a", 1),
    {ok, {_, _, Tables}} = weir_pubsub_shards:tables_of(<<"a">>),
    [{socket, #subscriber{pid = Reactor, socket = Socket}}] = weir_pubsub_subscribers:all(Tables),
    Reactor ! {{weir_reactor, Socket}, make_ref(), <<"a">>, {closed, deleted}},
    %% The message has been handled when this is answered.
    _ = weir_reactor:info(Reactor),
    {ok, #{subscribers := 1}} = weir_pubsub:publish(<<"a">>, "x"),
    {200, _, Text} = read_stream(Stream, <<"data: x\n\n">>),
    ?assertEqual(nomatch, binary:match(Text, <<"410">>)).
