%% inet:setopts/2 and inet:getopts/2 of connected sockets.
-module(weir_tcp_options_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/2, async/1, await/1]).
-import(weir_test_wait, [assert_no_message/0, recv_exactly/2]).
-import(weir_tcp_test, [default_buffer/1]).

-include("drop_in_suite.hrl").

-define(SOL_SOCKET, 1).
-define(SO_KEEPALIVE, 9).
-define(SO_LINGER, 13).
-define(IPPROTO_TCP, 6).
-define(TCP_NODELAY, 1).
-define(TCP_KEEPIDLE, 4).
-define(UNKNOWN_OPTION, 999).

suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

cases() ->
    [
        defaults,
        given_when_opened,
        set_and_get,
        booleans,
        kernel_buffers,
        buffer_follows_recbuf,
        buffer_that_was_set_does_not_follow_recbuf,
        watermarks_push_each_other,
        mode_by_name,
        packet_raw,
        raw_options,
        first_of_a_repeated_option_wins,
        getopts_keeps_the_order,
        getopts_of_nothing,
        setopts_of_nothing,
        set_by_another_process,
        nodelay_reaches_the_kernel,
        keepalive_reaches_the_kernel,
        linger_reaches_the_kernel
    ].

defaults(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    Defaults = [
        {active, true},
        {mode, list},
        {packet, 0},
        {nodelay, false},
        {keepalive, false},
        {linger, {false, 0}},
        {send_timeout, infinity},
        {send_timeout_close, false},
        {high_watermark, 8192},
        {low_watermark, 4096},
        {exit_on_close, true},
        {show_econnreset, false},
        {buffer, default_buffer(Config)}
    ],
    ?assertEqual({ok, Defaults}, inet:getopts(Socket, names(Defaults))).

names(Options) ->
    [Name || {Name, _Value} <- Options].

given_when_opened(Config) ->
    Options = [
        {active, 7},
        {mode, binary},
        {packet, 0},
        {nodelay, true},
        {reuseaddr, true},
        {keepalive, true},
        {linger, {true, 3}},
        {buffer, 7777},
        {send_timeout, 123},
        {send_timeout_close, true},
        {high_watermark, 55555},
        {low_watermark, 444},
        {exit_on_close, false},
        {show_econnreset, true}
    ],
    {Socket, _Peer} = socket_pair(Config, Options),
    ?assertEqual({ok, Options}, inet:getopts(Socket, names(Options))).

set_and_get(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun({Name, _} = Option) ->
            ?assertEqual(ok, inet:setopts(Socket, [Option])),
            ?assertEqual({ok, [Option]}, inet:getopts(Socket, [Name]))
        end,
        [
            {buffer, 5000},
            {buffer, 1},
            {buffer, 1000000},
            {linger, {true, 5}},
            {linger, {true, 0}},
            {linger, {false, 0}},
            {send_timeout, 0},
            {send_timeout, 100},
            {send_timeout, infinity},
            {high_watermark, 100000},
            {low_watermark, 50000},
            {low_watermark, 0},
            {high_watermark, 0},
            {active, once},
            {active, true},
            {active, 5},
            {active, false},
            {mode, list},
            {mode, binary},
            {packet, 0}
        ]
    ),
    assert_no_message().

booleans(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        begin
            ?assertEqual(ok, inet:setopts(Socket, [{Name, Value}])),
            ?assertEqual({ok, [{Name, Value}]}, inet:getopts(Socket, [Name])),
            [
                ?assertEqual({error, einval}, inet:setopts(Socket, [{Name, Wrong}]))
             || Wrong <- [0, 1, yes, undefined, <<"true">>, []]
            ],
            ?assertEqual({ok, [{Name, Value}]}, inet:getopts(Socket, [Name]))
        end
     || Name <- [
            nodelay, reuseaddr, keepalive, send_timeout_close, exit_on_close, show_econnreset
        ],
        Value <- [true, false, true]
    ],
    ok.

%% Linux doubles the requested size, and has a minimum.
kernel_buffers(Config) ->
    {Socket, Peer} = socket_pair(Config, [
        binary, {active, false}, {recbuf, 20000}, {sndbuf, 20000}
    ]),
    ?assertEqual({ok, [{recbuf, 40000}, {sndbuf, 40000}]}, inet:getopts(Socket, [recbuf, sndbuf])),
    ok = inet:setopts(Socket, [{recbuf, 10000}, {sndbuf, 30000}]),
    ?assertEqual({ok, [{sndbuf, 60000}, {recbuf, 20000}]}, inet:getopts(Socket, [sndbuf, recbuf])),
    ok = inet:setopts(Socket, [{recbuf, 0}, {sndbuf, 0}]),
    {ok, [{recbuf, Recbuf}, {sndbuf, Sndbuf}]} = inet:getopts(Socket, [recbuf, sndbuf]),
    ?assert(Recbuf > 0),
    ?assert(Sndbuf > 0),
    ok = gen_tcp:send(Peer, <<"through">>),
    ?assertEqual(<<"through">>, recv_exactly(Socket, 7)).

buffer_follows_recbuf(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = inet:setopts(Socket, [{recbuf, 90000}]),
    ?assertEqual({ok, [{buffer, 90000}]}, inet:getopts(Socket, [buffer])),
    ok = inet:setopts(Socket, [{recbuf, 5000}]),
    ?assertEqual({ok, [{buffer, 90000}]}, inet:getopts(Socket, [buffer])).

buffer_that_was_set_does_not_follow_recbuf(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = inet:setopts(Socket, [{buffer, 1000}]),
    ok = inet:setopts(Socket, [{recbuf, 9000}]),
    ?assertEqual({ok, [{buffer, 1000}]}, inet:getopts(Socket, [buffer])),
    [
        begin
            ok = inet:setopts(Socket, [{buffer, TooSmall}]),
            ?assertEqual({ok, [{buffer, 1}]}, inet:getopts(Socket, [buffer]))
        end
     || TooSmall <- [0, -7]
    ],
    ok.

watermarks_push_each_other(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    lists:foreach(
        fun({Option, High, Low}) ->
            ok = inet:setopts(Socket, [Option]),
            ?assertEqual(
                {ok, [{high_watermark, High}, {low_watermark, Low}]},
                inet:getopts(Socket, [high_watermark, low_watermark])
            )
        end,
        [
            {{low_watermark, 4000}, 8192, 4000},
            {{high_watermark, 100}, 100, 100},
            {{high_watermark, 8192}, 8192, 100},
            {{low_watermark, 10000}, 10000, 10000},
            {{high_watermark, 20000}, 20000, 10000},
            {{low_watermark, -1}, 20000, 0},
            {{high_watermark, -5}, 0, 0}
        ]
    ).

mode_by_name(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    [
        begin
            ok = inet:setopts(Socket, [Mode]),
            ?assertEqual({ok, [{mode, Mode}]}, inet:getopts(Socket, [mode]))
        end
     || Mode <- [list, binary, list]
    ],
    ok.

packet_raw(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}, {packet, raw}]),
    ?assertEqual({ok, [{packet, 0}]}, inet:getopts(Socket, [packet])),
    ok = inet:setopts(Socket, [{packet, raw}]),
    ?assertEqual({ok, [{packet, 0}]}, inet:getopts(Socket, [packet])).

raw_options(Config) ->
    Idle = <<1234:32/native>>,
    {Socket, _Peer} = socket_pair(Config, [
        binary, {active, false}, {raw, ?IPPROTO_TCP, ?TCP_KEEPIDLE, Idle}
    ]),
    Get = {raw, ?IPPROTO_TCP, ?TCP_KEEPIDLE, 4},
    ?assertEqual({ok, [{raw, 6, 4, Idle}]}, inet:getopts(Socket, [Get])),
    ok = inet:setopts(Socket, [{raw, ?IPPROTO_TCP, ?TCP_KEEPIDLE, <<77:32/native>>}]),
    ?assertEqual({ok, [{raw, 6, 4, <<77:32/native>>}]}, inet:getopts(Socket, [Get])),
    %% A binary may also give the size of the answer.
    ?assertEqual(
        {ok, [{raw, 6, 4, <<77:32/native>>}]}, inet:getopts(Socket, [{raw, 6, 4, <<0:32>>}])
    ),
    %% A larger size is cut to the answer; a smaller one cuts the answer.
    ?assertEqual(
        {ok, [{raw, 6, 4, <<77:32/native>>}]}, inet:getopts(Socket, [{raw, 6, 4, 16}])
    ),
    ?assertEqual(
        {ok, [{raw, 6, 4, binary:part(<<77:32/native>>, 0, 2)}]},
        inet:getopts(Socket, [{raw, 6, 4, 2}])
    ),
    %% Options that the kernel does not know are left out, or not set.
    ?assertEqual(
        {ok, [{active, false}, {mode, binary}]},
        inet:getopts(Socket, [active, {raw, ?IPPROTO_TCP, ?UNKNOWN_OPTION, 4}, mode])
    ),
    ?assertEqual(
        ok, inet:setopts(Socket, [{raw, ?IPPROTO_TCP, ?UNKNOWN_OPTION, <<1:32/native>>}])
    ),
    ?assertEqual(ok, inet:setopts(Socket, [{raw, ?IPPROTO_TCP, ?TCP_KEEPIDLE, <<>>}])),
    ?assertEqual({ok, [{raw, 6, 4, <<77:32/native>>}]}, inet:getopts(Socket, [Get])),
    %% The largest size that fits into the inet driver's buffer.
    {ok, [{raw, 6, 4, _}]} = inet:getopts(Socket, [{raw, 6, 4, 65522}]),
    ?assertEqual({error, einval}, inet:getopts(Socket, [{raw, 6, 4, 65523}])).

%% inet:setopts/2 applies its list from the end.
first_of_a_repeated_option_wins(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ok = inet:setopts(Socket, [{nodelay, true}, {nodelay, false}]),
    ?assertEqual({ok, [{nodelay, true}]}, inet:getopts(Socket, [nodelay])),
    ok = inet:setopts(Socket, [{nodelay, false}, {nodelay, true}]),
    ?assertEqual({ok, [{nodelay, false}]}, inet:getopts(Socket, [nodelay])),
    ok = inet:setopts(Socket, [list, binary]),
    ?assertEqual({ok, [{mode, list}]}, inet:getopts(Socket, [mode])),
    ok = inet:setopts(Socket, [{low_watermark, 20000}, {high_watermark, 50}]),
    ?assertEqual({ok, [{high_watermark, 20000}]}, inet:getopts(Socket, [high_watermark])).

getopts_keeps_the_order(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual(
        {ok, [
            {nodelay, false},
            {active, false},
            {mode, binary},
            {raw, 6, 1, <<0:32>>},
            {packet, 0},
            {mode, binary},
            {linger, {false, 0}}
        ]},
        inet:getopts(Socket, [nodelay, active, mode, {raw, 6, 1, 4}, packet, mode, linger])
    ).

getopts_of_nothing(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual({ok, []}, inet:getopts(Socket, [])).

setopts_of_nothing(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    ?assertEqual(ok, inet:setopts(Socket, [])).

set_by_another_process(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}]),
    Other = async(fun() ->
        {inet:setopts(Socket, [{nodelay, true}]), inet:getopts(Socket, [nodelay])}
    end),
    ?assertEqual({ok, {ok, [{nodelay, true}]}}, await(Other)),
    ?assertEqual({ok, [{nodelay, true}]}, inet:getopts(Socket, [nodelay])).

nodelay_reaches_the_kernel(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
    assert_kernel(Socket, ?IPPROTO_TCP, ?TCP_NODELAY, true),
    ok = inet:setopts(Socket, [{nodelay, false}]),
    assert_kernel(Socket, ?IPPROTO_TCP, ?TCP_NODELAY, false).

keepalive_reaches_the_kernel(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}, {keepalive, true}]),
    assert_kernel(Socket, ?SOL_SOCKET, ?SO_KEEPALIVE, true),
    ok = inet:setopts(Socket, [{keepalive, false}]),
    assert_kernel(Socket, ?SOL_SOCKET, ?SO_KEEPALIVE, false).

assert_kernel(Socket, Level, Name, Expected) ->
    {ok, [{raw, Level, Name, <<Value:32/native>>}]} =
        inet:getopts(Socket, [{raw, Level, Name, 4}]),
    ?assertEqual(Expected, Value =/= 0).

linger_reaches_the_kernel(Config) ->
    {Socket, _Peer} = socket_pair(Config, [binary, {active, false}, {linger, {true, 7}}]),
    ?assertEqual(
        {ok, [{raw, ?SOL_SOCKET, ?SO_LINGER, <<1:32/native, 7:32/native>>}]},
        inet:getopts(Socket, [{raw, ?SOL_SOCKET, ?SO_LINGER, 8}])
    ),
    ok = inet:setopts(Socket, [{linger, {false, 0}}]).
