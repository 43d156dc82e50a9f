%% Cases with a single kind of handler: names, options, supervisors, relays and schedulers.
-module(weir_listener_alone_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_listener_test, [connect/1, count/1, handler/1, is_served/1, is_waiting/1, start/2, still_serves/1]).

-include("listener_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        a_name_is_taken_once,
        a_port_is_taken_once,
        a_shared_port,
        a_shared_unix_socket,
        a_unix_socket_has_its_mode_before_it_listens,
        wrong_options_are_refused,
        a_listener_is_embedded,
        an_embedded_listener_outlives_weir,
        names_that_are_not_there_are_told,
        an_address_may_be_text,
        a_taken_port_is_no_crash,
        new_connections_are_dropped_and_those_before_accepted,
        relays_keep_their_places,
        stop_ends_relays,
        a_connection_may_count_no_more,
        a_handler_may_take_its_time_to_end,
        events_are_told
    ].

%% The first step of a drain.
new_connections_are_dropped_and_those_before_accepted(_Config) ->
    [
        begin
            {ok, {_, _, Handle} = Listen} = gen_tcp:listen(0, [{tcp_module, Module}, {ip, Ip}]),
            {ok, Port} = inet:port(Listen),
            Before = [connected(Ip, Port) || _ <- lists:seq(1, 3)],
            ok = weir_nif:refuse(Handle),
            ?assertEqual({error, timeout}, gen_tcp:connect(Ip, Port, [], 100)),
            ?assert(weir_nif:has_backlog(Handle)),
            [
                begin
                    {ok, Accepted} = gen_tcp:accept(Listen, patience()),
                    ok = gen_tcp:send(Accepted, "hello"),
                    ok = gen_tcp:close(Accepted)
                end
             || _ <- Before
            ],
            [?assertEqual({ok, "hello"}, gen_tcp:recv(Socket, 5, patience())) || Socket <- Before],
            [ok = gen_tcp:close(Socket) || Socket <- Before],
            ?assertNot(weir_nif:has_backlog(Handle)),
            ?assertEqual({error, timeout}, gen_tcp:accept(Listen, 0)),
            ok = gen_tcp:close(Listen),
            ?assertEqual({error, closed}, weir_nif:refuse(Handle)),
            ?assertEqual({error, econnrefused}, gen_tcp:connect(Ip, Port, []))
        end
     || {Module, Ip} <- [{weir_tcp, ?LOOPBACK}, {weir_tcp6, {0, 0, 0, 0, 0, 0, 0, 1}}]
    ].

connected(Ip, Port) ->
    {ok, Socket} = gen_tcp:connect(Ip, Port, [{active, false}]),
    Socket.

%% Cases for one kind.

