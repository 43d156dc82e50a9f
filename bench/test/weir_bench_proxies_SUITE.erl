%% Proxies reload their configuration while connections are open, and route by TLS server name.
-module(weir_bench_proxies_SUITE).

-include_lib("stdlib/include/assert.hrl").

%% Milliseconds after which the signal is sent again. If a master of HAProxy 2.6 gets a signal just before its first
%% wait, it handles it only with the next signal.
-define(HEARD_MS, 2000).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, weir}, {group, haproxy}, {group, nginx}].

groups() ->
    Cases = [changes_while_a_connection_is_open, goes_by_the_server_name, its_rows_are_measured],
    [{Group, [], Cases} || Group <- [weir, haproxy, nginx]].

init_per_suite(Config) ->
    weir_bench_peers_SUITE:init_per_suite(Config).

end_per_suite(Config) -> weir_bench_peers_SUITE:end_per_suite(Config).

init_per_group(weir, Config) -> [{run, run(weir, weir_proxy)} | Config];
init_per_group(haproxy, Config) -> peer([haproxy], run(haproxy, proxy), Config);
init_per_group(nginx, Config) -> peer([nginx_stream], run(nginx, proxy), Config).

peer(Needs, Run, Config) ->
    case weir_bench_peers:missing(Needs) of
        [] -> [{run, Run} | Config];
        [What | _] -> {skip, atom_to_list(What) ++ " is not here"}
    end.

end_per_group(_Group, _Config) -> ok.

run(Backend, Server) ->
    #{
        name => proxies,
        title => <<"proxies">>,
        needs => [],
        backend => Backend,
        server => Server,
        load => proxy,
        connections => 5,
        warmup => 100,
        duration => 1500
    }.

