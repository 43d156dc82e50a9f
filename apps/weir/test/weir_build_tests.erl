%% native/build in a package that contains the libraries.
-module(weir_build_tests).

-include_lib("eunit/include/eunit.hrl").

package_test_() ->
    {foreach, fun package/0, fun file:del_dir_r/1, [
        fun(Package) -> {"checksums match", ?_assertEqual({0, ""}, build(Package, ""))} end,
        fun a_changed_library_is_refused/1,
        fun a_file_without_checksum_is_refused/1,
        fun a_missing_library_is_refused/1,
        fun what_was_built_is_removed/1,
        fun building_needs_rust/1,
        fun other_processors_are_named/1
    ]}.

a_changed_library_is_refused(Package) ->
    write(Package, library(), "changed"),
    ?_assertMatch({1, {match, _}}, seen(build(Package, ""), "sample_nif-.*: FAILED")).

a_file_without_checksum_is_refused(Package) ->
    write(Package, "priv/native/other.so", "other"),
    ?_assertMatch({1, {match, _}}, seen(build(Package, ""), "other.so does not belong to this package")).

a_missing_library_is_refused(Package) ->
    ok = file:delete(filename:join(Package, library())),
    ?_assertMatch({1, {match, _}}, seen(build(Package, ""), "FAILED open or read")).

%% A library that was built would be loaded first.
what_was_built_is_removed(Package) ->
    write(Package, "priv/sample_nif.so", "built"),
    [
        ?_assertEqual({0, ""}, build(Package, "")),
        ?_assertNot(filelib:is_file(filename:join(Package, "priv/sample_nif.so")))
    ].

building_needs_rust(Package) ->
    %% cargo of Debian would be in the PATH of build/2.
    [?_assertMatch({1, {match, _}}, seen(build(Package, "WEIR_BUILD=1"), "cargo is missing: install Rust"))
     || not filelib:is_file("/usr/bin/cargo")].

other_processors_are_named(Package) ->
    write(Package, "bin/uname", "#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo riscv64\n"),
    ok = file:change_mode(filename:join(Package, "bin/uname"), 8#755),
    ?_assertMatch({0, {match, _}}, seen(build(Package, ""), "no native library for riscv64: WEIR_BUILD=1")).

package() ->
    Package = string:trim(os:cmd("mktemp -d")),
    write(Package, "src/sample.app.src", "{application, sample, []}."),
    write(Package, library(), "library"),
    write(Package, "native/Cargo.toml", ""),
    {ok, _} = file:copy(script(code:lib_dir(weir)), filename:join(Package, "native/build")),
    [] = os:cmd("cd " ++ filename:join(Package, "priv/native") ++ " && sha256sum *.so >SHA256SUMS"),
    Package.

library() ->
    "priv/native/sample_nif-" ++ string:trim(os:cmd("uname -m")) ++ "-linux-gnu.so".

%% Runs it without cargo in PATH, and returns exit status and output.
build(Package, Environment) ->
    Path = filename:join(Package, "bin") ++ ":/usr/bin:/bin",
    Command = [
        "env -i PATH=", Path, " ", Environment, " sh ", filename:join(Package, "native/build"), " 2>&1; echo $?"
    ],
    Lines = string:split(string:trim(os:cmd(lists:flatten(Command))), "\n", trailing),
    {list_to_integer(lists:last(Lines)), lists:flatten(lists:droplast(Lines))}.

seen({Status, Output}, Pattern) -> {Status, re:run(Output, Pattern)}.

write(Package, Name, Text) ->
    File = filename:join(Package, Name),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, Text).

script(Directory) ->
    File = filename:join(Directory, "apps/weir/native/build"),
    case filelib:is_regular(File) of
        true -> File;
        false when Directory =/= "/" -> script(filename:dirname(Directory))
    end.
