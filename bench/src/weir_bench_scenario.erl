%% @doc A scenario: a server, its load, and the contestants that serve it in turn. It is a value whose settings are
%% checked.
-module(weir_bench_scenario).

-export([check/1]).
-export([check_contestant/1]).
-export([complete/1]).
-export([run/2]).
-export([quick/1]).
-export([rounds/2]).
-export([seconds/2]).
-export([plain_title/1]).

-export_type([name/0, scenario/0, contestant/0, run/0, backend/0]).

-type name() :: atom().
%% `reference' is our server in native code; the programs before it are third-party.
-type backend() :: inet | socket | weir | haproxy | nginx | envoy | pushpin | go | tokio | reference.

-type scenario() :: #{
    name := name(),
    chapter := atom(),
    title := binary(),
    %% An example of `weir run'; for other backends, the program that does the same.
    server := atom(),
    %% The load generator. `weir_drive' (default): a closed loop in native code, for the maximum of a server.
    %% `weir_load': an open loop, for latency at a given load. `node': no server, but a node with `processes' and
    %% `connections' that a tool monitors (see weir_bench_node).
    driver => weir_drive | weir_load | node,
    processes => pos_integer(),
    %% The command of that program. A contestant may override it for comparison.
    load := atom(),
    %% With the load `accept': connections being opened at a time. 0 if each request has its own connection.
    connections := non_neg_integer(),
    %% Spreads more connections than one process may have over several servers, each with a driver.
    spread => boolean(),
    %% Connections opened a second.
    connect_rate => pos_integer(),
    %% Requests a second in total, at random moments; or a ramp from one number to another over the duration. Without
    %% it, a request follows each reply.
    rate => pos_integer() | {non_neg_integer(), pos_integer()},
    %% Searches for the highest value that is held.
    search => weir_bench_search:search(),
    %% For an open loop: percent of the rate of the scenario's first contestant in a closed loop. It becomes `rate'.
    share => 1..100,
    %% Messages are packets, or encrypted with TLS.
    packet => 4 | line,
    tls => boolean(),
    %% The protocol that carries messages, or that an idle connection uses; and the path of its request (`/').
    carrier => none | http | websocket | events,
    path => string(),
    %% Bytes of a message; of the reply if it differs; and of the window after which a stream ends.
    size => pos_integer(),
    reply => pos_integer(),
    bytes => pos_integer(),
    %% HTTP: pipelined requests.
    depth => pos_integer(),
    %% Fanout: broadcasts a second (0: as fast as possible), and SO_SNDBUF of all connections. Fanout and chat:
    %% connections that never read.
    per_second => non_neg_integer(),
    sndbuf => pos_integer(),
    slow => pos_integer(),
    %% Proxy: how often its configuration changes during the run. With `told' false, the same file is written and
    %% signal 0 is sent.
    changes => pos_integer(),
    told => boolean(),
    %% Short connections: bytes of a ClientHello that each sends, and the number of its pieces.
    hello => pos_integer(),
    pieces => pos_integer(),
    %% Chat: messages in flight at a time, instead of a rate.
    at_a_time => pos_integer(),
    %% Chat: number of rooms of the clients, and clients a second that return on a new connection.
    rooms => pos_integer(),
    churn => non_neg_integer(),
    %% Chat: speakers in each room, and whether an answer to a poll may have several messages.
    speakers => pos_integer(),
    several => boolean(),
    %% A peer that may be missing (see weir_bench_peers). Without it the measurement is skipped.
    needs => weir_bench_peers:peer(),
    %% Schedulers of the server's emulator (1); for native code, processes. `together': the server shares its cores
    %% with two drivers, each of which opens all connections. `drivers': this many drivers divide the connections, on
    %% cores of their own if there are enough.
    schedulers => pos_integer(),
    together => boolean(),
    drivers => pos_integer(),
    %% False: the kernel chooses the cores of the server and its driver.
    pinned => boolean(),
    %% Whether the server is loaded again to count futexes and places (see weir_bench_counts).
    counts => boolean(),
    %% Whether contestants occur with several numbers of schedulers, which a chart shows as curves.
    over => schedulers,
    %% Microseconds of computation for each message.
    work => non_neg_integer(),
    %% Processes of the server that compute for ever.
    busy => pos_integer(),
    %% Milliseconds.
    warmup := non_neg_integer(),
    duration := pos_integer(),
    %% Milliseconds without an answer after which the driver counts an error (5000).
    timeout => pos_integer(),
    %% Maximum number of rounds, for a scenario that takes long or has stable figures.
    rounds => pos_integer(),
    %% The metrics that are shown; charts show the first.
    metrics := [weir_bench_sample:metric(), ...],
    contestants := [contestant(), ...]
}.

%% May override settings of its scenario.
-type contestant() :: #{
    title := binary(),
    backend := backend(),
    %% The active mode of its connections.
    active => once | true | false | pos_integer(),
    %% Number of acceptor processes, and milliseconds that connections sleep between polls.
    acceptors => pos_integer(),
    sleep => pos_integer(),
    %% Listener: whether connection processes stay on the schedulers of their sockets.
    affinity => soft | bound,
    %% Listener: whether it measures the latency of its replies. Any server: whether weir_scope monitors it.
    measure => boolean(),
    scope => boolean(),
    %% Proxy: routes by TLS server name.
    sni => boolean(),
    %% Node: the monitoring tool, and whether it looks at sockets.
    looks => weir_bench_node:looks(),
    of_sockets => boolean(),
    %% HAProxy: moves bytes within the kernel.
    splice => boolean(),
    atom() => term()
}.

%% A scenario merged with the settings of one contestant.
-type run() :: #{
    name := name(),
    title := binary(),
    needs := [weir_bench_peers:peer()],
    backend := backend(),
    server := atom(),
    load := atom(),
    connections := non_neg_integer(),
    warmup := non_neg_integer(),
    duration := pos_integer(),
    atom() => term()
}.

%% @doc Checks the settings of a scenario and converts titles from strings; or returns the error.
-spec check(#{atom() => term()}) -> {ok, #{atom() => term()}} | {error, iodata()}.
check(Settings) ->
    each(fun scenario_setting/2, Settings).

%% @doc The same for settings of a contestant.
-spec check_contestant(#{atom() => term()}) -> {ok, #{atom() => term()}} | {error, iodata()}.
check_contestant(Settings) ->
    each(fun contestant_setting/2, Settings).

each(Check, Settings) ->
    maps:fold(
        fun
            (Key, Value, {ok, Checked}) ->
                case Check(Key, Value) of
                    ok -> {ok, Checked#{Key => Value}};
                    {ok, Other} -> {ok, Checked#{Key => Other}};
                    unknown -> {error, io_lib:format("unknown setting ~tp", [Key])};
                    Needed -> {error, io_lib:format("~tp is ~0tp, ~ts is needed", [Key, Value, Needed])}
                end;
            (_Key, _Value, Error) ->
                Error
        end,
        {ok, #{}},
        Settings
    ).

%% Settings that only a scenario or only a contestant has.
scenario_setting(metrics, [_ | _] = Metrics) ->
    case [Metric || Metric <- Metrics, not lists:member(Metric, weir_bench_sample:metrics())] of
        [] -> ok;
        _ -> ["a list of ", lists:join(", ", [atom_to_list(Metric) || Metric <- weir_bench_sample:metrics()])]
    end;
scenario_setting(metrics, _) -> "a list of metrics";
scenario_setting(spread, Value) -> boolean(Value);
scenario_setting(driver, Value) -> one_of(Value, [weir_drive, weir_load, node]);
scenario_setting(search, Value) -> weir_bench_search:check(Value);
scenario_setting(Key, Value) -> setting(Key, Value).

contestant_setting(backend, Value) ->
    one_of(Value, [inet, socket, weir, haproxy, nginx, envoy, pushpin, go, tokio, reference]);
contestant_setting(active, N) when is_integer(N), N >= 1, N =< 32767 -> ok;
contestant_setting(active, Value) ->
    case lists:member(Value, [once, true, false]) of
        true -> ok;
        false -> "once, true, false or a whole number from 1 to 32767"
    end;
contestant_setting(acceptors, Value) -> positive(Value);
contestant_setting(affinity, Value) -> one_of(Value, [soft, bound]);
contestant_setting(measure, Value) -> boolean(Value);
contestant_setting(scope, Value) -> boolean(Value);
contestant_setting(sleep, Value) -> positive(Value);
contestant_setting(splice, Value) -> boolean(Value);
contestant_setting(sni, Value) -> boolean(Value);
contestant_setting(looks, Value) -> one_of(Value, weir_bench_node:looks());
contestant_setting(of_sockets, Value) -> boolean(Value);
contestant_setting(Key, Value) -> setting(Key, Value).

setting(title, Value) -> title(Value);
setting(server, Value) -> name(Value);
setting(load, Value) -> name(Value);
setting(depth, Value) -> positive(Value);
setting(connections, Value) -> at_least_0(Value);
setting(connect_rate, Value) -> positive(Value);
setting(rate, {From, To}) when is_integer(From), From >= 0, is_integer(To), To > From -> ok;
setting(rate, Value) when is_integer(Value), Value > 0 -> ok;
setting(rate, _) -> "a whole number of 1 or more, or {From, To}";
setting(share, Value) when is_integer(Value), Value >= 1, Value =< 100 -> ok;
setting(share, _) -> "a whole number from 1 to 100";
setting(packet, Value) -> one_of(Value, [4, line]);
setting(tls, Value) -> boolean(Value);
setting(carrier, Value) -> one_of(Value, [none, http, websocket, events]);
setting(path, [$/ | _]) -> ok;
setting(path, _) -> "a path in double quotes";
setting(size, Value) -> positive(Value);
setting(reply, Value) -> positive(Value);
setting(bytes, Value) -> positive(Value);
setting(per_second, Value) -> at_least_0(Value);
setting(slow, Value) -> positive(Value);
setting(sndbuf, Value) -> positive(Value);
setting(rooms, Value) -> positive(Value);
setting(speakers, Value) -> positive(Value);
setting(several, Value) -> boolean(Value);
setting(churn, Value) -> at_least_0(Value);
setting(processes, Value) -> positive(Value);
setting(changes, Value) -> positive(Value);
setting(told, Value) -> boolean(Value);
setting(hello, Value) -> positive(Value);
setting(pieces, Value) -> positive(Value);
setting(at_a_time, Value) -> positive(Value);
setting(needs, Value) -> one_of(Value, weir_bench_peers:all());
setting(schedulers, Value) -> positive(Value);
setting(together, Value) -> boolean(Value);
setting(drivers, Value) -> positive(Value);
setting(work, Value) -> at_least_0(Value);
setting(busy, Value) -> positive(Value);
setting(warmup, Value) -> at_least_0(Value);
setting(duration, Value) -> positive(Value);
setting(timeout, Value) -> positive(Value);
setting(rounds, Value) -> positive(Value);
setting(_, _) -> unknown.

title(Value) ->
    case io_lib:printable_unicode_list(Value) andalso Value =/= "" of
        true -> {ok, unicode:characters_to_binary(Value)};
        false -> "a text in double quotes"
    end.

name(Value) when is_atom(Value) -> ok;
name(_) -> "a name".

boolean(Value) when is_boolean(Value) -> ok;
boolean(_) -> "true or false".

positive(Value) when is_integer(Value), Value > 0 -> ok;
positive(_) -> "a whole number of 1 or more".

at_least_0(Value) when is_integer(Value), Value >= 0 -> ok;
at_least_0(_) -> "a whole number of 0 or more".

one_of(Value, Allowed) ->
    case lists:member(Value, Allowed) of
        true -> ok;
        false -> ["one of ", lists:join(", ", [io_lib:format("~tp", [One]) || One <- Allowed])]
    end.

%% @doc Whether a scenario has all required settings, and each contestant a backend and a unique title.
-spec complete(#{atom() => term()}) -> ok | {error, iodata()}.
complete(#{contestants := Contestants} = Scenario) ->
    Needed = [title, server, load, connections, warmup, duration, metrics],
    Titles = [Title || #{title := Title} <- Contestants],
    case {[Key || Key <- Needed, not is_map_key(Key, Scenario)], Titles -- lists:usort(Titles)} of
        {[Key | _], _} -> {error, [atom_to_list(Key), " is missing"]};
        {[], [Twice | _]} -> {error, ["two contestants have the title ", Twice]};
        {[], []} when Titles =:= [] -> {error, "no contestants"};
        {[], []} -> has_whole([is_map_key(share, run(Scenario, Contestant)) || Contestant <- Contestants])
    end;
complete(_Scenario) ->
    {error, "contestants is missing"}.

%% Shares are percentages of the first contestant's rate, which is measured only if it has a share itself.
has_whole([First | Others]) ->
    case First orelse not lists:member(true, Others) of
        true -> ok;
        false -> {error, "the first contestant has no share, but others have"}
    end.

%% @doc Returns the run of a contestant.
-spec run(scenario(), contestant()) -> run().
run(Scenario, Contestant) ->
    %% The run needs the peers of both.
    Needs = lists:usort([Peer || #{needs := Peer} <- [Scenario, Contestant]]),
    (maps:merge(maps:without([contestants, metrics, chapter], Scenario), Contestant))#{needs => Needs}.

%% @doc Returns a shorter scenario: a third of the time, but half for a ramp, whose seconds are its figures.
-spec quick(scenario()) -> scenario().
quick(#{bytes := Bytes} = Scenario) ->
    (quick(maps:remove(bytes, Scenario)))#{bytes => Bytes div 3};
quick(#{rate := {_, _}, duration := Duration} = Scenario) ->
    Scenario#{duration => Duration div 2};
quick(#{warmup := Warmup, duration := Duration} = Scenario) ->
    Scenario#{warmup => Warmup div 3, duration => Duration div 3}.

%% @doc Returns the number of rounds of a scenario if this many are wanted.
-spec rounds(pos_integer(), scenario()) -> pos_integer().
rounds(Asked, #{rounds := AtMost}) -> min(Asked, AtMost);
rounds(Asked, _Scenario) -> Asked.

%% @doc Estimates how many seconds a scenario takes for this many rounds: start, connect, warm-up, measurement and
%% stop of each contestant that is not skipped.
-spec seconds(pos_integer(), scenario()) -> float().
seconds(Asked, #{contestants := [First | _] = Contestants} = Scenario) ->
    %% With shares, the closed loop of the first contestant is measured too.
    Whole = case run(Scenario, First) of #{share := _} -> [First]; _ -> [] end,
    Runs = [run(Scenario, Contestant) || Contestant <- Whole ++ Contestants],
    OfRound = [seconds_of(Run) || #{needs := Needs} = Run <- Runs, weir_bench_peers:missing(Needs) =:= []],
    rounds(Asked, Scenario) * lists:sum([0.0 | OfRound]).

%% A search measures repeatedly; a node is measured idle and monitored. A stream of a number of bytes ends before its
%% duration, and so does a ramp that is not held.
seconds_of(#{search := #{over := Over, start := Start}} = Run) ->
    weir_bench_search:tries() * seconds_of((maps:remove(search, Run))#{Over => Start});
seconds_of(#{driver := node, warmup := Warmup, duration := Duration}) ->
    1.0 + (Warmup + 2 * Duration) / 1000;
seconds_of(#{bytes := Bytes, warmup := Warmup}) ->
    0.5 + Warmup / 1000 + Bytes / 1.0e9;
seconds_of(#{connections := Connections, warmup := Warmup, duration := Duration} = Run) ->
    %% `weir load' starts a second emulator.
    Start = case Run of #{driver := weir_load} -> 1.0; _ -> 0.5 end,
    Held = case Run of #{rate := {_, _}} -> 2 / 3; _ -> 1 end,
    Loads = case Run of #{counts := true} -> weir_bench_counts:loads(); _ -> 1 end,
    Start + Loads * (Connections / maps:get(connect_rate, Run, 10000) + (Warmup + Held * Duration) / 1000).

%% @doc Returns a contestant's title without its last part, the number of schedulers.
-spec plain_title(binary()) -> binary().
plain_title(Title) -> iolist_to_binary(lists:join(<<", ">>, lists:droplast(binary:split(Title, <<", ">>, [global])))).
