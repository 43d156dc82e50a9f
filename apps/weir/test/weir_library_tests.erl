-module(weir_library_tests).

-include_lib("eunit/include/eunit.hrl").

%% `system_architecture' on Debian, Red Hat, Alpine, and a Mac.
names_test_() ->
    [
        ?_assertEqual({ok, "weir_nif-x86_64-linux-gnu.so"}, weir_library:file_name(weir_nif, "x86_64-pc-linux-gnu")),
        ?_assertEqual(
            {ok, "weir_nif-x86_64-linux-gnu.so"}, weir_library:file_name(weir_nif, "x86_64-redhat-linux-gnu")
        ),
        ?_assertEqual(
            {ok, "weir_nif-aarch64-linux-musl.so"}, weir_library:file_name(weir_nif, "aarch64-alpine-linux-musl")
        ),
        ?_assertEqual(error, weir_library:file_name(weir_nif, "arm-unknown-linux-gnueabihf")),
        ?_assertEqual(error, weir_library:file_name(weir_nif, "aarch64-apple-darwin23.5.0"))
    ].

%% A library built here takes precedence over the packaged one; without either, the error says what to do.
order_test() ->
    with_application(fun(Priv) ->
        {error, {no_library, Text}} = weir_library:file(weir_library_sample, ?MODULE),
        ?assertMatch({_, {match, _}}, {Text, re:run(Text, "WEIR_BUILD=1")}),
        {ok, Name} = weir_library:file_name(?MODULE, erlang:system_info(system_architecture)),
        Packaged = filename:join([Priv, "native", Name]),
        touch(Packaged),
        ?assertEqual({ok, filename:rootname(Packaged)}, weir_library:file(weir_library_sample, ?MODULE)),
        Built = filename:join(Priv, ?MODULE),
        touch(Built ++ ".so"),
        ?assertEqual({ok, Built}, weir_library:file(weir_library_sample, ?MODULE))
    end).

%% No library can be loaded from inside an archive.
archive_test() ->
    with_application(fun(Priv) ->
        Archive = filename:dirname(filename:dirname(Priv)),
        ok = file:del_dir_r(Archive),
        touch(Archive),
        ?assertMatch({error, {in_archive, _}}, weir_library:file(weir_library_sample, ?MODULE)),
        ok = file:delete(Archive)
    end).

with_application(Test) ->
    Root = string:trim(os:cmd("mktemp -d")),
    Directory = filename:join(Root, "weir_library_sample"),
    ok = filelib:ensure_path(filename:join(Directory, "ebin")),
    true = code:add_patha(filename:join(Directory, "ebin")),
    try
        Test(filename:join(Directory, "priv"))
    after
        code:del_path(filename:join(Directory, "ebin")),
        file:del_dir_r(Root)
    end.

touch(File) ->
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, <<>>).
