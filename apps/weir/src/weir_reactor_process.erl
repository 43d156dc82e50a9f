%% @private
%% @doc The process behind {@link weir_reactor}: writes and events in one native call, callbacks, and again.
%%
%% The states of connections are in the process dictionary, by the handles of their sockets: handles are small integers
%% that differ in their lowest bits, so that finding a state costs one look into the table, and changing it no copy of
%% anything. What else is there has other keys.
-module(weir_reactor_process).

-export([start_link/1]).
-export([init/3]).

%% For sys.
-export([system_continue/3]).
-export([system_terminate/4]).
-export([system_code_change/4]).
-export([system_get_state/1]).
-export([system_replace_state/2]).

-include_lib("kernel/include/logger.hrl").

%% Events and states die young but for the states of now, which each collection has to look at, one by one. So the heap
%% grows with the connections, up to 8 MiB, and collections stay rare; with few connections it stays in the caches.
-define(HEAP_WORDS, 32768).
-define(HEAP_WORDS_MAX, 1048576).
-define(HEAP_WORDS_PER_CONNECTION, 32).

%% Words of binaries on the way that make a collection worth it: 4 MiB.
-define(BINARY_WORDS, 524288).

%% Messages that are handled between two batches, and connections that a tick is for.
-define(MESSAGES, 64).
-define(TICKS, 128).

%% When descriptors have run out: milliseconds until the backlog is looked at again.
-define(PAUSE_MS, 100).

%% Batches whose callbacks are timed one by one, after one that took too long.
-define(TIMED_BATCHES, 1000).

%% Milliseconds for calling terminate/2, of the five seconds that a supervisor waits.
-define(TERMINATE_MS, 3000).

-define(SOCKET(Handle), {'$inet', weir_tcp, Handle}).

