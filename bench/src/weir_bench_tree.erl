%% @doc Where things are in the source tree, and how they come there. `bin/weir' tells its root in the environment.
-module(weir_bench_tree).

-export([weir/0, leash/0, reference/0, driver/0, results/0]).
-export([suite/0, scaling/0, page/0, charts/0, measurements/0]).
-export([peer/1, lock_of_tokio/0]).
-export([file_of/1]).
-export([scratch/1]).
-export([replace/2]).
-export([missing/0]).
-export([commit/0]).


%% @doc The command line.
-spec weir() -> file:filename().
weir() -> path(["bin", "weir"]).

%% @doc What keeps a program from outliving us.
-spec leash() -> file:filename().
leash() -> path(["bench", "leash"]).

%% @doc The reference servers in native code.
-spec reference() -> file:filename().
reference() -> native("weir-reference").

%% @doc The load driver.
-spec driver() -> file:filename().
driver() -> native("weir-drive").

%% @doc Where measurements are recorded.
-spec results() -> file:filename().
results() -> path(["bench", "results"]).

%% @doc What is measured.
-spec suite() -> file:filename().
suite() -> priv(weir_bench, "suite.config").

%% @doc What is measured over numbers of schedulers.
-spec scaling() -> file:filename().
scaling() -> priv(weir_bench, "scaling.config").

%% @doc The parts of the page of results, but for the chart library.
-spec page() -> file:filename().
page() -> priv(weir_bench, "page").

%% @doc The chart library, style and script; they are there where there was npm when Weir was built.
-spec charts() -> {Style :: file:filename(), Script :: file:filename()}.
charts() -> {priv(weir_load, "report/uplot.css"), priv(weir_load, "report/uplot.js")}.

%% @doc The documents that report results.
-spec measurements() -> [file:filename()].
measurements() -> [path(["docs", Name]) || Name <- ["measurements.md", "targets.md", "seeds.md"]].

%% @doc A peer that `bench/peers/build' builds.
-spec peer(envoy | go | tokio) -> file:filename().
peer(envoy) -> path(["bench", "peers", "target", "envoy", "envoy"]);
peer(go) -> path(["bench", "peers", "target", "weir-go"]);
peer(tokio) -> path(["bench", "peers", "target", "tokio", "release", "weir-tokio"]).

%% @doc Where the version of tokio is written down.
-spec lock_of_tokio() -> file:filename().
lock_of_tokio() -> path(["bench", "peers", "tokio", "Cargo.lock"]).

%% @doc A place for a file of this process's own that is needed for a while.
-spec scratch(iodata()) -> file:filename().
scratch(Name) ->
    File = path(["_build", "bench", lists:flatten(io_lib:format("~s-~ts", [os:getpid(), Name]))]),
    ok = filelib:ensure_dir(File),
    File.

%% @doc Writes a file whole or not at all: a reader, or an interruption, never meets a half.
-spec replace(file:filename(), binary()) -> ok | {error, file:posix() | badarg | terminated | system_limit}.
replace(File, Content) ->
    Beside = File ++ ".new",
    case file:write_file(Beside, Content) of
        ok -> file:rename(Beside, File);
        {error, _} = Error -> Error
    end.

priv(Application, Name) ->
    filename:join(code:priv_dir(Application), Name).

%% @doc A file of so many bytes, made when it is first asked for, beside what is built.
-spec file_of(pos_integer()) -> file:filename().
file_of(Size) ->
    File = path(["_build", "bench", "bytes-" ++ integer_to_list(Size)]),
    case filelib:file_size(File) of
        Size ->
            File;
        _ ->
            %% Another measurement may make it, too.
            Own = scratch(["bytes-", integer_to_list(Size)]),
            ok = file:write_file(Own, binary:copy(<<"m">>, Size)),
            ok = file:rename(Own, File),
            File
    end.

%% @doc What must be built before anything can be measured, as a message; empty if nothing is missing.
-spec missing() -> iodata().
missing() ->
    case [Program || Program <- [driver(), reference()], not filelib:is_regular(Program)] of
        [] -> [];
        [Program | _] -> ["not built: ", Program, " is missing, run `make build`"]
    end.

%% @doc The commit of the tree. Without git what is checked out is still known, but not whether it was changed since.
-spec commit() -> binary().
commit() ->
    %% A tarball has no history, but says of which commit it was made.
    case file:read_file(path(["COMMIT"])) of
        {ok, Commit} -> string:trim(Commit);
        {error, _} -> of_history()
    end.

of_history() ->
    case os:find_executable("git") of
        false -> head();
        _ -> git()
    end.

native(Name) ->
    path(["bench", "native", "target", "release", Name]).

path(Names) ->
    filename:join([root() | Names]).

root() ->
    case os:getenv("WEIR_ROOT") of
        false -> error({not_set, "WEIR_ROOT"});
        Root -> Root
    end.

git() ->
    %% Asked by the root of the tree in another root, git refuses a tree of another owner; it may be told not to.
    Git = "git -c safe.directory='*' -C \"$WEIR_ROOT\" ",
    case string:trim(os:cmd(Git ++ "rev-parse --verify --quiet HEAD")) of
        [_ | _] = Commit ->
            case string:trim(os:cmd(Git ++ "status --porcelain")) of
                "" -> unicode:characters_to_binary(Commit);
                _ -> unicode:characters_to_binary([Commit, " with changes"])
            end;
        "" ->
            <<"none">>
    end.

head() ->
    case file:read_file(path([".git", "HEAD"])) of
        {ok, <<"ref: ", Reference/binary>>} ->
            case file:read_file(path([".git", string:trim(Reference)])) of
                {ok, Commit} -> unchecked(Commit);
                {error, _} -> <<"unknown">>
            end;
        {ok, Commit} ->
            unchecked(Commit);
        {error, _} ->
            <<"unknown">>
    end.

unchecked(Commit) ->
    <<(string:trim(Commit))/binary, ", perhaps with changes">>.
