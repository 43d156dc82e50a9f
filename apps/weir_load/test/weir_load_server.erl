%% A server whose delays are known. It sends back messages of 64 bytes, after what a function of the number of the
%% message, counted over all connections from 1, says.
-module(weir_load_server).

-export([start/1, start/2, stop/1]).

-export_type([behaviour/0]).

-type answer() :: {after_ms, non_neg_integer()} | drop | reset | garble | close.
-type behaviour() :: fun((pos_integer()) -> answer()).

-define(SIZE, 64).

start(Behaviour) -> start(Behaviour, none).

%% A stall is a span of milliseconds since the first message, in which nothing is answered.
start(Behaviour, Stall) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {backlog, 1024}]),
    {ok, Port} = inet:port(Listener),
    Shared = #{behaviour => Behaviour, stall => Stall, counters => atomics:new(2, [])},
    Acceptor = spawn(fun() -> accept(Listener, Shared) end),
    ok = gen_tcp:controlling_process(Listener, Acceptor),
    #{port => Port, acceptor => Acceptor}.

stop(#{acceptor := Acceptor}) ->
    Monitor = monitor(process, Acceptor),
    exit(Acceptor, kill),
    receive {'DOWN', Monitor, process, Acceptor, _} -> ok end.

accept(Listener, Shared) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Pid = spawn_link(fun() -> receive go -> serve(Socket, Shared) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener, Shared).

serve(Socket, Shared) ->
    case gen_tcp:recv(Socket, ?SIZE) of
        {ok, Message} -> answer(Message, Socket, Shared);
        {error, _} -> gen_tcp:close(Socket)
    end.

answer(Message, Socket, #{behaviour := Behaviour, stall := Stall, counters := Counters} = Shared) ->
    Number = atomics:add_get(Counters, 1, 1),
    Now = erlang:monotonic_time(millisecond),
    _ = atomics:compare_exchange(Counters, 2, 0, Now),
    wait_for_end(Stall, Now - atomics:get(Counters, 2)),
    case Behaviour(Number) of
        {after_ms, 0} -> send(Message, Socket, Shared);
        {after_ms, Delay} -> timer:sleep(Delay), send(Message, Socket, Shared);
        drop -> serve(Socket, Shared);
        garble -> send(binary:copy(<<"?">>, ?SIZE), Socket, Shared);
        close -> gen_tcp:close(Socket);
        reset ->
            ok = inet:setopts(Socket, [{linger, {true, 0}}]),
            gen_tcp:close(Socket)
    end.

wait_for_end({From, To}, At) when At >= From, At < To -> timer:sleep(To - At);
wait_for_end(_Stall, _At) -> ok.

send(Message, Socket, Shared) ->
    case gen_tcp:send(Socket, Message) of
        ok -> serve(Socket, Shared);
        {error, _} -> gen_tcp:close(Socket)
    end.
