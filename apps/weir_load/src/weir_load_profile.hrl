%% The settings that every request needs. Callbacks are funs, which are called without a lookup by name. The window is
%% `infinity', later than any time, until it is known.
-record(profile, {
    scenario :: module(),
    request :: fun((pos_integer(), weir_load_scenario:connection()) -> {ok, iodata(), weir_load_scenario:connection()}),
    response :: fun(
        (binary(), weir_load_scenario:connection()) ->
            {ok, [weir_load_scenario:event()], weir_load_scenario:connection()} | {error, weir_load_scenario:error()}
    ),
    config :: weir_load_scenario:config(),
    arrivals :: request | connection | none,
    held :: boolean(),
    depth :: pos_integer(),
    timeout :: pos_integer(),
    %% A closed loop: a connection sends as soon as fewer than `depth' requests are on their way.
    asks = false :: boolean(),
    from = infinity :: integer() | infinity,
    to = infinity :: integer() | infinity
}).
