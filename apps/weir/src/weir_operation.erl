%% @private
%% @doc Waiting for the native side: an operation that could not be done at once is answered by one message.
%%
%% A process may wait here for as long as it lives. Meanwhile no other code of Weir is on its stack, and it leaves this code
%% for a newer version of it when it is told to (see {@link weir_renewal}): what follows the wait is named by module and
%% function, and called when the wait is over.
-module(weir_operation).

-export([await/3]).
-export([await/4]).
-export([await_until/4]).
-export([cancel/3]).

%% The longest time of `receive', seven weeks. An exception there would leave the operation behind, and its data with it.
-define(LONGEST_MS, 16#ffffffff).

-type continuation() :: return | {module(), Function :: atom(), Arguments :: [term()]}.
%% What is called with the result, as the last of the arguments.

%% @doc The result of an operation that waits, or `{error, timeout}'. Whatever ends the wait, no message of it is left
%% over.
-spec await(weir_nif:handle(), weir_nif:operation(), timeout()) -> term().
await(Handle, Operation, Timeout) ->
    await(Handle, Operation, Timeout, return).

%% @doc The same, with what is to be done with the result: to be the last call of a function.
-spec await(weir_nif:handle(), weir_nif:operation(), timeout(), continuation()) -> term().
await(Handle, Operation, infinity, Next) ->
    await_until(Handle, Operation, infinity, Next);
await(Handle, Operation, Timeout, Next) ->
    await_until(Handle, Operation, erlang:monotonic_time(millisecond) + Timeout, Next).

%% @doc The same, with the time at which it ends.
-spec await_until(weir_nif:handle(), weir_nif:operation(), integer() | infinity, continuation()) -> term().
await_until(Handle, Operation, Deadline, Next) ->
    receive
        {'$weir', Handle, Operation, renew} -> ?MODULE:await_until(Handle, Operation, Deadline, Next);
        {'$weir', Handle, Operation, Result} -> continue(Next, Result)
    after left(Deadline) ->
        continue(Next, cancel(Handle, Operation, {error, timeout}))
    end.

left(infinity) -> infinity;
left(Deadline) -> min(?LONGEST_MS, max(0, Deadline - erlang:monotonic_time(millisecond))).

continue(return, Result) -> Result;
continue({Module, Function, Arguments}, Result) -> apply(Module, Function, Arguments ++ [Result]).

%% @doc Takes an operation back and returns `Cancelled', unless it is done: then its result counts.
-spec cancel(weir_nif:handle(), weir_nif:operation(), Cancelled :: term()) -> term().
cancel(Handle, Operation, Cancelled) ->
    case weir_nif:cancel(Handle, Operation) of
        ok ->
            forget_renewal(Handle, Operation),
            Cancelled;
        {error, replied} ->
            forget_renewal(Handle, Operation),
            receive
                {'$weir', Handle, Operation, Result} -> Result
            after 0 -> Cancelled
            end
    end.

forget_renewal(Handle, Operation) ->
    receive
        {'$weir', Handle, Operation, renew} -> forget_renewal(Handle, Operation)
    after 0 -> ok
    end.
