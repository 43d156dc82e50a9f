%% @private
%% @doc The connections of a reactor: calls the callbacks with events, and carries out their results.
%%
%% The states are in the process dictionary (see {@link weir_reactor_states}).
-module(weir_reactor_connections).

-export([counts/1]).
-export([new/4]).
-export([measure/2]).
-export([events/2]).
-export([connecting/3]).
-export([not_connected/4]).
-export([joined/4]).
-export([info/4]).
-export([begin_tick/1]).
-export([tick/3]).
-export([shrink/1]).
-export([header_timeout/3]).
-export([terminate_all/3]).

-export_type([connections/0, args/0]).

-include("weir_reactor_state.hrl").
-include("weir_socket.hrl").

-import(weir_reactor_states, [keep/2, state/1, take/1]).

%% Milliseconds before accepting again after descriptors have run out.
-define(PAUSE_MS, 100).

-record(connections, {
    callbacks :: weir_reactor_callbacks:callbacks(),
    %% The callback for data, and the native time units from which on a batch is passed to weir_reactor_callbacks.
    data :: fun((weir_tcp:socket(), term(), term()) -> weir_reactor:result()),
    long :: non_neg_integer() | infinity,
    %% Counters of the time that callbacks take.
    times :: weir_reactor_times:times(),
    args :: term(),
    %% The pollset for sockets that leave the reactor.
    home :: weir_nif:pollset(),
    %% Milliseconds for a PROXY header, if connections have one.
    header :: timeout() | none,
    handshakes :: weir_handshake:handshakes(),
    count = 0 :: non_neg_integer(),
    heap = weir_reactor_heap:new() :: weir_reactor_heap:heap()
}).

-opaque connections() :: #connections{}.

