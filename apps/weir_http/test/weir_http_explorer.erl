%% Random trouble for HTTP: routes change; listeners are suspended, drained, stopped and killed; the access log is
%% rotated and its writer killed. At the same time clients request, pipeline, stream, converse, leave half-way and
%% reset. Each response must be complete, belong to its request, and come from routes that were set between request and
%% response. Each answered request must have one line in the log, or be counted as lost. At the end nothing may be
%% left.
%%
%% The seed of a run decides what each process does in which order. The interleaving depends on the machine.
-module(weir_http_explorer).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_http.hrl").
-include("weir_http_explorer.hrl").

-export([run/4]).

-import(weir_test_wait, [patience/0]).
-import(weir_scenario, [one_of/1]).

-define(LISTENERS, 2).
-define(CLIENTS, 12).
%% The supervisors allow ten restarts in ten seconds.
-define(KILL_MS, 1300).

%% The listener of an operator: its route versions and changes, its log file and the number of its log files, the
%% counters of each start, and when a part of it was last killed.
-record(operator, {
    name, known, directory, run, is_rough, is_logged = false, version = 0, files = 0, counters = [], killed = never
}).

%% Explores for that many milliseconds, with logs in that directory. `gentle': connected clients are served. `rough':
%% listeners are drained, stopped and started again, which ends connections.
run(Kind, Seed, Milliseconds, Directory) ->
    ct:log("~ts, seed ~b", [Kind, Seed]),
    try
        ok = explore(Kind, Seed, Milliseconds, Directory)
    catch
        Class:Reason:Stack -> erlang:raise(error, {weir_http_explorer, Kind, {seed, Seed}, Class, Reason}, Stack)
    end.

