%% @private
%% @doc Calls the callbacks of a reactor's module: knows the optional ones, reports those that raise, and times them.
%%
%% `handle_data/3' is not called here: the reactor calls the fun of {@link handle_data/1} for each event.
-module(weir_reactor_callbacks).

-export([new/3]).
-export([measure/2]).
-export([has/2]).
-export([handle_data/1]).
-export([long/1]).
-export([batch/3]).
-export([init/4]).
-export([optional/6]).
-export([begin_tick/2]).
-export([handle_close/5]).
-export([terminate/3]).
-export([terminate_all/4]).
-export([report/5]).

-export_type([callbacks/0, error/0]).

-include("weir_socket.hrl").

-record(callbacks, {
    module :: module(),
    optional :: #{atom() => boolean()},
    timing :: weir_reactor_timing:timing()
}).

-opaque callbacks() :: #callbacks{}.

-type error() :: {Class :: error | exit | throw, Reason :: term(), Stacktrace :: list()}.

%% @doc Returns the callbacks of a loaded module, each of which may take this many milliseconds.
-spec new(module(), pos_integer() | infinity, weir_reactor_times:times()) -> callbacks().
new(Module, Long, Times) ->
    Names = [{handle_writable, 2}, {handle_info, 2}, {begin_tick, 1}, {terminate, 2}],
    #callbacks{
        module = Module,
        optional = maps:from_list([{Name, erlang:function_exported(Module, Name, Arity)} || {Name, Arity} <- Names]),
        timing = weir_reactor_timing:new(Module, Long, Times)
    }.

%% @doc See {@link weir_reactor_timing:measure/2}.
-spec measure(boolean(), callbacks()) -> callbacks().
measure(Measured, Callbacks = #callbacks{timing = Timing}) ->
    Callbacks#callbacks{timing = weir_reactor_timing:measure(Measured, Timing)}.

%% @doc Whether the module has this optional callback.
-spec has(atom(), callbacks()) -> boolean().
has(Callback, #callbacks{optional = Optional}) -> map_get(Callback, Optional).

%% @doc See {@link weir_reactor_timing:handle_data/1}.
-spec handle_data(callbacks()) -> fun((weir_tcp:socket(), term(), term()) -> weir_reactor:result()).
handle_data(#callbacks{timing = Timing}) -> weir_reactor_timing:handle_data(Timing).

%% @doc See {@link weir_reactor_timing:long/1}.
-spec long(callbacks()) -> non_neg_integer() | infinity.
long(#callbacks{timing = Timing}) -> weir_reactor_timing:long(Timing).

%% @doc See {@link weir_reactor_timing:batch/3}.
-spec batch(integer(), [weir_reactor_process:event()], callbacks()) -> callbacks().
batch(Took, Events, Callbacks = #callbacks{timing = Timing}) ->
    Callbacks#callbacks{timing = weir_reactor_timing:batch(Took, Events, Timing)}.

%% @doc Calls `init/2', in a batch or alone (see {@link weir_reactor_timing:began/2}). The caller interprets the
%% result.
-spec init(batch | alone, weir_nif:handle(), term(), callbacks()) -> {ok, term()} | {failed, error()}.
init(Where, Handle, Args, #callbacks{module = Module, timing = Timing}) ->
    Begin = weir_reactor_timing:began(Where, Timing),
    try Module:init(?SOCKET(Handle), Args) of
        Result ->
            ok = weir_reactor_timing:callback(Where, init, ?SOCKET(Handle), Begin, Timing),
            {ok, Result}
    catch
        Class:Reason:Stack -> {failed, {Class, Reason, Stack}}
    end.

%% @doc Calls an optional callback that the module {@link has/2}, for a connection, in a batch or alone.
-spec optional(batch | alone, atom(), Argument :: term(), weir_nif:handle(), State :: term(), callbacks()) ->
    {ok, term()} | {failed, error()}.
optional(Where, Callback, Argument, Handle, State, #callbacks{module = Module, timing = Timing}) ->
    Begin = erlang:monotonic_time(),
    try Module:Callback(Argument, State) of
        Result ->
            ok = weir_reactor_timing:callback(Where, Callback, ?SOCKET(Handle), Begin, Timing),
            {ok, Result}
    catch
        Class:Reason:Stack -> {failed, {Class, Reason, Stack}}
    end.

%% @doc Calls `begin_tick/1', which returns the connections that a tick is for. A failure is reported and means all.
-spec begin_tick(Args :: term(), callbacks()) -> all | due.
begin_tick(_Args, #callbacks{optional = #{begin_tick := false}}) ->
    due;
begin_tick(Args, Callbacks = #callbacks{module = Module}) ->
    try Module:begin_tick(Args) of
        Which when Which =:= all; Which =:= due -> Which;
        Bad -> all_after({error, {bad_return_value, Bad}, []}, Callbacks)
    catch
        Class:Reason:Stack -> all_after({Class, Reason, Stack}, Callbacks)
    end.

all_after(Error, Callbacks) ->
    ok = report(Error, begin_tick, none, none, Callbacks),
    all.

%% @doc Calls `handle_close/3', in a batch or alone. A failure is reported.
-spec handle_close(batch | alone, weir_nif:handle(), Reason :: term(), State, callbacks()) ->
    {ok, State} | {failed, error()}.
handle_close(Where, Handle, Reason, State, Callbacks = #callbacks{module = Module, timing = Timing}) ->
    Begin = weir_reactor_timing:began(Where, Timing),
    try Module:handle_close(?SOCKET(Handle), Reason, State) of
        Result ->
            ok = weir_reactor_timing:callback(Where, handle_close, ?SOCKET(Handle), Begin, Timing),
            case Result of
                {ok, _} -> Result;
                Bad -> failed({error, {bad_return_value, Bad}, []}, handle_close, Handle, State, Callbacks)
            end
    catch
        Class:Error:Stack -> failed({Class, Error, Stack}, handle_close, Handle, State, Callbacks)
    end.

failed(Error, Callback, Handle, State, Callbacks) ->
    ok = report(Error, Callback, Handle, State, Callbacks),
    {failed, Error}.

%% @doc Calls `terminate/2'. A failure is reported.
-spec terminate(Reason :: term(), State :: term(), callbacks()) -> ok.
terminate(Reason, State, Callbacks = #callbacks{module = Module, optional = #{terminate := true}}) ->
    try Module:terminate(Reason, State) of
        _ -> ok
    catch
        Class:Error:Stack -> report({Class, Error, Stack}, terminate, none, State, Callbacks)
    end;
terminate(_Reason, _State, _Callbacks) ->
    ok.

%% @doc Calls `terminate/2' for each of these connections and removes their states, until the deadline.
-spec terminate_all(Reason :: term(), Until :: integer(), [{weir_nif:handle(), State :: term()}], callbacks()) -> ok.
terminate_all(Reason, Until, [{Handle, State} | States], Callbacks = #callbacks{optional = #{terminate := true}}) ->
    _ = erase(Handle),
    ok = terminate(Reason, State, Callbacks),
    case erlang:monotonic_time(millisecond) < Until of
        true -> terminate_all(Reason, Until, States, Callbacks);
        false -> ok
    end;
terminate_all(_Reason, _Until, _States, _Callbacks) ->
    ok.

%% @doc Reports a failed callback; `send' for output that cannot be sent.
-spec report(error(), Callback :: atom(), weir_nif:handle() | none, State :: term(), callbacks()) -> ok.
report({Class, Reason, Stack}, Callback, Handle, State, #callbacks{module = Module}) ->
    Socket =
        case Handle of
            none -> none;
            _ -> ?SOCKET(Handle)
        end,
    weir_reports:say(fun() ->
        weir_reports:log(error, #{
            what => what(Callback),
            callback => {Module, Callback},
            reason => {Class, Reason},
            stacktrace => Stack,
            socket => Socket,
            state => State,
            reactor => self()
        })
    end).

what(begin_tick) -> "a callback of a reactor failed";
what(_Callback) -> "a callback of a reactor failed; its connection is closed".
