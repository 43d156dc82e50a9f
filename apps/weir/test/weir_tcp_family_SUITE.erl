%% The same behaviour on IPv6 and on local sockets as on IPv4.
-module(weir_tcp_family_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [keep/1, async/1, await/1]).
-import(weir_test_wait, [
    patience/0, next_message/0, assert_no_message/0, collect_active/2, recv_exactly/2, recv_all/1
]).
-import(weir_tcp_family_test, [
    family/1, where/1, port/2, listen/2, listen/3, connect/4, connect_to/3, pair/3, passive_pair/1
]).

-include("family_suite.hrl").


suite() ->
    [{timetrap, {minutes, 5}}].

groups() ->
    weir_tcp_family_test:groups([{inet6, common()}, {local, common()}]).

common() ->
    [
        passive, active, active_once, active_n, large, names, half_close, reset, accept_waits, accept_times_out,
        refused, in_use, owner_dies, monitored, statistics, options, kernel_options, closed_by_us
    ].

passive(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:send(Connected, <<"request">>),
    ?assertEqual({ok, <<"request">>}, gen_tcp:recv(Accepted, 0, patience())),
    ok = gen_tcp:send(Accepted, [<<"re">>, "sponse"]),
    ?assertEqual({ok, <<"res">>}, gen_tcp:recv(Connected, 3, patience())),
    ?assertEqual({ok, <<"ponse">>}, gen_tcp:recv(Connected, 5, patience())),
    ?assertEqual({error, timeout}, gen_tcp:recv(Connected, 1, 20)).

active(Config) ->
    {Connected, Accepted} = pair(Config, [{active, true}], [binary, {active, true}]),
    ok = gen_tcp:send(Connected, <<"one">>),
    ?assertEqual({tcp, Accepted, <<"one">>}, next_message()),
    ok = gen_tcp:send(Accepted, <<"two">>),
    ?assertEqual({tcp, Connected, "two"}, next_message()),
    ok = gen_tcp:close(Accepted),
    ?assertEqual({tcp_closed, Connected}, next_message()),
    assert_no_message().

active_once(Config) ->
    {Connected, Accepted} = pair(Config, [binary, {active, once}], [binary, {active, false}]),
    ok = gen_tcp:send(Accepted, <<"one">>),
    ?assertEqual({tcp, Connected, <<"one">>}, next_message()),
    ok = gen_tcp:send(Accepted, <<"two">>),
    assert_no_message(),
    ok = inet:setopts(Connected, [{active, once}]),
    ?assertEqual({tcp, Connected, <<"two">>}, next_message()),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Connected, [active])).

active_n(Config) ->
    {Connected, Accepted} = pair(Config, [binary, {active, 2}], [binary, {active, false}]),
    [
        begin
            ok = gen_tcp:send(Accepted, Data),
            ?assertEqual({tcp, Connected, Data}, next_message())
        end
     || Data <- [<<"one">>, <<"two">>]
    ],
    ?assertEqual({tcp_passive, Connected}, next_message()),
    assert_no_message().

large(Config) ->
    {Connected, Accepted} = pair(Config, [binary, {active, true}], [binary, {active, false}]),
    Data = binary:copy(<<"0123456789">>, 300_000),
    Sender = async(fun() -> gen_tcp:send(Accepted, Data) end),
    ?assert(Data =:= collect_active(Connected, byte_size(Data))),
    ?assertEqual(ok, await(Sender)).

names(Config) ->
    {ok, Listener} = listen(Config, []),
    {ok, Connected} = connect_to(Config, Listener, []),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    {ok, Name} = inet:sockname(Listener),
    ?assertEqual({ok, Name}, inet:peername(Connected)),
    ?assertEqual({ok, Name}, inet:sockname(Accepted)),
    ?assertEqual({ok, [Name]}, inet:socknames(Accepted)),
    ?assertEqual(inet:sockname(Connected), inet:peername(Accepted)),
    ?assertEqual({error, enotconn}, inet:peername(Listener)),
    case family(Config) of
        inet6 ->
            ?assertMatch({{0, 0, 0, 0, 0, 0, 0, 1}, _}, Name),
            ?assertEqual({ok, element(2, Name)}, inet:port(Listener));
        local ->
            ?assertEqual(where(Config), Name),
            ?assertEqual({ok, {local, <<>>}}, inet:sockname(Connected)),
            ?assertEqual({ok, element(2, Name)}, inet:port(Listener))
    end,
    ok = gen_tcp:close(Connected),
    ?assertEqual({error, einval}, inet:sockname(Connected)),
    ?assertEqual({error, einval}, inet:peername(Connected)).

