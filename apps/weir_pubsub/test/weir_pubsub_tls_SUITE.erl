%% A push server with TLS: connections are processes, which subscribe and write themselves. With curl, and with
%% sockets of ssl; weir_pubsub_script_SUITE does the same with the client for browsers.
-module(weir_pubsub_tls_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-define(SECRET, <<"a secret of thirty-two bytes or more">>).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        curl_polls,
        several_in_an_answer,
        curl_reads_streams,
        several_channels,
        positions_go_on,
        nchan_websocket,
        deleted,
        an_update_of_mercure,
        a_slow_reader_is_told_of_the_gap,
        publishers_at_once,
        a_shard_is_killed,
        unsubscribed_as_a_shard_is_killed,
        rights_that_are_waited_for,
        certificates_are_read_again
    ].

init_per_testcase(Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    {ok, _} = application:ensure_all_started(ssl),
    Directory = filename:join(proplists:get_value(priv_dir, Config), Case),
    ok = filelib:ensure_path(Directory),
    _ = certificates(Directory),
    ok = file:write_file(filename:join(Directory, "secret"), ?SECRET),
    {ok, Server} = weir_pubsub_server:start(settings(Directory)),
    [Port] = weir_pubsub_server:ports(Server),
    _ = put(port, Port),
    [{directory, Directory}, {server, Server} | Config].

end_per_testcase(_Case, _Config) ->
    _ = [weir_http:stop_listener(Name) || Name = {weir_pubsub_server, _, _} <- weir_listener:names()],
    ok = application:stop(weir_pubsub).

%% Returns the certificate of the server.
certificates(Directory) ->
    Certificates = weir_compatibility_certificates:make(),
    _ = weir_compatibility_certificates:write(Certificates, Directory),
    proplists:get_value(cert, maps:get(server, Certificates)).

settings(Directory) ->
    File = filename:join(Directory, "push.toml"),
    ok = file:write_file(File,
        "[[listeners]]\ntls = {cert = 'server-certificate.pem', key = 'server-key.pem'}\n"
        "[tokens]\nsecrets = ['secret']\nrequire_exp = false\n[mercure]\nsubscriptions = true\n"
        "[[channels]]\npattern = 'small'\nmax_messages = 5\n"
        "[[channels]]\npattern = 'all'\nmax_messages = 100\n"
    ),
    {ok, Settings} = weir_pubsub_file:read(File),
    Settings.

%% Programs ------------------------------------------------------------------------------

url(Path) -> lists:concat(["https://localhost:", get(port), Path]).

%% It ends if the case fails.
curl(Arguments) ->
    case os:find_executable("curl") of
        false ->
            throw({skip, "curl is missing (scripts/setup test)"});
        Curl ->
            open_port({spawn_executable, os:find_executable("setpriv")}, [
                {args, [
                    "--pdeathsig",
                    "TERM",
                    Curl,
                    "-sSkN",
                    "--max-time",
                    "600"
                    | [unicode:characters_to_binary(A) || A <- Arguments]
                ]},
                exit_status,
                binary
            ])
    end.

said(Program) -> said(Program, <<>>).

said(Program, Bytes) ->
    receive
        {Program, {data, More}} -> said(Program, <<Bytes/binary, More/binary>>);
        {Program, {exit_status, 0}} -> Bytes
    after weir_test_wait:patience() -> ct:fail({nothing, Bytes})
    end.

said_until(Program, Word) -> said_until(Program, Word, <<>>).

said_until(Program, Word, Bytes) ->
    case binary:match(Bytes, Word) of
        nomatch ->
            receive
                {Program, {data, More}} -> said_until(Program, Word, <<Bytes/binary, More/binary>>)
            after weir_test_wait:patience() -> ct:fail({nothing, Bytes})
            end;
        _ ->
            Bytes
    end.

closed(Program) ->
    {os_pid, Pid} = erlang:port_info(Program, os_pid),
    _ = os:cmd("kill " ++ integer_to_list(Pid)),
    receive {Program, {exit_status, _}} -> ok after weir_test_wait:patience() -> ct:fail(curl_does_not_end) end.

subscribed(Channel) ->
    ?waitMatch({ok, #{subscribers := 1}}, weir_pubsub:info(Channel)),
    ok.

publish(Channel, Data) ->
    {ok, #{id := Id}} = weir_pubsub:publish(Channel, Data),
    weir_pubsub_id:to_text(Id).

curl_polls(_Config) ->
    %% A poll that waits, and one that need not.
    Held = curl([url("/sub/a")]),
    ok = subscribed(<<"a">>),
    Published = curl(["-d", "one", url("/pub/a")]),
    ?assertMatch({_, _}, binary:match(said(Published), <<"queued messages: 1">>)),
    ?assertEqual(<<"one">>, said(Held)),
    ?assertEqual(<<"one">>, said(curl([url("/sub/a?from=oldest")]))).

%% The process of a connection gets the first message, and reads the others.
several_in_an_answer(_Config) ->
    _ = [publish(<<"a">>, Data) || Data <- ["one", "two", "three"]],
    Said = said(curl([url("/sub/a?poll_answer=multipart")])),
    ?assertMatch(
        {match, _},
        re:run(
            Said,
            "^--[0-9A-F]{32}\r\n\r\none\r\n--[0-9A-F]{32}\r\n\r\ntwo\r\n"
            "--[0-9A-F]{32}\r\n\r\nthree\r\n--[0-9A-F]{32}--\r\n$"
        )
    ).

curl_reads_streams(_Config) ->
    Streams = [
        {curl(["-H", Field, url("/sub/a")]), Frame}
     || {Field, Frame} <- [
            {"Accept: text/event-stream", <<"data: two\n\n">>},
            {"TE: chunked", <<"onetwo">>},
            {"Accept: multipart/mixed", <<"\r\ntwo\r\n--">>}
        ]
    ],
    ?waitMatch({ok, #{subscribers := 3}}, weir_pubsub:info(<<"a">>)),
    [publish(<<"a">>, Data) || Data <- [<<"one">>, <<"two">>]],
    [said_until(Stream, Frame) || {Stream, Frame} <- Streams],
    [closed(Stream) || {Stream, _} <- Streams],
    %% The end of a client is noticed.
    ?waitMatch({ok, #{subscribers := 0}}, weir_pubsub:info(<<"a">>)).

several_channels(_Config) ->
    Stream = curl(["-H", "Accept: text/event-stream", url("/sub/a,b")]),
    [subscribed(Channel) || Channel <- [<<"a">>, <<"b">>]],
    [publish(Channel, Data) || {Channel, Data} <- [{<<"a">>, <<"one">>}, {<<"b">>, <<"two">>}]],
    Heard = said_until(Stream, <<"data: two">>),
    ?assertMatch({_, _}, binary:match(Heard, <<"data: one">>)),
    closed(Stream).

%% Ids are those of the messages, also when the connection frames them itself.
positions_go_on(_Config) ->
    [First, Second, Third] = [publish(<<"a">>, Data) || Data <- [<<"1">>, <<"2">>, <<"3">>]],
    Stream = curl(["-H", "Accept: text/event-stream", "-H", ["Last-Event-ID: ", First], url("/sub/a")]),
    Heard = said_until(Stream, <<"data: 3\n\n">>),
    closed(Stream),
    ?assertEqual([[Second], [Third]], ids(Heard)).

ids(Heard) ->
    {match, Ids} = re:run(Heard, "^id: (.*)$", [global, multiline, {capture, all_but_first, binary}]),
    Ids.

%% Sockets -------------------------------------------------------------------------------

connect() -> connect([]).

connect(Options) ->
    {ok, Socket} = ssl:connect(
        "localhost", get(port), [binary, {active, false}, {verify, verify_none} | Options], weir_test_wait:patience()
    ),
    Socket.

asked(Path, Fields) -> asked(Path, Fields, []).

asked(Path, Fields, Options) ->
    Socket = connect(Options),
    ok = ssl:send(Socket, [
        "GET ",
        Path,
        " HTTP/1.1\r\nHost: localhost\r\n",
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields],
        "\r\n"
    ]),
    Socket.

heard_until(Socket, Word) -> heard_until(Socket, Word, <<>>, 0).

%% The word begins at From or later.
heard_until(Socket, Word, Bytes, From) ->
    case binary:match(Bytes, Word, [{scope, {From, byte_size(Bytes) - From}}]) of
        nomatch ->
            case ssl:recv(Socket, 0, weir_test_wait:patience()) of
                {ok, More} ->
                    heard_until(
                        Socket, Word, <<Bytes/binary, More/binary>>, max(0, byte_size(Bytes) - byte_size(Word))
                    );
                {error, Reason} ->
                    ct:fail({Reason, Bytes})
            end;
        _ ->
            Bytes
    end.

websocket(Path) ->
    Socket = asked(Path, [
        {"Connection", "Upgrade"}, {"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"},
        {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
    ]),
    _ = heard_until(Socket, <<"\r\n\r\n">>),
    Socket.

nchan_websocket(_Config) ->
    [Reader, Writer] = [websocket(Path) || Path <- ["/sub/a", "/pub/a"]],
    ok = subscribed(<<"a">>),
    ok = ssl:send(Writer, <<16#81, 1:1, 2:7, 0:32, "hi">>),
    _ = heard_until(Reader, <<16#81, 2, "hi">>),
    _ = heard_until(Writer, <<"queued messages: 1">>),
    [ok = ssl:close(Socket) || Socket <- [Reader, Writer]].

deleted(_Config) ->
    Socket = asked("/sub/a", [{"Accept", "text/event-stream"}]),
    ok = subscribed(<<"a">>),
    {ok, _} = weir_pubsub:delete(<<"a">>),
    _ = heard_until(Socket, <<"410 Gone">>).

an_update_of_mercure(_Config) ->
    Url = fun(Bytes) ->
        <<
            <<
                (case C of
                    $+ -> $-;
                    $/ -> $_;
                    _ -> C
                end)
            >>
         || <<C>> <= base64:encode(Bytes), C =/= $=
        >>
    end,
    Signed = <<
        (Url(<<"{\"alg\":\"HS256\"}">>))/binary,
        $.,
        (Url(<<"{\"mercure\":{\"publish\":[\"*\"],\"subscribe\":[\"*\"]}}">>))/binary
    >>,
    Token = [Signed, $., Url(crypto:mac(hmac, sha256, ?SECRET, Signed))],
    Hub = url("/.well-known/mercure"),
    Before = maps:get(subscribed, weir_pubsub:counters()),
    Stream = curl([Hub ++ "?topic=a"]),
    ?waitEqual(Before + 1, maps:get(subscribed, weir_pubsub:counters())),
    _ = said(curl(["-H", ["Authorization: Bearer ", Token], "-d", "topic=a&data=one", Hub])),
    _ = said_until(Stream, <<"data: one">>),
    %% Subscriptions are reported, and their ends.
    Tells = fun() -> said(curl(["-H", ["Authorization: Bearer ", Token], Hub ++ "/subscriptions"])) end,
    ?waitMatch({_, _}, binary:match(Tells(), <<"\"topic\":\"a\"">>)),
    closed(Stream),
    ?waitMatch({_, _}, binary:match(Tells(), <<"\"subscriptions\":[]">>)).

%% Messages that do not fit into sockets wait in the history, which drops the oldest; other clients do not wait.
a_slow_reader_is_told_of_the_gap(_Config) ->
    Slow = asked("/sub/small", [{"Accept", "text/event-stream"}], [{recbuf, 4096}]),
    Quick = asked("/sub/small", [{"Accept", "text/event-stream"}]),
    ?waitMatch({ok, #{subscribers := 2}}, weir_pubsub:info(<<"small">>)),
    Data = binary:copy(<<"x">>, 50000),
    [
        begin
            Word = integer_to_binary(Number),
            _ = publish(<<"small">>, <<Data/binary, "<", Word/binary, ">">>),
            heard_until(Quick, <<"<", Word/binary, ">">>)
        end
     || Number <- lists:seq(1, 100)
    ],
    Heard = heard_until(Slow, <<"<100>">>),
    {match, Numbers} = re:run(Heard, "<([0-9]+)>", [global, {capture, all_but_first, list}]),
    Got = [list_to_integer(Number) || [Number] <- Numbers],
    {match, Gaps} = re:run(Heard, "event: gap\\n(?:id: [0-9:]+\\n)?data: ([0-9]+)", [
        global, {capture, all_but_first, list}
    ]),
    ?assertEqual(lists:usort(Got), Got),
    ?assertEqual(100, length(Got) + lists:sum([list_to_integer(Count) || [Count] <- Gaps])).

publishers_at_once(_Config) ->
    Stream = asked("/sub/all", [{"Accept", "text/event-stream"}]),
    ok = subscribed(<<"all">>),
    Publishers = [
        spawn_monitor(fun() ->
            _ = put(port, Port),
            Socket = connect(),
            [
                begin
                    ok = ssl:send(Socket, "POST /pub/all HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"),
                    heard_until(Socket, <<"queued messages">>)
                end
             || _ <- lists:seq(1, 20)
            ]
        end)
     || Port <- [get(port)], _ <- lists:seq(1, 5)
    ],
    [?assertEqual(normal, weir_pubsub_test:ended(Publisher)) || Publisher <- Publishers],
    Heard = heard_until(Stream, <<":100\n">>),
    Numbers = [binary_to_integer(lists:last(binary:split(Id, <<":">>))) || [Id] <- ids(Heard)],
    ?assertEqual(lists:seq(1, 100), Numbers).

%% Like a subscribing process it is subscribed again, and gets a gap.
a_shard_is_killed(_Config) ->
    Socket = asked("/sub/a", [{"Accept", "text/event-stream"}]),
    ok = subscribed(<<"a">>),
    ok = weir_pubsub_test:kill_shard_of(<<"a">>),
    _ = heard_until(Socket, <<"event: gap">>),
    _ = publish(<<"a">>, <<"one">>),
    _ = heard_until(Socket, <<"data: one">>).

%% Requests in its mailbox are lost. The next shard does not take over subscriptions that were ended.
unsubscribed_as_a_shard_is_killed(_Config) ->
    Socket = websocket("/ws"),
    Say = fun(Type) ->
        Text = <<"{\"type\":\"", Type/binary, "\",\"channel\":\"a\"}">>,
        ok = ssl:send(Socket, [<<16#81, 1:1, (byte_size(Text)):7, 0:32>>, Text])
    end,
    Say(<<"subscribe">>),
    ok = subscribed(<<"a">>),
    Shard = whereis(weir_pubsub_test:shard_of(<<"a">>)),
    ok = weir_pubsub_test:suspend(Shard),
    Say(<<"unsubscribe">>),
    ok = weir_pubsub_test:until_asked([<<"a">>], 1),
    true = exit(Shard, kill),
    _ = heard_until(Socket, <<"\"unsubscribed\"">>),
    ?waitMatch({ok, #{subscribers := 0}}, weir_pubsub:usage(total)),
    ok = ssl:close(Socket).

%% Each of several requests is decided, and answered one after the other.
rights_that_are_waited_for(_Config) ->
    Route = weir_pubsub_ws:route(#{may => fun(_, _, Channel) -> {wait, fun() -> Channel =:= <<"a">> end} end}),
    [Name] = [Name || Name = {weir_pubsub_server, _, _} <- weir_listener:names()],
    ok = weir_http:set_routes(Name, [Route]),
    _ = weir_pubsub:publish(<<"a">>, <<"one">>),
    Socket = websocket("/ws"),
    Texts = [
        <<"{\"type\":\"history\",\"from\":\"oldest\",\"channel\":\"", Channel/binary, "\",\"ref\":\"", Ref, "\"}">>
     || {Channel, Ref} <- [{<<"a">>, $x}, {<<"b">>, $y}, {<<"a">>, $z}]
    ],
    ok = ssl:send(Socket, [[<<16#81, 1:1, (byte_size(Text)):7, 0:32>>, Text] || Text <- Texts]),
    Heard = heard(Socket, <<>>, [<<"\"x\"">>, <<"\"y\"">>, <<"\"z\"">>]),
    ?assertEqual(2, length(binary:matches(Heard, <<"\"one\"">>))),
    ?assertEqual(1, length(binary:matches(Heard, <<"forbidden">>))),
    ok = ssl:close(Socket).

%% In any order.
heard(Socket, Bytes, Wanted) ->
    case [Each || Each <- Wanted, binary:match(Bytes, Each) =:= nomatch] =:= [] andalso binary:last(Bytes) =:= $} of
        true ->
            Bytes;
        false ->
            {ok, More} = ssl:recv(Socket, 0, weir_test_wait:patience()),
            heard(Socket, <<Bytes/binary, More/binary>>, Wanted)
    end.

%% Earlier connections keep theirs.
certificates_are_read_again(Config) ->
    Directory = proplists:get_value(directory, Config),
    Old = connect(),
    New = certificates(Directory),
    {ok, Server} = weir_pubsub_server:change(settings(Directory), proplists:get_value(server, Config)),
    Renewed = connect(),
    ?assertEqual({ok, New}, ssl:peercert(Renewed)),
    ?assertNotEqual({ok, New}, ssl:peercert(Old)),
    ok = ssl:send(Old, "GET /weir-push.js HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    _ = heard_until(Old, <<"200 OK">>),
    %% Two more files, which do not belong together: nothing is changed.
    ok = file:write_file(filename:join(Directory, "server-key.pem"), <<>>),
    {error, [{2, What}]} = weir_pubsub_file:read(filename:join(Directory, "push.toml")),
    ?assertMatch({_, _}, binary:match(What, <<"listeners.1.tls.key: ">>)),
    ok = weir_pubsub_server:stop(Server).
