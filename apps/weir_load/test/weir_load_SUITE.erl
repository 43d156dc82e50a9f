%% Loads against a server with known delays. Bounds of time are one-sided where possible: a slow machine makes things
%% later, never earlier.
-module(weir_load_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    every_request_of_an_open_loop_is_counted/1,
    random_arrivals_are_as_many/1,
    every_kind_of_rate_is_offered/1,
    seconds_add_up_to_the_total/1,
    a_fixed_delay_is_measured/1,
    two_delays_are_told_apart/1,
    an_open_loop_shows_a_stall_that_a_closed_loop_hides/1,
    dropped_replies_are_timeouts/1,
    what_a_late_generator_gives_up_is_a_timeout/1,
    resets_are_counted_and_the_load_goes_on/1,
    wrong_replies_are_counted/1,
    a_server_that_closes_is_counted/1,
    nobody_there_is_an_error/1,
    a_closed_loop_keeps_its_concurrency/1,
    the_warmup_is_not_measured/1,
    every_arrival_may_have_a_connection/1,
    a_closed_loop_of_connections/1,
    a_stop_ends_with_what_was_measured/1,
    connections_are_opened_at_a_rate/1,
    requests_are_pipelined/1,
    an_overloaded_generator_is_noticed/1,
    connections_are_held_and_go/1,
    too_many_connections_for_one_process/1
]).

-import(weir_load_measure, [at_once/0, document/1, measure/2, open_loop/3, plan/2, run/2, run_until_answered/3]).
-import(weir_test_wait, [patience/0]).

-define(SECOND, 1_000_000_000).
-define(MS, 1_000_000).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        every_request_of_an_open_loop_is_counted,
        random_arrivals_are_as_many,
        every_kind_of_rate_is_offered,
        seconds_add_up_to_the_total,
        a_fixed_delay_is_measured,
        two_delays_are_told_apart,
        an_open_loop_shows_a_stall_that_a_closed_loop_hides,
        dropped_replies_are_timeouts,
        what_a_late_generator_gives_up_is_a_timeout,
        resets_are_counted_and_the_load_goes_on,
        wrong_replies_are_counted,
        a_server_that_closes_is_counted,
        nobody_there_is_an_error,
        a_closed_loop_keeps_its_concurrency,
        the_warmup_is_not_measured,
        every_arrival_may_have_a_connection,
        a_closed_loop_of_connections,
        a_stop_ends_with_what_was_measured,
        connections_are_opened_at_a_rate,
        requests_are_pipelined,
        an_overloaded_generator_is_noticed,
        connections_are_held_and_go,
        too_many_connections_for_one_process
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    Config.

end_per_suite(_Config) ->
    ok.

%% Counts

