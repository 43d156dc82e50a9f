%% Compares latency by the second with the load generator's figures of the same requests.
-module(weir_scope_latency_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([beside_the_load_generator/1, nobody_measures/1]).

-define(SECOND, 1_000_000_000).

%% Milliseconds that the server waits.
-define(DELAY, 5).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [beside_the_load_generator, nobody_measures].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    Config.

end_per_suite(_Config) ->
    ok.

end_per_testcase(_Case, _Config) ->
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    ok.

start(Options) ->
    {ok, _} = weir:start_listener(?MODULE, Options#{ip => loopback}, fun(Socket, _) -> answer(Socket) end, none),
    weir:get_port(?MODULE).

answer(Socket) ->
    case gen_tcp:recv(Socket, 64) of
        {ok, Request} ->
            timer:sleep(?DELAY),
            ok = gen_tcp:send(Socket, Request),
            answer(Socket);
        {error, closed} ->
            ok
    end.

%% Requests come by a schedule, so that the generator counts each of them; a closed loop begins before its measured
%% time. The server counts a reply after it has written it, which may be later than its arrival at the client if the
%% server lost the processor. So the fastest replies are compared with 60 percent of the generator's times, which
%% include the way there and back.
beside_the_load_generator(_Config) ->
    Port = start(#{measure => true}),
    View = weir_scope_distribution:view(node()),
    {ok, #{at := Begin}} = weir_scope:sample(View),
    Total = load(Port),
    Answered = weir_load_sample:counter(answered, Total),
    [Above] = [
        Nanoseconds / 1000
     || Nanoseconds <- weir_load_histogram:percentiles(weir_load_sample:histogram(service, Total), [60])
    ],
    [_, _] = [weir_scope_distribution:next(View) || _ <- [1, 2]],
    %% Columns change when pollsets come and go.
    {ok, Series} = weir_scope:history(View, second, Begin),
    Seconds = [
        Known
     || #{columns := Columns, rows := Rows} <- Series,
        {_, Values} <- Rows,
        Known <- [maps:from_list(lists:zip(Columns, Values))],
        maps:get(<<"latency.count">>, Known) > 0
    ],
    Count = lists:sum([Number || #{<<"latency.count">> := Number} <- Seconds]),
    ?assertEqual(1000, Answered),
    ?assertEqual(Answered, round(Count)),
    lists:foreach(
        fun(
            #{
                <<"latency.min">> := Min,
                <<"latency.med">> := Med,
                <<"latency.avg">> := Avg,
                <<"latency.max">> := Max,
                <<"latency.95_max">> := P95,
                <<"latency.95_avg">> := Avg95
            }
        ) ->
            ?assert(Min >= ?DELAY * 1000 * 0.98),
            ?assert(Min =< Med andalso Med =< P95 andalso P95 =< Max),
            ?assert(Min =< Avg95 andalso Avg95 =< Avg andalso Avg =< Max)
        end,
        Seconds
    ),
    #{times := Times} = weir:latency(?MODULE),
    #{min := Measured} = weir_scope_latency:figures(Times),
    ?assert(Measured =< Above * 1.02 + 1, {Measured, Above}),
    {ok, #{weir := #{listeners := Listeners}}} = weir_scope:sample(View),
    [#{latency := #{count := 0}, times := []}] = [Listener || #{name := ?MODULE} = Listener <- Listeners],
    {ok, Data} = weir_scope_page:look(latency, count, View),
    [{text, Text}, {table, Titles, Table}] = weir_scope_page:page(latency, Data, []),
    ?assertMatch({match, _}, re:run(unicode:characters_to_binary(Text), "weir_scope_latency_SUITE: 0 replies")),
    ?assertEqual(13, length(Titles)),
    ?assert(length(Table) >= length(Seconds)),
    ok = weir_scope:close(View).

%% 500 requests a second, for two seconds.
load(Port) ->
    {ok, #{total := Total}} = weir_load_run:run(
        #{
            scenario => weir_load_echo,
            options => #{size => 64},
            address => {127, 0, 0, 1},
            port => Port,
            load => {open, [{constant, 500, 2 * ?SECOND}], even},
            connections => 10,
            connect_rate => unlimited,
            depth => 1,
            duration => 2 * ?SECOND,
            warmup => 0,
            timeout => 60 * ?SECOND,
            drivers => 1,
            nodes => [node()],
            observe => none
        },
        fun(_) -> ok end
    ),
    Total.

nobody_measures(_Config) ->
    _ = start(#{}),
    {ok, View} = weir_scope:open(node(), #{}),
    {ok, Data} = weir_scope_page:look(latency, count, View),
    [{text, Text}, {table, _, []}] = weir_scope_page:page(latency, Data, []),
    ?assertMatch({match, _}, re:run(unicode:characters_to_binary(Text), "No listener measures")),
    ok = weir_scope:close(View).
