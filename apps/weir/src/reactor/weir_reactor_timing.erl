%% @private
%% @doc Finds callbacks that take too long and block their reactor: a value, and warnings.
%%
%% Reading the clock for every event would cost a percent. So a whole batch of events is timed. If it takes too long,
%% each `handle_data/3', `init/2' and `handle_close/3' of the next batches is timed. If measuring is on, each
%% `handle_data/3' in one of sixteen batches is timed for the histogram.
-module(weir_reactor_timing).

-export([new/3]).
-export([measure/2]).
-export([long/1]).
-export([handle_data/1]).
-export([batch/3]).
-export([began/2]).
-export([callback/5]).

-export_type([timing/0]).

%% The number of batches whose callbacks are timed one by one, after a batch that took too long.
-define(TIMED_BATCHES, 1000).

%% One in this many batches is measured.
-define(MEASURED_ONE_IN, 16).

-record(timing, {
    module :: module(),
    times :: weir_reactor_times:times(),
    %% Native time units.
    long :: pos_integer() | infinity,
    %% Batches left to time.
    left = 0 :: non_neg_integer(),
    %% Batches until the next measured one.
    measured_in = never :: non_neg_integer() | never
}).

-opaque timing() :: #timing{}.

%% @doc Returns the timing for a module whose callbacks may take this many milliseconds. Measurements go to the times.
-spec new(module(), pos_integer() | infinity, weir_reactor_times:times()) -> timing().
new(Module, infinity, Times) ->
    #timing{module = Module, times = Times, long = infinity};
new(Module, Milliseconds, Times) ->
    #timing{module = Module, times = Times, long = erlang:convert_time_unit(Milliseconds, millisecond, native)}.

%% @doc Turns measuring on or off.
-spec measure(boolean(), timing()) -> timing().
measure(Measured, Timing = #timing{times = Times}) ->
    ok = weir_reactor_times:measures(Measured, Times),
    Timing#timing{measured_in = case Measured of true -> 0; false -> never end}.

%% @doc Returns the time from which on {@link batch/3} has to be called for a batch, in native units; 0 while
%% callbacks are timed.
-spec long(timing()) -> non_neg_integer() | infinity.
long(#timing{left = 0, measured_in = never, long = Long}) -> Long;
long(#timing{}) -> 0.

%% @doc Returns the function to call for data, timed or not.
-spec handle_data(timing()) -> fun((weir_tcp:socket(), term(), term()) -> weir_reactor:result()).
handle_data(Timing = #timing{module = Module, measured_in = 0, times = Times}) ->
    fun(Socket, Data, State) ->
        Begin = erlang:monotonic_time(),
        Result = Module:handle_data(Socket, Data, State),
        Took = erlang:monotonic_time() - Begin,
        ok = weir_reactor_times:callback(Took, Times),
        ok = took(handle_data, Socket, Took, Timing),
        Result
    end;
handle_data(#timing{module = Module, left = 0}) ->
    %% An external fun: a call by a variable module name costs a lookup.
    fun Module:handle_data/3;
handle_data(Timing = #timing{module = Module}) ->
    fun(Socket, Data, State) ->
        Begin = erlang:monotonic_time(),
        Result = Module:handle_data(Socket, Data, State),
        ok = callback(batch, handle_data, Socket, Begin, Timing),
        Result
    end.

%% @doc Handles the time of a batch.
-spec batch(integer(), [weir_reactor_process:event()], timing()) -> timing().
batch(Took, Events, Timing = #timing{long = Long, left = Left}) when Took >= Long ->
    Left =:= 0 andalso warn(io_lib:format("one or more of ~b callbacks", [length(Events)]), Took, Timing),
    next(Timing#timing{left = ?TIMED_BATCHES});
batch(_Took, _Events, Timing = #timing{left = Left}) ->
    next(Timing#timing{left = max(0, Left - 1)}).

next(Timing = #timing{measured_in = never}) -> Timing;
next(Timing = #timing{measured_in = 0}) -> Timing#timing{measured_in = ?MEASURED_ONE_IN - 1};
next(Timing = #timing{measured_in = Batches}) -> Timing#timing{measured_in = Batches - 1}.

%% @doc Returns the start time of a callback in native units; `untimed' in a `batch' that is timed as a whole.
-spec began(batch | alone, timing()) -> integer() | untimed.
began(batch, #timing{left = 0}) -> untimed;
began(_Where, #timing{}) -> erlang:monotonic_time().

%% @doc Handles the end of a callback that began at this time. A callback `alone' is counted here, others with their
%% batch.
-spec callback(batch | alone, atom(), weir_tcp:socket(), integer() | untimed, timing()) -> ok.
callback(_Where, _Callback, _Socket, untimed, _Timing) ->
    ok;
callback(batch, Callback, Socket, Begin, Timing) ->
    took(Callback, Socket, erlang:monotonic_time() - Begin, Timing);
callback(alone, Callback, Socket, Begin, Timing = #timing{times = Times}) ->
    Took = erlang:monotonic_time() - Begin,
    ok = weir_reactor_times:batch(1, Took, Times),
    took(Callback, Socket, Took, Timing).

took(_Callback, _Socket, Took, #timing{long = Long}) when Took < Long -> ok;
took(Callback, Socket, Took, Timing) -> warn(io_lib:format("~s for ~0p", [Callback, Socket]), Took, Timing).

warn(What, Took, #timing{module = Module}) ->
    weir_reports:say(fun() ->
        weir_reports:log(warning, #{
            what => lists:flatten([What, " took too long and delayed all connections of the reactor"]),
            reactor => self(),
            module => Module,
            took_ms => erlang:convert_time_unit(Took, native, millisecond)
        })
    end).
