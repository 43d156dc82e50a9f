%% The law of subscriptions, checked with random programs.
-module(weir_pubsub_property_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 30}}].

all() -> [sequences, sequences_over_http].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    {ok, _} = weir_http:start_listener(
        prop_pubsub_http, #{ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(#{publishers => any})
    ),
    Config.

end_per_suite(_Config) ->
    ok = weir_http:stop_listener(prop_pubsub_http),
    ok = application:stop(weir_pubsub).

sequences(_Config) -> holds(prop_pubsub:prop_sequences(), 100).

sequences_over_http(_Config) -> holds(prop_pubsub_http:prop_sequences(), 50).

holds(Property, Tests) ->
    Options = [{numtests, Tests}, {max_size, 60}, long_result, quiet, {on_output, fun ct:log/2}, {max_shrinks, 30}],
    case proper:quickcheck(Property, Options) of
        true -> ok;
        Counterexample -> ct:fail({counterexample, Counterexample})
    end.
