%% What was written for ranch under Weir's listeners, unchanged: Cowboy, and a protocol that calls ranch. And HAProxy in
%% front of a listener, with its PROXY header.
-module(weir_with_listener_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    cowboy_is_served/1,
    cowboy_speaks_tls/1,
    cowboy_ends_with_its_listener/1,
    ranch_shakes_hands/1,
    ranch_reads_the_proxy_header/1,
    haproxy_sends_its_header/1
]).
-export([init/2, start_link/3, greet/3]).

-define(LOCALHOST, {127, 0, 0, 1}).
-define(PATIENCE, 30000).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [
        cowboy_is_served,
        cowboy_speaks_tls,
        cowboy_ends_with_its_listener,
        ranch_shakes_hands,
        ranch_reads_the_proxy_header,
        haproxy_sends_its_header
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, _} = application:ensure_all_started(ssl),
    Files = weir_with_certificates:write(weir_with_certificates:make(), ?config(priv_dir, Config)),
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
    {ok, <<"HTTP/1.1 200", _/binary>>} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    ?assertMatch(#{connections := 1}, weir:info(?MODULE)),
    ok = weir:stop_listener(?MODULE),
    _ = [?assertMatch({error, _}, gen_tcp:recv(Socket, 0, ?PATIENCE)) || {ok, _} <- [gen_tcp:recv(Socket, 0, 100)]],
    ok = gen_tcp:close(Socket).

cowboy(Protocol, Options) ->
    Dispatch = cowboy_router:compile([{'_', [{"/", ?MODULE, page}]}]),
    {ok, _} = weir:start_listener(?MODULE, Options#{ip => ?LOCALHOST}, Protocol, #{
        env => #{dispatch => Dispatch}, connection_type => supervisor
    }),
    weir:get_port(?MODULE).

init(Request, page) ->
    {ok, cowboy_req:reply(200, #{}, <<"hello world">>, Request), page}.

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
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOCALHOST, proxy_protocol => true}, ?MODULE, weir),
    Backend = weir:get_port(?MODULE),
    [with_haproxy(How, Backend, Config) || How <- ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn"]].

%% HAProxy takes a listening socket that is open already, so that no port has to be guessed.
with_haproxy(How, Backend, Config) ->
    File = filename:join(?config(priv_dir, Config), How),
    Path = filename:join("/tmp", "weir_haproxy_" ++ os:getpid() ++ How),
    ok = file:write_file(File, [
        "defaults\n mode tcp\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n",
        "listen test\n bind unix@", Path, "\n server weir 127.0.0.1:", integer_to_list(Backend), " ", How, "\n"
    ]),
    HAProxy = open_port({spawn_executable, os:find_executable("haproxy")}, [{args, ["-db", "-q", "-f", File]}, stderr_to_stdout]),
    {os_pid, Pid} = erlang:port_info(HAProxy, os_pid),
    try
        weir_with:wait_until(fun() ->
            case gen_tcp:connect({local, Path}, 0, [binary, {active, false}]) of
                {ok, Socket} ->
                    ok = gen_tcp:send(Socket, "hello"),
                    Answer = gen_tcp:recv(Socket, 0, ?PATIENCE),
                    ok = gen_tcp:close(Socket),
                    %% The peer of a unix socket has no address that a header could tell.
                    {ok, <<"unknown">>} =:= Answer;
                {error, _} ->
                    false
            end
        end)
    after
        _ = os:cmd("kill " ++ integer_to_list(Pid)),
        catch port_close(HAProxy),
        _ = file:delete(Path)
    end.

connect(Port) -> gen_tcp:connect(?LOCALHOST, Port, [binary, {active, false}]).

is_greeted(Port, First, Expected) ->
    {ok, Socket} = connect(Port),
    ok = gen_tcp:send(Socket, [First, "x"]),
    ?assertEqual({ok, Expected}, gen_tcp:recv(Socket, byte_size(Expected), ?PATIENCE)),
    ok = gen_tcp:close(Socket).

%% A protocol of ranch's.
start_link(Ref, Transport, How) ->
    {ok, proc_lib:spawn_link(?MODULE, greet, [Ref, Transport, How])}.

greet(Ref, Transport, How) ->
    Greeting =
        case How of
            ranch_with_header ->
                {ok, #{src_address := Address}} = ranch:recv_proxy_header(Ref, ?PATIENCE),
                inet:ntoa(Address);
            _ ->
                "hello"
        end,
    {ok, Socket} =
        case How of
            weir -> weir:handshake(Ref);
            _ -> ranch:handshake(Ref)
        end,
    _ = Transport:recv(Socket, 1, ?PATIENCE),
    ok = Transport:send(Socket, greeting(weir:proxy_header(), Greeting)),
    Transport:close(Socket).

greeting({ok, #{src_address := Address}}, _) when is_tuple(Address) -> inet:ntoa(Address);
greeting({ok, _}, _) -> "unknown";
greeting(undefined, Greeting) -> Greeting.
