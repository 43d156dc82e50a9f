%% @private
%% @doc The application: listeners. What sockets need is the {@link weir_engine}, which outlives it.
-module(weir_app).
-behaviour(application).

-export([start/2]).
-export([prep_stop/1]).
-export([stop/1]).

-include_lib("kernel/include/logger.hrl").

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    %% Whether there is one is asked for each event, which should not search the code path.
    _ = code:ensure_loaded(telemetry),
    case weir_pollsets:ensure_started() of
        ok ->
            weir_sup:start_link();
        {error, no_native_part} ->
            ?LOG_WARNING("weir: no native part (~0p), sockets are OTP's own", [weir_nif:load_error()]),
            weir_sup:start_link();
        {error, _} = Error ->
            Error
    end.

%% Those in a tree of the user's own stay, without listening sockets, and can be resumed; ours are stopped after this.
-spec prep_stop(term()) -> stopping.
prep_stop(_State) ->
    _ = weir_ending:vm_stops() orelse lists:foreach(fun suspend/1, weir_listener:names()),
    stopping.

%% One that dies meanwhile has closed its sockets itself.
suspend(Name) ->
    try
        weir_listener:suspend(Name)
    catch
        _:_ -> ok
    end.

%% Not asked to stop, the supervisor has given up.
-spec stop(term()) -> ok.
stop(State) ->
    case weir_ending:vm_stops() of
        true ->
            ok;
        false ->
            Sockets = weir_ending:all(),
            _ = State =:= stopping orelse
                ?LOG_ERROR("weir: its listeners have died again and again; it stops, and ~b sockets were closed", [Sockets]),
            ok
    end.
