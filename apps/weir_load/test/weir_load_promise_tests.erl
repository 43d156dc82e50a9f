-module(weir_load_promise_tests).

-include_lib("eunit/include/eunit.hrl").

total() ->
    #{
        response_us => #{p99 => 9500.0, max => 20000.0, mean => 5000},
        service_us => #{p999 => 100.0},
        errors => #{timeout => 2, reset => 1},
        error_count => 3,
        achieved_rate => 1999.5,
        answered => 16000
    }.

promises_test_() ->
    [
        ?_assertMatch({Text, #{kept := Kept}}, {Text, check(Text)})
     || {Text, Kept} <- [
            {"p99<10ms", true}, {"p99<9ms", false}, {"p99<=9500us", true}, {"p99>1s", false}, {"max<0.02s", false},
            {"max<=20ms", true}, {"mean=5ms", true}, {"service.p999<1ms", true}, {"response.p99<10ms", true},
            {"errors=0", false}, {"errors=3", true}, {"errors.timeout<=2", true}, {"errors.refused=0", true},
            {"achieved_rate>=1999", true}, {"achieved_rate>=2000", false}, {"answered=16000", true},
            %% A promise about something that was not measured is not kept.
            {"connect.p99<1h", false}, {"p50<1h", false}, {"pushed_rate>=0", false}
        ]
    ].

check(Text) ->
    {ok, Promise} = weir_load_promise:parse(Text),
    ?assertEqual(Text, weir_load_promise:text(Promise)),
    weir_load_promise:check(Promise, total()).

wrong_promises_test_() ->
    [
        ?_assertMatch({Text, {error, _}}, {Text, weir_load_promise:parse(Text)})
     || Text <- [
            "", "p99", "p99<", "p99<10", "p98<10ms", "speed>1", "errors=none", "errors<1s", "p99!10ms", "disk.p99<1s"
        ]
    ].
