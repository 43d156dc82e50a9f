%% Options of brokers.
-module(weir_pubsub_broker_tests).

-include_lib("eunit/include/eunit.hrl").

what_is_wrong_is_told_test() ->
    Wrong = [
        {kind, nats},
        {host, <<"redis">>},
        {host, ""},
        {host, "redis\0"},
        {port, 0},
        {port, 65536},
        {username, "push"},
        {password, secret},
        {database, -1},
        {prefix, <<"a{b">>},
        {prefix, "weir"},
        {cluster, true}
    ],
    [
        ?assertMatch({error, {bad_option, Name, Value, _}}, weir_pubsub_broker:configure(#{Name => Value}))
     || {Name, Value} <- Wrong
    ],
    ?assertMatch({error, {bad_option, options, [], _}}, weir_pubsub_broker:configure([])).
