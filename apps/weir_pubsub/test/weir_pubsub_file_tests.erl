%% The configuration file of a push server: what it may contain, and how faults are reported.
-module(weir_pubsub_file_tests).

-include_lib("eunit/include/eunit.hrl").

read(Text) -> read(Text, []).

read(Text, Files) ->
    Directory = filename:join(
        "_build", lists:concat(["weir_pubsub_file_", os:getpid(), "_", erlang:unique_integer([positive])])
    ),
    ok = filelib:ensure_path(Directory),
    [ok = file:write_file(filename:join(Directory, Name), Bytes) || {Name, Bytes} <- [{"push.toml", Text} | Files]],
    try
        weir_pubsub_file:read(filename:join(Directory, "push.toml"))
    after
        ok = file:del_dir_r(Directory)
    end.

an_empty_file_is_the_defaults_test() ->
    ?assertEqual({ok, weir_pubsub_file:defaults()}, read("")),
    ?assertMatch(
        #{listeners := [#{ip := {127, 0, 0, 1}, port := 0}], origins := any, keys := []}, weir_pubsub_file:defaults()
    ).

a_broker_test() ->
    Text =
        "[broker]\nkind = 'redis'\nhost = 'redis'\nport = 7000\nusername = 'push'\npassword = 'password'\n"
        "database = 2\nprefix = 'chat'\n",
    {ok, #{broker := Broker}} = read(Text, [{"password", "secret\n"}]),
    ?assertEqual(
        #{
            kind => redis,
            host => "redis",
            port => 7000,
            username => <<"push">>,
            password => <<"secret">>,
            database => 2,
            prefix => <<"chat">>
        },
        Broker
    ),
    ?assertMatch({error, [{6, _}]}, read(Text)),
    ?assertMatch({error, [{2, <<"broker.kind: one of \"memory\", \"redis\"">>}]}, read("[broker]\nkind = 'pg'\n")),
    ?assertMatch({error, [{3, <<"broker.prefix: ", _/binary>>}]}, read("[broker]\nkind = 'redis'\nprefix = 'a{b'\n")),
    %% Otherwise the server would keep its channels in memory.
    [
        ?assertMatch({error, [{Line, <<"broker.host: only with kind = \"redis\"">>}]}, read(Broken))
     || {Line, Broken} <- [{2, "[broker]\nhost = 'redis'\n"}, {3, "[broker]\nkind = 'memory'\nhost = 'redis'\n"}]
    ].

everything_test() ->
    Text =
        "drain = 1000\n"
        "[[listeners]]\nip = '::1'\nport = 1\nmax_connections = 5\naccess_log = 'log'\naccess_log_format = 'json'\n"
        "[[listeners]]\nport = 2\n"
        "[http]\ntransports = ['stream', 'poll']\norigins = ['https://a.example:8443']\nplain = 'long_poll'\n"
        "poll_answer = 'multipart'\npoll_timeout = 30000\nstream_timeout = 60000\ndeflate = true\nmax_body = 10\n"
        "[may]\npublish = 'token'\n"
        "[tokens]\nsecrets = ['secret']\naudience = 'chat'\nissuer = 'me'\nleeway = 5\nrequire_exp = false\n"
        "[limits]\nbytes = 1000\nsubscribers = 'infinity'\n"
        "[groups.chat]\nchannels = 10\n"
        "[[channels]]\npattern = 'chat/*'\nmax_messages = 5\nmax_age = 'infinity'\nslow = 'disconnect'\n"
        "presence = true\n"
        "group = 'chat'\nevents = 'events'\nmay = {subscribe = 'local', presence = 'nobody'}\n"
        "[[channels]]\npattern = '*'\n",
    {ok, Settings} = read(Text, [{"secret", "a secret of thirty-two bytes or more"}]),
    ?assertMatch(
        #{
            drain := 1000,
            listeners := [
                #{
                    ip := {0, 0, 0, 0, 0, 0, 0, 1},
                    port := 1,
                    max_connections := 5,
                    access_log := #{format := json, to := {file, _}}
                },
                #{ip := {127, 0, 0, 1}, port := 2, access_log := off}
            ],
            transports := [stream, poll],
            plain := long_poll,
            poll_answer := multipart,
            origins := [<<"https://a.example:8443">>],
            poll_timeout := 30000,
            stream_timeout := 60000,
            deflate := true,
            max_body := 10,
            keys := [{secret, _}],
            tokens := #{audience := <<"chat">>, issuer := <<"me">>, leeway := 5, require_exp := false},
            channels := #{
                total := #{bytes := 1000, subscribers := infinity},
                groups := #{<<"chat">> := #{channels := 10}},
                channels := [
                    {<<"chat/*">>, #{
                        max_messages := 5,
                        max_age := infinity,
                        slow := disconnect,
                        presence := true,
                        group := <<"chat">>,
                        events := <<"events">>
                    }},
                    {<<"*">>, #{}}
                ]
            }
        },
        Settings
    ).

