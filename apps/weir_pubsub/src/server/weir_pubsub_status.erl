%% @doc The state of a push server over HTTP: `/status' (a page for browsers, otherwise JSON), `/metrics' (for
%% Prometheus) and
%% `/nchan_stub_status' (Nchan's lines).
-module(weir_pubsub_status).
-behaviour(weir_http_direct).

-export([routes/2]).
-export([status/1]).
-export([handle/2]).

-type kind() :: status | metrics | stub.

%% @doc Returns routes that report on the channels of the node and on these listeners. `May' decides who may read
%% them.
-spec routes([weir_listener:name()], fun((weir_http_request:request()) -> boolean())) -> [weir_http_routes:route()].
routes(Listeners, May) ->
    [
        {Path, ?MODULE, {Kind, Listeners, May}, #{methods => [<<"GET">>]}}
     || {Path, Kind} <- [{"/status", status}, {"/metrics", metrics}, {"/nchan_stub_status", stub}]
    ].

%% @private
-spec handle(
    weir_http_request:request(), {kind(), [weir_listener:name()], fun((weir_http_request:request()) -> boolean())}
) ->
    weir_http_direct:result().
handle(Request, {Kind, Listeners, May}) ->
    case May(Request) of
        true -> told(Kind, Request, Listeners);
        false -> {reply, 403, [], <<>>}
    end.

told(status, Request, Listeners) ->
    case binary:match(weir_http_request:field(<<"accept">>, Request, <<>>), <<"text/html">>) of
        nomatch -> text(<<"application/json">>, weir_json:encode(status(Listeners)));
        _ -> text(<<"text/html; charset=utf-8">>, page())
    end;
told(metrics, _Request, Listeners) ->
    text(<<"text/plain; version=0.0.4; charset=utf-8">>, metrics(Listeners));
told(stub, _Request, _Listeners) ->
    text(<<"text/plain">>, stub()).

text(Type, Body) -> {reply, 200, [{<<"content-type">>, Type}, {<<"cache-control">>, <<"no-store">>}], Body}.

%% @doc Returns what `/status' has: the usage now, what was counted since the start, and the listeners.
-spec status([weir_listener:name()]) -> #{atom() => term()}.
status(Listeners) ->
    {Uptime, _} = erlang:statistics(wall_clock),
    #{
        uptime => Uptime div 1000,
        now => now_there(),
        counters => weir_pubsub:counters(),
        broker => weir_pubsub_broker:status(),
        listeners => [maps:from_list([{ip, ip(Info)}, {port, port(Info)} | values(Info)]) || Info <- infos(Listeners)]
    }.

now_there() ->
    {ok, Usage} = weir_pubsub:usage(total),
    Usage.

%% A listener may be stopping.
infos(Listeners) -> lists:append([info(Name) || Name <- Listeners]).

info(Name) ->
    try
        [weir_http:info(Name)]
    catch
        error:_ -> []
    end.

%% Several listeners may have the same port, at different addresses.
ip(#{ip := Ip}) when tuple_size(Ip) =:= 4; tuple_size(Ip) =:= 8 -> list_to_binary(inet:ntoa(Ip));
ip(#{ip := Ip}) when Ip =:= any; Ip =:= loopback -> atom_to_binary(Ip);
ip(#{}) -> null.

port(#{port := Port}) when is_integer(Port) -> Port;
port(#{}) -> null.

values(Info) -> weir_counters:values(listener, Info) ++ weir_http_counters:values(http_listener, Info).

metrics(Listeners) ->
    Infos = infos(Listeners),
    #{away := Away} = weir_pubsub_broker:status(),
    [
        metric(pubsub, broker_away, gauge, "shards without a connection to the broker", [{"", Away}]),
        [
            metric(pubsub, Name, gauge, What, [{"", Value}])
         || {Name, What} <- gauges(), #{Name := Value} <- [now_there()]
        ],
        [
            metric(pubsub, Name, counter, Help, [{"", maps:get(Name, weir_pubsub:counters())}])
         || #{name := Name, help := Help} <- weir_pubsub_counters:table()
        ],
        [
            metric(listener, Name, Kind, Help, [
                {["{ip=\"", ip_label(Info), "\",port=\"", integer_to_binary(Port), "\"}"], Value}
             || #{port := Port} = Info <- Infos, is_integer(Port), {Of, Value} <- values(Info), Of =:= Name
            ])
         || #{name := Name, kind := Kind, help := Help} <- weir_counters:table(listener) ++ weir_http_counters:table()
        ]
    ].

ip_label(Info) -> case ip(Info) of null -> ""; Ip -> Ip end.

gauges() ->
    [
        {channels, "channels that exist"},
        {subscribers, "current subscriptions"},
        {messages, "messages that are kept"},
        {bytes, "bytes of the messages that are kept"}
    ].

%% A metric that no listener has is left out.
metric(_Subject, _Name, _Kind, _Help, []) ->
    [];
metric(Subject, Name, Kind, Help, Values) ->
    Ending = case Kind of counter -> "_total"; gauge -> "" end,
    Full = ["weir_", atom_to_binary(Subject), "_", atom_to_binary(Name), Ending],
    [
        ["# HELP ", Full, " ", Help, "\n# TYPE ", Full, " ", atom_to_binary(Kind), "\n"]
        | [[Full, Labels, " ", number(Value), "\n"] || {Labels, Value} <- Values]
    ].

number(Value) when is_integer(Value) -> integer_to_binary(Value);
number(Value) -> float_to_binary(Value, [short]).

%% The lines of Nchan 1.3.6. Values about its Redis and its processes are 0; the memory is that of messages.
stub() ->
    #{channels := Channels, subscribers := Subscribers, messages := Messages, bytes := Bytes} = now_there(),
    #{published := Published} = weir_pubsub:counters(),
    Zeros = [
        "redis pending commands", "redis connected servers", "redis unhealthy upstreams", "total redis commands sent",
        "total interprocess alerts received", "interprocess alerts in transit", "interprocess queued alerts",
        "total interprocess send delay", "total interprocess receive delay"
    ],
    Lines = [
        {"total published messages", integer_to_list(Published)},
        {"stored messages", integer_to_list(Messages)},
        {"shared memory used", kibibytes(Bytes)},
        {"shared memory limit", "0K"},
        {"channels", integer_to_list(Channels)},
        {"subscribers", integer_to_list(Subscribers)}
        | [{Zero, "0"} || Zero <- Zeros]
    ],
    [[[Name, ": ", Value, "\n"] || {Name, Value} <- Lines], "nchan version: 1.3.6\n"].

kibibytes(Bytes) -> [integer_to_list((Bytes + 1023) div 1024), "K"].

page() ->
    <<
        "<!DOCTYPE html><meta charset=utf-8><title>Push server</title>\n"
        "<style>body{font:16px system-ui;margin:2em;max-width:50em}td,th{padding:.2em 1.5em .2em 0;text-align:left}"
        "td+td{text-align:right;font-variant-numeric:tabular-nums}</style>\n"
        "<h1>Push server</h1><table id=now></table><h2>Since the start</h2><table id=counters></table>\n"
        "<script>\n"
        "let before = null;\n"
        "const row = (...cells) => '<tr>' + cells.map((cell) => `<td>${cell}`).join('');\n"
        "async function show() {\n"
        "  const response = await fetch('/status', { headers: { accept: 'application/json' } });\n"
        "  const { now, counters, broker, listeners, uptime } = await response.json();\n"
        "  document.querySelector('#now').innerHTML = row('uptime', uptime + ' s') +\n"
        "    (broker.kind === 'memory' ? '' : row('broker', broker.kind + (broker.away ? ', away' : ''))) +\n"
        "    listeners.map(({ ip, port, connections }) =>\n"
        "      row(`connections, ${ip} port ${port}`, connections)).join('') +\n"
        "    Object.entries(now).map(([name, count]) => row(name, count)).join('');\n"
        "  document.querySelector('#counters').innerHTML = row('', 'total', 'last second') + Object.entries(counters)\n"
        "    .map(([name, count]) => row(name, count, before ? count - before[name] : '')).join('');\n"
        "  before = counters;\n"
        "}\n"
        "show(); setInterval(show, 1000);\n"
        "</script>\n"
    >>.
