%% The page of a node in a browser, and who may ask over HTTP.
-module(weir_scope_web_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2, init_per_testcase/2, end_per_testcase/2]).
-export([no_token/1, another_token/1, a_name_of_somebody_else/1, a_name_of_ours/1, without_a_token_where_that_is_said/1, wrong_options/1]).
-export([the_token_is_in_no_report/1, metrics/1, every_tab_as_json/1, history_as_json/1, what_is_not_there/1, a_stream_has_a_row_a_second/1, streams_are_limited/1]).
-export([by_configuration/1, a_sampler_that_ends/1, a_node_that_ends_and_comes_back/1, a_recording/1, what_promtool_says/1]).
-export([every_tab_draws/1, a_range_is_that_of_all_charts/1, a_recording_draws/1, it_comes_back_after_a_restart/1, it_asks_for_a_token/1]).

-define(TOKEN, <<"of sixteen bytes at least">>).

suite() -> [{timetrap, {minutes, 1}}].

all() -> [{group, http}, {group, page}].

groups() ->
    [
        {http, [], [
            no_token, another_token, a_name_of_somebody_else, a_name_of_ours, without_a_token_where_that_is_said, wrong_options, the_token_is_in_no_report,
            metrics, every_tab_as_json, history_as_json, what_is_not_there, a_stream_has_a_row_a_second, streams_are_limited, by_configuration, a_sampler_that_ends,
            a_node_that_ends_and_comes_back, a_recording, what_promtool_says
        ]},
        {page, [], [
            every_tab_draws, a_range_is_that_of_all_charts, a_recording_draws, it_comes_back_after_a_restart, it_asks_for_a_token
        ]}
    ].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(weir_http),
    {ok, More} = application:ensure_all_started(weir_scope),
    [{started, Started ++ More} | Config].

end_per_suite(Config) ->
    _ = [application:stop(Application) || Application <- lists:reverse(?config(started, Config))],
    ok.

init_per_group(page, Config) ->
    Charts = filename:join([code:priv_dir(weir_scope), "page", "uplot.js"]),
    case {weir_scope_browser:find(), filelib:is_file(Charts)} of
        {error, _} -> {skip, "no Chromium here"};
        {_, false} -> {skip, "built without npm"};
        _ -> Config
    end;
init_per_group(_, Config) ->
    Config.

end_per_group(_, _Config) -> ok.

init_per_testcase(_Case, Config) ->
    _ = process_flag(trap_exit, true),
    Config.

%% What a case has started is linked to it.
end_per_testcase(_Case, _Config) -> ok.

start(Options) -> start(node(), Options).

