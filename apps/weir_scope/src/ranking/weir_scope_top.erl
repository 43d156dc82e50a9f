%% @doc The processes, sockets and relays of a node that use or hold most. They are read twice, in slices of a hundred
%% and at low priority, so that other processes do not wait. The first readings are kept in an ETS table, which garbage
%% collections do not copy.
-module(weir_scope_top).

-export([check/2]).
-export([processes/1]).
-export([processes/2]).
-export([sockets/1]).
-export([sockets/2]).
-export([relays/1]).
-export([relays/2]).

-import(weir_scope_look, [sliced/3, each/6, now_us/0, rate/2, add/5]).

-export_type([options/0, process/0, relay/0]).

-type options() :: #{
    by => process_key() | weir_scope_top_sockets:key() | relay_key(), most => 1..1000, over => 10..60_000
}.
%% `by': the key to sort by, the largest first. `most' (20): the number of results. `over' (1000): milliseconds between
%% both readings.

-type process_key() :: reductions | memory | growth | queue | binaries | collections.
-type relay_key() :: bytes | in | out | age | idle.

-type process() :: #{
    pid := pid(),
    name := atom() | {module(), atom(), arity()},
    label => term(),
    reductions := float(),
    memory := non_neg_integer(),
    growth := float(),
    queue := non_neg_integer(),
    binaries := non_neg_integer(),
    collections => float(),
    function := mfa() | undefined,
    status := atom()
}.
%% `reductions', `growth' (bytes of memory) and `collections' (garbage collections) are per second. `collections' is
%% only present if it is the sort key. It is a lower bound, because the VM counts the collections of a process since
%% its last full one. `binaries': bytes of the off-heap binaries that the process holds, as the VM counts them for
%% garbage collection. `name': the registered name, or the initial function. `label': from OTP 27 on, if the process
%% has set one.

-type relay() :: #{
    relay := pos_integer(),
    owner := pid(),
    peers => {term(), term()},
    pollset := pos_integer(),
    in := float(),
    out := float(),
    age := float(),
    idle := float(),
    replies := non_neg_integer(),
    first_byte_us => non_neg_integer(),
    p50 => non_neg_integer(),
    p99 => non_neg_integer()
}.
%% `peers': the addresses of the client and of the server; absent with an older Weir. `in', `out': bytes per second
%% from the client and from the server. `age': seconds since the relay began. `idle': seconds since bytes last moved.
%% `replies': replies of the server, and `p50' and `p99' of their times in microseconds. `first_byte_us': microseconds
%% until the first reply.

%% @doc Returns the top processes. `by' is `reductions' (the default), `memory', `growth', `queue', `binaries' or
%% `collections'.
-spec processes(options()) -> [process()].
processes(Options) -> processes(fun erlang:apply/3, Options).

%% @private
-spec processes(weir_scope_facts:ask(), options()) -> [process()].
processes(Ask, Options) ->
    Index = maps:get(maps:get(by, Options, reductions), keys(processes)),
    apart(fun() -> top_processes(Ask, Index, maps:get(most, Options, 20), maps:get(over, Options, 1000)) end).