explore(Kind, Seed, Milliseconds, Directory) ->
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    Before = left(),
    Processes = processes(),
    {ok, Group} = weir_group:new(#{}),
    Run = #run{
        numbers = counters:new(?ANSWERED, []),
        seen = ets:new(seen, [set, public, {write_concurrency, true}]),
        listeners = [{{?MODULE, Number}, atomics:new(?REFUSALS, [])} || Number <- lists:seq(1, ?LISTENERS)],
        group = Group,
        stop = counters:new(1, [])
    },
    Operators = [
        operate(Operator, Seed, Milliseconds)
     || Operator <- [operator(Listener, Kind, Directory, Run) || Listener <- Run#run.listeners]
    ],
    Clients = [weir_http_explorer_client:start(Number, Seed, Run) || Number <- lists:seq(1, ?CLIENTS)],
    Broadcaster = weir_scenario:start_disturber({Seed, broadcaster}, broadcast(Group)),
    Counters =
        try
            Of = [ended(Operator) || Operator <- Operators],
            _ = [normal = ended(Client) || Client <- Clients],
            lists:append(Of)
        after
            _ = [exit(Pid, kill) || {Pid, _} <- Operators ++ Clients],
            ok = weir_scenario:stop_disturber(Broadcaster),
            [weir_http:stop_listener(Name) || {Name, _} <- Run#run.listeners]
        end,
    ok = nothing_was_wrong(Run),
    ok = all_was_logged(Counters, Directory, Run),
    ok = all_was_closed(Run),
    ok = weir_group:delete(Group),
    ?waitEqual([], [{Pid, process_info(Pid, [initial_call, current_stacktrace])} || Pid <- processes() -- Processes]),
    ?waitEqual(Before, left()),
    ok.

ended({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, {over, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    after 3 * patience() -> error({does_not_end, process_info(Pid)})
    end.

broadcast(Group) ->
    Number = counters:new(1, []),
    fun() ->
        case
            weir_group:broadcast(Group, weir_http_events:frame(#{data => integer_to_binary(counters:get(Number, 1))}))
        of
            {ok, _} -> counters:add(Number, 1, 1);
            %% The pollers are behind. The next call retries that number.
            {error, busy} -> ok
        end
    end.

%% Invariants -------------------------------------------------------------------------

nothing_was_wrong(#run{seen = Seen, numbers = Numbers}) ->
    ?assertEqual([], lists:sublist([Fault || {{fault, Fault}} <- ets:match_object(Seen, {{fault, '_'}})], 3)),
    ?assert(counters:get(Numbers, ?ANSWERED) > 0),
    ok.

%% The writers have ended with the listeners, so all lines are written.
all_was_logged(Counters, Directory, #run{seen = Seen, numbers = Numbers}) ->
    Lines = lists:append([lines(File) || File <- filelib:wildcard(filename:join(Directory, "*.log*"))]),
    Ids = [id(Line) || Line <- Lines],
    ?assertEqual([], [Line || {Line, none} <- lists:zip(Lines, Ids)]),
    Unique = sets:from_list(Ids, [{version, 2}]),
    ?assertEqual([], Ids -- sets:to_list(Unique)),
    Missing = [Id || {{answered, Id}} <- ets:match_object(Seen, {{answered, '_'}}), not sets:is_element(Id, Unique)],
    Lost = lists:sum([maps:get(log_dropped, weir_http_counters:get(Each)) || Each <- Counters]),
    ct:log("~b answered, ~b lines, ~b answered without, ~b lost", [
        counters:get(Numbers, ?ANSWERED), length(Ids), length(Missing), Lost
    ]),
    length(Missing) =< Lost orelse error({not_logged, Missing, {lost, Lost}}),
    ok.

lines(File) ->
    {ok, Bytes} = file:read_file(File),
    binary:split(Bytes, <<"\n">>, [global, trim]).

%% The id follows the path, in both formats.
id(Line) ->
    case
        re:run(Line, "/(?:direct|body|process|stream|dies|held|events|socket|only-?\\d+)/(\\d+-\\d+)[ ?\"]", [
            {capture, all_but_first, binary}
        ])
    of
        {match, [Id]} -> Id;
        nomatch -> none
    end.

%% Each opened one was closed exactly once. A WebSocket whose connection ends at once is not opened.
all_was_closed(#run{seen = Seen, group = Group}) ->
    ?waitEqual([], [
        Each
     || Each = {_, Calls} <- ets:match_object(Seen, {{calls, '_', '_'}, '_'}),
        Calls =/= [open, closed],
        not is_early_end(Each)
    ]),
    ?waitEqual(0, weir_group:size(Group)),
    ok.

is_early_end({{calls, socket, _}, [closed]}) -> true;
is_early_end(_) -> false.

%% The engine creates its epoll instances on first use, and keeps them.
left() ->
    {ok, Descriptors} = file:list_dir("/proc/self/fd"),
    Names = [file:read_link(filename:join("/proc/self/fd", Descriptor)) || Descriptor <- Descriptors],
    #{
        listeners => weir:listeners(),
        sockets => weir:sockets(),
        descriptors => lists:sort([Name || {ok, Name} <- Names, Name =/= "anon_inode:[eventpoll]"]),
        logs => ets:tab2list(weir_http_log),
        terms => [
            Key
         || {Key, _} <- persistent_term:get(),
            is_tuple(Key),
            lists:member(element(1, Key), [weir_http, weir_http_listener])
        ]
    }.

%% Operators --------------------------------------------------------------------------

operator({Name, Known}, Kind, Directory, Run) ->
    #operator{name = Name, known = Known, directory = Directory, run = Run, is_rough = Kind =:= rough}.

%% Each operator has a listener, and exits with the counters of all its starts. The last one stops the clients.
operate(Operator = #operator{name = Name, run = #run{stop = Stop}}, Seed, Milliseconds) ->
    Started = started(Operator),
    spawn_monitor(fun() ->
        ok = weir_scenario:seed({Seed, Name}),
        #operator{counters = Counters} = go_on(Started, erlang:monotonic_time(millisecond) + Milliseconds),
        ok = counters:add(Stop, 1, 1),
        exit({over, Counters})
    end).

go_on(Operator, Deadline) ->
    case erlang:monotonic_time(millisecond) < Deadline of
        true ->
            timer:sleep(rand:uniform(20) - 1),
            go_on(change(one_of(changes(Operator)), Operator), Deadline);
        false ->
            Operator
    end.

changes(#operator{is_rough = false}) -> [routes, routes, routes, routes, rotate, rotate, suspend, look, kill_writer];
changes(#operator{is_rough = true}) -> [stop, drain, kill_listener | changes(#operator{is_rough = false})].

change(routes, Operator = #operator{name = Name, known = Known, is_logged = IsLogged, version = Version, run = Run}) ->
    Next = Version + 1,
    ok = atomics:put(Known, ?BEGUN, Next),
    ok = weir_http:set_routes(Name, weir_http_explorer_handler:routes(Next, IsLogged, Run)),
    ok = atomics:put(Known, ?GIVEN, Next),
    Operator#operator{version = Next};
change(rotate, Operator = #operator{is_logged = false}) ->
    Operator;
change(rotate, Operator = #operator{name = Name, files = Files}) ->
    ok = file:rename(file(Operator), [file(Operator), $., integer_to_list(Files)]),
    ok = weir_http:reopen_log(Name),
    Operator#operator{files = Files + 1};
change(suspend, Operator = #operator{name = Name}) ->
    during(?REFUSALS, Operator, fun() ->
        ok = weir:suspend_listener(Name),
        timer:sleep(rand:uniform(5) - 1),
        ok = weir:resume_listener(Name)
    end),
    Operator;
change(look, Operator = #operator{name = Name}) ->
    #{requests := _, connections := _} = weir_http:info(Name),
    Operator;
change(kill_writer, Operator = #operator{is_logged = false}) ->
    Operator;
change(kill_writer, Operator = #operator{name = Name}) ->
    kill(
        [Pid || {_, Pid, _, Log} <- ets:tab2list(weir_http_log), is_pid(Pid), element(3, Log) =:= Name], Operator, fun(
            Pid
        ) ->
            exit(Pid, kill)
        end
    );
change(kill_listener, Operator = #operator{name = Name}) ->
    #{pid := Pid} = weir:info(Name),
    %% Its reactors die too.
    kill([Pid], Operator, fun(_) -> during(?ENDS, Operator, fun() -> kill_listener(Name, Pid) end) end);
change(stop, Operator = #operator{name = Name}) ->
    during(?ENDS, Operator, fun() ->
        ok = weir_http:stop_listener(Name),
        started(Operator)
    end);
change(drain, Operator = #operator{name = Name}) ->
    during(?ENDS, Operator, fun() ->
        Timeout = rand:uniform(60),
        case weir_http:drain_listener(Name, Timeout, #{spread => rand:uniform(Timeout)}) of
            ok -> ok;
            {error, {timeout, _}} -> ok
        end,
        ok = weir_http:stop_listener(Name),
        started(Operator)
    end).

%% An odd or changed number means that clients may not rely on the listener.
during(Which, #operator{known = Known}, Change) ->
    ok = atomics:add(Known, Which, 1),
    Changed = Change(),
    ok = atomics:add(Known, Which, 1),
    Changed.

kill([], Operator, _Kill) ->
    Operator;
kill([Pid | _], Operator = #operator{killed = Killed}, Kill) ->
    case erlang:monotonic_time(millisecond) of
        Now when Killed =:= never; Now - Killed >= ?KILL_MS ->
            _ = Kill(Pid),
            Operator#operator{killed = Now};
        _ ->
            Operator
    end.

kill_listener(Name, Pid) ->
    exit(Pid, kill),
    ?waitMatch(#{status := running}, case weir:info(Name) of #{pid := Pid} -> dying; Info -> Info end).

%% Starts the listener with a new version of the routes, with or without a log.
started(
    Operator = #operator{name = Name, known = Known, run = Run, version = Version, files = Files, counters = Counters}
) ->
    Next = Version + 1,
    IsLogged = one_of([true, true, true, false]),
    Started = Operator#operator{is_logged = IsLogged, version = Next, files = Files + 1},
    Log =
        case IsLogged of
            true -> #{format => one_of([combined, json]), to => {file, file(Started)}};
            false -> off
        end,
    Options = #{
        ip => {127, 0, 0, 1},
        access_log => Log,
        header_timeout => infinity,
        body_timeout => infinity,
        idle_timeout => infinity,
        socket_opts => [{backlog, 64}]
    },
    ok = atomics:put(Known, ?BEGUN, Next),
    {ok, _} = weir_http:start_listener(Name, Options, weir_http_explorer_handler:routes(Next, IsLogged, Run)),
    ok = atomics:put(Known, ?GIVEN, Next),
    #http{counters = Ours} = persistent_term:get(persistent_term:get({weir_http, Name})),
    Started#operator{counters = [Ours | Counters]}.

file(#operator{name = {_, Number}, directory = Directory}) ->
    filename:join(Directory, integer_to_list(Number) ++ ".log").
