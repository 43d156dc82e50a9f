%% Samplers: one for all views, their cost, and what stays of them on a node.
-module(weir_scope_sampler_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([
    one_sampler_for_all/1,
    one_after_the_other/1,
    what_weir_scope_has_stays/1,
    without_weir_http/1,
    the_clocks/1,
    cheap_on_a_large_node/1
]).

-import(weir_scope_test, [view/1, bring/2, next/1, traces/1]).
-import(weir_test_wait, [wait_until/1]).

-include("view_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        one_sampler_for_all,
        one_after_the_other,
        what_weir_scope_has_stays,
        without_weir_http,
        the_clocks,
        cheap_on_a_large_node
    ].

%% Each visit begins while the modules of the one before are being removed.
one_after_the_other(Config) ->
    Self = self(),
    [
        begin
            Pid = spawn(fun() ->
                Self ! {self(), weir_scope:open(?config(node, Config), #{patience => weir_test_wait:patience()})}
            end),
            receive
                {Pid, Opened} -> ?assertMatch({ok, _}, Opened)
            end,
            ok = weir_scope:close(view(Config))
        end
     || _ <- lists:seq(1, 8)
    ],
    wait_until(fun() -> traces(Config) =:= {[], [], undefined} end).

one_sampler_for_all(Config) ->
    Self = self(),
    Views = [view(Config) || _ <- lists:seq(1, 3)],
    Other = spawn_link(fun() ->
        Own = view(Config),
        Self ! {looking, weir_scope:sample(Own)},
        receive
            enough -> Self ! {closed, weir_scope:close(Own)}
        end
    end),
    receive
        {looking, {ok, _}} -> ok
    end,
    Samplers = [
        Pid
     || Pid <- weir_scope_distribution:call(?config(peer, Config), erlang, processes, []),
        {dictionary, Dictionary} <- [
            weir_scope_distribution:call(?config(peer, Config), erlang, process_info, [Pid, dictionary])
        ],
        proplists:get_value('$initial_call', Dictionary) =:= {weir_scope_sampler, init, 1}
    ],
    ?assertEqual(1, length(Samplers)),
    [ok = weir_scope:close(View) || View <- Views],
    Other ! enough,
    receive
        {closed, Closed} -> ?assertEqual(ok, Closed)
    end,
    wait_until(fun() -> traces(Config) =:= {[], [], undefined} end).

%% On a release with the application, views use its sampler and modules, which stay.
what_weir_scope_has_stays(Config) ->
    Peer = ?config(peer, Config),
    {ok, _} = weir_scope_distribution:application(Peer, weir_scope),
    Sampler = weir_scope_distribution:call(Peer, erlang, whereis, [weir_scope_sampler]),
    true = is_pid(Sampler),
    View = view(Config),
    {ok, #{at := _}} = weir_scope:sample(View),
    ok = weir_scope:close(View),
    ?assertEqual(Sampler, weir_scope_distribution:call(Peer, erlang, whereis, [weir_scope_sampler])),
    ?assertMatch({file, _}, weir_scope_distribution:call(Peer, code, is_loaded, [weir_scope_sampler])),
    ?assertMatch(#{at := _}, weir_scope_distribution:call(Peer, weir_scope_sampler, latest, [weir_scope_sampler])),
    ?assert(weir_scope_distribution:call(Peer, weir_scope_sampler, memory, [weir_scope_sampler]) < 4 * 1024 * 1024).

%% A release without weir_http reports why there is no page. All else works.
without_weir_http(Config) ->
    Peer = ?config(peer, Config),
    ok = weir_scope_distribution:add_code(Peer, weir_scope),
    ok = weir_scope_distribution:call(Peer, application, load, [weir_scope]),
    ok = weir_scope_distribution:call(Peer, application, set_env, [
        weir_scope, http, #{token => <<"of sixteen bytes at least">>}
    ]),
    ?assertMatch(
        {error, {weir_scope, {{missing_application, weir_http}, _}}},
        weir_scope_distribution:call(Peer, application, ensure_all_started, [weir_scope])
    ),
    ok = weir_scope_distribution:call(Peer, application, set_env, [weir_scope, http, off]),
    {ok, _} = weir_scope_distribution:call(Peer, application, ensure_all_started, [weir_scope]),
    ?assertMatch(#{at := _}, weir_scope_distribution:call(Peer, weir_scope_sampler, latest, [weir_scope_sampler])).

%% Compares with the settings of the VM and the kernel's file. The costs are some nanoseconds at least.
the_clocks(Config) ->
    [
        begin
            View = weir_scope_distribution:view(?config(node, Config), Load),
            {ok, #{settings := Settings} = Clocks} = weir_scope:clocks(View),
            %% The time warp mode depends on the release, so the node itself is asked.
            [
                ?assertEqual(
                    {Item, weir_scope_distribution:call(?config(peer, Config), erlang, system_info, [Item])},
                    {Item, maps:get(Item, Settings)}
                )
             || Item <- [time_correction, time_warp_mode, time_offset]
            ],
            ?assert(abs(maps:get(clock_difference, Settings)) < 60_000),
            case file:read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource") of
                {ok, Source} -> ?assertEqual(string:trim(Source), maps:get(clock_source, Settings));
                {error, _} -> ?assertNot(is_map_key(clock_source, Settings))
            end,
            ?assertEqual(Load, is_map_key(costs, Clocks)),
            [?assert(Ns > 1 andalso Ns < 1_000_000_000) || #{ns := Ns} <- maps:get(costs, Clocks, [])],
            {ok, Data} = weir_scope_page:look(clocks, name, View),
            [{text, [_ | _]}, {table, _, Rows}] = weir_scope_page:page(clocks, Data, []),
            ?assertEqual(
                case Load of
                    true -> 6;
                    false -> 0
                end,
                length(Rows)
            ),
            ok = weir_scope:close(View)
        end
     || Load <- [true, false]
    ].

%% With 20,000 processes the sampler does no more work, and the top processes are found.
cheap_on_a_large_node(Config) ->
    Node = ?config(node, Config),
    bring(Config, weir_scope_load),
    View = view(Config),
    {ok, _} = next(View),
    {ok, #{cost := #{reductions := Few}}} = next(View),
    Crowd = erlang:spawn(Node, weir_scope_load, crowd, [self(), 20_000]),
    receive {Crowd, ready} -> ok after weir_test_wait:patience() -> ct:fail(no_crowd) end,
    {ok, _} = next(View),
    {ok, #{cost := #{reductions := Many, us := Us}}} = next(View),
    ct:log("~p reductions, then ~p and ~p us", [Few, Many, Us]),
    ?assert(Many < 2 * Few),
    {ok, Top} = weir_scope:processes(View, #{by => memory, over => 10, most => 5}),
    ?assertEqual(5, length(Top)),
    ok = weir_scope:close(View).
