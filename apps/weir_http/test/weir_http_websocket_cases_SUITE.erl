%% The cases of the Autobahn test suite in `weir_http_websocket_cases': the quick ones on weir_http. With
%% WEIR_WRITE_RESULTS=1 (`make conformance') all cases, also on wsproto and on the npm package ws. This writes
%% `conformance/results/websocket.md'. A case that both of those fail is probably wrong.
-module(weir_http_websocket_cases_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 30}}].

all() ->
    case os:getenv("WEIR_WRITE_RESULTS") of
        "1" -> [all_cases_beside_others];
        _ -> [none_of_the_quick_cases_fails]
    end.

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    WebSocket = #{max_message => 32 bsl 20, deflate => #{context => true, window_bits => 15, min_size => 0}},
    Port = weir_http_websocket_handler:start(?LISTENER, #{options => WebSocket}, #{}),
    [{port, Port} | Config].

end_per_suite(_Config) -> weir_http:stop_listener(?LISTENER).

%% Nor is any only lenient.
none_of_the_quick_cases_fails(Config) ->
    Port = proplists:get_value(port, Config),
    Cases = weir_http_websocket_cases:all(quick),
    ?assertEqual(517, length(lists:usort([Id || #{id := Id} <- Cases]))),
    Verdicts = [{Id, weir_http_websocket_run:run(Case, Port)} || #{id := Id} = Case <- Cases],
    ?assertEqual([], [Verdict || {_, Kind} = Verdict <- Verdicts, Kind =/= ok, Kind =/= informational]).

all_cases_beside_others(Config) ->
    Cases = weir_http_websocket_cases:all(all),
    Peers = [peer(Name) || Name <- [wsproto, ws]],
    Servers = [{weir, proplists:get_value(port, Config)} | [{Name, Port} || {Name, _, Port} <- Peers]],
    Rows = [
        {Id, [{Name, weir_http_websocket_run:run(Case, Port)} || {Name, Port} <- Servers]}
     || #{id := Id} = Case <- Cases
    ],
    _ = [port_close(Program) || {_, Program, _} <- Peers],
    Root = root(filename:dirname(code:which(?MODULE))),
    ok = file:write_file(filename:join([Root, "conformance", "results", "websocket.md"]), table(Rows)),
    ?assertEqual([], [Row || {_, [{weir, failed} | _]} = Row <- Rows]).

peer(wsproto) -> peer(wsproto, "/usr/bin/python3", "wsproto_peer.py");
peer(ws) -> peer(ws, os:find_executable("node"), "ws_peer.js").

peer(Name, Program, File) ->
    Script = filename:join([root(filename:dirname(code:which(?MODULE))), "apps", "weir_http", "test", "peers", File]),
    Port = open_port({spawn_executable, Program}, [
        {args, [Script]}, {line, 100}, {env, [{"NODE_PATH", "/usr/share/nodejs:/usr/lib/nodejs"}]}
    ]),
    receive
        {Port, {data, {eol, Number}}} -> {Name, Port, list_to_integer(Number)}
    after weir_test_wait:patience() -> error({not_started, Name})
    end.

root(Directory) ->
    case
        filelib:is_dir(filename:join(Directory, "conformance")) andalso
            filelib:is_regular(filename:join(Directory, "rebar.config"))
    of
        true -> Directory;
        false -> root(filename:dirname(Directory))
    end.

table(Rows) ->
    Names = [weir, wsproto, ws],
    Count = fun(Name, Kind) -> length([Id || {Id, Verdicts} <- Rows, lists:member({Name, Kind}, Verdicts)]) end,
    [
        "# The cases of the Autobahn test suite on weir_http\n\n"
        "Written by `make conformance` (`weir_http_websocket_cases_SUITE` with `WEIR_WRITE_RESULTS=1`). "
        "The cases are written anew in\n"
        "`weir_http_websocket_cases`, with the numbers of the [Autobahn test "
        "suite](https://github.com/crossbario/autobahn-testsuite), and are\n"
        "put before two other servers as well: [wsproto](https://github.com/python-hyper/wsproto) and "
        "[ws](https://github.com/websockets/ws).\n"
        "Those of 12 and 13, which have 1,000 messages there, have 200 here, and 30 if they are longer than 4,096 "
        "bytes. `lenient`: as the RFC allows,\n"
        "not as the suite would have it (dropped without a close frame, or with less echoed before). "
        "`informational`: the RFC does not say.\n\n"
        "| of ",
        integer_to_list(length(Rows)),
        " cases | ok | lenient | informational | failed |\n| --- | --- | --- | --- | --- |\n",
        [
            [
                "| ",
                atom_to_list(Name),
                [[" | ", integer_to_list(Count(Name, Kind))] || Kind <- [ok, lenient, informational, failed]],
                " |\n"
            ]
         || Name <- Names
        ],
        "\n| case | weir | wsproto | ws |\n| --- | --- | --- | --- |\n",
        [
            ["| ", Id, [[" | ", atom_to_list(proplists:get_value(Name, Verdicts))] || Name <- Names], " |\n"]
         || {Id, Verdicts} <- Rows
        ]
    ].
