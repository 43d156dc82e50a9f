%% A push server with a configuration file that changes while clients are connected.
-module(weir_pubsub_server_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4]).
-import(weir_pubsub_server_test, [file/2, settings/2, start/2, port/1, status/1, publish/3, get/3]).

-include("pubsub_server_suite.hrl").

-define(ORIGIN(Site), {"Origin", Site}).
suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        all_code_is_loaded_at_the_start,
        who_may,
        pages_of_some_sites,
        pages_of_some_sites_read_refusals,
        transports_off,
        what_asks_for_nothing_else,
        behind_a_proxy,
        tokens,
        changed_under_load,
        a_wrong_change_changes_nothing,
        listeners_come_and_go,
        an_access_log_that_was_moved_away,
        a_port_that_is_taken,
        an_end_that_is_spread,
        what_it_does,
        metrics,
        stub_status,
        status_for_nobody
    ].

%% The first pattern that matches decides.
who_may(Config) ->
    Port = port(start(Config,
        "[may]\npublish = 'nobody'\n"
        "[[channels]]\npattern = 'open/*'\nmay = {publish = 'any'}\n"
        "[[channels]]\npattern = 'closed/*'\nmay = {publish = 'local', subscribe = 'nobody'}\n"
    )),
    ?assertEqual(403, publish(Port, "a", [])),
    ?assertEqual(202, publish(Port, "open%2Fa", [?ORIGIN("http://site.example")])),
    ?assertEqual(202, publish(Port, "closed%2Fa", [])),
    ?assertEqual(403, publish(Port, "closed%2Fa", [?ORIGIN("http://site.example")])),
    ?assertEqual(200, get(Port, "/sub/open%2Fa", [])),
    ?assertEqual(403, get(Port, "/sub/closed%2Fa", [])).

pages_of_some_sites(Config) ->
    Port = port(start(Config, "[may]\npublish = 'any'\n[http]\norigins = ['http://site.example']\n")),
    ?assertEqual(202, publish(Port, "a", [])),
    ?assertEqual(202, publish(Port, "a", [?ORIGIN("http://site.example")])),
    ?assertEqual(403, publish(Port, "a", [?ORIGIN("http://other.example")])),
    ?assertEqual(200, get(Port, "/sub/a", [?ORIGIN("http://site.example")])),
    ?assertEqual(403, get(Port, "/sub/a", [?ORIGIN("http://other.example")])).

%% A page of an allowed origin can read every response, also a refusal; a page of another origin can read none.
pages_of_some_sites_read_refusals(Config) ->
    Port = port(start(Config,
        "[may]\npublish = 'nobody'\n[http]\norigins = ['http://site.example']\n"
        "[[channels]]\npattern = 'closed'\nmay = {subscribe = 'nobody'}\n"
    )),
    Site = fun(Method, Path, Origin) ->
        {Status, Fields, _} = request(Port, Method, Path, [?ORIGIN(Origin)]),
        {Status, proplists:get_value(<<"access-control-allow-origin">>, fields(Fields), none)}
    end,
    [
        begin
            ?assertEqual({Status, <<"http://site.example">>}, Site(Method, Path, "http://site.example")),
            ?assertEqual({403, none}, Site(Method, Path, "http://other.example"))
        end
     || {Method, Path, Status} <- [
            {<<"GET">>, "/sub/closed", 403}, {<<"POST">>, "/pub/a", 403}, {<<"DELETE">>, "/pub/a", 403},
            {<<"OPTIONS">>, "/sub/a", 200}, {<<"OPTIONS">>, "/pub/a", 200}
        ]
    ],
    {200, Fields, _} = request(Port, <<"OPTIONS">>, "/pub/a", [?ORIGIN("http://site.example")]),
    Headers = proplists:get_value(<<"access-control-allow-headers">>, fields(Fields)),
    ?assertMatch({_, _}, binary:match(Headers, <<"Authorization">>)).

