%% Third-party clients: Node's `ws' and Python's `websockets', with the permessage-deflate that they offer.
-module(weir_http_websocket_clients_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [node_ws, python_websockets].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Port = weir_http_websocket_handler:start(?LISTENER, #{options => #{deflate => #{context => true}}}),
    [{port, Port} | Config].

end_per_suite(_Config) -> weir_http:stop_listener(?LISTENER).

init_per_testcase(node_ws, Config) ->
    needs("node", "-e \"require('ws')\"", Config);
init_per_testcase(python_websockets, Config) ->
    needs("/usr/bin/python3", "-c 'import websockets'", Config).

end_per_testcase(_Case, _Config) -> ok.

%% Debian's modules, also for a Node that is not Debian's.
-define(PATH, "NODE_PATH=/usr/share/nodejs ").

needs(Program, Look, Config) ->
    case os:cmd(?PATH ++ Program ++ " " ++ Look ++ " >/dev/null 2>&1 && echo there") of
        "there\n" -> [{program, Program} | Config];
        _ -> {skip, "not here: " ++ Program ++ " " ++ Look ++ " (scripts/setup test)"}
    end.

node_ws(Config) -> ?assertEqual("ok\n", run("ws_client.js", Config)).

python_websockets(Config) -> ?assertEqual("ok\n", run("websockets_client.py", Config)).

run(File, Config) ->
    Script = filename:join([filename:dirname(source()), "peers", File]),
    os:cmd(
        ?PATH ++ proplists:get_value(program, Config) ++ " " ++ Script ++ " " ++
            integer_to_list(proplists:get_value(port, Config))
    ).

source() -> proplists:get_value(source, module_info(compile)).
