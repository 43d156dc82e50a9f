-module(weir_http_options_tests).

-include_lib("eunit/include/eunit.hrl").
-include("../src/weir_http.hrl").

new(Options) ->
    {ok, Routes} = weir_http_routes:new([]),
    weir_http_options:new(name, Options, Routes).

defaults_are_safe_test() ->
    {ok, Http, Listener} = new(#{}),
    ?assertMatch(
        #http{limits = {8192, 16384, 100}, max_body = 1048576, max_requests = infinity, tick = 1000, header_ticks = 10,
            idle_ticks = 60, body_ticks = 20, body_bytes = 500},
        Http
    ),
    ?assertEqual(#{max_connections => 16384, reactor => #{tick => 1000}}, Listener).

times_are_ticks_test() ->
    {ok, Http, #{reactor := #{tick := Tick}}} =
        new(#{header_timeout => 400, idle_timeout => infinity, body_timeout => 1050}),
    ?assertMatch(
        {100, #http{tick = 100, header_ticks = 4, idle_ticks = infinity, body_ticks = 11, body_bytes = 50}},
        {Tick, Http}
    ),
    ?assertMatch({ok, #http{tick = 25, header_ticks = 1}, _}, new(#{header_timeout => 1})),
    Never = #{header_timeout => infinity, idle_timeout => infinity, body_timeout => infinity},
    ?assertMatch({ok, #http{tick = 1000}, _}, new(Never)).

options_of_the_listener_go_there_test() ->
    ?assertMatch(
        {ok, _, #{port := 80, max_connections := 5, reactor := #{tick := _, max_send_queue := 1000}}},
        new(#{port => 80, max_connections => 5, reactor => #{max_send_queue => 1000}})
    ).

what_is_wrong_is_said_test() ->
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, new(#{Name => Value}))
     || {Name, Value} <- [
            {max_request_line, 0},
            {max_head, infinity},
            {max_fields, 257},
            {max_body, -1},
            {max_requests, 0},
            {header_timeout, 0},
            {idle_timeout, soon},
            {body_timeout, -1},
            {min_body_rate, 0},
            {reactor, []},
            {tls, no_list}
        ]
    ],
    ?assertMatch({error, {bad_option, reactor, {tick, 5}, _}}, new(#{reactor => #{tick => 5}})),
    ?assertMatch({error, {bad_option, options, [], _}}, new([])).
