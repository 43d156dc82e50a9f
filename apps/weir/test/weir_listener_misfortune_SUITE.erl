%% Listeners whose workers, listeners and connections are killed or reset. After each case everything is as before.
-module(weir_listener_misfortune_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_listener_test, [connect/1, count/1, is_served/1, start/2, still_serves/1]).

-include("listener_suite.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, function}, {group, protocol}, {group, reactor}, nothing_is_served_after_a_stop].

groups() ->
    Cases = [
        killed_workers_have_successors,
        a_killed_listener_goes_on,
        a_killed_stop_leaves_the_name_free,
        killed_processes_leave_nothing,
        a_storm_of_resets_leaves_nothing
    ],
    [{Handler, [], Cases} || Handler <- [function, protocol, reactor]].

init_per_group(Handler, Config) ->
    %% A case starts twenty listeners one after the other, perhaps faster than pollsets of ended reactors become free.
    ok = weir_test_peer:acquire_pollsets(min(512, 24 * erlang:system_info(schedulers))),
    [{handler, Handler} | Config].

end_per_group(_Group, _Config) ->
    ok.

%% Clients connect all the time while processes are killed; those that were not served try again.

%% The process that stops a listener is killed as soon as the listener has ended.
a_killed_stop_leaves_the_name_free(Config) ->
    Name = ?config(name, Config),
    [
        begin
            _ = start(Config, #{}),
            Ends = monitor(process, weir_listener_names:whereis_name(Name)),
            Stopper = spawn(fun() -> weir:stop_listener(Name) end),
            receive {'DOWN', Ends, process, _, _} -> exit(Stopper, kill) end
        end
     || _ <- lists:seq(1, 20)
    ],
    still_serves(start(Config, #{})),
    ok = weir:stop_listener(Name),
    ?assertEqual([], weir:listeners()).

killed_workers_have_successors(Config) ->
    Port = start(Config, #{}),
    Storm = storm(Port, 8),
    [
        begin
            kill_workers(?config(name, Config)),
            still_serves(Port)
        end
     || _ <- lists:seq(1, 20)
    ],
    still_serves(Port),
    calm(Storm),
    wait_until(fun() -> count(Config) =:= 0 end).

kill_workers(Name) ->
    #{pid := Listener} = weir:info(Name),
    {links, Linked} = process_info(Listener, links),
    Supervisor = whereis(weir_listener_sup),
    [exit(Pid, kill) || Pid <- Linked, is_pid(Pid), Pid =/= Supervisor].

a_killed_listener_goes_on(Config) ->
    Port = start(Config, #{}),
    Name = ?config(name, Config),
    Socket = is_served(connect(Port)),
    Storm = storm(Port, 4),
    [
        begin
            Old = weir_listener_names:whereis_name(Name),
            exit(Old, kill),
            wait_until(fun() -> is_pid(Now = weir_listener_names:whereis_name(Name)) andalso Now =/= Old end)
        end
     || _ <- lists:seq(1, 4)
    ],
    ?assertEqual(Port, weir:get_port(Name)),
    still_serves(Port),
    calm(Storm),
    %% Connections of funs survive and are still counted.
    ?config(handler, Config) =:= function andalso is_served(Socket),
    Left = case ?config(handler, Config) of function -> 1; _ -> 0 end,
    wait_until(fun() -> count(Config) =:= Left end).

killed_processes_leave_nothing(Config) ->
    Port = start(Config, #{max_connections => 20}),
    Name = ?config(name, Config),
    Storm = storm(Port, 8),
    [
        begin
            [exit(Pid, kill) || {_, Pid} <- weir:connections(Name)],
            [exit(Pid, kill) || N rem 4 =:= 0, #{poller := Pid} <- weir:pollsets(), is_pid(Pid)],
            weir_fastpath_test:pause()
        end
     || N <- lists:seq(1, 30)
    ],
    still_serves(Port),
    calm(Storm),
    wait_until(fun() -> maps:with([connections, waiting], weir:info(Name)) =:= #{connections => 0, waiting => 0} end).

a_storm_of_resets_leaves_nothing(Config) ->
    Port = start(Config, #{max_connections => 50, per_address => 40}),
    Clients = [
        weir_test_peer:async(fun() ->
            [
                case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {linger, {true, 0}}]) of
                    {ok, Socket} ->
                        _ = N rem 3 =:= 0 andalso gen_tcp:send(Socket, <<"x">>),
                        gen_tcp:close(Socket);
                    {error, _} ->
                        ok
                end
             || N <- lists:seq(1, 100)
            ]
        end)
     || _ <- lists:seq(1, 4)
    ],
    [weir_test_peer:await(Client) || Client <- Clients],
    wait_until(fun() -> count(Config) =:= 0 end),
    %% A connection that was reset counts against per_address until it has left the backlog, so this client may be
    %% refused at first.
    wait_until(fun() -> gives_back(Port, <<"hello">>) end).

gives_back(Port, Bytes) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()) of
        {ok, Socket} ->
            _ = gen_tcp:send(Socket, Bytes),
            Answer = gen_tcp:recv(Socket, byte_size(Bytes), patience()),
            ok = gen_tcp:close(Socket),
            Answer =:= {ok, Bytes};
        {error, _} ->
            false
    end.

storm(Port, Count) -> [spawn_link(fun() -> storm(Port) end) || _ <- lists:seq(1, Count)].

storm(Port) ->
    receive
        {stop, From} -> From ! {stopped, self()}
    after 0 ->
        case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, <<"hello">>),
                _ = gen_tcp:recv(Socket, 5, 200),
                gen_tcp:close(Socket);
            {error, _} ->
                weir_fastpath_test:pause()
        end,
        storm(Port)
    end.

calm(Storm) ->
    [Pid ! {stop, self()} || Pid <- Storm],
    [receive {stopped, Pid} -> ok after patience() -> ct:fail(storm_does_not_end) end || Pid <- Storm].

%% Clients connect while the listener is stopped. Each connection is served and ended before stop returns, or never
%% served.
nothing_is_served_after_a_stop(Config) ->
    Name = ?config(name, Config),
    Table = ets:new(?MODULE, [public]),
    Handler = fun(Socket, Stopped) ->
        true = ets:insert(Table, {self(), atomics:get(Stopped, 1)}),
        weir_listener_test:echo(Socket, [])
    end,
    Rounds = lists:seq(1, 100),
    ?assertEqual([], lists:append([served_after_a_stop(Name, Handler, atomics:new(1, []), Table) || _ <- Rounds])).

served_after_a_stop(Name, Handler, Stopped, Table) ->
    {ok, _} = weir:start_listener(Name, #{ip => ?LOOPBACK}, Handler, Stopped),
    Port = weir:get_port(Name),
    Clients = [
        weir_test_peer:async(fun Connect() ->
            case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()) of
                {ok, Socket} -> [Socket | Connect()];
                {error, _} -> []
            end
        end)
     || _ <- lists:seq(1, 4)
    ],
    wait_until(fun() -> ets:info(Table, size) > 0 end),
    ok = weir:stop_listener(Name),
    ok = atomics:put(Stopped, 1, 1),
    Alive = [Entry || Entry = {Pid, _} <- ets:tab2list(Table), is_process_alive(Pid)],
    Sockets = lists:append([weir_test_peer:await(Client) || Client <- Clients]),
    %% If the handshake was not complete on the kernel's side when the listening socket was closed, the client learns
    %% that only when it sends.
    _ = [gen_tcp:send(Socket, <<"?">>) || Socket <- Sockets],
    [_ = gen_tcp:recv(Socket, 0, patience()) || Socket <- Sockets],
    [ok = gen_tcp:close(Socket) || Socket <- Sockets],
    Late = [Entry || Entry = {_, 1} <- ets:tab2list(Table)],
    true = ets:delete_all_objects(Table),
    Alive ++ Late.
