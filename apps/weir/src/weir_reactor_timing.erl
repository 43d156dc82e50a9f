%% @private
%% @doc Which callbacks take too long, so that all connections of their reactor wait: a value, and warnings.
%%
%% Looking at the clock for every event would cost a percent. So a batch of events is timed as a whole, and if it took too
%% long, each `handle_data/3', `init/2' and `handle_close/3' of the next batches is.
-module(weir_reactor_timing).

-export([new/2]).
-export([long/1]).
-export([handle_data/1]).
-export([batch/3]).
-export([began/2]).
-export([callback/4]).

-export_type([timing/0]).

%% Batches whose callbacks are timed one by one, after one that took too long.
-define(TIMED_BATCHES, 1000).

-record(timing, {
    module :: module(),
    %% Native time units.
    long :: pos_integer() | infinity,
    %% Batches that are still to be timed.
    left = 0 :: non_neg_integer()
}).

-opaque timing() :: #timing{}.

%% @doc Callbacks of a module may take so many milliseconds.
-spec new(module(), pos_integer() | infinity) -> timing().
new(Module, infinity) ->
    #timing{module = Module, long = infinity};
new(Module, Milliseconds) ->
    #timing{module = Module, long = erlang:convert_time_unit(Milliseconds, millisecond, native)}.

%% @doc From what time of a batch on, in native units, {@link batch/3} wants to know of it. None is too short while
%% callbacks are timed.
-spec long(timing()) -> non_neg_integer() | infinity.
long(#timing{left = 0, long = Long}) -> Long;
long(#timing{}) -> 0.

%% @doc What to call for data, timed or not.
-spec handle_data(timing()) -> fun((weir_tcp:socket(), term(), term()) -> weir_reactor:result()).
handle_data(#timing{module = Module, left = 0}) ->
    %% As a fun, since a call by the name of a module costs a lookup.
    fun Module:handle_data/3;
handle_data(Timing = #timing{module = Module}) ->
    fun(Socket, Data, State) ->
        Begin = erlang:monotonic_time(),
        Result = Module:handle_data(Socket, Data, State),
        ok = callback(handle_data, Socket, Begin, Timing),
        Result
    end.

%% @doc A batch of events took so long.
-spec batch(integer(), [weir_reactor_process:event()], timing()) -> timing().
batch(Took, Events, Timing = #timing{long = Long, left = Left}) when Took >= Long ->
    Left =:= 0 andalso warn(io_lib:format("one or some of ~b callbacks", [length(Events)]), Took, Timing),
    Timing#timing{left = ?TIMED_BATCHES};
batch(_Took, _Events, Timing = #timing{left = Left}) ->
    Timing#timing{left = Left - 1}.

%% @doc When a callback begins, in native units. `batch': its batch is timed as a whole, so unless one was too long there is
%% nothing to know.
-spec began(batch | alone, timing()) -> integer() | untimed.
began(batch, #timing{left = 0}) -> untimed;
began(_Where, #timing{}) -> erlang:monotonic_time().

%% @doc A callback has returned that had begun at that time.
-spec callback(atom(), weir_tcp:socket(), integer() | untimed, timing()) -> ok.
callback(_Callback, _Socket, untimed, _Timing) ->
    ok;
callback(Callback, Socket, Begin, Timing = #timing{long = Long}) ->
    case erlang:monotonic_time() - Begin of
        Took when Took < Long -> ok;
        Took -> warn(io_lib:format("~s for ~0p", [Callback, Socket]), Took, Timing)
    end.

warn(What, Took, #timing{module = Module}) ->
    weir_reports:say(fun() ->
        weir_reports:log(warning, #{
            what => lists:flatten([What, " took long, and all connections of the reactor have waited"]),
            reactor => self(),
            module => Module,
            took_ms => erlang:convert_time_unit(Took, native, millisecond)
        })
    end).
