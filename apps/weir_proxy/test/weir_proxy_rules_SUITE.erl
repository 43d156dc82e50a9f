%% Rules: routing by first bytes, and modules.
-module(weir_proxy_rules_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_proxy_test, [port/0]).
-import(weir_test_wait, [patience/0]).

-define(SERVER, weir_proxy_backend_double).
%% Timeouts of the first bytes: one that passes in the test, and one that does not.
-define(SOON, 200).
-define(NEVER, 3_600_000).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        by_address,
        by_port,
        by_server_name,
        by_alpn,
        by_host,
        a_name_that_takes_too_long,
        by_postgres,
        by_protocol,
        silence_is_a_protocol,
        what_stops_is_unknown,
        a_server_for_each_name_without_a_rule,
        pieces_lose_no_byte,
        a_hello_is_not_parsed_at_every_piece,
        a_long_hello_is_refused_or_routed,
        clients_of_openssl,
        a_module_talks_and_hands_over,
        a_module_with_a_wrong_prefix,
        a_module_that_raises,
        a_module_may_name_a_backend_by_an_atom,
        a_module_that_returns_something_else,
        a_module_that_takes_too_long,
        a_module_that_was_never_loaded,
        a_rejected_client_is_closed,
        wrong_rules
    ].

init_per_suite(Config) ->
    [A, B, C] = [?SERVER:start(Name, [of_suite]) || Name <- ["a", "b", "c"]],
    Echo = ?SERVER:start("echo", [silent, of_suite]),
    weir_proxy_test:begin_suite([ssl], [
        {servers, #{<<"a">> => A, <<"b">> => B, <<"c">> => C, <<"echo">> => Echo}} | Config
    ]).

end_per_suite(Config) ->
    [ok = ?SERVER:stop(Server) || Server <- maps:values(proplists:get_value(servers, Config))],
    weir_proxy_test:end_suite(Config).

end_per_testcase(_Case, _Config) ->
    _ = weir_event:detach(?MODULE),
    weir_proxy_test:end_case().

by_address(Config) ->
    Port = proxy(Config, [#{from => ["127.0.0.8/29"], backend => b}, #{from => "::1", backend => c}]),
    ?assertEqual(<<"a">>, name(connect(Port))),
    {ok, Other} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {ip, {127, 0, 0, 9}}]),
    ?assertEqual(<<"b">>, name(Other)),
    [
        ?assertEqual({Address, Is}, {Address, weir_proxy_address:is_within(Address, {{10, 0, 0, 0}, 8})})
     || {Address, Is} <- [
            {{10, 1, 2, 3}, true}, {{11, 1, 2, 3}, false}, {{0, 0, 0, 0, 0, 16#ffff, 16#0a01, 16#0203}, true},
            {{0, 0, 0, 0, 0, 16#ffff, 16#0b01, 16#0203}, false}, {{0, 0, 0, 0, 0, 0, 16#0a01, 16#0203}, false}
        ]
    ].

by_port(Config) ->
    Port = weir_test_port:claim(),
    Servers = proplists:get_value(servers, Config),
    ok = weir_proxy:start(proxy, #{
        frontends => #{
            front => #{
                listen => ["127.0.0.9:0", {{127, 0, 0, 1}, Port}],
                backend => a,
                rules => [#{port => Port, backend => b}]
            }
        },
        backends => maps:map(fun(_, Server) -> #{servers => [?SERVER:address(Server)]} end, Servers)
    }),
    ?assertEqual(<<"b">>, name(connect(Port))),
    {ok, #{frontends := #{<<"front">> := #{listen := Listen}}}} = weir_proxy:info(proxy),
    [Other] = [binary_to_integer(Text) || <<"127.0.0.9:", Text/binary>> <- Listen],
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 9}, Other, [binary, {active, false}]),
    ?assertEqual(<<"a">>, name(Socket)).

by_server_name(Config) ->
    Port = proxy(Config, [
        #{sni => "one.example.org", backend => b},
        #{sni => "*.example.org", backend => c},
        #{sni => "~^x[0-9]+[.]", backend => c}
    ]),
    ?assertEqual(
        [<<"b">>, <<"b">>, <<"c">>, <<"a">>, <<"c">>, <<"a">>],
        [
            said(Port, weir_proxy_hello:build(Name))
         || Name <- [
                <<"one.example.org">>,
                <<"ONE.example.org">>,
                <<"two.example.org">>,
                <<"example.org">>,
                <<"x12.net">>,
                <<"xx.net">>
            ]
        ]
    ).

by_alpn(Config) ->
    Port = proxy(Config, [#{alpn => ["h2", "spdy"], backend => b}]),
    ?assertEqual(<<"b">>, said(Port, hello([<<"http/1.1">>, <<"h2">>]))),
    ?assertEqual(<<"a">>, said(Port, hello([<<"http/1.1">>]))).

by_host(Config) ->
    Port = proxy(Config, [#{host => ["b.org", "*.b.org"], backend => b}]),
    ?assertEqual(<<"b">>, said(Port, <<"GET / HTTP/1.1\r\nAccept: *\r\nHOST: B.org:8080\r\n\r\n">>)),
    ?assertEqual(<<"a">>, said(Port, <<"GET / HTTP/1.1\r\nX-Host: b.org\r\nHost: c.org\r\n\r\n">>)),
    %% Not UTF-8.
    ?assertEqual(<<"a">>, said(Port, <<"GET / HTTP/1.1\r\nHost: b", 255, ".org\r\n\r\n">>)),
    Host = fun(Head) ->
        {ok, Facts} = weir_proxy_first_bytes:classify(iolist_to_binary(["GET / HTTP/1.1\r\n", Head, "\r\n\r\n"])),
        maps:get(host, Facts, none)
    end,
    Blanks = lists:duplicate(20_000, $\s),
    [
        ?assertEqual({Wanted, Head}, {Host(Head), Head})
     || {Wanted, Head} <- [
            {<<"b.org">>, ["Host:", Blanks, "b.org", Blanks]},
            {<<"b.org">>, "Accept: *\nhost:\tb.org\nX: y"},
            {<<"[::1]">>, "Host: [::1]:80"},
            {<<"[::1]">>, "Host: [::1]"},
            {<<"b.org">>, "Host: b.org\r\nHost: B.org"},
            %% The server might use the other one.
            {none, "Host: b.org\r\nHost: c.org"},
            {none, "Host: b.org\nHost: c.org"},
            {none, ["Host: b.org", Blanks, "c.org"]},
            {none, ["Host: ", lists:duplicate(300, $b)]},
            {none, "Host:"},
            {none, "Accept: *"}
        ]
    ].

%% The limit counts steps, not time. A connection whose name needs too many is rejected.
a_name_that_takes_too_long(Config) ->
    Port = proxy(Config, [#{sni => "~^([a-z]+)+[.]org$", reject => true}, #{host => "~^(b+)+[.]org$", reject => true}]),
    ?assertEqual(<<"a">>, said(Port, weir_proxy_hello:build(<<"aa-aa.org">>))),
    Long = fun(Letter) -> binary:copy(Letter, 60) end,
    Refused = fun(Bytes) ->
        Socket = connect(Port),
        ok = gen_tcp:send(Socket, Bytes),
        gen_tcp:recv(Socket, 0, patience())
    end,
    ?assertMatch({error, _}, Refused(weir_proxy_hello:build(<<(Long(<<"a">>))/binary, "-.org">>))),
    ?assertMatch({error, _}, Refused(["GET / HTTP/1.1\r\nHost: ", Long(<<"b">>), "-.org\r\n\r\n"])),
    ?waitEqual(2, numbers(rejected)).

by_postgres(Config) ->
    Port = proxy(Config, [#{database => "sales", backend => b}, #{user => "joe", backend => c}]),
    Startup = fun(Pairs) ->
        Body = <<(iolist_to_binary([[Text, 0] || Text <- Pairs]))/binary, 0>>,
        <<(byte_size(Body) + 8):32, 3:16, 0:16, Body/binary>>
    end,
    ?assertEqual(<<"b">>, said(Port, Startup(["user", "joe", "database", "sales"]))),
    ?assertEqual(<<"b">>, said(Port, Startup(["user", "sales"]))),
    ?assertEqual(<<"c">>, said(Port, Startup(["user", "joe", "database", "other"]))),
    ?assertEqual(<<"a">>, said(Port, Startup(["user", "jim"]))).

by_protocol(Config) ->
    Port = proxy(Config, [#{protocol => [ssh, redis], backend => b}, #{protocol => http, backend => c}]),
    ?assertEqual(<<"b">>, said(Port, <<"SSH-2.0-x\r\n">>)),
    ?assertEqual(<<"b">>, said(Port, <<"*1\r\n$4\r\nPING\r\n">>)),
    ?assertEqual(<<"c">>, said(Port, <<"GET / HTTP/1.0\r\n\r\n">>)),
    ?assertEqual(<<"a">>, said(Port, <<"whatever">>)),
    ?assertEqual(<<"a">>, said(Port, weir_proxy_hello:build(<<"x">>))).

silence_is_a_protocol(Config) ->
    Port = proxy(Config, [#{protocol => none, backend => b}], ?SOON),
    ?assertEqual(<<"b">>, name(connect(Port))).

what_stops_is_unknown(Config) ->
    Port = port(
        start(Config, [#{protocol => unknown, backend => b}], #{first_bytes_timeout => ?SOON, max_connections => 1})
    ),
    Said = fun(Bytes) ->
        %% The only allowed connection sends nothing and goes to a server. The next is accepted after it has sent its
        %% bytes.
        First = connect(Port),
        ?assertEqual(<<"a">>, name(First)),
        Socket = connect(Port),
        ok = gen_tcp:send(Socket, Bytes),
        ok = gen_tcp:close(First),
        Name = name(Socket),
        ok = gen_tcp:close(Socket),
        Name
    end,
    ?assertEqual(<<"b">>, Said(<<"GET / HT">>)),
    ?assertEqual(<<"b">>, Said(binary:part(weir_proxy_hello:build(<<"x">>), 0, 40))).

%% The first bytes are read only for the key.
a_server_for_each_name_without_a_rule(Config) ->
    Servers = [
        ?SERVER:address(Server)
     || {Name, Server} <- maps:to_list(proplists:get_value(servers, Config)), Name =/= <<"echo">>
    ],
    ok = weir_proxy:start(proxy, #{
        frontends => #{front => #{listen => "127.0.0.1:0", backend => named, first_bytes_timeout => ?NEVER}},
        backends => #{named => #{servers => Servers, balance => hash, hash_key => sni, hash_load => infinity}}
    }),
    Port = port(),
    Of = fun(Name) -> lists:usort([said(Port, weir_proxy_hello:build(Name)) || _ <- lists:seq(1, 3)]) end,
    Chosen = [Of(<<"host", (integer_to_binary(N))/binary>>) || N <- lists:seq(1, 30)],
    ?assert(lists:all(fun(One) -> length(One) =:= 1 end, Chosen)),
    ?assertEqual(3, length(lists:usort(Chosen))),
    ?assertEqual(1, length(lists:usort([said(Port, <<"no TLS">>) || _ <- lists:seq(1, 3)]))).

%% Cut at every byte, a hello goes to the same server, and every byte arrives.
pieces_lose_no_byte(Config) ->
    Port = proxy(Config, [#{sni => "one.example.org", backend => echo}]),
    Hello = <<(weir_proxy_hello:build(<<"one.example.org">>))/binary, "behind">>,
    Cases = [
        begin
            Socket = connect(Port),
            <<Front:Cut/binary, Back/binary>> = Hello,
            ok = gen_tcp:send(Socket, Front),
            {Socket, Back}
        end
     || Cut <- lists:seq(1, byte_size(Hello) - 1)
    ],
    [ok = gen_tcp:send(Socket, Back) || {Socket, Back} <- Cases],
    [?assertEqual({ok, Hello}, gen_tcp:recv(Socket, byte_size(Hello), patience())) || {Socket, _} <- Cases].

%% 15 KB byte by byte: parsing all bytes 15,000 times would take seconds.
a_hello_is_not_parsed_at_every_piece(_Config) ->
    [
        begin
            Hello = in_records(long(15_000), Size),
            ?assert(looks(Hello, 1, 1) =< Most)
        end
     || {Size, Most} <- [{16_000, 5}, {1000, 5}, {1, 100}]
    ].

looks(Hello, Size, Count) ->
    Part = binary:part(Hello, 0, Size),
    case weir_proxy_first_bytes:classify(Part) of
        {ok, #{sni := <<"one.example.org">>}} -> Count;
        more -> looks(Hello, weir_proxy_first_bytes:needed(Part), Count + 1)
    end.

a_long_hello_is_refused_or_routed(Config) ->
    Port = proxy(Config, [#{sni => "one.example.org", backend => b}]),
    Said = fun(Size) -> said(Port, in_records(long(Size), 1000)) end,
    ?assertEqual(<<"b">>, Said(2000)),
    ?assertEqual(<<"b">>, Said(15_000)),
    ?assertEqual(<<"a">>, Said(17_000)).

%% As large as a hello with post-quantum keys, and larger. Padding is extension 21.
long(Size) ->
    <<22, 3, 1, _:16, 1, BodySize:24, Body/binary>> = weir_proxy_hello:build(<<"one.example.org">>),
    Before = BodySize - extensions_size(Body) - 2,
    <<Front:Before/binary, _:16, Extensions/binary>> = Body,
    All = <<21:16, Size:16, 0:Size/unit:8, Extensions/binary>>,
    Message = <<Front/binary, (byte_size(All)):16, All/binary>>,
    <<1, (byte_size(Message)):24, Message/binary>>.

in_records(Message, Size) -> iolist_to_binary(records(Message, Size)).

records(Message, Size) ->
    case Message of
        <<Piece:Size/binary, Rest/binary>> when Rest =/= <<>> ->
            [<<22, 3, 1, Size:16, Piece/binary>> | records(Rest, Size)];
        _ ->
            [<<22, 3, 1, (byte_size(Message)):16, Message/binary>>]
    end.

extensions_size(<<3, 3, _:32/binary, 0, Ciphers:16, _:Ciphers/binary, 1, 0, Size:16, _/binary>>) -> Size.

%% OTP's ssl is the client here; `make soak' has curl and Chromium.
clients_of_openssl(Config) ->
    Port = proxy(Config, [#{sni => "one.example.org", alpn => "h2", backend => b}]),
    Before = ?SERVER:connections(maps:get(<<"b">>, proplists:get_value(servers, Config))),
    _ = ssl:connect({127, 0, 0, 1}, Port, [
        {server_name_indication, "one.example.org"}, {alpn_advertised_protocols, [<<"h2">>]}, {verify, verify_none}
    ], patience()),
    ?waitEqual(Before + 1, ?SERVER:connections(maps:get(<<"b">>, proplists:get_value(servers, Config)))).

%%% Modules.

a_module_talks_and_hands_over(Config) ->
    Port = proxy(Config, [#{protocol => none, backend => a}, #{module => ?MODULE, args => <<"secret">>}]),
    Socket = connect(Port),
    %% More than the line at once: the bytes after it go to the server.
    ok = gen_tcp:send(Socket, <<"secret\nhello">>),
    ?assertEqual({ok, <<"ok\n<hello">>}, gen_tcp:recv(Socket, 9, patience())),
    Other = connect(Port),
    ok = gen_tcp:send(Other, <<"wrong\nhello">>),
    ?assertEqual({error, closed}, gen_tcp:recv(Other, 0, patience())),
    ?waitEqual(1, numbers(rejected)).

a_module_with_a_wrong_prefix(Config) ->
    Test = self(),
    ok = weir_event:attach_many(
        ?MODULE, [[weir, proxy, refuse]], fun(_, _, #{reason := Reason}, _) -> Test ! {refused, Reason} end, none
    ),
    Port = proxy(Config, [#{module => ?MODULE, args => wrong_prefix}]),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    receive
        {refused, Reason} -> ?assertEqual(crashed, Reason)
    after patience() -> ct:fail(not_refused)
    end.

a_module_that_raises(Config) ->
    Port = proxy(Config, [#{module => ?MODULE, args => raise}]),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    ?waitEqual({0, 1}, {numbers(current_sessions), numbers(connection_errors)}).

a_module_may_name_a_backend_by_an_atom(Config) ->
    ?assertEqual(<<"b">>, name(connect(proxy(Config, [#{module => ?MODULE, args => {return, {backend, b}}}])))),
    ok = weir_proxy:stop(proxy),
    ?assertEqual(
        <<"c">>, name(connect(proxy(Config, [#{module => ?MODULE, args => {return, {backend, "c", #{key => 1}}}}])))
    ).

a_module_that_returns_something_else(Config) ->
    Port = proxy(Config, [#{module => ?MODULE, args => {return, {backend, 1}}}]),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    ?waitEqual({0, 1}, {numbers(current_sessions), numbers(connection_errors)}).

a_module_that_takes_too_long(Config) ->
    Port = proxy(Config, [#{module => ?MODULE, args => sleep}], ?SOON),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    ?waitEqual({0, 1}, {numbers(current_sessions), numbers(connection_errors)}).

%% Another program compiles it: this node does not know its atom.
a_module_that_was_never_loaded(Config) ->
    Name = ["weir_proxy_route_", integer_to_list(erlang:unique_integer([positive])), "_", os:getpid()],
    Dir = proplists:get_value(priv_dir, Config),
    File = filename:join(Dir, [Name, ".erl"]),
    ok = file:write_file(File, [
        "-module(", Name, "). -export([route/3]). route(_, _, Backend) -> {backend, Backend}.\n"
    ]),
    "" = os:cmd(["erlc -o ", Dir, " ", File]),
    true = code:add_patha(Dir),
    Text = iolist_to_binary(Name),
    ?assertError(badarg, binary_to_existing_atom(Text)),
    ?assertEqual(<<"b">>, name(connect(proxy(Config, [#{module => Text, args => <<"b">>}])))),
    true = code:del_path(Dir).

route(_Socket, _Facts, {return, Result}) -> Result;
route(_Socket, _Facts, raise) -> error(on_purpose);
route(_Socket, _Facts, wrong_prefix) -> {backend, <<"a">>, #{prefix => wrong}};
route(_Socket, _Facts, sleep) -> timer:sleep(infinity);
route(Socket, #{address := {127, 0, 0, 1}, protocol := unknown}, Secret) ->
    ok = inet:setopts(Socket, [{packet, line}]),
    {ok, Line} = gen_tcp:recv(Socket, 0),
    ok = inet:setopts(Socket, [{packet, raw}]),
    case string:trim(Line) of
        Secret ->
            ok = gen_tcp:send(Socket, <<"ok\n">>),
            {backend, <<"echo">>, #{prefix => <<"<">>}};
        _ ->
            reject
    end.

a_rejected_client_is_closed(Config) ->
    Port = proxy(Config, [#{from => "127.0.0.1", reject => true}]),
    ?assertEqual({error, closed}, gen_tcp:recv(connect(Port), 0, patience())),
    ?waitEqual(1, numbers(rejected)).

wrong_rules(Config) ->
    Wrong = fun(Rule) ->
        {error, {bad_option, [frontends, <<"front">>, rules, 1 | Path], _, [_ | _]}} = start(Config, [Rule]),
        Path
    end,
    ?assertEqual([], Wrong(#{sni => "x"})),
    ?assertEqual([], Wrong(#{backend => a, reject => true})),
    ?assertEqual([backend], Wrong(#{backend => nobody})),
    ?assertEqual([sni, 1], Wrong(#{sni => ["~("], backend => a})),
    ?assertEqual([from], Wrong(#{from => "10.0.0.0/33", backend => a})),
    ?assertEqual([protocol], Wrong(#{protocol => gopher, backend => a})),
    ?assertEqual([module], Wrong(#{module => lists})),
    ?assertEqual([surplus], Wrong(#{surplus => 1, backend => a})).

%%% Helpers.

start(Config, Rules) -> start(Config, Rules, #{first_bytes_timeout => ?NEVER}).

start(Config, Rules, More) ->
    Servers = proplists:get_value(servers, Config),
    weir_proxy:start(proxy, #{
        frontends => #{front => More#{listen => "127.0.0.1:0", backend => a, rules => Rules}},
        backends => maps:map(fun(_, Server) -> #{servers => [?SERVER:address(Server)]} end, Servers)
    }).

proxy(Config, Rules) -> proxy(Config, Rules, ?NEVER).

proxy(Config, Rules, Timeout) -> port(start(Config, Rules, #{first_bytes_timeout => Timeout})).

port(ok) -> port().

numbers(Name) ->
    {ok, #{frontends := #{<<"front">> := #{Name := Number}}}} = weir_proxy:info(proxy),
    Number.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}], patience()),
    Socket.

%% Returns the server's name, and checks that every byte comes back after it.
said(Port, Bytes) ->
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, Bytes),
    Name = name(Socket),
    ?assertEqual({ok, Bytes}, gen_tcp:recv(Socket, byte_size(Bytes), patience())),
    Name.

name(Socket) ->
    {ok, <<Name:1/binary, "\n">>} = gen_tcp:recv(Socket, 2, patience()),
    Name.

hello(Protocols) ->
    <<22, 3, 1, _:16, 1, BodySize:24, Body/binary>> = weir_proxy_hello:build(<<"one.example.org">>),
    Before = BodySize - extensions_size(Body) - 2,
    <<Front:Before/binary, _:16, Extensions/binary>> = Body,
    List = iolist_to_binary([[byte_size(Protocol), Protocol] || Protocol <- Protocols]),
    All = <<Extensions/binary, 16:16, (byte_size(List) + 2):16, (byte_size(List)):16, List/binary>>,
    Message = <<Front/binary, (byte_size(All)):16, All/binary>>,
    in_records(<<1, (byte_size(Message)):24, Message/binary>>, 1000).
