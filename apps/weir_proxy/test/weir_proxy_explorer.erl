%% A proxy in bad luck: configurations change at random, clients and servers leave, stall and reset, processes are killed. What must hold whatever
%% happens is checked: every byte is in order and comes once, every client is served or it is told why not, and nothing is left.
%%
%% A run has a seed, which decides what is done in which order; what happens at the same time is up to the machine.
-module(weir_proxy_explorer).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([run/3]).
-export([handle_event/4]).
-export([log/2]).

-import(weir_test_wait, [patience/0]).

-define(PROXY, explorer).
-define(BLOCK, {?MODULE, block}).
-define(BLOCK_SIZE, 65_521).

%% Numbers of a run: connections of clients, events of sessions, of refusals, and what was lost with killed processes, as the log says; then
%% keepers that were killed.
-define(CONNECTED, 1).
-define(SESSIONS, 2).
-define(REFUSED, 3).
-define(LOST, 4).
-define(KILLED_KEEPERS, 5).
-define(WHOLE, 6).

-record(run, {
    numbers :: counters:counters_ref(),
    %% Seeds of connections that a server has seen, and what was wrong with them.
    seen :: ets:table(),
    %% Those that are always listened on, and those that come and go.
    ports :: [inet:port_number()],
    is_rough :: boolean(),
    stop :: counters:counters_ref()
}).

%% What a connection does, by its seed: bytes either way, milliseconds before the first byte, and of the server before its answer; how it ends.
-record(plan, {
    up :: non_neg_integer(),
    down :: non_neg_integer(),
    silence :: non_neg_integer(),
    stall :: non_neg_integer(),
    ending :: whole | half | client_resets | server_resets | client_leaves
}).

