%% @doc The demo: the same three servers on stock gen_tcp, on Weir, and in native code as the limit.
-module(weir_bench_demo).

-export([run/1]).

-define(ROUNDS, 3).

%% @doc Runs the demo and prints its table; `json' is a file for the same results. Fails if a measurement failed.
-spec run(#{quick := boolean(), json => file:filename(), _ => _}) -> ok | {failed, iodata()}.
run(Options) ->
    case {weir_bench_tree:missing(), weir_bench_suite:read()} of
        {[], {ok, Suite}} -> measure(scenarios(Suite), Options);
        {[], {error, Message}} -> {failed, Message};
        {Missing, _} -> {failed, Missing}
    end.

%% Stock in the mode that most servers use, Weir, and the native limit.
scenarios(Suite) ->
    [
        Scenario#{
            warmup := 500,
            duration := 1500,
            contestants := [
                Contestant#{title := Title}
             || {Known, Title} <- [
                    {<<"inet once">>, <<"gen_tcp">>}, {<<"weir once">>, <<"Weir">>}, {<<"native">>, <<"native">>}
                ],
                #{title := Name} = Contestant <- Contestants, Name =:= Known
            ]
        }
     || #{contestants := Contestants} = Scenario <- weir_bench_suite:in_set(demo, Suite)
    ].

measure(OfSuite, #{quick := Quick} = Options) ->
    Scenarios = [
        case Quick of true -> weir_bench_scenario:quick(Scenario); false -> Scenario end
     || Scenario <- OfSuite
    ],
    Machine = weir_bench_machine:description(),
    #{otp := Otp, processor := Processor, cores := Count, pinning := Pinning} = Machine,
    Cores = weir_bench_machine:cores(),
    io:format("Echo, proxy and ehttpd on OTP ~ts: stock gen_tcp, Weir, and the limit in native code.~n", [Otp]),
    io:format("~ts, ~b cores; ~ts.~n~n", [Processor, Count, Pinning]),
    Measured = [
        {Scenario, rounds(Scenario, Cores, Number, length(Scenarios))}
     || {Number, Scenario} <- lists:zip(lists:seq(1, length(Scenarios)), Scenarios)
    ],
    weir_bench_progress:clear(),
    Works = [rows(Title, Results) || {#{title := Title}, Results} <- Measured],
    io:put_chars(weir_bench_table:text(header(), lists:flatmap(fun lines/1, Works))),
    io:put_chars(explanation()),
    case write(Options, Machine, lists:append(Works)) of
        ok -> outcome([Reason || {_, Results} <- Measured, {_, All} <- Results, {error, Reason} <- All]);
        {error, Reason} -> {failed, ["cannot write the JSON file: ", file:format_error(Reason)]}
    end.

rounds(#{title := Title} = Scenario, Cores, Number, Of) ->
    weir_bench_rounds:run(
        Scenario, ?ROUNDS, Cores,
        fun(#{title := Contestant}, Round) ->
            weir_bench_progress:show("~b/~b ~ts: round ~b of ~b, ~ts", [Number, Of, Title, Round, ?ROUNDS, Contestant])
        end,
        fun(_SoFar) -> ok end
    ).

outcome([]) -> ok;
outcome(Failures) -> {failed, ["failed: ", lists:join("; ", lists:usort(Failures))]}.

%% Returns the values of the table. Values that were not measured are absent.
rows(Work, Results) ->
    Median = fun(Metric, Title) ->
        [Measurements] = [Of || {#{title := Name}, Of} <- Results, Name =:= Title],
        weir_bench_results:median(Metric, Measurements)
    end,
    [
        maps:from_list(
            [{work, Work}, {server, Title}] ++
                [{Metric, Value} || Metric <- metrics(), {ok, Value} <- [Median(Metric, Title)]] ++
                [
                    {Name, Own / Other}
                 || {Name, To} <- [{ratio_to_gen_tcp, <<"gen_tcp">>}, {fraction_of_native, <<"native">>}],
                    {ok, Own} <- [Median(requests_per_s, Title)],
                    {ok, Other} <- [Median(requests_per_s, To)]
                ]
        )
     || {#{title := Title}, _} <- Results
    ].

metrics() ->
    [requests_per_s, p50_us, p99_us, cpu_us_per_request].

header() ->
    ["", "server" | [weir_bench_sample:title(Metric) || Metric <- metrics()]] ++ ["to gen_tcp", "of native"].

%% Only the first row shows the work.
lines([First | Others]) ->
    [cells(First) | [cells(Other#{work := ""}) || Other <- Others]].

cells(#{work := Work, server := Server} = Row) ->
    [Work, Server] ++
        [cell(fun(Value) -> weir_bench_sample:format(Metric, Value) end, Metric, Row) || Metric <- metrics()] ++
        [
            cell(fun(Ratio) -> io_lib:format("~.2fx", [Ratio]) end, ratio_to_gen_tcp, Row),
            cell(fun(Fraction) -> io_lib:format("~b %", [round(100 * Fraction)]) end, fraction_of_native, Row)
        ].

cell(Format, Key, Row) when is_map_key(Key, Row) -> Format(map_get(Key, Row));
cell(_Format, _Key, _Row) -> "failed".

explanation() ->
    [
        io_lib:format(
            "~nMedians of ~b rounds in turn, {active, once}, 64 bytes where the client chooses. CPU is the server's.~n",
            [?ROUNDS]
        ),
        "The servers are weir_example_echo, _proxy and _ehttpd in examples/src; the difference is\n"
        "{tcp_module, weir_tcp}.\n"
        "\n"
        "What to try next:\n"
        "  bin/weir run ehttpd --port 8080      runs one of them: curl http://127.0.0.1:8080/\n"
        "  bin/weir run http_hello --port 8080  an HTTP server on reactors; bin/weir run --help names more\n"
        "  bin/weir serve DIR --port 8080       serves the files of a directory\n"
        "  bin/weir push --port 8080            a push server: /pub/ID publishes, /sub/ID subscribes\n"
        "  bin/weir doctor NODE                 checks the settings of a running node\n"
        "  bin/weir bench --list                more loads, up to 10,000 connections; make bench runs them all\n"
        "  {tcp_module, weir_tcp}               in the options of your own gen_tcp:listen/2\n"
    ].

write(#{json := File, quick := Quick}, Machine, Rows) ->
    Table = #{machine => Machine, rounds => ?ROUNDS, quick => Quick, rows => Rows},
    weir_bench_tree:replace(File, iolist_to_binary(weir_json:encode(Table)));
write(_, _Machine, _Rows) ->
    ok.
