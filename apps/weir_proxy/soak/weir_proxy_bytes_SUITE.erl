%% Bytes through the proxy, for minutes: 2,000 pairs of streams, 10 gigabytes each way with a checksum, a network that
%% loses and reorders packets, a server behind toxiproxy, and 10,000 idle connections.
-module(weir_proxy_bytes_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([pairs_of_streams/1, ten_gigabytes/1, a_bad_network/1, toxics/1, ten_thousand_idle/1]).

-import(weir_test_wait, [patience/0, wait_until/1]).

-define(GIGABYTES, 10).
-define(BLOCK, 1_000_003).
-define(TOXIPROXY, "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0").

suite() -> [{timetrap, {minutes, 15}}].

all() -> [pairs_of_streams, ten_gigabytes, a_bad_network, toxics, ten_thousand_idle].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_proxy),
    {ok, _} = application:ensure_all_started(inets),
    Config.

end_per_suite(_Config) -> application:stop(weir_proxy).

end_per_testcase(_Case, _Config) ->
    [weir_proxy:stop(Name) || Name <- weir_proxy:proxies()],
    _ = [os:cmd("kill " ++ Pid) || {{program, Pid}, _} <- get()],
    _ = [os:cmd("ip netns delete " ++ Name) || {{namespace, Name}, _} <- get()],
    ok.

%%% Every kind of ending. WEIR_SOAK_SEED selects other plans.

