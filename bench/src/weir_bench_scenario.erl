%% @doc A scenario: a server, the load on it, and the contestants that serve it in turn. A value, with its settings
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
%% The last is the server in native code; those before it are programs of others.
-type backend() :: inet | socket | weir | haproxy | nginx | envoy | pushpin | go | tokio | reference.

-type scenario() :: #{
    name := name(),
    chapter := atom(),
    title := binary(),
    %% An example of `weir run', or what others have that does the same.
    server := atom(),
    %% The program that loads it: `weir_drive' (the default), a closed loop in native code, for how much a server can
    %% do; or `weir_load', an open loop, for what happens while it is asked for so much. `node': there is no server, but a node with so many
    %% processes and sockets (`processes', `connections'), at which somebody looks (see weir_bench_node).
    driver => weir_drive | weir_load | node,
    processes => pos_integer(),
    %% The command of that program. A contestant that does something else for comparison may have another.
    load := atom(),
    %% Of the load `accept': how many are in the making at a time. 0 where each request has its own.
    connections := non_neg_integer(),
    %% More connections than a process may have are spread over several servers, with a driver each.
    spread => boolean(),
    %% Connections opened a second.
    connect_rate => pos_integer(),
    %% Requests a second in all, at random moments; or from one number to another over the duration. As fast as replies
    %% come unless given.
    rate => pos_integer() | {non_neg_integer(), pos_integer()},
    %% The most that is held is looked for.
    search => weir_bench_search:search(),
    %% Of an open loop: percent of what the first contestant of the scenario does in a closed one. It becomes the rate.
    share => 1..100,
    %% Messages are packets; or go through TLS.
    packet => 4 | line,
    tls => boolean(),
    %% What carries messages, or what an idle connection is; and what is asked for when it is opened (`/').
    carrier => none | http | websocket | events,
    path => string(),
    %% Bytes of a message, of the answer where it is another, and after how many the window of a stream ends.
    size => pos_integer(),
    reply => pos_integer(),
    bytes => pos_integer(),
    %% Of HTTP: requests that are sent at once.
    depth => pos_integer(),
    %% Of fanout: broadcasts a second (0, as many as are taken); the send buffer of all. Of it and of a chat: connections that never read.
    per_second => non_neg_integer(),
    sndbuf => pos_integer(),
    slow => pos_integer(),
    %% Of a proxy: how often its configuration changes meanwhile. Where it is not told, its file is written as it was, with a signal of 0.
    changes => pos_integer(),
    told => boolean(),
    %% Of short connections: bytes of a ClientHello that each sends, and its pieces.
    hello => pos_integer(),
    pieces => pos_integer(),
    %% Of a chat: messages on their way at a time, instead of a rate.
    at_a_time => pos_integer(),
    %% Of a chat: among how many rooms the clients are divided, and how many a second come back on a new connection.
    rooms => pos_integer(),
    churn => non_neg_integer(),
    %% Of a chat: how many speak in each room, and whether an answer to a poll may have several messages.
    speakers => pos_integer(),
    several => boolean(),
    %% Something that is not everywhere (see weir_bench_peers). What needs it is skipped where it is not.
    needs => weir_bench_peers:peer(),
    %% Schedulers of the server's emulator (1), which of native code are so many processes. Whether they share their cores with two
    %% drivers, each of which opens all these connections; or how many drivers, on cores of their own as far as there are cores, divide
    %% the connections among them.
    schedulers => pos_integer(),
    together => boolean(),
    drivers => pos_integer(),
    %% False: the server and its driver run wherever the kernel puts them.
    pinned => boolean(),
    %% Whether the server is loaded again to count what it does (see weir_bench_counts).
    counts => boolean(),
    %% Whether the contestants are a few with a number of schedulers each, which a chart shows as curves.
    over => schedulers,
    %% Microseconds that the server computes for a message.
    work => non_neg_integer(),
    %% Processes that compute for ever beside the server.
    busy => pos_integer(),
    %% Milliseconds.
    warmup := non_neg_integer(),
    duration := pos_integer(),
    %% After how many milliseconds without an answer the driver counts an error (5000).
    timeout => pos_integer(),
    %% So many at most, of a scenario that takes long or whose figures do not move.
    rounds => pos_integer(),
    %% What is told, the first in a chart.
    metrics := [weir_bench_sample:metric(), ...],
    contestants := [contestant(), ...]
}.

%% With whatever settings of its scenario it has of its own.
-type contestant() :: #{
    title := binary(),
    backend := backend(),
    %% How its connections receive.
    active => once | true | false | pos_integer(),
    %% How many processes accept, and how long connections sleep between two questions whether something has come.
    acceptors => pos_integer(),
    sleep => pos_integer(),
    %% Of a listener: whether the processes of connections stay on the schedulers of their sockets.
    affinity => soft | bound,
    %% Of a listener: whether it measures how long its replies take. Of any server: whether weir_scope looks at it.
    measure => boolean(),
    scope => boolean(),
    %% Of a proxy: it goes by the server name of TLS.
    sni => boolean(),
    %% Of a node: who looks at it, and at what.
    looks => weir_bench_node:looks(),
    of_sockets => boolean(),
    %% Of HAProxy: it moves bytes within the kernel.
    splice => boolean(),
    atom() => term()
}.

