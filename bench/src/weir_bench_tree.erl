%% @doc Paths in the source tree, and writing of files there. `bin/weir' sets the root in the environment.
-module(weir_bench_tree).

-export([weir/0, leash/0, reference/0, driver/0, results/0]).
-export([suite/0, scaling/0, comparisons/0, page/0, charts/0, measurements/0, conformance/0]).
-export([peer/1, lock_of_tokio/0]).
-export([file_of/1]).
-export([scratch/1]).
-export([replace/2]).
-export([missing/0]).
-export([commit/0]).


%% @doc Returns the path of the command line.
-spec weir() -> file:filename().
weir() -> path(["bin", "weir"]).

%% @doc Returns the path of the script that ends a program with its starter.
-spec leash() -> file:filename().
leash() -> path(["bench", "leash"]).

%% @doc Returns the path of the reference servers in native code.
-spec reference() -> file:filename().
reference() -> native("weir-reference").

%% @doc Returns the path of the load driver.
-spec driver() -> file:filename().
driver() -> native("weir-drive").

%% @doc Returns the directory of the results.
-spec results() -> file:filename().
results() -> path(["bench", "results"]).

%% @doc Returns the path of the suite.
-spec suite() -> file:filename().
suite() -> priv(weir_bench, "suite.config").

%% @doc Returns the path of the suite over numbers of schedulers.
-spec scaling() -> file:filename().
scaling() -> priv(weir_bench, "scaling.config").

%% @doc Returns the path of the definitions of tables in documents.
-spec comparisons() -> file:filename().
comparisons() -> priv(weir_bench, "comparisons.config").

%% @doc Returns the directory with the parts of the results page, except the chart library.
-spec page() -> file:filename().
page() -> priv(weir_bench, "page").

%% @doc Returns style and script of the chart library. They exist only if npm was available when Weir was built.
-spec charts() -> {Style :: file:filename(), Script :: file:filename()}.
charts() -> {priv(weir_load, "report/uplot.css"), priv(weir_load, "report/uplot.js")}.

%% @doc Returns the documents that report results.
-spec measurements() -> [file:filename()].
measurements() ->
    [path(["README.md"]) | [path(["docs", Name]) || Name <- ["measurements.md", "seeds.md", "faq.md"]]] ++
        lists:sort(filelib:wildcard(path(["docs", "measurements", "*.md"]))).

%% @doc Returns the results of OTP's own suites.
-spec conformance() -> file:filename().
conformance() -> path(["conformance", "results", "otp-25.md"]).

%% @doc Returns the path of a peer that `bench/peers/build' builds.
-spec peer(envoy | go | tokio) -> file:filename().
peer(envoy) -> path(["bench", "peers", "target", "envoy", "envoy"]);
peer(go) -> path(["bench", "peers", "target", "weir-go"]);
peer(tokio) -> path(["bench", "peers", "target", "tokio", "release", "weir-tokio"]).

%% @doc Returns the file that has the version of tokio.
-spec lock_of_tokio() -> file:filename().
lock_of_tokio() -> path(["bench", "peers", "tokio", "Cargo.lock"]).

%% @doc Returns the path of a temporary file of this process.
-spec scratch(iodata()) -> file:filename().
scratch(Name) ->
    File = path(["_build", "bench", lists:flatten(io_lib:format("~s-~ts", [os:getpid(), Name]))]),
    ok = filelib:ensure_dir(File),
    File.

%% @doc Replaces a file atomically: readers never see a partial file, even after an interruption.
-spec replace(file:filename(), binary()) -> ok | {error, file:posix() | badarg | terminated | system_limit}.
replace(File, Content) ->
    Beside = File ++ ".new",
    case file:write_file(Beside, Content) of
        ok -> file:rename(Beside, File);
        {error, _} = Error -> Error
    end.

priv(Application, Name) ->
    filename:join(code:priv_dir(Application), Name).

%% @doc Returns a file with this many bytes, in the build directory. Creates it on first use.
-spec file_of(pos_integer()) -> file:filename().
file_of(Size) ->
    File = path(["_build", "bench", "bytes-" ++ integer_to_list(Size)]),
    case filelib:file_size(File) of
        Size ->
            File;
        _ ->
            %% Another measurement may create it at the same time.
            Own = scratch(["bytes-", integer_to_list(Size)]),
            ok = file:write_file(Own, binary:copy(<<"m">>, Size)),
            ok = file:rename(Own, File),
            File
    end.

%% @doc Returns a message about what must be built before measuring; empty if nothing is missing.
-spec missing() -> iodata().
missing() ->
    case [Program || Program <- [driver(), reference()], not filelib:is_regular(Program)] of
        [] -> [];
        [Program | _] -> ["not built: ", Program, " is missing, run `make build`"]
    end.

%% @doc Returns the commit of the tree. Without git it is still known, but not whether files have changed since.
-spec commit() -> binary().
commit() ->
    %% A tarball has no history, but a file with its commit.
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
    %% Git refuses a tree of another owner, which happens for root in another root directory; safe.directory allows
    %% it.
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
