%% @private
%% @doc Handlers that have failed: each is counted and told, without what may hold a secret.
-module(weir_http_crash).

-export([response/6]).
-export([report/2]).
-export([without_arguments/1]).

-export_type([listener/0]).

-include("weir_http.hrl").

-type listener() :: {weir_listener:name(), weir_http_counters:counters(), weir_reports:limit()}.

%% @doc Counts and reports a handler that has failed. Returns what its client gets, if that has got nothing yet.
-spec response(error | exit | throw, term(), list(), weir_http_request:request(), weir_http_response:wanted(), listener()) ->
    {weir_http_response:after_it(), iodata()}.
response(Class, Reason, Stack, Request, Wanted, {Name, Counters, Reports}) ->
    ok = weir_http_counters:add(Counters, crashes),
    ok = weir_http_observation:crashed({Class, Reason, Stack}, Request, Name),
    ok = report(Class, Reason, Stack, Request, Name, Reports),
    weir_http_response:without_body(500, [], Request, Wanted).

%% Neither fields nor body are told: they may hold what is secret.
report(Class, Reason, Stack, Request, Name, Reports) ->
    Report = #{
        what => "a handler of HTTP failed, its client gets a 500 or is cut off",
        domain => [weir, http],
        listener => Name,
        method => weir_http_request:method(Request),
        path => weir_http_request:path(Request),
        request_id => weir_http_request:id(Request),
        reason => {Class, Reason},
        stacktrace => [without_arguments(Call) || Call <- Stack]
    },
    weir_reports:log(error, Report, Reports).

%% @doc Tells that something has failed, with the name of the listener that has this key. A connection of TLS may end after that.
-spec report(weir_reports:report(), Key :: term()) -> ok.
report(Report, Key) ->
    case persistent_term:get(Key, forgotten) of
        #http{name = Name, reports = Reports} -> weir_reports:log(error, Report#{listener => Name}, Reports);
        forgotten -> weir_reports:say(fun() -> weir_reports:log(error, Report) end)
    end.

%% @doc A call of a stack trace without its arguments, which may hold what is secret.
-spec without_arguments(tuple()) -> tuple().
without_arguments({Module, Function, Arguments, Where}) when is_list(Arguments) ->
    {Module, Function, length(Arguments), Where};
without_arguments({Function, Arguments, Where}) when is_list(Arguments) ->
    {Function, length(Arguments), Where};
without_arguments(Call) ->
    Call.
