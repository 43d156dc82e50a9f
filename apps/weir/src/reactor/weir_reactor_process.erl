%% @private
%% @doc The process of a {@link weir_reactor}. It loops over one native call for writes and events, and the callbacks.
%% {@link weir_reactor_connections} carries out the results of callbacks.
-module(weir_reactor_process).

-export([init/4]).
-export([loop/2]).

%% Callbacks for sys.
-export([system_continue/3]).
-export([system_terminate/4]).
-export([system_code_change/4]).
-export([system_get_state/1]).
-export([system_replace_state/2]).

-include("weir_socket.hrl").

%% The most messages handled between two batches.
-define(MESSAGES, 64).
%% The most connections in a slice of a tick. Their output has to fit into one call (500 microseconds, see `work.rs'):
%% the rest is copied into queues, and sending it costs twice as much.
-define(TICKS, 32).

%% Milliseconds of silence after which the heap is shrunk. The collection also drops garbage, which may keep files
%% open.
-define(IDLE_MS, 1000).

%% Milliseconds for calls of terminate/2, out of the five seconds that a supervisor waits.
-define(TERMINATE_MS, 3000).

-export_type([event/0, write/0]).

-type event() ::
    nonempty_improper_list(weir_nif:handle(), Data :: term())
    | {accepted | connected | writable | served, weir_nif:handle()}
    | {closed | refused | exhausted, weir_nif:handle(), Reason :: atom()}
    | {unsent, weir_nif:handle(), badarg | einval | emsgsize, term()}.
%% An event in a reactor's batch. `closed', `refused' (by connect(2)) and `unsent' are the last event of a socket.
%% `unsent': output that is no iodata, has a file for a socket of packets, or is longer than a packet may be.
%% `exhausted': a listening socket has run out of descriptors; it accepts again after {@link
%% weir_nif:reactor_resume/1}.

-type write() :: nonempty_improper_list(weir_nif:handle(), weir_reactor:output()) | weir_nif:handle().
%% An operation on a socket: output, or a bare handle to close it.

-record(reactor, {
    module :: module(),
    pollset :: weir_nif:pollset(),
    token :: non_neg_integer(),
    parent :: pid(),
    %% When the reactor began, and the counters of its pollset at that time: the pollset may have had another owner
    %% before.
    started :: {integer(), #{atom() => non_neg_integer()}},
    debug = [] :: [sys:debug_option()],
    connections :: weir_reactor_connections:connections(),
    times :: weir_reactor_times:times(),
    ticks :: weir_reactor_ticks:ticks(),
    %% Whether anything has come since the heap was shrunk, and until when the silence has to last.
    silence = kept :: broken | kept | integer(),
    strategy = weir_wait_strategy:new() :: weir_wait_strategy:strategy()
}).

%%% Start.

-dialyzer({nowarn_function, loosen/1}).

%% @doc The entry point of a reactor, on its home scheduler. {@link weir_reactor_start} waits for it.
-spec init(pid(), pos_integer(), weir_reactor_options:normal(), weir_handshake:handshakes()) -> no_return().
init(Parent, Home, Options = #{module := Module, affinity := Affinity, tick := Tick}, Handshakes) ->
    process_flag(trap_exit, true),
    %% Before this, the process would stand still if its scheduler went offline.
    loosen(Affinity),
    case prepare(Home, Options) of
        {ok, Pollset, Token} ->
            Times = weir_reactor_times:new(),
            ok = weir_reactors:enter(#{pollset => Pollset, module => Module, scheduler => Home}, Times),
            Started = erlang:monotonic_time(),
            ok = weir_event:execute(
                [weir, reactor, start],
                #{monotonic_time => Started, system_time => erlang:system_time()},
                #{reactor => self(), module => Module, pollset => Pollset, scheduler => Home}
            ),
            Reactor = #reactor{
                module = Module,
                started = {Started, maps:with([accepts, read_bytes, written_bytes], weir_nif:counters(Pollset))},
                pollset = Pollset,
                token = Token,
                parent = Parent,
                connections = weir_reactor_connections:new(Options, Handshakes, Home, Times),
                times = Times,
                ticks = weir_reactor_ticks:start(Tick, Module)
            },
            weir_reactor_start:started(Parent, {ok, self()}),
            ?MODULE:loop([], Reactor);
        {error, Reason} ->
            weir_reactor_start:started(Parent, {error, Reason}),
            exit(normal)
    end.

prepare(Home, Options = #{max_send_queue := MaxSendQueue, listen := Listen}) ->
    case {register_as(Options), weir_nif:acquire()} of
        {ok, {ok, {Pollset, Token}}} ->
            ok = weir_nif:reactor_begin(Pollset, Home, MaxSendQueue),
            case listen(Pollset, Listen) of
                ok -> {ok, Pollset, Token};
                {error, _} = Error -> Error
            end;
        {ok, {error, _} = Error} ->
            Error;
        {{error, _} = Error, _} ->
            Error
    end.

register_as(#{name := undefined}) ->
    ok;
register_as(#{name := Name}) ->
    try register(Name, self()) of
        true -> ok
    catch
        error:badarg -> {error, {already_started, whereis(Name)}}
    end.

listen(_Pollset, none) ->
    ok;
listen(Pollset, ?SOCKET(Handle)) ->
    try
        weir_nif:reactor_listen(Pollset, Handle)
    catch
        %% The handle was never valid here: it is of another node, for example. The reactor's connections must survive
        %% that.
        error:badarg -> {error, einval}
    end.

%% The process was started bound to its scheduler. After unbinding it stays on that run queue until it is stolen.
loosen(bound) ->
    ok;
loosen(soft) ->
    try process_flag(scheduler, 0) of
        _ -> ok
    catch
        error:badarg -> ok
    end.

%%% The loop.

%% @doc One round, in the current code.
%%
%% Writes: the callbacks' output since the last call, last one first.
-spec loop([write()], #reactor{}) -> no_return().
loop(Writes, Reactor = #reactor{pollset = Pollset, token = Token, connections = Connections}) ->
    case weir_nif:react(Pollset, Token, Writes) of
        {[], Count, RoundNs} ->
            more([], Count, RoundNs, Reactor);
        {Events, Count, RoundNs} ->
            {NewWrites, NewConnections} = weir_reactor_connections:events(Events, Connections),
            more(NewWrites, Count, RoundNs, Reactor#reactor{connections = NewConnections, silence = broken})
    end.

%% Handles messages and ticks.
more(Writes, Count, RoundNs, Reactor) ->
    {NewWrites, NewReactor} = messages(?MESSAGES, Writes, Reactor),
    case weir_reactor_ticks:next(NewReactor#reactor.ticks) of
        none -> go_on(NewWrites, Count, RoundNs, NewReactor);
        Next ->
            {TickWrites, TickedReactor} = tick(?TICKS, Next, NewWrites, NewReactor),
            go_on(TickWrites, Count + 1, RoundNs, TickedReactor)
    end.

go_on(Writes, Count, RoundNs, Reactor = #reactor{strategy = Strategy}) ->
    {Action, NewStrategy} = weir_wait_strategy:next(Count, RoundNs, Strategy),
    change_priority(weir_wait_strategy:priority(Strategy), weir_wait_strategy:priority(NewStrategy)),
    NewReactor = Reactor#reactor{strategy = NewStrategy},
    case Action of
        yield ->
            erlang:yield(),
            ?MODULE:loop(Writes, NewReactor);
        {sleep, _} when Writes =/= [] ->
            ?MODULE:loop(Writes, NewReactor);
        {sleep, _} ->
            sleep(NewReactor)
    end.

%% Input of peers and messages for connections end a silence; ticks do not.
asleep(Reactor = #reactor{silence = broken}) ->
    asleep(Reactor#reactor{silence = erlang:monotonic_time(millisecond) + ?IDLE_MS});
asleep(Reactor = #reactor{silence = Silence}) ->
    %% The loop polls after any message.
    receive
        Message ->
            {Writes, NewReactor} = message(Message, [], Reactor),
            ?MODULE:loop(Writes, NewReactor)
    after left(Silence) ->
        Connections = weir_reactor_connections:shrink(Reactor#reactor.connections),
        asleep(Reactor#reactor{connections = Connections, silence = kept})
    end.

left(kept) -> infinity;
left(Until) -> max(0, Until - erlang:monotonic_time(millisecond)).

change_priority(Same, Same) ->
    ok;
change_priority(_Old, New) ->
    _ = process_flag(priority, New),
    ok.

sleep(Reactor = #reactor{pollset = Pollset, token = Token}) ->
    case weir_nif:sleep(Pollset, Token, false) of
        asleep ->
            asleep(Reactor);
        busy ->
            %% There is more work than one call may do. Other processes run in between, whatever the reactor's
            %% priority.
            Priority = process_flag(priority, normal),
            erlang:yield(),
            _ = process_flag(priority, Priority),
            ?MODULE:loop([], Reactor)
    end.

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

message(weir_wake, Writes, Reactor) ->
    {Writes, Reactor};
message({'$weir_reactor', Request}, Writes, Reactor) ->
    request(Request, Writes, Reactor);
message({system, From, Request}, Writes, Reactor = #reactor{parent = Parent, debug = Debug}) ->
    %% Does not return; passes the writes along, so that they are not lost.
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
    _ = listen(Pollset, ?SOCKET(Handle)),
    {Writes, Reactor};
request({message, Handle, Message}, Writes, Reactor) ->
    info(Message, Handle, Writes, Reactor);
request({connect, Handle, Address, Args}, Writes, Reactor = #reactor{pollset = Pollset, connections = Connections}) ->
    NewConnections =
        case weir_nif:reactor_connect(Pollset, Handle, Address) of
            ok -> weir_reactor_connections:connecting(Handle, Args, Connections);
            {error, Reason} -> weir_reactor_connections:not_connected(Handle, Reason, Args, Connections)
        end,
    {Writes, Reactor#reactor{connections = NewConnections}};
request({adopt, Handle, Args}, Writes, Reactor = #reactor{pollset = Pollset, connections = Connections}) ->
    case weir_nif:reactor_join(Pollset, Handle) of
        ok ->
            went_on(weir_reactor_connections:joined(Handle, {args, Args}, Writes, Connections), Reactor);
        {error, _} ->
            _ = weir_nif:close(Handle, now),
            {Writes, Reactor}
    end;
request({resume, Handle}, Writes, Reactor) ->
    ok = weir_nif:reactor_resume(Handle),
    {Writes, Reactor};
request({measure, Measured}, Writes, Reactor = #reactor{connections = Connections}) ->
    {Writes, Reactor#reactor{connections = weir_reactor_connections:measure(Measured, Connections)}};
request({header_timeout, Handle}, Writes, Reactor = #reactor{connections = Connections}) ->
    went_on(weir_reactor_connections:header_timeout(Handle, Writes, Connections), Reactor);
request(
    {info, From, Reference},
    Writes,
    Reactor = #reactor{module = Module, pollset = Pollset, connections = Connections, times = Times}
) ->
    Counters = maps:merge(weir_nif:counters(Pollset), weir_reactor_times:totals(Times)),
    Counts = weir_reactor_connections:counts(Connections),
    From ! {Reference, {ok, maps:merge(Counters#{module => Module, pollset => Pollset}, Counts)}},
    {Writes, Reactor};
request(tick, Writes, Reactor = #reactor{ticks = Ticks, connections = Connections}) ->
    {Writes, Reactor#reactor{
        ticks = weir_reactor_ticks:begin_tick(weir_reactor_connections:begin_tick(Connections), Ticks)
    }}.

info(Message, Handle, Writes, Reactor = #reactor{connections = Connections}) ->
    went_on(weir_reactor_connections:info(Message, Handle, Writes, Connections), Reactor#reactor{silence = broken}).

went_on({Writes, Connections}, Reactor) ->
    {Writes, Reactor#reactor{connections = Connections}}.

%% A linked process of a callback has ended normally.
unexpected({'EXIT', _Pid, normal}, Writes, Reactor) ->
    {Writes, Reactor};
%% A relay that this reactor started has ended.
unexpected({weir_relay, _Relay, _What, _About}, Writes, Reactor) ->
    {Writes, Reactor};
unexpected(Message, Writes, Reactor = #reactor{module = Module}) ->
    ok = weir_reports:say(fun() ->
        weir_reports:log(error, #{
            what => "a reactor received an unexpected message, for none of its connections",
            reactor => self(),
            module => Module,
            message => Message
        })
    end),
    {Writes, Reactor}.

%%% Ticks.

%% A slice of the connections. Their output goes out in one call, and data of others is handled before the next slice.
tick(N, {Handle, Ticks}, Writes, Reactor = #reactor{connections = Connections}) ->
    {Again, NewWrites, NewConnections} = weir_reactor_connections:tick(Handle, Writes, Connections),
    NewTicks = weir_reactor_ticks:again(Handle, Again, Ticks),
    NewReactor = Reactor#reactor{ticks = NewTicks, connections = NewConnections},
    case N > 1 andalso weir_reactor_ticks:next(NewTicks) of
        Next = {_, _} -> tick(N - 1, Next, NewWrites, NewReactor);
        _ -> {NewWrites, NewReactor}
    end.

%%% Termination.

-spec terminate(term(), [write()], #reactor{}) -> no_return().
terminate(Reason, Writes, Reactor = #reactor{pollset = Pollset, token = Token, connections = Connections}) ->
    Until = erlang:monotonic_time(millisecond) + ?TERMINATE_MS,
    %% Writes or queues earlier output; the queues are sent when the sockets are closed.
    _ = weir_nif:react(Pollset, Token, Writes),
    ok = weir_reactors:leave(Pollset),
    ok = stopped(Reason, Reactor),
    ok = weir_reactor_connections:terminate_all(Reason, Until, Connections),
    exit(Reason).

stopped(Reason, #reactor{module = Module, pollset = Pollset, started = {Started, Before}, connections = Connections}) ->
    Event = [weir, reactor, stop],
    case weir_event:is_attached(Event) of
        true ->
            Now = erlang:monotonic_time(),
            After = weir_nif:counters(Pollset),
            Since = maps:map(fun(Counter, Count) -> maps:get(Counter, After) - Count end, Before),
            weir_event:execute(
                Event,
                #{
                    monotonic_time => Now,
                    duration => Now - Started,
                    connections => maps:get(connections, weir_reactor_connections:counts(Connections)),
                    accepted => maps:get(accepts, Since),
                    read_bytes => maps:get(read_bytes, Since),
                    written_bytes => maps:get(written_bytes, Since)
                },
                #{reactor => self(), module => Module, pollset => Pollset, reason => Reason}
            );
        false ->
            ok
    end.

-spec system_continue(pid(), [sys:debug_option()], {[write()], #reactor{}}) -> no_return().
system_continue(_Parent, Debug, {Writes, Reactor}) ->
    ?MODULE:loop(Writes, Reactor#reactor{debug = Debug}).

-spec system_terminate(term(), pid(), [sys:debug_option()], {[write()], #reactor{}}) -> no_return().
system_terminate(Reason, _Parent, _Debug, {Writes, Reactor}) ->
    terminate(Reason, Writes, Reactor).

-spec system_code_change(State, module(), term(), term()) -> {ok, State}.
system_code_change(State, _Module, _OldVersion, _Extra) ->
    {ok, State}.

%% Returns the states of the connections, by their sockets.
-spec system_get_state(term()) -> {ok, #{weir_tcp:socket() => term()}}.
system_get_state(_Internal) ->
    {ok, maps:from_list([{?SOCKET(Handle), State} || {Handle, State} <- weir_reactor_states:all()])}.

-spec system_replace_state(fun((State) -> State), Internal) -> {ok, #{weir_tcp:socket() => State}, Internal}.
system_replace_state(Replace, Internal) ->
    ok = weir_reactor_states:replace(Replace),
    {ok, States} = system_get_state(Internal),
    {ok, States, Internal}.
