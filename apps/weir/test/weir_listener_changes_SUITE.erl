%% Options of running listeners are changed: no connection is dropped, and new ones have the new options.
-module(weir_listener_changes_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [connect_raw/1]).
-import(weir_test_wait, [patience/0, wait_until/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        the_handler_changes,
        a_connection_after_a_change_begins_with_it,
        a_fun_becomes_a_protocol,
        tls_comes_and_goes,
        certificates_change,
        socket_options_change,
        socket_options_of_reactors_change,
        limits_change,
        nothing_changes_if_something_is_wrong,
        what_is_fixed_does_not_change,
        changes_survive_a_crash,
        a_suspended_listener_changes,
        nothing_is_dropped_under_load
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    weir_test_peer:init_group(weir, Config).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_testcase(_Case, Config) ->
    ok = weir_test_peer:silence_pollers(),
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    _ = weir_test_peer:unsilence_pollers(),
    weir_test_peer:end_case(Config).

%% Sends its argument, then echoes.
say(Socket = {'$inet', _, _}, What) ->
    ok = gen_tcp:send(Socket, What),
    weir_listener_test:echo(Socket, args);
say(Socket, What) ->
    ok = ssl:send(Socket, What),
    weir_listener_test:echo(Socket, args).

start(What) -> start(#{}, What).

start(Options, What) ->
    {ok, _} = weir:start_listener(
        ?MODULE, Options#{ip => ?LOOPBACK, handshake_timeout => infinity}, fun ?MODULE:say/2, What
    ),
    weir:get_port(?MODULE).

change(Changes) -> ok = weir:set_options(?MODULE, Changes).

hears(Socket, What) ->
    ?assertEqual({ok, What}, gen_tcp:recv(Socket, byte_size(What), patience())),
    Socket.

still_echoes(Socket) ->
    ok = gen_tcp:send(Socket, <<"hello">>),
    hears(Socket, <<"hello">>).

certificate() ->
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    [Option || Option = {Name, _} <- Server, Name =:= cert orelse Name =:= key].

connect_tls(Port) ->
    {ok, Socket} = ssl:connect(?LOOPBACK, Port, [binary, {active, false}, {verify, verify_none}], patience()),
    Socket.

the_handler_changes(_Config) ->
    Port = start(<<"one">>),
    One = hears(connect_raw(Port), <<"one">>),
    change(#{args => <<"two">>}),
    Two = hears(connect_raw(Port), <<"two">>),
    change(#{handler => fun(Socket, Args) -> gen_tcp:send(Socket, string:uppercase(Args)) end}),
    Three = hears(connect_raw(Port), <<"TWO">>),
    ?assertEqual({error, closed}, gen_tcp:recv(Three, 0, patience())),
    [still_echoes(Socket) || Socket <- [One, Two]].

%% Other clients connect all the time, so processes that were started before the change are about to take a
%% connection.
a_connection_after_a_change_begins_with_it(_Config) ->
    [
        begin
            Port = start(Options, <<"0000">>),
            Stop = atomics:new(1, []),
            Others = [weir_test_peer:async(fun() -> come_and_go(Port, Options, Stop) end) || _ <- [1, 2]],
            Wrong = [
                {Expected, Heard}
             || N <- lists:seq(1, Rounds),
                Expected <- [iolist_to_binary(io_lib:format("~4..0b", [N]))],
                Heard <- [begin change(#{args => Expected}), says(Port, Options) end],
                Heard =/= {ok, Expected}
            ],
            ok = atomics:put(Stop, 1, 1),
            [ok = weir_test_peer:await(Other) || Other <- Others],
            ok = weir:stop_listener(?MODULE),
            ?assertEqual([], Wrong)
        end
     || {Options, Rounds} <- [{#{}, 100}, {#{placement => least_loaded}, 50}, {#{tls => certificate()}, 10}]
    ].

says(Port, #{tls := _}) ->
    Socket = connect_tls(Port),
    Heard = ssl:recv(Socket, 4, patience()),
    ok = ssl:close(Socket),
    Heard;
says(Port, #{}) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()),
    Heard = gen_tcp:recv(Socket, 4, patience()),
    ok = gen_tcp:close(Socket),
    Heard.

come_and_go(Port, Options, Stop) ->
    case atomics:get(Stop, 1) of
        0 ->
            {ok, <<_:4/binary>>} = says(Port, Options),
            come_and_go(Port, Options, Stop);
        1 ->
            ok
    end.

a_fun_becomes_a_protocol(_Config) ->
    Port = start(<<"fun">>),
    Fun = hears(connect_raw(Port), <<"fun">>),
    change(#{handler => weir_listener_protocol, args => args}),
    ?assertMatch(#{handler := {protocol, weir_listener_protocol}}, weir:info(?MODULE)),
    Protocol = still_echoes(connect_raw(Port)),
    change(#{handler => fun ?MODULE:say/2, args => <<"fun">>}),
    hears(connect_raw(Port), <<"fun">>),
    [still_echoes(Socket) || Socket <- [Fun, Protocol]].

tls_comes_and_goes(_Config) ->
    Port = start(<<"hi">>),
    Plain = hears(connect_raw(Port), <<"hi">>),
    change(#{tls => certificate()}),
    Tls = connect_tls(Port),
    ?assertEqual({ok, <<"hi">>}, ssl:recv(Tls, 2, patience())),
    change(#{tls => undefined}),
    still_echoes(hears(connect_raw(Port), <<"hi">>)),
    still_echoes(Plain),
    ok = ssl:send(Tls, <<"hello">>),
    ?assertEqual({ok, <<"hello">>}, ssl:recv(Tls, 5, patience())),
    ok = ssl:close(Tls).

certificates_change(_Config) ->
    [First, Second] = [certificate() || _ <- [1, 2]],
    Port = start(#{tls => First}, <<"hi">>),
    Before = connect_tls(Port),
    change(#{tls => Second}),
    After = connect_tls(Port),
    [
        begin
            ?assertEqual({ok, proplists:get_value(cert, Certificate)}, ssl:peercert(Socket)),
            ok = ssl:send(Socket, <<"hello">>),
            ?assertEqual({ok, <<"hihello">>}, ssl:recv(Socket, 7, patience())),
            ok = ssl:close(Socket)
        end
     || {Socket, Certificate} <- [{Before, First}, {After, Second}]
    ].

%% Options of gen_tcp and of the kernel; options that are not named stay.
socket_options_change(_Config) ->
    Names = [nodelay, keepalive, packet, send_timeout, exit_on_close],
    Self = self(),
    Handler = fun(Socket, _) ->
        Self ! {has, inet:getopts(Socket, Names)},
        receive never -> ok end
    end,
    Options = #{ip => ?LOOPBACK, socket_opts => [{keepalive, true}, {send_timeout, 1000}, {exit_on_close, false}]},
    {ok, _} = weir:start_listener(?MODULE, Options, Handler, args),
    Has = fun() ->
        _ = connect_raw(weir:get_port(?MODULE)),
        receive {has, {ok, Values}} -> [proplists:get_value(Name, Values) || Name <- Names] end
    end,
    ?assertEqual([true, true, 0, 1000, false], Has()),
    change(#{socket_opts => [{nodelay, false}, {packet, 4}, {send_timeout, 2000}, {backlog, 7}]}),
    ?assertEqual([[false, true, 4, 2000, false]], lists:usort([Has() || _ <- lists:seq(1, 10)])),
    change(#{socket_opts => [{keepalive, false}]}),
    ?assertEqual([[false, false, 4, 2000, false]], lists:usort([Has() || _ <- lists:seq(1, 10)])),
    %% The next listening sockets have them as well.
    ok = weir:suspend_listener(?MODULE),
    ok = weir:resume_listener(?MODULE),
    ?assertEqual([false, false, 4, 2000, false], Has()).

socket_options_of_reactors_change(_Config) ->
    {ok, _} = weir:start_listener(?MODULE, #{ip => ?LOOPBACK}, weir_listener_reactor, args),
    Port = weir:get_port(?MODULE),
    Before = still_echoes(connect_raw(Port)),
    change(#{socket_opts => [{packet, line}, {nodelay, false}]}),
    [
        begin
            Socket = connect_raw(Port),
            ok = gen_tcp:send(Socket, <<"one\ntwo">>),
            hears(Socket, <<"one\n">>),
            ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 50)),
            ok = gen_tcp:send(Socket, <<"\n">>),
            hears(Socket, <<"two\n">>)
        end
     || _ <- lists:seq(1, 5)
    ],
    still_echoes(Before),
    ?assertMatch({error, {bad_option, handler, _, _}}, weir:set_options(?MODULE, #{handler => fun ?MODULE:say/2})),
    ?assertMatch({error, {bad_option, args, _, _}}, weir:set_options(?MODULE, #{args => other})).

limits_change(_Config) ->
    Port = start(#{max_connections => 1}, <<"hi">>),
    First = hears(connect_raw(Port), <<"hi">>),
    Waiting = connect_raw(Port),
    ?assertEqual({error, timeout}, gen_tcp:recv(Waiting, 0, 50)),
    change(#{max_connections => 3, per_address => 3}),
    hears(Waiting, <<"hi">>),
    %% The first connection came before addresses were counted.
    hears(connect_raw(Port), <<"hi">>),
    change(#{max_connections => infinity, deny => ["127.0.0.1"]}),
    Refused = fun() ->
        case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()) of
            {ok, Socket} -> {error, _} = gen_tcp:recv(Socket, 0, patience()), gen_tcp:close(Socket);
            {error, econnreset} -> ok
        end
    end,
    ok = Refused(),
    wait_until(fun() -> maps:get(denied, weir:info(?MODULE)) =:= 1 end),
    change(#{deny => [], per_address => infinity}),
    hears(connect_raw(Port), <<"hi">>),
    still_echoes(First).

nothing_changes_if_something_is_wrong(_Config) ->
    Port = start(<<"hi">>),
    [
        ?assertMatch({error, {bad_option, _, _, [_ | _]}}, weir:set_options(?MODULE, Wrong#{args => <<"ho">>}))
     || Wrong <- [
            #{no_such_option => 1}, #{tls => []}, #{socket_opts => [{nodelay, 1}]}, #{handler => lists},
            #{max_connections => -1}, #{socket_opts => [{ipv6_v6only, true}]}, #{socket_opts => [inet6]}
        ]
    ],
    ?assertMatch({error, {bad_option, options, [], _}}, weir:set_options(?MODULE, [])),
    hears(connect_raw(Port), <<"hi">>).

what_is_fixed_does_not_change(_Config) ->
    Port = start(#{port => 0}, <<"hi">>),
    [
        ?assertMatch({error, {bad_option, Name, Value, [_ | _]}}, weir:set_options(?MODULE, #{Name => Value}))
     || {Name, Value} <- [{port, Port + 1}, {ip, any}]
    ],
    %% Setting the present value is no change.
    change(#{port => 0, ip => "127.0.0.1"}),
    hears(connect_raw(Port), <<"hi">>).

changes_survive_a_crash(_Config) ->
    Port = start(<<"one">>),
    change(#{args => <<"two">>, max_connections => 5, socket_opts => [{packet, line}]}),
    Old = weir_listener_names:whereis_name(?MODULE),
    exit(Old, kill),
    wait_until(fun() -> not lists:member(weir_listener_names:whereis_name(?MODULE), [undefined, Old]) end),
    ?assertMatch(#{max_connections := 5, port := Port}, weir:info(?MODULE)),
    hears(connect_raw(Port), <<"two">>).

a_suspended_listener_changes(_Config) ->
    Port = start(<<"one">>),
    ok = weir:suspend_listener(?MODULE),
    change(#{args => <<"two">>, socket_opts => [{nodelay, false}]}),
    ok = weir:resume_listener(?MODULE),
    hears(connect_raw(Port), <<"two">>).

%% Connections come and go and exchange data all the time; each is served with the options of its time.
nothing_is_dropped_under_load(_Config) ->
    Port = start(<<"0">>),
    Stop = atomics:new(1, []),
    Served = counters:new(1, []),
    Client = fun Loop() ->
        case atomics:get(Stop, 1) of
            1 ->
                ok;
            0 ->
                {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], patience()),
                {ok, <<Digit>>} = gen_tcp:recv(Socket, 1, patience()),
                true = Digit >= $0 andalso Digit =< $9,
                ok = gen_tcp:send(Socket, <<"hello">>),
                {ok, <<"hello">>} = gen_tcp:recv(Socket, 5, patience()),
                ok = gen_tcp:close(Socket),
                ok = counters:add(Served, 1, 1),
                Loop()
        end
    end,
    Clients = [weir_test_peer:async(Client) || _ <- lists:seq(1, 6)],
    [
        begin
            change(#{
                args => integer_to_binary(N rem 10),
                socket_opts => [{nodelay, N rem 2 =:= 0}, {backlog, 512 + N}],
                max_connections => 1000 + N
            }),
            Before = counters:get(Served, 1),
            wait_until(fun() -> counters:get(Served, 1) > Before end)
        end
     || N <- lists:seq(1, 100)
    ],
    ok = atomics:put(Stop, 1, 1),
    [ok = weir_test_peer:await(One) || One <- Clients],
    ?assertMatch(#{overload := 0, denied := 0}, weir:info(?MODULE)).
