%% What ends with the application or the pollers, and what starts them.
%%
%% Each case runs on its own node, because it stops what other cases need.
-module(weir_stop_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, connect_raw/1, socket_pair/2, async/1, await/1]).
-import(weir_test_wait, [recv_all/1, wait_until/1, next_message/0, patience/0]).
-import(weir_test_node, [start_vm/4, ended/2]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, application}, {group, engine}].

groups() ->
    [
        {application, [], [
            connections_end_when_the_application_stops,
            ten_thousand_end,
            relays_that_begin_meanwhile_end,
            what_was_sent_arrives_after_the_stop,
            listeners_of_others_close,
            sockets_after_the_stop_are_served,
            what_reads_starts_nothing,
            a_listener_wants_the_application
        ]},
        {engine, [], [
            sockets_need_no_application,
            one_engine_for_all,
            sockets_load_no_code,
            pollsets_are_there_at_once,
            sockets_in_the_stop_of_an_application,
            an_engine_that_gives_up_closes_sockets
        ]}
    ].

on_own_node(Case, Command, Arguments) ->
    weir_test_node:on_bare_node(?MODULE, Case, [], Command, Arguments).

%%% The application.

connections_end_when_the_application_stops(_Config) ->
    on_own_node(stop_connections, "", []).

stop_connections(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {Active, _} = socket_pair(Config, [binary, {active, true}]),
    {Passive, _} = socket_pair(Config, [binary, {active, false}]),
    {Sender, _} = socket_pair(Config, [binary, {active, false}]),
    {Listener, Port} = listen(Config, [binary, {active, false}]),
    {Left, _} = socket_pair(Config, [binary, {active, false}]),
    {Right, _} = socket_pair(Config, [binary, {active, false}]),
    {ok, Relay} = weir:relay(Left, Right, #{detached => true}),
    Receiver = async(fun() -> gen_tcp:recv(Passive, 0) end),
    Acceptor = async(fun() -> gen_tcp:accept(Listener) end),
    Writer = async(fun() -> fill(Sender, binary:copy(<<1>>, 1 bsl 20)) end),
    wait_until(fun() -> waits(Receiver) andalso waits(Acceptor) andalso waits(Writer) end),
    ok = application:stop(weir),
    ?assertEqual({error, closed}, await(Receiver)),
    ?assertEqual({error, closed}, await(Acceptor)),
    ?assertEqual({error, closed}, await(Writer)),
    %% In either order.
    Told = [next_message(), next_message()],
    ?assertMatch([{weir_relay, Relay, closed, _}], Told -- [{tcp_closed, Active}]),
    ?assertEqual({error, closed}, gen_tcp:send(Active, <<"more">>)),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])),
    wait_until(fun() -> [Socket || Socket <- weir:sockets(), is_owned(Socket)] =:= [] end).

is_owned(Socket) ->
    maps:get(owner, weir_tcp:info(Socket), undefined) =/= undefined.

waits({Pid, _, _}) ->
    process_info(Pid, current_function) =:= {current_function, {weir_operation, await_until, 4}}.

