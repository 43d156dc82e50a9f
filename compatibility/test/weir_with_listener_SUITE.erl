%% Unchanged code written for ranch, under Weir's listeners: Cowboy, and a protocol that calls ranch. And HAProxy in
%% front of a listener, with its PROXY header.
-module(weir_with_listener_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    cowboy_is_served/1,
    cowboy_speaks_tls/1,
    cowboy_ends_with_its_listener/1,
    cowboys_websocket_talks/1,
    cowboys_limits_hold/1,
    cowboys_environment_changes/1,
    ranch_knows_the_listener/1,
    ranch_changes_the_listener/1,
    ranch_changes_the_next_connection/1,
    ranch_lets_connections_not_count/1,
    ranch_may_start_later/1,
    ranch_shakes_hands/1,
    ranch_reads_the_proxy_header/1,
    haproxy_sends_its_header/1
]).
-export([init/2, websocket_handle/2, start_link/3, greet/3]).

-define(LOCALHOST, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [
        cowboy_is_served,
        cowboy_speaks_tls,
        cowboy_ends_with_its_listener,
        cowboys_websocket_talks,
        cowboys_limits_hold,
        cowboys_environment_changes,
        ranch_knows_the_listener,
        ranch_changes_the_listener,
        ranch_changes_the_next_connection,
        ranch_lets_connections_not_count,
        ranch_may_start_later,
        ranch_shakes_hands,
        ranch_reads_the_proxy_header,
        haproxy_sends_its_header
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, _} = application:ensure_all_started(ssl),
    Files = weir_compatibility_certificates:write(weir_compatibility_certificates:make(), ?config(priv_dir, Config)),
    [{files, Files} | Config].

end_per_suite(_Config) ->
    ok.

init_per_testcase(Case, Config) ->
    Wanted =
        case atom_to_list(Case) of
            "cowboy" ++ _ -> [ranch, cow_http, cowboy, "curl"];
            "ranch" ++ _ -> [ranch];
            "haproxy" ++ _ -> ["haproxy"]
        end,
    case weir_with:needs(Wanted, Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            Wanted =:= ["haproxy"] orelse application:ensure_all_started(lists:last([A || A <- Wanted, is_atom(A)])),
            Config
    end.

end_per_testcase(_Case, _Config) ->
    _ = weir:stop_listener(?MODULE),
    weir_with:nothing_left().

cowboy_is_served(_Config) ->
    Port = cowboy(cowboy_clear, #{}),
    ?assertEqual({0, <<"hello world">>}, curl("http", Port)),
    ?assert(weir_with:on_weir(Port)).

cowboy_speaks_tls(Config) ->
    #{server := #{certfile := Certificate, keyfile := Key}} = ?config(files, Config),
    Tls = [{certfile, Certificate}, {keyfile, Key}, {alpn_preferred_protocols, [<<"h2">>, <<"http/1.1">>]}],
    Port = cowboy(cowboy_tls, #{tls => Tls}),
    ?assertEqual({0, <<"hello world">>}, curl("https", Port)).

cowboy_ends_with_its_listener(_Config) ->
    Port = cowboy(cowboy_clear, #{}),
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    {ok, <<"HTTP/1.1 200", _/binary>>} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    ?assertMatch(#{connections := 1}, weir:info(?MODULE)),
    ok = weir:stop_listener(?MODULE),
    {_, Reason} = weir_test_wait:recv_all(Socket),
    ?assertNotEqual(timeout, Reason),
    ok = gen_tcp:close(Socket).

cowboys_websocket_talks(_Config) ->
    Socket = weir_with_websocket:connect(cowboy(cowboy_clear, #{}), "/websocket"),
    [
        begin
            ok = gen_tcp:send(Socket, weir_with_websocket:frame(2, Data)),
            ?assert({2, Data} =:= weir_with_websocket:receive_frame(Socket))
        end
     || Size <- [0, 1, 126, 65536, 300000], Data <- [weir_with:bytes(Size)]
    ],
    ok = gen_tcp:send(Socket, weir_with_websocket:frame(8, <<1000:16>>)),
    ?assertEqual({8, <<1000:16>>}, weir_with_websocket:receive_frame(Socket)),
    ok = gen_tcp:close(Socket).

%% The same limits as on ranch: by default 4,096 bytes of a header's value.
cowboys_limits_hold(_Config) ->
    Port = cowboy(cowboy_clear, #{}),
    [
        begin
            {ok, Socket} = connect(Port),
            ok = gen_tcp:send(Socket, [
                "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", binary:copy(<<"x">>, Length), "\r\n\r\n"
            ]),
            {ok, <<"HTTP/1.1 ", Status:3/binary, _/binary>>} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            ?assertEqual({Length, Expected}, {Length, Status}),
            ok = gen_tcp:close(Socket)
        end
     || {Length, Expected} <- [{4000, <<"200">>}, {5000, <<"431">>}, {50000, <<"431">>}]
    ].

cowboys_environment_changes(_Config) ->
    Port = cowboy(cowboy_clear, #{}),
    ?assertEqual({0, <<"hello world">>}, curl("http", Port)),
    ok = cowboy:set_env(?MODULE, dispatch, cowboy_router:compile([{'_', [{"/", ?MODULE, {page, <<"changed">>}}]}])),
    weir_test_wait:wait_until(fun() -> curl("http", Port) =:= {0, <<"changed">>} end),
    ?assertMatch([{'_', _, _}], cowboy:get_env(?MODULE, dispatch)).

%% Calls every function of ranch that reads a listener by name.
ranch_knows_the_listener(_Config) ->
    Self = self(),
    Port = hold(#{max_connections => 7}),
    {ok, Socket} = connect(Port),
    Pid = receive {held, Held} -> Held end,
    ?assertEqual(Port, ranch:get_port(?MODULE)),
    ?assertEqual({?LOCALHOST, Port}, ranch:get_addr(?MODULE)),
    ?assertEqual(running, ranch:get_status(?MODULE)),
    ?assertEqual(7, ranch:get_max_connections(?MODULE)),
    ?assertEqual({hold, Self}, ranch:get_protocol_options(?MODULE)),
    ?assertMatch(#{max_connections := 7, handshake_timeout := 5000}, ranch:get_transport_options(?MODULE)),
    ?assertEqual([Pid], ranch:procs(?MODULE, connections)),
    ?assertMatch([_ | _], ranch:procs(?MODULE, acceptors)),
    ?assertMatch(
        #{
            status := running, port := Port, ip := ?LOCALHOST, max_connections := 7, active_connections := 1,
            all_connections := 1, protocol := ?MODULE, transport := weir_transport,
            metrics := #{{conns_sup, 1, accept} := 1, {conns_sup, 1, terminate} := 0}
        },
        ranch:info(?MODULE)
    ),
    ?assertMatch(#{?MODULE := #{port := Port}}, ranch:info()),
    ok = ranch:wait_for_connections(?MODULE, '==', 1),
    ok = gen_tcp:close(Socket),
    ok = ranch:wait_for_connections(?MODULE, '==', 0, 10),
    ok = weir:stop_listener(?MODULE),
    ?assertError(badarg, ranch:get_port(?MODULE)),
    ?assertNot(is_map_key(?MODULE, ranch:info())).

%% Calls every function of ranch that changes a listener.
ranch_changes_the_listener(_Config) ->
    Self = self(),
    Port = hold(#{}),
    ok = ranch:set_max_connections(?MODULE, 3),
    weir_test_wait:wait_until(fun() -> maps:get(max_connections, weir:info(?MODULE)) =:= 3 end),
    ok = ranch:set_transport_options(?MODULE, #{max_connections => 4, socket_opts => [{nodelay, false}]}),
    weir_test_wait:wait_until(fun() -> maps:get(max_connections, weir:info(?MODULE)) =:= 4 end),
    ok = ranch:set_protocol_options(?MODULE, ranch),
    ?assertEqual(ranch, ranch:get_protocol_options(?MODULE)),
    weir_test_wait:wait_until(fun() -> answers(Port, <<"hello">>) end),
    ok = weir:set_options(?MODULE, #{args => {hold, Self}, max_connections => 5}),
    weir_test_wait:wait_until(fun() -> ranch:get_protocol_options(?MODULE) =:= {hold, Self} end),
    weir_test_wait:wait_until(fun() -> ranch:get_max_connections(?MODULE) =:= 5 end),
    ok = ranch:suspend_listener(?MODULE),
    ?assertMatch(#{status := suspended}, weir:info(?MODULE)),
    ?assertEqual(suspended, ranch:get_status(?MODULE)),
    ?assertEqual({error, econnrefused}, connect(Port)),
    ok = ranch:resume_listener(?MODULE),
    ?assertEqual(running, ranch:get_status(?MODULE)),
    ?assertEqual(Port, ranch:get_port(?MODULE)),
    {ok, _} = connect(Port),
    receive {held, _} -> ok end,
    %% ranch does not stop a listener that it has not started.
    ?assertEqual({error, not_found}, ranch:stop_listener(?MODULE)),
    %% Once stopped, the name is unknown to ranch. The result for unknown names depends on ranch's version.
    ok = weir:stop_listener(?MODULE),
    Stop = fun(Name) -> try ranch:stop_listener(Name) catch error:Reason -> {raised, Reason} end end,
    ?assertEqual(Stop(never), Stop(?MODULE)).

%% A connection that begins after the call has returned gets the new arguments, whether weir or ranch was called.
ranch_changes_the_next_connection(Config) ->
    #{server := #{certfile := Certificate, keyfile := Key}} = ?config(files, Config),
    Patience = weir_test_wait:patience(),
    [
        begin
            {ok, _} = weir:start_listener(?MODULE, Options#{ip => ?LOCALHOST}, ?MODULE, {say, <<"0000">>}),
            Port = weir:get_port(?MODULE),
            Wrong = [
                {Expected, Heard}
             || N <- lists:seq(1, Rounds),
                Expected <- [iolist_to_binary(io_lib:format("~4..0b", [N]))],
                Heard <- [begin ok = set_arguments(N, {say, Expected}), says(Transport, Port, Patience) end],
                Heard =/= {ok, Expected}
            ],
            ok = weir:stop_listener(?MODULE),
            ?assertEqual([], Wrong)
        end
     || {Transport, Options, Rounds} <- [
            {gen_tcp, #{}, 500}, {ssl, #{tls => [{certfile, Certificate}, {keyfile, Key}]}, 50}
        ]
    ].

set_arguments(N, Args) when N rem 3 =:= 0 -> weir:set_options(?MODULE, #{args => Args});
set_arguments(_N, Args) -> ranch:set_protocol_options(?MODULE, Args).

says(Transport, Port, Patience) ->
    Tls = [{verify, verify_none} || Transport =:= ssl],
    {ok, Socket} = Transport:connect(?LOCALHOST, Port, [binary, {active, false} | Tls], Patience),
    Heard = Transport:recv(Socket, 4, Patience),
    ok = Transport:close(Socket),
    Heard.

ranch_lets_connections_not_count(_Config) ->
    Port = hold(#{max_connections => 1}),
    {ok, First} = connect(Port),
    Pid = receive {held, Held} -> Held end,
    {ok, Second} = connect(Port),
    ok = weir_test_wait:assert_no_message(),
    Pid ! remove,
    {held, _} = weir_test_wait:next_message(),
    %% The connection stays, but its end must not free a slot a second time.
    ?assertMatch(#{connections := 2}, weir:info(?MODULE)),
    ok = gen_tcp:close(First),
    weir_test_wait:wait_until(fun() -> maps:get(connections, weir:info(?MODULE)) =:= 1 end),
    {ok, Third} = connect(Port),
    ok = weir_test_wait:assert_no_message(),
    [ok = gen_tcp:close(Socket) || Socket <- [Second, Third]].

ranch_may_start_later(_Config) ->
    _ = application:stop(cowboy),
    ok = application:stop(ranch),
    Port = hold(#{}),
    ok = application:start(ranch),
    weir_test_wait:wait_until(fun() ->
        try ranch:get_port(?MODULE) =:= Port catch error:badarg -> false end
    end),
    ok = application:stop(ranch),
    ok = application:start(ranch),
    weir_test_wait:wait_until(fun() ->
        try ranch:get_port(?MODULE) =:= Port catch error:badarg -> false end
    end).

%% Starts a listener whose connections report to this process and stay open.
hold(Options) ->
    {ok, _} = weir:start_listener(?MODULE, Options#{ip => ?LOCALHOST}, ?MODULE, {hold, self()}),
    weir:get_port(?MODULE).

answers(Port, Expected) ->
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, "x"),
    Answer = gen_tcp:recv(Socket, byte_size(Expected), 500),
    ok = gen_tcp:close(Socket),
    Answer =:= {ok, Expected}.

cowboy(Protocol, Options) ->
    Dispatch = cowboy_router:compile([{'_', [{"/", ?MODULE, page}, {"/websocket", ?MODULE, websocket}]}]),
    Patience = weir_test_wait:patience(),
    {ok, _} = weir:start_listener(?MODULE, Options#{ip => ?LOCALHOST, handshake_timeout => Patience}, Protocol, #{
        env => #{dispatch => Dispatch}, connection_type => supervisor, request_timeout => Patience
    }),
    weir:get_port(?MODULE).

init(Request, page) ->
    {ok, cowboy_req:reply(200, #{}, <<"hello world">>, Request), page};
init(Request, {page, Text}) ->
    {ok, cowboy_req:reply(200, #{}, Text, Request), page};
init(Request, websocket) ->
    {cowboy_websocket, Request, websocket, #{max_frame_size => 1_000_000}}.

websocket_handle({binary, Data}, State) ->
    {reply, {binary, Data}, State}.

curl(Scheme, Port) ->
    weir_with:program("curl", ["--silent", "--insecure", Scheme ++ "://127.0.0.1:" ++ integer_to_list(Port) ++ "/"]).

ranch_shakes_hands(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOCALHOST}, ?MODULE, ranch),
    is_greeted(weir:get_port(?MODULE), <<>>, <<"hello">>).

ranch_reads_the_proxy_header(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOCALHOST}, ?MODULE, ranch_with_header),
    Header = ranch_proxy_header:header(#{
        version => 2, command => proxy, transport_family => ipv4, transport_protocol => stream,
        src_address => {192, 0, 2, 1}, src_port => 1234, dest_address => {192, 0, 2, 2}, dest_port => 80
    }),
    is_greeted(weir:get_port(?MODULE), Header, <<"192.0.2.1">>).

haproxy_sends_its_header(Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{
        ip => ?LOCALHOST, proxy_protocol => true, handshake_timeout => weir_test_wait:patience()
    }, ?MODULE, weir),
    Paths = [
        {How, lists:concat(["/tmp/weir_haproxy_", os:getpid(), "_", erlang:unique_integer([positive])])}
     || How <- ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn"]
    ],
    with_haproxy(Paths, weir:get_port(?MODULE), Config, fun() -> [greeted_through(Path) || {_, Path} <- Paths] end).

%% Unix sockets with paths of this emulator, so that no port has to be chosen.
with_haproxy(Paths, Backend, Config, Test) ->
    File = filename:join(?config(priv_dir, Config), "haproxy"),
    ok = file:write_file(File, [
        "defaults\n mode tcp\n timeout connect 5m\n timeout client 5m\n timeout server 5m\n",
        [
            [
                "listen ",
                How,
                "\n bind unix@",
                Path,
                "\n server weir 127.0.0.1:",
                integer_to_list(Backend),
                " ",
                How,
                "\n"
            ]
         || {How, Path} <- Paths
        ]
    ]),
    {Executable, Arguments} = weir_program:with_us(weir_program:find("haproxy"), ["-db", "-q", "-f", File]),
    HAProxy = open_port({spawn_executable, Executable}, [{args, Arguments}, stderr_to_stdout, exit_status]),
    {os_pid, Pid} = erlang:port_info(HAProxy, os_pid),
    try
        Test()
    after
        _ = os:cmd("kill " ++ integer_to_list(Pid)),
        receive
            {HAProxy, {exit_status, _}} -> ok
        after weir_test_wait:patience() -> port_close(HAProxy)
        end,
        [_ = file:delete(Path) || {_, Path} <- Paths]
    end.

greeted_through(Path) ->
    {ok, Socket} = ?waitMatch({ok, _}, gen_tcp:connect({local, Path}, 0, [binary, {active, false}])),
    ok = gen_tcp:send(Socket, "hello"),
    %% The peer of a unix socket has no address for the header.
    ?assertEqual({ok, <<"unknown">>}, gen_tcp:recv(Socket, 0, weir_test_wait:patience())),
    ok = gen_tcp:close(Socket).

connect(Port) -> gen_tcp:connect(?LOCALHOST, Port, [binary, {active, false}]).

is_greeted(Port, First, Expected) ->
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, [First, "x"]),
    ?assertEqual({ok, Expected}, gen_tcp:recv(Socket, byte_size(Expected), weir_test_wait:patience())),
    ok = gen_tcp:close(Socket).

%% A protocol for ranch.
start_link(Ref, Transport, How) ->
    {ok, proc_lib:spawn_link(?MODULE, greet, [Ref, Transport, How])}.

greet(Ref, Transport, {hold, Pid}) ->
    {ok, Socket} = ranch:handshake(Ref),
    Pid ! {held, self()},
    ok = Transport:setopts(Socket, [{active, once}]),
    (fun Hold() ->
        receive
            remove -> ok = ranch:remove_connection(Ref), Hold();
            {tcp_closed, _} -> ok
        end
    end)();
greet(Ref, Transport, {say, What}) ->
    {ok, Socket} = ranch:handshake(Ref),
    ok = Transport:send(Socket, What),
    Transport:close(Socket);
greet(Ref, Transport, How) ->
    Greeting =
        case How of
            ranch_with_header ->
                {ok, #{src_address := Address}} = ranch:recv_proxy_header(Ref, weir_test_wait:patience()),
                inet:ntoa(Address);
            _ ->
                "hello"
        end,
    {ok, Socket} =
        case How of
            weir -> weir:handshake(Ref);
            _ -> ranch:handshake(Ref)
        end,
    _ = Transport:recv(Socket, 1, weir_test_wait:patience()),
    ok = Transport:send(Socket, greeting(weir:proxy_header(), Greeting)),
    Transport:close(Socket).

greeting({ok, #{src_address := Address}}, _) when is_tuple(Address) -> inet:ntoa(Address);
greeting({ok, _}, _) -> "unknown";
greeting(undefined, Greeting) -> Greeting.
