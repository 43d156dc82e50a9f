%% Loads of known size, for nodes that are looked at. It needs nothing but OTP, and `weir' for the listener.
-module(weir_scope_load).

-export([busy/1, busy_for/3, transfer/1, chatter/2, hold/2, crowd/2, listen/0, requests/3]).

%% Busy for that part of each tenth of a second, by the clock.
busy(Share) ->
    _ = busy(Share, 1),
    busy(Share).

%% So many times. Returns for how many microseconds it was.
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

%% Sends so many bytes to itself, over ports, and returns how many.
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

%% Ten kilobytes a millisecond over a pair of each backend.
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

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> ok = gen_tcp:send(Socket, Data), echo(Socket);
        {error, _} -> ok
    end.

%% So many requests of 64 bytes on each of so many connections of OTP's.
requests(Port, Connections, Requests) ->
    Sockets = [element(2, {ok, _} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}])) || _ <- lists:seq(1, Connections)],
    [
        begin
            ok = gen_tcp:send(Socket, binary:copy(<<0>>, 64)),
            {ok, _} = gen_tcp:recv(Socket, 64)
        end
     || _ <- lists:seq(1, Requests), Socket <- Sockets
    ],
    lists:foreach(fun gen_tcp:close/1, Sockets).