%% @doc Returns the top sockets. `by' is `bytes' (the default: in and out together), `in', `out', `queue' or `idle'.
%% `idle' takes a system call for each socket.
-spec sockets(options()) -> [weir_scope_top_sockets:socket()].
sockets(Options) -> sockets(fun erlang:apply/3, Options).

%% @private
-spec sockets(weir_scope_facts:ask(), options()) -> [weir_scope_top_sockets:socket()].
sockets(Ask, Options) ->
    apart(fun() ->
        weir_scope_top_sockets:top(
            Ask, maps:get(by, Options, bytes), maps:get(most, Options, 20), maps:get(over, Options, 1000)
        )
    end).

%% @doc Returns the top relays of Weir. `by' is `bytes' (the default: in and out together), `in', `out', `age' or
%% `idle'.
-spec relays(options()) -> [relay()].
relays(Options) -> relays(fun erlang:apply/3, Options).

%% @private
-spec relays(weir_scope_facts:ask(), options()) -> [relay()].
relays(Ask, Options) ->
    Index = maps:get(maps:get(by, Options, bytes), keys(relays)),
    apart(fun() -> top_relays(Ask, Index, maps:get(most, Options, 20), maps:get(over, Options, 1000)) end).

%% The position of each key in the tuple of values.
keys(processes) -> #{reductions => 1, memory => 2, growth => 3, queue => 4, binaries => 5, collections => 6};
keys(sockets) -> weir_scope_top_sockets:keys();
keys(relays) -> #{in => 1, out => 2, bytes => 3, age => 4, idle => 5}.

%% @private
-spec check(processes | sockets | relays, options()) -> ok | {error, {bad_option, atom(), term(), term()}}.
check(What, Options) ->
    Checks = #{
        by => fun(By) -> is_map_key(By, keys(What)) orelse {one_of, lists:sort(maps:keys(keys(What)))} end,
        most => fun(Most) -> (is_integer(Most) andalso Most >= 1 andalso Most =< 1000) orelse {between, 1, 1000} end,
        over => fun(Over) ->
            (is_integer(Over) andalso Over >= 10 andalso Over =< 60_000) orelse {between, 10, 60_000}
        end
    },
    Verdicts = [
        case Checks of
            #{Key := Check} -> {Key, Value, Check(Value)};
            _ -> {Key, Value, {one_of, [by, most, over]}}
        end
     || {Key, Value} <- maps:to_list(Options)
    ],
    case [{bad_option, Key, Value, Allowed} || {Key, Value, Allowed} <- Verdicts, Allowed =/= true] of
        [] -> ok;
        [Bad | _] -> {error, Bad}
    end.

%% Calls a fun in a process of low priority, which ends with the caller.
apart(Fun) ->
    Caller = self(),
    Tag = make_ref(),
    Work = fun() ->
        Caller !
            {Tag,
                try
                    {ok, Fun()}
                catch
                    error:Reason -> {error, Reason}
                end}
    end,
    Pid = spawn_opt(Work, [link, {priority, low}]),
    receive
        {Tag, Result} ->
            true = unlink(Pid),
            case Result of
                {ok, Top} -> Top;
                {error, Reason} -> error(Reason)
            end
    end.

top_processes(Ask, Index, Most, Over) ->
    Table = ets:new(?MODULE, [set, private]),
    %% Expensive items are only read if they are the sort key.
    Collections = [garbage_collection || Index =:= maps:get(collections, keys(processes))],
    First = fun(Pid, [{_, Reductions}, {_, Memory} | Rest], none) ->
        _ = ets:insert(Table, {Pid, now_us(), Reductions, Memory, collections(Rest)}),
        none
    end,
    none = each_process(Ask, [reductions, memory | Collections], First, none),
    ok = timer:sleep(Over),
    Second = fun(Pid, [{_, Reductions}, {_, Memory}, {_, Queue} | Rest], Top) ->
        case ets:lookup(Table, Pid) of
            [{_, At, Reductions0, Memory0, Collections0}] when Pid =/= self() ->
                Binaries = lists:sum([binaries(Info) || {garbage_collection_info, Info} <- Rest]),
                Collected = rate(collected(Collections0, collections(Rest)), At),
                add(
                    Index,
                    {
                        rate(Reductions - Reductions0, At),
                        Memory,
                        rate(Memory - Memory0, At),
                        Queue,
                        Binaries,
                        Collected
                    },
                    Pid,
                    Most,
                    Top
                );
            _ ->
                Top
        end
    end,
    Items =
        [reductions, memory, message_queue_len] ++
            [garbage_collection_info || Index =:= maps:get(binaries, keys(processes))] ++ Collections,
    Top = each_process(Ask, Items, Second, weir_scope_look:none()),
    [
        case Collections of
            [] -> Process;
            _ -> Process#{collections => element(Index, Values)}
        end
     || {_, Pid, Values} <- weir_scope_look:largest(Top), Process <- process(Ask, Pid, Values)
    ].

%% Minor collections since the last full one.
collections(Info) -> lists:sum([proplists:get_value(minor_gcs, Counts, 0) || {garbage_collection, Counts} <- Info]).

%% A full collection resets the count, and is a collection itself.
collected(Before, Now) when Now >= Before -> Now - Before;
collected(_Before, Now) -> Now + 1.

%% Processes that have ended are left out.
each_process(Ask, Items, Fun, State) ->
    Known = fun(Pid, Info, Then) ->
        case Info of
            undefined -> Then;
            _ -> Fun(Pid, Info, Then)
        end
    end,
    sliced(
        fun(Pids, Then) -> each(Ask, fun erlang:process_info/2, Pids, Items, Known, Then) end,
        State,
        Ask(erlang, processes, [])
    ).

process(Ask, Pid, {Reductions, Memory, Growth, Queue, _, _}) ->
    case
        {
            weir_scope_process:name(Ask, Pid),
            Ask(erlang, process_info, [Pid, [current_function, status, garbage_collection_info]])
        }
    of
        {#{} = Named, [{_, Function}, {_, Status}, {_, Collection}]} ->
            Process = #{
                pid => Pid,
                reductions => Reductions,
                memory => Memory,
                growth => Growth,
                queue => Queue,
                function => Function,
                status => Status
            },
            [maps:merge(Named, Process#{binaries => binaries(Collection)})];
        _ ->
            []
    end.

%% The VM counts them in words.
binaries(Collection) ->
    8 *
        lists:sum([
            Words
         || {Generation, Words} <- Collection, Generation =:= bin_vheap_size orelse Generation =:= bin_old_vheap_size
        ]).

top_relays(Ask, Index, Most, Over) ->
    Table = ets:new(?MODULE, [set, private]),
    First = fun(Relay, {In, Out, _}, none) ->
        _ = ets:insert(Table, {Relay, now_us(), In, Out}),
        none
    end,
    none = each_relay(Ask, First, none, 0),
    ok = timer:sleep(Over),
    Second = fun(Relay, {In, Out, Info}, Top) ->
        {_, _, #{duration_us := Age, idle_us := Idle}} = Info,
        case ets:lookup(Table, Relay) of
            [{_, At, In0, Out0}] ->
                {InRate, OutRate} = {rate(In - In0, At), rate(Out - Out0, At)},
                add(
                    Index,
                    {InRate, OutRate, InRate + OutRate, Age / 1_000_000, Idle / 1_000_000},
                    {Relay, Info},
                    Most,
                    Top
                );
            [] ->
                Top
        end
    end,
    Top = each_relay(Ask, Second, weir_scope_look:none(), 0),
    [
        maps:merge(relay(Relay, Info, Values), peers(Ask, Relay))
     || {_, {Relay, Info}, Values} <- weir_scope_look:largest(Top)
    ].

peers(Ask, Relay) ->
    case Ask(erlang, function_exported, [weir_nif, relay_peers, 1]) andalso Ask(weir_nif, relay_peers, [Relay]) of
        {ok, Peers} -> #{peers => Peers};
        %% An older Weir, or the relay has ended.
        _ -> #{}
    end.

each_relay(Ask, Fun, State, Piece) ->
    case Ask(erlang, whereis, [weir_pollsets]) =/= undefined andalso Ask(weir_nif, relays, [Piece]) of
        {ok, Relays} ->
            Told = fun
                ({Relay, {ok, {_, _, #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}}} = Info}}, Then) ->
                    Fun(Relay, {In, Out, Info}, Then);
                ({_, {error, closed}}, Then) ->
                    Then
            end,
            Slice = fun(Some, Then) ->
                lists:foldl(Told, Then, lists:zip(Some, Ask(lists, map, [fun weir_nif:relay_info/1, Some])))
            end,
            each_relay(Ask, Fun, sliced(Slice, State, Relays), Piece + 1);
        _ ->
            State
    end.

relay(Relay, {Owner, Pollset, #{reply_us := Times, first_byte_us := First}}, {In, Out, _, Age, Idle}) ->
    Own = #{
        relay => Relay,
        owner => Owner,
        pollset => Pollset,
        in => In,
        out => Out,
        age => Age,
        idle => Idle,
        replies => maps:get(count, Times)
    },
    maps:merge(
        maps:merge(Own, maps:with([p50, p99], Times)), maps:from_list([{first_byte_us, First} || is_integer(First)])
    ).