a_name_is_taken_once(Config) ->
    _ = start(Config, #{}),
    Name = ?config(name, Config),
    ?assertMatch({error, {already_started, _}}, weir:start_listener(Name, #{}, handler(function), args)).

a_port_is_taken_once(Config) ->
    Port = start(Config, #{}),
    Options = #{ip => ?LOOPBACK, port => Port},
    ?assertEqual({error, eaddrinuse}, weir:start_listener(other, Options, handler(function), args)),
    ok = weir:stop_listener(?config(name, Config)),
    {ok, _} = weir:start_listener(other, Options, handler(function), args),
    is_served(connect(Port)).

%% The kernel distributes connections between both.
a_shared_port(Config) ->
    Port = start(Config, #{}),
    Says = fun(Socket, Word) -> gen_tcp:send(Socket, Word) end,
    Options = #{ip => ?LOOPBACK, port => Port},
    ?assertEqual({error, eaddrinuse}, weir:start_listener(other, Options, Says, <<"other">>)),
    {ok, _} = weir:start_listener(other, Options#{shared => true}, Says, <<"other">>),
    Heard = fun() -> gen_tcp:recv(connect(Port), 5, 100) end,
    wait_until(fun() -> Heard() =:= {ok, <<"other">>} end),
    ok = weir:suspend_listener(other),
    ok = weir:resume_listener(other),
    wait_until(fun() -> Heard() =:= {ok, <<"other">>} end),
    %% When one stops, the other gets all connections.
    ok = weir:stop_listener(?config(name, Config)),
    [?assertEqual({ok, <<"other">>}, gen_tcp:recv(connect(Port), 5, patience())) || _ <- lists:seq(1, 10)],
    ok = weir:stop_listener(other).

a_shared_unix_socket(Config) ->
    Path = filename:join("/tmp", "weir_listener_shared_" ++ os:getpid() ++ atom_to_list(?config(handler, Config))),
    undefined = start(Config, #{ip => {local, Path}}),
    Connect = fun() ->
        {ok, Socket} = weir_test_peer:keep(gen_tcp:connect({local, Path}, 0, [binary, {active, false}])),
        Socket
    end,
    Before = Connect(),
    Says = fun(Socket, Word) -> gen_tcp:send(Socket, Word) end,
    {ok, _} = weir:start_listener(other, #{ip => {local, Path}, shared => true}, Says, <<"other">>),
    ?assertEqual({ok, <<"other">>}, gen_tcp:recv(Connect(), 5, patience())),
    is_served(Before),
    ok = weir:stop_listener(other),
    ok = file:delete(Path),
    %% A file that is not a socket is not removed.
    ok = file:write_file(Path, "mine"),
    [
        ?assertEqual(
            {error, eaddrinuse},
            weir:start_listener(other, #{ip => {local, Path}, shared => IsShared}, Says, <<"other">>)
        )
     || IsShared <- [true, false]
    ],
    ?assertEqual({ok, <<"mine">>}, file:read_file(Path)),
    ok = file:delete(Path).

%% If the mode were set after listening, any user could connect until then.
a_unix_socket_has_its_mode_before_it_listens(Config) ->
    Path = filename:join("/tmp", "weir_listener_mode_" ++ os:getpid()),
    Calls = [{file, change_mode, 2}, {weir_nif, listen, 2}],
    [1 = erlang:trace_pattern(Call, true, []) || Call <- Calls],
    _ = erlang:trace(all, true, [call]),
    undefined = start(Config, #{ip => {local, Path}, mode => 8#640}),
    _ = erlang:trace(all, false, [call]),
    Delivered = erlang:trace_delivered(all),
    receive {trace_delivered, all, Delivered} -> ok end,
    [1 = erlang:trace_pattern(Call, false, []) || Call <- Calls],
    ?assertMatch([{change_mode, [Path, 8#640]}, {listen, _} | _], traced()),
    Mode = fun() -> {ok, #file_info{mode = Mode}} = file:read_file_info(Path), Mode band 8#777 end,
    ?assertEqual(8#640, Mode()),
    Name = ?config(name, Config),
    ok = weir:suspend_listener(Name),
    ok = weir:resume_listener(Name),
    ?assertEqual(8#640, Mode()),
    ?assertMatch({error, {bad_option, mode, 8#600, _}}, weir:set_options(Name, #{mode => 8#600})),
    ok = weir:stop_listener(Name),
    ok = file:delete(Path).

traced() ->
    receive
        {trace, _, call, {_, Function, Arguments}} -> [{Function, Arguments} | traced()]
    after 0 -> []
    end.

wrong_options_are_refused(_Config) ->
    ?assertMatch(
        {error, {bad_option, mode, 8#1000, _}}, weir:start_listener(a, #{mode => 8#1000}, handler(function), x)
    ),
    [
        ?assertMatch(
            {error, {bad_option, mode, 8#600, _}},
            weir:start_listener(a, #{ip => IP, mode => 8#600}, handler(function), x)
        )
     || IP <- [any, {local, <<0, "abstract">>}]
    ],
    ?assertMatch({error, {bad_option, port, no, _}}, weir:start_listener(a, #{port => no}, handler(function), x)),
    ?assertMatch(
        {error, {bad_option, socket_opts, _, _}},
        weir:start_listener(a, #{socket_opts => [{nonsense, 1}]}, handler(function), x)
    ),
    %% The error names only the wrong option.
    ?assertMatch(
        {error, {bad_option, socket_opts, {nodelay, 1}, [_ | _]}},
        weir:start_listener(a, #{socket_opts => [{backlog, 5}, {nodelay, 1}, {keepalive, true}]}, handler(function), x)
    ),
    ?assertMatch({error, {bad_option, handler, lists, [_ | _]}}, weir:start_listener(a, #{}, lists, x)),
    #{start := {Module, Function, Arguments}} = weir:child_spec(a, #{port => no}, handler(function), x),
    ?assertMatch({error, {bad_option, port, no, _}}, apply(Module, Function, Arguments)),
    ?assertEqual([], weir:listeners()).

a_listener_is_embedded(Config) ->
    Name = ?config(name, Config),
    Spec = weir:child_spec(Name, #{ip => ?LOOPBACK}, handler(function), args),
    ?assertEqual(Spec, weir_listener:child_spec({Name, #{ip => ?LOOPBACK}, handler(function), args})),
    {ok, Supervisor} = weir_listener_supervisor:start_link([Spec]),
    is_served(connect(weir:get_port(Name))),
    ?assertEqual({error, {no_listener, Name}}, weir:stop_listener(Name)),
    unlink(Supervisor),
    exit(Supervisor, shutdown),
    wait_until(fun() -> weir:listeners() =:= [] end).

%% On another node, because Weir is stopped and started.
an_embedded_listener_outlives_weir(_Config) ->
    weir_test_node:on_node(?MODULE, with_weir_stopped, "", ["+S", "2"]).

with_weir_stopped(Config) ->
    Specs = [weir:child_spec(Name, #{ip => ?LOOPBACK}, handler(function), args) || Name <- [running, suspended]],
    {ok, Supervisor} = weir_listener_supervisor:start_link(Specs),
    Before = supervisor:which_children(Supervisor),
    Port = weir:get_port(running),
    ok = weir:suspend_listener(suspended),
    [
        begin
            ok = application:stop(weir),
            ?assertEqual([], weir:listeners()),
            ok = application:start(weir),
            wait_until(fun() -> lists:sort(weir:listeners()) =:= [running, suspended] end),
            wait_until(fun() -> maps:get(status, weir:info(running)) =:= running end),
            still_serves(Port),
            wait_until(fun() -> maps:get(status, weir:info(suspended)) =:= suspended end)
        end
     || _ <- [1, 2]
    ],
    ?assertEqual(Before, supervisor:which_children(Supervisor)),
    ok = weir:resume_listener(suspended),
    still_serves(weir:get_port(suspended)),
    [?assertEqual(ok, weir:drain_listener(Name, patience())) || Name <- [running, suspended]],
    unlink(Supervisor),
    exit(Supervisor, shutdown),
    wait_until(fun() -> weir:listeners() =:= [] end),
    Config.

names_that_are_not_there_are_told(_Config) ->
    [
        ?assertEqual({error, {no_listener, nobody}}, apply(weir, Function, [nobody | Arguments]))
     || {Function, Arguments} <- [
            {stop_listener, []}, {suspend_listener, []}, {resume_listener, []}, {drain_listener, [0]}, {info, []},
            {connections, []}, {set_max_connections, [1]}, {set_options, [#{}]}, {get_port, []}
        ]
    ].

an_address_may_be_text(Config) ->
    {ok, _} = weir:start_listener(?config(name, Config), #{ip => "127.0.0.1"}, handler(function), args),
    ?assertMatch(#{ip := ?LOOPBACK}, weir:info(?config(name, Config))),
    is_served(connect(weir:get_port(?config(name, Config)))).

%% The error is only returned, not logged.
a_taken_port_is_no_crash(Config) ->
    Port = start(Config, #{}),
    Self = self(),
    Tell = fun(Event, _) ->
        Self ! {logged, Event},
        stop
    end,
    ok = logger:add_primary_filter(?FUNCTION_NAME, {Tell, []}),
    try
        ?assertEqual(
            {error, eaddrinuse}, weir:start_listener(other, #{ip => ?LOOPBACK, port => Port}, handler(function), x)
        )
    after
        logger:remove_primary_filter(?FUNCTION_NAME)
    end,
    ?assertEqual([], [Event || {logged, Event} <- weir_test_wait:messages()]).

%% A relay takes the sockets of its connections, but they keep their slots.
relays_keep_their_places(Config) ->
    Name = ?config(name, Config),
    Port = start_relay(Name, #{max_connections => 2, per_address => 2}, #{}),
    Relayed = [is_served(connect(Port)) || _ <- [1, 2]],
    wait_until(fun() -> length(weir:relays()) =:= 2 end),
    ?assertMatch(#{connections := 2}, weir:info(Name)),
    Late = connect(Port),
    is_waiting(Late),
    ?assertEqual({error, {timeout, 2}}, weir:drain_listener(Name, 50)),
    ok = weir:resume_listener(Name),
    [ok = gen_tcp:close(Socket) || Socket <- Relayed],
    wait_until(fun() -> weir:relays() =:= [] end),
    wait_until(fun() -> count(Config) =:= 0 end),
    [is_served(connect(Port)) || _ <- [1, 2]].

%% Also a detached relay, which outlives its owner.
stop_ends_relays(Config) ->
    [
        begin
            Name = {?config(name, Config), Options},
            Port = start_relay(Name, #{}, Options),
            Socket = is_served(connect(Port)),
            wait_until(fun() -> length(weir:relays()) =:= 1 end),
            ok = weir:stop_listener(Name),
            ?assertEqual([], weir:relays()),
            ?assertMatch({error, _}, gen_tcp:recv(Socket, 0, patience()))
        end
     || Options <- [#{}, #{detached => true}]
    ].

%% The message that ranch:remove_connection/1 sends to the parent of a connection.
a_connection_may_count_no_more(Config) ->
    Name = ?config(name, Config),
    {ok, Listener} = weir:start_listener(Name, #{ip => ?LOOPBACK, max_connections => 1}, weir_listener_protocol, args),
    First = is_served(connect(weir:get_port(Name))),
    Second = connect(weir:get_port(Name)),
    is_waiting(Second),
    Acceptors = [Acceptor || {_, Acceptor, _, _} <- supervisor:which_children(Listener)],
    [Pid] = [Pid || Acceptor <- Acceptors, {_, Pid, _, _} <- supervisor:which_children(Acceptor)],
    [Acceptor ! {remove_connection, Name, Pid} || Acceptor <- Acceptors, _ <- [1, 2]],
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Second, 5, patience())),
    is_served(First),
    ?assertMatch(#{connections := 2}, weir:info(Name)),
    %% Its slot was freed once.
    ok = gen_tcp:close(First),
    wait_until(fun() -> count(Config) =:= 1 end),
    Third = connect(weir:get_port(Name)),
    is_waiting(Third),
    ok = gen_tcp:close(Second),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(Third, 5, patience())).

%% A listener that relays its connections to an echo server.
start_relay(Name, Options, RelayOptions) ->
    Echo = {Name, echo},
    {ok, _} = weir:start_listener(Echo, #{ip => ?LOOPBACK}, handler(function), args),
    Behind = weir:get_port(Echo),
    Relay = fun(Socket, _) ->
        {ok, Server} = gen_tcp:connect(?LOOPBACK, Behind, [{tcp_module, weir_tcp}, binary, {active, false}]),
        {ok, Relay} = weir:relay(Socket, Server, RelayOptions),
        receive {weir_relay, Relay, _, _} -> ok end
    end,
    {ok, _} = weir:start_listener(Name, Options#{ip => ?LOOPBACK}, Relay, []),
    weir:get_port(Name).

a_handler_may_take_its_time_to_end(_Config) ->
    Self = self(),
    Handler = fun(_Socket, How) ->
        process_flag(trap_exit, true),
        Self ! {serving, self()},
        receive
            {'EXIT', _, shutdown} when How =:= polite -> Self ! {goodbye, self()};
            never -> ok
        end
    end,
    [
        begin
            {ok, _} = weir:start_listener(How, #{ip => ?LOOPBACK, shutdown => Time}, Handler, How),
            _ = connect(weir:get_port(How)),
            Pid = receive {serving, Serving} -> Serving end,
            ok = weir:stop_listener(How),
            ?assertNot(is_process_alive(Pid)),
            How =:= polite andalso receive {goodbye, Pid} -> ok after 0 -> ct:fail(not_asked) end
        end
     || {How, Time} <- [{polite, infinity}, {rude, 50}, {brutal, brutal_kill}]
    ].

events_are_told(Config) ->
    Name = ?config(name, Config),
    Self = self(),
    Events =
        [[weir, listener, What] || What <- [start, stop, suspend, resume, accept]] ++
            [[weir, connection, start], [weir, connection, stop]],
    Tell = fun(Event, Measurements, Metadata, _) ->
        Self ! {lists:last(Event), hd(tl(Event)), Measurements, Metadata}
    end,
    ok = weir_event:attach_many(?MODULE, Events, Tell, []),
    try
        Port = start(Config, #{}),
        receive
            {start, listener, #{connections := 0}, #{name := Name, port := Port}} -> ok
        end,
        Socket = is_served(connect(Port)),
        receive
            {accept, listener, #{count := 1}, #{name := Name, pollset := _}} -> ok
        end,
        Pid =
            receive
                {start, connection, #{system_time := _}, #{name := Name, pid := Serving}} -> Serving
            end,
        ok = gen_tcp:close(Socket),
        receive
            {stop, connection, #{duration := _}, #{pid := Pid, reason := normal}} -> ok
        end,
        ok = weir:suspend_listener(Name),
        receive
            {suspend, listener, #{accepted := 1}, _} -> ok
        end,
        ok = weir:resume_listener(Name),
        receive
            {resume, listener, _, _} -> ok
        end,
        ok = weir:stop_listener(Name),
        receive
            {stop, listener, _, #{status := _}} -> ok
        end
    after
        weir_event:detach(?MODULE)
    end.
