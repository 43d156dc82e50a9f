%% The screen and its keys, without a terminal.
-module(weir_cli_scope_screen_tests).

-include_lib("eunit/include/eunit.hrl").

%% A sample of this node for all tests.
data() ->
    Ask = fun erlang:apply/3,
    Sources = weir_scope_sample:open(Ask),
    Sample = weir_scope_sample:between(weir_scope_sample:read(Ask, Sources), weir_scope_sample:read(Ask, Sources)),
    #{
        sample => Sample#{weir => engine()},
        history => history(),
        clocks => #{
            settings => #{
                time_correction => true, time_warp_mode => no_time_warp, time_offset => final, clock_difference => -3
            },
            costs => [#{clock => monotonic_time, ns => 25.0}]
        },
        locks => #{
            seconds => 2.0,
            locks => [
                #{
                    name => run_queue,
                    type => spinlock,
                    instances => 2,
                    tries => 10,
                    collisions => 5,
                    waited => 0.25,
                    share => 0.125
                }
            ]
        },
        top => [process(rather_busy, 2000.0), process({a_module, with_a_long_name, 3}, 1000.0)],
        microstates => [#{type => scheduler, id => Id, states => #{emulator => 0.25, sleep => 0.75}} || Id <- [1, 2]]
    }.

engine() ->
    Pollset = #{
        pollset => 1,
        scheduler => 1,
        sockets => 123_456,
        times => 49332.0,
        revents => 217_186.0,
        min => 0,
        max => 127,
        avg => 4.4,
        timeouts => 3.0,
        sleeps => 1.0,
        asleep => 0.5,
        reads => 1.0,
        bytes_in => 1.0,
        writes => 1.0,
        bytes_out => 1.0,
        accepts => 1.0
    },
    Listener = #{
        name => {http, "long name of a listener"}, port => 8080, connections => 5, waiting => 0, accepted => 12.0
    },
    Reactor = #{
        pollset => 1025,
        scheduler => 1,
        module => echo_reactor,
        callbacks => 1000.0,
        busy => 0.1,
        mean_us => 100.0,
        totals => #{callbacks => 5000, callback_ns => 1}
    },
    Products = [
        #{
            name => <<"weir_http_requests">>,
            help => <<"of HTTP">>,
            values => [#{listener => web, total => 12, rate => 1.0}]
        }
    ],
    #{
        reactors => [Reactor],
        counts => #{relays => 2, groups => 3},
        products => Products,
        pollsets => [Pollset, Pollset#{pollset => 2, times => 10.0}],
        listeners => [Listener#{latency => weir_scope_latency:figures([{1_234_567, 40_009}])}]
    }.

process(Name, Reductions) ->
    #{
        pid => self(),
        name => Name,
        reductions => Reductions,
        memory => 5000,
        growth => -100.0,
        queue => 3,
        function => {gen_server, loop, 7},
        status => waiting
    }.

%% The figures of the first table of tcprstat in Wei Cao's mail.
history() ->
    Row = [
        {count, 39416},
        {max, 17873},
        {min, 953},
        {avg, 1718},
        {med, 1519},
        {stddev, 724},
        {'95_max', 2919},
        {'95_avg', 1609},
        {'95_std', 340},
        {'99_max', 3813},
        {'99_avg', 1674},
        {'99_std', 462}
    ],
    {Names, Values} = lists:unzip([
        {<<"latency.", (atom_to_binary(Name))/binary>>, float(Value)}
     || {Name, Value} <- Row
    ]),
    [
        #{
            columns => [<<"listeners.measured">> | Names],
            rows => [{At, [1.0 | Values]} || At <- [1000, 2000]] ++ [{3000, [0.0 | Values]}]
        }
    ].

shown(Page, Rows, Columns, Keys) ->
    Data =
        case Page of
            sockets -> (data())#{top => [socket(in, 5.0), socket(out, 7.0)]};
            weir -> (data())#{top => [relay(4000, 7.0), relay(5000, 90_000.0)]};
            _ -> data()
        end,
    Screen = weir_cli_scope_screen:resize(Rows, Columns, weir_cli_scope_screen:new('node@host')),
    Turned = keyed([lists:nth(index(Page), "1234567890lc") | Keys], Screen),
    lines(weir_cli_scope_screen:draw(weir_cli_scope_screen:data(Page, Data, Turned))).

socket(Which, Rate) ->
    maps:merge(
        #{
            socket => s,
            kind => port,
            owner => self(),
            local => {{127, 0, 0, 1}, 80},
            peer => {{0, 0, 0, 0, 0, 0, 0, 1}, 4000},
            in => 0.0,
            out => 0.0,
            queue => 0
        },
        #{Which => Rate}
    ).

