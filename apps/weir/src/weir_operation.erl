%% @private
%% @doc Waiting for the native side: an operation that could not be done at once is answered by one message.
-module(weir_operation).

-export([await/3]).
-export([cancel/3]).

%% @doc The result of an operation that waits, or `{error, timeout}'. Whatever ends the wait, no message of it is left
%% over.
-spec await(weir_nif:handle(), weir_nif:operation(), timeout()) -> term().
await(Handle, Operation, Timeout) ->
    receive
        {'$weir', Handle, Operation, Result} -> Result
    after Timeout -> cancel(Handle, Operation, {error, timeout})
    end.

%% @doc Takes an operation back and returns `Cancelled', unless it is done: then its result counts.
-spec cancel(weir_nif:handle(), weir_nif:operation(), Cancelled :: term()) -> term().
cancel(Handle, Operation, Cancelled) ->
    case weir_nif:cancel(Handle, Operation) of
        ok ->
            Cancelled;
        {error, replied} ->
            receive
                {'$weir', Handle, Operation, Result} -> Result
            after 0 -> Cancelled
            end
    end.
