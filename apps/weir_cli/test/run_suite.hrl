%% The setup of suites of `bin/weir run'.

all() ->
    [{group, inet}, {group, socket}, {group, weir}].

init_per_suite(Config) ->
    weir_cli_examples:start_node(Config).

end_per_suite(Config) ->
    weir_cli_examples:stop_node(Config).

init_per_group(Backend, Config) ->
    [{backend, Backend} | Config].

end_per_group(_Backend, _Config) ->
    ok.
