-module(weir_http_timeouts_tests).

-include_lib("eunit/include/eunit.hrl").

connections_that_come_together_are_due_apart_test() ->
    Times = [weir_http_timeouts:staggered({'$inet', weir_tcp, Handle}, 1000) || Handle <- lists:seq(1, 1000)],
    ?assert(lists:min(Times) >= 750),
    ?assert(lists:max(Times) =< 1000),
    %% By chance 4 are due in the same millisecond; without staggering all would be.
    Together = [length([Time || Time <- Times, Time =:= Each]) || Each <- lists:usort(Times)],
    ?assert(lists:max(Together) < 30, Together).

a_connection_has_one_time_test() ->
    [
        ?assertEqual(weir_http_timeouts:staggered(Socket, Time), weir_http_timeouts:staggered(Socket, Time))
     || Socket <- [{'$inet', weir_tcp, 7}, {weir_http_tls, self(), socket, make_ref()}],
        Time <- [1, 2, 50, (1 bsl 31) - 1]
    ],
    ?assertEqual(1, weir_http_timeouts:staggered({'$inet', weir_tcp, 7}, 1)),
    ?assertEqual(infinity, weir_http_timeouts:staggered({'$inet', weir_tcp, 7}, infinity)).
