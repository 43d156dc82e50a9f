-module(weir_bench_suite_tests).

-include_lib("eunit/include/eunit.hrl").

names_and_titles_are_one_of_a_kind_test() ->
    #{scenarios := Scenarios} = suite(),
    Names = [Name || #{name := Name} <- Scenarios],
    ?assertEqual(lists:usort(Names), lists:sort(Names)),
    %% A name is a scenario or a set, not both.
    #{sets := Sets} = suite(),
    ?assertEqual([], [Set || {Set, _} <- Sets, lists:member(Set, Names)]).

what_is_written_for_weir_is_not_run_on_stock_test() ->
    OfWeir = [
        weir_proxy, echo_listener, accept_listener, echo_reactor, game_reactor, relay, chat, ws_broadcast, sse_broadcast
    ],
    #{scenarios := Scenarios} = suite(),
    [
        ?assertEqual({Name, Title, true}, {Name, Title, Backend =:= weir})
     || #{name := Name, contestants := Contestants} = Scenario <- Scenarios,
        Contestant <- Contestants,
        #{server := Server, title := Title, backend := Backend} <- [weir_bench_scenario:run(Scenario, Contestant)],
        lists:member(Server, OfWeir)
    ].

every_scenario_has_stock_or_a_peer_beside_weir_test() ->
    #{scenarios := Scenarios} = suite(),
    [
        begin
            Backends = [Backend || #{backend := Backend} <- Contestants],
            ?assertEqual({Name, true, true}, {
                Name, lists:member(weir, Backends), lists:any(fun(Backend) -> Backend =/= weir end, Backends)
            })
        end
     || #{name := Name, contestants := Contestants} <- Scenarios,
        %% No other tool keeps a history.
        Name =/= 'scope-history'
    ].

the_drop_in_has_two_schedulers_beside_one_test() ->
    Without = [
        'seed-acceptors',
        'seed-timeouts',
        'seed-sockets',
        'seed-responders',
        'seed-active',
        'seed-active-500mbit',
        'seed-active-2gbit',
        'seed-active-bulk',
        idle,
        'idle-100000',
        schedulers
    ],
    Twins = [
        {<<"inet", Way/binary>>, <<"weir", Way/binary>>}
     || Way <- [<<" once">>, <<" true">>, <<" passive">>, <<>>, <<" processes">>]
    ],
    #{scenarios := Scenarios} = suite(),
    [
        ?assertEqual({Name, Two, true}, {Name, Two, lists:member(Two, Titles)})
     || #{name := Name, contestants := Contestants} <- Scenarios,
        not lists:member(Name, Without),
        Titles <- [[Title || #{title := Title} <- Contestants]],
        {Stock, DropIn} <- Twins,
        lists:member(Stock, Titles) andalso lists:member(DropIn, Titles),
        %% If stock is measured in several modes, `once' is the main one.
        not (lists:member(<<"weir once">>, Titles) andalso DropIn =:= <<"weir true">>),
        Two <- [<<Stock/binary, ", 2:2">>, <<DropIn/binary, ", 2:2">>]
    ].

there_are_targets_for_two_releases_test() ->
    #{targets := Targets} = suite(),
    Known = fun(_, _, _) -> {ok, 1} end,
    On25 = length(weir_bench_targets:check(25, Targets, Known)),
    ?assert(On25 > 0),
    %% The targets against Cowboy are for one release only.
    ?assertEqual(On25 + 2, length(weir_bench_targets:check(29, Targets, Known))),
    ?assertEqual([], weir_bench_targets:check(27, Targets, Known)).

scenarios_are_chosen_by_name_chapter_and_set_in_the_order_of_the_suite_test() ->
    Suite = suite(),
    Chosen = fun(Texts) -> weir_bench_suite:chosen(Texts, Suite) end,
    ?assertEqual({ok, [accept, 'relay-bulk']}, Chosen(["relay-bulk", "accept"])),
    ?assertEqual({ok, [idle, 'idle-100000']}, Chosen(["memory"])),
    {ok, ['echo-100' | _] = Quick} = Chosen(["quick", "accept"]),
    ?assertEqual(lists:usort(Quick), lists:sort(Quick)),
    ?assertMatch({error, _}, Chosen(["idle", "echo-9"])),
    ?assertMatch({error, _}, Chosen([])).

all_takes_65_minutes_the_servers_seventeen_minutes_and_the_quick_set_five_minutes_test() ->
    ok = weir_bench_record:in_tree(),
    #{scenarios := Scenarios} = Suite = suite(),
    %% As if all peers were installed.
    WithAllPeers = fun(#{contestants := Contestants} = Scenario) ->
        maps:remove(needs, Scenario#{contestants := [maps:remove(needs, Contestant) || Contestant <- Contestants]})
    end,
    Minutes = fun(Of) -> lists:sum([weir_bench_scenario:seconds(5, WithAllPeers(One)) || One <- Of]) / 60 end,
    ?assert(Minutes(Scenarios) =< 65),
    ?assert(
        Minutes(lists:append([weir_bench_suite:in_set(Set, Suite) || Set <- ['push-servers', proxy, scope]])) =< 17
    ),
    ?assert(Minutes([weir_bench_scenario:quick(One) || One <- weir_bench_suite:in_set(quick, Suite)]) < 5).

quick_is_shorter_in_time_and_in_bytes_test() ->
    #{scenarios := Scenarios} = suite(),
    [#{warmup := Warmup, duration := Duration, bytes := Bytes} = Bulk] =
        [Scenario || #{name := 'relay-bulk'} = Scenario <- Scenarios],
    ?assertMatch(
        #{warmup := W, duration := D, bytes := B} when W < Warmup andalso D < Duration andalso B < Bytes,
        weir_bench_scenario:quick(Bulk)
    ).

a_scenario_is_like_another_but_for_what_it_says_test() ->
    Two = ["{scenario, two, #{like => one, connections => 2}}.\n"],
    {ok, #{scenarios := [One, Other]}} = read([minimal(), Two]),
    ?assertEqual(One#{name := two, connections := 2}, Other).

contestants_have_settings_of_their_own_where_they_are_named_test() ->
    Text = [
        minimal(),
        "{contestants, both, [\"inet\", \"weir\"]}.\n"
        "{scenario, two, #{like => one, contestants => [both, {\"inet\", #{title => \"third\", connections => 7}}]}}.\n"
    ],
    {ok, #{scenarios := [_, #{contestants := [Inet, _, Third]} = Two]}} = read(Text),
    ?assertMatch(#{title := <<"inet">>, connections := 1}, weir_bench_scenario:run(Two, Inet)),
    ?assertMatch(#{title := <<"third">>, connections := 7}, weir_bench_scenario:run(Two, Third)).

what_is_wrong_is_told_with_its_place_test_() ->
    [
        ?_test(begin
            {error, Message} = read([minimal(), Wrong]),
            Line = unicode:characters_to_list(Message),
            [?assertNotEqual({Line, Part, nomatch}, {Line, Part, string:find(Line, Part)}) || Part <- Parts]
        end)
     || {Wrong, Parts} <- [
            {"{scenario, two, #{like => one, connections => -1}}.", ["scenario two", "connections", "-1", "0 or more"]},
            {"{scenario, two, #{like => one, conections => 1}}.", ["scenario two", "conections"]},
            {"{scenario, two, #{like => none}}.", ["scenario two", "none"]},
            {"{scenario, one, #{like => one}}.", ["scenario one", "already"]},
            {"{scenario, two, #{title => \"two\"}}.", ["scenario two", "contestants is missing"]},
            {"{scenario, two, #{like => one, metrics => [speed]}}.", ["scenario two", "requests_per_s"]},
            {"{scenario, two, #{like => one, contestants => [\"go\"]}}.", ["scenario two", "go"]},
            {"{scenario, two, #{like => one, contestants => [\"inet\", \"inet\"]}}.", ["two contestants", "inet"]},
            {"{scenario, two, #{like => one, contestants => [{\"inet\", #{active => 0}}]}}.", [
                "inet", "active", "once"
            ]},
            {"{scenario, two, #{like => one, share => 0}}.", ["scenario two", "share", "1 to 100"]},
            {"{scenario, two, #{like => one, carrier => pigeon}}.", ["scenario two", "carrier", "websocket"]},
            {"{scenario, two, #{like => one, driver => horse}}.", ["scenario two", "driver", "node"]},
            {"{scenario, two, #{like => one, search => #{over => rate}}}.", ["scenario two", "search", "least"]},
            {
                "{scenario, two, #{like => one, search => #{over => rooms, start => 2, least => 1, most => 3, "
                "metric => p50_us, limit => 1}}}.",
                ["scenario two", "search", "connections"]
            },
            {"{scenario, two, #{like => one, contestants => [{\"inet\", #{looks => away}}]}}.", [
                "inet", "looks", "recon"
            ]},
            {"{scenario, two, #{like => one, path => \"a\"}}.", ["scenario two", "path"]},
            {
                "{scenario, two, #{like => one, contestants => [\"inet\", {\"weir\", #{share => 50}}]}}.",
                ["scenario two", "first contestant has no share"]
            },
            {"{contestant, \"go\", #{backend => rust}}.", ["contestant \"go\"", "backend", "rust", "tokio"]},
            {"{contestant, \"go\", #{}}.", ["contestant \"go\"", "backend is missing"]},
            {"{set, some, [two]}.", ["set some", "two"]},
            {"{target, #{title => \"t\"}}.", ["target \"t\"", "rival"]},
            {
                "{target, #{title => \"t\", scenario => one, metric => p50_us, contestant => \"weir\", rival => \"go\","
                " relation => ratio_at_most, limits => #{25 => 1.0}}}.",
                ["target \"t\"", "no contestant go"]
            },
            {"{frob, 1}.", ["frob", "known"]},
            {"{scenario, ", ["suite"]}
        ]
    ].

a_suite_that_is_not_there_is_named_test() ->
    {error, Message} = weir_bench_suite:read("/nowhere/suite.config"),
    ?assertNotEqual(nomatch, string:find(unicode:characters_to_list(Message), "/nowhere/suite.config")).

minimal() ->
    "{contestant, \"inet\", #{backend => inet}}.\n"
    "{contestant, \"weir\", #{backend => weir}}.\n"
    "{chapter, first, \"First\"}.\n"
    "{scenario, one, #{title => \"one\", server => echo, load => echo, connections => 1, warmup => 1, duration => 1,\n"
    "    metrics => [p50_us], contestants => [\"inet\", \"weir\"]}}.\n".

read(Text) ->
    File = filename:join("_build", "weir_bench_suite_tests-" ++ os:getpid() ++ ".suite"),
    ok = file:write_file(File, Text),
    Read = weir_bench_suite:read(File),
    ok = file:delete(File),
    Read.

suite() ->
    {ok, Suite} = weir_bench_suite:read(),
    Suite.
