%% Tests the code in docs/guide and in the READMEs. The blocks of a page run one after the other: Erlang and Elixir in
%% a VM of the page, shell commands in the tree. A `text' block is the expected output of the command before it. The
%% `toml' blocks of a page together are a file that its server accepts. A page is skipped if its `needs' are missing.
%% Port 8080 of the pages is replaced by a free one.
-module(weir_guide_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    gen_tcp/1,
    listeners/1,
    ranch/1,
    yaws/1,
    mochiweb/1,
    ssl/1,
    whole_vm/1,
    reactors/1,
    http/1,
    http_process/1,
    http_limits/1,
    http_operating/1,
    static_files/1,
    streams/1,
    websocket/1,
    relays/1,
    groups/1,
    pubsub/1,
    proxy/1,
    push_protocol/1,
    push_server/1,
    push_operating/1,
    nchan/1,
    mercure/1,
    elixir/1,
    doctor/1,
    scope/1,
    scope_cpu/1,
    scope_latency/1,
    scope_memory/1
]).
-export([
    readme/1,
    readme_of_weir_http/1,
    readme_of_weir_proxy/1,
    readme_of_weir_pubsub/1,
    readme_of_weir_load/1,
    readme_of_weir_scope/1,
    readme_of_weir_formats/1
]).
-export([every_page_is_run/1]).
-export([start_session/0, evaluate/2, sockets/0]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        gen_tcp,
        listeners,
        ranch,
        yaws,
        mochiweb,
        ssl,
        whole_vm,
        reactors,
        http,
        http_process,
        http_limits,
        http_operating,
        static_files,
        streams,
        websocket,
        relays,
        groups,
        pubsub,
        proxy,
        push_protocol,
        push_server,
        push_operating,
        nchan,
        mercure,
        elixir,
        doctor,
        scope,
        scope_cpu,
        scope_latency,
        scope_memory
        | readmes()
    ] ++ [every_page_is_run].

readmes() ->
    [
        readme,
        readme_of_weir_http,
        readme_of_weir_proxy,
        readme_of_weir_pubsub,
        readme_of_weir_load,
        readme_of_weir_scope,
        readme_of_weir_formats
    ].

init_per_suite(Config) ->
    [{tree, tree(filename:dirname(code:which(?MODULE)))}, {configured, configured(?config(priv_dir, Config))} | Config].

%% A directory with the files that the pages name.
configured(Directory) ->
    Configured = filename:join(Directory, "configured"),
    ok = filelib:ensure_path(Configured),
    [
        ok = file:write_file(filename:join(Configured, Name), "thirty-two bytes and then some more")
     || Name <- ["secret", "mercure.key", "redis-password"]
    ],
    #{server := Files} = weir_compatibility_certificates:write(weir_compatibility_certificates:make(), Directory),
    [
        {ok, _} = file:copy(maps:get(File, Files), filename:join(Configured, Name))
     || {File, Name} <- [{keyfile, "key.pem"}, {certfile, "cert.pem"}, {cacertfile, "ca.pem"}]
    ],
    Configured.

end_per_suite(_Config) ->
    ok.

gen_tcp(Config) -> run("gen_tcp", Config).
listeners(Config) -> run("listeners", Config).
ranch(Config) -> run("ranch", Config).
yaws(Config) -> run("yaws", Config).
mochiweb(Config) -> run("mochiweb", Config).
ssl(Config) -> run("ssl", Config).
whole_vm(Config) -> run("whole_vm", Config).
reactors(Config) -> run("reactors", Config).
http(Config) -> run("http", Config).
http_process(Config) -> run("http_process", Config).
http_limits(Config) -> run("http_limits", Config).
http_operating(Config) -> run("http_operating", Config).
static_files(Config) -> run("static_files", Config).
streams(Config) -> run("streams", Config).
websocket(Config) -> run("websocket", Config).
relays(Config) -> run("relays", Config).
groups(Config) -> run("groups", Config).
%% Its subscribers are processes, so it opens no sockets.
pubsub(Config) -> run_readme("docs/guide/pubsub.md", [], Config).
push_protocol(Config) -> run_readme("docs/guide/push_protocol.md", [], Config).
mercure(Config) -> run_readme("docs/guide/mercure.md", [], Config).
%% These pages have no blocks that can run here.
push_server(Config) -> run_readme("docs/guide/push_server.md", [], Config).
push_operating(Config) -> run_readme("docs/guide/push_operating.md", [], Config).
nchan(Config) -> run_readme("docs/guide/nchan.md", [], Config).
proxy(Config) -> run_readme("docs/guide/proxy.md", [], Config).
elixir(Config) -> run("elixir", Config).

