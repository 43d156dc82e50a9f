%% Ten minutes of everything at once: clients that behave and clients that do
%% not, owners and pollers killed, sockets moved, schedulers taken away. Every
%% byte is checked, and memory and descriptors stay where they were.
%% WEIR_SOAK_SECONDS in the environment makes it shorter or longer.
-module(weir_soak_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_wait, [wait_until/1, patience/0]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(SECONDS, 600).
-define(CLIENTS, 40).

%% What memory may grow by between the first and the last quarter: a tenth, and
%% the buffers that happen to be full.
-define(GROWTH, 1.1).
-define(SLACK, 16_000_000).

suite() ->
    [{timetrap, {seconds, seconds() + 600}}].

all() ->
    [random_mixtures].

seconds() ->
    list_to_integer(os:getenv("WEIR_SOAK_SECONDS", integer_to_list(?SECONDS))).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    ok = logger:add_primary_filter(?MODULE, {fun without_pollers/2, []}),
    Config.

end_per_suite(_Config) ->
    _ = erlang:system_flag(schedulers_online, erlang:system_info(schedulers)),
    logger:remove_primary_filter(?MODULE).

%% Pollers die by the dozen here, and Weir says so each time.
without_pollers(#{msg := {report, #{what := "a poller died" ++ _}}}, _) -> stop;
without_pollers(_Event, _) -> ignore.

random_mixtures(_Config) ->
    Descriptors = descriptors(),
    Echoes = [{Name, start_server(Options, fun echo/1)} || {Name, Options} <- servers()],
    {_, {_, Patient}} = lists:keyfind(patient, 1, Echoes),
    Ports = [{relayed, start_server([], fun(Socket) -> relay(Socket, Patient) end)} | Echoes],
    Deadline = erlang:monotonic_time(second) + seconds(),
    Clients = [start_client(Ports, Deadline) || _ <- lists:seq(1, ?CLIENTS)],
    {Chaos, _} = spawn_monitor(fun() -> chaos() end),
    Samples = sample(Deadline, []),
    Done = lists:foldl(fun await_client/2, #{}, Clients),
    stop(Chaos),
    [stop(Server) || {_, {Server, _}} <- Ports],
    wait_until(fun() ->
        Left = {weir:sockets(), weir:relays(), max(0, descriptors() - Descriptors)},
        Left =:= {[], [], 0} orelse {left_behind, Left}
    end),
    ?assertEqual(0, lists:sum([Sockets || #{sockets := Sockets} <- weir:pollsets()])),
    ct:pal("connections served: ~p", [Done]),
    Quarter = max(1, length(Samples) div 4),
    First = medians(lists:sublist(Samples, Quarter)),
    Last = medians(lists:nthtail(length(Samples) - Quarter, Samples)),
    ct:pal("medians of the first quarter: ~p~nmedians of the last quarter:  ~p", [First, Last]),
    maps:foreach(
        fun(Name, Before) ->
            Limit = Before * ?GROWTH + slack(Name),
            ?assert(maps:get(Name, Last) =< Limit, {Name, Before, maps:get(Name, Last)})
        end,
        First
    ).

%% What is measured -------------------------------------------------------------

%% A sample each second; the first come when the clients have found their pace.
sample(Deadline, Samples) ->
    receive
    after 1000 -> ok
    end,
    case erlang:monotonic_time(second) < Deadline of
        true -> sample(Deadline, [measure() | Samples]);
        false -> lists:reverse(Samples)
    end.

measure() ->
    {ok, Status} = file:read_file("/proc/self/statm"),
    [_, Resident | _] = string:lexemes(Status, " "),
    #{
        resident => binary_to_integer(Resident) * 4096,
        total => erlang:memory(total),
        processes => erlang:memory(processes),
        binary => erlang:memory(binary),
        descriptors => descriptors(),
        sockets => length(weir:sockets()),
        relays => length(weir:relays())
    }.

medians(Samples) ->
    Median = fun(Name, _) ->
        Values = lists:sort([maps:get(Name, Sample) || Sample <- Samples]),
        lists:nth((length(Values) + 1) div 2, Values)
    end,
    maps:map(Median, hd(Samples)).

slack(descriptors) -> 2 * ?CLIENTS;
slack(sockets) -> 2 * ?CLIENTS;
slack(relays) -> 2 * ?CLIENTS;
slack(_Memory) -> ?SLACK.

descriptors() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    length(Names).

%% Servers ----------------------------------------------------------------------

%% They send back what they get. The patient one does so when the client has
%% shut its side down as well; the doomed ones are killed by and by.
servers() ->
    [
        {plain, []},
        {patient, [{exit_on_close, false}]},
        {slow, [{sndbuf, 8192}, {high_watermark, 4096}, {low_watermark, 1024}]},
        {doomed, []}
    ].

start_server(Options, Serve) ->
    Self = self(),
    {Server, _} = spawn_monitor(fun() ->
        {ok, Listener} = gen_tcp:listen(0, [
            {tcp_module, weir_tcp}, binary, {active, false}, {ip, ?LOOPBACK}, {nodelay, true}, {backlog, 256} | Options
        ]),
        {ok, Port} = inet:port(Listener),
        Self ! {self(), Port},
        accept(Listener, Serve)
    end),
    receive
        {Server, Port} -> {Server, Port}
    after patience() -> ct:fail(no_server)
    end.

accept(Listener, Serve) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Server = spawn(fun() ->
        receive
            go -> Serve(Socket)
        end
    end),
    _ = gen_tcp:controlling_process(Socket, Server),
    Server ! go,
    accept(Listener, Serve).

%% Between the client and a server that echoes. It ends when both sides have, and tells.
relay(Socket, Port) ->
    Mode = [{tcp_module, weir_tcp}, binary, {active, false}, {nodelay, true}],
    {ok, Backend} = gen_tcp:connect(?LOOPBACK, Port, Mode, patience()),
    Options = #{splice => one_of([auto, true, false]), buffer => one_of([100, 4000, 65536, 300_000])},
    case weir:relay(Socket, Backend, Options) of
        {ok, Relay} ->
            receive
                {weir_relay, Relay, _, _} -> ok
            end;
        %% The client was gone before.
        {error, _} ->
            [gen_tcp:close(Side) || Side <- [Socket, Backend]]
    end.

echo(Socket) ->
    put(?MODULE, echo),
    echo(Socket, one_of([passive, once, true, 1, 5, 100])).

echo(Socket, passive) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            echo(Socket, passive);
        {error, _} ->
            gen_tcp:close(Socket)
    end;
echo(Socket, Active) ->
    _ = inet:setopts(Socket, [{active, Active}]),
    echo_messages(Socket, Active).

echo_messages(Socket, Active) ->
    receive
        {tcp, Socket, Data} ->
            _ = gen_tcp:send(Socket, Data),
            _ = [inet:setopts(Socket, [{active, once}]) || Active =:= once],
            echo_messages(Socket, Active);
        {tcp_passive, Socket} ->
            echo(Socket, Active);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.

%% Clients ------------------------------------------------------------------------

start_client(Ports, Deadline) ->
    spawn_monitor(fun() -> exit({done, client(Ports, Deadline, #{})}) end).

await_client({Pid, Monitor}, Done) ->
    receive
        {'DOWN', Monitor, process, Pid, {done, Counts}} ->
            maps:fold(fun(Kind, Count, Sum) -> Sum#{Kind => Count + maps:get(Kind, Sum, 0)} end, Done, Counts);
        {'DOWN', Monitor, process, Pid, Reason} ->
            ct:fail({client, Reason})
    after 2 * patience() ->
        ct:fail({client_hangs, process_info(Pid, current_stacktrace)})
    end.

client(Ports, Deadline, Done) ->
    case erlang:monotonic_time(second) < Deadline of
        true ->
            {Kind, Server} = one_of([
                {steady, plain},
                {steady, patient},
                {steady, slow},
                {slow_reader, slow},
                {slow_reader, plain},
                {half_close, patient},
                {steady, relayed},
                {slow_reader, relayed},
                {half_close, relayed},
                {reset, relayed},
                {killed_with_client, relayed},
                {reset, plain},
                {reset, slow},
                {killed_with_client, plain},
                {victim, doomed}
            ]),
            {_, {_, Port}} = lists:keyfind(Server, 1, Ports),
            ok = serve(Kind, fun(Options) -> connect(Port, Options) end),
            client(Ports, Deadline, maps:update_with(Kind, fun(Count) -> Count + 1 end, 1, Done));
        false ->
            Done
    end.

%% Weir is at both ends as often as at one.
connect(Port, Options) ->
    Backend = one_of([[], [{tcp_module, weir_tcp}]]),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, Backend ++ [binary, {active, false} | Options], patience()),
    Socket.

serve(steady, Connect) ->
    Socket = Connect([{nodelay, true}]),
    lists:foreach(
        fun(_) ->
            Data = rand:bytes(rand:uniform(one_of([64, 4000, 60000]))),
            ok = gen_tcp:send(Socket, Data),
            expect(Socket, Data)
        end,
        lists:seq(1, rand:uniform(300))
    ),
    gen_tcp:close(Socket);
serve(slow_reader, Connect) ->
    slow_reader(Connect);
serve(half_close, Connect) ->
    Socket = Connect([]),
    Data = rand:bytes(rand:uniform(200000)),
    {Sender, Monitor} = spawn_monitor(fun() ->
        ok = gen_tcp:send(Socket, Data),
        ok = gen_tcp:shutdown(Socket, write)
    end),
    expect(Socket, Data),
    {error, closed} = gen_tcp:recv(Socket, 0, patience()),
    receive
        {'DOWN', Monitor, process, Sender, normal} -> ok
    end,
    gen_tcp:close(Socket);
serve(reset, Connect) ->
    Socket = Connect([{linger, {true, 0}}, {recbuf, 8192}]),
    _ = gen_tcp:send(Socket, rand:bytes(rand:uniform(20000))),
    rest(rand:uniform(10)),
    gen_tcp:close(Socket);
serve(killed_with_client, Connect) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        Socket = Connect([{active, once}]),
        _ = gen_tcp:send(Socket, rand:bytes(rand:uniform(100000))),
        receive
            {tcp, Socket, _} -> gen_tcp:recv(Socket, 1000000)
        end
    end),
    rest(rand:uniform(20)),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, killed} -> ok
    end;
serve(victim, Connect) ->
    %% The server may be killed at any time: what came till then is right.
    Socket = Connect([]),
    Data = rand:bytes(rand:uniform(100000)),
    {Sender, Monitor} = spawn_monitor(fun() -> gen_tcp:send(Socket, Data) end),
    _ = [kill_echo(Socket) || rand:uniform(2) =:= 1],
    expect_at_most(Socket, Data),
    receive
        {'DOWN', Monitor, process, Sender, _} -> ok
    end,
    gen_tcp:close(Socket).

slow_reader(Connect) ->
    Socket = Connect([{recbuf, 8192}, {nodelay, true}]),
    Data = rand:bytes(50000 + rand:uniform(300000)),
    Self = self(),
    {Sender, Monitor} = spawn_monitor(fun() ->
        ok = gen_tcp:send(Socket, Data),
        %% It is the owner's to close.
        Self ! {self(), sent}
    end),
    rest(rand:uniform(50)),
    read_slowly(Socket, Data),
    receive
        {Sender, sent} -> ok
    after patience() -> exit(not_sent)
    end,
    demonitor(Monitor, [flush]),
    gen_tcp:close(Socket).

%% Kills the process that serves a client's socket, if it has begun to.
kill_echo(Client) ->
    Here = inet:sockname(Client),
    There = inet:peername(Client),
    _ = [
        exit(Owner, kill)
     || Socket <- weir:sockets(),
        {inet:sockname(Socket), inet:peername(Socket)} =:= {There, Here},
        #{owner := Owner} <- [weir_tcp:info(Socket)],
        is_echo(Owner)
    ],
    ok.

is_echo(Pid) ->
    is_pid(Pid) andalso
        case process_info(Pid, dictionary) of
            {dictionary, Dictionary} -> lists:member({?MODULE, echo}, Dictionary);
            undefined -> false
        end.

expect(_Socket, <<>>) ->
    ok;
expect(Socket, Data) ->
    {ok, Received} = gen_tcp:recv(Socket, 0, patience()),
    expect(Socket, rest_of(Data, Received)).

%% All of it, or a part and the end.
expect_at_most(_Socket, <<>>) ->
    ok;
expect_at_most(Socket, Data) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, Received} -> expect_at_most(Socket, rest_of(Data, Received));
        {error, Reason} when Reason =:= closed; Reason =:= enotconn -> ok
    end.

read_slowly(_Socket, <<>>) ->
    ok;
read_slowly(Socket, Data) ->
    rest(rand:uniform(3)),
    {ok, Received} = gen_tcp:recv(Socket, min(rand:uniform(20000), byte_size(Data)), patience()),
    read_slowly(Socket, rest_of(Data, Received)).

%% What is still to come after this.
rest_of(Data, Received) ->
    Size = byte_size(Received),
    case Data of
        <<Received:Size/binary, Rest/binary>> -> Rest;
        _ -> exit({wrong_data, binary:longest_common_prefix([Data, Received]), Size})
    end.

%% Chaos --------------------------------------------------------------------------

%% Nothing that it does may be noticed by anybody.
chaos() ->
    rest(200),
    case rand:uniform(3) of
        1 ->
            #{poller := Poller} = one_of(weir:pollsets()),
            is_pid(Poller) andalso exit(Poller, kill);
        2 ->
            erlang:system_flag(schedulers_online, rand:uniform(erlang:system_info(schedulers)));
        3 ->
            [weir:migrate(Socket, one_of(weir_pollsets:all())) || Socket <- weir:sockets()]
    end,
    chaos().

stop(Pid) ->
    exit(Pid, kill),
    receive
        {'DOWN', _, process, Pid, killed} -> ok;
        {'DOWN', _, process, Pid, Reason} -> ct:fail(Reason)
    end.

rest(Milliseconds) ->
    receive
    after Milliseconds -> ok
    end.

one_of(Choices) ->
    lists:nth(rand:uniform(length(Choices)), Choices).