fields(Fields) -> [{string:lowercase(Name), Value} || {Name, Value} <- Fields].

transports_off(Config) ->
    Port = port(start(Config, "[http]\ntransports = ['poll']\n")),
    _ = publish(Port, "a", []),
    ?assertEqual(200, get(Port, "/sub/a", [])),
    ?assertEqual(403, get(Port, "/sub/a", [{"Accept", "text/event-stream"}])),
    ?assertEqual(403, get(Port, "/sub/a", [
        {"Connection", "Upgrade"}, {"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"},
        {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
    ])).

%% A GET that asks for no transport waits, does not wait, or gets all messages that come.
what_asks_for_nothing_else(Config) ->
    Server = start(Config, "[http]\nplain = 'interval_poll'\n"),
    Port = port(Server),
    ?assertEqual(304, get(Port, "/sub/a", [])),
    ?assertEqual(202, publish(Port, "a", [])),
    ?assertEqual(200, get(Port, "/sub/a", [])),
    {ok, _} = weir_pubsub_server:change(settings(Config, "[http]\nplain = 'raw'\n"), Server),
    ?assertMatch(
        {200, _, <<"x\n">>},
        weir_pubsub_nchan:read_stream(weir_pubsub_nchan:begin_request(Port, <<"GET">>, "/sub/a", []), <<"x\n">>)
    ).

%% The proxy says who is local.
behind_a_proxy(Config) ->
    Port = port(start(Config, "[[listeners]]\nproxy_protocol = true\n")),
    Publish = fun(From) ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        ok = gen_tcp:send(Socket, [
            "PROXY TCP4 ", From, " 127.0.0.1 5000 80\r\n"
            "POST /pub/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
        ]),
        status(weir_pubsub_nchan:answer(Socket))
    end,
    ?assertEqual(202, Publish("127.0.0.1")),
    ?assertEqual(403, Publish("192.0.2.1")).

tokens(Config) ->
    Secret = <<"a secret of thirty-two bytes or more">>,
    ok = file:write_file(file(Config, "secret"), Secret),
    Text = "[may]\npublish = 'token'\n[tokens]\nsecrets = ['secret']\naudience = 'chat'\n",
    Server = start(Config, Text),
    Claims = #{aud => chat, exp => os:system_time(second) + 3600, weir => #{publish => [<<"a">>]}},
    Token = token(Claims, Secret),
    ?assertEqual(403, publish(port(Server), "a", [])),
    ?assertEqual(202, publish(port(Server), "a", [{"Authorization", ["Bearer ", Token]}])),
    ?assertEqual(403, publish(port(Server), "b", [{"Authorization", ["Bearer ", Token]}])),
    %% Other keys in the same file.
    ok = file:write_file(file(Config, "secret"), <<"another secret of thirty-two bytes">>),
    {ok, Changed} = weir_pubsub_server:change(settings(Config, Text), Server),
    ?assertEqual(403, publish(port(Changed), "a", [{"Authorization", ["Bearer ", Token]}])).

token(Claims, Secret) ->
    Part = fun(Bytes) -> base64:encode(iolist_to_binary(Bytes)) end,
    Url = fun(Text) ->
        <<
            <<
                (case C of
                    $+ -> $-;
                    $/ -> $_;
                    _ -> C
                end)
            >>
         || <<C>> <= Text, C =/= $=
        >>
    end,
    Signed = <<
        (Url(Part(weir_json:encode(#{alg => <<"HS256">>}))))/binary, $., (Url(Part(weir_json:encode(Claims))))/binary
    >>,
    <<Signed/binary, $., (Url(Part(crypto:mac(hmac, sha256, Secret, Signed))))/binary>>.

%% Event streams and long polls continue, and each message comes once, while the file changes.
changed_under_load(Config) ->
    Text = fun(Number) ->
        io_lib:format(
            "[[listeners]]\nmax_connections = ~b\n[may]\npublish = 'any'\n[limits]\nbytes = ~b\n"
            "[[channels]]\npattern = 'load'\nmax_messages = 1000\nmax_queue = 2000\nidle_timeout = ~b\n",
            [1000 + Number, 100000000 + Number, 5000 + Number]
        )
    end,
    Server = start(Config, Text(0)),
    Port = port(Server),
    Count = 300,
    Test = self(),
    Streams = [spawn_link(fun() -> stream(Test, Port, Count) end) || _ <- lists:seq(1, 100)],
    Polls = [spawn_link(fun() -> poll(Test, Port, Count) end) || _ <- lists:seq(1, 20)],
    [
        receive
            {ready, Pid} -> ok
        after weir_test_wait:patience() -> ct:fail(not_ready)
        end
     || Pid <- Streams
    ],
    Changes = atomics:new(1, []),
    Publisher = spawn_link(fun() -> publish_all(Test, Port, Count, Changes) end),
    ok = change_until(Publisher, Changes, Server, fun(Number) -> settings(Config, Text(Number)) end),
    Expected = lists:seq(1, Count),
    [
        receive
            {got, Pid, Got} -> ?assertEqual(Expected, Got)
        after weir_test_wait:patience() -> ct:fail({silent, Pid})
        end
     || Pid <- Streams ++ Polls
    ].

change_until(Publisher, Changes, Server, Settings) ->
    receive
        {published, Publisher} -> ok
    after 5 ->
        {ok, Changed} = weir_pubsub_server:change(Settings(1 + atomics:get(Changes, 1)), Server),
        ok = atomics:add(Changes, 1, 1),
        change_until(Publisher, Changes, Changed, Settings)
    end.

%% There is a change after every fifty messages, at least.
publish_all(Test, Port, Count, Changes) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, http_bin}]),
    lists:foreach(
        fun(Number) ->
            Data = integer_to_binary(Number),
            ok = gen_tcp:send(Socket, [
                "POST /pub/load HTTP/1.1\r\nHost: a\r\nContent-Length: ",
                integer_to_binary(byte_size(Data)),
                "\r\n\r\n",
                Data
            ]),
            {Status, _} = answer(Socket),
            true = Status =:= 201 orelse Status =:= 202,
            Number rem 50 =/= 0 orelse ?waitMatch(true, atomics:get(Changes, 1) >= Number div 50)
        end,
        lists:seq(1, Count)
    ),
    Test ! {published, self()}.

answer(Socket) ->
    ok = inet:setopts(Socket, [{packet, http_bin}]),
    {ok, {http_response, _, Status, _}} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    fields(Socket, Status, #{}).

fields(Socket, Status, Fields) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, {http_header, _, Name, _, Value}} ->
            fields(Socket, Status, Fields#{string:lowercase(to_text(Name)) => Value});
        {ok, http_eoh} ->
            ok = inet:setopts(Socket, [{packet, raw}]),
            Body = case binary_to_integer(maps:get(<<"content-length">>, Fields, <<"0">>)) of
                0 -> <<>>;
                Length -> element(2, {ok, _} = gen_tcp:recv(Socket, Length, weir_test_wait:patience()))
            end,
            {Status, Fields#{body => Body}}
    end.

to_text(Name) when is_atom(Name) -> atom_to_binary(Name);
to_text(Name) -> Name.

stream(Test, Port, Count) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, "GET /sub/load HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"),
    Test ! {ready, self()},
    Text = weir_pubsub_http_test:read_until(Socket, <<"data: ", (integer_to_binary(Count))/binary, "\n">>),
    {match, Found} = re:run(Text, "data: ([0-9]+)\n", [global, {capture, [1], binary}]),
    Test ! {got, self(), [binary_to_integer(Number) || [Number] <- Found]}.

%% One connection for all polls.
poll(Test, Port, Count) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    Test ! {got, self(), polled(Socket, [], Count)}.

polled(_Socket, _Resume, 0) ->
    [];
polled(Socket, Resume, Count) ->
    ok = gen_tcp:send(Socket, ["GET /sub/load HTTP/1.1\r\nHost: a\r\n", Resume, "\r\n"]),
    {200, #{body := Data, <<"last-modified">> := Date, <<"etag">> := Tag}} = answer(Socket),
    Again = ["If-Modified-Since: ", Date, "\r\nIf-None-Match: ", Tag, "\r\n"],
    [binary_to_integer(Data) | polled(Socket, Again, Count - 1)].

a_wrong_change_changes_nothing(Config) ->
    Server = start(Config, "[http]\npoll_timeout = 100\n"),
    Taken = port(Server),
    Port = port(Server),
    ?assertEqual(202, publish(Port, "a", [])),
    %% Valid in itself, but its port is taken.
    Wrong = settings(Config, [
        "[[listeners]]\nport = 0\n[[listeners]]\nport = ", integer_to_list(Taken), "\n[may]\npublish = 'nobody'\n"
    ]),
    ?assertMatch({error, {listen, {127, 0, 0, 1}, Taken, eaddrinuse}}, weir_pubsub_server:change(Wrong, Server)),
    ?assertEqual(202, publish(Port, "a", [])),
    Logged = settings(Config, "[[listeners]]\nport = 0\naccess_log = 'log'\n"),
    ?assertEqual({error, {fixed, {127, 0, 0, 1}, 0, access_log}}, weir_pubsub_server:change(Logged, Server)),
    ?assertEqual(
        {error, {fixed, broker}}, weir_pubsub_server:change(settings(Config, "[broker]\nkind = 'redis'\n"), Server)
    ),
    %% A key file that is removed after the configuration was read.
    ok = file:write_file(file(Config, "secret"), <<"a secret of thirty-two bytes or more">>),
    Keys = settings(Config, "[may]\npublish = 'nobody'\n[tokens]\nsecrets = ['secret']\n"),
    ok = file:delete(file(Config, "secret")),
    ?assertMatch({error, {bad_key, _, enoent}}, weir_pubsub_server:change(Keys, Server)),
    ?assertEqual(202, publish(Port, "a", [])).

listeners_come_and_go(Config) ->
    Server = start(Config, "drain = 500\n[[listeners]]\nport = 0\n"),
    Port = port(Server),
    {ok, Idle} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Two} = weir_pubsub_server:change(
        settings(Config, "[[listeners]]\nport = 0\n[[listeners]]\nip = '127.0.0.2'\nport = 0\n"), Server
    ),
    [Port, Other] = weir_pubsub_server:ports(Two),
    ?assertEqual(202, publish(Port, "a", [])),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 2}, Other, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, "GET /sub/a HTTP/1.1\r\nHost: a\r\n\r\n"),
    ?assertMatch({200, _}, answer(Socket)),
    {ok, _One} = weir_pubsub_server:change(settings(Config, "[[listeners]]\nip = '127.0.0.2'\nport = 0\n"), Two),
    %% The connection to the listener that is gone ends, the other continues.
    {error, closed} = gen_tcp:recv(Idle, 0, weir_test_wait:patience()),
    ok = gen_tcp:send(Socket, "GET /sub/a HTTP/1.1\r\nHost: a\r\n\r\n"),
    ?assertMatch({200, _}, answer(Socket)),
    %% No other process stops it at the same time.
    ?waitMatch([_], [Name || Name = {weir_pubsub_server, _, _} <- weir_listener:names()]).

%% As in a log rotation, after which the file is read again.
an_access_log_that_was_moved_away(Config) ->
    Text = "[[listeners]]\nport = 0\naccess_log = 'access.log'\n",
    Server = start(Config, Text),
    [Log, Moved] = [file(Config, Name) || Name <- ["access.log", "access.log.1"]],
    Lines = fun(File) ->
        case file:read_file(File) of
            {ok, Bytes} -> length(binary:matches(Bytes, <<"\n">>));
            {error, enoent} -> 0
        end
    end,
    ?assertEqual(202, publish(port(Server), "a", [])),
    ?waitEqual(1, Lines(Log)),
    ok = file:rename(Log, Moved),
    {ok, Changed} = weir_pubsub_server:change(settings(Config, Text), Server),
    ?assertEqual(202, publish(port(Changed), "a", [])),
    ?waitEqual(1, Lines(Log)),
    ?assertEqual(1, Lines(Moved)),
    %% A directory cannot be written: nothing is changed.
    ok = file:rename(Log, Moved),
    ok = file:make_dir(Log),
    ?assertMatch(
        {error, {access_log, {127, 0, 0, 1}, 0, _}},
        weir_pubsub_server:change(settings(Config, ["[may]\npublish = 'nobody'\n", Text]), Changed)
    ),
    ?assertEqual(202, publish(port(Changed), "a", [])).

a_port_that_is_taken(Config) ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Settings = settings(Config, ["[[listeners]]\nport = 0\n[[listeners]]\nport = ", integer_to_list(Port), "\n"]),
    ?assertEqual({error, {listen, {127, 0, 0, 1}, Port, eaddrinuse}}, weir_pubsub_server:start(Settings)),
    %% Nothing is left.
    ?assertEqual([], [Name || Name = {weir_pubsub_server, _, _} <- weir_listener:names()]).

what_it_does(Config) ->
    Port = port(start(Config, "")),
    _ = publish(Port, "a", []),
    {200, Fields, Text} = request(Port, <<"GET">>, "/status", []),
    ?assertEqual(<<"application/json">>, proplists:get_value(<<"content-type">>, Fields)),
    {ok, Status} = weir_json:decode(Text),
    ?assertMatch(
        #{
            <<"now">> := #{<<"channels">> := 1, <<"messages">> := 1, <<"subscribers">> := 0, <<"bytes">> := 1},
            <<"counters">> := #{<<"published">> := _, <<"delivered">> := _},
            <<"listeners">> := [
                #{<<"ip">> := <<"127.0.0.1">>, <<"port">> := Port, <<"connections">> := _, <<"requests">> := _}
            ],
            <<"uptime">> := _
        },
        Status
    ),
    {200, Html, Page} = request(Port, <<"GET">>, "/status", [{"Accept", "text/html,*/*"}]),
    ?assertEqual(<<"text/html; charset=utf-8">>, proplists:get_value(<<"content-type">>, Html)),
    ?assertMatch(<<"<!DOCTYPE html>", _/binary>>, Page),
    %% A page of another site in a browser on this machine.
    ?assertEqual(403, get(Port, "/status", [?ORIGIN("http://site.example")])).

