%% @doc A push server, started from settings that can be changed while it runs.
%%
%% There is one in a node, because policies and limits are for all channels of the node.
-module(weir_pubsub_server).

-export([start/1]).
-export([change/2]).
-export([stop/1]).
-export([ports/1]).

-export_type([server/0, reason/0]).

-record(server, {listeners :: [weir_pubsub_file:listener()], drain :: drain()}).

-opaque server() :: #server{}.

-type reason() ::
    {listen, inet:ip_address(), inet:port_number(), term()}
    | {fixed, inet:ip_address(), inet:port_number(), access_log | proxy_protocol | tls}
    | {fixed, broker}
    | {access_log, inet:ip_address(), inet:port_number(), term()}
    | {bad_key, weir_pubsub_keys:source(), weir_pubsub_keys:reason()}.
%% `listen': a listener cannot be started there. `fixed': it cannot be changed while the listener runs; the broker
%% cannot be changed after the application has started. `access_log': the file cannot be reopened.

-type drain() :: {Timeout :: pos_integer(), Spread :: non_neg_integer()}.

-define(KEYS, ?MODULE).

%% @doc Starts the listeners, and applies the settings.
-spec start(weir_pubsub_file:settings()) -> {ok, server()} | {error, reason()}.
start(Settings) -> apply_settings(#server{listeners = [], drain = drain(Settings)}, Settings).

%% @doc Applies other settings. Connections stay, except those of a listener that is gone, which is drained. Later
%% requests are answered by the new settings. Access logs are reopened by name, so that a file which was rotated away
%% is no longer written. After an error the settings are those of before.
-spec change(weir_pubsub_file:settings(), server()) -> {ok, server()} | {error, reason()}.
change(Settings, Server) -> apply_settings(Server, Settings).

apply_settings(Server, #{broker := Broker} = Settings) ->
    case weir_pubsub_broker:is(Broker) of
        true -> apply_listeners(Server, Settings);
        false -> {error, {fixed, broker}}
    end.

apply_listeners(#server{listeners = Before}, #{listeners := Now} = Settings) ->
    {Kept, Added} = lists:partition(fun(Listener) -> is_map_key(name(Listener), by_name(Before)) end, Now),
    Gone = maps:values(maps:without([name(Listener) || Listener <- Now], by_name(Before))),
    Fixed = [
        {fixed, Ip, Port, Key}
     || #{ip := Ip, port := Port} = Listener <- Kept,
        Key <- [access_log, proxy_protocol, tls],
        map_get(Key, Listener) =/= map_get(Key, map_get(name(Listener), by_name(Before)))
    ],
    case Fixed of
        [] ->
            case reopened(Kept) of
                ok -> added(Added, Kept, Gone, Settings);
                {error, _} = Error -> Error
            end;
        [First | _] ->
            {error, First}
    end.

reopened([#{access_log := off} | Listeners]) ->
    reopened(Listeners);
reopened([#{ip := Ip, port := Port} = Listener | Listeners]) ->
    case weir_http:reopen_log(name(Listener)) of
        ok -> reopened(Listeners);
        {error, Reason} -> {error, {access_log, Ip, Port, Reason}}
    end;
reopened([]) ->
    ok.

%% First what can fail.
added(Added, Kept, Gone, #{keys := Keys} = Settings) ->
    Routes = routes(Settings),
    case listen(Added, Routes, []) of
        ok ->
            case weir_pubsub_keys:load(?KEYS, Keys) of
                ok -> settled(Settings, Routes, Kept, Gone);
                {error, _} = Error -> close(Added), Error
            end;
        {error, _} = Error ->
            Error
    end.

settled(#{channels := Channels, listeners := Listeners} = Settings, Routes, Kept, Gone) ->
    Drain = drain(Settings),
    ok = weir_pubsub_authorizer:configure(maps:get(ask, Settings)),
    ok = weir_pubsub:configure(with_updates(Settings, Channels)),
    %% New connections get the certificates that are in the files now.
    _ = [ssl:clear_pem_cache() || #{tls := #{}} <- Kept],
    lists:foreach(
        fun(#{max_connections := Most} = Listener) ->
            ok = weir_http:set_routes(name(Listener), Routes),
            ok = weir:set_max_connections(name(Listener), Most)
        end,
        Kept
    ),
    _ = [spawn(fun() -> end_listener(Listener, Drain) end) || Listener <- Gone],
    {ok, #server{listeners = Listeners, drain = Drain}}.

%% Its policy comes first, so that no pattern of the file applies to it.
with_updates(#{mercure := none}, Channels) ->
    Channels;
with_updates(#{mercure := #{policy := Policy}}, #{channels := Patterns} = Channels) ->
    Channels#{channels := [{weir_pubsub_mercure:channel(), Policy} | Patterns]}.

drain(#{drain := Timeout, spread := Spread}) -> {Timeout, Spread}.

name(#{ip := Ip, port := Port}) -> {?MODULE, Ip, Port}.

by_name(Listeners) -> maps:from_list([{name(Listener), Listener} || Listener <- Listeners]).

listen([#{ip := Ip, port := Port} = Listener | Listeners], Routes, Started) ->
    case weir_http:start_listener(name(Listener), options(Listener), Routes) of
        {ok, _} ->
            listen(Listeners, Routes, [Listener | Started]);
        {error, Reason} ->
            close(Started),
            {error, {listen, Ip, Port, Reason}}
    end;
listen([], _Routes, _Started) ->
    ok.

options(#{tls := none} = Listener) ->
    maps:remove(tls, Listener);
options(#{tls := #{cert := Certificate, key := Key}} = Listener) ->
    Listener#{tls := [{certfile, Certificate}, {keyfile, Key}]}.

close(Listeners) -> lists:foreach(fun(Listener) -> ok = weir_http:stop_listener(name(Listener)) end, Listeners).

%% @doc Drains all listeners, and stops them.
-spec stop(server()) -> ok.
stop(#server{listeners = Listeners, drain = Drain}) ->
    Monitors = [spawn_monitor(fun() -> end_listener(Listener, Drain) end) || Listener <- Listeners],
    lists:foreach(fun({_, Monitor}) -> receive {'DOWN', Monitor, _, _, _} -> ok end end, Monitors),
    ok = weir_pubsub_authorizer:configure(none),
    weir_pubsub_keys:forget(?KEYS).

end_listener(Listener, {Timeout, Spread}) ->
    _ = weir_http:drain_listener(name(Listener), Timeout, #{spread => Spread}),
    weir_http:stop_listener(name(Listener)).

%% @doc Returns the ports of its listeners, in the order of the settings.
-spec ports(server()) -> [inet:port_number()].
ports(#server{listeners = Listeners}) -> [weir:get_port(name(Listener)) || Listener <- Listeners].

routes(#{transports := Transports, origins := Origins} = Settings) ->
    #{listeners := Listeners, status := Status} = Settings,
    IsAny = weir_pubsub_http:transports() -- Transports =:= [],
    May = fun(Right, Request, Channel) -> may(Right, Request, Channel, Settings) end,
    Nchan = weir_pubsub_http:routes((maps:with(
        [origins, plain, poll_answer, poll_timeout, stream_timeout, deflate, max_body], Settings
    ))#{
        publishers => fun(Request, Channel) -> May(publish, Request, Channel) end,
        subscribers => fun(Request, Channel) ->
            %% The transport is determined again when the request is served.
            (IsAny orelse lists:member(weir_pubsub_http:transport(Request), Transports)) andalso
                may_subscribe(Request, Channel, Settings)
        end
    }),
    [weir_pubsub_ws:route(#{may => May, origins => Origins}) || lists:member(websocket, Transports)] ++
        weir_pubsub_status:routes([name(Listener) || Listener <- Listeners], fun(Request) ->
            is_told(Request, Status)
        end) ++
        weir_pubsub_script:routes() ++ mercure(Settings) ++ Nchan.

mercure(#{mercure := none}) ->
    [];
mercure(#{mercure := Mercure, tokens := Tokens, origins := Origins, max_body := MaxBody}) ->
    weir_pubsub_mercure:routes(
        maps:merge(
            maps:with([anonymous, cookie, subscriptions], Mercure), #{
                keys => ?KEYS, tokens => Tokens, origins => Origins, max_body => MaxBody
            }
        )
    ).

is_told(_Request, any) -> true;
is_told(Request, local) -> weir_pubsub_access:is_local(Request);
is_told(_Request, nobody) -> false.

%% Subscribers with these URLs also get messages that are kept.
may_subscribe(Request, Channel, Settings) ->
    weir_pubsub_access:all([fun() -> may(Right, Request, Channel, Settings) end || Right <- [subscribe, history]]).

may(Right, Request, Channel, #{rules := Rules, tokens := Tokens}) ->
    weir_pubsub_rules:allows(Right, Request, Channel, Rules, weir_pubsub_access:by_token(Right, ?KEYS, Tokens)).
