%% weir_http_differential_SUITE with fifty thousand cases. WEIR_WRITE_RESULTS=1 in the environment writes the
%% differences to conformance/results/http11-differential.md. WEIR_SOAK_SEED sets another seed than that of the table.
-module(weir_http_differential_soak_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([no_difference_is_unexplained/1]).

-define(CASES, 50000).

suite() -> [{timetrap, {minutes, 20}}].

all() -> [no_difference_is_unexplained].

init_per_suite(Config) ->
    case weir_http_differential:start() of
        {ok, Servers} -> [{servers, Servers} | Config];
        {skip, _} = Skip -> Skip
    end.

end_per_suite(Config) -> weir_http_differential:stop(?config(servers, Config)).

no_difference_is_unexplained(Config) ->
    Seed = list_to_integer(os:getenv("WEIR_SOAK_SEED", "1")),
    Seen = weir_http_differential:run(weir_http_mutations:cases(?CASES, Seed), ?config(servers, Config)),
    Table = weir_http_differential:table(Seen),
    ct:pal("~ts", [Table]),
    case os:getenv("WEIR_WRITE_RESULTS") of
        "1" -> ok = file:write_file(weir_http_peers:file("conformance/results/http11-differential.md"), Table);
        _ -> ok
    end,
    ?assertEqual([], weir_http_differential:unexplained(Seen)).
