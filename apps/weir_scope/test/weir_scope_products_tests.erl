%% Counters of weir_http and weir_pubsub, from their own tables.
-module(weir_scope_products_tests).

-include_lib("eunit/include/eunit.hrl").

%% A node with both, where `Published' messages were published.
ask(Published) ->
    fun
        (erlang, whereis, [weir_pubsub_sup]) ->
            self();
        (weir_pubsub, counters, []) ->
            maps:from_list([{Name, Published} || #{name := Name} <- weir_pubsub_counters:table()]);
        (Module, Function, Arguments) ->
            apply(Module, Function, Arguments)
    end.

listener(Requests) -> maps:from_list([{Name, Requests} || #{name := Name} <- weir_http_counters:table()]).

named(Name, Counters) -> [Values || #{name := Same, values := Values} <- Counters, Same =:= Name].

all_of_both_tables_test() ->
    Reading = weir_scope_products:read(ask(5), [{web, listener(7)}, {echo, #{connections => 1}}]),
    Counters = weir_scope_products:between(Reading, Reading, 1_000_000_000),
    ?assertEqual(length(weir_http_counters:table()) + length(weir_pubsub_counters:table()), length(Counters)),
    ?assertEqual([[#{listener => web, total => 7, rate => 0.0}]], named(<<"weir_http_requests">>, Counters)),
    ?assertEqual([[#{total => 5, rate => 0.0}]], named(<<"weir_pubsub_published">>, Counters)).

%% Rates over two seconds. A restarted listener counts from zero, and a new one has no rate yet.
rates_test() ->
    Before = weir_scope_products:read(ask(5), [{web, listener(7)}, {again, listener(100)}]),
    After = weir_scope_products:read(ask(9), [{web, listener(17)}, {again, listener(4)}, {new, listener(3)}]),
    Counters = weir_scope_products:between(Before, After, 2_000_000_000),
    ?assertEqual([[#{total => 9, rate => 2.0}]], named(<<"weir_pubsub_published">>, Counters)),
    ?assertEqual(
        [
            [
                #{listener => web, total => 17, rate => 5.0},
                #{listener => again, total => 4, rate => 2.0},
                #{listener => new, total => 3, rate => 0.0}
            ]
        ],
        named(<<"weir_http_requests">>, Counters)
    ).

neither_runs_test() ->
    ?assertEqual([], weir_scope_products:read(fun erlang:apply/3, [{echo, #{connections => 1}}])).
