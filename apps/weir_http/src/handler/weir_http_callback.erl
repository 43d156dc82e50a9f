%% @private
%% @doc Runs handler callbacks of switched connections. A failure is counted and reported; the caller decides what
%% happens to the connection.
-module(weir_http_callback).

-export([check/2]).
-export([run/4]).

-include("weir_http.hrl").

%% @doc Fails with `{not_a_handler, Module}' unless the module exports the callback with two arguments.
-spec check(module(), atom()) -> ok.
check(Module, Callback) ->
    is_atom(Module) andalso is_tuple(code:ensure_loaded(Module)) andalso
        erlang:function_exported(Module, Callback, 2) orelse
        error({not_a_handler, Module}),
    ok.

%% @doc Runs a fun that calls the callback of a module and acts on its result.
-spec run(module(), Callback :: atom(), Key :: term(), fun(() -> Result)) ->
    Result | {crashed, {error | exit | throw, term()}}.
run(Module, Callback, Key, Fun) ->
    try
        Fun()
    catch
        Class:Reason:Stack ->
            ok = weir_http_counters:add_for(Key, crashes),
            %% Messages and state are not logged: they may contain secrets.
            Report = #{
                what => "an HTTP handler failed; its client is disconnected or gets a 500",
                domain => [weir, http],
                callback => {Module, Callback},
                reason => {Class, Reason},
                stacktrace => [weir_http_crash:without_arguments(Call) || Call <- Stack]
            },
            ok = weir_http_crash:report(Report, Key),
            {crashed, {Class, Reason}}
    end.
