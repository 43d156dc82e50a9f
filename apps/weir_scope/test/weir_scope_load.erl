%% Loads of known size, for nodes under test. It needs only OTP, and `weir' for the listener.
-module(weir_scope_load).

%% The callbacks of a reactor.
-export([init/2, handle_data/3, handle_close/3]).

-export([
    busy/1,
    busy_for/3,
    transfer/1,
    chatter/2,
    sockets/2,
    collect/1,
    suspend/2,
    dictionary/2,
    small/1,
    hold_binaries/3,
    collects/1,
    looks/1,
    listen_only/3,
    hold/2,
    crowd/2,
    listen/0,
    listen_slowly/1,
    requests/3,
    relay/1,
    relayed/2
]).

%% Is busy for a fraction of each tenth of a second, by the clock.
busy(Share) ->
    _ = busy(Share, 1),
    busy(Share).

%% Does that `Times' times. Returns the busy microseconds.
busy(_Share, 0) ->
    0;
busy(Share, Times) ->
    Begin = erlang:monotonic_time(microsecond),
    spin(Begin + round(Share * 100_000)),
    Spun = erlang:monotonic_time(microsecond) - Begin,
    timer:sleep(max(0, 100 - Spun div 1000)),
    Spun + busy(Share, Times - 1).

busy_for(Whom, Share, Times) ->
    Whom ! {self(), busy(Share, Times)}.

spin(Until) ->
    case erlang:monotonic_time(microsecond) of
        Now when Now >= Until -> ok;
        _ -> spin(Until)
    end.

%% Sends bytes to itself over ports, and returns their number.
transfer(Bytes) ->
    {From, To} = pair([]),
    Sender = spawn_link(fun() -> ok = gen_tcp:send(From, binary:copy(<<0>>, Bytes)) end),
    {ok, Data} = gen_tcp:recv(To, Bytes),
    true = is_pid(Sender),
    byte_size(Data).

