%% @doc A process that broadcasts messages to a group, shared by the broadcasting examples.
-module(weir_example_broadcaster).

-export([start/2]).
-export([serve/2]).

-define(SIZE, 128).
-define(RATE, 10).
-define(TIMESTAMP_BYTES, 8).
%% Pause while the group has no members, in milliseconds.
-define(PAUSE, 1).

-record(broadcaster, {
    group :: weir_group:group(),
    filling :: binary(),
    rate :: non_neg_integer(),
    frame :: fun((binary()) -> iodata())
}).

%% @doc Starts the process. `size' is the number of bytes of a message, at least 8 (default: 128), of which the first
%% eight are the monotonic clock of the system. `rate' is the number of messages a second (default: 10); at 0 the next
%% follows as soon as the last has been delivered. `Frame' encodes a message for sending.
-spec start(#{size => pos_integer(), rate => non_neg_integer(), _ => _}, fun((binary()) -> iodata())) ->
    {weir_group:group(), Stop :: fun(() -> term())}.
start(Options, Frame) ->
    Filling = binary:copy(<<".">>, maps:get(size, Options, ?SIZE) - ?TIMESTAMP_BYTES),
    Self = self(),
    Pid = spawn_link(fun() ->
        {ok, Group} = weir_group:new(#{policy => drop_newest, max_messages => 1}),
        Self ! {self(), Group},
        Rate = maps:get(rate, Options, ?RATE),
        broadcast(#broadcaster{group = Group, filling = Filling, rate = Rate, frame = Frame}, erlang:monotonic_time())
    end),
    receive
        {Pid, Group} -> {Group, fun() -> Pid ! stop end}
    end.

%% @doc Adds the broadcaster to a server, whose `stop' then ends both; ends the broadcaster if the server did not
%% start.
-spec serve(Stop :: fun(() -> term()), {ok, Server} | {error, term()}) -> {ok, Server} | {error, term()} when
    Server :: weir_example_reactors:server().
serve(Stop, {ok, #{stop := StopServer} = Server}) ->
    {ok, Server#{stop := fun() -> Stop(), StopServer() end}};
serve(Stop, {error, _} = Error) ->
    _ = Stop(),
    Error.

%% The next message is due at `At', in native time.
broadcast(Broadcaster = #broadcaster{group = Group, filling = Filling, frame = Frame}, At) ->
    Message = Frame(<<(clock()):?TIMESTAMP_BYTES/unit:8, Filling/binary>>),
    Reference = make_ref(),
    {ok, Members} = weir_group:broadcast(Group, Message, #{notify => Reference}),
    receive
        {weir_group, Group, Reference, #{sent := Sent}} -> wait(Broadcaster, At, Members > 0 andalso Sent > 0);
        stop -> ok
    end.

wait(Broadcaster = #broadcaster{rate = 0}, At, true) ->
    broadcast(Broadcaster, At);
wait(Broadcaster = #broadcaster{rate = Rate}, At, _Reached) ->
    Now = erlang:monotonic_time(),
    %% Missed broadcasts are not repeated.
    Next = max(At + period(Rate), Now),
    receive
        stop -> ok
    after erlang:convert_time_unit(Next - Now + period(1000) - 1, native, millisecond) -> broadcast(Broadcaster, Next)
    end.

period(0) -> erlang:convert_time_unit(?PAUSE, millisecond, native);
period(Rate) -> erlang:convert_time_unit(1, second, native) div Rate.

%% The system's monotonic clock, which all processes of the machine share; Erlang's own has an offset for each node.
clock() ->
    {time, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Time, native, nanosecond).
