%% Event streams: beginning, end, senders, and slow clients.
-module(weir_http_streams_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, connect/2, send/2, close/1, response/1, response/2, get/1, chunk/1, rest/1]).
-import(weir_http_event_client, [open/1, open/2, events/1]).
-import(weir_http_funs, [closed/0]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, begin_and_end}, {group, sending}, {group, slow_clients}].

groups() ->
    [
        {begin_and_end, [], [
            a_stream_in_chunks,
            a_stream_for_an_old_client,
            a_stream_for_head,
            fields_and_retry,
            what_cannot_begin_is_a_500,
            it_ends_when_its_handler_says_so,
            it_ends_with_its_client,
            requests_behind_it_are_not_answered,
            a_drain_ends_it_and_says_when_to_come_back,
            a_drain_that_is_spread,
            bytes_in_place_of_events
        ]},
        {sending, [], [
            any_process_sends,
            messages_become_events,
            bytes_that_are_framed,
            a_handler_hears_when_all_is_written,
            nothing_is_written_while_something_waits,
            messages_from_before_it_is_open_come_after,
            monitors_become_events,
            heartbeats_come,
            wrong_events_are_the_callers_fault,
            a_callback_that_fails_closes_it
        ]},
        {slow_clients, [], [
            events_for_a_slow_client_are_dropped,
            a_slow_client_is_closed,
            what_exceeds_the_send_queue_closes_it,
            a_client_that_takes_nothing_is_closed,
            a_group_that_disconnects
        ]}
    ].

start(Funs) -> weir_http_funs:start(?LISTENER, events, Funs).

