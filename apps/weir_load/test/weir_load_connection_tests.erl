%% The rules of measuring, without sockets and with made-up times.
-module(weir_load_connection_tests).

-include_lib("eunit/include/eunit.hrl").

-export([describe/0, init/1, connect/2, request/2, response/2, done/1]).

%% This module is also the scenario: each received byte stands for an event.
describe() -> #{summary => "bytes are events"}.
init(_) -> {ok, config}.
connect(Number, config) -> {ok, Number}.
request(Sequence, Number) -> {ok, [<<Number>>, <<Sequence>>], Number}.
response(<<"E">>, _Number) -> {error, bad};
response(Bytes, Number) -> {ok, [event(Byte) || <<Byte>> <= Bytes, Byte =/= $.], Number}.
done(_Number) -> self() ! done, ok.

event($a) -> answered;
event($f) -> {failed, no};
event($p) -> {pushed, 77};
event($s) -> {send, <<"s">>};
event($c) -> close.

-define(US, 1000).

profile() -> profile(#{}).

profile(Changes) ->
    Settings = #{
        scenario => ?MODULE, config => config, arrivals => request, held => true, depth => 1, timeout => 1000 * ?US
    },
    weir_load_profile:window({100 * ?US, 10_000 * ?US}, weir_load_profile:new(maps:merge(Settings, Changes))).

%% Plays steps as the engine would. Returns all effects, the connection and the sample.
play(Profile, Steps) ->
    {Effects, Connection, Sample} = lists:foldl(
        fun(Step, {Before, Connection, Sample}) ->
            {Effects, Later, Noted} = step(Step, Connection, Profile, Sample),
            {Before ++ Effects, Later, Noted}
        end,
        {[], weir_load_connection:new(7), weir_load_sample:new()},
        Steps
    ),
    Sum = weir_load_sample:merge(weir_load_sample:pack(Sample), weir_load_sample:empty()),
    {[plain(Effect) || Effect <- Effects], Connection, whole(weir_load_second:figures(Sum))}.

%% A histogram keeps three digits, so round to whole microseconds.
whole(Float) when is_float(Float) -> round(Float);
whole(Map) when is_map(Map) -> maps:map(fun(_, Value) -> whole(Value) end, Map);
whole(Other) -> Other.

step({opening, Now}, C, _, S) -> {[], weir_load_connection:opening(Now * ?US, C), S};
step({opened, Now}, C, P, S) -> weir_load_connection:opened(Now * ?US, C, P, S);
step({due, Due, Now}, C, P, S) -> weir_load_connection:due(Due * ?US, Now * ?US, C, P, S);
step({received, Data, Now}, C, P, S) -> weir_load_connection:received(Data, Now * ?US, C, P, S);
step({expire, Now}, C, P, S) -> weir_load_connection:expire(Now * ?US, C, P, S);
step(finish, C, P, S) -> {[], weir_load_connection:finish(C, P), S};
step({closed, Reason}, C, P, S) -> {Closed, Noted} = weir_load_connection:closed(Reason, C, P, S), {[], Closed, Noted}.

plain({send, Bytes}) -> {send, iolist_to_binary(Bytes)};
plain(Effect) -> Effect.

