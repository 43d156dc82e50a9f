%% Random faults: configurations change, clients and servers leave, stall and reset, processes are killed. Checks what
%% must always hold: every byte arrives once and in order, every client is served or reported, and nothing is left
%% behind.
%%
%% The seed of a run decides what is done in which order, but not the timing.
-module(weir_proxy_explorer).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("weir_proxy_explorer.hrl").

-export([run/3]).
-export([handle_event/4]).
-export([log/2]).

-import(weir_test_wait, [patience/0]).

-define(PROXY, explorer).

%% Supervisors allow 20 restarts in 10 seconds.
-define(KILL_MS, 550).

%% @doc Explores for some milliseconds. `gentle': no process is killed and no server ends, so each client that stays is
%% served to its end. `rough': processes are killed and servers end, and each client is served, or an event or the log
%% reports it.
run(Kind, Seed, Milliseconds) ->
    ct:log("~ts, seed ~b", [Kind, Seed]),
    io:format(user, "weir_proxy_explorer:run(~ts, ~b, ~b)~n", [Kind, Seed, Milliseconds]),
    Ports = [weir_test_port:claim() || _ <- [1, 2, 3]],
    Before = resources(),
    ok = weir_proxy_explorer_peers:prepare(),
    Run = #run{
        numbers = counters:new(6, []),
        seen = ets:new(seen, [set, public, {write_concurrency, true}]),
        ports = Ports,
        is_rough = Kind =:= rough,
        stop = counters:new(1, [])
    },
    ok = weir_event:attach_many(
        ?MODULE,
        [[weir, connection, start], [weir, proxy, session], [weir, proxy, refuse]],
        fun ?MODULE:handle_event/4,
        Run
    ),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => Run#run.numbers}),
    try
        explore(Run, rand:seed_s(exsss, Seed), Milliseconds)
    after
        ok = logger:remove_handler(?MODULE),
        ok = weir_event:detach(?MODULE),
        _ = weir_proxy:stop(?PROXY)
    end,
    ?waitEqual(Before, resources()).

handle_event([weir, connection, start], _, #{name := {weir_proxy, ?PROXY, _}, peer := Peer}, #run{
    numbers = Numbers, seen = Seen
}) ->
    ok = weir_proxy_explorer_peers:meet(Seen, Peer, -1),
    counters:add(Numbers, ?ACCEPTED, 1);
handle_event([weir, connection, start], _, _, _Run) ->
    ok;
