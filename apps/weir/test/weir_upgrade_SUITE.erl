%% New code in a running node: the native library again, another one, and all modules, while connections are in use.
%%
%% Each case runs on a node of its own.
-module(weir_upgrade_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [
    listen/2, connect_raw/1, socket_pair/2, start_node/2, start_echo/2, start_streams/2, stop_streams/1, assert_streams_go_on/1,
    wait_until/1, next_message/0, async/1, await/1, recv_exactly/2
]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(PATIENCE, 10000).
-define(MODES, [passive, once, true, 10]).

suite() ->
    [{timetrap, {seconds, 90}}].

all() ->
    [
        {group, library},
        {group, modules}
    ].

groups() ->
    [
        {library, [], [
            loaded_after_a_purge,
            loaded_again_and_again,
            monitors_outlive_a_load,
            listeners_outlive_a_purge,
            taken_over_by_another_file,
            another_file_in_its_place,
            of_another_layout_is_refused,
            purged_and_of_another_layout
        ]},
        {modules, [], [
            those_who_wait_leave_old_code,
            all_modules_twice_under_load,
            release_upgrades_under_load
        ]}
    ].

init_per_testcase(Case, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_dir(filename:join(Directory, "file")),
    [{directory, Directory} | Config].

end_per_testcase(_Case, _Config) ->
    ok.

%% Runs a function on a node where nothing is started.
on_own_node(Case, Config) ->
    Node = start_node("", []),
    try
        ok = peer:call(Node, ?MODULE, run, [Case, proplists:get_value(directory, Config)], 80_000)
    after
        peer:stop(Node)
    end.

run(Case, Directory) ->
    Config = weir_test_peer:init_case([{backend, [{tcp_module, weir_tcp}]}, {directory, Directory}]),
    _ = ?MODULE:Case(Config),
    ok.

load(Module) ->
    _ = code:purge(Module),
    code:load_file(Module).

%% A call of a deleted module has it loaded, and pollers and owners may call at any time. Whoever else wants it loaded must
%% not use code:load_file/1: the code server of OTP 25 does not answer it if -on_load runs for another process already.
delete_and_load() ->
    _ = code:purge(weir_nif),
    true = code:delete(weir_nif),
    _ = code:purge(weir_nif),
    code:ensure_loaded(weir_nif).

echo({Socket, Peer}) ->
    Data = integer_to_binary(erlang:unique_integer()),
    ok = gen_tcp:send(Peer, Data),
    ?assertEqual({tcp, Socket, Data}, next_message()),
    ok = gen_tcp:send(Socket, Data),
    ?assertEqual(Data, recv_exactly(Peer, byte_size(Data))).

%%% The library.

loaded_after_a_purge(Config) -> on_own_node(load_after_purge, Config).

load_after_purge(Config) ->
    Pair = socket_pair(Config, [binary, {active, true}]),
    lists:foreach(
        fun(_) ->
            {module, weir_nif} = delete_and_load(),
            ?assert(weir_nif:available()),
            echo(Pair),
            echo(socket_pair(Config, [binary, {active, true}]))
        end,
        lists:seq(1, 3)
    ).

loaded_again_and_again(Config) -> on_own_node(load_again, Config).

load_again(Config) ->
    {_, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, 20),
    lists:foreach(
        fun(_) ->
            {module, weir_nif} = load(weir_nif),
            assert_streams_go_on(Streams)
        end,
        lists:seq(1, 10)
    ),
    stop_streams(Streams).

%% Objects that watch processes call the new library.
monitors_outlive_a_load(Config) -> on_own_node(load_below_monitors, Config).

load_below_monitors(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}]),
    {Joined, _} = socket_pair(Config, [binary, {active, false}]),
    {Left, Other} = socket_pair(Config, [binary, {active, false}]),
    {Right, _} = socket_pair(Config, [binary, {active, false}]),
    Reference = inet:monitor(Socket),
    Self = self(),
    Owner = spawn(fun() ->
        {ok, Group} = weir_group:new(#{}),
        ok = weir_group:join(Group, Joined),
        receive
            {relay, L, R} -> Self ! weir:relay(L, R)
        end,
        Self ! {group, Group},
        receive
            never -> ok
        end
    end),
    [ok = gen_tcp:controlling_process(S, Owner) || S <- [Socket, Left, Right]],
    Owner ! {relay, Left, Right},
    {ok, Relay} = next_message(),
    {group, Group} = next_message(),
    {module, weir_nif} = load(weir_nif),
    {module, weir_nif} = load(weir_nif),
    exit(Owner, kill),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, ?PATIENCE)),
    ?assertEqual({'DOWN', Reference, socket, Socket, normal}, next_message()),
    ?assertEqual({error, closed}, gen_tcp:recv(Other, 0, ?PATIENCE)),
    wait_until(fun() -> {weir:relay_info(Relay), weir_group:info(Group)} =:= {{error, closed}, {error, closed}} end).