response_counts_the_wait_and_service_does_not_test() ->
    {Effects, _, Figures} = play(profile(), [
        {opened, 50}, {due, 100, 110}, {due, 200, 205}, {received, <<".">>, 300}, {received, <<"a">>, 400},
        {received, <<"a">>, 450}
    ]),
    ?assertEqual([{send, <<7, 1>>}, {send, <<7, 2>>}], Effects),
    %% Due at 100 and answered at 400, due at 200 and answered at 450; sent at 110 and at 400.
    ?assertMatch(#{response_us := #{count := 2, min := 250, max := 300}}, Figures),
    ?assertMatch(#{service_us := #{min := 50, max := 290}}, Figures),
    ?assertMatch(#{first_byte_us := #{min := 50, max := 190}}, Figures),
    ?assertMatch(#{lag_us := #{count := 2, min := 5, max := 10}}, Figures),
    ?assertMatch(#{sent := 2, answered := 2, error_count := 0, bytes_sent := 4, bytes_received := 3}, Figures).

what_is_due_before_it_is_open_waits_test() ->
    {Effects, _, Figures} = play(profile(), [{due, 100, 100}, {opening, 110}, {opened, 300}, {received, <<"a">>, 350}]),
    ?assertEqual([{send, <<7, 1>>}], Effects),
    ?assertMatch(#{response_us := #{min := 250}, service_us := #{min := 50}, connect_us := #{min := 190}}, Figures).

as_many_are_on_their_way_as_the_depth_test() ->
    {Effects, Connection, _} = play(profile(#{depth => 2}), [{opened, 0} | [{due, N, N} || N <- [100, 101, 102]]]),
    ?assertEqual([{send, <<7, 1>>}, {send, <<7, 2>>}], Effects),
    ?assertEqual(3, weir_load_connection:pending(Connection)).

what_is_due_outside_the_window_is_not_measured_test() ->
    {_, _, Figures} = play(profile(), [{opened, 0}, {due, 99, 99}, {received, <<"a">>, 150}, {due, 10_000, 10_000}]),
    ?assertMatch(#{sent := 0, answered := 0}, Figures),
    ?assertNot(is_map_key(response_us, Figures)).

an_answer_after_the_window_counts_test() ->
    {_, _, Figures} = play(profile(), [{opened, 0}, {due, 9999, 9999}, {received, <<"a">>, 10_500}]),
    ?assertMatch(#{answered := 1, response_us := #{min := 501}}, Figures).

an_answer_to_nothing_is_an_error_test() ->
    {Effects, _, Figures} = play(profile(), [{opened, 0}, {received, <<"a">>, 200}]),
    ?assertEqual([abort], Effects),
    ?assertMatch(#{errors := #{unexpected_reply := 1}, answered := 0}, Figures).

a_failed_request_has_no_latency_and_the_connection_goes_on_test() ->
    {Effects, _, Figures} = play(profile(), [{opened, 0}, {due, 100, 100}, {due, 110, 110}, {received, <<"f">>, 200}]),
    ?assertEqual([{send, <<7, 1>>}, {send, <<7, 2>>}], Effects),
    ?assertMatch(#{errors := #{no := 1}, answered := 0}, Figures).

an_error_of_the_protocol_fails_all_on_their_way_test() ->
    {Effects, Connection, Figures} = play(profile(#{depth => 2}), [
        {opened, 0}, {due, 100, 100}, {due, 101, 101}, {due, 102, 102}, {received, <<"E">>, 200}, finish
    ]),
    ?assertEqual(abort, lists:last(Effects)),
    ?assertMatch(#{errors := #{bad := 2}, error_count := 2}, Figures),
    %% The third request waits for the connection to be opened again.
    ?assertEqual(1, weir_load_connection:pending(Connection)),
    receive done -> ok after 0 -> error(not_told) end.

what_waits_too_long_is_a_timeout_test() ->
    {Effects, Connection, Figures} = play(profile(), [
        {opened, 0}, {due, 100, 100}, {due, 200, 200}, {due, 900, 900}, {expire, 1050}, {expire, 1250}, finish
    ]),
    ?assertEqual([{send, <<7, 1>>}, abort], Effects),
    ?assertMatch(#{errors := #{timeout := 2}}, Figures),
    ?assertEqual(1, weir_load_connection:pending(Connection)).

the_end_of_an_unused_connection_is_an_error_where_it_is_held_test() ->
    ?assertMatch({_, _, #{errors := #{closed := 1}}}, play(profile(), [{opened, 0}, {closed, closed}])),
    ?assertMatch({_, _, #{error_count := 0}}, play(profile(#{held => false}), [{opened, 0}, {closed, closed}])),
    ?assertMatch({_, _, #{errors := #{reset := 1}}}, play(profile(#{held => false}), [{opened, 0}, {closed, reset}])).

what_is_pushed_is_counted_in_the_window_test() ->
    {Effects, _, Figures} = play(profile(), [{opened, 0}, {received, <<"p">>, 50}, {received, <<"pps">>, 200}]),
    ?assertEqual([{send, <<"s">>}], Effects),
    ?assertMatch(#{pushed := 2, push_us := #{count := 2, min := 0}}, Figures).

an_arrival_with_its_connection_begins_with_the_connect_test() ->
    {Effects, _, Figures} = play(profile(#{arrivals => connection}), [
        {due, 100, 120}, {opening, 120}, {opened, 200}, {received, <<"a">>, 300}
    ]),
    ?assertEqual([{send, <<7, 1>>}, close], Effects),
    ?assertMatch(#{response_us := #{min := 200}, service_us := #{min := 180}, connect_us := #{min := 80}}, Figures),
    ?assertMatch(#{first_byte_us := #{min := 100}, connected := 1}, Figures).

a_wanted_close_is_no_error_test() ->
    {Effects, _, Figures} = play(profile(), [{opened, 0}, {due, 100, 100}, {received, <<"ac">>, 200}]),
    ?assertEqual([{send, <<7, 1>>}, close], Effects),
    ?assertMatch(#{answered := 1, error_count := 0}, Figures).

%% A closed loop with one request at a time has its own fast path.
a_closed_loop_asks_with_every_answer_test() ->
    Profile = weir_load_profile:asking(true, profile()),
    {[{send, First}], Connection, Sample} =
        weir_load_connection:opened(200 * ?US, weir_load_connection:new(7), Profile, weir_load_sample:new()),
    ?assertEqual(<<7, 1>>, iolist_to_binary(First)),
    ?assertEqual(1, weir_load_connection:pending(Connection)),
    {asked, Second, Asked, Counted} = weir_load_connection:received(<<"a">>, 250 * ?US, Connection, Profile, Sample),
    ?assertEqual(<<7, 2>>, iolist_to_binary(Second)),
    %% The answer comes in pieces, with a pushed message.
    {[], Part, Noted} = weir_load_connection:received(<<".">>, 260 * ?US, Asked, Profile, Counted),
    {[{send, Third}], Answered, Pushed} = weir_load_connection:received(<<"pa">>, 280 * ?US, Part, Profile, Noted),
    ?assertEqual(<<7, 3>>, iolist_to_binary(Third)),
    Sum = weir_load_sample:merge(weir_load_sample:pack(Pushed), weir_load_sample:empty()),
    Figures = whole(weir_load_second:figures(Sum)),
    ?assertMatch(#{sent := 3, answered := 2, pushed := 1, bytes_sent := 6, bytes_received := 4}, Figures),
    ?assertMatch(
        #{response_us := #{count := 2, min := 30, max := 50}, first_byte_us := #{min := 10, max := 50}}, Figures
    ),
    %% It ends as any other connection does.
    {Closed, Failed} = weir_load_connection:closed(reset, Answered, Profile, Pushed),
    Errors = weir_load_sample:errors(weir_load_sample:merge(weir_load_sample:pack(Failed), weir_load_sample:empty())),
    ?assertEqual(#{reset => 1}, Errors),
    ?assertEqual(0, weir_load_connection:pending(weir_load_connection:finish(Closed, Profile))).

a_closed_loop_asks_no_longer_after_the_window_test() ->
    Profile = weir_load_profile:asking(true, profile()),
    {_, Connection, Sample} =
        weir_load_connection:opened(200 * ?US, weir_load_connection:new(7), Profile, weir_load_sample:new()),
    Draining = weir_load_profile:asking(false, Profile),
    {[], Answered, _} = weir_load_connection:received(<<"a">>, 250 * ?US, Connection, Draining, Sample),
    ?assertEqual(0, weir_load_connection:pending(Answered)).

a_closed_loop_without_an_answer_in_time_fails_test() ->
    Profile = weir_load_profile:asking(true, profile()),
    {_, Connection, Sample} =
        weir_load_connection:opened(200 * ?US, weir_load_connection:new(7), Profile, weir_load_sample:new()),
    {[], Connection, Sample} = weir_load_connection:expire(1200 * ?US, Connection, Profile, Sample),
    {Effects, _, Noted} = weir_load_connection:expire(1201 * ?US, Connection, Profile, Sample),
    ?assertEqual([abort], Effects),
    Errors = weir_load_sample:errors(weir_load_sample:merge(weir_load_sample:pack(Noted), weir_load_sample:empty())),
    ?assertEqual(#{timeout => 1}, Errors).
