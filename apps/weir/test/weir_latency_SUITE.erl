%% Reply times measured by the listener, compared with the server's delay and the client's measurement. A request is
%% read after it is sent, and its reply is written before it is received. So each time is at least the server's delay
%% and at most the client's, however busy the machine is.
-module(weir_latency_SUITE).

-compile([export_all, nowarn_export_all]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).

%% Milliseconds.
-define(DELAYS, [1, 5, 20]).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        nothing_is_measured_unasked,
        known_delays_of_processes,
        known_delays_of_reactors,
        known_delays_of_relays,
        relays_measure_together,
        known_delays_under_tls,
        replies_from_files,
        the_last_bytes_of_a_request_count,
        on_and_off_under_load,
        what_was_measured_stays
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    weir_test_peer:init_group(weir, Config).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_testcase(_Case, Config) ->
    _ = put(clients, []),
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    lists:foreach(fun gen_tcp:close/1, get(clients)),
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    weir_test_peer:end_case(Config).

start(Options, Handler, Args) ->
    {ok, _} = weir:start_listener(?MODULE, Options#{ip => ?LOOPBACK}, Handler, Args),
    weir:get_port(?MODULE).

connect(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}]),
    _ = put(clients, [Socket | get(clients)]),
    Socket.

%% Waits for the milliseconds in the request, and echoes it.
serve(Socket, Args) ->
    Transport = transport(Socket),
    case Transport:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, <<Delay:16>> = Request} ->
            timer:sleep(Delay),
            ok = Transport:send(Socket, Request),
            serve(Socket, Args);
        {error, closed} ->
            ok
    end.

transport({'$inet', _, _}) -> gen_tcp;
transport(_) -> ssl.

ask(Socket, Delay) -> ask(gen_tcp, Socket, Delay).

ask(Transport, Socket, Delay) ->
    ok = Transport:send(Socket, <<Delay:16>>),
    {ok, <<Delay:16>>} = Transport:recv(Socket, 2, weir_test_wait:patience()),
    ok.

%% Returns the client's time until a reply is counted, an upper bound of the measured time.
measured(Transport, Socket, Delay) ->
    #{replies := Before} = weir:latency(?MODULE),
    Begin = erlang:monotonic_time(nanosecond),
    ok = ask(Transport, Socket, Delay),
    _ = latency_of(Before + 1),
    erlang:monotonic_time(nanosecond) - Begin.

%% A reply is counted after it was written, so its client may have read it before.
latency_of(Replies) ->
    weir_test_wait:wait_until(fun() -> maps:get(replies, weir:latency(?MODULE)) >= Replies end),
    weir:latency(?MODULE).