fill(Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> fill(Socket, Data);
        Error -> Error
    end.

ten_thousand_end(_Config) ->
    on_own_node(stop_ten_thousand, "ulimit -n $(ulimit -Hn);", []).

%% As many connections as there are descriptors. The duration is not checked: native calls are short, and nothing is
%% waited for.
stop_ten_thousand(_Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, {backlog, 1024}, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Connect = fun() ->
        {ok, Client} = gen_tcp:connect(?LOOPBACK, Port, [{active, false}]),
        {ok, Server} = gen_tcp:accept(Listener),
        ok = inet:setopts(Server, [{active, once}]),
        {Client, Server}
    end,
    Limit = min(10_000, (list_to_integer(string:trim(os:cmd("ulimit -n"))) - 200) div 2),
    Pairs = [Connect() || _ <- lists:seq(1, Limit)],
    ok = application:stop(weir),
    [
        receive
            {tcp_closed, Server} -> ok
        after patience() -> error({not_told, Server})
        end
     || {_, Server} <- Pairs
    ],
    [?assertEqual({error, closed}, gen_tcp:recv(Client, 0, patience())) || {Client, _} <- Pairs].

relays_that_begin_meanwhile_end(_Config) ->
    on_own_node(stop_among_relays, "", []).

%% Each becomes a relay at a random moment: before the stop, during it or not at all.
stop_among_relays(Config) ->
    [
        begin
            {ok, _} = application:ensure_all_started(weir),
            Relaying = [relaying_later(Config) || _ <- lists:seq(1, 200)],
            Starter = spawn(fun() -> [begin Pid ! go, erlang:yield() end || Pid <- Relaying] end),
            ok = application:stop(weir),
            Reference = monitor(process, Starter),
            receive {'DOWN', Reference, process, Starter, _} -> ok end,
            [receive {Pid, _} -> ok after patience() -> error({waits, Pid}) end || Pid <- Relaying],
            ?assertEqual([], weir:relays()),
            [exit(Pid, kill) || Pid <- Relaying]
        end
     || _ <- lists:seq(1, 5)
    ].

%% A process that joins two connections on request, and lives on.
relaying_later(Config) ->
    Self = self(),
    {Left, _} = socket_pair(Config, [binary, {active, false}]),
    {Right, _} = socket_pair(Config, [binary, {active, false}]),
    Pid = spawn(fun() ->
        receive go -> ok end,
        Self ! {self(), weir:relay(Left, Right, #{})},
        receive stop -> ok end
    end),
    [ok = gen_tcp:controlling_process(Socket, Pid) || Socket <- [Left, Right]],
    Pid.

what_was_sent_arrives_after_the_stop(_Config) ->
    on_own_node(stop_behind_data, "", []).

stop_behind_data(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Socket, binary:copy(<<7>>, 8_000_000)),
    ok = application:stop(weir),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    {Received, closed} = recv_all(Peer),
    ?assertEqual(8_000_000, byte_size(Received)).

listeners_of_others_close(_Config) ->
    on_own_node(stop_beside_listener, "", []).

stop_beside_listener(_Config) ->
    {ok, _} = application:ensure_all_started(weir),
    Serve = fun(Socket, _) -> gen_tcp:recv(Socket, 0) end,
    #{start := {Module, Function, Arguments}} = weir:child_spec(others, #{port => 0}, Serve, []),
    {ok, Pid} = apply(Module, Function, Arguments),
    Port = weir:get_port(others),
    {ok, _} = weir:start_listener(ours, #{port => 0}, Serve, []),
    Ours = weir:get_port(ours),
    Peers = [connect_raw(P) || P <- [Port, Ours]],
    wait_until(fun() -> [weir:connections(L) || L <- [others, ours], weir:connections(L) =:= []] =:= [] end),
    ok = application:stop(weir),
    [?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, patience())) || Peer <- Peers],
    [?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, P, [])) || P <- [Port, Ours]],
    ?assert(is_process_alive(Pid)).

sockets_after_the_stop_are_served(_Config) ->
    on_own_node(open_after_stop, "", []).

open_after_stop(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    ok = application:stop(weir),
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Peer, <<"still served">>),
    ?assertEqual({tcp, Socket, <<"still served">>}, next_message()),
    ?assertEqual(false, lists:keymember(weir, 1, application:which_applications())),
    ok = application:start(weir),
    ok = gen_tcp:send(Peer, <<"and now">>),
    ?assertEqual({tcp, Socket, <<"and now">>}, next_message()).

what_reads_starts_nothing(_Config) ->
    on_own_node(read_without_engine, "", []).

read_without_engine(_Config) ->
    ?assertEqual([], weir:pollsets()),
    ?assertEqual([], weir:sockets()),
    ?assertEqual([], weir:relays()),
    ?assertEqual([], weir:listeners()),
    ?assertEqual(ok, weir:i()),
    ?assertEqual(undefined, whereis(weir_engine)),
    ?assertEqual(false, lists:keymember(weir, 1, application:which_applications())).

a_listener_wants_the_application(_Config) ->
    on_own_node(listen_without_application, "", []).

listen_without_application(_Config) ->
    Serve = fun(_, _) -> ok end,
    ?assertEqual({error, {not_started, weir}}, weir:start_listener(none, #{port => 0}, Serve, [])).

%%% The engine.

sockets_need_no_application(_Config) ->
    on_own_node(open_without_application, "", []).

open_without_application(Config) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Peer, <<"served">>),
    ?assertEqual({tcp, Socket, <<"served">>}, next_message()),
    ?assertEqual(false, lists:keymember(weir, 1, application:which_applications())).

one_engine_for_all(_Config) ->
    on_own_node(start_twice, "", []).

start_twice(_Config) ->
    Starters = [async(fun weir_pollsets:ensure_started/0) || _ <- lists:seq(1, 50)],
    ?assertEqual([ok], lists:usort([await(Starter) || Starter <- Starters])),
    Engine = whereis(weir_engine),
    {ok, _} = application:ensure_all_started(weir),
    ?assertEqual(Engine, whereis(weir_engine)),
    ?assertMatch([{weir_engine, Engine, supervisor, _}], [
        Child
     || Child = {weir_engine, _, _, _} <- supervisor:which_children(kernel_safe_sup)
    ]).

%% Loading a module takes dozens of rounds of the run queue beside busy processes, and every process that calls it has
%% to wait.
sockets_load_no_code(_Config) ->
    on_own_node(serve_without_loading, "", []).

serve_without_loading(_Config) ->
    %% Loads what OTP and this suite need.
    use_sockets([]),
    ok = weir_pollsets:ensure_started(),
    Before = code:all_loaded(),
    use_sockets([{tcp_module, weir_tcp}]),
    ?assertEqual([], code:all_loaded() -- Before).

%% The calls of typical servers and clients.
use_sockets(Backend) ->
    {ok, Listener} = gen_tcp:listen(0, Backend ++ [binary, {active, once}, {ip, ?LOOPBACK}, {reuseaddr, true}]),
    {ok, Port} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect(?LOOPBACK, Port, Backend ++ [binary, {active, false}, {packet, 4}], patience()),
    {ok, Server} = gen_tcp:accept(Listener, patience()),
    ok = inet:setopts(Server, [{packet, 4}, {nodelay, true}]),
    Echo = spawn_link(fun() ->
        receive
            {tcp, Server, Data} ->
                ok = gen_tcp:send(Server, Data),
                ok = inet:setopts(Server, [{active, once}])
        end,
        receive
            {tcp_closed, Server} -> ok
        end
    end),
    ok = gen_tcp:controlling_process(Server, Echo),
    ok = gen_tcp:send(Client, <<"ping">>),
    ?assertEqual({ok, <<"ping">>}, gen_tcp:recv(Client, 0, patience())),
    {ok, _} = inet:peername(Client),
    {ok, _} = inet:getopts(Client, [active, sndbuf]),
    {ok, _} = inet:getstat(Client),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, patience())),
    ok = gen_tcp:close(Client),
    ok = gen_tcp:close(Listener).