listeners_outlive_a_purge(Config) -> on_own_node(load_below_gates, Config).

load_below_gates(_Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listener} = weir:start_listener(echo, #{port => 0}, fun echo_all/2, []),
    First = connect_raw(weir:get_port(echo)),
    lists:foreach(
        fun(Load) ->
            {module, weir_nif} = Load(),
            Next = connect_raw(weir:get_port(echo)),
            [
                begin
                    ok = gen_tcp:send(Peer, <<"hello">>),
                    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Peer, 5, ?PATIENCE))
                end
             || Peer <- [First, Next]
            ]
        end,
        [fun delete_and_load/0, fun() -> load(weir_nif) end, fun delete_and_load/0]
    ),
    ?assertMatch(#{connections := 4, pid := Listener}, weir:info(echo)).

echo_all(Socket, Args) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            ok = gen_tcp:send(Socket, Data),
            echo_all(Socket, Args);
        {error, closed} ->
            ok
    end.

%% As in a release upgrade: another directory, another file.
taken_over_by_another_file(Config) -> on_own_node(load_another_file, Config).

load_another_file(Config) ->
    {_, Port} = start_echo(Config, ?MODES),
    Streams = start_streams(Port, 20),
    Pair = socket_pair(Config, [binary, {active, true}]),
    lists:foreach(
        fun(Number) ->
            ok = use_copy(copy(Config, integer_to_list(Number))),
            {module, weir_nif} = load(weir_nif),
            ?assertEqual(Number, libraries() - 1),
            echo(Pair),
            echo(socket_pair(Config, [binary, {active, true}])),
            assert_streams_go_on(Streams)
        end,
        [1, 2]
    ),
    %% Back to the first.
    stop_streams(Streams),
    {module, weir_nif} = delete_and_load(),
    echo(Pair).

%% The file is replaced where it is, as a build does it.
another_file_in_its_place(Config) -> on_own_node(load_replaced_file, Config).

load_replaced_file(Config) ->
    Copy = copy(Config, "replaced"),
    ok = use_copy(Copy),
    Pair = socket_pair(Config, [binary, {active, true}]),
    Library = filename:join([Copy, "priv", "weir_nif.so"]),
    {ok, _} = file:copy(Library, Library ++ ".new"),
    ok = file:rename(Library ++ ".new", Library),
    {module, weir_nif} = load(weir_nif),
    ?assertEqual(2, libraries()),
    echo(Pair).

of_another_layout_is_refused(Config) -> on_own_node(load_another_layout, Config).

load_another_layout(Config) ->
    Pair = socket_pair(Config, [binary, {active, true}]),
    ok = use_copy(of_another_layout(copy(Config, "other"))),
    ?assertEqual({error, on_load_failure}, load(weir_nif)),
    ?assert(weir_nif:available()),
    echo(Pair),
    echo(socket_pair(Config, [binary, {active, true}])).

%% Nothing is left that could go on; it is said why.
purged_and_of_another_layout(Config) -> on_own_node(load_another_layout_after_purge, Config).

load_another_layout_after_purge(Config) ->
    {Socket, _} = Pair = socket_pair(Config, [binary, {active, true}]),
    Original = filename:dirname(code:which(weir_nif)),
    ok = use_copy(of_another_layout(copy(Config, "other"))),
    ok = sys:suspend(weir_pollsets),
    {module, weir_nif} = delete_and_load(),
    ?assertEqual(false, weir_nif:available()),
    ?assertMatch({load, "the sockets" ++ _}, weir_native:load_error()),
    %% With the library that has them the sockets are back.
    true = code:replace_path(weir, Original),
    {module, weir_nif} = load(weir_nif),
    ok = sys:resume(weir_pollsets),
    ?assertEqual([Socket], [S || S <- weir:sockets(), S =:= Socket]),
    echo(Pair).

%% Makes a copy of the application, with files of its own.
copy(Config, Name) -> copy(Config, Name, "weir").

copy(Config, Name, Application) ->
    From = filename:dirname(filename:dirname(code:which(weir_nif))),
    To = filename:join([proplists:get_value(directory, Config), Name, Application]),
    [
        begin
            Target = filename:join([To, Folder, filename:basename(File)]),
            ok = filelib:ensure_dir(Target),
            {ok, _} = file:copy(File, Target)
        end
     || Folder <- ["ebin", "priv"], File <- filelib:wildcard(filename:join([From, Folder, "*"])), filelib:is_regular(File)
    ],
    To.

use_copy(Copy) ->
    true = code:replace_path(weir, filename:join(Copy, "ebin")),
    ok.

of_another_layout(Copy) ->
    Library = filename:join([Copy, "priv", "weir_nif.so"]),
    {ok, Bytes} = file:read_file(Library),
    Word = <<"weir types ">>,
    [{At, _}] = binary:matches(Bytes, Word),
    Start = At + byte_size(Word),
    <<Before:Start/binary, First, After/binary>> = Bytes,
    ok = file:write_file(Library, <<Before/binary, (First bxor 1), After/binary>>),
    Copy.

%% How many files of the library the process has mapped.
libraries() ->
    {ok, Maps} = file:open("/proc/self/maps", [read, raw, binary, {read_ahead, 1 bsl 20}]),
    Files = lines(Maps),
    ok = file:close(Maps),
    Libraries = [
        Inode
     || Line <- Files,
        binary:match(Line, <<"weir_nif.so">>) =/= nomatch,
        [_, _, _, _, Inode | _] <- [string:lexemes(Line, " ")]
    ],
    length(lists:usort(Libraries)).

lines(File) ->
    case file:read_line(File) of
        {ok, Line} -> [Line | lines(File)];
        eof -> []
    end.

%%% All modules.

modules() ->
    _ = application:load(weir),
    {ok, Modules} = application:get_key(weir, modules),
    Modules.

load_all() ->
    [{module, Module} = load(Module) || Module <- modules()],
    wait_until(fun() -> not weir_renewal:is_due() end).

those_who_wait_leave_old_code(Config) -> on_own_node(load_below_waiting, Config).

load_below_waiting(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    {Passive, Sender} = socket_pair(Config, [binary, {active, false}]),
    {Full, Reader} = socket_pair(Config, [binary, {active, false}]),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    Receiver = async(fun() -> gen_tcp:recv(Passive, 4) end),
    {Silent, _} = socket_pair(Config, [binary, {active, false}]),
    Timed = async(fun() -> gen_tcp:recv(Silent, 0, 3000) end),
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
    ?assertEqual({error, timeout}, await(Timed)).

all_modules_twice_under_load(Config) -> on_own_node(load_all_under_load, Config).

load_all_under_load(Config) ->
    Load = start_load(Config),
    lists:foreach(
        fun(_) ->
            load_all(),
            assert_load_goes_on(Load)
        end,
        lists:seq(1, 3)
    ),
    stop_load(Load).

%% Echoes of the drop-in in all modes, of a listener, of ranch's kind of handlers, of a reactor; and pollers that are the
%% same as before.
start_load(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {_, Port} = start_echo(Config, ?MODES),
    {ok, _} = weir:start_listener(echo, #{port => 0}, fun echo_all/2, []),
    {ok, _} = weir:start_listener(protocol, #{port => 0}, ?MODULE, []),
    {ok, _} = weir:start_listener(reactor, #{port => 0}, weir_listener_reactor, args),
    Ports = [Port | [weir:get_port(Name) || Name <- [echo, protocol, reactor]]],
    Streams = lists:append([start_streams(P, 4) || P <- Ports]),
    assert_streams_go_on(Streams),
    %% Those who stand still now.
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
            ?assertEqual({ok, <<"still there">>}, gen_tcp:recv(Peer, 11, ?PATIENCE))
        end
     || Peer <- Idle
    ].

%% As ranch's protocols.
start_link(Name, _Transport, _Args) ->
    {ok,
        spawn_link(fun() ->
            {ok, Socket} = weir:handshake(Name),
            echo_all(Socket, [])
        end)}.

%% By release_handler and an appup, from a version to the next and to the one after it.
release_upgrades_under_load(Config) -> on_own_node(upgrade_releases, Config).

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
        ["99.1", "99.2", "99.3"]
    ),
    ?assertEqual(4, libraries()),
    stop_load(Load).

%% The same application with another version, and how to come to it.
new_version(Config, Last, Next) ->
    Copy = copy(Config, Next, "weir-" ++ Next),
    File = filename:join([Copy, "ebin", "weir.app"]),
    {ok, [{application, weir, Keys}]} = file:consult(File),
    New = {application, weir, lists:keystore(vsn, 1, Keys, {vsn, Next})},
    ok = file:write_file(File, io_lib:format("~p.~n", [New])),
    Loads = [{load_module, Module, soft_purge, soft_purge, []} || Module <- modules()],
    Instructions = Loads ++ [{apply, {weir_renewal, run, []}}],
    Appup = {Next, [{Last, Instructions}], [{Last, Instructions}]},
    ok = file:write_file(filename:join([Copy, "ebin", "weir.appup"]), io_lib:format("~p.~n", [Appup])),
    Copy.