%% A scenario with the settings of one of its contestants.
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

%% @doc The settings of a scenario as they are written, with strings for titles; or what is wrong with one.
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
                    unknown -> {error, io_lib:format("~tp is no setting", [Key])};
                    Needed -> {error, io_lib:format("~tp is ~0tp, ~ts is needed", [Key, Value, Needed])}
                end;
            (_Key, _Value, Error) ->
                Error
        end,
        {ok, #{}},
        Settings
    ).

%% What only one of both has.
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

%% @doc Whether a scenario has all that it cannot do without, and each of its contestants a backend and a title that no
%% other has.
-spec complete(#{atom() => term()}) -> ok | {error, iodata()}.
complete(#{contestants := Contestants} = Scenario) ->
    Needed = [title, server, load, connections, warmup, duration, metrics],
    Titles = [Title || #{title := Title} <- Contestants],
    case {[Key || Key <- Needed, not is_map_key(Key, Scenario)], Titles -- lists:usort(Titles)} of
        {[Key | _], _} -> {error, [atom_to_list(Key), " is missing"]};
        {[], [Twice | _]} -> {error, ["two contestants are called ", Twice]};
        {[], []} when Titles =:= [] -> {error, "there are no contestants"};
        {[], []} -> has_whole([is_map_key(share, run(Scenario, Contestant)) || Contestant <- Contestants])
    end;
complete(_Scenario) ->
    {error, "contestants is missing"}.

%% Shares are of what the first does.
has_whole([First | Others]) ->
    case First orelse not lists:member(true, Others) of
        true -> ok;
        false -> {error, "the first contestant has no share, and others have"}
    end.

%% @doc What is measured when it is a contestant's turn.
-spec run(scenario(), contestant()) -> run().
run(Scenario, Contestant) ->
    %% What either needs, both need.
    Needs = lists:usort([Peer || #{needs := Peer} <- [Scenario, Contestant]]),
    (maps:merge(maps:without([contestants, metrics, chapter], Scenario), Contestant))#{needs => Needs}.

%% @doc The same in less time: a third of it, but a ramp in half, since its seconds are its figures.
-spec quick(scenario()) -> scenario().
quick(#{bytes := Bytes} = Scenario) ->
    (quick(maps:remove(bytes, Scenario)))#{bytes => Bytes div 3};
quick(#{rate := {_, _}, duration := Duration} = Scenario) ->
    Scenario#{duration => Duration div 2};
quick(#{warmup := Warmup, duration := Duration} = Scenario) ->
    Scenario#{warmup => Warmup div 3, duration => Duration div 3}.

%% @doc How many rounds a scenario has where so many are asked for.
-spec rounds(pos_integer(), scenario()) -> pos_integer().
rounds(Asked, #{rounds := AtMost}) -> min(Asked, AtMost);
rounds(Asked, _Scenario) -> Asked.

%% @doc About how many seconds a scenario takes where so many rounds are asked for: start, connect, warm up, measure and
%% stop, for each contestant that is not skipped.
-spec seconds(pos_integer(), scenario()) -> float().
seconds(Asked, #{contestants := [First | _] = Contestants} = Scenario) ->
    %% Where there are shares, what they are shares of is measured, too.
    Whole = case run(Scenario, First) of #{share := _} -> [First]; _ -> [] end,
    Runs = [run(Scenario, Contestant) || Contestant <- Whole ++ Contestants],
    OfRound = [seconds_of(Run) || #{needs := Needs} = Run <- Runs, weir_bench_peers:missing(Needs) =:= []],
    rounds(Asked, Scenario) * lists:sum([0.0 | OfRound]).

%% A search measures again and again; a node is looked at after it was left alone for as long. A stream of so many bytes is over before
%% its duration, and so is a ramp that is not held to its end.
seconds_of(#{search := #{over := Over, start := Start}} = Run) ->
    weir_bench_search:tries() * seconds_of((maps:remove(search, Run))#{Over => Start});
seconds_of(#{driver := node, warmup := Warmup, duration := Duration}) ->
    1.0 + (Warmup + 2 * Duration) / 1000;
seconds_of(#{bytes := Bytes, warmup := Warmup}) ->
    0.5 + Warmup / 1000 + Bytes / 1.0e9;
seconds_of(#{connections := Connections, warmup := Warmup, duration := Duration} = Run) ->
    %% Two emulators start where the load comes from one.
    Start = case Run of #{driver := weir_load} -> 1.0; _ -> 0.5 end,
    Held = case Run of #{rate := {_, _}} -> 2 / 3; _ -> 1 end,
    Loads = case Run of #{counts := true} -> weir_bench_counts:loads(); _ -> 1 end,
    Start + Loads * (Connections / maps:get(connect_rate, Run, 10000) + (Warmup + Held * Duration) / 1000).

%% @doc The title of a contestant without the number of schedulers, which is its last part.
-spec plain_title(binary()) -> binary().
plain_title(Title) -> iolist_to_binary(lists:join(<<", ">>, lists:droplast(binary:split(Title, <<", ">>, [global])))).
