%% Options that are unknown to inet:setopts/2 and inet:getopts/2, or have wrong values.
-module(weir_tcp_options_refused_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2]).
-import(weir_tcp_test, [default_buffer/1]).

-include("drop_in_suite.hrl").

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        raw_options_of_wrong_shape,
        getopts_of_unknown_options,
        getopts_of_options_of_open_only,
        setopts_of_unknown_options,
        setopts_of_wrong_values,
        setopts_of_options_of_open_only,
        setopts_is_all_or_nothing_when_refused,
        what_is_not_a_list
    ].

raw_options_of_wrong_shape(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, inet:setopts(Socket, [Option]))
     || Option <- [
            {raw, 6, 4, 1}, {raw, 6, 4, [1]}, {raw, 6, foo, <<1:32>>}, {raw, foo, 4, <<1:32>>},
            {raw, 6, 4}, {raw, 6}, raw
        ]
    ],
    [
        ?assertEqual({error, einval}, inet:getopts(Socket, [Option]))
     || Option <- [
            {raw, foo, 4, 4}, {raw, 6, foo, 4}, {raw, 6, 4, foo}, {raw, 6, 4, -1},
            {raw, 6, 4, 100000}, {raw, 6, 4}, raw
        ]
    ],
    ok.

getopts_of_unknown_options(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, inet:getopts(Socket, Options))
     || Options <- [
            [foo], [active, foo], [foo, active], ["active"], [1], [{active, once}], [{foo, bar}],
            [binary], [list], [<<"active">>], [{}]
        ]
    ],
    ok.

getopts_of_options_of_open_only(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, inet:getopts(Socket, [Name]))
     || Name <- [backlog, ip, port, ifaddr, fd, tcp_module, inet]
    ],
    ok.

setopts_of_unknown_options(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, inet:setopts(Socket, Options))
     || Options <- [
            [foo], [{foo, 1}], [{"nodelay", true}], [{nodelay}], [{nodelay, true, true}], [1],
            [inet], [{}]
        ]
    ],
    ok.

setopts_of_wrong_values(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, inet:setopts(Socket, [Option]))
     || Option <- [
            {mode, foo}, {mode, "binary"}, {packet, 3}, {packet, foo}, {packet, -1},
            {recbuf, foo}, {recbuf, 1.0}, {sndbuf, foo}, {sndbuf, "10"}, {buffer, foo},
            {buffer, 10.0}, {linger, true}, {linger, {1, 1}}, {linger, {true, foo}},
            {linger, {true, 1, 1}}, {linger, 5}, {send_timeout, -1}, {send_timeout, foo},
            {send_timeout, 1.5}, {high_watermark, foo}, {high_watermark, infinity},
            {low_watermark, foo}, {low_watermark, 1.0}, {active, foo}
        ]
    ],
    ok.

setopts_of_options_of_open_only(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        ?assertEqual({error, einval}, inet:setopts(Socket, [Option]))
     || Option <- [{backlog, 5}, {ip, {127, 0, 0, 1}}, {port, 5}, {tcp_module, inet_tcp}]
    ],
    ok.

setopts_is_all_or_nothing_when_refused(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, false}]),
    [
        begin
            ?assertEqual({error, einval}, inet:setopts(Socket, Options)),
            ?assertEqual(
                {ok, [{nodelay, false}, {buffer, default_buffer(Config)}]}, inet:getopts(Socket, [nodelay, buffer])
            )
        end
     || Options <- [
            [{nodelay, true}, {buffer, 10}, {foo, 1}],
            [foo, {nodelay, true}, {buffer, 10}],
            [{nodelay, true}, {keepalive, 1}, {buffer, 10}]
        ]
    ],
    ok.

what_is_not_a_list(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertError(_, inet:setopts(Socket, foo)),
    ?assertError(_, inet:setopts(Socket, [{active, once} | foo])),
    ?assertError(_, inet:getopts(Socket, foo)),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])).
