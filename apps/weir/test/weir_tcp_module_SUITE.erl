%% `weir_tcp' as the module of a virtual machine, which opens sockets of every family.
-module(weir_tcp_module_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0]).

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [keep/1]).

-include("engine_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, weir}].

groups() ->
    [{weir, [], [whole_virtual_machine, family_among_the_options]}].

whole_virtual_machine(_Config) ->
    inet_tcp = inet_db:tcp_module(),
    ok = inet_db:set_tcp_module(weir_tcp),
    try
        [
            begin
                {ok, Listener} = keep(gen_tcp:listen(0, [{ip, IP}, binary, {active, false}])),
                {ok, Port} = inet:port(Listener),
                {ok, Connected} = keep(gen_tcp:connect(IP, Port, [binary, {active, false}])),
                {ok, Mapped} = keep(gen_tcp:connect(#{family => Family, addr => IP, port => Port}, [])),
                {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
                ok = gen_tcp:send(Connected, <<"through">>),
                ?assertEqual({ok, <<"through">>}, gen_tcp:recv(Accepted, 7, patience())),
                ?assertEqual({ok, {IP, Port}}, inet:peername(Mapped)),
                [?assertMatch({'$inet', weir_tcp, _}, Socket) || Socket <- [Listener, Connected, Mapped, Accepted]]
            end
         || {Family, IP} <- [{inet, {127, 0, 0, 1}}, {inet6, {0, 0, 0, 0, 0, 0, 0, 1}}]
        ]
    after
        inet_db:set_tcp_module(inet_tcp)
    end.

family_among_the_options(_Config) ->
    {ok, Any} = keep(weir_tcp:listen(0, [inet6])),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 0}, _}}, inet:sockname(Any)),
    {ok, Loopback} = keep(weir_tcp:listen(0, [inet6, {ip, loopback}])),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}}, inet:sockname(Loopback)),
    ?assertExit(badarg, weir_tcp:listen(0, [inet, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}])),
    ?assertEqual({error, einval}, weir_tcp:listen(0, [local])),
    ?assertEqual({ok, [{local, "path"}]}, weir_tcp:getaddrs({local, "path"})),
    ?assertEqual({ok, {0, 0, 0, 0, 0, 0, 0, 1}}, weir_tcp:getaddr({0, 0, 0, 0, 0, 0, 0, 1})),
    ?assertEqual({ok, {127, 0, 0, 1}}, weir_tcp:getaddr("localhost")).
