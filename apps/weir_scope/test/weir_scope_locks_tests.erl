%% The table of locks, from an answer in the form of a VM that counts them. No system has such a VM as a package.
-module(weir_scope_locks_tests).

-include_lib("eunit/include/eunit.hrl").

%% Two locks of one name, and a read-write lock that is taken in two places.
counts() ->
    Histogram = erlang:make_tuple(30, 0),
    [
        {duration, {4, 500_000_000}},
        {locks, [
            {run_queue, 1, spinlock, [{{"beam/erl_process.c", 5000}, {1000, 100, {0, 450_000_000, 100}}, Histogram}]},
            {run_queue, 2, spinlock, [{{"beam/erl_process.c", 5000}, {500, 50, {1, 50_000_000, 50}}, Histogram}]},
            {atom_tab, undefined, rw_mutex, [
                {{"beam/atom.c", 10}, {40, 3, {0, 2_000_000, 3}}, Histogram},
                {{"beam/atom.c", 20}, {60, 1, {0, 1_000_000, 1}}, Histogram}
            ]}
        ]}
    ].

ask(erlang, system_info, [lock_counting]) -> true;
ask(erts_debug, lcnt_collect, []) -> counts().

all() -> weir_scope_locks:all(fun ask/3).

those_of_a_name_together_test() ->
    ?assertEqual(
        #{
            seconds => 4.5,
            locks => [
                #{
                    name => run_queue,
                    type => spinlock,
                    instances => 2,
                    tries => 1500,
                    collisions => 150,
                    waited => 1.5,
                    share => 1.5 / 4.5
                },
                #{
                    name => atom_tab,
                    type => rw_mutex,
                    instances => 1,
                    tries => 100,
                    collisions => 4,
                    waited => 0.003,
                    share => 0.003 / 4.5
                }
            ]
        },
        all()
    ).

%% A lock that was never taken has no place, and the histogram may be missing.
without_places_and_histograms_test() ->
    Ask = fun
        (erlang, system_info, [lock_counting]) ->
            true;
        (erts_debug, lcnt_collect, []) ->
            [
                {duration, {0, 0}},
                {locks, [
                    {late, undefined, mutex, []}, {old, 1, mutex, [{{undefined, 0}, {3, 1, {0, 500_000_000, 1}}}]}
                ]}
            ]
    end,
    ?assertMatch(
        #{
            locks := [
                #{name := old, tries := 3, waited := 0.5, share := 0.0}, #{name := late, tries := 0, waited := 0.0}
            ]
        },
        weir_scope_locks:all(Ask)
    ).

%% Compares with OTP's own table of the same answer.
as_lcnt_has_them_test_() ->
    case code:which(lcnt) of
        non_existing -> [];
        _ -> {timeout, 180, fun as_lcnt_has_them/0}
    end.

as_lcnt_has_them() ->
    {ok, Server} = lcnt:start(),
    %% The server prints to its group leader.
    true = group_leader(printer(), Server),
    ok = lcnt:set(data, counts()),
    ok = lcnt:conflicts(),
    {group_leader, Printer} = process_info(Server, group_leader),
    Printer ! {printed, self()},
    Text =
        receive
            {printed, Lines} -> Lines
        end,
    _ = lcnt:stop(),
    #{locks := Locks} = all(),
    %% lcnt leaves out locks without waits.
    Ours = [
        {atom_to_list(Name), Tries, Collisions, round(Waited * 1_000_000)}
     || #{name := Name, tries := Tries, collisions := Collisions, waited := Waited} <- Locks, Collisions > 0
    ],
    Theirs = [
        {Name, list_to_integer(Tries), list_to_integer(Collisions), list_to_integer(Us)}
     || [Name, _Instances, Tries, Collisions, _Percent, Us | _] <- [
            string:lexemes(Line, " ")
         || Line <- string:lexemes(Text, "\n")
        ],
        lists:keymember(Name, 1, Ours)
    ],
    ?assertEqual(lists:sort(Ours), lists:sort(Theirs)).

printer() -> spawn_link(fun() -> prints([]) end).

prints(Text) ->
    receive
        {io_request, From, Reference, {put_chars, _, Module, Function, Arguments}} ->
            From ! {io_reply, Reference, ok},
            prints([Text, apply(Module, Function, Arguments)]);
        {io_request, From, Reference, {put_chars, _, Characters}} ->
            From ! {io_reply, Reference, ok},
            prints([Text, Characters]);
        {printed, Whom} ->
            Whom ! {printed, unicode:characters_to_list(Text)}
    end.

%% This VM says whether it counts.
of_this_node_test() ->
    case erlang:system_info(lock_counting) of
        false -> ?assertEqual(not_counted, weir_scope_locks:all(fun erlang:apply/3));
        true -> ?assertMatch(#{locks := [#{tries := _} | _]}, weir_scope_locks:all(fun erlang:apply/3))
    end.

the_page_test() ->
    [{text, ["Weir does not run on this node.", ""]}, {text, [Counted, ""]}, {table, Columns, [First | _]}] =
        weir_scope_page_locks:page(none, all()),
    ?assertEqual("Locks of the VM, counted for 4.5s", lists:flatten(Counted)),
    ?assertEqual(
        ["run_queue", "spinlock", "2", "1500", "150", "10.0%", "1500.000", "33.3%"],
        [lists:flatten(Text) || {_, Text} <- First]
    ),
    ?assertEqual(length(Columns), length(First)),
    Weir = #{
        locks => [#{table => sockets, total => 7, rate => 2.0}],
        pollsets => [#{pollset => 1, contended => 3.0, totals => #{contended => 9}}, #{pollset => 2, totals => #{}}]
    },
    [{table, _, Rows}, {text, _}, {text, [Not]}] = weir_scope_page_locks:page(Weir, not_counted),
    ?assertEqual([["of sockets", "2", "7"], ["of pollset 1's ready list", "3", "9"]], [
        [lists:flatten(Text) || {_, Text} <- Row]
     || Row <- Rows
    ]),
    ?assertNotEqual(nomatch, string:find(Not, "does not count")).