half_close(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:send(Connected, <<"the last">>),
    ok = gen_tcp:shutdown(Connected, write),
    ?assertEqual({<<"the last">>, closed}, recv_all(Accepted)).

%% A local socket that is closed with unread data also resets the connection.
reset(Config) ->
    {Connected, Accepted} = pair(
        Config, [binary, {active, false}, {show_econnreset, true}], [binary, {active, false}]
    ),
    ok = gen_tcp:send(Connected, <<"not read">>),
    ?assertEqual({ok, <<"n">>}, gen_tcp:recv(Accepted, 1, patience())),
    ok = inet:setopts(Accepted, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Accepted),
    {error, Reason} = gen_tcp:recv(Connected, 0, patience()),
    ?assert(lists:member(Reason, [closed, econnreset])).

accept_waits(Config) ->
    {ok, Listener} = listen(Config, []),
    Acceptor = async(fun() -> gen_tcp:accept(Listener, patience()) end),
    {ok, Connected} = connect_to(Config, Listener, []),
    {ok, Accepted} = await(Acceptor),
    ?assertEqual(inet:sockname(Connected), inet:peername(Accepted)).

accept_times_out(Config) ->
    {ok, Listener} = listen(Config, []),
    ?assertEqual({error, timeout}, gen_tcp:accept(Listener, 0)),
    ?assertEqual({error, timeout}, gen_tcp:accept(Listener, 20)).

refused(Config) ->
    %% No other connection takes the port after the listener is closed.
    Wanted =
        case family(Config) of
            inet6 -> weir_test_peer:free_port();
            local -> 0
        end,
    {ok, Listener} = listen(Config, Wanted, [{ifaddr, where(Config)}]),
    Port = port(Config, Listener),
    ok = gen_tcp:close(Listener),
    %% The path stays.
    ?assertEqual({error, econnrefused}, connect(Config, where(Config), Port, [])).

in_use(Config) ->
    {ok, Listener} = listen(Config, []),
    Port = port(Config, Listener),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, [{ifaddr, where(Config)}])).

owner_dies(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    Owner = async(fun() ->
        receive
            never -> ok
        end
    end),
    ok = gen_tcp:controlling_process(Accepted, weir_test_peer:pid(Owner)),
    ok = weir_test_peer:kill(Owner),
    ?assertEqual({error, closed}, gen_tcp:recv(Connected, 0, patience())).

monitored(Config) ->
    {Connected, _Accepted} = passive_pair(Config),
    Reference = inet:monitor(Connected),
    ok = gen_tcp:close(Connected),
    ?assertMatch({'DOWN', Reference, _, Connected, _}, next_message()).

statistics(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:send(Connected, <<"12345">>),
    <<"12345">> = recv_exactly(Accepted, 5),
    ?assertEqual({ok, [{send_oct, 5}, {send_cnt, 1}]}, inet:getstat(Connected, [send_oct, send_cnt])),
    ?assertEqual({ok, [{recv_oct, 5}, {recv_max, 5}]}, inet:getstat(Accepted, [recv_oct, recv_max])).

options(Config) ->
    Options = [{mode, binary}, {active, 3}, {send_timeout, 77}, {exit_on_close, false}, {high_watermark, 100000}],
    {Connected, Accepted} = pair(Config, Options, Options),
    Names = [Name || {Name, _} <- Options],
    ?assertEqual({ok, Options}, inet:getopts(Connected, Names)),
    ?assertEqual({ok, Options}, inet:getopts(Accepted, Names)).

kernel_options(Config) ->
    {Connected, Accepted} = pair(Config, [{priority, 2}], [{priority, 4}]),
    ?assertEqual({ok, [{priority, 2}]}, inet:getopts(Connected, [priority])),
    ?assertEqual({ok, [{priority, 4}]}, inet:getopts(Accepted, [priority])),
    ok = inet:setopts(Accepted, [{priority, 1}]),
    ?assertEqual({ok, [{priority, 1}]}, inet:getopts(Accepted, [priority])).

closed_by_us(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:close(Connected),
    ?assertEqual({error, closed}, gen_tcp:send(Connected, <<"late">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Connected, 0)),
    ?assertEqual({error, closed}, gen_tcp:recv(Accepted, 0, patience())).