relay(Number, Age) ->
    #{
        relay => Number,
        owner => self(),
        pollset => 1,
        in => 20_000.0,
        out => Age,
        age => Age,
        idle => 0.5,
        peers => {{{127, 0, 0, 1}, 4711}, undefined},
        replies => 12,
        first_byte_us => 300,
        p50 => 250,
        p99 => 900
    }.

%% The last sample is shown, with the reason why there is no newer one.
a_node_that_cannot_be_sampled_test() ->
    #{sample := Sample} = Data = data(),
    Failing = Data#{sample := Sample#{failures => 3, failing => <<"{error,badarg}">>}},
    Lines = lines(
        weir_cli_scope_screen:draw(weir_cli_scope_screen:data(overview, Failing, weir_cli_scope_screen:new(node)))
    ),
    ?assertMatch([_], [Line || Line <- Lines, has("3 samples have failed", Line)]),
    ?assertMatch([_], [Line || Line <- Lines, has("{error,badarg}", Line)]),
    ?assertMatch([_ | _], [Line || Line <- Lines, has("utilisation", Line)]).

what_weir_serves_test() ->
    Lines = shown(weir, 40, 160, []),
    [
        ?assertMatch([_], [Line || Line <- Lines, has(Text, Line)])
     || Text <- ["long name of a listener", "echo_reactor", "weir_http_requests"]
    ],
    ?assertMatch([_, _], [Line || Line <- Lines, has("127.0.0.1:4711 -", Line)]),
    %% The relay with most bytes comes first; `s' sorts by another column.
    ?assert(place("5000", Lines) < place("4000", Lines)),
    ?assert(place("25h", Lines) < length(Lines)),
    ?assert(has("sorted by in", lists:last(shown(weir, 40, 160, [$s])))).

all_pages_have_a_key_in_80_columns_test() ->
    [Tabs | _] = shown(schedulers, 24, 80, []),
    [
        ?assert(has([Key, $\s, hd(atom_to_list(Page))], Tabs))
     || {Key, Page} <- lists:zip("1234567890lc", weir_scope_page:names())
    ],
    ?assert(has("2 schedulers", Tabs)).

index(Page) -> length(lists:takewhile(fun(Other) -> Other =/= Page end, weir_scope_page:names())) + 1.

keyed(Keys, Screen) -> lists:foldl(fun weir_cli_scope_screen:key/2, Screen, Keys).

%% The lines as a terminal would show them.
lines(Drawn) ->
    Text = re:replace(unicode:characters_to_binary(Drawn), "\e\\[[0-9;?]*[a-zA-Z]", "", [
        global, unicode, {return, binary}
    ]),
    [unicode:characters_to_list(Line) || Line <- binary:split(Text, <<"\r\n">>, [global])].

every_page_keeps_to_the_screen_test_() ->
    [
        {lists:concat([Page, " ", Rows, " ", Columns]), fun() ->
            Lines = shown(Page, Rows, Columns, []),
            ?assertEqual(Rows, length(Lines)),
            ?assertEqual([], [Line || Line <- Lines, string:length(Line) > Columns])
        end}
     || Page <- weir_scope_page:names(), {Rows, Columns} <- [{24, 80}, {60, 200}, {5, 20}]
    ].

%% The most important pages fit into 80 columns.
epollwait_is_whole_in_80_columns_test() ->
    Lines = shown(polls, 24, 80, []),
    [Head] = [Line || Line <- Lines, has("pollset ", Line), has("times", Line)],
    [?assert(has(Title, Head)) || Title <- ["times", "revents", "min", "max", "avg", "timeouts", "asleep"]].

%% The table of tcprstat fits too. It has no rows for seconds in which no listener measured.
tcprstat_is_whole_in_80_columns_test() ->
    Lines = shown(latency, 24, 80, []),
    [Head] = [Line || Line <- Lines, has("stddev", Line)],
    [
        ?assert(has(Title, Head))
     || Title <- ["time", "count", "max", "min", "avg", "med", "95max", "95avg", "95std", "99max", "99avg", "99std"]
    ],
    ?assertMatch([_, _], [
        Line
     || Line <- Lines, has("39416 17873 953 1718 1519    724  2919  1609   340  3813  1674   462", Line)
    ]),
    ?assertMatch([_], [Line || Line <- Lines, has("listener {http,", Line)]),
    ?assertEqual([], [Line || Line <- Lines, has("00:00:03", Line)]),
    ?assert(place("00:00:02", Lines) < place("00:00:01", Lines)).

has(Text, Line) -> string:find(Line, Text) =/= nomatch.

place(Text, Lines) -> length(lists:takewhile(fun(Line) -> not has(Text, Line) end, Lines)).

locks_test() ->
    Lines = shown(locks, 24, 80, []),
    ?assertMatch([_], [
        Line
     || Line <- Lines, has("run_queue", Line), has("50.0%", Line), has("250.000", Line), has("12.5%", Line)
    ]).

clocks_test() ->
    Lines = shown(clocks, 24, 80, []),
    [
        ?assertMatch([_ | _], [Line || Line <- Lines, has(Text, Line)])
     || Text <- ["time correction is on, no_time_warp, the offset is final", "3 ms behind", "monotonic_time", "25.0"]
    ].

order_test() ->
    First = shown(processes, 24, 80, []),
    ?assert(place("rather_busy", First) < place("a_module", First)),
    Reversed = shown(processes, 24, 80, [$r]),
    ?assert(place("rather_busy", Reversed) > place("a_module", Reversed)),
    ?assert(has("sorted by memory", lists:last(shown(processes, 24, 80, [$s])))),
    ?assert(has("sorted by reductions", lists:last(shown(processes, 24, 80, [$s, $s, $s, $s, $s, $s])))).

filter_test() ->
    Typed = shown(processes, 24, 80, [$/ | "busyx"] ++ [backspace]),
    ?assert(has("filter: busy_", lists:last(Typed))),
    ?assertEqual([], [Line || Line <- Typed, has("a_module", Line)]),
    ?assertMatch([_], [Line || Line <- Typed, has("rather_busy", Line)]),
    %% While a filter is typed, keys are letters and not commands.
    ?assert(is_tuple(keyed([$/, $q], weir_cli_scope_screen:new(node)))),
    ?assertMatch([_], [Line || Line <- shown(processes, 24, 80, [$/ | "busy"] ++ [escape]), has("a_module", Line)]),
    ?assertMatch([], [Line || Line <- shown(processes, 24, 80, [$/ | "busy"] ++ [enter, $r]), has("a_module", Line)]).

pause_test() ->
    Screen = weir_cli_scope_screen:data(overview, data(), weir_cli_scope_screen:new(node)),
    Paused = keyed([$p], Screen),
    ?assertEqual(nothing, weir_cli_scope_screen:wanted(Paused)),
    ?assertEqual(Paused, weir_cli_scope_screen:data(overview, data(), Paused)),
    ?assertEqual({overview, number}, weir_cli_scope_screen:wanted(keyed([$p], Paused))),
    ?assertEqual({schedulers, number}, weir_cli_scope_screen:wanted(keyed([tab], Paused))).

pages_turn_test() ->
    Screen = weir_cli_scope_screen:new(node),
    ?assertEqual({clocks, name}, weir_cli_scope_screen:wanted(keyed([left], Screen))),
    ?assertEqual({locks, waited}, weir_cli_scope_screen:wanted(keyed([left, left], Screen))),
    ?assertEqual({locks, waited}, weir_cli_scope_screen:wanted(keyed([$l], Screen))),
    ?assertEqual({overview, number}, weir_cli_scope_screen:wanted(keyed([left, tab], Screen))),
    ?assertEqual({overview, number}, weir_cli_scope_screen:wanted(keyed([$1], keyed([tab], Screen)))),
    ?assertEqual(quit, weir_cli_scope_screen:key($q, Screen)),
    ?assertEqual(quit, weir_cli_scope_screen:key(3, keyed([$/], Screen))).

help_and_failure_test() ->
    ?assertMatch([_], [Line || Line <- shown(overview, 24, 80, [$?]), has("next or previous page", Line)]),
    ?assertMatch([], [Line || Line <- shown(overview, 24, 80, [$?, $x]), has("next or previous page", Line)]),
    Failed = weir_cli_scope_screen:failed(
        "it is gone", weir_cli_scope_screen:data(overview, data(), weir_cli_scope_screen:new(node))
    ),
    Lines = lines(weir_cli_scope_screen:draw(Failed)),
    ?assert(has("it is gone", lists:last(Lines))),
    %% The old data stay.
    ?assertMatch([_ | _], [Line || Line <- Lines, has("utilisation", Line)]).

scroll_test() ->
    All = shown(overview, 60, 80, []),
    Small = shown(overview, 10, 80, []),
    ?assert(length([Line || Line <- All, has("atoms", Line)]) =:= 1),
    ?assertEqual([], [Line || Line <- Small, has("atoms", Line)]),
    ?assertMatch([_], [Line || Line <- shown(overview, 10, 80, [down, $j]), has("atoms", Line)]).

plain_test() ->
    Text = unicode:characters_to_binary(weir_cli_scope_screen:plain(overview, data(), node())),
    ?assertEqual(nomatch, binary:match(Text, <<"\e">>)),
    ?assertNotEqual(nomatch, binary:match(Text, <<"utilisation">>)).
