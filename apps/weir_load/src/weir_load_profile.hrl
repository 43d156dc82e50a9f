%% The settings as every request needs them, with the callbacks as funs, which are called without a lookup by name, and
%% the window, which is beyond all times until it is known.
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
    %% Whether a connection asks as soon as it has room: a closed loop.
    asks = false :: boolean(),
    from = infinity :: integer() | infinity,
    to = infinity :: integer() | infinity
}).
