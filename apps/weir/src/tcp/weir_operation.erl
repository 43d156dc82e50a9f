%% @private
%% @doc Waits for the native side: an operation that cannot complete at once is answered by one message.
%%
%% A process may wait here for its whole life. No other code of Weir is on its stack then, and on request it continues
%% here in a newer version of this module (see {@link weir_code_change}). So the code after the wait is named by module
%% and function.
-module(weir_operation).

-export([await/3]).
-export([await/4]).
-export([await_until/4]).
-export([cancel/3]).

%% The longest timeout of `receive', 49 days. A `badarg' there would leave the operation and its data behind.
-define(LONGEST_MS, 16#ffffffff).

-type continuation() :: return | {module(), Function :: atom(), Arguments :: [term()]}.
%% A function to call with the result as its last argument.

%% @doc Returns the result of a waiting operation, or `{error, timeout}'. Leaves no message of the operation behind.
-spec await(weir_nif:handle(), weir_nif:operation(), timeout()) -> term().
await(Handle, Operation, Timeout) ->
    await(Handle, Operation, Timeout, return).

%% @doc The same, then calls the continuation with the result. Must be a tail call.
-spec await(weir_nif:handle(), weir_nif:operation(), timeout(), continuation()) -> term().
await(Handle, Operation, infinity, Next) ->
    await_until(Handle, Operation, infinity, Next);
await(Handle, Operation, Timeout, Next) ->
    await_until(Handle, Operation, erlang:monotonic_time(millisecond) + Timeout, Next).

%% @doc The same, with a deadline.
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

%% @doc Cancels an operation and returns `Cancelled'; if the operation is done already, its result.
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