start(Funs, Options) -> weir_http_funs:start(?LISTENER, events, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Beginning and end.

a_stream_in_chunks(_Config) ->
    Port = start(#{open => fun(_, State) -> {send, [#{data => "one"}, #{data => "two"}], State} end}),
    {_, Client, Fields} = open(Port),
    ?assertMatch(#{
        <<"content-type">> := <<"text/event-stream">>, <<"cache-control">> := <<"no-cache">>,
        <<"transfer-encoding">> := <<"chunked">>, <<"connection">> := <<"close">>
    }, Fields),
    ?assertEqual(<<"data: one\n\ndata: two\n\n">>, chunk(Client)),
    ?waitEqual(1, counter(streams)).

a_stream_for_an_old_client(_Config) ->
    Port = start(#{
        open => fun(_, State) -> {send, #{data => "one"}, State} end, info => fun(stop, State) -> {close, State} end
    }),
    {Stream, Client, Fields} = open(connect(Port), "GET /go HTTP/1.0\r\n\r\n"),
    ?assertNot(is_map_key(<<"transfer-encoding">>, Fields)),
    ok = weir_http_events:tell(Stream, stop),
    ?assertEqual(<<"data: one\n\n">>, rest(Client)).

a_stream_for_head(_Config) ->
    Port = start(#{}),
    Client = connect(Port),
    ok = send(Client, "HEAD /go HTTP/1.1\r\nHost: a\r\n\r\n"),
    {200, #{<<"content-type">> := <<"text/event-stream">>}, <<>>} = response(Client, #{is_head => true}),
    ok = send(Client, get("/direct")),
    {200, _, <<"direct">>} = response(Client),
    ?assertEqual(0, counter(streams)).

fields_and_retry(_Config) ->
    Port = start(#{options => #{fields => [{<<"Cache-Control">>, <<"private">>}, {<<"x-a">>, <<"b">>}], retry => 777}}),
    {_, Client, Fields} = open(Port),
    ?assertMatch(
        #{<<"cache-control">> := <<"private">>, <<"x-a">> := <<"b">>, <<"content-type">> := <<"text/event-stream">>},
        Fields
    ),
    ?assertEqual(<<"retry: 777\n\n">>, chunk(Client)).

what_cannot_begin_is_a_500(_Config) ->
    Wrong = [
        {events, no_such_module, x},
        {events, lists, x},
        {events, weir_http_funs, #{}, #{heartbeat => 0}},
        {events, weir_http_funs, #{}, #{slow => wait}},
        {events, weir_http_funs, #{}, #{retry => infinity}},
        {events, weir_http_funs, #{}, #{other => 1}},
        {events, weir_http_funs, #{}, #{body => bytes}},
        {events, weir_http_funs, #{}, #{fields => [{<<"x">>, <<"a\nb">>}]}},
        {events, weir_http_funs}
    ],
    Port = start(#{}),
    ok = weir_http:set_routes(?LISTENER, [
        {"/" ++ integer_to_list(N), weir_http_echo, {call, fun(_) -> Result end}}
     || {N, Result} <- lists:zip(lists:seq(1, length(Wrong)), Wrong)
    ]),
    Client = connect(Port),
    [
        begin
            ok = send(Client, get(["/", integer_to_list(N)])),
            ?assertMatch({N, {500, _, _}}, {N, response(Client)})
        end
     || N <- lists:seq(1, length(Wrong))
    ],
    ?waitEqual(length(Wrong), counter(crashes)),
    ?assertEqual(0, counter(streams)).

it_ends_when_its_handler_says_so(_Config) ->
    Port = start(#{info => fun({stop, Events}, State) -> {close, Events, State} end}),
    {Stream, Client, _} = open(Port),
    ok = weir_http_events:tell(Stream, {stop, #{data => "last"}}),
    ?assertEqual([{<<"message">>, <<"last">>, <<>>}], events(Client)),
    ?assertEqual(closed, closed()),
    ?waitEqual({error, closed}, weir_http_events:tell(Stream, late)).

it_ends_with_its_client(_Config) ->
    Port = start(#{}),
    {Stream, Client, _} = open(Port),
    ok = close(Client),
    ?assertEqual({lost, closed}, closed()),
    ?waitEqual({error, closed}, weir_http_events:send(Stream, #{data => "late"})),
    receive {closed, Twice} -> error(Twice) after 0 -> ok end.

requests_behind_it_are_not_answered(_Config) ->
    Port = start(#{info => fun(stop, State) -> {close, #{data => "x"}, State} end}),
    {Stream, Client, _} = open(connect(Port), [get("/go"), get("/direct"), get("/direct")]),
    ok = send(Client, get("/direct")),
    ok = weir_http_events:tell(Stream, stop),
    ?assertEqual([{<<"message">>, <<"x">>, <<>>}], events(Client)),
    ?waitEqual(1, counter(requests)).

a_drain_ends_it_and_says_when_to_come_back(_Config) ->
    Port = start(#{options => #{retry => 100}}, #{idle_timeout => 200}),
    {_, Client, _} = open(Port),
    <<"retry: 100\n\n">> = chunk(Client),
    ok = weir_http:drain_listener(?LISTENER, weir_test_wait:patience()),
    <<"retry: ", Text/binary>> = chunk(Client),
    {Later, <<"\n\n">>} = string:to_integer(Text),
    ?assert(Later > 100 andalso Later =< 200),
    ?assertEqual(done, chunk(Client)),
    ?assertEqual(drained, closed()).

%% With a spread of an hour, few streams end within the first ticks; without spread all would. With a short spread all
%% end.
a_drain_that_is_spread(_Config) ->
    Self = self(),
    Port = start(#{options => #{heartbeat => 50}}, #{body_timeout => 100}),
    Clients = [Client || _ <- lists:seq(1, 40), {_, Client, _} <- [open(Port)]],
    Wrong = weir_http:drain_listener(?LISTENER, 10, #{spread => 11}),
    ?assertEqual({error, {bad_option, spread, 11, "milliseconds from 0 to the timeout"}}, Wrong),
    Hour = 3_600_000,
    Drain = spawn(fun() -> weir_http:drain_listener(?LISTENER, Hour, #{spread => Hour}) end),
    ?waitEqual(suspended, map_get(status, weir_http:info(?LISTENER))),
    %% A tick passes with each heartbeat.
    ?assert(length([Client || Client <- Clients, beats(Client, 3)]) > 20),
    true = exit(Drain, kill),
    ok = weir_http:stop_listener(?LISTENER),
    _ = weir_test_wait:messages(),
    Other = start(#{}, #{body_timeout => 100}),
    Last = [Client || _ <- lists:seq(1, 40), {_, Client, _} <- [open(Other)]],
    _ = spawn_link(fun() ->
        Self ! {drained, weir_http:drain_listener(?LISTENER, weir_test_wait:patience(), #{spread => 200})}
    end),
    [<<"retry: ", _/binary>> = chunk(Client) || Client <- Last],
    receive
        {drained, Result} -> ?assertEqual(ok, Result)
    end.

beats(_Client, 0) -> true;
beats(Client, Count) -> chunk(Client) =:= <<":\n\n">> andalso beats(Client, Count - 1).

%% Heartbeats or `retry' would become part of the body.
bytes_in_place_of_events(_Config) ->
    Port = start(#{options => #{body => {bytes, <<"end">>}, heartbeat => 50, retry => 100}}, #{body_timeout => 100}),
    {Stream, Client, Fields} = open(Port),
    ?assertNot(is_map_key(<<"content-type">>, Fields)),
    ?assertNot(is_map_key(<<"cache-control">>, Fields)),
    {ok, Group} = weir_group:new(#{}),
    ok = weir_group:join(Group, Stream),
    %% More than two ticks.
    timer:sleep(100),
    {ok, 1} = weir_group:broadcast(Group, weir_http_events:chunk(<<"some">>)),
    ?assertEqual(<<"some">>, chunk(Client)),
    ok = weir_http:drain_listener(?LISTENER, weir_test_wait:patience()),
    ?assertEqual([<<"end">>, done], [chunk(Client), chunk(Client)]),
    ?assertEqual(drained, closed()).

%%% Sending.

any_process_sends(_Config) ->
    Port = start(#{}),
    {Stream, Client, _} = open(Port),
    Senders = [
        spawn_monitor(fun() ->
            [
                ok = weir_http_events:send(Stream, #{data => [integer_to_list(Sender), $:, integer_to_list(N)]})
             || N <- lists:seq(1, 50)
            ]
        end)
     || Sender <- lists:seq(1, 4)
    ],
    [
        receive
            {'DOWN', Monitor, process, Pid, normal} -> ok
        end
     || {Pid, Monitor} <- Senders
    ],
    Got = [chunk(Client) || _ <- lists:seq(1, 200)],
    [
        ?assertEqual(
            [
                iolist_to_binary(["data: ", integer_to_list(Sender), $:, integer_to_list(N), "\n\n"])
             || N <- lists:seq(1, 50)
            ],
            [Chunk || <<"data: ", Of, _/binary>> = Chunk <- Got, Of =:= Sender + $0]
        )
     || Sender <- lists:seq(1, 4)
    ].

messages_become_events(_Config) ->
    Port = start(#{info => fun
        ({add, N}, State = #{sum := Sum}) -> {send, #{data => integer_to_list(Sum + N)}, State#{sum => Sum + N}};
        (nothing, State) -> {ok, State};
        (many, State) -> {send, [], State}
    end, sum => 0}),
    {Stream, Client, _} = open(Port),
    [ok = weir_http_events:tell(Stream, Message) || Message <- [{add, 1}, nothing, many, {add, 2}, {add, 3}]],
    ?assertEqual([<<"data: 1\n\n">>, <<"data: 3\n\n">>, <<"data: 6\n\n">>], [chunk(Client) || _ <- [1, 2, 3]]).

%% Framed events and bytes, to clients of both versions.
bytes_that_are_framed(_Config) ->
    Go = fun(go, State) -> {send, {framed, weir_http_events:frame(#{data => "framed"})}, State} end,
    [
        begin
            Port = start(#{info => Go, options => Options}),
            {Stream, Client, _} = open(Port),
            ok = weir_http_events:tell(Stream, go),
            ?assertEqual(<<"data: framed\n\n">>, chunk(Client)),
            ok = weir_http:stop_listener(?LISTENER)
        end
     || Options <- [#{}, #{body => {bytes, <<>>}}]
    ].

a_handler_hears_when_all_is_written(_Config) ->
    Port = start(#{
        open => fun(Stream, State) -> {ok, State#{stream => Stream}} end,
        info => fun(go, #{stream := Stream} = State) ->
            ok = weir:notify_writable(Stream),
            {send, #{data => "sent"}, State}
        end,
        written => fun(_Stream, State) -> {send, #{data => "written"}, State} end
    }),
    {Stream, Client, _} = open(Port),
    ok = weir_http_events:tell(Stream, go),
    ?assertEqual([<<"data: sent\n\n">>, <<"data: written\n\n">>], [chunk(Client), chunk(Client)]).

%% Not called when the queue of a slow client has only fallen to the low watermark and reading resumes.
nothing_is_written_while_something_waits(_Config) ->
    Self = self(),
    Port = start(
        #{
            open => fun(Stream, State) -> {ok, State#{stream => Stream}} end,
            info => fun(Data, State = #{stream := Stream}) ->
                ok = weir:notify_writable(Stream),
                {send, #{data => Data}, State}
            end,
            written => fun(Stream, State) ->
                Self ! {pending, weir_http_socket:pending(Stream)},
                {ok, State}
            end
        },
        #{socket_opts => [{sndbuf, 4096}, {high_watermark, 65536}, {low_watermark, 65536}]}
    ),
    {Stream, Client, _} = open(connect(Port, [{recbuf, 4096}]), get("/go")),
    Data = binary:copy(<<"x">>, 300_000),
    ok = weir_http_events:tell(Stream, Data),
    ?assertEqual(<<"data: ", Data/binary, "\n\n">>, chunk(Client)),
    ?assertEqual({pending, 0}, weir_test_wait:next_message()).

messages_from_before_it_is_open_come_after(_Config) ->
    Port = start(#{
        handle => fun(Request, State) ->
            Stream = weir_http_request:socket(Request),
            [ok = weir_http_events:tell(Stream, N) || N <- [1, 2, 3]],
            {events, weir_http_funs, State}
        end,
        open => fun(_, State) -> {send, #{data => "open"}, State} end,
        info => fun
            (3, State) -> {close, #{data => "3"}, State};
            (N, State) -> {send, #{data => integer_to_list(N)}, State}
        end
    }),
    {_, Client, _} = open(Port),
    ?assertEqual([<<"open">>, <<"1">>, <<"2">>, <<"3">>], [Data || {_, Data, _} <- events(Client)]).

monitors_become_events(_Config) ->
    Watched = spawn(fun() -> receive stop -> ok end end),
    Port = start(#{
        open => fun(Stream, State) ->
            _ = erlang:monitor(process, Watched, [{tag, {weir_reactor, Stream}}]),
            {ok, State}
        end,
        %% The process may end before the monitor is set: then the reason is `noproc'.
        info => fun({_, _, process, Pid, _Reason}, State) when Pid =:= Watched -> {send, #{data => "down"}, State} end
    }),
    {_, Client, _} = open(Port),
    Watched ! stop,
    ?assertEqual(<<"data: down\n\n">>, chunk(Client)).

heartbeats_come(_Config) ->
    Port = start(#{options => #{heartbeat => 50}}, #{body_timeout => 100}),
    {_, Client, _} = open(Port),
    ?assertEqual([<<":\n\n">>, <<":\n\n">>], [chunk(Client), chunk(Client)]).

wrong_events_are_the_callers_fault(_Config) ->
    Port = start(#{}),
    {Stream, Client, _} = open(Port),
    ?assertError({bad_option, id, <<"a\nb">>, _}, weir_http_events:send(Stream, #{id => <<"a\nb">>})),
    ok = weir_http_events:send(Stream, #{data => "right"}),
    ?assertEqual(<<"data: right\n\n">>, chunk(Client)).

a_callback_that_fails_closes_it(_Config) ->
    Bad = #{
        raises => fun(State) -> error({State, secret}) end,
        wrong_event => fun(State) -> {send, #{id => "a\nb"}, State} end,
        wrong_result => fun(_) -> nonsense end
    },
    Port = start(#{info => fun(What, State) -> (maps:get(What, Bad))(State) end}),
    [
        begin
            {Stream, Client, _} = open(Port),
            ok = weir_http_events:tell(Stream, What),
            ?assertEqual([], events(Client)),
            ?assertMatch({crashed, {error, _}}, closed())
        end
     || What <- maps:keys(Bad)
    ],
    ?waitEqual(3, counter(crashes)).

%%% Slow clients.

%% A client with small buffers that does not read, and a stream with much waiting output. The kernels accept some tens
%% of kilobytes; the rest keeps waiting. (While many sends are in progress, output may also wait because the current
%% call of the reactor has no time for it. It goes out with the next.)
slow(Funs, Options) ->
    Port = start(Funs, Options#{socket_opts => [{sndbuf, 16384}]}),
    {Stream, Client, _} = open(connect(Port, [{recbuf, 4096}]), get("/go")),
    ok = weir_http_events:send(Stream, #{data => binary:copy(<<"x">>, 500000)}),
    wait_until(fun() ->
        case inet:getstat(Stream, [send_pend]) of
            {ok, [{send_pend, Pending}]} -> Pending > 65536;
            {error, _} -> true
        end
    end),
    {Stream, Client}.

events_for_a_slow_client_are_dropped(_Config) ->
    {Stream, Client} = slow(#{options => #{slow => drop}}, #{}),
    wait_until(fun() ->
        ok = weir_http_events:send(Stream, #{data => "dropped"}),
        counter(stream_dropped) > 0
    end),
    %% Events that were not dropped are complete, and the stream continues.
    Reader = spawn_monitor(fun() -> receive go -> ok end, exit(last(Client, <<>>)) end),
    ok = gen_tcp:controlling_process(Client, element(1, Reader)),
    element(1, Reader) ! go,
    ?waitEqual({ok, [{send_pend, 0}]}, inet:getstat(Stream, [send_pend])),
    ok = weir_http_events:send(Stream, #{data => "the last"}),
    receive {'DOWN', _, process, _, seen} -> ok end.

last(Client, Tail) ->
    case binary:match(Tail, <<"data: the last\n\n\r\n">>) of
        nomatch ->
            {ok, Bytes} = weir_http_client:recv(Client, weir_test_wait:patience()),
            last(Client, <<(binary:part(Tail, byte_size(Tail), -min(byte_size(Tail), 100)))/binary, Bytes/binary>>);
        _ ->
            seen
    end.

a_slow_client_is_closed(_Config) ->
    {Stream, _Client} = slow(#{}, #{}),
    _ = weir_http_events:send(Stream, #{data => "too much"}),
    ?assertEqual(slow, closed()),
    ?waitEqual(1, counter(stream_slow)).

%% The limit of the reactor for all output of a connection.
what_exceeds_the_send_queue_closes_it(_Config) ->
    Port = start(#{options => #{max_pending => 1 bsl 30}}, #{reactor => #{max_send_queue => 200000}}),
    {Stream, Client, _} = open(connect(Port, [{recbuf, 4096}]), get("/go")),
    Event = #{data => binary:copy(<<"x">>, 50000)},
    ?waitEqual({error, closed}, weir_http_events:send(Stream, Event)),
    ?assertEqual(slow, closed()),
    ?waitEqual(1, counter(stream_slow)),
    ok = close(Client).

a_client_that_takes_nothing_is_closed(_Config) ->
    {_, _Client} = slow(#{options => #{heartbeat => 50, max_pending => 1 bsl 30}}, #{idle_timeout => 300}),
    ?assertEqual(slow, closed()),
    ?waitEqual(1, counter(stream_slow)).

a_group_that_disconnects(_Config) ->
    {ok, Group} = weir_group:new(#{policy => disconnect, max_messages => 1}),
    Port = start(#{open => fun(Stream, State) -> ok = weir_group:join(Group, Stream), {ok, State} end}),
    Client = connect(Port, [{recbuf, 4096}]),
    {_, Client, _} = open(Client, get("/go")),
    Frame = weir_http_events:frame(#{data => binary:copy(<<"x">>, 1000000)}),
    ok = wait_until(fun() -> {ok, _} = weir_group:broadcast(Group, Frame), weir_group:size(Group) =:= 0 end),
    ?assertEqual(slow, closed()),
    ?waitEqual(1, counter(stream_slow)).