faults_have_line_key_and_what_is_allowed_test() ->
    [
        begin
            {error, Faults} = read(Text),
            Told = [{At, iolist_to_binary(What)} || {At, What} <- Faults],
            ?assertMatch(
                {Text, [_]},
                {Text, [Line || {At, What} <- Told, At =:= Line, binary:match(What, list_to_binary(Part)) =/= nomatch]}
            )
        end
     || {Line, Part, Text} <- faults()
    ].

%% {Line of the fault, a part of its text, the file}.
faults() ->
    [
        {1, "unknown key; valid: ask, broker, channels, control, drain", "colour = 1\n"},
        {2, "drain: milliseconds from 1 on", "\ndrain = 0\n"},
        {1, "spread: no longer than drain", "spread = 2\ndrain = 1\n"},
        {3, "listeners.1.port: an integer from 0 to 65535", "\n[[listeners]]\nport = 65536\n"},
        {2, "listeners.1.ip: an address", "[[listeners]]\nip = 'here'\n"},
        {2, "listeners.1.colour: unknown key; valid: access_log", "[[listeners]]\ncolour = 1\n"},
        {3, "listeners.1.access_log_format: only with access_log",
            "[[listeners]]\nport = 8\naccess_log_format = 'json'\n"},
        {1, "control: the name of a file", "control = \"push\\u0000.sock\"\n"},
        {3, "broker.host: the name or address of a host", "[broker]\nkind = 'redis'\nhost = \"redis\\u0000\"\n"},
        {2, "mercure.cookie: the name of a cookie", "[mercure]\ncookie = 'my cookie'\n"},
        {3, "channels.1.group: the name of a group, but groups is empty",
            "[[channels]]\npattern = 'a'\ngroup = 'chat'\n"},
        {5, "channels.1.group: the name of a group: chat, other",
            "[groups.chat]\n[groups.other]\n[[channels]]\npattern = 'a'\ngroup = 'chats'\n"},
        {2, "listeners.1.tls: a table", "[[listeners]]\ntls = 1\n"},
        {2, "listeners.1.tls: cert and key, each the name of a file", "[[listeners]]\ntls = {cert = 'a.pem'}\n"},
        {2, "listeners.1.tls.cert: a readable file (enoent)",
            "[[listeners]]\ntls = {cert = 'a.pem', key = 'b.pem'}\n"},
        {4, "listeners.2.port: another listener", "[[listeners]]\nport = 8\n[[listeners]]\nport = 8\n"},
        {1, "listeners: tables: [[listeners]]", "listeners = 1\n"},
        {1, "listeners.1: a table", "listeners = [1]\n"},
        {2, "http.transports: an array of \"websocket\", \"stream\"", "[http]\ntransports = ['pigeon']\n"},
        {2, "http.origins: \"any\", or an array", "[http]\norigins = ['example.org']\n"},
        {2, "http.status: one of \"any\", \"local\", \"nobody\"", "[http]\nstatus = 'me'\n"},
        {2, "may.publish: one of \"any\", \"local\"", "[may]\npublish = 'me'\n"},
        {2, "may.publish: tokens need a key", "[may]\npublish = 'token'\n"},
        {3, "channels.1.may.subscribe: tokens need", "[[channels]]\npattern = 'a'\nmay = {subscribe = 'token'}\n"},
        {2, "may.publish: needs a server to ask", "[may]\npublish = 'ask'\n"},
        {2, "ask.url: a url such as", "[ask]\nurl = 'a.example'\n"},
        {2, "ask.url: a url such as", "[ask]\nurl = 'http:///may'\n"},
        {2, "ask.url: a url that begins with http:// or https://", "[ask]\nurl = 'ftp://a.example/may'\n"},
        {2, "ask.url: a url with a port from 1 to 65535", "[ask]\nurl = 'http://a.example:0/may'\n"},
        {2, "ask.url: a url with a port from 1 to 65535", "[ask]\nurl = 'http://a.example:65536/may'\n"},
        {2, "ask.url: a url without a user", "[ask]\nurl = 'http://ann:secret@a.example/may'\n"},
        {2, "ask.url: a url without #", "[ask]\nurl = 'http://a.example/may#here'\n"},
        {3, "a.pem: cannot be read: no such file", "[ask]\nurl = 'https://a.example/may'\nca = 'a.pem'\n"},
        {2, "mercure.subscriptions: true or false", "[mercure]\nsubscriptions = 1\n"},
        {1, "ask: url is missing", "[ask]\ntimeout = 1\n"},
        {1, "mercure: Mercure needs a key", "[mercure]\n"},
        {2, "mercure.anonymous: true or false", "[mercure]\nanonymous = 1\n"},
        {2, "listeners.1.proxy_protocol: true or false", "[[listeners]]\nproxy_protocol = 1\n"},
        {2, "tokens.secrets: an array of names", "[tokens]\nsecrets = 'a'\n"},
        {3, "cannot be read: no such file", "[tokens]\n\nsecrets = ['nothing']\n"},
        {2, "limits.bytes: an integer from 0", "[limits]\nbytes = -1\n"},
        {2, "groups.a.colour: unknown key", "[groups.a]\ncolour = 1\n"},
        {1, "channels.1: pattern is missing", "[[channels]]\nmax_messages = 1\n"},
        {4, "channels.2.pattern: occurs twice in the file",
            "[[channels]]\npattern = 'a'\n[[channels]]\npattern = 'a'\n"},
        {5, "channels.2.max_age: milliseconds from 1 on",
            "[[channels]]\npattern = 'a'\n[[channels]]\npattern = 'b'\nmax_age = 0\n"},
        {3, "channels.1.slow: drop_oldest or disconnect", "[[channels]]\npattern = 'a'\nslow = 'never'\n"},
        {3, "channels.1.events: a channel whose policy", "[[channels]]\npattern = 'a'\nevents = 'a'\n"},
        {2, "duplicate key", "drain = 1\ndrain = 2\n"}
    ].

