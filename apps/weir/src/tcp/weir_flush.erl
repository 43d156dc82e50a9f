%% @private
%% @doc Closes a socket with queued output: the caller waits until the peer has taken it, or stops taking it.
-module(weir_flush).

-export([close/2]).

-import(weir_operation, [cancel/3]).

%% The most milliseconds that close waits for queued output in all, and without progress, as in prim_inet.
-define(CLOSE_MS, 180_000).
-define(CLOSE_STALL_MS, 5_000).

%% @doc Waits for the end of a `flush', then closes the socket; remaining output is sent in the background.
-spec close(weir_nif:handle(), weir_nif:operation()) -> ok.
close(Handle, Operation) ->
    Limit =
        case weir_nif:getopts(Handle, [linger]) of
            {ok, [{linger, {true, Seconds}}]} when Seconds >= 0 -> Seconds * 1000;
            _ -> ?CLOSE_MS
        end,
    await_flush(Handle, Operation, erlang:monotonic_time(millisecond) + Limit, pending(Handle)),
    _ = weir_nif:close(Handle, background),
    ok.

await_flush(Handle, Operation, Deadline, Pending) ->
    Wait = min(?CLOSE_STALL_MS, max(0, Deadline - erlang:monotonic_time(millisecond))),
    receive
        {'$weir', Handle, Operation, renew} -> await_flush(Handle, Operation, Deadline, Pending);
        {'$weir', Handle, Operation, _Result} -> ok
    after Wait ->
        case pending(Handle) of
            Less when Less < Pending, Wait > 0 -> await_flush(Handle, Operation, Deadline, Less);
            _ -> cancel(Handle, Operation, {error, timeout})
        end
    end.

pending(Handle) ->
    case weir_nif:getstat(Handle) of
        {ok, Values} -> proplists:get_value(send_pend, Values);
        {error, _} -> 0
    end.
