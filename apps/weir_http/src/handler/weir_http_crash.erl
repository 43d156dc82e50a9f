%% @private
%% @doc Counts and reports failed handlers, without data that may contain secrets.
-module(weir_http_crash).

-export([response/6]).
-export([report/2]).
-export([without_arguments/1]).

-export_type([listener/0]).

-include("weir_http.hrl").

-type listener() :: {weir_listener:name(), weir_http_counters:counters(), weir_reports:limit()}.

%% @doc Counts and reports a failed handler. Returns the response, for a client that has received nothing yet.
-spec response(
    error | exit | throw, term(), list(), weir_http_request:request(), weir_http_response:wanted(), listener()
) ->
    {weir_http_response:after_it(), iodata()}.
response(Class, Reason, Stack, Request, Wanted, {Name, Counters, Reports}) ->
    ok = weir_http_counters:add(Counters, crashes),
    ok = weir_http_observation:crashed({Class, Reason, Stack}, Request, Name),
    ok = report(Class, Reason, Stack, Request, Name, Reports),
    weir_http_response:without_body(500, [], Request, Wanted).

%% Fields and body are not logged: they may contain secrets.
report(Class, Reason, Stack, Request, Name, Reports) ->
    Report = #{
        what => "an HTTP handler failed; its client gets a 500 or is disconnected",
        domain => [weir, http],
        listener => Name,
        method => weir_http_request:method(Request),
        path => weir_http_request:path(Request),
        request_id => weir_http_request:id(Request),
        reason => {Class, Reason},
        stacktrace => [without_arguments(Call) || Call <- Stack]
    },
    weir_reports:log(error, Report, Reports).

%% @doc Logs a failure with the name of the listener that has this key. The listener may be stopped: a TLS connection
%% can outlive it.
-spec report(weir_reports:report(), Key :: term()) -> ok.
report(Report, Key) ->
    case persistent_term:get(Key, forgotten) of
        #http{name = Name, reports = Reports} -> weir_reports:log(error, Report#{listener => Name}, Reports);
        forgotten -> weir_reports:say(fun() -> weir_reports:log(error, Report) end)
    end.

%% @doc Removes the arguments from a call in a stack trace: they may contain secrets.
-spec without_arguments(tuple()) -> tuple().
without_arguments({Module, Function, Arguments, Where}) when is_list(Arguments) ->
    {Module, Function, length(Arguments), Where};
without_arguments({Function, Arguments, Where}) when is_list(Arguments) ->
    {Function, length(Arguments), Where};
without_arguments(Call) ->
    Call.
