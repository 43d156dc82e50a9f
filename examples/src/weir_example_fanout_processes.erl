%% @doc Broadcasts messages to all connections with a process for each member and `gen_tcp:send/2'.
%%
%% A typical push service on gen_tcp: a broadcast is a message to every member's process, which sends it on its
%% connection. A member that has not taken the last message misses the next, so that no queue grows for a slow one,
%% neither in its mailbox nor in its socket.
-module(weir_example_fanout_processes).

-export([start/1]).

-define(SIZE, 128).
-define(RATE, 10).
-define(TIMESTAMP_BYTES, 8).
%% Pause while no member has room and there is no rate to wait for, in milliseconds.
-define(PAUSE, 1).

%% `members' maps each process to the flag that it clears after sending; `next_at' is in native time.
-record(broadcaster, {
    filling :: binary(),
    period :: non_neg_integer(),
    next_at :: integer(),
    members = #{} :: members()
}).

-type members() :: #{pid() => atomics:atomics_ref()}.

%% @doc Starts the server. `size' is the number of bytes of a message, at least 8 (default: 128): the first eight are
%% the system's monotonic clock at the broadcast, in nanoseconds, big-endian. `rate' is the number of messages a
%% second (default: 10); at 0 the next follows as soon as the last was handed to every member that had room. Other
%% options: see {@link weir_example_acceptors:start/2}.
-spec start(#{
    size => pos_integer(), rate => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Filling = binary:copy(<<".">>, maps:get(size, Options, ?SIZE) - ?TIMESTAMP_BYTES),
    Period = period(maps:get(rate, Options, ?RATE)),
    Broadcaster = spawn_link(fun() ->
        loop(#broadcaster{filling = Filling, period = Period, next_at = erlang:monotonic_time()})
    end),
    case weir_example_acceptors:start(Options, fun(Socket) -> join(Socket, Broadcaster) end) of
        {ok, #{stop := Stop} = Server} ->
            {ok, Server#{stop := fun() -> Broadcaster ! stop, Stop() end}};
        {error, _} = Error ->
            Broadcaster ! stop,
            Error
    end.

period(0) -> 0;
period(Rate) -> erlang:convert_time_unit(1, second, native) div Rate.

loop(#broadcaster{members = Members} = Broadcaster) ->
    receive
        {join, Pid, Flag} ->
            _ = monitor(process, Pid),
            loop(Broadcaster#broadcaster{members = Members#{Pid => Flag}});
        {'DOWN', _, process, Pid, _} ->
            loop(Broadcaster#broadcaster{members = maps:remove(Pid, Members)});
        stop ->
            ok
    after wait(Broadcaster) ->
        loop(broadcast(Broadcaster))
    end.

wait(#broadcaster{members = Members}) when map_size(Members) =:= 0 ->
    infinity;
wait(#broadcaster{next_at = NextAt}) ->
    Left = max(0, NextAt - erlang:monotonic_time()),
    %% Rounded up, so that it is never early.
    -erlang:convert_time_unit(-Left, native, millisecond).

broadcast(#broadcaster{filling = Filling, period = Period, next_at = NextAt, members = Members} = Broadcaster) ->
    Message = <<(clock()):?TIMESTAMP_BYTES/unit:8, Filling/binary>>,
    Reached = maps:fold(fun(Pid, Flag, Count) -> Count + deliver(Pid, Flag, Message) end, 0, Members),
    Now = erlang:monotonic_time(),
    case Period of
        0 when Reached =:= 0 ->
            Broadcaster#broadcaster{next_at = Now + erlang:convert_time_unit(?PAUSE, millisecond, native)};
        0 ->
            %% Lets the members send: otherwise the next message would find all of them busy with this one.
            true = erlang:yield(),
            Broadcaster;
        _ ->
            %% Missed broadcasts are not repeated.
            Broadcaster#broadcaster{next_at = max(NextAt + Period, Now)}
    end.

deliver(Pid, Flag, Message) ->
    case atomics:exchange(Flag, 1, 1) of
        0 -> Pid ! {broadcast, Message}, 1;
        1 -> 0
    end.

join(Socket, Broadcaster) ->
    Flag = atomics:new(1, []),
    _ = inet:setopts(Socket, [{active, true}]),
    Broadcaster ! {join, self(), Flag},
    serve(Socket, Flag).

serve(Socket, Flag) ->
    receive
        {broadcast, Message} ->
            case gen_tcp:send(Socket, Message) of
                ok ->
                    ok = atomics:put(Flag, 1, 0),
                    serve(Socket, Flag);
                {error, _} ->
                    gen_tcp:close(Socket)
            end;
        {tcp, Socket, _Data} ->
            serve(Socket, Flag);
        {tcp_error, Socket, _Reason} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.

%% The system's monotonic clock, which all processes of the machine share; Erlang's own has an offset for each node.
clock() ->
    {time, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Time, native, nanosecond).