%% A setting without effect is a fault, because its author expects an effect.
settings_without_effect_are_faults_test() ->
    [
        ?assertEqual({Text, {error, [{Line, What}]}}, {Text, read(Text)})
     || {Line, What, Text} <- [
            {3, <<"http.poll_answer: only with plain = \"long_poll\"">>,
                "[http]\nplain = 'raw'\npoll_answer = 'multipart'\n"},
            {2, <<"http.poll_answer: only with plain = \"long_poll\"">>,
                "[http]\npoll_answer = 'raw'\nplain = 'interval_poll'\n"},
            {3, <<"http.poll_timeout: only with plain = \"long_poll\"">>,
                "[http]\nplain = 'interval_poll'\npoll_timeout = 1000\n"},
            {3, <<"http.plain: only with \"poll\" in transports">>, "[http]\ntransports = ['stream']\nplain = 'raw'\n"},
            {3, <<"http.poll_answer: only with \"poll\" in transports">>,
                "[http]\ntransports = ['stream']\npoll_answer = 'raw'\n"},
            {3, <<"http.poll_timeout: only with \"poll\" in transports">>,
                "[http]\ntransports = ['stream']\npoll_timeout = 1000\n"},
            {3, <<"http.stream_timeout: only with a transport other than \"poll\", or with plain = \"raw\"">>,
                "[http]\ntransports = ['poll']\nstream_timeout = 1000\n"},
            {2, <<"tokens.audience: only with a key: secrets, public_keys or jwks">>, "[tokens]\naudience = 'chat'\n"}
        ]
    ],
    [
        ?assertMatch({Text, {ok, _}}, {Text, read(Text)})
     || Text <- [
            "[http]\nplain = 'long_poll'\npoll_answer = 'raw'\npoll_timeout = 1000\n",
            "[http]\ntransports = ['poll']\nplain = 'raw'\nstream_timeout = 1000\n",
            "[http]\ntransports = ['poll', 'chunked']\nstream_timeout = 1000\npoll_answer = 'multipart'\n"
        ]
    ].