-type args() :: {args, term()} | default.
%% The arguments of `init/2': those given, or the reactor's default.

-type old() :: {state, term()} | none.
%% The state that the callback was called with, if any.

%% A write is an improper list to save two words.
-dialyzer({no_improper_lists, [result/8]}).

%% @doc Returns the numbers of connections, open or being opened, and of failed handshakes.
-spec counts(connections()) -> #{connections | failed_handshakes => non_neg_integer()}.
counts(#connections{count = Count, handshakes = Handshakes}) ->
    #{connections => Count, failed_handshakes => weir_handshake:failed(Handshakes)}.

%% @doc No connections yet.
-spec new(
    weir_reactor_options:normal(), weir_handshake:handshakes(), Home :: weir_nif:pollset(), weir_reactor_times:times()
) -> connections().
new(
    Options = #{module := Module, args := Args, long_callback_ms := Long, measure := Measured}, Handshakes, Home, Times
) ->
    Callbacks = weir_reactor_callbacks:measure(Measured, weir_reactor_callbacks:new(Module, Long, Times)),
    Header =
        case Options of
            #{proxy_protocol := true, handshake_timeout := Timeout} -> Timeout;
            #{} -> none
        end,
    #connections{
        callbacks = Callbacks,
        data = weir_reactor_callbacks:handle_data(Callbacks),
        long = weir_reactor_callbacks:long(Callbacks),
        times = Times,
        args = Args,
        home = Home,
        header = Header,
        handshakes = Handshakes
    }.

%% @doc Turns the measuring of callback times on or off.
-spec measure(boolean(), connections()) -> connections().
measure(Measured, Connections = #connections{callbacks = Callbacks}) ->
    timed(weir_reactor_callbacks:measure(Measured, Callbacks), Connections).

%% Applies the timing to the next batch.
timed(Callbacks, Connections) ->
    Connections#connections{
        callbacks = Callbacks,
        data = weir_reactor_callbacks:handle_data(Callbacks),
        long = weir_reactor_callbacks:long(Callbacks)
    }.

%%% Events.

%% @doc Handles a batch of events. Returns the output of the callbacks, last one first.
-spec events([weir_reactor_process:event()], connections()) -> {[weir_reactor_process:write()], connections()}.
events(Events, Connections = #connections{times = Times}) ->
    Begin = erlang:monotonic_time(),
    {Writes, NewConnections} = events(Events, [], fit(Events, Connections)),
    Took = erlang:monotonic_time() - Begin,
    ok = weir_reactor_times:batch(length(Events), Took, Times),
    case NewConnections of
        #connections{long = Long} when Took < Long -> {Writes, NewConnections};
        #connections{callbacks = Callbacks} ->
            {Writes, timed(weir_reactor_callbacks:batch(Took, Events, Callbacks), NewConnections)}
    end.

events([[Handle | Data] | Events], Writes, Connections) ->
    case get(Handle) of
        undefined -> events(Events, Writes, Connections);
        ?UNDEFINED -> data(Handle, Data, undefined, Events, Writes, Connections);
        #pending{what = {header, Header}} -> header(Handle, Data, Header, Events, Writes, Connections);
        State -> data(Handle, Data, State, Events, Writes, Connections)
    end;
events([], Writes, Connections) ->
    {Writes, Connections};
events([Event | Events], Writes, Connections) ->
    {NewEvents, NewWrites, NewConnections} = event(Event, Events, Writes, Connections),
    events(NewEvents, NewWrites, NewConnections).

data(Handle, Data, State, Events, Writes, Connections = #connections{data = HandleData}) ->
    try HandleData(?SOCKET(Handle), Data, State) of
        {send, IoData, State} ->
            events(Events, [[Handle | IoData] | Writes], Connections);
        {ok, State} ->
            events(Events, Writes, Connections);
        {send, IoData, NewState} ->
            keep(Handle, NewState),
            events(Events, [[Handle | IoData] | Writes], Connections);
        {ok, NewState} ->
            keep(Handle, NewState),
            events(Events, Writes, Connections);
        Result ->
            {NewEvents, NewWrites, NewConnections} =
                result(handle_data, Result, Handle, [Data], {state, State}, Events, Writes, Connections),
            events(NewEvents, NewWrites, NewConnections)
    catch
        Class:Reason:Stack ->
            Error = {Class, Reason, Stack},
            {Events, NewWrites, NewConnections} = failed(
                Error, handle_data, Handle, {state, State}, Events, Writes, Connections
            ),
            events(Events, NewWrites, NewConnections)
    end.

event({accepted, Handle}, Events, Writes, Connections = #connections{header = none, args = Args}) ->
    begin_connection(batch, Handle, Args, Events, Writes, Connections);
event({accepted, Handle}, Events, Writes, Connections = #connections{header = Timeout, handshakes = Handshakes}) ->
    _ = put(Handle, #pending{what = {header, weir_reactor_header:begin_with(Handle, Timeout, Handshakes)}}),
    {Events, Writes, Connections};
event({connected, Handle}, Events, Writes, Connections) ->
    #pending{what = {connecting, Args}} = erase(Handle),
    begin_connection(batch, Handle, Args, Events, Writes, Connections);
event({refused, Handle, Reason}, Events, Writes, Connections) ->
    #pending{what = {connecting, Args}} = erase(Handle),
    {Events, Writes, told_not_connected(batch, Handle, Reason, Args, Connections)};
event({closed, Handle, Reason}, Events, Writes, Connections) ->
    case take(Handle) of
        {state, State} ->
            {Events, Writes, closed(Handle, Reason, State, Connections)};
        {pending, {connecting, Args}} ->
            {Events, Writes, told_not_connected(batch, Handle, Reason, Args, Connections)};
        {pending, {header, Header}} ->
            {error, _} = weir_reactor_header:ended({error, Reason}, Header),
            {Events, Writes, Connections};
        none ->
            {Events, Writes, Connections}
    end;
event({writable, Handle}, Events, Writes, Connections) ->
    on(batch, handle_writable, ?SOCKET(Handle), Handle, Events, Writes, Connections);
event({served, Handle}, Events, Writes, Connections) ->
    on(batch, handle_info, {weir_group, served, ?SOCKET(Handle)}, Handle, Events, Writes, Connections);
event({unsent, Handle, Reason, IoData}, Events, Writes, Connections) ->
    {Events, Writes, unsent(Handle, Reason, IoData, Connections)};
event({exhausted, Handle, Reason}, Events, Writes, Connections) ->
    _ = erlang:send_after(?PAUSE_MS, self(), {'$weir_reactor', {resume, Handle}}),
    ok = weir_reports:say(fun() ->
        weir_reports:log(warning, #{
            what => "connections cannot be accepted; they wait in the backlog", reason => Reason, reactor => self()
        })
    end),
    {Events, Writes, Connections}.

%% A callback has returned output that cannot be sent, and its connection is closed already.
unsent(Handle, Reason, IoData, Connections) ->
    Error = {error, {Reason, {send, IoData}}, []},
    case take(Handle) of
        {state, State} ->
            ok = report(Error, send, Handle, State, Connections),
            terminated({error, Error}, State, Connections);
        %% It was the last output of a closed connection.
        none ->
            ok = report(Error, send, Handle, closed, Connections),
            Connections
    end.

header(Handle, Data, Header, Events, Writes, Connections = #connections{args = Args}) ->
    _ = erase(Handle),
    {NewEvents, NewWrites, NewConnections} =
        case weir_reactor_header:data(Data, Header) of
            {ok, Value} ->
                weir_connection:with_proxy_header(Value, fun() ->
                    begin_connection(batch, Handle, Args, Events, Writes, Connections)
                end);
            {more, More} ->
                _ = put(Handle, #pending{what = {header, More}}),
                {Events, Writes, Connections};
            {error, _} ->
                {Events, [Handle | Writes], Connections}
        end,
    events(NewEvents, NewWrites, NewConnections).

%% @doc Handles the timeout of a connection's PROXY header.
-spec header_timeout(weir_nif:handle(), [weir_reactor_process:write()], connections()) ->
    {[weir_reactor_process:write()], connections()}.
header_timeout(Handle, Writes, Connections) ->
    case state(Handle) of
        {pending, {header, Header}} ->
            _ = erase(Handle),
            {error, timeout} = weir_reactor_header:ended({error, timeout}, Header),
            {[Handle | Writes], Connections};
        %% The header came in time.
        _ ->
            {Writes, Connections}
    end.

begin_connection(Where, Handle, Args, Events, Writes, Before = #connections{callbacks = Callbacks, count = Count}) ->
    Connections = Before#connections{count = Count + 1},
    ok = weir_reactor_ticks:soon(Handle),
    case weir_reactor_callbacks:init(Where, Handle, Args, Callbacks) of
        {ok, Result} -> result(init, Result, Handle, [], none, Events, Writes, Connections);
        {failed, Error} -> failed(Error, init, Handle, none, Events, Writes, Connections)
    end.

%% Calls an optional callback for a connection, if both exist.
on(Where, Callback, Argument, Handle, Events, Writes, Connections = #connections{callbacks = Callbacks}) ->
    case {weir_reactor_callbacks:has(Callback, Callbacks), state(Handle)} of
        {true, {state, State}} ->
            case weir_reactor_callbacks:optional(Where, Callback, Argument, Handle, State, Callbacks) of
                {ok, Result} -> result(Callback, Result, Handle, [], {state, State}, Events, Writes, Connections);
                {failed, Error} -> failed(Error, Callback, Handle, {state, State}, Events, Writes, Connections)
            end;
        _ ->
            {Events, Writes, Connections}
    end.

%%% Results.

%% Carries out the result of a callback. Unread: the data that the callback was called with, if any.
-spec result(Callback :: atom(), term(), weir_nif:handle(), Unread :: [term()], old(), Events, Writes, connections()) ->
    {Events, Writes, connections()}
when
    Events :: [weir_reactor_process:event()], Writes :: [weir_reactor_process:write()].
result(_Callback, {ok, State}, Handle, _Unread, _Old, Events, Writes, Connections) ->
    keep(Handle, State),
    {Events, Writes, Connections};
result(_Callback, {send, IoData, State}, Handle, _Unread, _Old, Events, Writes, Connections) ->
    keep(Handle, State),
    {Events, [[Handle | IoData] | Writes], Connections};
result(_Callback, {close, State}, Handle, _Unread, _Old, Events, Writes, Connections) ->
    _ = erase(Handle),
    {Events, [Handle | Writes], terminated(normal, State, Connections)};
result(_Callback, {close, IoData, State}, Handle, _Unread, _Old, Events, Writes, Connections) ->
    _ = erase(Handle),
    {Events, [Handle, [Handle | IoData] | Writes], terminated(normal, State, Connections)};
result(_Callback, {handoff, Pid, State}, Handle, Unread, _Old, Events, Writes, Connections) when
    is_pid(Pid), Pid =/= self()
->
    hand_off(Handle, Pid, Unread, State, Events, Writes, Connections);
result(_Callback, {handoff, Pid, Unread, State}, Handle, _Unread, _Old, Events, Writes, Connections) when
    is_pid(Pid), Pid =/= self(), is_binary(Unread)
->
    hand_off(Handle, Pid, [Unread], State, Events, Writes, Connections);
result(_Callback, {relay, ?SOCKET(Other), State}, Handle, Unread, _Old, Events, Writes, Connections) when
    is_integer(Other)
->
    relay(Handle, Other, {Unread, <<>>}, State, Events, Writes, Connections);
result(_Callback, {relay, ?SOCKET(Other), Prefix, State}, Handle, _Unread, _Old, Events, Writes, Connections) when
    is_integer(Other), is_binary(Prefix)
->
    relay(Handle, Other, {[], Prefix}, State, Events, Writes, Connections);
result(Callback, Bad, Handle, _Unread, Old, Events, Writes, Connections) ->
    failed({error, {bad_return_value, Bad}, []}, Callback, Handle, Old, Events, Writes, Connections).

hand_off(Handle, Pid, Unread, State, Events, Writes, Connections = #connections{home = Home}) ->
    _ = erase(Handle),
    {Reason, NewEvents, NewWrites} = weir_reactor_departure:to_process(Handle, Pid, Unread, Home, Events, Writes),
    {NewEvents, NewWrites, terminated(Reason, State, Connections)}.

relay(Handle, Other, Data, State, Events, Writes, Connections = #connections{home = Home}) ->
    _ = erase(Handle),
    Partner = state(Other),
    Sides = {Handle, Other, is_tuple(Partner) andalso element(1, Partner) =:= state},
    {{Reason, OtherReason}, NewEvents, NewWrites} =
        weir_reactor_departure:to_relay(Sides, Data, Home, Events, Writes),
    Forgotten = terminated(Reason, State, Connections),
    case Partner of
        {state, OtherState} ->
            _ = erase(Other),
            {NewEvents, NewWrites, terminated(OtherReason, OtherState, Forgotten)};
        _ ->
            {NewEvents, NewWrites, Forgotten}
    end.

%% A callback has raised, or returned a wrong result: its connection is closed after earlier output.
failed(Error, Callback, Handle, Old, Events, Writes, Connections) ->
    _ = erase(Handle),
    case Old of
        {state, State} ->
            ok = report(Error, Callback, Handle, State, Connections),
            {Events, [Handle | Writes], terminated({error, Error}, State, Connections)};
        none ->
            ok = report(Error, Callback, Handle, none, Connections),
            {Events, [Handle | Writes], forget(Connections)}
    end.

report(Error, Callback, Handle, State, #connections{callbacks = Callbacks}) ->
    weir_reactor_callbacks:report(Error, Callback, Handle, State, Callbacks).

closed(Handle, Reason, State, Connections = #connections{callbacks = Callbacks}) ->
    case weir_reactor_callbacks:handle_close(batch, Handle, Reason, State, Callbacks) of
        {ok, NewState} -> terminated(Reason, NewState, Connections);
        {failed, Error} -> terminated({error, Error}, State, Connections)
    end.

%% There is no state to terminate.
told_not_connected(Where, Handle, Reason, Args, Connections = #connections{callbacks = Callbacks}) ->
    _ = weir_reactor_callbacks:handle_close(Where, Handle, {connect, Reason}, Args, Callbacks),
    Connections.

%% Ends a connection of the reactor.
terminated(Reason, State, Connections = #connections{callbacks = Callbacks}) ->
    ok = weir_reactor_callbacks:terminate(Reason, State, Callbacks),
    forget(Connections).

%%% Requests of processes.

%% @doc Adds a connection that is being opened.
-spec connecting(weir_nif:handle(), args(), connections()) -> connections().
connecting(Handle, Args, Connections) ->
    _ = put(Handle, #pending{what = {connecting, args(Args, Connections)}}),
    Connections.

%% @doc Handles a connection attempt that failed at once.
-spec not_connected(weir_nif:handle(), term(), args(), connections()) -> connections().
not_connected(Handle, Reason, Args, Connections) ->
    told_not_connected(alone, Handle, Reason, args(Args, Connections), Connections).

%% @doc Begins a connection that was given to the reactor.
-spec joined(weir_nif:handle(), args(), [weir_reactor_process:write()], connections()) ->
    {[weir_reactor_process:write()], connections()}.
joined(Handle, Args, Writes, Connections) ->
    {[], NewWrites, NewConnections} = begin_connection(alone, Handle, args(Args, Connections), [], Writes, Connections),
    {NewWrites, NewConnections}.

args({args, Args}, _Connections) -> Args;
args(default, #connections{args = Args}) -> Args.

%% @doc Handles a message for a connection.
-spec info(term(), weir_nif:handle(), [weir_reactor_process:write()], connections()) ->
    {[weir_reactor_process:write()], connections()}.
info(Message, Handle, Writes, Connections) ->
    {[], NewWrites, NewConnections} = on(alone, handle_info, Message, Handle, [], Writes, Connections),
    {NewWrites, NewConnections}.

%% @doc Returns the connections that a tick is for.
-spec begin_tick(connections()) -> all | due.
begin_tick(#connections{callbacks = Callbacks, args = Args}) -> weir_reactor_callbacks:begin_tick(Args, Callbacks).

%% @doc Calls `handle_tick/2' for a connection. Returns the number of ticks until its next call; 0 if the connection
%% is gone.
-spec tick(weir_nif:handle(), [weir_reactor_process:write()], connections()) ->
    {non_neg_integer(), [weir_reactor_process:write()], connections()}.
