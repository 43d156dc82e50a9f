%% @doc One message to all connections, again and again: by a group, without a process for a connection.
%%
%% The same service as {@link weir_example_fanout_processes}, which has a process for each member. A member that has
%% not taken the last message yet misses the next, so that nothing piles up in front of a slow one.
-module(weir_example_fanout).
-behaviour(weir_reactor).

-export([start/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).

-define(SIZE, 128).
-define(RATE, 10).
%% Bytes at the front of a message that hold the time of its broadcast.
-define(TIMESTAMP_BYTES, 8).
%% How long to wait when there is nobody to send to, in milliseconds.
-define(PAUSE, 1).

%% @doc Starts the server. `size' is how many bytes a message has, at least 8 (128): the first eight are the monotonic
%% clock of the system at its broadcast, in nanoseconds, big-endian. `rate' is how many a second there are (10); at 0
%% the next follows as soon as the last has been through. The rest is for {@link weir_example_reactors:start/2}.
-spec start(#{
    size => pos_integer(), rate => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    Filling = binary:copy(<<".">>, maps:get(size, Options, ?SIZE) - ?TIMESTAMP_BYTES),
    Self = self(),
    Broadcaster = spawn_link(fun() ->
        {ok, Group} = weir_group:new(#{policy => drop_newest, max_messages => 1}),
        Self ! {self(), Group},
        broadcast(Group, Filling, maps:get(rate, Options, ?RATE), erlang:monotonic_time())
    end),
    Group =
        receive
            {Broadcaster, Made} -> Made
        end,
    case weir_example_reactors:start(Options, #{module => ?MODULE, args => Group}) of
        {ok, #{stop := Stop} = Server} ->
            {ok, Server#{stop := fun() -> Broadcaster ! stop, Stop() end}};
        {error, _} = Error ->
            Broadcaster ! stop,
            Error
    end.

%% At `At', in native time, the next message is due.
broadcast(Group, Filling, Rate, At) ->
    Message = <<(clock()):?TIMESTAMP_BYTES/unit:8, Filling/binary>>,
    Reference = make_ref(),
    {ok, Members} = weir_group:broadcast(Group, Message, #{notify => Reference}),
    receive
        {weir_group, Group, Reference, #{sent := Sent}} -> wait(Group, Filling, Rate, At, Members > 0 andalso Sent > 0);
        stop -> ok
    end.

wait(Group, Filling, 0, At, true) ->
    broadcast(Group, Filling, 0, At);
wait(Group, Filling, Rate, At, _Reached) ->
    Now = erlang:monotonic_time(),
    %% Broadcasts that were missed are not made up for.
    Next = max(At + period(Rate), Now),
    receive
        stop -> ok
    after erlang:convert_time_unit(Next - Now + period(1000) - 1, native, millisecond) ->
        broadcast(Group, Filling, Rate, Next)
    end.

period(0) -> erlang:convert_time_unit(?PAUSE, millisecond, native);
period(Rate) -> erlang:convert_time_unit(1, second, native) div Rate.

-spec init(weir_tcp:socket(), weir_group:group()) -> weir_reactor:result(no_state).
init(Socket, Group) ->
    %% A connection that is closed again already is told of as any other.
    _ = weir_group:join(Group, Socket),
    {ok, no_state}.

-spec handle_data(weir_tcp:socket(), binary(), no_state) -> weir_reactor:result(no_state).
handle_data(_Socket, _Data, State) -> {ok, State}.

-spec handle_close(weir_tcp:socket(), term(), no_state) -> {ok, no_state}.
handle_close(_Socket, _Reason, State) -> {ok, State}.

%% The system's monotonic clock, the same for all its processes; Erlang's own has an offset of this node's.
clock() ->
    {time, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Time, native, nanosecond).