all_faults_are_told_test() ->
    ?assertMatch({error, [{1, _}, {3, _}, {4, _}]}, read("drain = 0\n[[listeners]]\nport = -1\nip = 1\n")).

whom_to_ask_test() ->
    Certificate = public_key:pem_encode([{'Certificate', <<"a certificate">>, not_encrypted}]),
    Ask = fun(Text) -> read(["[ask]\n", Text], [{"ca.pem", Certificate}, {"no.pem", "nothing"}]) end,
    {ok, #{ask := Plain}} = Ask("url = 'http://[::1]:9000/may?a=b'\n"),
    ?assertEqual(
        #{
            host => "::1",
            port => 9000,
            target => <<"/may?a=b">>,
            timeout => 2000,
            cache => 10000,
            max_concurrent => 100
        },
        Plain
    ),
    {ok, #{ask := Asked}} = Ask("url = 'HTTPS://a.example'\nca = 'ca.pem'\n"),
    ?assertMatch(#{host := "a.example", port := 443, target := <<"/">>, cacerts := [<<"a certificate">>]}, Asked),
    ?assertEqual(
        {error, [{3, <<"ask.ca: only for a url with https">>}]}, Ask("url = 'http://a.example'\nca = 'ca.pem'\n")
    ),
    ?assertEqual(
        {error, [{3, <<"ask.ca: no.pem: contains no certificate in PEM">>}]},
        Ask("url = 'https://a.example'\nca = 'no.pem'\n")
    ).

%% A system that trusts one certificate. Reading the hundred and more of this machine takes seconds of CPU time.
whom_this_system_trusts_test() ->
    #{cert := Certificate} = public_key:pkix_test_root_cert("a.example", [{key, {namedCurve, secp256r1}}]),
    File = filename:join(
        "_build", lists:concat(["weir_pubsub_trusted_", os:getpid(), "_", erlang:unique_integer([positive])])
    ),
    ok = file:write_file(File, public_key:pem_encode([{'Certificate', Certificate, not_encrypted}])),
    try
        ok = public_key:cacerts_load(File),
        ?assertMatch({ok, [_]}, weir_pubsub_authorization_request:system_certificates()),
        ?assertMatch({ok, #{ask := #{cacerts := system}}}, read("[ask]\nurl = 'https://a.example'\n"))
    after
        _ = public_key:cacerts_clear(),
        ok = file:delete(File)
    end.

a_short_secret_is_told_test() ->
    {error, [{2, Text}]} = read("[tokens]\nsecrets = ['short']\n", [{"short", "x"}]),
    ?assertMatch({_, _}, binary:match(iolist_to_binary(Text), <<"at least 32 bytes">>)).

no_file_test() ->
    ?assertMatch(
        {error, [{none, ["cannot be read: ", "no such file or directory"]}]}, weir_pubsub_file:read("nothing/at/all")
    ).