handle_event([weir, proxy, session], _, _, #run{numbers = Numbers}) ->
    counters:add(Numbers, ?SESSIONS, 1);
handle_event(
    [weir, proxy, refuse], _, #{reason := Reason, peer := Peer} = About, #run{numbers = Numbers, seen = Seen}
) ->
    _ = Reason =:= gone orelse ets:insert(Seen, {{refused, Peer}, About}),
    counters:add(Numbers, ?REFUSED, 1).

log(#{msg := {report, #{sessions := Lost}}}, #{config := Numbers}) -> counters:add(Numbers, ?LOST, Lost);
log(#{msg := {report, #{connections := Lost}}}, #{config := Numbers}) -> counters:add(Numbers, ?LOST, Lost);
log(_Event, _Config) -> ok.

%% Relays, listeners, table rows, and descriptors of the VM.
resources() ->
    {ok, Descriptors} = file:list_dir("/proc/self/fd"),
    Rows = [
        ets:info(Table, size)
     || Table <- [weir_proxy_admissions, weir_proxy_sessions, weir_proxy_sticks, weir_proxy_store]
    ],
    #{relays => length(weir:relays()), listeners => weir:listeners(), rows => Rows, descriptors => length(Descriptors)}.

explore(Run = #run{numbers = Numbers}, Random, Milliseconds) ->
    Servers = [weir_proxy_explorer_peers:server(Name, 0, Run) || Name <- [<<"a">>, <<"b">>, <<"c">>]],
    {Config, Next} = config(Run, Servers, Random),
    ok = weir_proxy:start(?PROXY, Config),
    {Salt, Later} = rand:uniform_s(1_000_000, Next),
    Clients = [
        spawn_monitor(fun() -> weir_proxy_explorer_peers:client(Number, {Salt, Number, 0}, Run) end)
     || Number <- lists:seq(0, 23)
    ],
    {Last, Watched} = misfortune(Run, Servers, Later, erlang:monotonic_time(millisecond) + Milliseconds, #{}),
    ok = counters:add(Run#run.stop, 1, 1),
    [
        receive
            {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason)
        after 2 * patience() -> ct:fail(a_client_waits_for_ever)
        end
     || {Pid, Monitor} <- Clients
    ],
    ?assert(counters:get(Numbers, ?WHOLE) > 0),
    ?assertEqual([], [Fault || {Fault} <- ets:match_object(Run#run.seen, {{fault, '_', '_', '_'}})]),
    ?waitMatch({[], [], []}, {weir:relays(), ets:tab2list(weir_proxy_sessions), ets:tab2list(weir_proxy_admissions)}),
    ?waitEqual([], [Left || Left = {_, _, Current, Queued} <- current(Watched), Current =/= 0 orelse Queued =/= 0]),
    %% The highest limit of a server in any configuration is 3.
    ?assertEqual([], [
        Most
     || {Of, server} <- maps:to_list(Watched), Most <- [weir_proxy_counters:get(Of, max_sessions)], Most > 3
    ]),
    ?waitMatch({true, _}, is_everybody_told(Numbers)),
    Counted = [counters:get(Numbers, Each) || Each <- [?ACCEPTED, ?WHOLE, ?SESSIONS, ?REFUSED, ?LOST, ?KILLED_KEEPERS]],
    ct:log("~b accepted, ~b whole, ~b sessions, ~b refused, ~b lost with ~b keepers and other processes", Counted),
    [ok = weir_proxy_explorer_peers:stop_server(Server) || Server <- Last],
    ok.

%% A keeper may be killed after it has counted a session and before it reports it.
is_everybody_told(Numbers) ->
    Counted = [Accepted, Sessions, Refused, Lost, Killed] =
        [counters:get(Numbers, Each) || Each <- [?ACCEPTED, ?SESSIONS, ?REFUSED, ?LOST, ?KILLED_KEEPERS]],
    {abs(Accepted - Sessions - Refused - Lost) =< Killed, Counted}.

%%% Faults.

misfortune(Run, Servers, Random, Deadline, Watched) ->
    Seen = maps:merge(Watched, numbers()),
    case erlang:monotonic_time(millisecond) < Deadline of
        false ->
            {Servers, Seen};
        true ->
            {Pause, Next} = rand:uniform_s(25, Random),
            timer:sleep(Pause),
            {What, Later} = weir_proxy_explorer_peers:choice(happenings(Run), Next),
            {Now, Last} = happens(What, Run, Servers, Later),
            misfortune(Run, Now, Last, Deadline, Seen)
    end.

happenings(#run{is_rough = false}) ->
    [reload, reload, reload, drain, enable, weight];
happenings(#run{is_rough = true}) ->
    [reload || _ <- lists:seq(1, 12)] ++ [drain, enable, drain_within, close_sessions, server_ends] ++
        [kill_connection || _ <- lists:seq(1, 6)] ++
        [{kill, keeper}, {kill, backend}, {kill, instance}, {kill, reaper}].

happens(reload, Run, Servers, Random) ->
    {Config, Next} = config(Run, Servers, Random),
    ok = weir_proxy:change(?PROXY, Config),
    {Servers, Next};
happens(server_ends, Run, Servers, Random) ->
    {Server, Next} = weir_proxy_explorer_peers:choice(Servers, Random),
    ok = weir_proxy_explorer_peers:stop_server(Server),
    timer:sleep(5),
    Again = weir_proxy_explorer_peers:server(server_name(Server), server_port(Server), Run),
    {[case Each of Server -> Again; _ -> Each end || Each <- Servers], Next};
happens({kill, Which}, Run, Servers, Random) ->
    Now = erlang:monotonic_time(millisecond),
    %% Not more often than the supervisors allow.
    case {get(?MODULE), processes(Which)} of
        {Last, [_ | _] = Processes} when Last =:= undefined; Now - Last > ?KILL_MS ->
            _ = put(?MODULE, Now),
            {Pid, Next} = weir_proxy_explorer_peers:choice(Processes, Random),
            _ = kill(Which, Pid, Run),
            {Servers, Next};
        _ ->
            {Servers, Random}
    end;
happens(kill_connection, _Run, Servers, Random) ->
    case [element(1, Row) || Row <- ets:tab2list(weir_proxy_admissions)] of
        [] ->
            {Servers, Random};
        Pids ->
            {Pid, Next} = weir_proxy_explorer_peers:choice(Pids, Random),
            exit(Pid, kill),
            {Servers, Next}
    end;
happens(What, _Run, Servers, Random) ->
    {Backend, Next} = weir_proxy_explorer_peers:choice([b, c], Random),
    %% The first server always takes connections.
    _ = case What of
        drain -> weir_proxy:drain(?PROXY, Backend, c);
        drain_within -> weir_proxy:drain(?PROXY, Backend, c, 20);
        enable -> weir_proxy:enable(?PROXY, Backend, c);
        weight -> weir_proxy:set_weight(?PROXY, Backend, b, 3);
        close_sessions -> weir_proxy:close_sessions(?PROXY, Backend, b)
    end,
    {Servers, Next}.

processes(keeper) ->
    [Pid || {{weir_proxy_sessions, _}, Pid, _, _} <- supervisor:which_children(weir_proxy_sup), is_pid(Pid)];
processes(reaper) ->
    [whereis(weir_proxy_reaper)];
processes(instance) ->
    children(weir_proxy_instances);
processes(backend) ->
    children(weir_proxy_backends).

children(Supervisor) -> [Pid || {_, Pid, _, _} <- supervisor:which_children(Supervisor), is_pid(Pid)].

kill(Which, Pid, #run{numbers = Numbers}) ->
    _ = Which =:= keeper andalso counters:add(Numbers, ?KILLED_KEEPERS, 1),
    is_pid(Pid) andalso exit(Pid, kill).

%% One or two frontends and backends with random names, rules, limits and balancers. The first port is always listened
%% on.
config(#run{ports = Ports, is_rough = IsRough}, Servers, Random) ->
    {[Front, Back, Other, Ruled, Balance, Stick, Limit, Listened, Many], Next} = lists:mapfoldl(
        fun weir_proxy_explorer_peers:choice/2,
        Random,
        [
            [f, g],
            [b, c],
            [true, false],
            [none, first_bytes, from],
            [round_robin, least_connections, random, hash],
            [off, 1000],
            [1, 2, 3],
            [1, 2, 3],
            [2, 3]
        ]
    ),
    Backend = #{
        servers => [
            #{name => server_name(Each), address => server_address(Each), max_connections => Limit}
         || Each <- lists:sublist(Servers, Many)
        ],
        balance => Balance,
        stick => Stick,
        retries => 5,
        connect_timeout => 200,
        queue_timeout =>
            case IsRough of
                true -> 500;
                false -> 10 * patience()
            end
    },
    Rules =
        case Ruled of
            none -> [];
            first_bytes -> [#{protocol => ssh, backend => Back}, #{protocol => [unknown, none], backend => Back}];
            from -> [#{from => "127.0.0.0/8", backend => Back}]
        end,
    Frontend = #{rules => Rules, backend => Back, first_bytes_timeout => 10 * patience()},
    Listen = fun(Of) -> Frontend#{listen => [{{127, 0, 0, 1}, Port} || Port <- Of]} end,
    {Here, There} = lists:split(1, lists:sublist(Ports, Listened)),
    Frontends =
        case There of
            [] -> #{Front => Listen(Here)};
            _ when Other -> #{Front => Listen(Here), h => Listen(There)};
            _ -> #{Front => Listen(Here ++ There)}
        end,
    {#{frontends => Frontends, backends => #{Back => Backend}}, Next}.

%%% Counters, including those of removed frontends, backends and servers.

numbers() ->
    Frontends = [weir_proxy_store:frontend(?PROXY, Name) || Name <- weir_proxy_store:frontends(?PROXY)],
    Backends = [weir_proxy_store:backend(?PROXY, Name) || Name <- weir_proxy_store:backends(?PROXY)],
    Members = [Member || {_, Of} <- weir_proxy_store:members(?PROXY), Member <- Of],
    maps:from_list(
        [{element(4, Each), frontend} || Each <- Frontends, Each =/= undefined] ++
        [{element(4, Each), backend} || Each <- Backends, Each =/= undefined] ++
        [{Numbers, server} || Member <- Members, Numbers <- tuple_to_list(Member), is_atomics(Numbers)]
    ).

is_atomics(Term) -> is_reference(Term) andalso try atomics:get(Term, 1) of _ -> true catch error:badarg -> false end.

current(Watched) ->
    Of = fun(Numbers) -> [weir_proxy_counters:get(Numbers, Name) || Name <- [current_sessions, queue_current]] end,
    [{Kind, Numbers, Current, Queued} || {Numbers, Kind} <- maps:to_list(Watched), [Current, Queued] <- [Of(Numbers)]].

%%% Servers: their names, ports and processes.

server_name({Name, _, _}) -> Name.

server_port({_, Port, _}) -> Port.

server_address({_, Port, _}) -> {{127, 0, 0, 1}, Port}.
