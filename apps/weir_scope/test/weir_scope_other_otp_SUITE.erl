%% Nodes of other releases of OTP, stock and with Weir, are shown in the same way. They run in the roots of
%% scripts/otp-root, if these have been built.
-module(weir_scope_other_otp_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([
    all/0,
    groups/0,
    suite/0,
    init_per_suite/1,
    end_per_suite/1,
    init_per_group/2,
    end_per_group/2,
    init_per_testcase/2,
    end_per_testcase/2
]).
-export([stock/1, with_weir/1]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, '27'}, {group, '29'}].

groups() ->
    [{Root, [], [stock, with_weir]} || Root <- ['27', '29']].

init_per_suite(Config) ->
    [{started, weir_scope_distribution:start("weir_scope_other_otp")} | Config].

end_per_suite(Config) -> weir_scope_distribution:stop(?config(started, Config)).

%% Skips a release whose root has not been built, because building it takes minutes.
init_per_group(Root, Config) ->
    Cache = os:getenv("XDG_CACHE_HOME", filename:join(os:getenv("HOME", "/"), ".cache")),
    Built = filelib:is_regular(filename:join([Cache, "weir", "otp-" ++ atom_to_list(Root), "etc", "weir-packages"])),
    Script = filename:join(tree(code:which(?MODULE)), "scripts/otp-root"),
    case Built andalso os:getenv("REBAR_BASE_DIR", "") of
        "" -> [{root, atom_to_list(Root)}, {script, Script} | Config];
        false -> {skip, "no root: scripts/otp-root " ++ atom_to_list(Root) ++ " builds it"};
        _ -> {skip, "this is such a root itself"}
    end.

end_per_group(_Root, _Config) -> ok.

tree(Path) ->
    case filelib:is_file(filename:join(Path, "docs/internals.md")) of
        true -> Path;
        false -> tree(filename:dirname(Path))
    end.

init_per_testcase(_Case, Config) ->
    Name = lists:concat([peer:random_name(), "@127.0.0.1"]),
    Port = open_port({spawn_executable, ?config(script, Config)}, [
        {args, [
            ?config(root, Config),
            "erl",
            "-noinput",
            "-name",
            Name,
            "-setcookie",
            atom_to_list(erlang:get_cookie()),
            "-eval",
            lists:concat([
                "io:format(\"up~n\"), true = monitor_node('", node(), "', true), receive {nodedown, _} -> halt() end."
            ])
        ]},
        {line, 200},
        binary,
        stderr_to_stdout
    ]),
    up(Port),
    [{node, list_to_atom(Name)} | Config].

up(Port) ->
    receive
        {Port, {data, {eol, <<"up">>}}} -> ok;
        {Port, {data, {eol, Line}}} -> ct:log("~ts", [Line]), up(Port)
    after weir_test_wait:patience() -> ct:fail(no_node)
    end.

end_per_testcase(_Case, Config) ->
    catch erpc:cast(?config(node, Config), erlang, halt, []),
    ok.

call(Config, Module, Function, Arguments) -> erpc:call(?config(node, Config), Module, Function, Arguments).

stock(Config) ->
    Node = ?config(node, Config),
    ?assertEqual(?config(root, Config), call(Config, erlang, system_info, [otp_release])),
    ?assertEqual(non_existing, call(Config, code, which, [weir_scope])),
    [looked_at(Config, Load) || Load <- [true, false]],
    {ok, View} = weir_scope:open(Node, #{}),
    {ok, otp} = weir_scope:tracer(View),
    ?assertMatch(
        {ok, #{tracer := otp, schedulers := [#{ready := [_ | _]} | _]}}, weir_scope:schedules(View, #{over => 200})
    ),
    ?assertMatch({ok, #{costs := [_ | _]}}, weir_scope:clocks(View)),
    ?assertEqual({ok, not_counted}, weir_scope:locks(View)),
    ok = weir_scope:close(View),
    nothing_stays(Config).

looked_at(Config, Load) ->
    {ok, View} = weir_scope:open(?config(node, Config), #{load => Load}),
    [
        begin
            {ok, Data} = weir_scope_page:look(Page, hd(weir_scope_page:sorts(Page)), View),
            ?assertMatch([_ | _], weir_scope_page:page(Page, Data, []))
        end
     || Page <- weir_scope_page:names()
    ],
    {ok, #{schedulers := Schedulers, memory := #{rss := _, carriers := Carriers, blocks := Blocks}}} =
        weir_scope:sample(View),
    %% Threads have other names from OTP 26 on.
    ?assertMatch([_ | _], [Cpu || #{kind := normal, cpu := Cpu} <- Schedulers]),
    ?assert(Carriers >= Blocks),
    ok = weir_scope:close(View),
    {ok, #{fine := Fine, unknown := Unknown}} = weir_scope_doctor:examine(?config(node, Config), #{
        over => 100, load => Load
    }),
    ?assert(length(Fine) > 20, Unknown).

nothing_stays(Config) ->
    weir_test_wait:wait_until(fun() ->
        Loaded = call(Config, code, all_loaded, []),
        not lists:any(fun({Module, _}) -> lists:prefix("weir_scope", atom_to_list(Module)) end, Loaded)
    end).

with_weir(Config) ->
    ok = compiled_there(Config),
    {ok, _} = call(Config, application, ensure_all_started, [weir]),
    {module, _} = weir_scope_load_there(Config),
    {ok, Port} = call(Config, weir_scope_load, listen_slowly, [1]),
    [
        begin
            {ok, View} = weir_scope:open(?config(node, Config), #{load => Load}),
            _ = weir_scope_distribution:next(View),
            ok = weir_scope_load:requests(Port, 2, 40),
            #{weir := #{pollsets := [_ | _], listeners := Listeners, reactors := Reactors}} =
                weir_scope_distribution:next(View),
            ?assertMatch([#{port := Port}], [Listener || #{name := scope_slow} = Listener <- Listeners]),
            ?assert(lists:sum([Callbacks || #{totals := #{callbacks := Callbacks}} <- Reactors]) >= 82),
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ],
    {ok, View} = weir_scope:open(?config(node, Config), #{}),
    {ok, native} = weir_scope:tracer(View),
    ?assertMatch({ok, #{tracer := native}}, weir_scope:schedules(View, #{over => 200})),
    ok = weir_scope:close(View).

%% OTP 29 cannot load all modules that OTP 25 has compiled.
compiled_there(Config) ->
    Ours = filename:dirname(filename:dirname(code:which(weir))),
    Theirs = filename:join([?config(priv_dir, Config), ?config(root, Config), "weir"]),
    Ebin = filename:join(Theirs, "ebin"),
    ok = filelib:ensure_path(Ebin),
    ok = file:make_symlink(filename:join(Ours, "priv"), filename:join(Theirs, "priv")),
    {ok, _} = file:copy(filename:join(Ours, "ebin/weir.app"), filename:join(Ebin, "weir.app")),
    Weir = filename:join(tree(code:which(?MODULE)), "apps/weir"),
    Files = filelib:wildcard(filename:join(Weir, "src/**/*.erl")),
    Includes = [{i, filename:join(Weir, Directory)} || Directory <- ["src", "include"]],
    up_to_date = call(Config, make, files, [Files, [{outdir, Ebin} | Includes]]),
    true = call(Config, code, add_patha, [Ebin]),
    ok.

weir_scope_load_there(Config) ->
    {Module, Beam, File} = code:get_object_code(weir_scope_load),
    call(Config, code, load_binary, [Module, File, Beam]).