%% How the state `undefined' is kept, which no connection has.
-define(UNDEFINED, '$weir_undefined').

-record(connecting, {args :: term()}).

-record(reactor, {
    module :: module(),
    %% The callback of every event: called as a fun, since a call by the name of a module costs a lookup.
    data :: fun((weir_tcp:socket(), term(), term()) -> weir_reactor:result()),
    args :: term(),
    optional :: #{atom() => boolean()},
    pollset :: weir_nif:pollset(),
    token :: non_neg_integer(),
    home :: weir_nif:pollset(),
    parent :: pid(),
    debug = [] :: [sys:debug_option()],
    connections = 0 :: non_neg_integer(),
    heap = ?HEAP_WORDS :: pos_integer(),
    tick :: pos_integer() | infinity,
    next_tick = 0 :: integer(),
    %% Connections that the current tick has not come to yet.
    ticking = [] :: [weir_nif:handle()],
    %% Native time units.
    long :: pos_integer() | infinity,
    timed = 0 :: non_neg_integer(),
    reports :: weir_reports:limit(),
    armed = false :: boolean(),
    gait = weir_gait:new() :: weir_gait:gait()
}).

%%% Start.

-spec start_link(weir_reactor:options()) -> {ok, pid()} | {error, term()}.
start_link(Options) ->
    case {bad_option(Options), weir_pollsets:ensure_started(), weir_nif:available()} of
        {none, ok, true} -> spawn_reactor(Options);
        {none, ok, false} -> {error, not_available};
        {none, {error, _} = Error, _} -> Error;
        {Bad, _, _} -> {error, {bad_option, Bad}}
    end.

bad_option(Options = #{module := _}) ->
    case [Option || Option <- maps:to_list(Options), not is_option(Option)] of
        [] -> none;
        [Bad | _] -> Bad
    end;
bad_option(_Options) ->
    {module, missing}.

is_option({module, Module}) -> is_atom(Module);
is_option({args, _Args}) -> true;
is_option({listen, none}) -> true;
is_option({listen, ?SOCKET(Handle)}) -> is_integer(Handle);
is_option({scheduler, Scheduler}) -> is_integer(Scheduler) andalso lists:member(Scheduler, weir_pollsets:all());
is_option({affinity, Affinity}) -> Affinity =:= soft orelse Affinity =:= bound;
is_option({tick, Tick}) -> is_time(Tick);
is_option({long_callback_ms, Long}) -> is_time(Long);
is_option({max_send_queue, Bytes}) -> is_integer(Bytes) andalso Bytes > 0;
is_option({name, Name}) -> is_atom(Name);
is_option(_) -> false.

is_time(infinity) -> true;
is_time(Milliseconds) -> is_integer(Milliseconds) andalso Milliseconds > 0.

spawn_reactor(Options) ->
    Scheduler = maps:get(scheduler, Options, weir_pollsets:here()),
    Memory = [{min_heap_size, ?HEAP_WORDS}, {min_bin_vheap_size, ?BINARY_WORDS}],
    Arguments = [self(), Scheduler, Options],
    try
        proc_lib:start_link(?MODULE, init, Arguments, infinity, [{scheduler, Scheduler} | Memory])
    catch
        %% This VM does not bind processes.
        error:badarg -> proc_lib:start_link(?MODULE, init, Arguments, infinity, Memory)
    end.

-dialyzer({nowarn_function, [spawn_reactor/1, loosen/1]}).
%% Two words for two things, in every write.
-dialyzer({no_improper_lists, [result/7, raised/6, hand_off/7, relay/7]}).

-spec init(pid(), pos_integer(), weir_reactor:options()) -> no_return().
init(Parent, Home, Options = #{module := Module}) ->
    process_flag(trap_exit, true),
    case prepare(Home, Options) of
        {ok, Pollset, Token} ->
            loosen(maps:get(affinity, Options, soft)),
            {module, Module} = code:ensure_loaded(Module),
            Reactor = #reactor{
                module = Module,
                data = fun Module:handle_data/3,
                args = maps:get(args, Options, undefined),
                optional = optional(Module),
                pollset = Pollset,
                token = Token,
                home = Home,
                parent = Parent,
                tick = maps:get(tick, Options, infinity),
                long = native(maps:get(long_callback_ms, Options, 100)),
                reports = weir_reports:new()
            },
            proc_lib:init_ack(Parent, {ok, self()}),
            loop([], begin_ticks(Reactor));
        {error, Reason} ->
            proc_lib:init_ack(Parent, {error, Reason}),
            exit(normal)
    end.

optional(Module) ->
    Callbacks = [handle_writable, handle_info, handle_tick, terminate],
    maps:from_list([{Callback, erlang:function_exported(Module, Callback, 2)} || Callback <- Callbacks]).

prepare(Home, Options) ->
    case {register_as(Options), weir_nif:lease()} of
        {ok, {ok, {Pollset, Token}}} ->
            ok = weir_nif:reactor_begin(Pollset, Home, maps:get(max_send_queue, Options, 1024 * 1024)),
            case listen(Pollset, maps:get(listen, Options, none)) of
                ok -> {ok, Pollset, Token};
                {error, _} = Error -> Error
            end;
        {ok, {error, _} = Error} ->
            Error;
        {{error, _} = Error, _} ->
            Error
    end.

register_as(#{name := Name}) ->
    try register(Name, self()) of
        true -> ok
    catch
        error:badarg -> {error, {already_started, whereis(Name)}}
    end;
register_as(#{}) ->
    ok.

listen(_Pollset, none) -> ok;
listen(Pollset, ?SOCKET(Handle)) -> weir_nif:reactor_listen(Pollset, Handle).

%% Bound to its scheduler by its birth, a process can let go: it stays on that run queue until it is stolen.
loosen(bound) ->
    ok;
loosen(soft) ->
    try process_flag(scheduler, 0) of
        _ -> ok
    catch
        error:badarg -> ok
    end.

native(infinity) -> infinity;
native(Milliseconds) -> erlang:convert_time_unit(Milliseconds, millisecond, native).

%%% The loop.

%% Writes: what the callbacks have asked for since the last call, the last one first.
loop(Writes, Reactor = #reactor{pollset = Pollset, token = Token}) ->
    case weir_nif:react(Pollset, Token, Writes) of
        {[], Count, RoundNs} ->
            more([], Count, RoundNs, Reactor);
        {Events, Count, RoundNs} ->
            Begin = erlang:monotonic_time(),
            {NewWrites, NewReactor} = events(Events, [], Reactor),
            Took = erlang:monotonic_time() - Begin,
            if
                Took < Reactor#reactor.long, Reactor#reactor.timed =:= 0 -> more(NewWrites, Count, RoundNs, NewReactor);
                true -> more(NewWrites, Count, RoundNs, timed(Took, Events, NewReactor))
            end
    end.

%% What is not of the kernel: messages and ticks.
more(Writes, Count, RoundNs, Reactor) ->
    {NewWrites, NewReactor} = messages(?MESSAGES, Writes, Reactor),
    case NewReactor#reactor.ticking of
        [] -> go_on(NewWrites, Count, RoundNs, NewReactor);
        _ ->
            {TickWrites, TickedReactor} = ticks(?TICKS, NewWrites, NewReactor),
            go_on(TickWrites, Count + 1, RoundNs, TickedReactor)
    end.

go_on(Writes, Count, RoundNs, Reactor = #reactor{gait = Gait}) ->
    {Action, NewGait} = weir_gait:next(Count, RoundNs, Gait),
    change_priority(weir_gait:priority(Gait), weir_gait:priority(NewGait)),
    NewReactor = Reactor#reactor{gait = NewGait},
    case Action of
        yield ->
            erlang:yield(),
            loop(Writes, NewReactor);
        sleep when Writes =/= [] ->
            loop(Writes, NewReactor);
        sleep ->
            sleep(NewReactor)
    end.

change_priority(Same, Same) ->
    ok;
change_priority(_Old, New) ->
    _ = process_flag(priority, New),
    ok.

sleep(Reactor = #reactor{pollset = Pollset, token = Token, armed = Armed}) ->
    case weir_nif:sleep(Pollset, Token, Armed) of
        armed ->
            %% Whatever it is, the poll comes next.
            receive
                Message ->
                    {Writes, NewReactor} = message(Message, [], Reactor#reactor{armed = true}),
                    loop(Writes, NewReactor)
            end;
        busy ->
            %% More work than one call may do: the others get their turn in between, at whatever priority we go.
            Priority = process_flag(priority, normal),
            erlang:yield(),
            _ = process_flag(priority, Priority),
            loop([], Reactor)
    end.

%%% Events.

events([[Handle | Data] | Events], Writes, Reactor) ->
    case get(Handle) of
        undefined -> events(Events, Writes, Reactor);
        ?UNDEFINED -> data(Handle, Data, undefined, Events, Writes, Reactor);
        State -> data(Handle, Data, State, Events, Writes, Reactor)
    end;
events([], Writes, Reactor) ->
    {Writes, Reactor};
events([Event | Events], Writes, Reactor) ->
    {NewEvents, NewWrites, NewReactor} = event(Event, Events, Writes, Reactor),
    events(NewEvents, NewWrites, NewReactor).

data(Handle, Data, State, Events, Writes, Reactor = #reactor{data = HandleData}) ->
    try HandleData(?SOCKET(Handle), Data, State) of
        {send, IoData, State} ->
            events(Events, [[Handle | IoData] | Writes], Reactor);
        {ok, State} ->
            events(Events, Writes, Reactor);
        {send, IoData, NewState} ->
            keep(Handle, NewState),
            events(Events, [[Handle | IoData] | Writes], Reactor);
        {ok, NewState} ->
            keep(Handle, NewState),
            events(Events, Writes, Reactor);
        Result ->
            {NewEvents, NewWrites, NewReactor} = result(Result, Handle, [Data], State, Events, Writes, Reactor),
            events(NewEvents, NewWrites, NewReactor)
    catch
        Class:Reason:Stack ->
            {NewWrites, NewReactor} = raised({Class, Reason, Stack}, handle_data, Handle, State, Writes, Reactor),
            events(Events, NewWrites, NewReactor)
    end.

event({accepted, Handle}, Events, Writes, Reactor = #reactor{args = Args}) ->
    begin_connection(Handle, Args, Events, Writes, Reactor);
event({connected, Handle}, Events, Writes, Reactor) ->
    #connecting{args = Args} = erase(Handle),
    begin_connection(Handle, Args, Events, Writes, Reactor);
event({refused, Handle, Reason}, Events, Writes, Reactor) ->
    #connecting{args = Args} = erase(Handle),
    {Events, Writes, not_connected(Handle, Reason, Args, Reactor)};
event({closed, Handle, Reason}, Events, Writes, Reactor) ->
    case take(Handle) of
        {ok, #connecting{args = Args}} ->
            {Events, Writes, not_connected(Handle, Reason, Args, Reactor)};
        {ok, State} ->
            {Events, Writes, closed(Handle, Reason, State, forget(Reactor))};
        none ->
            {Events, Writes, Reactor}
    end;
event({writable, Handle}, Events, Writes, Reactor) ->
    on(handle_writable, ?SOCKET(Handle), Handle, Events, Writes, Reactor);
event({exhausted, Handle, Reason}, Events, Writes, Reactor = #reactor{reports = Reports}) ->
    _ = erlang:send_after(?PAUSE_MS, self(), {'$weir_reactor', {resume, Handle}}),
    NewReports = weir_reports:say(Reports, fun() ->
        ?LOG_WARNING("weir: connections cannot be accepted (~p) and wait in the backlog", [Reason])
    end),
    {Events, Writes, Reactor#reactor{reports = NewReports}}.

begin_connection(Handle, Args, Events, Writes, Reactor = #reactor{module = Module, connections = Connections}) ->
    Grown = grow(Reactor#reactor{connections = Connections + 1}),
    try Module:init(?SOCKET(Handle), Args) of
        Result -> result(Result, Handle, [], none, Events, Writes, Grown)
    catch
        Class:Reason:Stack ->
            {NewWrites, NewReactor} = raised({Class, Reason, Stack}, init, Handle, none, Writes, Grown),
            {Events, NewWrites, NewReactor}
    end.

%% Calls an optional callback about a connection, if both are there.
on(Callback, Argument, Handle, Events, Writes, Reactor = #reactor{module = Module, optional = Optional}) ->
    case state(Handle) of
        {ok, #connecting{}} ->
            {Events, Writes, Reactor};
        {ok, State} when map_get(Callback, Optional) ->
            Begin = begin_timing(Reactor),
            try Module:Callback(Argument, State) of
                Result ->
                    TimedReactor = end_timing(Begin, Callback, Handle, Reactor),
                    result(Result, Handle, [], State, Events, Writes, TimedReactor)
            catch
                Class:Reason:Stack ->
                    {NewWrites, NewReactor} = raised({Class, Reason, Stack}, Callback, Handle, State, Writes, Reactor),
                    {Events, NewWrites, NewReactor}
            end;
        _ ->
            {Events, Writes, Reactor}
    end.

%% Does what a callback has returned. Unread: what it was called with, if that was data.
result({ok, State}, Handle, _Unread, _Old, Events, Writes, Reactor) ->
    keep(Handle, State),
    {Events, Writes, Reactor};
result({send, IoData, State}, Handle, _Unread, _Old, Events, Writes, Reactor) ->
    keep(Handle, State),
    {Events, [[Handle | IoData] | Writes], Reactor};
result({close, State}, Handle, _Unread, _Old, Events, Writes, Reactor) ->
    _ = erase(Handle),
    finished(normal, State, Events, [[Handle | close] | Writes], forget(Reactor));
result({close, IoData, State}, Handle, _Unread, _Old, Events, Writes, Reactor) ->
    _ = erase(Handle),
    finished(normal, State, Events, [[Handle | close], [Handle | IoData] | Writes], forget(Reactor));
result({handoff, Pid, State}, Handle, Unread, _Old, Events, Writes, Reactor) when is_pid(Pid) ->
    hand_off(Handle, Pid, Unread, State, Events, Writes, Reactor);
result({handoff, Pid, Unread, State}, Handle, _Unread, _Old, Events, Writes, Reactor) when
    is_pid(Pid), is_binary(Unread)
->
    hand_off(Handle, Pid, [Unread], State, Events, Writes, Reactor);
result({relay, ?SOCKET(_) = Other, State}, Handle, Unread, _Old, Events, Writes, Reactor) ->
    relay(Handle, Other, iolist_to_binary(Unread), State, Events, Writes, Reactor);
result({relay, ?SOCKET(_) = Other, Prefix, State}, Handle, _Unread, _Old, Events, Writes, Reactor) when
    is_binary(Prefix)
->
    relay(Handle, Other, Prefix, State, Events, Writes, Reactor);
result(Bad, Handle, _Unread, Old, Events, Writes, Reactor) ->
    Error = {error, {bad_return_value, Bad}, []},
    {NewWrites, NewReactor} = raised(Error, a_callback, Handle, Old, Writes, Reactor),
    {Events, NewWrites, NewReactor}.

%% A callback has raised: its connection is closed, what it has sent before is not lost.
raised(Error, Callback, Handle, State, Writes, Reactor = #reactor{reports = Reports}) ->
    _ = erase(Handle),
    NewReports = weir_reports:say(Reports, fun() -> report_raised(Error, Callback, Handle, State, Reactor) end),
    Forgotten = forget(Reactor#reactor{reports = NewReports}),
    Terminated =
        case State of
            none -> Forgotten;
            _ -> terminated({error, Error}, State, Forgotten)
        end,
    {[[Handle | close] | Writes], Terminated}.

report_raised({Class, Reason, Stack}, Callback, Handle, State, #reactor{module = Module}) ->
    ?LOG_ERROR(
        "weir: ~s:~s raised, and connection ~0p of reactor ~p is closed~n** ~s~n** State: ~0P",
        [Module, Callback, Handle, self(), erl_error:format_exception(Class, Reason, Stack), State, 50]
    ).

closed(Handle, Reason, State, Reactor = #reactor{module = Module, reports = Reports}) ->
    try Module:handle_close(?SOCKET(Handle), Reason, State) of
        {ok, NewState} -> terminated(Reason, NewState, Reactor);
        %% There is nothing to send to any more.
        Result when is_tuple(Result) -> terminated(Reason, element(tuple_size(Result), Result), Reactor)
    catch
        Class:Error:Stack ->
            NewReports = weir_reports:say(Reports, fun() ->
                report_raised({Class, Error, Stack}, handle_close, Handle, State, Reactor)
            end),
            terminated({error, {Class, Error, Stack}}, State, Reactor#reactor{reports = NewReports})
    end.

%% There is no state that had to be terminated.
not_connected(Handle, Reason, Args, Reactor = #reactor{module = Module, reports = Reports}) ->
    try Module:handle_close(?SOCKET(Handle), {connect, Reason}, Args) of
        _ -> Reactor
    catch
        Class:Error:Stack ->
            NewReports = weir_reports:say(Reports, fun() ->
                report_raised({Class, Error, Stack}, handle_close, Handle, Args, Reactor)
            end),
            Reactor#reactor{reports = NewReports}
    end.

finished(Reason, State, Events, Writes, Reactor) ->
    {Events, Writes, terminated(Reason, State, Reactor)}.

terminated(Reason, State, Reactor = #reactor{module = Module, optional = #{terminate := true}, reports = Reports}) ->
    try Module:terminate(Reason, State) of
        _ -> Reactor
    catch
        Class:Error:Stack ->
            NewReports = weir_reports:say(Reports, fun() ->
                report_raised({Class, Error, Stack}, terminate, none, State, Reactor)
            end),
            Reactor#reactor{reports = NewReports}
    end;
terminated(_Reason, _State, Reactor) ->
    Reactor.

%%% Connections that leave.

hand_off(Handle, Pid, Unread, State, Events, Writes, Reactor) ->
    {Left, NewEvents, NewWrites} = leave(Handle, Pid, Unread, Events, Writes, Reactor),
    Forgotten = forget(Reactor),
    case Left of
        ok ->
            Pid ! {weir_reactor, handoff, ?SOCKET(Handle)},
            finished({handoff, Pid}, State, NewEvents, NewWrites, Forgotten);
        {error, Reason} ->
            finished({error, {error, {handoff, Reason}, []}}, State, NewEvents, [[Handle | close] | NewWrites], Forgotten)
    end.

relay(Handle, ?SOCKET(Other), Prefix, State, Events, Writes, Reactor) ->
    {Left, Events1, Writes1} = leave(Handle, self(), [], Events, Writes, Reactor),
    {OtherLeft, Events2, Writes2, Reactor1} = leave_other(Other, Handle, Events1, Writes1, forget(Reactor)),
    case maybe_relay(Left, OtherLeft, Handle, Other, Prefix) of
        {ok, _Relay} ->
            finished({relay, ?SOCKET(Other)}, State, Events2, Writes2, Reactor1);
        {error, Reason} ->
            _ = [weir_nif:close(Each, background) || Each <- [Handle, Other]],
            finished({error, {error, {relay, Reason}, []}}, State, Events2, [[Handle | close] | Writes2], Reactor1)
    end.

maybe_relay(ok, ok, Handle, Other, Prefix) ->
    weir:relay(?SOCKET(Handle), ?SOCKET(Other), #{prefix => Prefix, detached => true});
maybe_relay({error, _} = Error, _, _Handle, _Other, _Prefix) ->
    Error;
maybe_relay(ok, {error, _} = Error, _Handle, _Other, _Prefix) ->
    Error.

%% The other side of a relay, if it is a connection of ours too.
leave_other(Other, Handle, Events, Writes, Reactor) ->
    case take(Other) of
        {ok, State} ->
            {Left, NewEvents, NewWrites} = leave(Other, self(), [], Events, Writes, Reactor),
            {Left, NewEvents, NewWrites, terminated({relay, ?SOCKET(Handle)}, State, forget(Reactor))};
        none ->
            {ok, Events, Writes, Reactor}
    end.

%% Makes a connection an ordinary socket of Pid. What was to be sent goes first, and what came after Unread behind it.
leave(Handle, Pid, Unread, Events, Writes, #reactor{home = Home}) ->
    _ = erase(Handle),
    {Ours, OtherWrites} = lists:partition(fun([Of | _]) -> Of =:= Handle end, Writes),
    lists:foreach(fun([_ | IoData]) -> weir_nif:send(Handle, iolist_to_binary(IoData)) end, lists:reverse(Ours)),
    {Later, OtherEvents} = lists:partition(fun(Event) -> is_data_of(Handle, Event) end, Events),
    All = Unread ++ [Data || [_ | Data] <- Later],
    Left =
        try
            weir_nif:reactor_leave(Handle, Pid, Home, [iolist_to_binary(Data) || Data <- All])
        catch
            %% A dead process, or packets that are terms and no bytes.
            error:badarg -> {error, badarg}
        end,
    {Left, OtherEvents, OtherWrites}.

is_data_of(Handle, [Handle | _Data]) -> true;
is_data_of(_Handle, _Event) -> false.

%%% States.

state(Handle) ->
    case get(Handle) of
        undefined -> none;
        ?UNDEFINED -> {ok, undefined};
        State -> {ok, State}
    end.

take(Handle) ->
    State = state(Handle),
    _ = erase(Handle),
    State.

keep(Handle, undefined) -> put(Handle, ?UNDEFINED);
keep(Handle, State) -> put(Handle, State).

forget(Reactor = #reactor{connections = Connections}) ->
    Reactor#reactor{connections = Connections - 1}.

grow(Reactor = #reactor{connections = Connections, heap = Heap}) when
    Connections * ?HEAP_WORDS_PER_CONNECTION =< Heap; Heap >= ?HEAP_WORDS_MAX
->
    Reactor;
grow(Reactor = #reactor{heap = Heap}) ->
    _ = process_flag(min_heap_size, Heap * 2),
    %% A collection is when the heap becomes that large.
    erlang:garbage_collect(),
    Reactor#reactor{heap = Heap * 2}.

handles() -> [Handle || Handle <- get_keys(), is_integer(Handle)].

%%% Messages.

messages(0, Writes, Reactor) ->
    {Writes, Reactor};
messages(N, Writes, Reactor) ->
    receive
        Message ->
            {NewWrites, NewReactor} = message(Message, Writes, Reactor),
            messages(N - 1, NewWrites, NewReactor)
    after 0 -> {Writes, Reactor}
    end.

message({select, _Object, _Reference, _Ready}, Writes, Reactor) ->
    {Writes, Reactor#reactor{armed = false}};
message(weir_wake, Writes, Reactor) ->
    {Writes, Reactor};
message({'$weir_reactor', Request}, Writes, Reactor) ->
    request(Request, Writes, Reactor);
message({system, From, Request}, Writes, Reactor = #reactor{parent = Parent, debug = Debug}) ->
    %% Does not return; the writes may not wait for it.
    sys:handle_system_msg(Request, From, Parent, ?MODULE, Debug, {Writes, Reactor});
message({'EXIT', Parent, Reason}, Writes, Reactor = #reactor{parent = Parent}) ->
    terminate(Reason, Writes, Reactor);
message(Message, Writes, Reactor) when is_tuple(Message), tuple_size(Message) > 0 ->
    case element(1, Message) of
        {weir_reactor, ?SOCKET(Handle)} -> info(Message, Handle, Writes, Reactor);
        _ -> unexpected(Message, Writes, Reactor)
    end;
message(Message, Writes, Reactor) ->
    unexpected(Message, Writes, Reactor).

request({listen, Handle}, Writes, Reactor = #reactor{pollset = Pollset}) ->
    _ = weir_nif:reactor_listen(Pollset, Handle),
    {Writes, Reactor};
request({message, Handle, Message}, Writes, Reactor) ->
    info(Message, Handle, Writes, Reactor);
request({connect, Handle, Address, Args}, Writes, Reactor = #reactor{pollset = Pollset}) ->
    case weir_nif:reactor_connect(Pollset, Handle, Address) of
        ok ->
            put(Handle, #connecting{args = args(Args, Reactor)}),
            {Writes, Reactor};
        {error, Reason} ->
            {Writes, not_connected(Handle, Reason, args(Args, Reactor), Reactor)}
    end;
request({adopt, Handle, Args}, Writes, Reactor = #reactor{pollset = Pollset}) ->
    case weir_nif:reactor_join(Pollset, Handle) of
        ok ->
            {[], NewWrites, NewReactor} = begin_connection(Handle, Args, [], Writes, Reactor),
            {NewWrites, NewReactor};
        {error, _} ->
            _ = weir_nif:close(Handle, now),
            {Writes, Reactor}
    end;
request({resume, Handle}, Writes, Reactor) ->
    ok = weir_nif:reactor_resume(Handle),
    {Writes, Reactor};
request(tick, Writes, Reactor) ->
    {Writes, next_tick(Reactor)}.

args({args, Args}, _Reactor) -> Args;
args(default, #reactor{args = Args}) -> Args.

info(Message, Handle, Writes, Reactor) ->
    {[], NewWrites, NewReactor} = on(handle_info, Message, Handle, [], Writes, Reactor),
    {NewWrites, NewReactor}.

%% A process that a callback was linked to has done its work.
unexpected({'EXIT', _Pid, normal}, Writes, Reactor) ->
    {Writes, Reactor};
%% A relay that we have started is over.
unexpected({weir_relay, _Relay, _What, _About}, Writes, Reactor) ->
    {Writes, Reactor};
unexpected(Message, Writes, Reactor = #reactor{module = Module, reports = Reports}) ->
    NewReports = weir_reports:say(Reports, fun() ->
        ?LOG_ERROR("weir: reactor ~p of ~s received a message that is for no connection: ~0P", [self(), Module, Message, 50])
    end),
    {Writes, Reactor#reactor{reports = NewReports}}.

%%% Ticks.

begin_ticks(Reactor = #reactor{tick = Tick, optional = #{handle_tick := Wanted}}) when Tick =:= infinity; not Wanted ->
    Reactor;
begin_ticks(Reactor) ->
    next_tick(Reactor#reactor{next_tick = erlang:monotonic_time(millisecond)}).

%% Ticks keep their rhythm. One that comes while the last is not through, or late by more than itself, is left out.
next_tick(Reactor = #reactor{tick = Tick, next_tick = Due, ticking = Ticking}) ->
    Now = erlang:monotonic_time(millisecond),
    Next = Due + Tick * max(1, (Now - Due) div Tick + 1),
    _ = erlang:send_after(Next, self(), {'$weir_reactor', tick}, [{abs, true}]),
    case Ticking of
        [] -> Reactor#reactor{next_tick = Next, ticking = handles()};
        _ -> Reactor#reactor{next_tick = Next}
    end.

%% A slice of the connections. Their sends go out in one call, and data of others is served before the next slice.
ticks(N, Writes, Reactor = #reactor{ticking = [Handle | Ticking]}) when N > 0 ->
    {[], NewWrites, NewReactor} =
        on(handle_tick, ?SOCKET(Handle), Handle, [], Writes, Reactor#reactor{ticking = Ticking}),
    ticks(N - 1, NewWrites, NewReactor);
ticks(_N, Writes, Reactor) ->
    {Writes, Reactor}.

%%% Callbacks that take too long.

%% Looking at the clock for every event would cost a percent. So a batch is timed, and if it took too long, the callbacks
%% of the next ones.
timed(Took, Events, Reactor = #reactor{long = Long}) when Took >= Long ->
    NewReactor =
        case {Reactor#reactor.timed, Events} of
            {0, [Event]} -> warn(io_lib:format("a callback for ~0P", [Event, 10]), Took, Reactor);
            {0, _} -> warn(io_lib:format("one or some of ~b callbacks", [length(Events)]), Took, Reactor);
            _ -> Reactor
        end,
    time_callbacks(NewReactor);
timed(_Took, _Events, Reactor = #reactor{timed = 1, module = Module}) ->
    Reactor#reactor{timed = 0, data = fun Module:handle_data/3};
timed(_Took, _Events, Reactor = #reactor{timed = Timed}) ->
    Reactor#reactor{timed = Timed - 1}.

time_callbacks(Reactor = #reactor{module = Module, long = Long}) ->
    Reactor#reactor{timed = ?TIMED_BATCHES, data = fun(Socket, Data, State) ->
        Begin = erlang:monotonic_time(),
        Result = Module:handle_data(Socket, Data, State),
        Took = erlang:monotonic_time() - Begin,
        Took < Long orelse warn_of(handle_data, Socket, Took, Module),
        Result
    end}.

begin_timing(#reactor{timed = 0}) -> 0;
begin_timing(_Reactor) -> erlang:monotonic_time().

end_timing(0, _Callback, _Handle, Reactor) ->
    Reactor;
end_timing(Begin, Callback, Handle, Reactor = #reactor{long = Long, module = Module}) ->
    Took = erlang:monotonic_time() - Begin,
    Took < Long orelse warn_of(Callback, ?SOCKET(Handle), Took, Module),
    Reactor.

warn(What, Took, Reactor = #reactor{module = Module, reports = Reports}) ->
    NewReports = weir_reports:say(Reports, fun() ->
        Text = "weir: reactor ~p of ~s: ~s took ~b ms, and all its connections have waited",
        ?LOG_WARNING(Text, [self(), Module, What, milliseconds(Took)])
    end),
    Reactor#reactor{reports = NewReports}.

warn_of(Callback, Socket, Took, Module) ->
    Text = "weir: reactor ~p: ~s:~s for ~0p took ~b ms, and all its connections have waited",
    ?LOG_WARNING(Text, [self(), Module, Callback, Socket, milliseconds(Took)]).

milliseconds(Took) -> erlang:convert_time_unit(Took, native, millisecond).

%%% The end.

-spec terminate(term(), [weir_nif:write()], #reactor{}) -> no_return().
terminate(Reason, Writes, Reactor = #reactor{pollset = Pollset, token = Token}) ->
    Until = erlang:monotonic_time(millisecond) + ?TERMINATE_MS,
    %% What was sent is written or queued; the queues are sent when the sockets are closed.
    _ = weir_nif:react(Pollset, Token, Writes),
    case Reactor#reactor.optional of
        #{terminate := true} -> terminate_all(handles(), Reason, Until, Reactor);
        #{terminate := false} -> ok
    end,
    exit(Reason).

terminate_all([Handle | Handles], Reason, Until, Reactor) ->
    NewReactor =
        case take(Handle) of
            {ok, #connecting{}} -> Reactor;
            {ok, State} -> terminated(Reason, State, Reactor)
        end,
    case erlang:monotonic_time(millisecond) < Until of
        true -> terminate_all(Handles, Reason, Until, NewReactor);
        false -> ok
    end;
terminate_all([], _Reason, _Until, _Reactor) ->
    ok.

-spec system_continue(pid(), [sys:debug_option()], {[weir_nif:write()], #reactor{}}) -> no_return().
system_continue(_Parent, Debug, {Writes, Reactor}) ->
    loop(Writes, Reactor#reactor{debug = Debug}).

-spec system_terminate(term(), pid(), [sys:debug_option()], {[weir_nif:write()], #reactor{}}) -> no_return().
system_terminate(Reason, _Parent, _Debug, {Writes, Reactor}) ->
    terminate(Reason, Writes, Reactor).

-spec system_code_change(State, module(), term(), term()) -> {ok, State}.
system_code_change(State, _Module, _OldVersion, _Extra) ->
    {ok, State}.

%% The states of the connections, by their sockets.
-spec system_get_state(term()) -> {ok, #{weir_tcp:socket() => term()}}.
system_get_state(_Internal) ->
    {ok, maps:from_list([{?SOCKET(Handle), State} || {Handle, State} <- connected()])}.

-spec system_replace_state(fun((State) -> State), Internal) -> {ok, #{weir_tcp:socket() => State}, Internal}.
system_replace_state(Replace, Internal) ->
    New = [{Handle, Replace(State)} || {Handle, State} <- connected()],
    lists:foreach(fun({Handle, State}) -> keep(Handle, State) end, New),
    {ok, maps:from_list([{?SOCKET(Handle), State} || {Handle, State} <- New]), Internal}.

connected() ->
    [{Handle, State} || Handle <- handles(), {ok, State} <- [state(Handle)], not is_record(State, connecting)].
