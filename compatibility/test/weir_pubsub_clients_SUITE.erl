%% weir_pubsub with common clients: nchan, eventsource, @microsoft/fetch-event-source and ws of npm, websockets and
%% httpx-sse of Python. Each receives messages, is disconnected, reconnects by itself, and has missed none.
-module(weir_pubsub_clients_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(COUNT, 30).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        nchan_websocket,
        nchan_eventsource,
        nchan_longpoll,
        nchan_of_several_channels,
        eventsource,
        fetch_event_source,
        ws,
        websockets,
        httpx_sse
    ].

init_per_suite(Config) ->
    [{python, there(python() ++ " -c 'import websockets, httpx_sse'")}, {node, there(node_modules())} | Config].

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) ->
    case proplists:get_value(language(Case), Config) of
        ok ->
            {ok, _} = application:ensure_all_started(weir_pubsub),
            ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => ?COUNT}}]}),
            %% A fixed port, because the listener is restarted on it and no connection may take it in between.
            {ok, _} = start(weir_test_port:claim()),
            Config;
        Skip ->
            Skip
    end.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?MODULE),
    application:stop(weir_pubsub).

start(Port) ->
    weir_http:start_listener(
        ?MODULE, #{ip => {127, 0, 0, 1}, port => Port}, weir_pubsub_http:routes(#{publishers => any, deflate => true})
    ).

%% scripts/setup puts packages of npm and PyPI there.
packages() ->
    Cache = os:getenv("XDG_CACHE_HOME", filename:join(os:getenv("HOME", "/"), ".cache")),
    filename:join([Cache, "weir", "push-clients"]).

language(Case) when Case =:= websockets; Case =:= httpx_sse -> python;
language(_Case) -> node.

node_modules() ->
    "cd " ++ packages() ++
        " && node -e \"require('nchan/package.json'); require('eventsource'); require('ws'); "
        "require('@microsoft/fetch-event-source')\"".

there(Command) ->
    case os:cmd(Command ++ " >/dev/null 2>&1 && echo there") of
        "there\n" -> ok;
        _ -> {skip, "not here: " ++ Command ++ " (scripts/setup test)"}
    end.

python() -> filename:join([packages(), "python", "bin", "python3"]).

nchan_websocket(Config) -> node(["nchan", "websocket", "a"], Config).
nchan_eventsource(Config) -> node(["nchan", "eventsource", "a"], Config).
nchan_longpoll(Config) -> node(["nchan", "longpoll", "a"], Config).
nchan_of_several_channels(Config) -> node(["nchan", "websocket", "a,b"], Config).
eventsource(Config) -> node(["eventsource", "-", "a"], Config).
fetch_event_source(Config) -> node(["fetch-event-source", "-", "a"], Config).
ws(Config) -> node(["ws", "-", "a"], Config).
websockets(Config) -> python("websockets", Config).
httpx_sse(Config) -> python("httpx_sse", Config).

node([Client, Transport, Channels], Config) ->
    client(os:find_executable("node"), [data("clients.cjs", Config), packages(), Client, Transport, url(Channels)]).

python(Client, Config) ->
    client(python(), [data("clients.py", Config), Client, url("a")]).

url(Channels) -> "http://127.0.0.1:" ++ integer_to_list(weir:get_port(?MODULE)) ++ "/sub/" ++ Channels.

data(File, Config) -> filename:join(proplists:get_value(data_dir, Config), File).

%% The client prints each message on a line after `LINE'.
client(Program, Arguments) ->
    {Executable, All} = weir_program:with_us(Program, Arguments),
    Opened = open_port({spawn_executable, Executable}, [
        {args, All}, {line, 1000}, binary, exit_status, stderr_to_stdout
    ]),
    {os_pid, Pid} = erlang:port_info(Opened, os_pid),
    try
        weir_test_wait:wait_until(fun() -> has_subscribers(weir_pubsub:info(<<"a">>)) end),
        Numbers = lists:seq(1, ?COUNT),
        {First, Others} = lists:split(?COUNT div 3, Numbers),
        {Second, Third} = lists:split(?COUNT div 3, Others),
        publish(First),
        heard(First, Opened),
        %% All connections are closed, and some messages are published before the clients can reconnect.
        Port = weir:get_port(?MODULE),
        ok = weir_http:stop_listener(?MODULE),
        publish(Second),
        {ok, _} = start(Port),
        publish(Third),
        heard(Others, Opened)
    after
        _ = os:cmd("kill " ++ integer_to_list(Pid))
    end.

has_subscribers({ok, #{subscribers := Count}}) when Count > 0 -> true;
has_subscribers(Other) -> Other.

publish(Numbers) ->
    lists:foreach(
        fun(Number) ->
            {ok, _} = weir_pubsub:publish(<<"a">>, [<<"message ">>, integer_to_binary(Number)], #{
                type => <<"text/plain">>
            })
        end,
        Numbers
    ).

heard(Numbers, Opened) ->
    lists:foreach(
        fun(Number) -> ?assertEqual(<<"message ", (integer_to_binary(Number))/binary>>, next(Opened)) end, Numbers
    ).

next(Opened) ->
    receive
        {Opened, {data, {eol, <<"LINE ", Message/binary>>}}} -> Message;
        {Opened, {data, {eol, Other}}} -> ct:log("~ts", [Other]), next(Opened);
        {Opened, {exit_status, Status}} -> error({client_is_over, Status})
    after weir_test_wait:patience() -> error(nothing_comes)
    end.