%% The listener has measured this many replies, each between the delay and the client's time, and so is their sum.
is_between(Delays, Seen) ->
    #{measured := true, replies := Replies, reply_ns := Sum, times := Times} = latency_of(length(Seen)),
    ?assertEqual(length(Seen), Replies),
    Measured = lists:append([lists:duplicate(Count, Time) || {Time, Count} <- Times]),
    ?assertEqual(Measured, lists:sort(Measured)),
    lists:foreach(
        fun({Delay, Time, Client}) ->
            ?assert(Time + error_of(Time) >= Delay * 1_000_000, {Delay, Time}),
            ?assert(Time - error_of(Time) =< Client, {Client, Time})
        end,
        lists:zip3(lists:sort(Delays), Measured, lists:sort(Seen))
    ),
    ?assert(Sum >= lists:sum(Delays) * 1_000_000),
    ?assert(Sum =< lists:sum(Seen)),
    ?assertMatch(#{measured := true, replies := Replies, reply_ns := Sum}, weir:info(?MODULE)).

error_of(Time) -> 64 + Time div 64.

known_delays(Transport, Socket) ->
    Delays = lists:append(lists:duplicate(10, ?DELAYS)),
    is_between(Delays, [measured(Transport, Socket, Delay) || Delay <- Delays]).

nothing_is_measured_unasked(_Config) ->
    Socket = connect(start(#{}, fun ?MODULE:serve/2, none)),
    ok = ask(Socket, 0),
    ?assertEqual(#{measured => false, replies => 0, reply_ns => 0, times => []}, weir:latency(?MODULE)),
    ?assertMatch(#{measured := false, replies := 0, reply_ns := 0}, weir:info(?MODULE)),
    ?assertEqual({error, {no_listener, nobody}}, weir:latency(nobody)).

known_delays_of_processes(_Config) ->
    known_delays(gen_tcp, connect(start(#{measure => true}, fun ?MODULE:serve/2, none))).

known_delays_of_reactors(_Config) ->
    known_delays(gen_tcp, connect(start(#{measure => true}, ?MODULE, none))).

%% The callbacks of a reactor.
init(_Socket, none) -> {ok, none}.

handle_data(_Socket, <<Delay:16>> = Request, State) ->
    timer:sleep(Delay),
    {send, Request, State}.

handle_close(_Socket, _Reason, State) -> {ok, State}.

known_delays_of_relays(_Config) ->
    {ok, _} = weir:start_listener(server, #{ip => ?LOOPBACK}, fun ?MODULE:serve/2, none),
    Socket = connect(start(#{measure => true}, fun ?MODULE:relay/2, weir:get_port(server))),
    known_delays(gen_tcp, Socket),
    ?assertMatch([_], weir:relays()).

%% Whether or not their listeners measure.
relays_measure_together(_Config) ->
    {ok, _} = weir:start_listener(server, #{ip => ?LOOPBACK}, fun ?MODULE:serve/2, none),
    Latency = weir_relay:new_latency(),
    Port = start(#{}, fun ?MODULE:relay/2, {weir:get_port(server), #{latency => Latency}}),
    Seen = [client_time(Socket, Delay) || Socket <- [connect(Port), connect(Port)], Delay <- ?DELAYS],
    weir_test_wait:wait_until(fun() -> maps:get(replies, weir_relay:latency(Latency)) =:= length(Seen) end),
    #{measured := true, reply_ns := Sum, times := Times} = weir_relay:latency(Latency),
    ?assert(Sum >= 2 * lists:sum(?DELAYS) * 1_000_000, Sum),
    ?assert(Sum =< lists:sum(Seen), {Sum, Seen}),
    ?assertEqual(length(Seen), lists:sum([Count || {_, Count} <- Times])),
    ?assertEqual(#{measured => false, replies => 0, reply_ns => 0, times => []}, weir:latency(?MODULE)),
    ?assertEqual(
        #{measured => true, replies => 0, reply_ns => 0, times => []}, weir_relay:latency(weir_relay:new_latency())
    ).

client_time(Socket, Delay) ->
    Begin = erlang:monotonic_time(nanosecond),
    ok = ask(Socket, Delay),
    erlang:monotonic_time(nanosecond) - Begin.

relay(Client, Port) when is_integer(Port) ->
    relay(Client, {Port, #{}});
relay(Client, {Port, Options}) ->
    {ok, Server} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {tcp_module, weir_tcp}]),
    {ok, Relay} = weir:relay(Client, Server, Options),
    receive {weir_relay, Relay, _, _} -> ok end.

%% A handshake also consists of requests and replies, so its times are there before.
known_delays_under_tls(_Config) ->
    %% OTP 27 refuses signatures with SHA-1, the default here.
    Signed = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => Signed, intermediates => [], peer => Signed},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Port = start(#{tls => Server, handshake_timeout => weir_test_wait:patience()}, fun ?MODULE:serve/2, none),
    Options = [binary, {active, false}, {verify, verify_none}],
    {ok, Socket} = ssl:connect(?LOOPBACK, Port, Options, weir_test_wait:patience()),
    ok = ask(ssl, Socket, 0),
    ok = weir:set_options(?MODULE, #{measure => true}),
    known_delays(ssl, Socket),
    ok = ssl:close(Socket).

replies_from_files(Config) ->
    File = filename:join(?config(priv_dir, Config), "reply"),
    ok = file:write_file(File, <<20:16>>),
    Socket = connect(start(#{measure => true}, fun ?MODULE:send_file/2, File)),
    is_between([20, 20], [measured(gen_tcp, Socket, 20), measured(gen_tcp, Socket, 20)]).

send_file(Socket, File) ->
    case gen_tcp:recv(Socket, 2, weir_test_wait:patience()) of
        {ok, <<Delay:16>>} ->
            timer:sleep(Delay),
            {ok, 2} = file:sendfile(File, Socket),
            send_file(Socket, File);
        {error, closed} ->
            ok
    end.

%% A reply in two parts counts once, at its first bytes; a request in two parts counts from its last bytes.
the_last_bytes_of_a_request_count(_Config) ->
    Socket = connect(start(#{measure => true}, fun ?MODULE:in_parts/2, self())),
    ok = gen_tcp:send(Socket, <<0>>),
    receive first_part -> timer:sleep(100) end,
    Begin = erlang:monotonic_time(nanosecond),
    ok = gen_tcp:send(Socket, <<1>>),
    {ok, <<"a">>} = gen_tcp:recv(Socket, 1, weir_test_wait:patience()),
    _ = latency_of(1),
    Client = erlang:monotonic_time(nanosecond) - Begin,
    {ok, <<"b">>} = gen_tcp:recv(Socket, 1, weir_test_wait:patience()),
    is_between([5], [Client]).

in_parts(Socket, Test) ->
    {ok, <<0>>} = gen_tcp:recv(Socket, 1, weir_test_wait:patience()),
    Test ! first_part,
    {ok, <<1>>} = gen_tcp:recv(Socket, 1, weir_test_wait:patience()),
    timer:sleep(5),
    ok = gen_tcp:send(Socket, <<"a">>),
    timer:sleep(20),
    ok = gen_tcp:send(Socket, <<"b">>),
    gen_tcp:recv(Socket, 1, weir_test_wait:patience()).

%% On existing connections. Each client asks until it is stopped, so replies continue the whole time. Only those in
%% flight at a switch may be counted or not.
on_and_off_under_load(_Config) ->
    Port = start(#{}, ?MODULE, none),
    Asked = counters:new(1, []),
    Clients = [spawn_link(fun() -> put(clients, []), ask_on(connect(Port), Asked) end) || _ <- lists:seq(1, 20)],
    more(Asked),
    ?assertMatch(#{replies := 0}, weir:latency(?MODULE)),
    lists:foreach(
        fun(_) ->
            #{replies := Before} = weir:latency(?MODULE),
            ok = weir:set_options(?MODULE, #{measure => true}),
            On = more(Asked),
            ok = weir:set_options(?MODULE, #{measure => false}),
            #{replies := After} = weir:latency(?MODULE),
            ?assert(After - Before >= On - 2 * length(Clients), {After - Before, On}),
            _ = more(Asked),
            #{replies := Later, measured := false} = weir:latency(?MODULE),
            ?assert(Later - After =< length(Clients))
        end,
        lists:seq(1, 5)
    ),
    lists:foreach(fun(Client) -> unlink(Client), exit(Client, kill) end, Clients).

ask_on(Socket, Asked) ->
    ok = ask(Socket, 0),
    ok = counters:add(Asked, 1, 1),
    ask_on(Socket, Asked).

%% Waits for some hundred more replies, and returns their number.
more(Asked) ->
    Before = counters:get(Asked, 1),
    weir_test_wait:wait_until(fun() -> counters:get(Asked, 1) > Before + 500 end),
    counters:get(Asked, 1) - Before.

what_was_measured_stays(_Config) ->
    Socket = connect(start(#{measure => true}, fun ?MODULE:serve/2, none)),
    ok = ask(Socket, 1),
    Latency = latency_of(1),
    ok = weir:set_options(?MODULE, #{measure => false}),
    ok = ask(Socket, 1),
    ?assertEqual(Latency#{measured := false}, weir:latency(?MODULE)),
    %% The restarted listener continues with the previous figures.
    #{pid := Pid} = weir:info(?MODULE),
    exit(Pid, kill),
    weir_test_wait:wait_until(fun() -> case weir:info(?MODULE) of #{pid := Other} -> Other =/= Pid; _ -> false end end),
    ?assertEqual(Latency#{measured := false}, weir:latency(?MODULE)).
