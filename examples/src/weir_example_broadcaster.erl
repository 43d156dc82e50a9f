%% @doc A process that sends one message after the other to all members of a group: what the servers that broadcast share.
-module(weir_example_broadcaster).

-export([start/2]).
-export([serve/2]).

-define(SIZE, 128).
-define(RATE, 10).
%% Bytes at the front of a message that hold the time of its broadcast.
-define(TIMESTAMP_BYTES, 8).
%% How long to wait when there is nobody to send to, in milliseconds.
-define(PAUSE, 1).

-record(broadcaster, {
    group :: weir_group:group(),
    filling :: binary(),
    rate :: non_neg_integer(),
    frame :: fun((binary()) -> iodata())
}).

%% @doc Starts it. `size' is how many bytes a message has, at least 8 (128), of which the first eight are the monotonic clock of
%% the system; `rate' is how many a second there are (10), at 0 the next follows as soon as the last has been through. `Frame' makes
%% of a message what is sent.
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

%% @doc What was started for its group, if it was: it ends both.
-spec serve(Stop :: fun(() -> term()), {ok, Server} | {error, term()}) -> {ok, Server} | {error, term()} when
    Server :: weir_example_reactors:server().
serve(Stop, {ok, #{stop := StopServer} = Server}) ->
    {ok, Server#{stop := fun() -> Stop(), StopServer() end}};
serve(Stop, {error, _} = Error) ->
    _ = Stop(),
    Error.

%% At `At', in native time, the next message is due.
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
    %% Broadcasts that were missed are not made up for.
    Next = max(At + period(Rate), Now),
    receive
        stop -> ok
    after erlang:convert_time_unit(Next - Now + period(1000) - 1, native, millisecond) -> broadcast(Broadcaster, Next)
    end.

period(0) -> erlang:convert_time_unit(?PAUSE, millisecond, native);
period(Rate) -> erlang:convert_time_unit(1, second, native) div Rate.

%% The system's monotonic clock, the same for all its processes; Erlang's own has an offset of this node's.
clock() ->
    {time, Time} = lists:keyfind(time, 1, erlang:system_info(os_monotonic_time_source)),
    erlang:convert_time_unit(Time, native, nanosecond).
