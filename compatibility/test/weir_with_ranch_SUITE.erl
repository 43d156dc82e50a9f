%% Features of Cowboy and ranch beyond plain HTTP, on OTP's sockets and on Weir's: WebSocket, the PROXY header, TLS,
%% draining.
-module(weir_with_ranch_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0]).
-export([init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([end_per_testcase/2]).
-export([
    the_listening_socket_is_the_one_under_test/1,
    a_websocket_talks/1,
    a_websocket_is_left_open/1,
    the_proxy_header_is_read/1,
    cowboy_speaks_tls/1,
    a_listener_is_drained/1,
    a_suspended_listener_resumes/1
]).
-export([init/2, websocket_handle/2, websocket_info/2]).
-export([start_link/3, proxied/2]).

-import(weir_with_websocket, [frame/2, receive_frame/1]).

-define(LOCALHOST, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [{group, stock}, {group, weir}].

groups() ->
    Cases = [
        the_listening_socket_is_the_one_under_test,
        a_websocket_talks,
        a_websocket_is_left_open,
        the_proxy_header_is_read,
        cowboy_speaks_tls,
        a_listener_is_drained,
        a_suspended_listener_resumes
    ],
    [{stock, [], Cases}, {weir, [], Cases}].

init_per_suite(Config) ->
    case weir_with:needs([ranch, cow_http, cowboy, "openssl", "curl"], Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            {ok, _} = application:ensure_all_started(ssl),
            {ok, _} = application:ensure_all_started(cowboy),
            Files = weir_compatibility_certificates:write(
                weir_compatibility_certificates:make(), ?config(priv_dir, Config)
            ),
            [{files, Files} | Config]
    end.

end_per_suite(_Config) ->
    application:stop(cowboy).

init_per_group(Backend, Config) ->
    weir_with:init_group(Backend, Config).

end_per_group(_Backend, _Config) ->
    ok.

end_per_testcase(_Case, _Config) ->
    _ = ranch:stop_listener(?MODULE),
    weir_with:nothing_left().

%% Cases

the_listening_socket_is_the_one_under_test(Config) ->
    ?assertEqual(?config(on, Config) =:= weir, weir_with:on_weir(start(Config))).

a_websocket_talks(Config) ->
    Socket = websocket(start(Config)),
    [
        begin
            ok = gen_tcp:send(Socket, frame(2, Data)),
            ?assert({2, Data} =:= receive_frame(Socket))
        end
     || Size <- [0, 1, 125, 126, 65535, 65536, 500000], Data <- [weir_with:bytes(Size)]
    ],
    %% Two frames in one packet; the answer to one comes from a message to the handler.
    ok = gen_tcp:send(Socket, [frame(1, <<"push">>), frame(9, <<"ping">>)]),
    ?assertEqual([{1, <<"pushed">>}, {10, <<"ping">>}], lists:sort([receive_frame(Socket), receive_frame(Socket)])),
    ok = gen_tcp:send(Socket, frame(8, <<1000:16>>)),
    ?assertEqual({8, <<1000:16>>}, receive_frame(Socket)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, weir_test_wait:patience())),
    ok = gen_tcp:close(Socket).

a_websocket_is_left_open(Config) ->
    Socket = websocket(start(Config)),
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Socket),
    weir_test_wait:wait_until(fun() -> ranch:procs(?MODULE, connections) =:= [] end).

the_proxy_header_is_read(Config) ->
    {ok, _} = ranch:start_listener(?MODULE, ranch_tcp, transport(Config), ?MODULE, []),
    Port = ranch:get_port(?MODULE),
    Client = #{
        version => 1, command => proxy, transport_family => ipv4, transport_protocol => stream,
        src_address => {192, 0, 2, 1}, src_port => 1234, dest_address => {192, 0, 2, 2}, dest_port => 80
    },
    [
        begin
            {ok, Socket} = connect(Port),
            %% Bytes after the header in the same packet are for the protocol: ranch puts them back.
            ok = gen_tcp:send(Socket, [ranch_proxy_header:header(Client#{version => Version}), Rest]),
            ok = gen_tcp:send(Socket, <<"!">>),
            Expected = iolist_to_binary(["192.0.2.1 1234 ", Rest, "!"]),
            ?assertEqual({ok, Expected}, gen_tcp:recv(Socket, byte_size(Expected), weir_test_wait:patience())),
            ok = gen_tcp:close(Socket)
        end
     || Version <- [1, 2], Rest <- [<<"hello">>, <<>>]
    ].

cowboy_speaks_tls(Config) ->
    #{server := #{certfile := Certificate, keyfile := Key}} = ?config(files, Config),
    Transport = transport(Config, [{certfile, Certificate}, {keyfile, Key}]),
    {ok, _} = cowboy:start_tls(?MODULE, Transport, protocol()),
    Port = ranch:get_port(?MODULE),
    ?assertEqual(?config(on, Config) =:= weir, weir_with:on_weir(Port)),
    Url = "https://127.0.0.1:" ++ integer_to_list(Port) ++ "/",
    %% HTTP/2 if curl supports it, then HTTP/1.1.
    [
        ?assertEqual({0, <<"hello world">>}, weir_with:program("curl", ["--silent", "--insecure" | Version] ++ [Url]))
     || Version <- [[], ["--http1.1"]]
    ].

a_listener_is_drained(Config) ->
    Port = start(Config),
    Socket = websocket(Port),
    ok = ranch:suspend_listener(?MODULE),
    ?assertMatch({error, _}, connect(Port)),
    ok = gen_tcp:send(Socket, frame(2, <<"still there">>)),
    ?assertEqual({2, <<"still there">>}, receive_frame(Socket)),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {drained, ranch:wait_for_connections(?MODULE, '==', 0)} end),
    ok = weir_test_wait:assert_no_message(),
    ok = gen_tcp:close(Socket),
    receive {drained, ok} -> ok after weir_test_wait:patience() -> ct:fail(not_drained) end.

a_suspended_listener_resumes(Config) ->
    _ = start(Config),
    ok = ranch:suspend_listener(?MODULE),
    ok = ranch:resume_listener(?MODULE),
    %% The system may choose another port.
    Again = ranch:get_port(?MODULE),
    ?assertEqual(?config(on, Config) =:= weir, weir_with:on_weir(Again)),
    ok = gen_tcp:close(websocket(Again)).

%% The server

start(Config) ->
    {ok, _} = cowboy:start_clear(?MODULE, transport(Config), protocol()),
    ranch:get_port(?MODULE).

transport(Config) ->
    transport(Config, []).

transport(Config, Options) ->
    #{
        socket_opts => ?config(backend, Config) ++ [{ip, ?LOCALHOST}, {port, 0} | Options],
        handshake_timeout => weir_test_wait:patience()
    }.

protocol() -> #{env => #{dispatch => routes()}, request_timeout => weir_test_wait:patience()}.

routes() ->
    cowboy_router:compile([{'_', [{"/", ?MODULE, page}, {"/websocket", ?MODULE, websocket}]}]).

init(Request, page) ->
    {ok, cowboy_req:reply(200, #{}, <<"hello world">>, Request), page};
init(Request, websocket) ->
    {cowboy_websocket, Request, websocket, #{max_frame_size => 1_000_000}}.

websocket_handle({binary, Data}, State) ->
    {reply, {binary, Data}, State};
websocket_handle({text, <<"push">>}, State) ->
    self() ! push,
    {ok, State};
websocket_handle({ping, _}, State) ->
    {ok, State}.

websocket_info(push, State) ->
    {reply, {text, <<"pushed">>}, State}.

%% A protocol for ranch: reports the PROXY header, then echoes.
start_link(Ref, Transport, _Options) ->
    {ok, proc_lib:spawn_link(?MODULE, proxied, [Ref, Transport])}.

proxied(Ref, Transport) ->
    {ok, #{src_address := Address, src_port := Port}} = ranch:recv_proxy_header(Ref, weir_test_wait:patience()),
    {ok, Socket} = ranch:handshake(Ref),
    ok = Transport:send(Socket, io_lib:format("~s ~b ", [inet:ntoa(Address), Port])),
    send_back(Socket, Transport).

send_back(Socket, Transport) ->
    case Transport:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Data} -> ok = Transport:send(Socket, Data), send_back(Socket, Transport);
        {error, closed} -> Transport:close(Socket)
    end.

connect(Port) ->
    gen_tcp:connect(?LOCALHOST, Port, [binary, {active, false}, {nodelay, true}]).

websocket(Port) -> weir_with_websocket:connect(Port, "/websocket").