%% Each line is a sample or describes one; each sample is described before.
metrics(Config) ->
    %% Two listeners may have one port. Prometheus takes no sample twice.
    Port = port(start(Config, "[[listeners]]\nip = '127.0.0.1'\n[[listeners]]\nip = '127.0.0.2'\n")),
    _ = publish(Port, "a", []),
    {200, _, Text} = request(Port, <<"GET">>, "/metrics", []),
    Lines = binary:split(Text, <<"\n">>, [global, trim]),
    Types = [
        Name
     || <<"# TYPE ", Rest/binary>> <- Lines,
        [Name, Kind] <- [binary:split(Rest, <<" ">>)],
        Kind =:= <<"gauge">> orelse Kind =:= <<"counter">>
    ],
    ?assertEqual(Types, lists:uniq(Types)),
    Samples = [Line || Line <- Lines, binary:first(Line) =/= $#],
    [
        begin
            {match, [Name]} = re:run(Sample, "^([a-z0-9_]+)(?:[{]ip=\"[0-9.]+\",port=\"[0-9]+\"[}])? [0-9.e+-]+$", [
                {capture, all_but_first, binary}
            ]),
            ?assert(lists:member(Name, Types), Name)
        end
     || Sample <- Samples
    ],
    ?assert(lists:member(<<"weir_pubsub_channels 1">>, Samples)),
    Labels = [
        Label
     || <<"weir_listener_connections{", Rest/binary>> <- Samples, [Label, _] <- [binary:split(Rest, <<",">>)]
    ],
    ?assertEqual([<<"ip=\"127.0.0.1\"">>, <<"ip=\"127.0.0.2\"">>], Labels).

stub_status(Config) ->
    Port = port(start(Config, "")),
    _ = publish(Port, "a", []),
    {200, _, Text} = request(Port, <<"GET">>, "/nchan_stub_status", []),
    Lines = binary:split(Text, <<"\n">>, [global, trim]),
    ?assertEqual(16, length(Lines)),
    [
        ?assert(lists:member(Line, Lines))
     || Line <- [<<"stored messages: 1">>, <<"channels: 1">>, <<"subscribers: 0">>, <<"shared memory used: 1K">>]
    ].

status_for_nobody(Config) ->
    Port = port(start(Config, "[http]\nstatus = 'nobody'\n")),
    [?assertEqual(403, get(Port, Path, [])) || Path <- ["/status", "/metrics", "/nchan_stub_status"]].

%% Clients reconnect one after the other. Without a spread all connections would end with the first tick, within a
%% second. With it at least half of them are expected to be left then.
an_end_that_is_spread(Config) ->
    Server = start(Config, "drain = 3600000\nspread = 2000\n"),
    Test = self(),
    Asks = [
        "GET /sub/a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ],
    Clients = [spawn_link(fun() -> until_the_end(port(Server), Ask, Test) end) || _ <- lists:seq(1, 20), Ask <- Asks],
    [
        receive
            {begun, Client} -> ok
        after weir_test_wait:patience() -> ct:fail(not_begun)
        end
     || Client <- Clients
    ],
    Begin = erlang:monotonic_time(millisecond),
    _ = spawn_link(fun() ->
        ok = weir_pubsub_server:stop(Server),
        Test ! stopped
    end),
    Ends = [
        receive
            {ended, Client, Time, Bytes} -> {Time, Bytes}
        after weir_test_wait:patience() -> ct:fail(not_ended)
        end
     || Client <- Clients
    ],
    receive
        stopped -> ok
    after weir_test_wait:patience() -> ct:fail(not_stopped)
    end,
    ?assert(lists:max([Time || {Time, _} <- Ends]) >= Begin + 1000),
    ?assertEqual(20, length([end_of_a_stream || {_, Bytes} <- Ends, binary:match(Bytes, <<"retry: ">>) =/= nomatch])),
    ?assertEqual(20, length([restart || {_, Bytes} <- Ends, binary:match(Bytes, <<16#88, 2, 1012:16>>) =/= nomatch])).

until_the_end(Port, Ask, Test) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, Ask),
    {ok, Begin} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    Test ! {begun, self()},
    Rest = iolist_to_binary(the_rest(Socket)),
    Test ! {ended, self(), erlang:monotonic_time(millisecond), <<Begin/binary, Rest/binary>>}.

%% The frame that closes a WebSocket needs an answer.
the_rest(Socket) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Data} ->
            _ =
                binary:match(Data, <<1012:16>>) =/= nomatch andalso
                    gen_tcp:send(Socket, <<16#88, 16#82, 0:32, 1012:16>>),
            [Data | the_rest(Socket)];
        {error, closed} ->
            []
    end.

% Otherwise a first call would load code, and wait beside processes that compute.
all_code_is_loaded_at_the_start(_Config) ->
    {ok, Modules} = application:get_key(weir_pubsub, modules),
    ?assertEqual([], [Module || Module <- Modules, code:is_loaded(Module) =:= false]).
