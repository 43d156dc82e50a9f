%% Features of IPv6 only: addresses, `ipv6_v6only', scopes and the traffic class.
-module(weir_tcp_inet6_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [keep/1]).
-import(weir_test_wait, [patience/0, recv_exactly/2]).
-import(weir_tcp_family_test, [backend/1, where/1, listen/2, listen/3, connect/4, pair/3, what/1]).

-include("family_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_tcp_family_test:groups([{inet6, cases()}]).

cases() ->
    [
        inet6_any_takes_ipv4, inet6_only, inet6_only_is_for_listen, inet6_loopback, inet6_by_name, inet6_map,
        inet6_map_with_scope, inet6_map_of_ipv4, inet6_mapped, inet6_bound_connect, inet6_address_of_ipv4,
        inet6_traffic_class
    ].

%% Without an address, the option `inet6' or the module selects the family; the drop-in learns it from the address in
%% its options.
unspecified(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true -> [{ip, {0, 0, 0, 0, 0, 0, 0, 0}}];
        false -> []
    end.

inet6_any_takes_ipv4(Config) ->
    {ok, Listener} = listen(Config, 0, [{active, false} | unspecified(Config)]),
    {ok, {{0, 0, 0, 0, 0, 0, 0, 0}, Port}} = inet:sockname(Listener),
    {ok, Peer} = keep(gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    {ok, {{127, 0, 0, 1}, PeerPort}} = inet:sockname(Peer),
    ?assertEqual({ok, {{0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1}, PeerPort}}, inet:peername(Accepted)).

inet6_only(Config) ->
    {ok, Listener} = listen(Config, 0, [{ipv6_v6only, true} | unspecified(Config)]),
    {ok, Port} = inet:port(Listener),
    ?assertEqual({ok, [{ipv6_v6only, true}]}, inet:getopts(Listener, [ipv6_v6only])),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    %% Too late: the socket is bound.
    ?assertEqual({error, einval}, inet:setopts(Listener, [{ipv6_v6only, false}])),
    ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ipv6_v6only, yes}]) end)).

inet6_only_is_for_listen(Config) ->
    ?assertEqual(exit, what(fun() -> connect(Config, {0, 0, 0, 0, 0, 0, 0, 1}, 1, [{ipv6_v6only, true}]) end)).

inet6_loopback(Config) ->
    {Socket, _} = pair(Config, [], []),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}}, inet:sockname(Socket)),
    case proplists:get_value(drop_in, Config, false) of
        %% For a module of all families, the loopback address is IPv4's.
        true ->
            ok;
        false ->
            {ok, Listener} = listen(Config, 0, [{ip, loopback}]),
            ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}}, inet:sockname(Listener))
    end.

inet6_by_name(Config) ->
    {ok, Listener} = listen(Config, [{active, false}]),
    {ok, Port} = inet:port(Listener),
    case proplists:get_value(drop_in, Config, false) of
        true ->
            %% A name is resolved to an IPv4 address, so an address is needed.
            {ok, Connected} = connect(Config, {0, 0, 0, 0, 0, 0, 0, 1}, Port, []),
            ?assertEqual({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}}, inet:peername(Connected));
        false ->
            {ok, Connected} = connect(Config, "::1", Port, []),
            ?assertEqual({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}}, inet:peername(Connected))
    end.

inet6_map(Config) ->
    {ok, Listener} = listen(Config, 0, [{ifaddr, #{family => inet6, addr => loopback}}]),
    {ok, {IP, Port}} = inet:sockname(Listener),
    ?assertEqual({0, 0, 0, 0, 0, 0, 0, 1}, IP),
    Address = #{family => inet6, addr => IP, port => Port},
    {ok, Connected} = keep(gen_tcp:connect(Address, backend(Config))),
    ?assertEqual({ok, {IP, Port}}, inet:peername(Connected)),
    {ok, Other} = keep(gen_tcp:connect(Address#{flowinfo => 0, scope_id => 0}, backend(Config), patience())),
    ?assertEqual({ok, {IP, Port}}, inet:peername(Other)).

inet6_map_with_scope(Config) ->
    LinkLocal = #{family => inet6, addr => {16#fe80, 0, 0, 0, 0, 0, 0, 1}},
    %% Without a scope the address is invalid; with that of the loopback device, no interface has it.
    ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, LinkLocal}])),
    ?assertEqual({error, eaddrnotavail}, listen(Config, 0, [{ifaddr, LinkLocal#{scope_id => 1}}])),
    ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ifaddr, LinkLocal#{scope_id => foo}}]) end)).

inet6_map_of_ipv4(Config) ->
    Map = #{family => inet, addr => {127, 0, 0, 1}},
    case proplists:get_value(drop_in, Config, false) of
        true -> ?assertMatch({ok, _}, listen(Config, 0, [{ifaddr, Map}]));
        false -> ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, Map}]))
    end.

inet6_mapped(Config) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    Mapped = {0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1},
    {ok, Connected} = connect(Config, Mapped, Port, []),
    ?assertEqual({ok, {Mapped, Port}}, inet:peername(Connected)),
    ok = gen_tcp:close(Listener).

inet6_bound_connect(Config) ->
    {ok, Listener} = listen(Config, []),
    {ok, Port} = inet:port(Listener),
    {ok, Connected} = connect(Config, where(Config), Port, [{ip, where(Config)}, {port, 0}]),
    {ok, {IP, OwnPort}} = inet:sockname(Connected),
    ?assertEqual(where(Config), IP),
    ?assert(OwnPort > 0).

inet6_address_of_ipv4(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true ->
            ?assertMatch({ok, _}, listen(Config, 0, [{ip, {127, 0, 0, 1}}]));
        false ->
            ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ip, {127, 0, 0, 1}}]) end)),
            ?assertEqual({error, eafnosupport}, connect(Config, {127, 0, 0, 1}, 1, []))
    end,
    ?assertEqual(exit, what(fun() -> connect(Config, where(Config), 1, [{ip, {127, 0, 0, 1}}]) end)).

inet6_traffic_class(Config) ->
    {Connected, Accepted} = pair(
        Config, [{tclass, 8}, {active, false}], [{tclass, 4}, {recvtclass, true}, {active, false}]
    ),
    ?assertEqual({ok, [{tclass, 8}, {recvtclass, false}]}, inet:getopts(Connected, [tclass, recvtclass])),
    ?assertEqual({ok, [{tclass, 4}, {recvtclass, true}]}, inet:getopts(Accepted, [tclass, recvtclass])),
    ok = gen_tcp:send(Connected, <<"x">>),
    _ = recv_exactly(Accepted, 1),
    ?assertMatch({ok, [{pktoptions, [{tclass, _}]}]}, inet:getopts(Accepted, [pktoptions])),
    ok = inet:setopts(Accepted, [{tclass, 12}]),
    ?assertEqual({ok, [{tclass, 12}]}, inet:getopts(Accepted, [tclass])).
