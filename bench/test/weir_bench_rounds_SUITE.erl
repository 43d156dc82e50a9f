%% Rounds in which one contestant's settings depend on another's figures.
-module(weir_bench_rounds_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0]).
-export([a_share_is_of_what_the_first_does/1, without_the_first_there_are_no_shares/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [a_share_is_of_what_the_first_does, without_the_first_there_are_no_shares].

a_share_is_of_what_the_first_does(_Config) ->
    ok = weir_bench_record:in_tree(),
    case iolist_to_binary(weir_bench_tree:missing()) of
        <<>> -> measured();
        Missing -> {skip, binary_to_list(Missing)}
    end.

measured() ->
    Scenario = scenario(echo),
    [{_, [{ok, Part}]}, {_, [{ok, Whole}]}] = run(Scenario),
    #{errors := 0, metrics := #{requests_per_s := Some}} = Part,
    #{errors := 0, metrics := #{requests_per_s := All}} = Whole,
    ?assert(Some > 0),
    %% The share is 3 %.
    ?assert(Some < All).

without_the_first_there_are_no_shares(_Config) ->
    ok = weir_bench_record:in_tree(),
    [{_, [{error, Reason}]}, {_, [{error, _}]}] = run(scenario(no_such_server)),
    ?assertMatch(<<"server ended", _/binary>>, Reason).

scenario(Server) ->
    #{
        name => some,
        chapter => some,
        title => <<"some">>,
        server => Server,
        load => echo,
        connections => 10,
        warmup => 100,
        duration => 1000,
        timeout => weir_test_wait:patience(),
        metrics => [requests_per_s],
        contestants => [
            #{title => <<"a part">>, backend => reference, share => 3},
            #{title => <<"all">>, backend => reference}
        ]
    }.

run(Scenario) ->
    weir_bench_rounds:run(Scenario, 1, weir_bench_machine:cores(), fun(_, _) -> ok end, fun(_) -> ok end).
