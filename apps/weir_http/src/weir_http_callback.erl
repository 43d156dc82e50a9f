%% @private
%% @doc Callbacks of handlers whose connections have left the cycle of requests: one that fails is counted and reported, and
%% what becomes of its connection is the caller's matter.
-module(weir_http_callback).

-export([check/2]).
-export([run/4]).

-include("weir_http.hrl").

%% @doc Fails unless a module has the callback that it needs.
-spec check(module(), atom()) -> ok.
check(Module, Callback) ->
    is_atom(Module) andalso is_tuple(code:ensure_loaded(Module)) andalso erlang:function_exported(Module, Callback, 2) orelse
        error({not_a_handler, Module}),
    ok.

%% @doc Runs a fun for a callback of a module: it calls that, and does what the result says.
-spec run(module(), Callback :: atom(), Key :: term(), fun(() -> Result)) -> Result | {crashed, {error | exit | throw, term()}}.
run(Module, Callback, Key, Fun) ->
    try
        Fun()
    catch
        Class:Reason:Stack ->
            ok = weir_http_counters:add_for(Key, crashes),
            %% Neither messages nor state are told: they may hold what is secret.
            Report = #{
                what => "a handler of HTTP failed, and its client is cut off or gets a 500",
                domain => [weir, http],
                callback => {Module, Callback},
                reason => {Class, Reason},
                stacktrace => [weir_http_crash:without_arguments(Call) || Call <- Stack]
            },
            ok = weir_http_crash:report(Report, Key),
            {crashed, {Class, Reason}}
    end.