%% @doc Explores for so many milliseconds. `gentle': no process is killed and no server ends, so that each client that does not leave is served to its
%% end. `rough': they are and do, and each client is served, or an event or the log says that it was not.
run(Kind, Seed, Milliseconds) ->
    ct:log("~ts, seed ~b", [Kind, Seed]),
    io:format(user, "weir_proxy_explorer:run(~ts, ~b, ~b)~n", [Kind, Seed, Milliseconds]),
    Ports = [weir_test_port:claim() || _ <- [1, 2, 3]],
    Before = resources(),
    ok = persistent_term:put(?BLOCK, rand:bytes(?BLOCK_SIZE)),
    Run = #run{
        numbers = counters:new(6, []),
        seen = ets:new(seen, [set, public, {write_concurrency, true}]),
        ports = Ports,
        is_rough = Kind =:= rough,
        stop = counters:new(1, [])
    },
    ok = weir_event:attach_many(?MODULE, [[weir, proxy, session], [weir, proxy, refuse]], fun ?MODULE:handle_event/4, Run#run.numbers),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => Run#run.numbers}),
    try
        explore(Run, rand:seed_s(exsss, Seed), Milliseconds)
    after
        ok = logger:remove_handler(?MODULE),
        ok = weir_event:detach(?MODULE),
        _ = weir_proxy:stop(?PROXY)
    end,
    ?waitEqual(Before, resources()).

handle_event([weir, proxy, session], _, _, Numbers) -> counters:add(Numbers, ?SESSIONS, 1);
handle_event([weir, proxy, refuse], _, _, Numbers) -> counters:add(Numbers, ?REFUSED, 1).

log(#{msg := {report, #{sessions := Lost}}}, #{config := Numbers}) -> counters:add(Numbers, ?LOST, Lost);
log(#{msg := {report, #{connections := Lost}}}, #{config := Numbers}) -> counters:add(Numbers, ?LOST, Lost);
log(_Event, _Config) -> ok.

%% Relays, sockets, rows, and descriptors of the whole program.
resources() ->
    {ok, Descriptors} = file:list_dir("/proc/self/fd"),
    Rows = [ets:info(Table, size) || Table <- [weir_proxy_pending, weir_proxy_sessions, weir_proxy_sticks, weir_proxy_memory]],
    #{relays => length(weir:relays()), listeners => weir:listeners(), rows => Rows, descriptors => length(Descriptors)}.

explore(Run = #run{numbers = Numbers, ports = Ports}, Random, Milliseconds) ->
    Servers = [server(Name, 0, Run) || Name <- [<<"a">>, <<"b">>, <<"c">>]],
    {Config, Next} = config(Run, Servers, Random),
    ok = weir_proxy:start(?PROXY, Config),
    {Salt, Later} = rand:uniform_s(1_000_000, Next),
    Clients = [spawn_monitor(fun() -> client(Number, {Salt, Number, 0}, Ports, Run) end) || Number <- lists:seq(0, 23)],
    {Last, Watched} = misfortune(Run, Servers, Later, erlang:monotonic_time(millisecond) + Milliseconds, #{}),
    ok = counters:add(Run#run.stop, 1, 1),
    [receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual(normal, Reason) after 2 * patience() -> ct:fail(a_client_waits_for_ever) end || {Pid, Monitor} <- Clients],
    [Connected, Whole] = [counters:get(Numbers, Each) || Each <- [?CONNECTED, ?WHOLE]],
    ?assert(Whole > 0),
    ?assertEqual([], [Fault || {Fault} <- ets:match_object(Run#run.seen, {{fault, '_', '_', '_'}})]),
    ?waitMatch({[], [], []}, {weir:relays(), ets:tab2list(weir_proxy_sessions), ets:tab2list(weir_proxy_pending)}),
    ?waitEqual([], [Left || Left = {_, _, Current, Queued} <- current(Watched), Current =/= 0 orelse Queued =/= 0]),
    %% No configuration gives a server more.
    ?assertEqual([], [Most || {Of, server} <- maps:to_list(Watched), Most <- [weir_proxy_numbers:get(Of, max_sessions)], Most > 3]),
    Told = fun() -> lists:sum([counters:get(Numbers, Each) || Each <- [?SESSIONS, ?REFUSED, ?LOST]]) end,
    %% A keeper may be killed between what it counts and what it tells.
    ?waitEqual(true, abs(Connected - Told()) =< counters:get(Numbers, ?KILLED_KEEPERS)),
    ct:log("~b connections, ~b whole, ~b sessions, ~b refused, ~b lost with ~b keepers and other processes", [counters:get(Numbers, Each) || Each <- [?CONNECTED, ?WHOLE, ?SESSIONS, ?REFUSED, ?LOST, ?KILLED_KEEPERS]]),
    [ok = stop_server(Server) || Server <- Last],
    ok.

%%% What happens.

misfortune(Run, Servers, Random, Deadline, Watched) ->
    Seen = maps:merge(Watched, numbers()),
    case erlang:monotonic_time(millisecond) < Deadline of
        false ->
            {Servers, Seen};
        true ->
            {Pause, Next} = rand:uniform_s(25, Random),
            timer:sleep(Pause),
            {What, Later} = choice(happenings(Run), Next),
            {Now, Last} = happens(What, Run, Servers, Later),
            misfortune(Run, Now, Last, Deadline, Seen)
    end.

%% Kills are seldom enough for the supervisors.
happenings(#run{is_rough = false}) -> [reload, reload, reload, drain, enable, weight];
happenings(#run{is_rough = true}) ->
    [reload || _ <- lists:seq(1, 12)] ++ [drain, enable, drain_within, close_sessions, server_ends] ++ [kill_connection || _ <- lists:seq(1, 6)] ++
        [{kill, keeper}, {kill, backend}, {kill, instance}, {kill, reaper}].

happens(reload, Run, Servers, Random) ->
    {Config, Next} = config(Run, Servers, Random),
    ok = weir_proxy:change(?PROXY, Config),
    {Servers, Next};
happens(server_ends, Run, Servers, Random) ->
    {Server, Next} = choice(Servers, Random),
    ok = stop_server(Server),
    timer:sleep(5),
    {[case Each of Server -> server(server_name(Server), server_port(Server), Run); _ -> Each end || Each <- Servers], Next};
happens({kill, Which}, Run, Servers, Random) ->
    _ = [kill(Which, Pid, Run) || {Pid, _} <- [choice(processes(Which), Random)]],
    {Servers, Random};
happens(kill_connection, _Run, Servers, Random) ->
    case [element(1, Row) || Row <- ets:tab2list(weir_proxy_pending)] of
        [] ->
            {Servers, Random};
        Pids ->
            {Pid, Next} = choice(Pids, Random),
            exit(Pid, kill),
            {Servers, Next}
    end;
happens(What, _Run, Servers, Random) ->
    {Backend, Next} = choice([b, c], Random),
    %% The first server takes connections at any time.
    _ = case What of
        drain -> weir_proxy:drain(?PROXY, Backend, c);
        drain_within -> weir_proxy:drain(?PROXY, Backend, c, 20);
        enable -> weir_proxy:enable(?PROXY, Backend, c);
        weight -> weir_proxy:set_weight(?PROXY, Backend, b, 3);
        close_sessions -> weir_proxy:close_sessions(?PROXY, Backend, b)
    end,
    {Servers, Next}.

processes(keeper) -> [Pid || {{weir_proxy_sessions, _}, Pid, _, _} <- supervisor:which_children(weir_proxy_sup), is_pid(Pid)];
processes(reaper) -> [whereis(weir_proxy_reaper)];
processes(instance) -> children(weir_proxy_instances);
processes(backend) -> children(weir_proxy_backends).

children(Supervisor) -> [Pid || {_, Pid, _, _} <- supervisor:which_children(Supervisor), is_pid(Pid)].

kill(Which, Pid, #run{numbers = Numbers}) ->
    _ = Which =:= keeper andalso counters:add(Numbers, ?KILLED_KEEPERS, 1),
    is_pid(Pid) andalso exit(Pid, kill).

%% One or two backends and frontends, by different names, rules, limits and ways to balance. The first port is always listened on.
config(#run{ports = Ports, is_rough = IsRough}, Servers, Random) ->
    {[Front, Back, Other, Ruled, Balance, Stick, Limit, Listened, Many], Next} = lists:mapfoldl(
        fun choice/2,
        Random,
        [
            [f, g], [b, c], [true, false], [none, first_bytes, from], [round_robin, least_connections, random, hash], [off, 1000], [1, 2, 3], [1, 2, 3],
            [2, 3]
        ]
    ),
    Backend = #{
        servers => [#{name => server_name(Each), address => server_address(Each), max_connections => Limit} || Each <- lists:sublist(Servers, Many)],
        balance => Balance,
        stick => Stick,
        retries => 5,
        connect_timeout => 200,
        queue_timeout => case IsRough of true -> 500; false -> 10 * patience() end
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

choice(Choices, Random) ->
    {Number, Next} = rand:uniform_s(length(Choices), Random),
    {lists:nth(Number, Choices), Next}.

%%% What is counted, also of what has been removed since.

numbers() ->
    maps:from_list(
        [{element(4, Frontend), frontend} || Name <- weir_proxy_memory:frontends(?PROXY), Frontend <- [weir_proxy_memory:frontend(?PROXY, Name)], is_tuple(Frontend)] ++
        [{element(4, Backend), backend} || Name <- weir_proxy_memory:backends(?PROXY), Backend <- [weir_proxy_memory:backend(?PROXY, Name)], is_tuple(Backend)] ++
        [{Numbers, server} || {_, Members} <- weir_proxy_memory:members(?PROXY), Member <- Members, Numbers <- tuple_to_list(Member), is_atomics(Numbers)]
    ).

is_atomics(Term) -> is_reference(Term) andalso try atomics:get(Term, 1) of _ -> true catch error:badarg -> false end.

current(Watched) ->
    [{Kind, Numbers, weir_proxy_numbers:get(Numbers, current_sessions), weir_proxy_numbers:get(Numbers, queue_current)} || {Numbers, Kind} <- maps:to_list(Watched)].

%%% Clients.

plan({Salt, Number, Count}) ->
    {[Up, Down, Silence, Stall, Ending], _} = lists:mapfoldl(
        fun choice/2,
        rand:seed_s(exsss, {Salt, Number, Count}),
        [
            [0, 1, 1000, 30_000, 200_000], [0, 1, 1000, 30_000, 200_000], [0, 0, 0, 5, 50], [0, 0, 0, 2, 20],
            [whole, whole, whole, whole, half, half, client_resets, server_resets, client_leaves]
        ]
    ),
    #plan{up = Up, down = Down, silence = Silence, stall = Stall, ending = Ending}.

bytes(Seed, From, Size) ->
    Block = persistent_term:get(?BLOCK),
    At = (erlang:phash2(Seed, ?BLOCK_SIZE) + From) rem ?BLOCK_SIZE,
    case Size =< ?BLOCK_SIZE - At of
        true -> binary:part(Block, At, Size);
        false -> <<(binary:part(Block, At, ?BLOCK_SIZE - At))/binary, (bytes(Seed, From + ?BLOCK_SIZE - At, Size - (?BLOCK_SIZE - At)))/binary>>
    end.

client(Number, Seed = {Salt, _, Count}, Ports, Run = #run{numbers = Numbers, stop = Stop}) ->
    case counters:get(Stop, 1) of
        1 when Count > 0 ->
            ok;
        _ ->
            Port = lists:nth(1 + Count rem length(Ports), Ports),
            case gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {exit_on_close, false}, {show_econnreset, true}, {nodelay, true}], patience()) of
                {ok, Socket} ->
                    ok = counters:add(Numbers, ?CONNECTED, 1),
                    ok = judge(Seed, plan(Seed), converse(Socket, Seed, plan(Seed)), Run),
                    _ = gen_tcp:close(Socket);
                %% Only the first is there at any time.
                {error, econnrefused} when Port =/= hd(Ports) ->
                    ok;
                %% It was accepted, and its client has not seen that before it was closed.
                {error, econnreset} when Run#run.is_rough ->
                    ok = counters:add(Numbers, ?CONNECTED, 1)
            end,
            client(Number, {Salt, Number, Count + 1}, Ports, Run)
    end.

%% Says what it has to say, and hears the answer.
converse(Socket, _Seed, #plan{ending = client_leaves, silence = Silence}) ->
    timer:sleep(Silence),
    ok = inet:setopts(Socket, [{linger, {Silence > 0, 0}}]),
    left;
converse(Socket, Seed = {Salt, Number, Count}, Plan = #plan{up = Up, down = Down, silence = Silence, ending = Ending}) ->
    timer:sleep(Silence),
    Said = case Ending of client_resets -> Up div 2; _ -> Up end,
    Sent = gen_tcp:send(Socket, [<<"SSH-", Salt:32, Number:32, Count:32>>, bytes({Seed, up}, 0, Said)]),
    _ = Ending =:= half andalso gen_tcp:shutdown(Socket, write),
    case {Ending, Sent} of
        {client_resets, _} ->
            ok = inet:setopts(Socket, [{linger, {true, 0}}]),
            left;
        %% What the server has said before it was reset may still be read.
        _ ->
            hear(Socket, {Seed, down}, 0, Down, Plan)
    end.

hear(Socket, _Name, Size, Size, _Plan) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {error, closed} -> whole;
        Other -> {no_end, Other}
    end;
hear(Socket, Name, Heard, Size, Plan) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, Data} when Heard + byte_size(Data) =< Size ->
            case bytes(Name, Heard, byte_size(Data)) of
                Data -> hear(Socket, Name, Heard + byte_size(Data), Size, Plan);
                _ -> {wrong_bytes_after, Heard}
            end;
        {ok, Data} ->
            {surplus, Heard, byte_size(Data), Size};
        {error, timeout} ->
            {nothing_more_after, Heard, Size};
        {error, Reason} ->
            {ended_after, Heard, Reason}
    end.

judge(_Seed, #plan{ending = Ending}, whole, #run{numbers = Numbers}) when Ending =/= server_resets -> counters:add(Numbers, ?WHOLE, 1);
judge(_Seed, _Plan, left, _Run) -> ok;
judge(_Seed, #plan{ending = server_resets}, {ended_after, _, _}, _Run) -> ok;
judge(_Seed, #plan{ending = server_resets, down = 0}, Result, _Run) when Result =:= whole; Result =:= {no_end, {error, econnreset}} -> ok;
judge(_Seed, _Plan, {ended_after, _, _}, #run{is_rough = true}) -> ok;
judge(_Seed, _Plan, {no_end, {error, Reason}}, #run{is_rough = true}) when Reason =/= timeout -> ok;
judge(Seed, Plan, Result, _Run) -> exit({Seed, Plan, Result}).

%%% Servers.

server(Name, Port, Run) ->
    Test = self(),
    Pid = spawn(fun() ->
        Owner = monitor(process, Test),
        {ok, Listen} = gen_tcp:listen(Port, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 1024}, {exit_on_close, false}, {reuseaddr, true}]),
        {ok, Bound} = inet:port(Listen),
        Me = self(),
        _ = spawn_link(fun() -> accept(Me, Listen, Run) end),
        Test ! {listens, Me, Bound},
        receive {'DOWN', Owner, process, _, _} -> exit(owner_ended) end
    end),
    receive {listens, Pid, Bound} -> {Name, Bound, Pid} after patience() -> ct:fail(no_server) end.

server_name({Name, _, _}) -> Name.

server_port({_, Port, _}) -> Port.

server_address({_, Port, _}) -> {{127, 0, 0, 1}, Port}.

stop_server({_, _, Pid}) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

accept(Server, Listen, Run) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() ->
        receive go -> ok end,
        link(Server),
        serve(Socket, Run)
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Server, Listen, Run).

serve(Socket, #run{seen = Seen}) ->
    case gen_tcp:recv(Socket, 16, patience()) of
        {ok, <<"SSH-", Salt:32, Number:32, Count:32>>} ->
            Seed = {Salt, Number, Count},
            Result = case ets:insert_new(Seen, {Seed}) of true -> answer(Socket, Seed, plan(Seed)); false -> twice end,
            _ = Result =:= ok orelse ets:insert(Seen, {{fault, Seed, plan(Seed), Result}});
        %% Its client has left.
        {error, Reason} when Reason =/= timeout ->
            ok
    end,
    gen_tcp:close(Socket).

%% `ok' where its client has left before, too.
answer(Socket, Seed, #plan{ending = server_resets, up = Up, down = Down}) ->
    Heard = listen(Socket, Seed, 0, Up div 2),
    _ = gen_tcp:send(Socket, bytes({Seed, down}, 0, Down div 2)),
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    case Heard of ended -> ok; _ -> Heard end;
answer(Socket, Seed, #plan{up = Up, down = Down, stall = Stall, ending = Ending}) ->
    timer:sleep(Stall),
    case {listen(Socket, Seed, 0, Up), Ending} of
        {ok, half} ->
            case gen_tcp:recv(Socket, 0, patience()) of
                {error, closed} -> say(Socket, Seed, Down);
                {error, Reason} when Reason =/= timeout -> ok;
                Other -> {no_end, Other}
            end;
        {ok, _} -> say(Socket, Seed, Down);
        {ended, _} -> ok;
        {Fault, _} -> Fault
    end.

say(Socket, Seed, Size) ->
    _ = gen_tcp:send(Socket, bytes({Seed, down}, 0, Size)),
    ok.

listen(_Socket, _Seed, Size, Size) -> ok;
listen(Socket, Seed, Heard, Size) ->
    case gen_tcp:recv(Socket, min(65_536, Size - Heard), patience()) of
        {ok, Data} ->
            case bytes({Seed, up}, Heard, byte_size(Data)) of
                Data -> listen(Socket, Seed, Heard + byte_size(Data), Size);
                _ -> {wrong_bytes_after, Heard}
            end;
        {error, timeout} -> {nothing_more_after, Heard, Size};
        {error, _} -> ended
    end.
