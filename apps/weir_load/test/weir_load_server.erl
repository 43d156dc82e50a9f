%% A server with known delays. It echoes messages of 64 bytes. A function of the message number, which counts from 1
%% over all connections, decides about the delay. The server ends with the process that started it.
-module(weir_load_server).

-export([start/1, start/2, stop/1, messages/1, stalled/1]).

-export_type([behaviour/0, stall/0]).

-type answer() :: {after_ms, non_neg_integer()} | drop | reset | garble | close.
-type behaviour() :: fun((pos_integer()) -> answer()).
%% The message that begins the stall, and its length in milliseconds. Nothing is answered during a stall.
-type stall() :: none | {pos_integer(), pos_integer()}.

-define(SIZE, 64).

%% Indexes of the counters: messages, the end of the stall in milliseconds of the monotonic clock, messages that waited
%% for it.
-define(MESSAGES, 1).
-define(STALL_ENDS, 2).
-define(STALLED, 3).

start(Behaviour) -> start(Behaviour, none).

-spec start(behaviour(), stall()) -> map().
start(Behaviour, Stall) ->
    Counters = atomics:new(3, []),
    Owner = self(),
    {ok, Listener} = gen_tcp:listen(0, [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {backlog, 1024}
    ]),
    {ok, Port} = inet:port(Listener),
    Shared = #{behaviour => Behaviour, stall => Stall, counters => Counters},
    Server = spawn(fun() ->
        Monitor = monitor(process, Owner),
        _ = spawn_link(fun() -> accept(Listener, Shared) end),
        receive
            {'DOWN', Monitor, process, Owner, _} -> exit(owner_ended)
        end
    end),
    ok = gen_tcp:controlling_process(Listener, Server),
    #{port => Port, server => Server, counters => Counters}.

stop(#{server := Server}) ->
    exit(Server, kill),
    _ = weir_test_wait:wait_for_end(Server),
    ok.

%% The number of received messages.
messages(#{counters := Counters}) -> atomics:get(Counters, ?MESSAGES).

%% The number of messages that came during the stall.
stalled(#{counters := Counters}) -> atomics:get(Counters, ?STALLED).

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
    Number = atomics:add_get(Counters, ?MESSAGES, 1),
    ok = stall(Number, Stall, erlang:monotonic_time(millisecond), Counters),
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

stall(_Number, none, _Now, _Counters) ->
    ok;
stall(First, {First, Milliseconds}, Now, Counters) ->
    ok = atomics:put(Counters, ?STALL_ENDS, Now + Milliseconds),
    stall(First, {0, Milliseconds}, Now, Counters);
stall(_Number, _Stall, Now, Counters) ->
    case {atomics:get(Counters, ?STALL_ENDS), Now} of
        {0, _} ->
            ok;
        {Ends, _} when Now < Ends ->
            ok = atomics:add(Counters, ?STALLED, 1),
            timer:sleep(Ends - Now);
        _ ->
            ok
    end.

send(Message, Socket, Shared) ->
    case gen_tcp:send(Socket, Message) of
        ok -> serve(Socket, Shared);
        {error, _} -> gen_tcp:close(Socket)
    end.