every_request_of_an_open_loop_is_counted(_Config) ->
    %% Only bytes sent in the window count, so it stays open until all are sent.
    Load = {open, [{constant, 1000, ?SECOND}, {constant, 0, 3599 * ?SECOND}], even},
    Server = weir_load_server:start(at_once()),
    #{total := Total} = run_until_answered(1000, Server, #{load => Load}),
    ok = weir_load_server:stop(Server),
    ?assertMatch(#{offered := 1000, sent := 1000, answered := 1000, error_count := 0, connected := 10}, Total),
    ?assertMatch(#{bytes_sent := 64000, bytes_received := 64000, response_us := #{count := 1000}}, Total),
    [?assertMatch(#{Measure := #{count := 1000}}, Total) || Measure <- [service_us, first_byte_us, lag_us]],
    ?assertMatch(#{connect_us := #{count := 10}}, Total).

random_arrivals_are_as_many(_Config) ->
    Load = {open, [{ramp, 0, 1000, ?SECOND}], {poisson, 3}},
    #{total := Total} = measure(at_once(), #{load => Load}),
    ?assertMatch(#{offered := 500, sent := 500, answered := 500}, Total).

%% The number of due requests is the integral of the rate, in each second and in total, and all of them are sent. All
%% kinds of rates run at the same time.
every_kind_of_rate_is_offered(_Config) ->
    Server = weir_load_server:start(at_once()),
    Runs = [
        {Kind, spawn_monitor(fun() ->
            {ok, Rate} = weir_load_units:rate(Text),
            Load = {open, weir_load_units:segments(Rate, 2 * ?SECOND), Pattern},
            exit({document, run(Server, #{load => Load, duration => 2 * ?SECOND})})
        end)}
     || {Text, Pattern, _, _, _} = Kind <- [
            {"400", even, 800, 400, 0},
            {"100,300", even, 400, 100, 0},
            {"0..400", even, 400, 100, 0},
            {"200t", even, 400, 100, 0},
            %% The integral of 600 (t/2)^2 is 50 t^3.
            {"pow:600:2", even, 400, 50, 0},
            %% Random counts: the tolerance is five standard deviations, and the seed is fixed.
            {"400", {poisson, 7}, 800, 400, 100}
        ]
    ],
    [
        receive {'DOWN', Monitor, process, Pid, {document, Document}} -> offers(Kind, Document)
        after patience() -> ct:fail({not_ended, Kind})
        end
     || {Kind, {Pid, Monitor}} <- Runs
    ],
    ok = weir_load_server:stop(Server).

offers({Text, _Pattern, Due, First, Spread}, #{total := Total, seconds := [A, B | _]}) ->
    #{offered := Offered, sent := Sent, answered := Answered} = Total,
    [?assert(abs(Count - Due) =< 0.005 * Due, {Text, Count}) || Count <- [Offered, Sent, Answered]],
    [
        ?assert(abs(maps:get(offered, Second) - DueThen) =< Allowed, {Text, Second})
     || {Second, DueThen, Allowed} <- [{A, First, 1 + Spread}, {B, Due - First, 1 + Spread}]
    ].

seconds_add_up_to_the_total(_Config) ->
    #{total := Total, seconds := Seconds} = open_loop(at_once(), [{constant, 300, 2 * ?SECOND}], #{}),
    Sum = fun(Key) -> lists:sum([maps:get(Key, Second) || Second <- Seconds]) end,
    [?assertEqual(maps:get(Key, Total), Sum(Key)) || Key <- [offered, sent, answered]],
    ?assertEqual([300, 300], lists:sublist([Offered || #{offered := Offered} <- Seconds], 2)),
    #{offered_rate := 300.0, achieved_rate := Achieved, elapsed_s := Elapsed} = Total,
    ?assert(abs(Achieved - 600 / Elapsed) < 0.01, Total),
    ?assertEqual(lists:seq(0, length(Seconds) - 1), [Number || #{second := Number} <- Seconds]).

a_closed_loop_keeps_its_concurrency(_Config) ->
    Server = weir_load_server:start(delay(10)),
    #{total := Total} = run_until_answered(100, Server, #{load => {closed, 8}, connections => 8}),
    ok = weir_load_server:stop(Server),
    #{answered := Answered, sent := Sent, offered := null, error_count := 0, connected := 8, elapsed_s := Elapsed} =
        Total,
    %% At most the requests on their way at the end.
    ?assert(Sent - Answered >= 0 andalso Sent - Answered =< 8, Total),
    %% 8 at a time, each for at least 10 ms: at most 800 per second, and some at the ends of the window.
    ?assert(Answered >= 100 andalso Answered =< 800 * Elapsed + 16, Total).

the_warmup_is_not_measured(_Config) ->
    Warmed = #{warmup => ?SECOND div 2},
    #{total := Total} = open_loop(at_once(), [{constant, 400, ?SECOND div 2}], Warmed),
    ?assertMatch(#{offered := 200, sent := 200, answered := 200, lag_us := #{count := 200}}, Total).

requests_are_pipelined(_Config) ->
    %% The server takes 20 ms for each request, one after the other. With four on their way each takes the time of four.
    Server = weir_load_server:start(delay(20)),
    #{total := Total} = run_until_answered(8, Server, #{load => {closed, 1}, connections => 1, depth => 4}),
    ok = weir_load_server:stop(Server),
    #{service_us := #{p50 := Median}} = Total,
    ?assert(Median >= 60_000, Total).

connections_are_opened_at_a_rate(_Config) ->
    Before = erlang:monotonic_time(millisecond),
    Plan = #{load => {closed, 50}, connections => 50, connect_rate => 100, duration => ?SECOND div 10},
    #{total := #{connected := 50}} = measure(delay(1), Plan),
    ?assert(erlang:monotonic_time(millisecond) - Before >= 450).

every_arrival_may_have_a_connection(_Config) ->
    Load = {open, [{ramp, 0, 400, ?SECOND}], even},
    Plan = #{scenario => weir_load_short, load => Load, connections => 0},
    #{total := Total} = measure(at_once(), Plan),
    ?assertMatch(#{offered := 200, sent := 200, answered := 200, connected := 200, error_count := 0}, Total),
    #{response_us := Response, service_us := Service, connect_us := Connect, first_byte_us := FirstByte} = Total,
    [?assertMatch(#{count := 200}, Latency) || Latency <- [Response, Service, Connect, FirstByte]],
    %% The service time of such a request begins with its connect.
    ?assert(maps:get(mean, Service) >= maps:get(mean, FirstByte)).

a_closed_loop_of_connections(_Config) ->
    Server = weir_load_server:start(delay(5)),
    #{total := Total} = run_until_answered(20, Server, #{
        scenario => weir_load_short, load => {closed, 4}, connections => 0
    }),
    ok = weir_load_server:stop(Server),
    #{answered := Answered, connected := Connected, error_count := 0} = Total,
    %% At most the requests on their way at the end.
    ?assert(Connected - Answered >= 0 andalso Connected - Answered =< 4, Total).

%% Latencies

a_fixed_delay_is_measured(_Config) ->
    #{total := Total} = open_loop(delay(20), [{constant, 100, ?SECOND}], #{}),
    #{response_us := Response, service_us := Service, first_byte_us := FirstByte, elapsed_s := Elapsed} = Total,
    [?assert(maps:get(min, Latency) >= 20_000 * 0.999) || Latency <- [Response, Service, FirstByte]],
    %% No request took longer than the whole run.
    ?assert(maps:get(max, Response) =< 1_001_000 * Elapsed, Total),
    ?assert(maps:get(mean, Response) >= maps:get(mean, Service)).

two_delays_are_told_apart(_Config) ->
    Bimodal = fun(Number) -> case Number rem 10 of 0 -> {after_ms, 2000}; _ -> {after_ms, 0} end end,
    Plan = #{connections => 100},
    #{total := #{response_us := Response}} = open_loop(Bimodal, [{constant, 200, ?SECOND}], Plan),
    ?assert(maps:get(p50, Response) < 1_900_000, Response),
    ?assert(maps:get(p95, Response) >= 2_000_000 * 0.999).

an_open_loop_shows_a_stall_that_a_closed_loop_hides(_Config) ->
    %% A stall of one second, from the message that is due after half a second.
    Stall = {201, 1000},
    OfOpen = weir_load_server:start(delay(5), Stall),
    Load = {open, [{constant, 400, 2 * ?SECOND}], even},
    #{total := Open} = run(OfOpen, #{load => Load, connections => 40, duration => 2 * ?SECOND}),
    ok = weir_load_server:stop(OfOpen),
    ?assertMatch(#{offered := 800, answered := 800, error_count := 0}, Open),
    %% Requests due in the first tenth of the stall waited at least 900 ms: at least 40 of 800.
    ?assert(percentile(p99, Open) >= 900_000),
    ?assert(percentile(p90, Open) >= 600_000),
    OfClosed = weir_load_server:start(delay(1), Stall),
    #{total := Closed} = run_until_answered(202, OfClosed, #{load => {closed, 2}, connections => 2}),
    %% On each connection one request waited. All others were sent before or after the stall.
    #{answered := Answered, response_us := #{max := Longest}} = Closed,
    ?assert(Answered >= 202),
    ?assert(Longest >= 1_000_000 * 0.999),
    ?assert(weir_load_server:stalled(OfClosed) =< 2, weir_load_server:stalled(OfClosed)),
    ok = weir_load_server:stop(OfClosed).

percentile(Name, #{response_us := Response}) -> maps:get(Name, Response).

%% Errors

dropped_replies_are_timeouts(_Config) ->
    Drops = fun(Number) -> case Number rem 50 of 0 -> drop; _ -> {after_ms, 0} end end,
    Server = weir_load_server:start(Drops),
    Load = {open, [{constant, 400, ?SECOND}, {constant, 0, 3599 * ?SECOND}], even},
    #{total := Total} = run_until_answered(400, Server, #{load => Load, timeout => 300 * ?MS}),
    ok = weir_load_server:stop(Server),
    #{offered := 400, answered := Answered, errors := #{timeout := Timeouts} = Errors} = Total,
    ?assertEqual([timeout], maps:keys(Errors)),
    ?assertEqual(400, Answered + Timeouts),
    ?assert(Timeouts >= 7).

%% The driver is suspended until the timeout is over, so it has had no turn to scan for timeouts.
what_a_late_generator_gives_up_is_a_timeout(_Config) ->
    Server = weir_load_server:start(fun(_Number) -> drop end),
    Load = {open, [{constant, 100, ?SECOND div 5}], even},
    Plan = #{load => Load, duration => ?SECOND div 5, timeout => ?SECOND div 5, drivers => 1},
    {Pid, Monitor} = weir_load_measure:start(plan(Server, Plan)),
    weir_test_wait:wait_until(fun() -> weir_load_server:messages(Server) > 0 end),
    {links, [Driver]} = process_info(Pid, links),
    true = erlang:suspend_process(Driver),
    %% The duration, the timeout and two scans.
    ok = timer:sleep(700),
    true = erlang:resume_process(Driver),
    receive
        {'DOWN', Monitor, process, Pid, {ok, Outcome}} ->
            ?assertMatch(#{total := #{offered := 20, answered := 0, errors := #{timeout := 20}}}, document([Outcome]))
    after patience() -> ct:fail(not_ended)
    end,
    ok = weir_load_server:stop(Server).

resets_are_counted_and_the_load_goes_on(_Config) ->
    Resets = fun(Number) -> case Number rem 40 of 0 -> reset; _ -> {after_ms, 0} end end,
    #{total := Total} = open_loop(Resets, [{constant, 400, ?SECOND}], #{}),
    #{offered := 400, answered := Answered, connected := Connected, errors := #{reset := Resets1} = Errors} = Total,
    ?assertEqual([reset], maps:keys(Errors)),
    ?assertEqual(400, Answered + Resets1),
    ?assertEqual(10, Resets1),
    ?assert(Connected > 10).

wrong_replies_are_counted(_Config) ->
    Garbles = fun(Number) -> case Number rem 40 of 0 -> garble; _ -> {after_ms, 0} end end,
    #{total := Total} = open_loop(Garbles, [{constant, 400, ?SECOND}], #{}),
    ?assertMatch(#{offered := 400, answered := 390, errors := #{wrong_reply := 10}, error_count := 10}, Total).

a_server_that_closes_is_counted(_Config) ->
    Closes = fun(Number) -> case Number rem 40 of 0 -> close; _ -> {after_ms, 0} end end,
    #{total := Total} = open_loop(Closes, [{constant, 400, ?SECOND}], #{}),
    ?assertMatch(#{offered := 400, answered := 390, errors := #{closed := 10}, error_count := 10}, Total).

nobody_there_is_an_error(_Config) ->
    %% Not a free port, which another suite may use a moment later.
    Port = 1,
    [
        begin
            {error, Message} = weir_load_run:run(plan(#{port => Port}, Plan), fun(_) -> ok end),
            ?assertNotEqual(nomatch, string:find(Message, "refused"))
        end
     || Plan <- [
            #{load => {closed, 2}, connections => 2},
            #{load => {closed, 2}, connections => 0, scenario => weir_load_short}
        ]
    ].

%% The run

a_stop_ends_with_what_was_measured(_Config) ->
    Server = weir_load_server:start(at_once()),
    Load = {open, [{constant, 100, 3600 * ?SECOND}], even},
    #{total := Total, interrupted := true} = run_until_answered(1, Server, #{load => Load}),
    ok = weir_load_server:stop(Server),
    #{offered := Offered, answered := Answered, elapsed_s := Elapsed} = Total,
    ?assert(Answered > 0 andalso Answered =< Offered + 1, Total),
    ?assert(Elapsed < 3600).

an_overloaded_generator_is_noticed(_Config) ->
    %% Two million requests in 100 ms are more than one process can send.
    Duration = ?SECOND div 10,
    Load = {open, [{constant, 20_000_000, Duration}], even},
    Plan = #{load => Load, duration => Duration, timeout => ?SECOND, drivers => 1},
    #{valid := Valid, invalid := Reasons} = measure(at_once(), Plan),
    ?assertNot(Valid),
    ?assert(length(Reasons) >= 1).

connections_are_held_and_go(_Config) ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {ip, {127, 0, 0, 1}}, {backlog, 1024}]),
    {ok, Port} = inet:port(Listener),
    {ok, Server} = weir_reactor:start_link(#{module => weir_load_holder, args => self(), listen => Listener}),
    Plan = #{scenario => weir_load_idle, load => none, connections => 300},
    {ok, Outcome} = weir_load_run:run(plan(#{port => Port}, Plan), fun(_News) -> ok end),
    #{total := Total} = document([Outcome]),
    ?assertMatch(#{connected := 300, error_count := 0, offered := null}, Total),
    %% A run does not wait until its connections are closed, but they are closed.
    [receive opened -> ok after patience() -> ct:fail(not_opened) end || _ <- lists:seq(1, 300)],
    [receive closed -> ok after patience() -> ct:fail(not_closed) end || _ <- lists:seq(1, 300)],
    unlink(Server),
    exit(Server, shutdown),
    ok = gen_tcp:close(Listener).

too_many_connections_for_one_process(_Config) ->
    {ok, #{descriptors := Most}} = weir_load_nodes:ready(node()),
    Plan = #{scenario => weir_load_idle, load => none, connections => 3 * Most},
    {unoffered, Message} = weir_load_run:run(plan(#{port => 1}, Plan), fun(_News) -> ok end),
    Text = lists:flatten(Message),
    [?assertNotEqual(nomatch, string:find(Text, Word), Text) || Word <- [integer_to_list(Most), "--local-nodes 4"]].

delay(Ms) -> fun(_Number) -> {after_ms, Ms} end.
