%% The law of subscriptions, tried with random programs.
-module(weir_pubsub_property_SUITE).

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {seconds, 120}}].

all() -> [sequences].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Config.

end_per_suite(_Config) ->
    ok = application:stop(weir_pubsub).

sequences(_Config) ->
    Options = [{numtests, 100}, {max_size, 60}, long_result, quiet, {on_output, fun ct:log/2}],
    case proper:quickcheck(prop_pubsub:prop_sequences(), Options) of
        true -> ok;
        Counterexample -> ct:fail({counterexample, Counterexample})
    end.
