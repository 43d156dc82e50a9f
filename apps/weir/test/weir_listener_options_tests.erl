-module(weir_listener_options_tests).

-include_lib("eunit/include/eunit.hrl").

-export([start_link/3]).

start_link(_, _, _) -> ignore.

handler() -> fun(_, _) -> ok end.

new(Options) -> weir_listener_options:new(Options, handler(), args).

defaults_test() ->
    {ok, Options} = new(#{}),
    ?assertMatch(#{port := 0, ip := any, max_connections := infinity, handler := {function, _}, args := args}, Options).

addresses_with_prefixes_test() ->
    {ok, #{allow := Allow}} = new(#{allow => ["10.0.0.0/8", "::1", {127, 0, 0, 1}, {{1, 2, 3, 4}, 30}]}),
    ?assertEqual(
        [{{10, 0, 0, 0}, 8}, {{0, 0, 0, 0, 0, 0, 0, 1}, 128}, {{127, 0, 0, 1}, 32}, {{1, 2, 3, 4}, 30}], Allow
    ).

addresses_as_text_test() ->
    ?assertMatch({ok, #{ip := {127, 0, 0, 1}}}, new(#{ip => "127.0.0.1"})),
    ?assertMatch({ok, #{ip := {0, 0, 0, 0, 0, 0, 0, 1}}}, new(#{ip => "::1"})).

%% Protocols for ranch get gen_tcp's buffer size unless the options say otherwise.
buffers_test() ->
    Buffers = fun(Options, Handler) ->
        {ok, #{socket_opts := Opts}} = weir_listener_options:new(Options, Handler, args),
        proplists:get_all_values(buffer, Opts)
    end,
    ?assertEqual([], Buffers(#{}, handler())),
    ?assertEqual([1460], Buffers(#{}, ?MODULE)),
    ?assertEqual([1460, 5000], Buffers(#{socket_opts => [{buffer, 5000}]}, ?MODULE)).

%% Options that are not named stay; socket options are merged one by one.
changes_test() ->
    {ok, Old} = new(#{
        max_rate => 5, socket_opts => [binary, {raw, 6, 12, <<1:32>>}, {nodelay, false}, {keepalive, true}]
    }),
    Changes = #{socket_opts => [{raw, 6, 12, <<2:32>>}, list, {nodelay, true}], args => other},
    {ok, New = #{given := {Given, _, other}}} = weir_listener_options:change(Changes, Old),
    ?assertMatch(#{max_rate := 5, args := other}, New),
    ?assertMatch(
        #{max_rate := 5, socket_opts := [{keepalive, true}, {raw, 6, 12, <<2:32>>}, list, {nodelay, true}]}, Given
    ),
    ?assertMatch({error, {bad_option, port, 1, _}}, weir_listener_options:change(#{port => 1}, Old)),
    ?assertMatch({error, {bad_option, colour, red, _}}, weir_listener_options:change(#{colour => red}, Old)),
    ?assertMatch(
        {error, {bad_option, socket_opts, [binary | x], _}},
        weir_listener_options:change(#{socket_opts => [binary | x]}, Old)
    ),
    ?assertMatch({error, {bad_option, socket_opts, {}, _}}, weir_listener_options:change(#{socket_opts => [{}]}, Old)).

handlers_test() ->
    ?assertMatch({ok, #{handler := {protocol, ?MODULE}}}, weir_listener_options:new(#{}, ?MODULE, x)),
    ?assertMatch({error, {bad_option, handler, lists, _}}, weir_listener_options:new(#{}, lists, x)),
    ?assertMatch(
        {error, {bad_option, affinity, bound, _}}, weir_listener_options:new(#{affinity => bound}, ?MODULE, x)
    ).

wrong_options_are_named_test_() ->
    [
        ?_assertMatch({error, {bad_option, Name, Value, [_ | _]}}, new(#{Name => Value}))
     || {Name, Value} <- [
            {port, -1}, {port, 65536}, {ip, {1, 2, 3}}, {ip, "localhost"}, {fd, -1}, {fd, 16#80000000}, {tls, true},
            {handshake_timeout, -1}, {handshake_timeout, 16#100000000}, {shutdown, 16#100000000},
            {balance, #{interval => 16#100000000, threshold => 1}},
            {proxy_protocol, yes}, {max_connections, -1}, {overload, drop}, {max_rate, 0}, {per_address, 0}, {allow, x},
            {deny, x}, {placement, here}, {measure, yes}, {affinity, hard}, {shutdown, never}, {balance, on},
            {balance, #{interval => 0, threshold => 1}}, {reactor, []}, {no_such_option, 1}
        ]
    ].

wrong_elements_are_named_test() ->
    ?assertMatch({error, {bad_option, allow, {{1, 2, 3, 4}, 33}, _}}, new(#{allow => [{{1, 2, 3, 4}, 33}]})),
    ?assertMatch({error, {bad_option, deny, "10.0.0.0/x", _}}, new(#{deny => ["10.0.0.0/x"]})),
    ?assertMatch({error, {bad_option, socket_opts, {ip, _}, _}}, new(#{socket_opts => [{ip, any}]})),
    ?assertMatch(
        {error, {bad_option, socket_opts, {nodelay, 1}, _}}, new(#{socket_opts => [binary, {nodelay, 1}, inet6]})
    ),
    ?assertMatch({error, {bad_option, socket_opts, [binary | x], _}}, new(#{socket_opts => [binary | x]})),
    ?assertMatch(
        {error, {bad_option, socket_opts, {active, once}, _}},
        new(#{proxy_protocol => true, socket_opts => [{active, once}]})
    ),
    ?assertMatch({error, {bad_option, port, 80, _}}, new(#{fd => 3, port => 80})),
    ?assertMatch({error, {bad_option, options, [], _}}, new([])).

an_unknown_option_names_those_there_are_test() ->
    {error, {bad_option, colour, red, "unknown option; valid: " ++ Names}} = new(#{colour => red}),
    ?assert(
        lists:all(fun(Name) -> lists:member(Name, string:lexemes(Names, ", ")) end, ["port", "ip", "tls", "reactor"])
    ).

%% Any wrong value is an error, never an exception.
any_value_is_taken_or_refused_test_() -> {timeout, 300, fun any_value_is_taken_or_refused/0}.

any_value_is_taken_or_refused() ->
    {error, {bad_option, colour, red, "unknown option; valid: " ++ Names}} = new(#{colour => red}),
    Listener = [list_to_atom(Name) || Name <- string:lexemes(Names, ", ")],
    [
        is_taken_or_refused(weir_listener_options:new(#{Name => Value}, Handler, args), {Name, Value})
     || Name <- Listener, Value <- anything(), Handler <- [handler(), ?MODULE, weir_listener_reactor]
    ],
    {error, {bad_option, colour, red, "unknown option; valid: " ++ ForReactors}} =
        weir_reactor_options:new(#{module => weir_listener_reactor, colour => red}),
    [
        is_taken_or_refused(weir_reactor_options:new(#{module => weir_listener_reactor, Name => Value}), {Name, Value})
     || Name <- [list_to_atom(Text) || Text <- string:lexemes(ForReactors, ", ")], Value <- anything()
    ].

is_taken_or_refused({ok, _}, _What) -> ok;
is_taken_or_refused({error, {not_started, ssl}}, _What) -> ok;
is_taken_or_refused({error, {bad_option, _, _, [_ | _]}}, _What) -> ok;
is_taken_or_refused(Other, What) -> error({What, Other}).

anything() ->
    Address = #{family => inet, addr => any, port => 0},
    Values = [
        -1,
        0,
        1,
        1 bsl 32,
        1 bsl 80,
        1.5,
        foo,
        infinity,
        undefined,
        true,
        "",
        "text",
        "1.2.3.4/",
        "1.2.3.4/8/8",
        "1.2.3.4/x",
        <<>>,
        <<1:3>>,
        {},
        {a},
        {local, foo},
        {1, 2, 3, 4},
        {1, 2, 3, x},
        {{1, 2, 3, 4}, 8},
        {{1, 2, 3, 4}, x},
        {Address, 8},
        Address,
        #{},
        #{interval => 1},
        self(),
        make_ref(),
        fun() -> ok end,
        [[]],
        [300],
        [foo],
        [{}],
        [{a, b}]
    ],
    Values ++ [[Value] || Value <- Values] ++ [[Value | tail] || Value <- Values].

%% Options that a reactor does not support are refused, and options of reactors are refused for other handlers.
reactors_test_() ->
    New = fun(Options) -> weir_listener_options:new(Options, weir_listener_reactor, args) end,
    [
        ?_assertMatch({error, {bad_option, Name, _, [_ | _]}}, New(#{Name => Value}))
     || {Name, Value} <- [
            {tls, []}, {placement, least_loaded}, {balance, #{interval => 1, threshold => 1}}, {affinity, bound},
            {reactor, #{tick => 0}}, {reactor, #{colour => red}}, {reactor, #{name => a_name}},
            {reactor, #{listen => none}}, {socket_opts, [{active, once}]}
        ]
    ] ++
        [
            ?_assertMatch({ok, #{handler := {reactor, _}}}, New(#{
                proxy_protocol => true, socket_opts => [{packet, line}], reactor => #{tick => 5, affinity => bound}
            })),
            ?_assertMatch({error, {bad_option, reactor, _, _}}, new(#{reactor => #{tick => 5}}))
        ].
