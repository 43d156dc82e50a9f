%% The driver of chats against both push servers of the examples: nobody misses anything, also who comes and goes.
-module(weir_bench_chat_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(PATIENCE, 60000).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, processes}, {group, channels}].

groups() ->
    Cases = [by_long_polls, by_long_polls_with_several, by_event_streams, by_websockets, who_comes_and_goes, some_at_a_time],
    %% A process for each client has nothing but polls, with one message in each answer.
    [{processes, [], Cases -- [by_long_polls_with_several, by_event_streams, by_websockets]}, {channels, [], Cases}].

init_per_suite(Config) ->
    ok = weir_bench_record:in_tree(),
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Config.

end_per_suite(_Config) -> application:stop(weir_pubsub).

init_per_group(processes, Config) -> [{module, weir_example_push_processes} | Config];
init_per_group(channels, Config) -> [{module, weir_example_push} | Config].

end_per_group(_Group, _Config) -> ok.

by_long_polls(Config) -> assert_nothing_is_missed(chat(Config, [])).

by_long_polls_with_several(Config) -> assert_nothing_is_missed(chat(Config, ["--several", "--speakers", "3"])).

by_event_streams(Config) -> assert_nothing_is_missed(chat(Config, ["--events"])).

by_websockets(Config) -> assert_nothing_is_missed(chat(Config, ["--websocket"])).

%% A request is a broadcast that all hundred have: had one had none of it, there would not be more than the four.
some_at_a_time(Config) ->
    #{<<"requests">> := Requests, <<"published">> := Published} = Report = chat(Config, ["--rooms", "1", "--at-a-time", "4"]),
    assert_nothing_is_missed(Report),
    ?assert(Requests > 4),
    ?assert(abs(Requests - Published) =< 8).

who_comes_and_goes(Config) -> assert_nothing_is_missed(chat(Config, ["--churn", "100"])).

assert_nothing_is_missed(#{<<"requests">> := Requests, <<"errors">> := Errors} = Report) ->
    ?assert(Requests > 0),
    ?assertEqual(#{}, Errors),
    ?assertMatch(#{<<"missed">> := 0, <<"failed_connects">> := 0, <<"longest_silence_us">> := _}, Report).

chat(Config, Options) ->
    Module = proplists:get_value(module, Config),
    {ok, #{port := Port, stop := Stop}} = Module:start(#{port => 0, listen => [{ip, {127, 0, 0, 1}}]}),
    %% Longer than a machine that has other things to do keeps everybody waiting.
    Command = [
        weir_bench_tree:driver(), "chat", "127.0.0.1:" ++ integer_to_list(Port),
        "--connections", "100", "--warmup", "100ms", "--duration", "3s"
    ] ++ case lists:member("--at-a-time", Options) of true -> Options; false -> ["--rooms", "5", "--rate", "2000" | Options] end,
    Program = weir_bench_program:start(Command, []),
    try
        {ok, Output} = weir_bench_program:await_exit(Program, ?PATIENCE),
        {ok, Report} = weir_bench_driver:report(Output),
        Report
    after
        _ = Stop(),
        weir_bench_program:stop(Program)
    end.
