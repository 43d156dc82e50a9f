%% Weir as a dependency: an empty project depends on it, compiles it, starts it and serves a connection.
-module(weir_consumer_SUITE).

-export([all/0, suite/0]).
-export([init_per_testcase/2, end_per_testcase/2]).
-export([git_dependency/1, erl_libs/1]).

%% The first run compiles the crate's dependencies too; a longer run hangs.
-define(COMMAND_SECONDS, "1200").

all() ->
    [git_dependency, erl_libs].

suite() ->
    [{timetrap, {minutes, 60}}].

init_per_testcase(git_dependency, Config) ->
    case os:find_executable("cargo") of
        false -> {skip, "a project that fetches Weir builds its native library, and cargo is missing"};
        _ -> with_folder(Config)
    end;
init_per_testcase(_, Config) ->
    with_folder(Config).

with_folder(Config) ->
    [{folder, string:trim(run("mktemp -d", "/", []))} | Config].

end_per_testcase(_, Config) ->
    ok = file:del_dir_r(folder(Config)).

%% A rebar3 project that fetches Weir from a subdirectory of a git repository.
git_dependency(Config) ->
    Repository = filename:join(folder(Config), "repository"),
    commit_tree(Repository),
    Project = filename:join(folder(Config), "project"),
    Dependency = {git_subdir, "file://" ++ Repository, {branch, "main"}, "apps/weir"},
    write(Project, "rebar.config", io_lib:format("~tp.~n", [{deps, [{weir, Dependency}]}])),
    write(Project, "src/consumer.app.src", io_lib:format("~tp.~n", [application_resource()])),
    write(Project, "src/consumer.erl", consumer()),
    Environment = [
        {"REBAR_CACHE_DIR", filename:join(folder(Config), "rebar3")},
        {"REBAR_GLOBAL_CONFIG_DIR", filename:join(folder(Config), "rebar3")},
        %% Kept between runs, and separate from the tree's own: cargo would confuse the two copies of the crate.
        {"CARGO_TARGET_DIR", filename:join(tree(), "_build/consumer")},
        %% Fast compilation: only building and serving are tested.
        {"CARGO_PROFILE_RELEASE_LTO", "off"},
        {"CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"},
        {"CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"},
        %% All crates are on this machine, because the tree itself was built here.
        {"CARGO_NET_OFFLINE", "true"}
    ],
    _ = run("rebar3 compile", Project, Environment),
    served = serve("erl -pa $(rebar3 path --ebin)", Project, Environment).

%% Without a build tool: a built Weir in ERL_LIBS.
erl_libs(Config) ->
    Project = filename:join(folder(Config), "project"),
    write(Project, "consumer.erl", consumer()),
    Environment = [{"ERL_LIBS", filename:dirname(code:lib_dir(weir))}],
    _ = run("erlc -Werror consumer.erl", Project, Environment),
    served = serve("erl", Project, Environment).

serve(Erl, Project, Environment) ->
    Output = run(Erl ++ " -noshell -s consumer main", Project, Environment),
    case string:find(Output, "served over weir_tcp") of
        nomatch -> ct:fail("the consumer said: ~ts", [Output]);
        _ -> served
    end.

%% --- The consumer ---

application_resource() ->
    {application, consumer, [
        {description, "A project that depends on Weir"},
        {vsn, "1.0.0"},
        {registered, []},
        {applications, [kernel, stdlib, weir]},
        {modules, []}
    ]}.

consumer() ->
    "-module(consumer).\n"
    "-export([main/0]).\n"
    "\n"
    "main() ->\n"
    "    {ok, _} = application:ensure_all_started(weir),\n"
    "    Options = [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}}],\n"
    "    {ok, Listener} = gen_tcp:listen(0, Options),\n"
    "    {ok, Port} = inet:port(Listener),\n"
    "    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, Options, 60000),\n"
    "    {ok, Server} = gen_tcp:accept(Listener, 60000),\n"
    "    ok = gen_tcp:send(Client, <<\"request\">>),\n"
    "    {ok, Request} = gen_tcp:recv(Server, 7, 60000),\n"
    "    ok = gen_tcp:send(Server, Request),\n"
    "    {ok, <<\"request\">>} = gen_tcp:recv(Client, 7, 60000),\n"
    "    {'$inet', Module, _} = Server,\n"
    "    [ok = gen_tcp:close(Socket) || Socket <- [Client, Server, Listener]],\n"
    "    io:format(\"served over ~s~n\", [Module]),\n"
    "    init:stop().\n".

%% --- Files and commands ---

folder(Config) ->
    proplists:get_value(folder, Config).

write(Project, Name, Text) ->
    File = filename:join(Project, Name),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, unicode:characters_to_binary(Text)).

%% The root of the tree of this suite, which contains the build directory.
tree() ->
    tree(code:lib_dir(weir)).

tree(Directory) ->
    case filelib:is_regular(filename:join(Directory, "apps/weir/native/build")) of
        true -> Directory;
        false when Directory =:= "/" -> ct:fail("no tree of Weir above ~ts", [code:lib_dir(weir)]);
        false -> tree(filename:dirname(Directory))
    end.

%% A git repository with the present files of the tree. safe.directory is needed because the tree may belong to
%% another user.
commit_tree(Repository) ->
    ok = filelib:ensure_path(Repository),
    Copy =
        "git -c safe.directory='*' ls-files -z --cached --others --exclude-standard"
        " | tar --create --null --files-from=- --ignore-failed-read --file=-"
        " | tar --extract --directory=\"$REPOSITORY\" --file=-",
    _ = run(Copy, tree(), [{"REPOSITORY", Repository}]),
    Commit =
        "git init --quiet --initial-branch=main && git add --all &&"
        " git -c user.name=weir -c user.email=weir@localhost -c commit.gpgsign=false commit --quiet --message=tree",
    _ = run(Commit, Repository, []).

%% Runs a shell command that must succeed, and returns its output. Variables of this test run are removed from its
%% environment.
run(Command, Directory, Environment) ->
    Inherited = ["REBAR_BASE_DIR", "REBAR_PROFILE", "REBAR_CONFIG", "ERL_LIBS"] ++
        ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"],
    Port = open_port({spawn_executable, os:find_executable("timeout")}, [
        {args, [?COMMAND_SECONDS, "/bin/sh", "-c", Command]},
        {cd, Directory},
        {env, [{Name, false} || Name <- Inherited, not lists:keymember(Name, 1, Environment)] ++ Environment},
        exit_status,
        stderr_to_stdout,
        binary
    ]),
    case output(Port, []) of
        {0, Output} ->
            ct:log("~ts~n~ts", [Command, Output]),
            Output;
        {Status, Output} ->
            ct:fail("exit status ~b of: ~ts~n~ts", [Status, Command, Output])
    end.

output(Port, Parts) ->
    receive
        {Port, {data, Part}} -> output(Port, [Parts, Part]);
        {Port, {exit_status, Status}} -> {Status, unicode:characters_to_list(iolist_to_binary(Parts))}
    end.