pairs_of_streams(_Config) ->
    Server = {_, Address} = weir_proxy_streams:start_server(),
    Port = proxy(#{}, #{servers => [Address]}),
    First = list_to_integer(os:getenv("WEIR_SOAK_SEED", "1")),
    ok = weir_proxy_streams:run(Port, lists:seq(First, First + 1999), 100),
    weir_proxy_streams:stop_server(Server).

%%% Ten gigabytes in both directions at the same time.

ten_gigabytes(_Config) ->
    {ok, Listen} = gen_tcp:listen(0, options()),
    Port = proxy(#{}, #{servers => [address(Listen)]}),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, options()),
    {ok, Server} = gen_tcp:accept(Listen, patience()),
    Blocks = ?GIGABYTES * 1_000_000_000 div ?BLOCK,
    Readers = [spawn_monitor(fun() -> exit({read, sum(Socket, 0, 0)}) end) || Socket <- [Client, Server]],
    Writers = [
        spawn_monitor(fun() ->
            Sum = write(Socket, rand:bytes(?BLOCK), Blocks, 0),
            ok = gen_tcp:shutdown(Socket, write),
            exit({written, Sum})
        end)
     || Socket <- [Server, Client]
    ],
    Ended = fun({Pid, Monitor}) -> receive {'DOWN', Monitor, process, Pid, {_, Result}} -> Result end end,
    Written = [Ended(Writer) || Writer <- Writers],
    Read = [Ended(Reader) || Reader <- Readers],
    ?assertEqual([{Blocks * ?BLOCK, Sum} || Sum <- Written], Read).

%% Each block begins with a number, so that all blocks differ.
write(_Socket, _Block, 0, Sum) -> Sum;
write(Socket, <<_:64, Rest/binary>>, Left, Sum) ->
    Block = <<Left:64, Rest/binary>>,
    ok = gen_tcp:send(Socket, Block),
    write(Socket, Block, Left - 1, erlang:crc32(Sum, Block)).

sum(Socket, Size, Sum) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, Data} -> sum(Socket, Size + byte_size(Data), erlang:crc32(Sum, Data));
        {error, closed} -> {Size, Sum}
    end.

%%% A network namespace behind a link that delays, loses, duplicates and reorders packets.

a_bad_network(_Config) ->
    case
        os:cmd("id -u") =:= "0\n" andalso os:find_executable("tc") =/= false andalso
            os:find_executable("python3") =/= false
    of
        true -> bad_network("weir" ++ os:getpid());
        false -> {skip, "root, tc and python3 are needed"}
    end.

bad_network(Name) ->
    put({namespace, Name}, true),
    case os:cmd(string:join([
        "ip netns add " ++ Name, "ip link add w0 netns " ++ Name ++ " type veth peer name w" ++ os:getpid(),
        "ip address add 198.18.7.1/30 dev w" ++ os:getpid(), "ip link set w" ++ os:getpid() ++ " up",
        "ip -n " ++ Name ++ " address add 198.18.7.2/30 dev w0", "ip -n " ++ Name ++ " link set w0 up",
        "tc qdisc add dev w" ++ os:getpid() ++ " root netem delay 5ms 3ms loss 2% duplicate 1% reorder 5% corrupt 0.2%",
        "tc -n " ++ Name ++ " qdisc add dev w0 root netem delay 5ms 3ms loss 2% duplicate 1% reorder 5% corrupt 0.2%"
    ], " && ")) of
        "" -> over_network(Name);
        "Error: Specified qdisc kind is unknown.\n" -> {skip, "the kernel has no netem"}
    end.

over_network(Name) ->
    Echo =
        "import socketserver\n"
        "class Echo(socketserver.BaseRequestHandler):\n"
        "    def handle(self):\n"
        "        while data := self.request.recv(65536):\n"
        "            self.request.sendall(data)\n"
        "class Server(socketserver.ThreadingTCPServer):\n"
        "    daemon_threads = True\n"
        "    request_queue_size = 128\n"
        "print('ready', flush=True)\n"
        "Server(('198.18.7.2', 7000), Echo).serve_forever()\n",
    ok = program("ip", ["netns", "exec", Name, "python3", "-c", Echo], "ready"),
    Port = proxy(#{}, #{servers => ["198.18.7.2:7000"], retries => 10}),
    Clients = [spawn_monitor(fun() -> exit({echoed, echoed(Port, 20)}) end) || _ <- lists:seq(1, 50)],
    ?assertEqual(lists:duplicate(50, {echoed, ok}), [
        receive
            {'DOWN', Monitor, process, Pid, Reason} -> Reason
        end
     || {Pid, Monitor} <- Clients
    ]).

echoed(Port, Times) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, options(), patience()),
    [
        begin
            Data = rand:bytes(rand:uniform(30_000)),
            ok = gen_tcp:send(Socket, Data),
            {ok, Data} = gen_tcp:recv(Socket, byte_size(Data), patience())
        end
     || _ <- lists:seq(1, Times)
    ],
    ok = gen_tcp:shutdown(Socket, write),
    {error, closed} = gen_tcp:recv(Socket, 0, patience()),
    gen_tcp:close(Socket).

%%% A server behind toxiproxy.

toxics(Config) ->
    case os:find_executable("go") of
        false ->
            {skip, "no Go"};
        _ ->
            Directory = ?config(priv_dir, Config),
            case
                os:cmd(
                    "GOBIN='" ++ Directory ++ "' go install " ++ ?TOXIPROXY ++ " 2>&1 >/dev/null; test -x '" ++
                        Directory ++ "/server' && printf built"
                )
            of
                "built" ->
                    toxics_of(filename:join(Directory, "server"));
                Output ->
                    case lists:suffix("built", Output) of
                        true -> toxics_of(filename:join(Directory, "server"));
                        false -> {skip, "toxiproxy is not built: " ++ Output}
                    end
            end
    end.

toxics_of(Toxiproxy) ->
    [Api, Between] = [weir_test_port:claim(), weir_test_port:claim()],
    ok = program(Toxiproxy, ["-host", "127.0.0.1", "-port", integer_to_list(Api)], "Starting"),
    {ok, Listen} = gen_tcp:listen(0, options()),
    {ok, ServerPort} = inet:port(Listen),
    wait_until(fun() ->
        is_tuple(
            post(Api, "/proxies", #{
                name => <<"x">>, listen => local(Between), upstream => local(ServerPort), enabled => true
            })
        )
    end),
    Port = proxy(#{}, #{servers => [local(Between)]}),
    Toxic = fun(Type, Stream, Attributes) ->
        {200, _} = post(Api, "/proxies/x/toxics", #{
            name => Type, type => Type, stream => Stream, attributes => Attributes
        })
    end,
    Clean = fun(Type) -> {204, _} = delete(Api, "/proxies/x/toxics/" ++ binary_to_list(Type)) end,
    Data = rand:bytes(200_000),
    %% Small delayed pieces in both directions: every byte arrives.
    [
        begin
            _ = Toxic(<<"slicer">>, Stream, #{average_size => 1000, size_variation => 900, delay => 100}),
            {Client, Server} = pair(Port, Listen),
            {From, To} =
                case Stream of
                    <<"upstream">> -> {Client, Server};
                    <<"downstream">> -> {Server, Client}
                end,
            _ = spawn_link(fun() -> ok = gen_tcp:send(From, Data) end),
            ?assertEqual({ok, Data}, gen_tcp:recv(To, byte_size(Data), patience())),
            [ok = gen_tcp:close(Socket) || Socket <- [Client, Server]],
            _ = Clean(<<"slicer">>)
        end
     || Stream <- [<<"upstream">>, <<"downstream">>]
    ],
    %% The stream ends in the middle: the client gets the beginning, and the end.
    _ = Toxic(<<"limit_data">>, <<"downstream">>, #{bytes => 12_345}),
    {Cut, CutServer} = pair(Port, Listen),
    _ = gen_tcp:send(CutServer, Data),
    ?assertEqual({ok, binary:part(Data, 0, 12_345)}, gen_tcp:recv(Cut, 12_345, patience())),
    ?assertMatch({error, _}, gen_tcp:recv(Cut, 0, patience())),
    _ = Clean(<<"limit_data">>),
    %% A server that falls silent: the idle timeout closes the session.
    ok = weir_proxy:change(?MODULE, config(#{idle_timeout => 1000}, #{servers => [local(Between)]})),
    _ = Toxic(<<"timeout">>, <<"downstream">>, #{timeout => 0}),
    {Silent, SilentServer} = pair(Port, Listen),
    _ = gen_tcp:send(SilentServer, Data),
    ?assertMatch({error, _}, gen_tcp:recv(Silent, 0, patience())),
    _ = Clean(<<"timeout">>),
    _ = Toxic(<<"reset_peer">>, <<"downstream">>, #{timeout => 200}),
    {Reset, _} = pair(Port, Listen),
    ?assertMatch({error, _}, gen_tcp:recv(Reset, 0, patience())),
    _ = Clean(<<"reset_peer">>),
    ?waitEqual([], weir_proxy:sessions(?MODULE)).

pair(Port, Listen) ->
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, options(), patience()),
    {ok, Server} = gen_tcp:accept(Listen, patience()),
    {Client, Server}.

post(Api, Path, Object) ->
    status(
        httpc:request(post, {url(Api, Path), [], "application/json", weir_json:encode(Object)}, [], [
            {body_format, binary}
        ])
    ).

delete(Api, Path) -> status(httpc:request(delete, {url(Api, Path), []}, [], [{body_format, binary}])).

status({ok, {{_, Status, _}, _, Body}}) -> {Status, Body};
status({error, _}) -> error.

url(Api, Path) -> lists:concat(["http://127.0.0.1:", Api, Path]).

%%% Idle connections.

ten_thousand_idle(_Config) ->
    Most = list_to_integer(string:trim(os:cmd("ulimit -n"))),
    %% Four descriptors for each connection, because all ends are in this VM. With fewer descriptors, fewer
    %% connections.
    case min(10_000, (Most - 4000) div 4) of
        Count when Count >= 1000 -> {comment, lists:concat([idle(Count), " connections"])};
        _ -> {skip, "8,000 descriptors are needed"}
    end.

idle(Count) ->
    {ok, Listen} = gen_tcp:listen(0, [{backlog, 4096} | options()]),
    Port = proxy(#{backlog => 4096}, #{servers => [address(Listen)]}),
    Processes = erlang:system_info(process_count),
    Pairs = [
        begin
            %% One source address does not have enough ports.
            From = {127, 0, 1 + N rem 4, 1},
            {ok, Client} = gen_tcp:connect(
                {127, 0, 0, 1}, Port, [{ip, From} | lists:keydelete(ip, 1, options())], patience()
            ),
            {ok, Server} = gen_tcp:accept(Listen, patience()),
            {Client, Server}
        end
     || N <- lists:seq(1, Count)
    ],
    ?waitEqual(Count, map_get(sessions, element(2, weir_proxy:info(?MODULE)))),
    wait_until(fun() -> erlang:system_info(process_count) < Processes + 50 end),
    %% A new connection is served, and so are all idle ones.
    {Client, Server} = pair(Port, Listen),
    ok = gen_tcp:send(Client, <<"now">>),
    ?assertEqual({ok, <<"now">>}, gen_tcp:recv(Server, 3, patience())),
    [ok = gen_tcp:send(To, <<"x">>) || {_, To} <- Pairs],
    [?assertEqual({ok, <<"x">>}, gen_tcp:recv(From, 1, patience())) || {From, _} <- Pairs],
    %% Close both ends: one direction alone does not end a session.
    [ok = gen_tcp:close(Socket) || {One, Other} <- Pairs, Socket <- [One, Other]],
    ?waitEqual(1, map_get(sessions, element(2, weir_proxy:info(?MODULE)))),
    Count.

%%% Helpers.

options() -> [binary, {active, false}, {nodelay, true}, {exit_on_close, false}, {ip, {127, 0, 0, 1}}].

proxy(Frontend, Backend) ->
    ok = weir_proxy:start(?MODULE, config(Frontend, Backend)),
    {ok, #{frontends := #{<<"front">> := #{listen := [<<"127.0.0.1:", Port/binary>>]}}}} = weir_proxy:info(?MODULE),
    binary_to_integer(Port).

config(Frontend, Backend) ->
    #{frontends => #{front => Frontend#{listen => "127.0.0.1:0", backend => web}}, backends => #{web => Backend}}.

address(Listen) ->
    {ok, Port} = inet:port(Listen),
    local(Port).

local(Port) -> iolist_to_binary(["127.0.0.1:", integer_to_binary(Port)]).

%% Runs a program until the case or this node ends. It is ready when it prints Ready.
program(Name, Arguments, Ready) ->
    All = ["--pdeathsig", "KILL", os:find_executable(Name) | Arguments],
    Opened = open_port({spawn_executable, os:find_executable("setpriv")}, [
        {args, All}, exit_status, stderr_to_stdout, binary
    ]),
    {os_pid, Pid} = erlang:port_info(Opened, os_pid),
    put({program, integer_to_list(Pid)}, true),
    said(Opened, Ready, <<>>).

said(Opened, Ready, Said) ->
    receive
        {Opened, {data, Data}} ->
            All = <<Said/binary, Data/binary>>,
            case binary:match(All, list_to_binary(Ready)) of
                nomatch -> said(Opened, Ready, All);
                _ -> ok
            end;
        {Opened, {exit_status, Status}} -> ct:fail({ended, Status, Said})
    after patience() -> ct:fail({not_ready, Said})
    end.
