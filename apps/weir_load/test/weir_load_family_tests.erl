-module(weir_load_family_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SERVER, {127, 0, 0, 1}).

sources(Numbers) -> lists:usort([weir_load_family:source(?SERVER, Number) || Number <- Numbers]).

no_address_has_more_connections_than_ports_test() ->
    Sources = [weir_load_family:source(?SERVER, Number) || Number <- lists:seq(1, 200_000)],
    Counts = lists:foldl(fun(Source, Acc) -> maps:update_with(Source, fun(N) -> N + 1 end, 1, Acc) end, #{}, Sources),
    ?assertEqual(21, map_size(Counts)),
    ?assert(lists:max(maps:values(Counts)) =< 10_000).

addresses_are_valid_however_many_there_have_been_test() ->
    [
        ?assertMatch([{ip, {127, _, B, C}}] when B < 256 andalso C > 0 andalso C < 255, Source)
     || Source <- sources([N * 9_999_991 || N <- lists:seq(1, 1000)])
    ].

elsewhere_the_system_chooses_test() ->
    ?assertEqual([], weir_load_family:source({192, 0, 2, 1}, 100_000)),
    ?assertEqual([], weir_load_family:source({0, 0, 0, 0, 0, 0, 0, 1}, 100_000)).
