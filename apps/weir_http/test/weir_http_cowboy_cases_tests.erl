%% conformance/results/cowboy-cases.md lists our tests for the cases of Cowboy's suites. Checks that each of
%% these tests exists.
-module(weir_http_cowboy_cases_tests).

-include_lib("eunit/include/eunit.hrl").

every_test_that_is_named_is_there_test_() -> {timeout, 180, fun every_test_that_is_named_is_there/0}.

every_test_that_is_named_is_there() ->
    {ok, Table} = file:read_file(weir_http_peers:file("conformance/results/cowboy-cases.md")),
    Rows = [
        binary:split(Line, <<" | ">>, [global])
     || <<"| ", Line/binary>> <- binary:split(Table, <<"\n">>, [global])
    ],
    [_Head, _Rule | Cases] = Rows,
    Names = [{Suite, Name} || [Suite, Some, _] <- Cases, Name <- binary:split(Some, <<" ">>, [global])],
    ?assertEqual(340, length(Names)),
    ?assertEqual(340, length(lists:usort(Names))),
    {match, Named} = re:run([Here || [_, _, Here] <- Cases], "`([^`]+)`", [global, {capture, all_but_first, list}]),
    ?assert(length(Named) > 100),
    ?assertEqual([], lists:usort([Name || [Name] <- Named, not is_there(string:split(Name, ":"))])).

is_there([Probe]) ->
    lists:keymember(Probe, 1, weir_http_probes:all());
is_there([File, Test]) ->
    case filename:extension(File) of
        ".rs" ->
            {ok, Source} = file:read_file(weir_http_peers:file(filename:join("apps/weir_http/native/src", File))),
            binary:match(Source, list_to_binary(["fn ", Test, "() {"])) =/= nomatch;
        _ ->
            Module = list_to_atom(File),
            {module, Module} = code:ensure_loaded(Module),
            erlang:function_exported(Module, list_to_atom(Test), 1) orelse
                erlang:function_exported(Module, list_to_atom(Test), 0)
    end.