%% It opens no socket of Weir's.
doctor(Config) -> run_readme("docs/guide/doctor.md", [], Config).
scope(Config) -> run_readme("docs/guide/scope.md", [], Config).
scope_cpu(Config) -> run_readme("docs/guide/scope_cpu.md", [], Config).
scope_latency(Config) -> run_readme("docs/guide/scope_latency.md", [], Config).
scope_memory(Config) -> run_readme("docs/guide/scope_memory.md", [], Config).

readme(Config) -> run_readme("README.md", [], Config).
readme_of_weir_http(Config) -> run_readme("apps/weir_http/README.md", [], Config).
readme_of_weir_proxy(Config) -> run_readme("apps/weir_proxy/README.md", [], Config).
readme_of_weir_pubsub(Config) -> run_readme("apps/weir_pubsub/README.md", [], Config).
readme_of_weir_scope(Config) -> run_readme("apps/weir_scope/README.md", [], Config).
readme_of_weir_formats(Config) -> run_readme("apps/weir_formats/README.md", [], Config).
readme_of_weir_load(Config) ->
    %% The page expects a server of the reader.
    {ok, _} = application:ensure_all_started(weir),
    Echo = fun Echo(Socket, _) ->
        case gen_tcp:recv(Socket, 0) of
            {ok, Data} -> ok = gen_tcp:send(Socket, Data), Echo(Socket, []);
            {error, closed} -> ok
        end
    end,
    {ok, _} = weir:start_listener(?FUNCTION_NAME, #{ip => {127, 0, 0, 1}}, Echo, []),
    try
        run_readme("apps/weir_load/README.md", [{<<"7000">>, integer_to_list(weir:get_port(?FUNCTION_NAME))}], Config)
    after
        ok = weir:stop_listener(?FUNCTION_NAME)
    end.

%% The other page cannot run: Debian has no packages of its servers.
every_page_is_run(Config) ->
    Pages = [list_to_atom(filename:basename(File, ".md")) || File <- files(Config)],
    ?assertEqual([], Pages -- ['README', thousand_island | all()]).

%% A page

%% A page of the guide must close the sockets that it has opened.
run(Name, Config) ->
    run_page(
        "docs/guide/" ++ Name ++ ".md",
        [],
        fun(Node, Most) ->
            ?assert(Most > 0),
            weir_with:nothing_left(Node)
        end,
        Config
    ).

run_readme(File, InPlace, Config) ->
    run_page(File, InPlace, fun(_Node, _Most) -> ok end, Config).

run_page(File, InPlace, Check, Config) ->
    Page = read(filename:join(?config(tree, Config), File)),
    case weir_with:needs(needs(Page), Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            ok = check_file([Text || {"toml", Text} <- pieces(Page)], filename:basename(File), Config),
            Node = weir_with:start_node(),
            {ok, _} = weir_with:call(Node, application, ensure_all_started, [weir]),
            true = weir_with:call(Node, ?MODULE, start_session, []),
            try
                Most = run_pieces(pieces(in_place(Page, InPlace, Config)), none, Node, Config, 0),
                Check(Node, Most)
            after
                end_shells(),
                peer:stop(Node)
            end
    end.

check_file([], _Page, _Config) ->
    ok;
check_file(Texts, Page, Config) ->
    File = filename:join(?config(configured, Config), Page ++ ".toml"),
    ok = file:write_file(File, unicode:characters_to_binary(Texts)),
    ?assertMatch({ok, _}, read_file(Page, File)),
    ok.

read_file("proxy.md", File) -> weir_proxy_file:read(File);
read_file(_PushServer, File) -> weir_pubsub_file:read(File).

needs(Page) ->
    case re:run(Page, "<!-- needs: (.*?) -->", [{capture, all_but_first, list}]) of
        {match, [Names]} -> [list_to_atom(Name) || Name <- string:lexemes(Names, " ")] ++ ["curl"];
        nomatch -> []
    end.

%% Files that a page writes go to the directory of the test.
in_place(Page, Others, Config) ->
    Port = weir_test_port:claim(),
    Directory = ?config(priv_dir, Config),
    lists:foldl(
        fun({From, To}, Text) -> binary:replace(Text, From, iolist_to_binary(To), [global]) end,
        Page,
        [
            {<<"8080">>, integer_to_list(Port)},
            {<<"/tmp/weir-guide">>, Directory},
            {<<"/tmp/weir_">>, [Directory, "/"]}
            | Others
        ]
    ).

pieces(Page) ->
    case re:run(Page, "^```(\\w+)\n(.*?)^```$", [global, multiline, dotall, {capture, all_but_first, list}]) of
        {match, Pieces} -> [{Language, Text} || [Language, Text] <- Pieces];
        nomatch -> []
    end.

%% Returns the highest number of Weir's sockets after any piece.
run_pieces([], _Output, _Node, _Config, Most) ->
    Most;
run_pieces([{"toml", _} | Pieces], Output, Node, Config, Most) ->
    run_pieces(Pieces, Output, Node, Config, Most);
run_pieces([{"erlang", "-module" ++ _ = Text} | Pieces], _Output, Node, Config, Most) ->
    {module, _} = weir_with:call(Node, code, load_binary, compiled(unhurried(Text))),
    run_pieces(Pieces, none, Node, Config, Most);
run_pieces([{Language, Text} | Pieces], _Output, Node, Config, Most) when
    Language =:= "erlang"; Language =:= "elixir"
->
    ct:log("~ts", [Text]),
    ok = weir_with:call(Node, ?MODULE, evaluate, [Language, unhurried(Text)]),
    run_pieces(Pieces, none, Node, Config, max(Most, weir_with:call(Node, ?MODULE, sockets, [])));
run_pieces([{"sh", Piece} | Pieces], _Output, Node, Config, Most) ->
    Text = patient(Piece, Config),
    ct:log("~ts", [Text]),
    {Status, Output} = shell(Text, Config),
    ?assertMatch({Text, 0, _}, {Text, Status, Output}),
    run_pieces(Pieces, Output, Node, Config, Most);
run_pieces([{"text", Text} | Pieces], Output, Node, Config, Most) when is_binary(Output) ->
    ?assertEqual(shown(Text), shown(Output)),
    run_pieces(Pieces, none, Node, Config, Most);
run_pieces([{"inetrc", _} | Pieces], _Output, Node, Config, Most) ->
    run_pieces(Pieces, none, Node, Config, Most).

%% Background programs run until the end of the page or of this emulator.
shell(Text, Config) ->
    Tree = ?config(tree, Config),
    Leash = filename:join([Tree, "bench", "leash"]),
    {Status, <<"pid ", Said/binary>>} =
        weir_with:program(Leash, ["sh", "-euc", Text], [{cd, Tree}, {env, environment()}]),
    [Pid, Output] = binary:split(Said, <<"\n">>),
    put(shells, [Pid | shells()]),
    {Status, Output}.

shells() -> case get(shells) of undefined -> []; Pids -> Pids end.

%% Each shell has its own session.
end_shells() ->
    [os:cmd("kill -KILL -- -" ++ binary_to_list(Pid)) || Pid <- shells()],
    erase(shells).

%% Readers need limits of five seconds; a busy test machine needs more.
unhurried(Text) -> re:replace(Text, "\\b5000\\b", integer_to_list(weir_test_wait:patience()), [global, {return, list}]).

%% Replaces fixed sleeps of the page by waiting for the expected condition.
patient(Text, Config) ->
    lists:foldl(
        fun({From, To}, Before) -> re:replace(Before, From, To, [global, {return, list}]) end, of_node(Text, Config), [
            {"sleep 2; cat (\\S*prices.txt)", "until grep -q lines \\1; do sleep 0.05; done; cat \\1"},
            {"sleep 2; cat (\\S*first.txt) (\\S*second.txt)",
                "until [ -s \\1 ] \\&\\& [ -s \\2 ]; do sleep 0.05; done; cat \\1 \\2"},
            {"sleep 2\n(sed .* )(\\S*access.log)", "until grep -qs nowhere \\2; do sleep 0.05; done\n\\1\\2"},
            %% A new handler of events sees requests up to a second later.
            {"sleep 2\n(curl .*)", "(while sleep 0.2 \\&\\& \\1; do :; done) >/dev/null 2>\\&1 \\&"},
            {"(curl -sN --max-time) 1 (.*)", "until \\1 1 \\2; do :; done"},
            {"--max-time 5 ", "--max-time " ++ integer_to_list(weir_test_wait:patience() div 1000) ++ " "}
        ]
    ).

%% The node gets a unique name, and writes a file when it has started. It ends with the page.
of_node(Text, Config) ->
    case re:run(Text, "-name (\\w+)@127.0.0.1", [{capture, all_but_first, list}]) of
        {match, [Name]} ->
            Own = lists:concat([Name, os:getpid(), "_", erlang:unique_integer([positive])]),
            File = filename:join(?config(priv_dir, Config), Own),
            lists:foldl(fun({From, To}, Before) -> lists:append(string:replace(Before, From, To, all)) end, Text, [
                {Name ++ "@", Own ++ "@"},
                {"timer:sleep(60000)",
                    "ok = file:write_file(\"" ++ File ++ "\", []), timer:sleep(" ++
                        integer_to_list(4 * weir_test_wait:patience()) ++ ")"},
                {"\nsleep 3", "\nuntil [ -e " ++ File ++ " ]; do sleep 0.05; done"}
            ]);
        nomatch ->
            Text
    end.

%% Each VM starts to number its sockets differently.
shown(Text) ->
    re:replace(string:trim(Text), "weir_tcp,[0-9]+", "weir_tcp,0", [global, {return, list}]).

compiled(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Module, Beam} = compile:forms(forms(Tokens, []), [return_errors]),
    [Module, lists:concat([Module, ".erl"]), Beam].

forms([], []) ->
    [];
forms([{dot, _} = Dot | Tokens], Form) ->
    {ok, Parsed} = erl_parse:parse_form(lists:reverse([Dot | Form])),
    [Parsed | forms(Tokens, [])];
forms([Token | Tokens], Form) ->
    forms(Tokens, [Token | Form]).

%% Tests bin/weir with the code that this suite was compiled with.
environment() ->
    Profile = filename:dirname(filename:dirname(filename:dirname(filename:dirname(code:which(weir))))),
    [{"REBAR_BASE_DIR", filename:dirname(Profile)}, {"REBAR_PROFILE", filename:basename(Profile)}].

tree(Directory) ->
    case filelib:is_regular(filename:join([Directory, "bin", "weir"])) of
        true -> Directory;
        false -> tree(filename:dirname(Directory))
    end.

files(Config) ->
    filelib:wildcard(filename:join([?config(tree, Config), "docs", "guide", "*.md"])).

read(File) ->
    {ok, Text} = file:read_file(File),
    Text.

%% In the page's VM, one process evaluates everything: it keeps the variables and owns what the page opens.

start_session() ->
    Pid = spawn(fun() -> session([]) end),
    register(?MODULE, Pid).

session(Bindings) ->
    receive
        {evaluate, Language, Text, From, Reference} ->
            After = evaluate(Language, Text, Bindings),
            From ! Reference,
            session(After)
    end.

evaluate("erlang", Text, Bindings) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {value, _, After} = erl_eval:exprs(Expressions, Bindings),
    After;
evaluate("elixir", Text, Bindings) ->
    {ok, _} = application:ensure_all_started(elixir),
    {_, After} = 'Elixir.Code':eval_string(Text, Bindings),
    After.

evaluate(Language, Text) ->
    Monitor = monitor(process, ?MODULE),
    ?MODULE ! {evaluate, Language, Text, self(), Monitor},
    receive
        Monitor -> demonitor(Monitor, [flush]), ok;
        {'DOWN', Monitor, process, _, Reason} -> {error, Reason, Text}
    end.

sockets() ->
    length(weir:sockets()).
