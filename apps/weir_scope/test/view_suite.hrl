%% The setup of suites that open views.

init_per_suite(Config) ->
    [{started, weir_scope_distribution:start("weir_scope_view")} | Config].

end_per_suite(Config) -> weir_scope_distribution:stop(?config(started, Config)).

%% A stock node.
init_per_testcase(_Case, Config) ->
    {Peer, Node} = weir_scope_distribution:node(["+S", "2", "+P", "300000"]),
    [{peer, Peer}, {node, Node} | Config].

end_per_testcase(_Case, Config) ->
    catch peer:stop(?config(peer, Config)),
    ok.
