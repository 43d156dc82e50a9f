%% @private
%% @doc Reports in bounded numbers: ten thousand connections that fail in the same way are a line or two in the log.
-module(weir_reports).

-export([new/0]).
-export([say/2]).

-include_lib("kernel/include/logger.hrl").

-export_type([limit/0]).

%% Reports in one period.
-define(REPORTS, 10).
-define(PERIOD_MS, 1000).

-record(limit, {since :: integer(), said = 0 :: non_neg_integer()}).

-opaque limit() :: #limit{}.

%% @doc A limit that nothing has been counted against.
-spec new() -> limit().
new() -> #limit{since = erlang:monotonic_time(millisecond)}.

%% @doc Says something, unless too much was said lately. How many reports were left out is told with the next.
-spec say(limit(), fun(() -> term())) -> limit().
say(Limit = #limit{since = Since, said = Said}, Say) ->
    case erlang:monotonic_time(millisecond) of
        Now when Now - Since >= ?PERIOD_MS ->
            Said =< ?REPORTS orelse ?LOG_WARNING("weir: ~b more reports were left out", [Said - ?REPORTS]),
            _ = Say(),
            #limit{since = Now, said = 1};
        _ when Said < ?REPORTS ->
            _ = Say(),
            Limit#limit{said = Said + 1};
        _ ->
            Limit#limit{said = Said + 1}
    end.
