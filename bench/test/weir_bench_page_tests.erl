-module(weir_bench_page_tests).

-include_lib("eunit/include/eunit.hrl").

the_page_of_results_is_written_beside_them_test() ->
    in_file(weir_bench_results:document(weir_bench_record:record()), fun(File) ->
        Page = filename:rootname(File) ++ ".html",
        ?assertEqual({ok, [Page]}, weir_bench_page:write([File])),
        {ok, Html} = file:read_file(Page),
        ok = file:delete(Page),
        ?assertMatch({0, _}, binary:match(Html, <<"<!doctype html>">>)),
        ?assertNotEqual(nomatch, binary:match(Html, <<"weir once">>))
    end).

in_file(Document, Use) ->
    ok = weir_bench_record:in_tree(),
    File = weir_bench_tree:scratch("page_tests.json"),
    ok = file:write_file(File, weir_bench_results:text(Document)),
    try
        Use(File)
    after
        ok = file:delete(File)
    end.
