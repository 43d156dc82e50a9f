%% Short runs of bench/scaling as a user starts it.
-module(weir_bench_scaling_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([counts_of_each_server_are_there/1, a_wrong_argument_is_one_line_and_exit_code_2/1, it_says_what_it_does/1]).
-export([a_tarball_needs_no_erlang/1]).

suite() -> [{timetrap, {minutes, 10}}].

all() ->
    [
        counts_of_each_server_are_there, a_wrong_argument_is_one_line_and_exit_code_2, it_says_what_it_does,
        a_tarball_needs_no_erlang
    ].

%% Tests bin/weir with the code that this suite was compiled with.
init_per_suite(Config) ->
    ok = weir_bench_record:in_tree(),
    Profile = filename:dirname(filename:dirname(filename:dirname(filename:dirname(code:which(weir))))),
    [
        {environment, [{"REBAR_BASE_DIR", filename:dirname(Profile)}, {"REBAR_PROFILE", filename:basename(Profile)}]}
        | Config
    ].

end_per_suite(_Config) -> ok.

counts_of_each_server_are_there(Config) ->
    if_built(fun() ->
        Directory = proplists:get_value(priv_dir, Config),
        {0, _} = run(Config, [
            "--schedulers", "2", "--only", "scaling-accept", "--repeat", "1", "--quick", "--results", Directory
        ]),
        measured(Directory, ["weir passive", "weir listener", "inet passive", "native"])
    end).

%% The tarball brings the whole runtime: PATH has nothing else, and no path to this machine's Erlang.
a_tarball_needs_no_erlang(Config) ->
    if_built(fun() ->
        Directory = proplists:get_value(priv_dir, Config),
        File = filename:join(Directory, "scaling.tar.gz"),
        {0, _} = run(Config, ["--tarball", File]),
        ok = erl_tar:extract(File, [compressed, {cwd, Directory}]),
        ok = file:delete(File),
        Path = filename:join(Directory, "path"),
        ok = filelib:ensure_path(Path),
        [
            ok = file:make_symlink(Program, filename:join(Path, Tool))
         || Tool <- tools(), Program <- [os:find_executable(Tool)], Program =/= false
        ],
        Here = filename:join(Directory, "weir-scaling"),
        Environment = [{"PATH", Path}, {"WEIR_ROOT", false}, {"ROOTDIR", false}, {"BINDIR", false}],
        {0, _} = run_program(filename:join(Here, "scaling"), Environment, [
            "--schedulers", "1", "--only", "scaling-publication", "--repeat", "1", "--quick"
        ]),
        measured(filename:join([Here, "bench", "results"]), ["weir push"])
    end).

%% Programs that every Debian has.
tools() ->
    [
        "sh", "env", "readlink", "dirname", "setsid", "setpriv", "taskset", "cat", "sleep", "kill", "id", "uname"
    ].

measured(Directory, Titles) ->
    [File] = filelib:wildcard(filename:join(Directory, "*-scaling-otp*.json")),
    {ok, #{<<"complete">> := true, <<"scenarios">> := [#{<<"contestants">> := Contestants} = Scenario]}} =
        weir_bench_results:read(File),
    ?assertMatch(#{<<"over">> := <<"schedulers">>}, Scenario),
    ?assertEqual(
        [iolist_to_binary(Title) || Title <- Titles], [
            weir_bench_scenario:plain_title(Title)
         || #{<<"title">> := Title} <- Contestants
        ]
    ),
    [
        ?assertMatch(
            {_, #{<<"cpu_us_per_request">> := _, <<"switches_per_request">> := _}, []}, {Title, Metrics, Failures}
        )
     || #{<<"title">> := Title, <<"metrics">> := Metrics, <<"failures">> := Failures} <- Contestants
    ],
    [
        ?assert(is_map_key(<<"busiest_percent">>, Metrics))
     || #{<<"backend">> := <<"weir">>, <<"metrics">> := Metrics} <- Contestants
    ],
    [_] = filelib:wildcard(filename:rootname(File) ++ "-scaling-*.svg"),
    {ok, Page} = file:read_file(filename:rootname(File) ++ ".html"),
    ?assertNotEqual(nomatch, binary:match(Page, <<"class=\"curve\"">>)),
    ?assert(filelib:is_regular(filename:rootname(File) ++ ".md")).

a_wrong_argument_is_one_line_and_exit_code_2(Config) ->
    [
        begin
            {Status, Lines} = run(Config, Arguments),
            ?assertMatch({Arguments, 2, [_]}, {Arguments, Status, Lines}),
            ?assertNotEqual({Lines, nomatch}, {Lines, binary:match(hd(Lines), Part)})
        end
     || {Arguments, Part} <- [
            {["--schedulers", "1,zero"], <<"1,zero: whole numbers">>},
            {["--only", "echo-100"], <<"echo-100">>},
            {["faster"], <<"unexpected argument: faster">>},
            {["--tarball"], <<"one file is needed">>},
            {["--tarball", "a", "b"], <<"one file is needed">>}
        ]
    ].

it_says_what_it_does(Config) ->
    {0, Lines} = run(Config, ["--help"]),
    Text = iolist_to_binary(Lines),
    Words = [<<"--schedulers">>, <<"--tarball">>, <<"scaling-echo">>],
    [?assertNotEqual({Word, nomatch}, {Word, binary:match(Text, Word)}) || Word <- Words].

if_built(Test) ->
    case iolist_to_binary(weir_bench_tree:missing()) of
        <<>> -> Test();
        Missing -> {skip, binary_to_list(Missing)}
    end.

run(Config, Arguments) ->
    run_program(
        filename:join([os:getenv("WEIR_ROOT"), "bench", "scaling"]), proplists:get_value(environment, Config), Arguments
    ).

run_program(Program, Environment, Arguments) ->
    Port = open_port({spawn_executable, Program}, [
        {args, Arguments},
        {env, [{"WEIR_PROGRESS", "lines"} | Environment]},
        {line, 10000},
        exit_status,
        stderr_to_stdout,
        binary
    ]),
    ended(Port, []).

ended(Port, Lines) ->
    receive
        {Port, {data, {_, Line}}} -> ended(Port, [Line | Lines]);
        {Port, {exit_status, Status}} ->
            ct:log("~p~n~ts", [Status, lists:join("\n", lists:reverse(Lines))]),
            {Status, lists:reverse(Lines)}
    end.
