%% @private
%% @doc Log reports: maps in one format, with a rate limit.
%%
%% In a report, `what' says in a few words what happened, and the other keys say where, by the names that events use
%% ({@link weir_event}). Log handlers get the map as it is, with `domain => [weir]' in the metadata. As text it is one
%% line: `weir: ', what happened, then the keys.
%%
%% Ten thousand connections that fail in the same way give a few lines. The limit is that of the calling process
%% ({@link say/1}), in its dictionary, or is shared by many processes ({@link log/3}).
-module(weir_reports).

-export([log/2]).
-export([log/3]).
-export([say/1]).
-export([new_limit/0]).
-export([let_through/0]).
-export([format/1]).

-export_type([report/0, limit/0]).

-type report() :: #{what := string(), domain => [atom()], atom() => term()}.
%% `domain' is that of the metadata, by default `[weir]'. `peer' is an address, `listener' a name, `reason' the cause,
%% `stacktrace' the place.

-opaque limit() :: atomics:atomics_ref().
%% A limit shared by many processes.

%% Reports in one period.
-define(REPORTS, 10).
-define(PERIOD_MS, 1000).

%% The key in the process dictionary of the period's start and its number of reports.
-define(LIMIT, ?MODULE).

%% Indexes of a shared limit.
-define(SINCE, 1).
-define(SAID, 2).

%% Depth to which terms are shown.
-define(DEPTH, 50).

%% @doc Logs a report.
-spec log(logger:level(), report()) -> ok.
log(Level, Report) ->
    {Domain, Said} =
        case maps:take(domain, Report) of
            {Given, Others} -> {Given, Others};
            error -> {[weir], Report}
        end,
    logger:log(Level, Said, #{domain => Domain, report_cb => fun ?MODULE:format/1}).

%% @doc Logs a report, unless the limit is exceeded. The first report of the next period has the number of omitted
%% ones.
-spec log(logger:level(), report(), limit()) -> ok.
log(Level, Report, Limit) ->
    Now = erlang:monotonic_time(millisecond),
    Since = atomics:get(Limit, ?SINCE),
    case Now - Since >= ?PERIOD_MS andalso atomics:compare_exchange(Limit, ?SINCE, Since, Now) of
        ok ->
            %% This report begins a period.
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

%% @doc Makes the log handler `default' accept Weir's reports. By default the kernel configures it to stop all events
%% with a domain other than OTP's. Filters that were added earlier still come first.
-spec let_through() -> ok.
let_through() ->
    case logger:get_handler_config(default) of
        {ok, #{filter_default := stop}} ->
            %% An error means that it was added before.
            _ = logger:add_handler_filter(default, weir, {fun logger_filters:domain/2, {log, sub, [weir]}}),
            ok;
        _ ->
            ok
    end.

%% @doc Creates a limit for many processes.
-spec new_limit() -> limit().
new_limit() ->
    Limit = atomics:new(2, [{signed, true}]),
    ok = atomics:put(Limit, ?SINCE, erlang:monotonic_time(millisecond) - ?PERIOD_MS),
    Limit.

%% @doc Formats a report as text, for `report_cb'.
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

%% @doc Calls a fun that logs, unless the calling process exceeds its limit. The number of omitted reports is logged
%% with the next one.
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
            ok = log(warning, #{what => "reports were left out", left_out => Said - ?REPORTS}),
            said(Now, 1, Say);
        _ ->
            said(Now, 1, Say)
    end.

said(Since, Said, Say) ->
    _ = put(?LIMIT, {Since, Said}),
    _ = Say(),
    ok.