changes_while_a_connection_is_open(Config) ->
    with_backend(fun(Backend, Accept) ->
        {ok, #{port := Port, change := Change, file := File} = Server} = start(Config, #{changes => 1}, Backend),
        Client = connect(Port),
        Behind = behind(Client, Accept),
        {ok, Before} = file:read_file(File),
        Has = workers(Server),
        ok = Change(0),
        ?assertEqual({ok, Before}, file:read_file(File)),
        ok = Change(1),
        {ok, After} = file:read_file(File),
        ?assertNotEqual(Before, After),
        ok = has_changed(proplists:get_value(run, Config), Server, Has),
        %% Open connections stay open, and new ones are served.
        ok = passes(Client, Behind),
        Another = connect(Port),
        ok = passes(Another, behind(Another, Accept)),
        [ok = gen_tcp:close(Socket) || Socket <- [Client, Another, Behind]],
        ok = weir_bench_daemon:stop(Server),
        ?assertNot(filelib:is_file(File))
    end).

%% Weir's proxy prints a line; the others start another worker.
has_changed(#{backend := weir}, #{program := Program}, _Has) ->
    {ok, _} = weir_bench_program:await(
        Program,
        fun
            (<<"reloaded">>) -> {ok, reloaded};
            (_) -> no
        end,
        weir_test_wait:patience()
    ),
    ok;
has_changed(Run, #{change := Change} = Server, Has) ->
    case weir_test_wait:becomes_true(fun() -> workers(Server) -- Has =/= [] end, ?HEARD_MS) of
        true ->
            ok;
        false ->
            ok = Change(1),
            has_changed(Run, Server, Has)
    end.

workers(#{pid := Pid}) -> string:lexemes(os:cmd("pgrep -P " ++ Pid), "\n").

goes_by_the_server_name(Config) ->
    with_backend(fun(Backend, Accept) ->
        {ok, #{port := Port} = Server} = start(Config, #{sni => true, hello => 16384}, Backend),
        Named = hello(weir_bench_proxy:server_name()),
        {First, Rest} = split_binary(Named, 40),
        Client = connect(Port),
        ok = gen_tcp:send(Client, First),
        ok = gen_tcp:send(Client, Rest),
        Behind = Accept(),
        ?assertEqual({ok, Named}, gen_tcp:recv(Behind, byte_size(Named), weir_test_wait:patience())),
        %% No server has the other name.
        Stranger = connect(Port),
        ok = gen_tcp:send(Stranger, hello("example.org")),
        Refused = gen_tcp:recv(Stranger, 0, weir_test_wait:patience()),
        ?assertMatch({error, Closed} when Closed =:= closed; Closed =:= econnreset, Refused),
        [ok = gen_tcp:close(Socket) || Socket <- [Client, Stranger, Behind]],
        ok = weir_bench_daemon:stop(Server)
    end).

%% Runs the rows of the bench for a short time.
its_rows_are_measured(Config) ->
    #{backend := Backend} = proplists:get_value(run, Config),
    {ok, #{scenarios := Scenarios}} = weir_bench_suite:read(),
    [
        begin
            [_, Contestant] = [Contestant || #{backend := Of} = Contestant <- Contestants, Of =:= Backend],
            Short = Scenario#{
                warmup := 100,
                duration := 1500,
                timeout => weir_test_wait:patience(),
                contestants := [changing_less(Contestant)]
            },
            [{_, [{ok, #{metrics := Metrics, errors := 0} = Sample}]}] =
                weir_bench_rounds:run(slower(Short), 1, weir_bench_machine:cores(), fun(_, _) -> ok end, fun(_) ->
                    ok
                end),
            ?assertMatch(#{requests_per_s := Rate} when Rate > 0, Metrics),
            ?assertEqual({Name, Metric, true}, {Name, Metric, is_map_key(Metric, Metrics)}),
            %% A note would say that not all changes were made.
            ?assertEqual([], maps:get(notes, Sample, []))
        end
     || #{name := Name, contestants := Contestants, metrics := [Metric | _]} = Scenario <- Scenarios,
        lists:member(Name, ['relay-changes', 'relay-changes-accept', 'relay-sni'])
    ].

changing_less(#{changes := 50} = Contestant) -> Contestant#{changes := 1};
changing_less(Contestant) -> Contestant.

slower(#{rate := _} = Scenario) -> Scenario#{rate := 200};
slower(Scenario) -> Scenario.

start(Config, More, Backend) ->
    weir_bench_server:start(maps:merge(proplists:get_value(run, Config), More), [], Backend).

with_backend(Test) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    Test(Port, fun() ->
        {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
        Socket
    end),
    ok = gen_tcp:close(Listener).

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    Socket.

%% The probes for readiness may have opened connections to the backend before this one.
behind(Client, Accept) ->
    ok = gen_tcp:send(Client, "whose"),
    behind(Accept).

behind(Accept) ->
    Socket = Accept(),
    case gen_tcp:recv(Socket, 5, weir_test_wait:patience()) of
        {ok, <<"whose">>} -> Socket;
        {error, closed} -> behind(Accept)
    end.

passes(Client, Behind) ->
    ok = gen_tcp:send(Client, "there"),
    {ok, <<"there">>} = gen_tcp:recv(Behind, 5, weir_test_wait:patience()),
    ok = gen_tcp:send(Behind, "back"),
    {ok, <<"back">>} = gen_tcp:recv(Client, 4, weir_test_wait:patience()),
    ok.

%% A ClientHello in one TLS record, as the driver sends it: a server name, and the minimum of the rest.
hello(Name) ->
    Size = length(Name),
    ServerName = <<0:16, (Size + 5):16, (Size + 3):16, 0, Size:16, (list_to_binary(Name))/binary>>,
    Extensions = <<ServerName/binary, 43:16, 3:16, 2, 3, 4>>,
    Body = <<3, 3, 7:256, 0, 2:16, 16#1301:16, 1, 0, (byte_size(Extensions)):16, Extensions/binary>>,
    Message = <<1, (byte_size(Body)):24, Body/binary>>,
    <<22, 3, 1, (byte_size(Message)):16, Message/binary>>.
