%% Setup and cleanup of the suites of IPv6 and local sockets. In the group `drop_in', `weir_tcp' opens the sockets, as
%% it does when it is the module of the whole virtual machine.

all() ->
    [{group, inet}, {group, weir}, {group, drop_in}].

init_per_group(Group, Config) ->
    weir_tcp_family_test:init_group(Group, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_tcp_family_test:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_tcp_family_test:end_case(Config).
