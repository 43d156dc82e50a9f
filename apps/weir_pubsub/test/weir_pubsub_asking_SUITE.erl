%% A push server that asks another server who may do what.
-module(weir_pubsub_asking_SUITE).
-behaviour(weir_http_direct).

-include_lib("public_key/include/public_key.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_server_test, [file/2, settings/2, start/2, port/1, publish/3, get/3]).

-include("pubsub_server_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        asked,
        asked_about_any_bytes,
        asked_through_tls,
        an_answer_of_an_earlier_server,
        nobody_answers,
        what_is_asked_is_in_no_report
    ].

%% The answers of the server that decides hold for a while, and only for the same question.
asked(Config) ->
    Port = port(start(Config, asking(3600000))),
    Good = [{"Authorization", "Bearer good"}],
    ?assertEqual(202, publish(Port, "a", Good)),
    ?assertEqual({<<"publish">>, <<"a">>, <<"Bearer good">>}, question()),
    ?assertEqual(202, publish(Port, "a", Good)),
    ?assertEqual(403, publish(Port, "a", [{"Authorization", "Bearer bad"}])),
    ?assertEqual({<<"publish">>, <<"a">>, <<"Bearer bad">>}, question()),
    ?assertEqual(403, publish(Port, "a", [])),
    ?assertEqual({<<"publish">>, <<"a">>, undefined}, question()),
    ?assertEqual(200, get(Port, "/sub/a?access_token=good", [])),
    ?assertEqual({<<"subscribe">>, <<"a">>, <<"Bearer good">>}, question()),
    ?assertEqual(202, publish(Port, "b%2Fc", Good)),
    ?assertEqual({<<"publish">>, <<"b%2Fc">>, <<"Bearer good">>}, question()),
    receive {question, More} -> ct:fail({asked_again, More}) after 0 -> ok end.

%% A path and a query may have bytes that are not text: the question has them as they came.
asked_about_any_bytes(Config) ->
    Port = port(start(Config, asking(0))),
    ?assertEqual(202, publish(Port, "a%FFb%2F~", [{"Authorization", "Bearer good"}])),
    ?assertEqual({<<"publish">>, <<"a%FFb%2F~">>, <<"Bearer good">>}, question()),
    ?assertEqual(403, get(Port, "/sub/a?access_token=%FF.%C3%A9%0D%0A", [])),
    ?assertEqual({<<"subscribe">>, <<"a">>, <<"Bearer %FF.%C3%A9%0D%0A">>}, question()).

%% The server that decides needs a certificate for its name, signed by a trusted authority.
asked_through_tls(Config) ->
    Here = {127, 0, 0, 1},
    #{server_config := Server} = certificates([{dNSName, "localhost"}, {iPAddress, <<127, 0, 0, 1>>}]),
    ok = file:write_file(file(Config, "ca.pem"), pem(cacerts, Server)),
    ok = file:write_file(file(Config, "other.pem"), pem(cacerts, maps:get(server_config, certificates([])))),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => Here, tls => tls(Config, "good", Server)}, [
        {"/may", ?MODULE, self()}
    ]),
    Asking = fun(Host, Ca) ->
        io_lib:format(
            "[may]\npublish = 'ask'\n[ask]\nurl = 'https://~s:~b/may'\nca = '~s'\ncache = 0\ntimeout = 60000\n", [
                Host, weir:get_port(?MODULE), Ca
            ]
        )
    end,
    Good = [{"Authorization", "Bearer good"}],
    Started = start(Config, Asking("127.0.0.1", "ca.pem")),
    Port = port(Started),
    ?assertEqual(202, publish(Port, "a", Good)),
    ?assertEqual({<<"publish">>, <<"a">>, <<"Bearer good">>}, question()),
    ?assertEqual(403, publish(Port, "a", [])),
    ?assertEqual({<<"publish">>, <<"a">>, undefined}, question()),
    Changed = fun(Text) ->
        {ok, Now} = weir_pubsub_server:change(settings(Config, Text), Started),
        Now
    end,
    _ = Changed(Asking("localhost", "ca.pem")),
    ?assertEqual(202, publish(Port, "a", Good)),
    ?assertEqual({<<"publish">>, <<"a">>, <<"Bearer good">>}, question()),
    %% Its certificate is signed by another authority, so its answer is not used.
    #{ask_failures := Failures} = weir_pubsub:counters(),
    _ = Changed(Asking("localhost", "other.pem")),
    ?assertEqual(403, publish(Port, "a", Good)),
    %% Its certificate is for another name.
    #{server_config := OfAnother} = certificates([{dNSName, "other.example"}]),
    ok = file:write_file(file(Config, "ca.pem"), pem(cacerts, OfAnother)),
    ok = weir_http:stop_listener(?MODULE),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => Here, tls => tls(Config, "another", OfAnother)}, [
        {"/may", ?MODULE, self()}
    ]),
    [
        begin
            _ = Changed(Asking(Host, "ca.pem")),
            ?assertEqual({Host, 403}, {Host, publish(Port, "a", Good)})
        end
     || Host <- ["localhost", "127.0.0.1"]
    ],
    #{ask_failures := FailuresNow} = weir_pubsub:counters(),
    ?assertEqual(3, FailuresNow - Failures),
    receive
        {question, More} -> ct:fail({asked, More})
    after 0 -> ok
    end.

%% Certificates for a server with these names, signed by their own authority.
certificates(Names) ->
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Extension = #'Extension'{extnID = ?'id-ce-subjectAltName', extnValue = Names, critical = false},
    Peer = [{extensions, [Extension || Names =/= []]} | Key],
    public_key:pkix_test_data(#{
        server_chain => #{root => Key, intermediates => [], peer => Peer},
        client_chain => #{root => Key, intermediates => [], peer => Key}
    }).

