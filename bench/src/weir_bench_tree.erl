%% @doc Where things are in the source tree. `bin/weir' tells its root in the environment.
-module(weir_bench_tree).

-export([weir/0, leash/0, reference/0, driver/0, results/0]).
-export([mebibyte/0]).
-export([missing/0]).
-export([commit/0]).

-define(MEBIBYTE, 1048576).

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

%% @doc A file of 1 MiB, made when it is first asked for, beside what is built.
-spec mebibyte() -> file:filename().
mebibyte() ->
    File = path(["_build", "bench", "mebibyte"]),
    case filelib:file_size(File) of
        ?MEBIBYTE ->
            File;
        _ ->
            ok = filelib:ensure_dir(File),
            ok = file:write_file(File, binary:copy(<<"m">>, ?MEBIBYTE)),
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
