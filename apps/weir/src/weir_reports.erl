%% @private
%% @doc Reports in bounded numbers: ten thousand connections that fail in the same way are a line or two in the log.
%%
%% The limit is one of the calling process, which has it in its dictionary.
-module(weir_reports).

-export([say/1]).

-include_lib("kernel/include/logger.hrl").

%% Reports in one period.
-define(REPORTS, 10).
-define(PERIOD_MS, 1000).

%% Where the beginning of the period is kept, and how many reports there were since.
-define(LIMIT, ?MODULE).

%% @doc Says something, unless the caller has said too much lately. How many reports were left out is told with the next.
-spec say(fun(() -> term())) -> ok.
say(Say) ->
    Now = erlang:monotonic_time(millisecond),
    case get(?LIMIT) of
        {Since, Said} when Now - Since < ?PERIOD_MS, Said < ?REPORTS ->
            said(Since, Said + 1, Say);
        {Since, Said} when Now - Since < ?PERIOD_MS ->
            _ = put(?LIMIT, {Since, Said + 1}),
            ok;
        {_, Said} when Said > ?REPORTS ->
            ?LOG_WARNING("weir: ~b more reports were left out", [Said - ?REPORTS]),
            said(Now, 1, Say);
        _ ->
            said(Now, 1, Say)
    end.

said(Since, Said, Say) ->
    _ = put(?LIMIT, {Since, Said}),
    _ = Say(),
    ok.
