%% New code in a running node: all modules, in place or by a release upgrade, while connections are in use.
%%
%% Each case runs on its own node.
-module(weir_upgrade_modules_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, connect_raw/1, socket_pair/2, async/1, await/1]).
-import(weir_test_wait, [wait_until/1, recv_exactly/2, patience/0]).
-import(weir_test_streams, [start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1]).
-import(weir_upgrade_test, [copy/3, echo_all/2, libraries/0, load/1, use_copy/1]).

-define(MODES, [passive, once, true, 10]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, modules}].

groups() ->
    [
        {modules, [], [
            those_who_wait_leave_old_code,
            all_modules_twice_under_load,
            release_upgrades_under_load
        ]}
    ].

init_per_testcase(Case, Config) ->
    weir_upgrade_test:init_case(Case, Config).

end_per_testcase(_Case, _Config) ->
    ok.

modules() ->
    _ = application:load(weir),
    {ok, Modules} = application:get_key(weir, modules),
    Modules.

load_all() ->
    [{module, Module} = load(Module) || Module <- modules()],
    wait_until(fun() -> not weir_code_change:is_due() end).

those_who_wait_leave_old_code(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_below_waiting, Config).

load_below_waiting(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    {Passive, Sender} = socket_pair(Config, [binary, {active, false}]),
    {Full, Reader} = socket_pair(Config, [binary, {active, false}]),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    Receiver = async(fun() -> gen_tcp:recv(Passive, 4) end),
    {Silent, Speaker} = socket_pair(Config, [binary, {active, false}]),
    Timed = async(fun() -> gen_tcp:recv(Silent, 0, 3600_000) end),
    Size = 32_000_000,
    ok = gen_tcp:send(Full, binary:copy(<<1>>, Size div 2)),
    Writer = async(fun() -> gen_tcp:send(Full, binary:copy(<<2>>, Size div 2)) end),
    Waiting = [Acceptor, Receiver, Timed, Writer],
    wait_until(fun() ->
        lists:all(
            fun({Pid, _, _}) ->
                process_info(Pid, current_function) =:= {current_function, {weir_operation, await_until, 4}}
            end,
            Waiting
        )
    end),
    {Empty, _} = socket_pair(Config, [binary, {active, false}]),
    Short = async(fun() -> gen_tcp:recv(Empty, 0, 2000) end),
    load_all(),
    load_all(),
    load_all(),
    [?assert(is_process_alive(Pid)) || {Pid, _, _} <- Waiting],
    ok = gen_tcp:send(Sender, <<"data">>),
    ?assertEqual({ok, <<"data">>}, await(Receiver)),
    _ = connect_raw(Port),
    ?assertMatch({ok, _}, await(Acceptor)),
    _ = recv_exactly(Reader, Size),
    ?assertEqual(ok, await(Writer)),
    ok = gen_tcp:send(Speaker, <<"late">>),
    ?assertEqual({ok, <<"late">>}, await(Timed)),
    ?assertEqual({error, timeout}, await(Short)).

all_modules_twice_under_load(Config) -> weir_upgrade_test:on_own_node(?MODULE, load_all_under_load, Config).

load_all_under_load(Config) ->
    Load = start_load(Config),
    lists:foreach(
        fun(_) ->
            load_all(),
            assert_load_goes_on(Load)
        end,
        [once, again]
    ),
    stop_load(Load).

%% Echoes of the drop-in in all modes, of a listener, of a handler for ranch, of a reactor. The pollers stay the same
%% processes.
start_load(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {_, Port} = start_echo(Config, ?MODES),
    {ok, _} = weir:start_listener(echo, #{port => 0}, fun weir_upgrade_test:echo_all/2, []),
    {ok, _} = weir:start_listener(protocol, #{port => 0}, ?MODULE, []),
    {ok, _} = weir:start_listener(reactor, #{port => 0}, weir_listener_reactor, args),
    Ports = [Port | [weir:get_port(Name) || Name <- [echo, protocol, reactor]]],
    %% One stream for each mode of the first.
    Counts = [length(?MODES), 1, 1, 1],
    Streams = lists:append([start_streams(P, Count) || {P, Count} <- lists:zip(Ports, Counts)]),
    assert_streams_go_on(Streams),
    Idle = [connect_raw(P) || P <- tl(Ports)],
    {Streams, Idle, processes_of_weir()}.

processes_of_weir() ->
    #{
        pollers => [Pid || #{poller := Pid} <- weir:pollsets()],
        listeners => [maps:get(pid, weir:info(Name)) || Name <- weir:listeners()]
    }.

assert_load_goes_on({Streams, _Idle, Processes}) ->
    assert_streams_go_on(Streams),
    ?assertEqual(Processes, processes_of_weir()).

stop_load({Streams, Idle, _}) ->
    stop_streams(Streams),
    [
        begin
            ok = gen_tcp:send(Peer, <<"still there">>),
            ?assertEqual({ok, <<"still there">>}, gen_tcp:recv(Peer, 11, patience()))
        end
     || Peer <- Idle
    ].

%% With release_handler and an appup, from one version to the next, twice.
release_upgrades_under_load(Config) -> weir_upgrade_test:on_own_node(?MODULE, upgrade_releases, Config).

upgrade_releases(Config) ->
    {ok, _} = application:ensure_all_started(sasl),
    _ = application:load(weir),
    {ok, First} = application:get_key(weir, vsn),
    ok = application:unload(weir),
    ok = use_copy(copy(Config, First, "weir-" ++ First)),
    Load = start_load(Config),
    lists:foldl(
        fun(Next, Last) ->
            {ok, _} = release_handler:upgrade_app(weir, new_version(Config, Last, Next)),
            ?assertEqual({ok, Next}, application:get_key(weir, vsn)),
            assert_load_goes_on(Load),
            Next
        end,
        First,
        ["99.1", "99.2"]
    ),
    ?assertEqual(3, libraries()),
    stop_load(Load).

%% The same application with another version, and its appup.
new_version(Config, Last, Next) ->
    Copy = copy(Config, Next, "weir-" ++ Next),
    File = filename:join([Copy, "ebin", "weir.app"]),
    {ok, [{application, weir, Keys}]} = file:consult(File),
    New = {application, weir, lists:keystore(vsn, 1, Keys, {vsn, Next})},
    ok = file:write_file(File, io_lib:format("~p.~n", [New])),
    Loads = [{load_module, Module, soft_purge, soft_purge, []} || Module <- modules()],
    Instructions = Loads ++ [{apply, {weir_code_change, run, []}}],
    Appup = {Next, [{Last, Instructions}], [{Last, Instructions}]},
    ok = file:write_file(filename:join([Copy, "ebin", "weir.appup"]), io_lib:format("~p.~n", [Appup])),
    Copy.

%% As a protocol for ranch.
start_link(Name, _Transport, _Args) ->
    {ok,
        spawn_link(fun() ->
            {ok, Socket} = weir:handshake(Name),
            echo_all(Socket, [])
        end)}.
