%% @private
%% @doc The application: listeners. The processes that sockets need are in the {@link weir_engine}, which outlives it.
-module(weir_app).
-behaviour(application).

-export([start/2]).
-export([prep_stop/1]).
-export([stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    ok = weir_reports:let_through(),
    case weir_pollsets:ensure_started() of
        ok ->
            weir_sup:start_link();
        {error, no_native_part} ->
            weir_reports:log(warning, #{
                what => "no native part; sockets are OTP's", reason => weir_native:load_error()
            }),
            weir_sup:start_link();
        {error, _} = Error ->
            Error
    end.

%% Listeners in users' own supervisors return when Weir is started again; Weir's own listeners are stopped after this.
-spec prep_stop(term()) -> stopping.
prep_stop(_State) ->
    stopping.

%% Without prep_stop/1 the supervisor has given up.
-spec stop(term()) -> ok.
stop(State) ->
    case weir_close_all:vm_stops() of
        true ->
            ok;
        false ->
            Sockets = weir_close_all:all(),
            _ = State =:= stopping orelse
                weir_reports:log(error, #{
                    what => "the listeners restarted too often; the application stops and closes all sockets",
                    sockets => Sockets
                }),
            ok
    end.
