%% @private
%% @doc HTTP listeners: Weir listeners whose reactors serve HTTP.
%%
%% The configuration of a listener is a `#http{}' in a persistent term. Each start makes a new key, and connections
%% keep the key: they find it at no cost, and new routes reach existing connections.
-module(weir_http_listener).

-export([start/3]).
-export([child_spec/3]).
-export([start_link/3]).
-export([stop/1]).
-export([drain/3]).
-export([set_routes/2]).
-export([info/1]).
-export([reopen_log/1]).

-include("weir_http.hrl").

-define(KEY(Name), {weir_http, Name}).

%% @doc See `weir_http:start_listener/3'.
-spec start(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) ->
    {ok, pid()} | {error, term()}.
start(Name, Options, Routes) ->
    start_with(Name, Options, Routes, fun(Given, Arguments) ->
        weir:start_listener(Name, Given, handler(Given), Arguments)
    end).

%% @doc See `weir_http:child_spec/3'.
-spec child_spec(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) ->
    supervisor:child_spec().
child_spec(Name, Options, Routes) ->
    case prepare(Name, Options, Routes) of
        {ok, _Http, Given} ->
            Spec = weir:child_spec(Name, Given, handler(Given), undefined),
            Spec#{start := {?MODULE, start_link, [Name, Options, Routes]}};
        {error, Bad} ->
            error(Bad)
    end.

%% @doc Starts a listener that is linked to the caller, a supervisor.
-spec start_link(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) ->
    {ok, pid()} | {error, term()}.
start_link(Name, Options, Routes) ->
    Started = start_with(Name, Options, Routes, fun(Given, Arguments) ->
        #{start := {Module, Function, Args}} = weir:child_spec(Name, Given, handler(Given), Arguments),
        apply(Module, Function, Args)
    end),
    case Started of
        {ok, Pid} -> owned(persistent_term:get(key(Name)), Pid);
        {error, _} -> ok
    end,
    Started.

owned(#http{log = off}, _Pid) -> ok;
owned(#http{log = Log}, Pid) -> weir_http_log:owned(Log, Pid).

%% TLS connections are ssl's: each has a process.
handler(#{tls := Tls}) when Tls =/= undefined -> fun weir_http_tls:serve/2;
handler(#{}) -> weir_http_connection.

start_with(Name, Options, Routes, Start) ->
    case prepare(Name, Options, Routes) of
        {ok, Http, Given} ->
            case logging(Http) of
                {ok, Logging} -> started(Start, Given, Logging);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

logging(Http = #http{log = off}) ->
    {ok, Http};
logging(Http = #http{name = Name, log = Options, counters = Counters}) ->
    case weir_http_log:open(Name, Options, Counters) of
        {ok, Log} -> {ok, Http#http{log = Log}};
        {error, _} = Error -> Error
    end.

started(Start, Given, Http = #http{name = Name}) ->
    Key = {weir_http_listener, make_ref()},
    ok = persistent_term:put(Key, Http),
    case Start(Given, weir_http_connection:arguments(Key)) of
        {ok, Pid} ->
            alone(Name, fun() ->
                ok = forget(Name),
                %% It may have been stopped in the meantime.
                case is_process_alive(Pid) of
                    true -> persistent_term:put(?KEY(Name), Key);
                    false -> discard(Key)
                end
            end),
            {ok, Pid};
        {error, Reason} ->
            ok = discard(Key),
            {error, weir_http_options:with_ours(Reason)}
    end.

discard(Key) ->
    case persistent_term:get(Key, none) of
        #http{log = Log} ->
            _ = persistent_term:erase(Key),
            _ = Log =:= off orelse weir_http_log:close(Log),
            ok;
        none ->
            ok
    end.

%% Serialises the changes to the terms of one name by concurrent starts and stops. Do must not wait for connections.
alone(Name, Do) -> global:trans({{?MODULE, Name}, self()}, Do, [node()]).

prepare(Name, Options, Routes) ->
    case weir_http_routes:new(Routes) of
        {ok, Compiled} -> weir_http_options:new(Name, Options, Compiled);
        {error, _} = Error -> Error
    end.

%% @doc See `weir_http:stop_listener/1'.
-spec stop(weir_listener:name()) -> ok | {error, {no_listener, weir_listener:name()}}.
stop(Name) ->
    case persistent_term:get(?KEY(Name), none) of
        none ->
            {error, {no_listener, Name}};
        _ ->
            Stopped = weir:stop_listener(Name),
            alone(Name, fun() ->
                %% It may have been started again in the meantime.
                _ = lists:member(Name, weir:listeners()) orelse forget(Name),
                Stopped
            end)
    end.

forget(Name) ->
    case persistent_term:get(?KEY(Name), none) of
        none ->
            ok;
        Key ->
            _ = persistent_term:erase(?KEY(Name)),
            discard(Key)
    end.

%% @doc See `weir_http:drain_listener/3'.
-spec drain(weir_listener:name(), timeout(), #{spread => non_neg_integer()}) ->
    ok | {error, {timeout, pos_integer()} | weir_checked_options:bad_option()}.
drain(Name, Timeout, Options) ->
    Http = persistent_term:get(key(Name)),
    Allowed = fun(spread, Spread) ->
        %% Timeout may be infinity: in the order of terms a number is less than an atom.
        (is_integer(Spread) andalso Spread >= 0 andalso Spread =< Timeout) orelse "milliseconds from 0 to the timeout"
    end,
    case weir_checked_options:check(Options, [spread], Allowed) of
        ok ->
            ok = weir_http_timeouts:begin_drain(maps:get(spread, Options, 0), Http),
            ok = weir_http_tls:drain(Name),
            weir:drain_listener(Name, Timeout);
        {error, _} = Error ->
            Error
    end.

%% @doc See `weir_http:set_routes/2'.
-spec set_routes(weir_listener:name(), [weir_http_routes:route()]) -> ok | {error, term()}.
set_routes(Name, Routes) ->
    _ = key(Name),
    case weir_http_routes:new(Routes) of
        {ok, Compiled} ->
            Key = key(Name),
            _ = [
                persistent_term:put(Key, Http#http{routes = Compiled})
             || Http = #http{} <- [persistent_term:get(Key, none)]
            ],
            %% stop/1 erases the name first. If the name is gone now, our put may have come after its erase.
            case persistent_term:get(?KEY(Name), none) of
                Key ->
                    ok;
                _ ->
                    discard(Key),
                    error({no_listener, Name})
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc See `weir_http:info/1'.
-spec info(weir_listener:name()) -> map().
info(Name) ->
    #http{counters = Counters} = persistent_term:get(key(Name)),
    maps:merge(weir:info(Name), weir_http_counters:get(Counters)).

%% @doc See `weir_http:reopen_log/1'.
-spec reopen_log(weir_listener:name()) -> ok | {error, term()}.
reopen_log(Name) ->
    case persistent_term:get(key(Name)) of
        #http{log = off} -> {error, no_access_log};
        #http{log = Log} -> weir_http_log:reopen(Log)
    end.

key(Name) ->
    case persistent_term:get(?KEY(Name), none) of
        none -> error({no_listener, Name});
        Key -> Key
    end.