start(Node, Options) ->
    {ok, Checked} = weir_scope_web:check(maps:merge(#{token => ?TOKEN}, Options)),
    {ok, Pid} = weir_scope_web:start_link({weir_scope_feed, {Node, #{}}}, Checked),
    Pid.

stop(Pid) ->
    exit(Pid, shutdown),
    receive {'EXIT', Pid, _} -> ok after 10000 -> ct:fail(stays) end.

%% Asks over a socket of OTP's, with the fields that are given.
ask(Path, Fields) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, weir_scope_web:port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, ["GET ", Path, " HTTP/1.1\r\nconnection: close\r\n", [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields], "\r\n"]),
    Answer = received(Socket, <<>>),
    [Head, Body] = binary:split(Answer, <<"\r\n\r\n">>),
    <<"HTTP/1.1 ", Status:3/binary, _/binary>> = Head,
    {binary_to_integer(Status), Head, Body}.

received(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, 20000) of
        {ok, More} -> received(Socket, <<Bytes/binary, More/binary>>);
        {error, closed} -> Bytes
    end.

bearer(Token) -> {"authorization", ["Bearer ", Token]}.
host() -> {"host", "127.0.0.1"}.

data() -> ["/metrics", "/about", "/history/second", "/history/minute", "/look/overview", "/look/processes", "/stream"].

no_token(_Config) ->
    Pid = start(#{}),
    [?assertMatch({Path, {401, _, _}}, {Path, ask(Path, [host()])}) || Path <- data()],
    ?assertMatch({200, _, <<"<!DOCTYPE html>", _/binary>>}, ask("/", [host()])),
    stop(Pid).

another_token(_Config) ->
    Pid = start(#{}),
    Wrong = ["", "another token, as long as it", binary:part(?TOKEN, 0, 10), [?TOKEN, "x"], string:uppercase(?TOKEN)],
    [?assertMatch({Token, {401, _, _}}, {Token, ask("/metrics", [host(), bearer(Token)])}) || Token <- Wrong],
    ?assertMatch({401, _, _}, ask("/metrics", [host(), {"authorization", ["Basic ", base64:encode(?TOKEN)]}])),
    ?assertMatch({401, _, _}, ask(["/metrics?token=", base64:encode(?TOKEN)], [host()])),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    stop(Pid).

%% A page of another site whose name leads to this machine: it may not read, with or without a token.
a_name_of_somebody_else(_Config) ->
    Pid = start(#{token => none}),
    [
        ?assertMatch({Host, {421, _, _}}, {Host, ask(Path, [{"host", Host}])})
     || Path <- ["/", "/metrics", "/look/overview"], Host <- ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "0x7f.1", "[evil]"]
    ],
    stop(Pid).

a_name_of_ours(_Config) ->
    Pid = start(#{hosts => [<<"scope.Example">>]}),
    [
        ?assertMatch({Host, {200, _, _}}, {Host, ask("/metrics", [{"host", Host}, bearer(?TOKEN)])})
     || Host <- ["localhost", "LOCALHOST:99", "127.0.0.1:1234", "[::1]:99", "192.0.2.1", "Scope.example:80"]
    ],
    stop(Pid).

without_a_token_where_that_is_said(_Config) ->
    Pid = start(#{token => none}),
    ?assertMatch({200, _, _}, ask("/metrics", [host()])),
    stop(Pid).

wrong_options(_Config) ->
    [
        ?assertMatch({Key, {error, {bad_option, Key, _, Allowed}}} when is_list(Allowed), {Key, weir_scope_web:check(Options)})
     || {Key, Options} <- [
            {token, #{}}, {token, #{token => <<"too short">>}}, {token, #{token => "a string that is long"}}, {port, #{token => none, port => 65536}},
            {ip, #{token => none, ip => "127.0.0.1"}}, {hosts, #{token => none, hosts => "all"}}, {max_streams, #{token => none, max_streams => 0}},
            {tls, #{token => none, tls => []}}, {http, on}
        ]
    ],
    {error, Short} = weir_scope_web:check(#{token => <<"my secret">>}),
    ?assertEqual(nomatch, string:find(io_lib:format("~p", [Short]), "secret")).

%% What supervisors would report of their children.
the_token_is_in_no_report(_Config) ->
    Pid = start(#{}),
    Children = [supervisor:get_childspec(Pid, Id) || {Id, _, _, _} <- supervisor:which_children(Pid)],
    States = [sys:get_state(Pid), sys:get_state(weir_scope_feed)],
    [?assertEqual(nomatch, binary:match(iolist_to_binary(io_lib:format("~p", [Told])), ?TOKEN)) || Told <- [Children | States]],
    stop(Pid).

metrics(_Config) ->
    Pid = start(#{}),
    {200, Head, Text} = ask("/metrics", [host(), bearer(?TOKEN)]),
    ?assertNotEqual(nomatch, string:find(Head, "application/openmetrics-text; version=1.0.0")),
    ?assertNotEqual(nomatch, string:find(Text, "beam_reductions_total ")),
    ?assertEqual(<<"# EOF\n">>, binary:part(Text, byte_size(Text), -6)),
    stop(Pid).

every_tab_as_json(_Config) ->
    Pid = start(#{}),
    {200, _, About} = ask("/about", [host(), bearer(?TOKEN)]),
    {ok, #{<<"node">> := Node, <<"tabs">> := Tabs}} = weir_json:decode(About),
    ?assertEqual(atom_to_binary(node()), Node),
    [
        begin
            {200, _, Body} = ask(["/look/", Tab, "?sort=", Sort], [host(), bearer(?TOKEN)]),
            ?assertMatch({Tab, {ok, #{<<"at">> := _, <<"blocks">> := [_ | _]}}}, {Tab, weir_json:decode(Body)})
        end
     || #{<<"name">> := Tab, <<"sorts">> := Sorts} <- Tabs, Sort <- lists:sublist(Sorts, 2)
    ],
    stop(Pid).

history_as_json(_Config) ->
    Pid = start(#{}),
    {200, _, Body} = ask("/history/second", [host(), bearer(?TOKEN)]),
    {ok, [#{<<"columns">> := Columns, <<"rows">> := [[At | Values] | _]} | _]} = weir_json:decode(Body),
    ?assertEqual(length(Columns), length(Values)),
    ?assert(lists:member(<<"scheduler.normal.1.utilisation">>, Columns)),
    ?assert(abs(erlang:system_time(millisecond) - At) < 700_000),
    {200, _, Later} = ask(["/history/second?after=", integer_to_list(At)], [host(), bearer(?TOKEN)]),
    {ok, Rest} = weir_json:decode(Later),
    ?assertEqual([], [Same || #{<<"rows">> := Rows} <- Rest, [Same | _] <- Rows, Same =< At]),
    stop(Pid).

what_is_not_there(_Config) ->
    Pid = start(#{}),
    [
        ?assertMatch({Path, {Status, _, _}}, {Path, ask(Path, [host(), bearer(?TOKEN)])})
     || {Status, Path} <- [
            {404, "/look/nothing"}, {404, "/look/overview?sort=nothing"}, {400, "/look/overview?at=now"}, {404, "/history/hour"}, {400, "/history/second?after=x"},
            {404, "/page/nothing.js"}, {404, "/page/..%2f..%2fsrc%2fweir_scope.erl"}
        ]
    ],
    stop(Pid).

a_stream_has_a_row_a_second(_Config) ->
    Pid = start(#{}),
    Socket = stream(),
    [First, Second] = lists:sublist(rows(Socket, <<>>, 2), 2),
    {ok, History} = weir_json:decode(element(3, ask("/history/second", [host(), bearer(?TOKEN)]))),
    [Columns] = [Columns || #{<<"set">> := Set, <<"columns">> := Columns} <- History, Set =:= maps:get(<<"set">>, First)],
    [At | Values] = maps:get(<<"row">>, First),
    [Then | _] = maps:get(<<"row">>, Second),
    ?assertEqual(length(Columns), length(Values)),
    ?assert(Then > At),
    ok = gen_tcp:close(Socket),
    stop(Pid).

stream() ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, weir_scope_web:port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, ["GET /stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ", ?TOKEN, "\r\n\r\n"]),
    {ok, <<"HTTP/1.1 200", _/binary>>} = gen_tcp:recv(Socket, 0, 10000),
    Socket.

rows(Socket, Bytes, Count) ->
    case re:run(Bytes, "event: row\ndata: ([^\n]+)\n", [global, {capture, all_but_first, binary}]) of
        {match, Found} when length(Found) >= Count -> [element(2, weir_json:decode(Row)) || [Row] <- Found];
        _ ->
            {ok, More} = gen_tcp:recv(Socket, 0, 10000),
            rows(Socket, <<Bytes/binary, More/binary>>, Count)
    end.

streams_are_limited(_Config) ->
    Pid = start(#{max_streams => 2}),
    [One, Two] = [stream(), stream()],
    until(fun() -> element(1, ask("/stream", [host(), bearer(?TOKEN)])) =:= 503 end),
    ok = gen_tcp:close(One),
    until(fun() -> {ok, Some} = weir_scope_feed_stream(), weir_group:size(Some) < 2 end),
    Three = stream(),
    [ok = gen_tcp:close(Socket) || Socket <- [Two, Three]],
    stop(Pid).

weir_scope_feed_stream() ->
    case weir_scope_feed:stream() of
        {error, full} -> timer:sleep(20), weir_scope_feed_stream();
        Answer -> Answer
    end.

%% A release says so in its configuration.
by_configuration(_Config) ->
    ok = application:stop(weir_scope),
    ok = application:set_env(weir_scope, http, #{token => <<"short">>}),
    ?assertMatch({error, {{bad_option, token, hidden, _}, _}}, application:start(weir_scope)),
    ok = application:set_env(weir_scope, http, #{token => ?TOKEN}),
    ok = application:start(weir_scope),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    ok = application:stop(weir_scope),
    ok = application:unset_env(weir_scope, http),
    ok = application:start(weir_scope).

%% Also where no page is open that would notice.
a_sampler_that_ends(_Config) ->
    Pid = start(#{}),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    Sampler = whereis(weir_scope_sampler),
    exit(Sampler, kill),
    until(fun() -> is_pid(whereis(weir_scope_sampler)) andalso whereis(weir_scope_sampler) =/= Sampler end),
    until(fun() -> element(1, ask("/metrics", [host(), bearer(?TOKEN)])) =:= 200 end),
    ?assertMatch({200, _, _}, ask("/look/overview", [host(), bearer(?TOKEN)])),
    stop(Pid).

a_node_that_ends_and_comes_back(_Config) ->
    Started = weir_scope_distribution:start("weir_scope_web"),
    Name = peer:random_name(),
    {Peer, Node} = peer(Name),
    Pid = start(Node, #{}),
    ?assertMatch({200, _, _}, ask("/metrics", [host(), bearer(?TOKEN)])),
    Socket = stream(),
    _ = rows(Socket, <<>>, 1),
    ok = peer:stop(Peer),
    until(fun() -> element(1, ask("/look/overview", [host(), bearer(?TOKEN)])) =:= 503 end),
    {Again, Node} = peer(Name),
    until(fun() -> element(1, ask("/metrics", [host(), bearer(?TOKEN)])) =:= 200 end),
    [_ | _] = rows(Socket, <<>>, 1),
    ok = gen_tcp:close(Socket),
    stop(Pid),
    ok = peer:stop(Again),
    ok = weir_scope_distribution:stop(Started).

%% Prometheus' own parsers take the metrics, with the labels of any name, and the expressions of the dashboard. `check metrics' reads the older
%% form only; so the metrics are made a block, for which each needs a time.
what_promtool_says(Config) ->
    case os:find_executable("promtool") of
        false -> {skip, "no promtool (scripts/setup test)"};
        Program -> what_promtool_says(Program, ?config(priv_dir, Config))
    end.

what_promtool_says(Program, Directory) ->
    [Metrics, Rules] = [filename:join(Directory, Name) || Name <- ["metrics.txt", "rules.json"]],
    Now = integer_to_list(erlang:system_time(second)),
    ok = file:write_file(Metrics, lists:join($\n, [
        case Line of
            <<"#", _/binary>> -> Line;
            <<>> -> Line;
            _ -> [Line, $\s, Now]
        end
     || Line <- weir_scope_metrics_tests:lines()
    ])),
    {0, _} = program(Program, ["tsdb", "create-blocks-from", "openmetrics", Metrics, filename:join(Directory, "blocks")]),
    Expressions = [
        binary:replace(Expression, <<"$__rate_interval">>, <<"5m">>, [global])
     || Expression <- weir_scope_grafana_tests:expressions(), binary:match(Expression, <<"label_values">>) =:= nomatch
    ],
    Recorded = [
        #{record => list_to_binary("expression_" ++ integer_to_list(Number)), expr => Expression}
     || {Number, Expression} <- lists:zip(lists:seq(1, length(Expressions)), Expressions)
    ],
    ok = file:write_file(Rules, weir_json:encode(#{groups => [#{name => dashboard, rules => Recorded}]})),
    {0, _} = program(Program, ["check", "rules", Rules]),
    %% It does tell.
    ok = file:write_file(Rules, weir_json:encode(#{groups => [#{name => dashboard, rules => [#{record => wrong, expr => <<"rate(beam_reductions_total)">>}]}]})),
    {1, _} = program(Program, ["check", "rules", Rules]).

program(Program, Arguments) ->
    Port = open_port({spawn_executable, Program}, [{args, Arguments}, exit_status, stderr_to_stdout, binary]),
    said(Port, <<>>).

said(Port, Text) ->
    receive
        {Port, {data, Data}} -> said(Port, <<Text/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> ct:log("~ts", [Text]), {Status, Text}
    after 20000 -> ct:fail({no_end, Text})
    end.

%% What is recorded of this node is what pages get of the file.
a_recording(Config) ->
    File = recording(Config),
    {ok, Recording} = weir_scope_recording:read(File),
    ?assertEqual(atom_to_binary(node()), weir_scope_recording:node(Recording)),
    ?assertEqual([{atom_to_binary(Tab), [atom_to_binary(Sort) || Sort <- Sorts]} || {Tab, Sorts} <- weir_scope_tabs:all()], weir_scope_recording:tabs(Recording)),
    Pid = replay(File),
    {200, _, About} = ask("/about", [host(), bearer(?TOKEN)]),
    ?assertMatch({ok, #{<<"recorded">> := true}}, weir_json:decode(About)),
    {200, _, History} = ask("/history/second", [host(), bearer(?TOKEN)]),
    {ok, Series} = weir_json:decode(History),
    ?assertEqual(2, lists:sum([length(Rows) || #{<<"rows">> := Rows} <- Series])),
    [
        begin
            {200, _, Look} = ask(["/look/", Tab], [host(), bearer(?TOKEN)]),
            ?assertMatch({Tab, {ok, #{<<"blocks">> := [_ | _]}}}, {Tab, weir_json:decode(Look)})
        end
     || {Tab, _} <- weir_scope_recording:tabs(Recording)
    ],
    [?assertMatch({503, _, _}, ask(Path, [host(), bearer(?TOKEN)])) || Path <- ["/metrics", "/stream"]],
    stop(Pid).

%% Made by the first case that needs it.
recording(Config) ->
    File = filename:join(?config(priv_dir, Config), "recording"),
    _ = filelib:is_file(File) orelse begin
        {ok, View} = weir_scope:open(node(), #{}),
        {ok, 2} = weir_scope_recording:record({node(), View}, File, #{seconds => 2}),
        ok = weir_scope:close(View)
    end,
    File.

replay(File) ->
    {ok, Checked} = weir_scope_web:check(#{token => ?TOKEN}),
    {ok, Pid} = weir_scope_web:start_link({weir_scope_replay, File}, Checked),
    Pid.

peer(Name) ->
    {ok, Peer, Node} = peer:start(#{
        name => Name, host => "127.0.0.1", longnames => true, connection => standard_io, args => ["-setcookie", atom_to_list(erlang:get_cookie())]
    }),
    {Peer, Node}.

until(Condition) -> until(Condition, 300).

until(Condition, 0) -> ct:fail({never_true, Condition});
until(Condition, Times) ->
    case Condition() of
        true -> ok;
        false -> timer:sleep(50), until(Condition, Times - 1)
    end.

%% In a browser ----------------------------------------------------------------------------

browse(Config, Case, Path) ->
    Browser = weir_scope_browser:start(filename:join(?config(priv_dir, Config), atom_to_list(Case))),
    weir_scope_browser:size(Browser, 1250, 1000),
    weir_scope_browser:open(Browser, url(Path)),
    Browser.

url(Path) -> ["http://127.0.0.1:", integer_to_list(weir_scope_web:port()), Path, "#token=", uri_string:quote(?TOKEN)].

%% Pixels that are not grey are those of a line.
drawn() ->
    "(() => { const all = [...document.querySelectorAll('figure canvas')];"
    " return all.length > 0 && all.some((canvas) => {"
    "  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); let coloured = 0;"
    "  for (let i = 0; i < data.length; i += 4)"
    "   if (data[i + 3] > 0 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) coloured++;"
    "  return coloured > 50; }); })()".

%% Those that the documents show go there, when that is asked for.
keep(Browser, Config, Name) ->
    Directory =
        case os:getenv("WEIR_WRITE_RESULTS") of
            "1" when Name =:= "schedulers"; Name =:= "memory"; Name =:= "processes" -> filename:join(root(code:which(?MODULE)), "docs/images");
            _ -> ?config(priv_dir, Config)
        end,
    File = filename:join(Directory, "scope_" ++ Name ++ ".png"),
    weir_scope_browser:picture(Browser, File),
    ?assert(filelib:file_size(File) > 10_000).

root(Path) ->
    case filelib:is_file(filename:join(Path, "docs/internals.md")) of
        true -> Path;
        false -> root(filename:dirname(Path))
    end.

every_tab_draws(Config) ->
    Pid = start(#{}),
    Browser = browse(Config, ?FUNCTION_NAME, "/"),
    weir_scope_browser:until(Browser, "document.querySelectorAll('#tabs a').length > 7"),
    ?assertEqual(<<>>, weir_scope_browser:evaluate(Browser, "location.hash")),
    Charts = [<<"overview">>, <<"schedulers">>, <<"memory">>, <<"processes">>, <<"sockets">>, <<"polls">>, <<"latency">>, <<"threads">>],
    [
        begin
            weir_scope_browser:evaluate(Browser, ["[...document.querySelectorAll('#tabs a')].find((a) => a.textContent === '", Tab, "').click()"]),
            weir_scope_browser:until(Browser, ["document.title.endsWith(': ", Tab, "') && document.querySelector('#blocks').innerText.length > 20"]),
            _ = [weir_scope_browser:until(Browser, drawn()) || lists:member(Tab, Charts)],
            %% What the page has watched itself.
            _ = [weir_scope_browser:until(Browser, "[...document.querySelectorAll('h2')].some((title) => title.textContent.startsWith('Schedulers, while'))") || Tab =:= <<"threads">>],
            keep(Browser, Config, binary_to_list(Tab))
        end
     || {Name, _} <- weir_scope_tabs:all(), Tab <- [atom_to_binary(Name)]
    ],
    weir_scope_browser:evaluate(Browser, "[...document.querySelectorAll('#tabs a')].find((a) => a.textContent === 'overview').click()"),
    a_dark_page(Browser, Config),
    what_is_downloaded(Browser),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
    stop(Pid).

%% The pointer is drawn over one chart: all others show that time.
a_range_is_that_of_all_charts(Config) ->
    Pid = start(#{}),
    Browser = browse(Config, ?FUNCTION_NAME, "/?tab=overview"),
    weir_scope_browser:until(Browser, drawn()),
    weir_scope_browser:evaluate(Browser, "(() => { const over = document.querySelector('figure .u-over'); const { left, top, width } = over.getBoundingClientRect();"
        " const at = (type, part) => over.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0, clientX: left + part * width, clientY: top + 20,"
        " movementX: 1, view: window })); at('mouseenter', 0.2); at('mousemove', 0.2); at('mousedown', 0.2); at('mousemove', 0.5); at('mousemove', 0.6);"
        " document.dispatchEvent(new MouseEvent('mouseup', { bubbles: true, button: 0, clientX: left + 0.6 * width, clientY: top + 20, view: window })); })()"),
    weir_scope_browser:until(Browser, "new URLSearchParams(location.search).has('from') && !document.querySelector('#live').hidden"),
    ?assertEqual(true, weir_scope_browser:evaluate(Browser, "(() => { const given = new URLSearchParams(location.search); return +given.get('to') > +given.get('from'); })()")),
    %% Back by the browser's own button.
    weir_scope_browser:evaluate(Browser, "history.back()"),
    weir_scope_browser:until(Browser, "!new URLSearchParams(location.search).has('from') && document.querySelector('#live').hidden"),
    the_address_tells_what_is_shown(Browser),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
    stop(Pid).

the_address_tells_what_is_shown(Browser) ->
    Now = erlang:system_time(millisecond),
    weir_scope_browser:open(Browser, url(["/?tab=schedulers&grain=minute&sort=cpu&from=", integer_to_list(Now - 60000), "&to=", integer_to_list(Now)])),
    weir_scope_browser:until(Browser, "document.querySelector('th[aria-sort]')?.textContent === 'CPU'"),
    ?assertEqual(<<"schedulers">>, weir_scope_browser:evaluate(Browser, "document.querySelector('#tabs a[aria-current]').textContent")),
    ?assertEqual(<<"1 day">>, weir_scope_browser:evaluate(Browser, "document.querySelector('#grains button[aria-pressed=true]').textContent")),
    ?assertEqual(false, weir_scope_browser:evaluate(Browser, "document.querySelector('#live').hidden")).

it_comes_back_after_a_restart(Config) ->
    Pid = start(#{}),
    Port = weir_scope_web:port(),
    Browser = browse(Config, ?FUNCTION_NAME, "/"),
    weir_scope_browser:until(Browser, drawn()),
    stop(Pid),
    weir_scope_browser:until(Browser, "document.querySelector('#state').className === 'bad'"),
    Again = start(#{port => Port}),
    weir_scope_browser:until(Browser, "document.querySelector('#state').className === '' && document.querySelector('#state').textContent === ''"),
    weir_scope_browser:until(Browser, drawn()),
    %% The browser says itself what could not be reached; no script has failed.
    ?assertEqual([], [Error || Error <- weir_scope_browser:errors(Browser), maps:get(<<"source">>, Error, none) =/= <<"network">>]),
    weir_scope_browser:stop(Browser),
    stop(Again).

a_recording_draws(Config) ->
    Pid = replay(recording(Config)),
    Browser = browse(Config, ?FUNCTION_NAME, "/?tab=memory"),
    weir_scope_browser:until(Browser, drawn()),
    weir_scope_browser:until(Browser, "document.querySelector('#blocks').innerText.includes('eheap_alloc')"),
    ?assertEqual([], weir_scope_browser:errors(Browser)),
    weir_scope_browser:stop(Browser),
    stop(Pid).

it_asks_for_a_token(Config) ->
    Pid = start(#{}),
    Browser = weir_scope_browser:start(filename:join(?config(priv_dir, Config), "asks")),
    weir_scope_browser:open(Browser, ["http://127.0.0.1:", integer_to_list(weir_scope_web:port()), "/"]),
    weir_scope_browser:until(Browser, "document.querySelector('#ask')?.hidden === false"),
    weir_scope_browser:evaluate(Browser, ["document.querySelector('#token').value = '", ?TOKEN, "'; document.querySelector('#ask').requestSubmit()"]),
    weir_scope_browser:until(Browser, "document.querySelector('#ask').hidden && document.querySelectorAll('#tabs a').length > 7"),
    weir_scope_browser:stop(Browser),
    stop(Pid).

a_dark_page(Browser, Config) ->
    weir_scope_browser:dark(Browser, true),
    weir_scope_browser:until(Browser, "getComputedStyle(document.body).backgroundColor === 'rgb(18, 23, 29)'"),
    weir_scope_browser:until(Browser, drawn()),
    keep(Browser, Config, "dark").

what_is_downloaded(Browser) ->
    weir_scope_browser:evaluate(Browser, "globalThis.kept = null; URL.createObjectURL = (blob) => { blob.text().then((text) => { kept = text; }); return '#'; };"
        " document.querySelector('#download').click()"),
    weir_scope_browser:until(Browser, "kept !== null"),
    {ok, #{<<"at">> := At, <<"columns">> := #{<<"vm.run_queue">> := Queue}, <<"node">> := Node}} = weir_json:decode(weir_scope_browser:evaluate(Browser, "kept")),
    ?assertEqual(atom_to_binary(node()), Node),
    ?assert(length(At) > 1 andalso length(At) =:= length(Queue)).
