%% The chat driver against both push servers of the examples: no client misses a message, even if clients reconnect.
-module(weir_bench_chat_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

%% Requests after which a run may end: more than there are broadcasts in flight at a time.
-define(ENOUGH, 10).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, processes}, {group, channels}].

groups() ->
    Cases = [
        by_long_polls, by_long_polls_with_several, by_event_streams, by_websockets, who_comes_and_goes, some_at_a_time
    ],
    %% The server with a process for each client has only polls, with one message in each answer.
    [{processes, [], Cases -- [by_long_polls_with_several, by_event_streams, by_websockets]}, {channels, [], Cases}].

init_per_suite(Config) ->
    ok = weir_bench_record:in_tree(),
    Config.

end_per_suite(_Config) -> ok.

init_per_group(processes, Config) -> [{module, weir_example_push_processes} | Config];
init_per_group(channels, Config) -> [{module, weir_example_push} | Config].

end_per_group(_Group, _Config) -> ok.

%% Restarts the application, because a channel keeps its messages and sends them to new clients: each case needs empty
%% rooms.
init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Config.

end_per_testcase(_Case, _Config) -> application:stop(weir_pubsub).

by_long_polls(Config) -> assert_nothing_is_missed(chat(Config, [])).

by_long_polls_with_several(Config) -> assert_nothing_is_missed(chat(Config, ["--several", "--speakers", "3"])).

by_event_streams(Config) -> assert_nothing_is_missed(chat(Config, ["--events"])).

by_websockets(Config) -> assert_nothing_is_missed(chat(Config, ["--websocket"])).

%% A request is a broadcast that all hundred clients have received. If one client missed one, no broadcast after the
%% four in flight would follow.
some_at_a_time(Config) ->
    #{<<"requests">> := Requests, <<"published">> := Published} =
        Report = chat(Config, ["--rooms", "1", "--at-a-time", "4"]),
    assert_nothing_is_missed(Report),
    ?assert(Requests > 4),
    ?assert(abs(Requests - Published) =< 8).

who_comes_and_goes(Config) -> assert_nothing_is_missed(chat(Config, ["--churn", "100"])).

assert_nothing_is_missed(#{<<"requests">> := Requests, <<"errors">> := Errors} = Report) ->
    ?assert(Requests > 0),
    ?assertEqual(#{}, Errors),
    ?assertMatch(#{<<"missed">> := 0, <<"failed_connects">> := 0, <<"longest_silence_us">> := _}, Report).

%% Runs the driver and stops it once it has counted enough requests, however long that takes.
chat(Config, Options) ->
    Module = proplists:get_value(module, Config),
    {ok, #{port := Port, stop := Stop}} = Module:start(#{port => 0, listen => [{ip, {127, 0, 0, 1}}]}),
    Patience = integer_to_list(weir_test_wait:patience()) ++ "ms",
    Command =
        [
            weir_bench_tree:driver(),
            "chat",
            "127.0.0.1:" ++ integer_to_list(Port),
            "--connections",
            "100",
            "--warmup",
            "100ms",
            "--duration",
            Patience,
            "--timeout",
            Patience,
            "--progress"
        ] ++
            case lists:member("--at-a-time", Options) of
                true -> Options;
                false -> ["--rooms", "5", "--rate", "2000" | Options]
            end,
    Program = weir_bench_program:start(Command, []),
    try
        {ok, Pid} = await(Program, fun pid/1),
        ok = await_requests(Program),
        "" = os:cmd("kill -TERM " ++ Pid),
        {ok, Output} = weir_bench_program:await_exit(Program, weir_test_wait:patience()),
        {ok, Report} = weir_bench_driver:report(Output),
        Report
    after
        _ = Stop(),
        weir_bench_program:stop(Program)
    end.

await(Program, Match) -> weir_bench_program:await(Program, Match, 2 * weir_test_wait:patience()).

pid(<<"pid ", Pid/binary>>) -> {ok, binary_to_list(Pid)};
pid(_Line) -> no.

%% Each line of progress has the requests of the last second.
await_requests(Program) -> await_requests(Program, 0).

await_requests(_Program, Count) when Count > ?ENOUGH -> ok;
await_requests(Program, Count) ->
    {ok, More} = await(Program, fun progress/1),
    await_requests(Program, Count + More).

progress(Line) ->
    case re:run(Line, "  measuring  ([0-9]+)/s", [{capture, all_but_first, binary}]) of
        {match, [Rate]} -> {ok, binary_to_integer(Rate)};
        nomatch -> no
    end.