pair(Options) ->
    {ok, Listen} = gen_tcp:listen(0, Options ++ [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    {ok, From} = gen_tcp:connect({127, 0, 0, 1}, Port, Options ++ [binary, {active, false}]),
    {ok, To} = gen_tcp:accept(Listen),
    {From, To}.

%% Sends ten kilobytes each millisecond over a pair of sockets of each backend.
chatter(Whom, Backends) ->
    Pairs = [pair([{inet_backend, Backend}]) || Backend <- Backends],
    Whom ! {self(), ready},
    talk(Pairs).

talk(Pairs) ->
    [
        begin
            ok = gen_tcp:send(From, binary:copy(<<0>>, 10_000)),
            {ok, _} = gen_tcp:recv(To, 10_000)
        end
     || {From, To} <- Pairs
    ],
    timer:sleep(1),
    talk(Pairs).

%% A process with `Number' connections to itself.
sockets(Whom, Number) ->
    {ok, Listen} = gen_tcp:listen(0, [{active, false}, {ip, {127, 0, 0, 1}}, {backlog, 1024}]),
    {ok, Port} = inet:port(Listen),
    Pairs = [
        begin
            {ok, From} = gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}]),
            {ok, To} = gen_tcp:accept(Listen),
            {From, To}
        end
     || _ <- lists:seq(1, Number)
    ],
    Whom ! {self(), ready},
    timer:sleep(infinity),
    Pairs.

%% Does `Number' garbage collections.
collect(Number) ->
    _ = [true = erlang:garbage_collect() || _ <- lists:seq(1, Number)],
    ok.

%% Suspends a process while this one lives.
suspend(Whom, Name) ->
    true = erlang:suspend_process(whereis(Name)),
    Whom ! {self(), ready},
    receive enough -> ok end.

%% A process with a large dictionary, as a reactor with many connections has.
dictionary(Whom, Entries) ->
    _ = [put({connection, Number}, Number) || Number <- lists:seq(1, Entries)],
    Whom ! {self(), ready},
    timer:sleep(infinity).

%% Sets its label and initial call as proc_lib:set_label/1 and proc_lib:spawn/3 do.
small(Whom) ->
    _ = put('$initial_call', {?MODULE, small, 1}),
    _ = put('$process_label', somebody),
    Whom ! {self(), ready},
    timer:sleep(infinity).

%% Holds `Number' binaries of `Bytes' bytes, and no garbage.
hold_binaries(Whom, Number, Bytes) ->
    Binaries = [binary:copy(<<Index>>, Bytes) || Index <- lists:seq(1, Number)],
    true = erlang:garbage_collect(),
    Whom ! {self(), ready},
    timer:sleep(infinity),
    Binaries.

%% A process that does a number of minor collections for each message.
collects(Whom) ->
    Whom ! {self(), ready},
    collecting().

collecting() ->
    receive
        {From, Times} ->
            _ = [true = erlang:garbage_collect(self(), [{type, minor}]) || _ <- lists:seq(1, Times)],
            From ! {self(), Times},
            collecting()
    end.

%% Returns whether a process is between both readings of a top list: one that `Asker' has started, or any.
looks(Asker) ->
    Looking = [
        Pid
     || Pid <- processes(),
        {current_stacktrace, [{timer, sleep, 1, _}, {Module, _, _, _} | _]} <- [process_info(Pid, current_stacktrace)],
        lists:member(Module, [weir_scope_top, weir_scope_top_sockets])
    ],
    [] =/=
        case Asker of
            anybody -> Looking;
            _ -> [Pid || Pid <- Looking, {links, Links} <- [process_info(Pid, links)], lists:member(Asker, Links)]
        end.

%% Listens and does not accept.
listen_only(Whom, Backlog, Backend) ->
    {ok, Listen} = gen_tcp:listen(0, [{inet_backend, Backend}, {ip, {127, 0, 0, 1}}, {backlog, Backlog}]),
    {ok, Port} = inet:port(Listen),
    Whom ! {self(), ready},
    receive {port, From} -> From ! {self(), Port} end,
    timer:sleep(infinity).

hold(Whom, Length) ->
    List = lists:seq(1, Length),
    Whom ! {self(), ready},
    timer:sleep(infinity),
    List.

crowd(Whom, Number) ->
    [spawn_link(timer, sleep, [infinity]) || _ <- lists:seq(1, Number)],
    Whom ! {self(), ready},
    timer:sleep(infinity).

%% An echo server of Weir.
listen() ->
    {ok, _} = weir:start_listener(scope_test, #{port => 0, ip => loopback}, fun(Socket, _) -> echo(Socket) end, none),
    {ok, weir:get_port(scope_test)}.

%% An echo server of reactors. Each callback takes `Milliseconds'.
listen_slowly(Milliseconds) ->
    {ok, _} = weir:start_listener(scope_slow, #{port => 0, ip => loopback, measure => true}, ?MODULE, Milliseconds),
    {ok, weir:get_port(scope_slow)}.

init(_Socket, Milliseconds) -> {ok, Milliseconds}.

handle_data(_Socket, Data, Milliseconds) ->
    timer:sleep(Milliseconds),
    {send, Data, Milliseconds}.

handle_close(_Socket, _Reason, Milliseconds) -> {ok, Milliseconds}.

%% A process with a relay between two connections, and with the sockets at both its ends.
relay(Whom) ->
    {Client, A} = relayed_pair(),
    {Server, B} = relayed_pair(),
    {ok, _} = weir:relay(A, B),
    Whom ! {self(), ready},
    relayed(Client, Server).

%% The client sends `Times' requests of `Bytes' bytes. The server answers each with twice as many.
relayed(Client, Server) ->
    receive
        {From, Times, Bytes} ->
            _ = [
                begin
                    ok = gen_tcp:send(Client, binary:copy(<<0>>, Bytes)),
                    {ok, _} = gen_tcp:recv(Server, Bytes),
                    ok = gen_tcp:send(Server, binary:copy(<<0>>, 2 * Bytes)),
                    {ok, _} = gen_tcp:recv(Client, 2 * Bytes)
                end
             || _ <- lists:seq(1, Times)
            ],
            From ! {self(), {Times * Bytes, 2 * Times * Bytes}},
            relayed(Client, Server)
    end.

relayed_pair() ->
    {ok, Listen} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    {ok, From} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, To} = gen_tcp:accept(Listen),
    {From, To}.

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> ok = gen_tcp:send(Socket, Data), echo(Socket);
        {error, _} -> ok
    end.

%% Sends `Requests' requests of 64 bytes on each of `Connections' sockets of OTP.
requests(Port, Connections, Requests) ->
    Sockets = [
        element(2, {ok, _} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]))
     || _ <- lists:seq(1, Connections)
    ],
    [
        begin
            ok = gen_tcp:send(Socket, binary:copy(<<0>>, 64)),
            {ok, _} = gen_tcp:recv(Socket, 64)
        end
     || _ <- lists:seq(1, Requests), Socket <- Sockets
    ],
    lists:foreach(fun gen_tcp:close/1, Sockets).