pem(cert, Options) ->
    public_key:pem_encode([{'Certificate', proplists:get_value(cert, Options), not_encrypted}]);
pem(cacerts, Options) ->
    public_key:pem_encode([{'Certificate', Der, not_encrypted} || Der <- proplists:get_value(cacerts, Options)]);
pem(key, Options) ->
    {Type, Key} = proplists:get_value(key, Options),
    public_key:pem_encode([{Type, Key, not_encrypted}]).

tls(Config, Name, Options) ->
    [
        begin
            File = file(Config, Name ++ "-" ++ atom_to_list(What) ++ ".pem"),
            ok = file:write_file(File, pem(What, Options)),
            {Key, File}
        end
     || {Key, What} <- [{certfile, cert}, {keyfile, key}]
    ].

question() -> receive {question, Question} -> Question after weir_test_wait:patience() -> ct:fail(not_asked) end.

asking(Cache) ->
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}}, [{"/may", ?MODULE, self()}]),
    io_lib:format(
        "[may]\npublish = 'ask'\nsubscribe = 'ask'\n[ask]\nurl = 'http://127.0.0.1:~b/may'\ncache = ~b\n"
        "timeout = 60000\n",
        [weir:get_port(?MODULE), Cache]
    ).

handle(Request, Test) ->
    Question =
        {_, Channel, Token} = list_to_tuple([
            weir_http_request:field(Name, Request)
         || Name <- [<<"weir-right">>, <<"weir-channel">>, <<"authorization">>]
        ]),
    Test ! {question, Question},
    case {Channel, Token} of
        {<<"broken">>, _} -> {reply, 500, [], <<>>};
        {_, <<"Bearer good">>} -> {reply, 204, [], <<>>};
        _ -> {reply, 401, [], <<>>}
    end.

%% An answer holds for the clients that asked for it, and is not kept if another server has been set.
an_answer_of_an_earlier_server(Config) ->
    _ = start(Config, asking(3600000)),
    {ok, Slow} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, false}]),
    {ok, SlowPort} = inet:port(Slow),
    Asked = #{
        host => "127.0.0.1",
        port => SlowPort,
        target => <<"/may">>,
        timeout => weir_test_wait:patience(),
        cache => 3600000,
        max_concurrent => 10
    },
    ok = weir_pubsub_authorizer:configure(Asked),
    Question = <<"weir-right: publish\r\nweir-channel: a\r\n">>,
    Test = self(),
    Ask = fun() -> spawn_link(fun() -> Test ! {allowed, weir_pubsub_authorizer:allows(Question)} end) end,
    _ = Ask(),
    {ok, Connection} = gen_tcp:accept(Slow, weir_test_wait:patience()),
    %% This server refuses clients without a token.
    ok = weir_pubsub_authorizer:configure(Asked#{port := weir:get_port(?MODULE)}),
    ok = gen_tcp:send(Connection, "HTTP/1.1 204 No Content\r\n\r\n"),
    receive
        {allowed, true} -> ok
    after weir_test_wait:patience() -> ct:fail(no_answer)
    end,
    _ = Ask(),
    ?assertEqual(
        false,
        receive
            {allowed, Allowed} -> Allowed
        after weir_test_wait:patience() -> no_answer
        end
    ).

%% Without an answer clients are refused. This is counted, and not kept.
nobody_answers(Config) ->
    Port = port(start(Config, asking(0))),
    Good = [{"Authorization", "Bearer good"}],
    #{asked := Asked, ask_failures := Failures} = weir_pubsub:counters(),
    [?assertEqual(403, publish(Port, "broken", Good)) || _ <- [1, 2]],
    ?assertEqual(202, publish(Port, "a", Good)),
    ok = weir_http:stop_listener(?MODULE),
    ?assertEqual(403, publish(Port, "a", Good)),
    #{asked := AskedNow, ask_failures := FailuresNow} = weir_pubsub:counters(),
    ?assertEqual({4, 3}, {AskedNow - Asked, FailuresNow - Failures}).

%% Questions have the tokens of clients. The report about a process that fails has its state and its last message.
what_is_asked_is_in_no_report(Config) ->
    _ = start(Config, asking(0)),
    {ok, Slow} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, binary, {active, false}]),
    {ok, SlowPort} = inet:port(Slow),
    ok = weir_pubsub_authorizer:configure(#{
        host => "127.0.0.1",
        port => SlowPort,
        target => <<"/may">>,
        timeout => weir_test_wait:patience(),
        cache => 0,
        max_concurrent => 10
    }),
    Test = self(),
    _ = spawn_link(fun() ->
        Test ! {allowed, weir_pubsub_authorizer:allows(<<"authorization: Bearer top-secret\r\n">>)}
    end),
    {ok, Connection} = gen_tcp:accept(Slow, weir_test_wait:patience()),
    Status = io_lib:format("~0p", [sys:get_status(weir_pubsub_authorizer, weir_test_wait:patience())]),
    ?assertEqual(nomatch, string:find(Status, "top-secret")),
    ?assertNotEqual(nomatch, string:find(Status, integer_to_list(SlowPort))),
    Message = {'$gen_call', {self(), make_ref()}, {ask, <<"authorization: Bearer top-secret\r\n">>}},
    Reported = weir_pubsub_authorizer:format_status(#{message => Message, reason => shutdown}),
    ?assertEqual(nomatch, string:find(io_lib:format("~0p", [Reported]), "top-secret")),
    ok = gen_tcp:send(Connection, "HTTP/1.1 401 Unauthorized\r\n\r\n"),
    ?assertEqual(
        false,
        receive
            {allowed, Allowed} -> Allowed
        after weir_test_wait:patience() -> no_answer
        end
    ).
