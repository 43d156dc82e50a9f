%% @private
%% @doc Reports for the log: maps, in one shape, and in bounded numbers.
%%
%% A report is a map: `what' says in a few words what happened, and the other keys say to whom, by the names that events
%% have for them ({@link weir_event}). Handlers of the log get the map as it is, with `domain => [weir]' in the metadata;
%% for a reader it becomes a line: `weir: ' and what happened, then the keys.
%%
%% Ten thousand connections that fail in the same way are a line or two. The limit is one of the calling process
%% ({@link say/1}), which has it in its dictionary; or of many that share it ({@link log/3}).
-module(weir_reports).

-export([log/2]).
-export([log/3]).
-export([say/1]).
-export([new_limit/0]).
-export([let_through/0]).
-export([format/1]).

-export_type([report/0, limit/0]).

-type report() :: #{what := string(), domain => [atom()], atom() => term()}.
%% `domain' is that of the metadata, `[weir]' unless given. `peer' is an address, `listener' a name, `reason' why it happened, `stacktrace' where.

-opaque limit() :: atomics:atomics_ref().
%% Of many processes.

%% Reports in one period.
-define(REPORTS, 10).
-define(PERIOD_MS, 1000).

%% Where the beginning of the period is kept, and how many reports there were since.
-define(LIMIT, ?MODULE).

%% The places of a shared limit.
-define(SINCE, 1).
-define(SAID, 2).

%% Depth to which terms are shown.
-define(DEPTH, 50).

%% @doc Puts a report into the log.
-spec log(logger:level(), report()) -> ok.
log(Level, Report) ->
    {Domain, Said} =
        case maps:take(domain, Report) of
            {Given, Others} -> {Given, Others};
            error -> {[weir], Report}
        end,
    logger:log(Level, Said, #{domain => Domain, report_cb => fun ?MODULE:format/1}).

%% @doc The same, unless those who share the limit have said too much lately. The next report says how many were left out.
-spec log(logger:level(), report(), limit()) -> ok.
log(Level, Report, Limit) ->
    Now = erlang:monotonic_time(millisecond),
    Since = atomics:get(Limit, ?SINCE),
    case Now - Since >= ?PERIOD_MS andalso atomics:compare_exchange(Limit, ?SINCE, Since, Now) of
        ok ->
            %% A period begins, with this report.
            case atomics:exchange(Limit, ?SAID, 1) - ?REPORTS of
                LeftOut when LeftOut > 0 -> log(Level, Report#{left_out => LeftOut});
                _ -> log(Level, Report)
            end;
        _ ->
            case atomics:add_get(Limit, ?SAID, 1) =< ?REPORTS of
                true -> log(Level, Report);
                false -> ok
            end
    end.

%% @doc Has the handler `default' of Erlang's log take our reports. As the kernel configures it, it stops every event that
%% has a domain but OTP's own; a filter that somebody has put there before ours still comes first.
-spec let_through() -> ok.
let_through() ->
    case logger:get_handler_config(default) of
        {ok, #{filter_default := stop}} ->
            %% There already, if this is the second time.
            _ = logger:add_handler_filter(default, weir, {fun logger_filters:domain/2, {log, sub, [weir]}}),
            ok;
        _ ->
            ok
    end.

%% @doc A limit for many processes.
-spec new_limit() -> limit().
new_limit() ->
    Limit = atomics:new(2, [{signed, true}]),
    ok = atomics:put(Limit, ?SINCE, erlang:monotonic_time(millisecond) - ?PERIOD_MS),
    Limit.

%% @doc A report as text.
-spec format(report()) -> {io:format(), [term()]}.
format(Report = #{what := What}) ->
    Keys = lists:sort(maps:keys(maps:without([what, stacktrace], Report))),
    Shown = [[atom_to_list(Key), $=, shown(Key, maps:get(Key, Report))] || Key <- Keys],
    Where =
        case Report of
            #{stacktrace := Stack} -> io_lib:format("~n~0tp", [Stack]);
            #{} -> ""
        end,
    {"weir: ~ts; ~ts~ts", [What, lists:join(", ", Shown), Where]}.

shown(peer, {IP, Port}) when is_tuple(IP), tuple_size(IP) =:= 8 -> [$[, inet:ntoa(IP), "]:", integer_to_list(Port)];
shown(peer, {IP, Port}) when is_tuple(IP), is_integer(Port) -> [inet:ntoa(IP), $:, integer_to_list(Port)];
shown(_Key, Value) -> io_lib:format("~0tP", [Value, ?DEPTH]).

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
            ok = log(warning, #{what => "more reports were left out", left_out => Said - ?REPORTS}),
            said(Now, 1, Say);
        _ ->
            said(Now, 1, Say)
    end.

said(Since, Said, Say) ->
    _ = put(?LIMIT, {Since, Said}),
    _ = Say(),
    ok.