tick(Handle, Writes, Connections = #connections{callbacks = Callbacks}) ->
    case state(Handle) of
        {state, State} ->
            case weir_reactor_callbacks:optional(alone, handle_tick, ?SOCKET(Handle), Handle, State, Callbacks) of
                {ok, {sleep, Ticks, NewState}} when is_integer(Ticks), Ticks > 0 ->
                    keep(Handle, NewState),
                    {Ticks, Writes, Connections};
                {ok, Result} ->
                    {[], NewWrites, NewConnections} = result(
                        handle_tick, Result, Handle, [], {state, State}, [], Writes, Connections
                    ),
                    {1, NewWrites, NewConnections};
                {failed, Error} ->
                    {[], NewWrites, NewConnections} = failed(
                        Error, handle_tick, Handle, {state, State}, [], Writes, Connections
                    ),
                    {0, NewWrites, NewConnections}
            end;
        _ ->
            {0, Writes, Connections}
    end.

%% @doc Calls `terminate/2' for each connection, until the deadline.
-spec terminate_all(Reason :: term(), Until :: integer(), connections()) -> ok.
terminate_all(Reason, Until, #connections{callbacks = Callbacks}) ->
    weir_reactor_callbacks:terminate_all(Reason, Until, weir_reactor_states:all(), Callbacks).

%%% Memory.

%% @doc Shrinks the heap to its initial size. It grows again with events.
-spec shrink(connections()) -> connections().
shrink(Connections) -> Connections#connections{heap = weir_reactor_heap:shrink()}.

%% Only data needs a larger heap: idle connections do not.
fit([[_Handle | _Data] | _], Connections = #connections{count = Count, heap = Heap}) ->
    case weir_reactor_heap:fit(Count, Heap) of
        Heap -> Connections;
        Larger -> Connections#connections{heap = Larger}
    end;
fit(_NoData, Connections) ->
    Connections.

forget(Connections = #connections{count = Count}) ->
    Connections#connections{count = Count - 1}.