%% Pollers have to wait until their schedulers run them.
pollsets_are_there_at_once(_Config) ->
    on_own_node(listen_at_once, "", ["+S", "2:2"]).

listen_at_once(_Config) ->
    Busy = [spawn_opt(fun busy/0, [{scheduler, I}]) || I <- [1, 2], _ <- lists:seq(1, 20)],
    {ok, _} = application:ensure_all_started(weir),
    ?assertMatch({ok, _}, weir:start_listener(first, #{port => 0}, fun(_, _) -> ok end, [])),
    [exit(Pid, kill) || Pid <- Busy],
    ok.

busy() -> busy().

%% The application controller is then busy and answers no calls.
sockets_in_the_stop_of_an_application(_Config) ->
    {ok, Peer} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, Port} = inet:port(Peer),
    Vm = start_vm(?MODULE, [], start_last_words, [Port]),
    {ok, Socket} = gen_tcp:accept(Peer, patience()),
    ?assertEqual({ok, <<"last words">>}, gen_tcp:recv(Socket, 10, patience())),
    ok = gen_tcp:send(Socket, <<"well said">>),
    ?assertEqual({ok, <<"bye">>}, gen_tcp:recv(Socket, 3, patience())),
    ?assertEqual(<<>>, ended(Vm, patience())).

start_last_words(Port) ->
    Application =
        {application, weir_last_words, [
            {vsn, "1"}, {applications, [kernel, stdlib]}, {modules, []}, {mod, {?MODULE, Port}}
        ]},
    ok = application:load(Application),
    ok = application:start(weir_last_words),
    init:stop().

%% The callback of the application `weir_last_words'.
start(_Type, Port) ->
    {ok, Pid} = supervisor:start_link(?MODULE, []),
    {ok, Pid, Port}.

init([]) ->
    {ok, {#{}, []}}.

stop(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [{tcp_module, weir_tcp}, binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"last words">>),
    {ok, <<"well said">>} = gen_tcp:recv(Socket, 9, patience()),
    ok = gen_tcp:send(Socket, <<"bye">>).

an_engine_that_gives_up_closes_sockets(_Config) ->
    on_own_node(kill_engine, "", []).

kill_engine(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, _} = weir:start_listener(own, #{port => 0}, fun(S, _) -> gen_tcp:send(S, <<"served">>) end, []),
    {Socket, Peer} = socket_pair(Config, [binary, {active, true}]),
    Engine = whereis(weir_engine),
    Reference = monitor(process, Engine),
    kill_until_down(Reference),
    ?assertEqual({tcp_closed, Socket}, next_message()),
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, patience())),
    ?assert(is_pid(whereis(kernel_safe_sup))),
    wait_until(fun() -> is_served(catch weir:get_port(own)) end),
    {Next, Other} = socket_pair(Config, [binary, {active, true}]),
    ok = gen_tcp:send(Other, <<"anew">>),
    ?assertEqual({tcp, Next, <<"anew">>}, next_message()).

is_served(Port) when is_integer(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}]) of
        {ok, Client} -> gen_tcp:recv(Client, 6, patience()) =:= {ok, <<"served">>};
        {error, _} -> false
    end;
is_served(_NoListener) ->
    false.

kill_until_down(Reference) ->
    case whereis(weir_pollsets) of
        undefined -> ok;
        Pid -> exit(Pid, kill)
    end,
    receive
        {'DOWN', Reference, process, _, _} -> ok
    after 10 -> kill_until_down(Reference)
    end.
