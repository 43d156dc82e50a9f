%% What the suites of IPv6 and local sockets do around their cases. In the group `drop_in' it is `weir_tcp' that opens the
%% sockets, as where it is the module of a whole virtual machine.

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
