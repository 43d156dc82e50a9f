-module(weir_options_tests).

-include_lib("eunit/include/eunit.hrl").

nothing_test() ->
    Nothing = #{
        family => undefined, ip => undefined, port => undefined, descriptor => new, backlog => 5, settings => []
    },
    ?assertEqual({ok, Nothing}, weir_options:listen([])),
    ?assertEqual({ok, Nothing}, weir_options:connect([])),
    ?assertEqual({ok, []}, weir_options:settings([])).

where_to_bind_test() ->
    ?assertMatch(
        {ok, #{ip := {127, 0, 0, 1}, port := 8080, backlog := 1024, settings := []}},
        weir_options:listen([inet, {ip, {127, 0, 0, 1}}, {port, 8080}, {backlog, 1024}])
    ),
    ?assertMatch({ok, #{ip := loopback, port := 0}}, weir_options:connect([{ip, loopback}, {port, 0}])),
    ?assertMatch({ok, #{ip := any}}, weir_options:listen([{ip, any}])).

addresses_test() ->
    Loopback = #{family => inet, addr => loopback, port => 0},
    [
        ?assertMatch({ok, #{ip := IP, descriptor := new}}, weir_options:listen(Options))
     || {Options, IP} <- [
            {[{ip, {0, 0, 0, 0, 0, 0, 0, 1}}], {0, 0, 0, 0, 0, 0, 0, 1}},
            {[{ifaddr, {127, 0, 0, 1}}], {127, 0, 0, 1}},
            {[{ifaddr, {local, "path"}}], {local, "path"}},
            {[{ip, any}, {ip, undefined}], undefined},
            {[{ifaddr, #{family => inet, addr => loopback}}], Loopback},
            %% Parts of an address that is given as a whole can be changed by later options, not by earlier ones.
            {[{ip, any}, {port, 7}, {ifaddr, Loopback}], Loopback},
            {[{ifaddr, Loopback}, {port, 7}, {ip, {127, 0, 0, 2}}], Loopback#{port := 7, addr := {127, 0, 0, 2}}},
            {
                [{ifaddr, #{family => inet6, port => 9}}],
                #{family => inet6, addr => any, port => 9, flowinfo => 0, scope_id => 0}
            }
        ]
    ],
    ?assertMatch({ok, #{family := inet6}}, weir_options:connect([inet, inet6])).

descriptor_test() ->
    [
        ?assertMatch({ok, #{descriptor := Descriptor}}, weir_options:connect(Options))
     || {Options, Descriptor} <- [
            {[{fd, 7}], {fd, 7}},
            {[{fd, -1}], new},
            {[{fd, foo}], new},
            {[{netns, "/run"}], {netns, <<"/run">>}},
            {[{netns, <<"/run">>}], {netns, <<"/run">>}},
            {[{netns, "/run"}, {fd, 7}], {fd, 7}},
            {[{fd, 7}, {netns, "/run"}], {netns, <<"/run">>}}
        ]
    ].

%% OTP's driver sets them in reverse.
settings_are_reversed_test() ->
    {ok, #{settings := Settings}} = weir_options:listen([binary, {nodelay, true}, {active, 5}]),
    ?assertEqual([{active, 5}, {nodelay, true}, {mode, binary}], Settings).

last_of_equal_names_counts_test() ->
    {ok, #{settings := Settings}} = weir_options:connect([{active, 5}, list, {active, 6}, binary]),
    ?assertEqual([{mode, binary}, {active, 6}], Settings).

%% Thus of equal names the first one is set last.
set_in_reverse_test() ->
    ?assertEqual(
        {ok, [{active, 6}, {mode, binary}, {active, 5}]},
        weir_options:settings([{active, 5}, binary, {active, 6}])
    ).

raw_options_are_not_merged_test() ->
    Raw = [{raw, 6, 1, <<1:32/native>>}, {raw, 6, 1, <<0:32/native>>}],
    {ok, #{settings := Settings}} = weir_options:listen(Raw ++ [{raw, {6, 4, <<9:32/native>>}}]),
    ?assertEqual([{raw, 6, 4, <<9:32/native>>} | lists:reverse(Raw)], Settings).

limits_test_() ->
    Good = [
        {active, true}, {active, false}, {active, once}, {active, -32768}, {active, 32767},
        {mode, list}, {mode, binary}, {packet, 0}, {packet, raw},
        {linger, {true, 0}}, {linger, {false, 16#7fffffff}},
        {send_timeout, infinity}, {send_timeout, 0}, {send_timeout, 16#ffffffff},
        {recbuf, 0}, {sndbuf, 16#7fffffff}, {buffer, -1}, {high_watermark, -16#80000000}, {low_watermark, 1},
        {nodelay, true}, {reuseaddr, false}, {keepalive, true}, {send_timeout_close, false},
        {exit_on_close, true}, {show_econnreset, false},
        {delay_send, true}, {high_msgq_watermark, 1}, {low_msgq_watermark, -16#80000000},
        {priority, 6}, {tos, 255}, {tclass, -1}, {ttl, 64}, {recvtos, true}, {recvtclass, false}, {recvttl, true},
        {reuseport, true}, {reuseport_lb, true}, {exclusiveaddruse, true}, {read_ahead, false}, {debug, false},
        {keepcnt, 3}, {keepidle, 60}, {keepintvl, 10}, {user_timeout, 1000}, {bind_to_device, <<"lo">>}
    ],
    Bad = [
        {active, 32768}, {active, -32769}, {active, twice}, {active, 1.0}, {mode, tuple}, {packet, 3},
        {linger, true}, {linger, {true, 16#80000000}}, {linger, {1, 0}},
        {send_timeout, -1}, {send_timeout, 16#100000000}, {recbuf, 16#80000000}, {sndbuf, many},
        {nodelay, 1}, {keepalive, yes}, {delay_send, 1}, {high_msgq_watermark, 1.0}, {low_msgq_watermark, many},
        {no_such_option, true}, no_such_option, {nodelay}, {"nodelay", true}, 17,
        {priority, high}, {tos, true}, {recvttl, 1}, {reuseport, 1}, {keepidle, infinity}, {bind_to_device, "lo"},
        {bind_to_device, lo}, {netns, foo}, {netns, [foo]}, {pktoptions, []},
        {raw, 6, 1, 1}, {raw, 6, 16#80000000, <<>>}, {raw, six, 1, <<>>}, {raw, {6, 1}}
    ],
    [{lists:flatten(io_lib:format("~0p", [Option])), fun() -> good(Option) end} || Option <- Good] ++
        [{lists:flatten(io_lib:format("~0p", [Option])), fun() -> bad(Option) end} || Option <- Bad].

good(Option) ->
    ?assertEqual({ok, [Option]}, weir_options:settings([Option])),
    ?assertMatch({ok, #{settings := [Option]}}, weir_options:listen([Option])),
    ?assertMatch({ok, #{settings := [Option]}}, weir_options:connect([Option])).

bad(Option) ->
    ?assertEqual({error, einval}, weir_options:settings([binary, Option])),
    ?assertEqual({error, badarg}, weir_options:listen([binary, Option])),
    ?assertEqual({error, badarg}, weir_options:connect([binary, Option])).

%% Options that can only be given when the socket is opened.
only_at_the_beginning_test() ->
    [
        ?assertEqual({error, einval}, weir_options:settings([Option]))
     || Option <- [inet, inet6, local, {ip, loopback}, {ifaddr, any}, {port, 80}, {backlog, 5}, {fd, 7}]
    ],
    [?assertEqual({error, badarg}, weir_options:connect([Option])) || Option <- [{backlog, 5}, {ipv6_v6only, true}]],
    ?assertMatch({ok, #{settings := [{ipv6_v6only, true}]}}, weir_options:listen([{ipv6_v6only, true}])).

%% Options that can only be set later.
only_later_test() ->
    [
        begin
            ?assertEqual({ok, [Option]}, weir_options:settings([Option])),
            ?assertEqual({error, badarg}, weir_options:listen([Option])),
            ?assertEqual({error, badarg}, weir_options:connect([Option]))
        end
     || Option <- [{dontroute, true}, {nopush, true}]
    ].

shown_test() ->
    ?assertEqual(
        [{active, true}, {netns, "/run"}, {netns, <<"/", 255>>}],
        weir_options:shown([{active, true}, {netns, <<"/run">>}, {netns, <<"/", 255>>}])
    ).

bad_places_test() ->
    [
        ?assertEqual({error, badarg}, weir_options:listen([Option]))
     || Option <- [
            {ip, {1, 2, 3}}, {ip, {1, 2, 3, 256}}, {ip, "127.0.0.1"}, {port, -1}, {port, 65536}, {backlog, big},
            {ip, {0, 0, 0, 0, 0, 0, 0, 65536}}, {ip, {0, 0, 0, 0, 0, 0, 1}}, {ifaddr, foo}, {ifaddr, #{}},
            {ifaddr, #{family => inet, addr => foo}}, {ifaddr, #{family => inet, port => -1}},
            {ifaddr, #{family => inet6, scope_id => -1}}, {ifaddr, #{family => local, path => "path"}}
        ]
    ].

no_list_test() ->
    ?assertEqual({error, badarg}, weir_options:listen(binary)),
    ?assertEqual({error, badarg}, weir_options:connect({active, true})).

%% An operator's defaults come first, so the program's options take precedence; the active mode comes only from the
%% program.
operators_defaults_test_() ->
    {setup, fun() -> application:set_env(kernel, inet_default_connect_options, [{nodelay, true}, {active, false}]) end,
        fun(_) -> application:unset_env(kernel, inet_default_connect_options) end, [
            fun() ->
                ?assertMatch({ok, #{settings := [{mode, binary}, {nodelay, true}]}}, weir_options:connect([binary]))
            end,
            fun() ->
                ?assertMatch({ok, #{settings := [{nodelay, false}]}}, weir_options:connect([{nodelay, false}]))
            end,
            fun() -> ?assertMatch({ok, #{settings := []}}, weir_options:listen([])) end
        ]}.

one_default_test_() ->
    {setup, fun() -> application:set_env(kernel, inet_default_listen_options, {keepalive, true}) end,
        fun(_) -> application:unset_env(kernel, inet_default_listen_options) end,
        fun() -> ?assertMatch({ok, #{settings := [{keepalive, true}]}}, weir_options:listen([])) end}.
