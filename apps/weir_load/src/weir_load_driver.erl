%% @doc Drives connections from one process, by gen_tcp: an engine of the load generator.
%%
%% The process waits for what comes first: bytes, the next arrival, the end of a second. For arrivals it has an alarm,
%% since timers of the VM know milliseconds only. A connect blocks its caller, so each has a process of its own, which
%% hands over the socket.
-module(weir_load_driver).
-behaviour(weir_load_engine).

-export([start_link/2]).
-export([init/1]).

-record(driver, {
    share :: weir_load_engine:share(),
    profile :: weir_load_connection:profile(),
    alarm :: weir_load_nif:alarm(),
    %% For when the alarm is set.
    alarm_at = none :: none | integer(),
    phase :: opening | waiting | running | draining | over,
    %% Connections by number, with the socket of those that have one.
    connections = #{} :: #{pos_integer() => {gen_tcp:socket() | none, weir_load_connection:connection()}},
    numbers = #{} :: #{gen_tcp:socket() => pos_integer()},
    %% Requests that wait, for their turn or for an answer.
    pending = 0 :: non_neg_integer(),
    sample = weir_load_sample:new() :: weir_load_sample:sample(),
    %% While opening: what is not dialed yet, how many are being dialed, and what went wrong last.
    to_open = [] :: [pos_integer()],
    dialing = 0 :: non_neg_integer(),
    opening_since :: integer(),
    opened = 0 :: non_neg_integer(),
    last_error = none :: none | atom(),
    %% From `go' on.
    timetable :: weir_load_engine:timetable() | undefined,
    next = done :: {Due :: integer(), weir_load_schedule:arrivals()} | done,
    second = 0 :: integer(),
    scan_at :: integer(),
    %% Whose turn it is, of connections that take turns; or the last number, where each arrival has its own.
    turn = 0 :: non_neg_integer(),
    ring = {} :: tuple(),
    last_answer = none :: none | integer()
}).

-define(SECOND, 1_000_000_000).
-define(MILLISECOND, 1_000_000).

%% Between looks for what has waited too long.
-define(SCAN, 100 * ?MILLISECOND).

%% Arrivals are dispatched so many at a time, then messages have their turn.
-define(BURST, 64).

%% Connects at the same time while the connections of a run are opened.
-define(MOST_DIALING, 100).

%% Before a connection that has failed is opened anew: a server that refuses is not to be stormed.
-define(REST, 100).

%% A wait so short is not worth an alarm.
-define(SHORT, 20_000).

%% Messages of a socket before it is passive.
-define(ACTIVE, 100).

%% Connections from one address to one port of the server: fewer than a kernel has ports.
-define(PER_ADDRESS, 20_000).

%% @doc Starts a driver on a node.
-spec start_link(node(), weir_load_engine:share()) -> {ok, pid()}.
start_link(Node, Share) ->
    {ok, spawn_link(Node, ?MODULE, init, [Share])}.

%% @private
-spec init(weir_load_engine:share()) -> ok.
init(#{profile := Profile, number := Number, drivers := Drivers, total := Total} = Share) ->
    %% What waits in the mailbox is looked at by each collection of garbage, unless it is off the heap.
    _ = process_flag(message_queue_data, off_heap),
    Now = now_ns(),
    Numbers =
        case Profile of
            #{arrivals := connection} -> [];
            #{} -> lists:seq(Number, Total, Drivers)
        end,
    Connections = maps:from_list([{N, {none, weir_load_connection:new(N)}} || N <- Numbers]),
    loop(
        open_more(#driver{
            share = Share,
            profile = Profile,
            alarm = weir_load_nif:alarm_start(),
            phase = opening,
            connections = Connections,
            to_open = Numbers,
            opening_since = Now,
            scan_at = Now,
            ring = list_to_tuple(Numbers),
            turn =
                case Profile of
                    #{arrivals := connection} -> Number;
                    #{} -> 0
                end
        })
    ).

now_ns() -> erlang:monotonic_time(nanosecond).

%% The loop

loop(Driver) ->
    case turn(now_ns(), Driver) of
        #driver{phase = over} -> ok;
        Waiting -> wait(Waiting)
    end.

wait(#driver{alarm = Alarm, alarm_at = AlarmAt} = Driver) ->
    case wake_at(Driver) of
        never ->
            receive Message -> loop(message(Message, Driver)) end;
        AlarmAt ->
            receive Message -> loop(message(Message, Driver)) end;
        At ->
            case At - now_ns() of
                Gap when Gap > ?SHORT ->
                    ok = weir_load_nif:alarm_set(Alarm, Gap),
                    wait(Driver#driver{alarm_at = At});
                _ ->
                    receive Message -> loop(message(Message, Driver)) after 0 -> loop(Driver) end
            end
    end.

wake_at(#driver{phase = opening, to_open = [_ | _], dialing = Dialing} = Driver) when Dialing < ?MOST_DIALING ->
    dial_at(Driver);
wake_at(#driver{phase = Phase}) when Phase =:= opening; Phase =:= waiting ->
    never;
wake_at(#driver{next = Next, scan_at = ScanAt} = Driver) ->
    Other = min(ScanAt, end_of_second(Driver)),
    case Next of
        {Due, _} -> min(Due, Other);
        done -> Other
    end.

end_of_second(#driver{timetable = #{window := {From, _}}, second = Second}) ->
    From + (Second + 1) * ?SECOND.

message(weir_load_alarm, Driver) ->
    Driver#driver{alarm_at = none};
message({tcp, Socket, Data}, Driver) ->
    received(Socket, Data, Driver);
message({tcp_passive, Socket}, Driver) ->
    _ = inet:setopts(Socket, [{active, ?ACTIVE}]),
    Driver;
message({tcp_closed, Socket}, Driver) ->
    lost(Socket, closed, Driver);
message({tcp_error, Socket, Reason}, Driver) ->
    lost(Socket, error_kind(Reason), Driver);
message({dialed, Number, Began, Outcome}, Driver) ->
    dialed(Number, Began, Outcome, Driver);
message({dial, Number}, #driver{connections = Connections} = Driver) ->
    {none, Connection} = maps:get(Number, Connections),
    case is_wanted(Connection, Driver) of
        true -> dial(Number, Driver);
        false -> Driver
    end;
message({start_another, Number}, #driver{phase = running} = Driver) ->
    start_another(Number, Driver);
message({start_another, _Number}, Driver) ->
    Driver;
message({go, Timetable}, Driver) ->
    go(Timetable, Driver);
message(stop, Driver) ->
    finish(Driver).

%% What time brings.
turn(_Now, #driver{phase = over} = Driver) ->
    Driver;
turn(_Now, #driver{phase = opening} = Driver) ->
    open_more(Driver);
turn(_Now, #driver{phase = waiting} = Driver) ->
    Driver;
turn(Now, Driver) ->
    drain(Now, scan(Now, dispatch(?BURST, seconds(Now, Driver)))).

%% Opening, before the load

dial_at(#driver{share = #{connect_rate := unlimited}, opening_since = Since}) ->
    Since;
dial_at(#driver{share = #{connect_rate := Rate}, to_open = ToOpen, ring = Ring, opening_since = Since}) ->
    Since + round((tuple_size(Ring) - length(ToOpen)) / Rate * ?SECOND).

open_more(#driver{to_open = [Number | Rest], dialing = Dialing} = Driver) when Dialing < ?MOST_DIALING ->
    case dial_at(Driver) =< now_ns() of
        true -> open_more(dial(Number, Driver#driver{to_open = Rest}));
        false -> Driver
    end;
open_more(#driver{to_open = [], dialing = 0, share = #{run := Run}} = Driver) ->
    Run ! {opened, self(), Driver#driver.opened, Driver#driver.last_error},
    Driver#driver{phase = waiting};
open_more(Driver) ->
    Driver.

dial(Number, #driver{share = Share, profile = #{timeout := Timeout}, dialing = Dialing} = Driver) ->
    Began = now_ns(),
    {none, Connection} = maps:get(Number, Driver#driver.connections),
    Self = self(),
    _ = spawn_link(fun() -> Self ! {dialed, Number, Began, connect(Share, Number, Timeout, Self)} end),
    store(Number, none, weir_load_connection:opening(Began, Connection), Driver#driver{dialing = Dialing + 1}).

connect(#{address := Address, port := Port, sockets := Sockets}, Number, Timeout, Owner) ->
    Module =
        case Sockets of
            weir -> [{tcp_module, weir_load_family:module(Address)}];
            inet -> weir_load_family:options(Address)
        end,
    Options = Module ++ weir_load_family:source(Address, Number div ?PER_ADDRESS) ++ [
        binary,
        {active, false},
        {nodelay, true},
        %% Otherwise a reset looks like a close.
        {show_econnreset, true},
        {send_timeout, Timeout div ?MILLISECOND},
        {send_timeout_close, true}
    ],
    case gen_tcp:connect(Address, Port, Options, Timeout div ?MILLISECOND) of
        {ok, Socket} ->
            At = now_ns(),
            case gen_tcp:controlling_process(Socket, Owner) of
                ok -> {ok, Socket, At};
                {error, Reason} -> {error, error_kind(Reason)}
            end;
        {error, Reason} ->
            {error, error_kind(Reason)}
    end.

error_kind(econnrefused) -> refused;
error_kind(econnreset) -> reset;
error_kind(epipe) -> reset;
error_kind(etimedout) -> timeout;
error_kind(enotconn) -> closed;
error_kind(Reason) -> Reason.

dialed(Number, _Began, Outcome, #driver{dialing = Dialing} = Before) ->
    Driver = Before#driver{dialing = Dialing - 1},
    #driver{profile = Profile, sample = Sample, numbers = Numbers, opened = Opened} = Driver,
    {none, Connection} = maps:get(Number, Driver#driver.connections),
    case Outcome of
        {ok, Socket, At} ->
            Known = Driver#driver{numbers = Numbers#{Socket => Number}, opened = Opened + 1},
            Step = weir_load_connection:opened(At, Connection, Profile, Sample),
            Stepped = step(Number, Socket, Step, Known),
            case inet:setopts(Socket, [{active, ?ACTIVE}]) of
                ok -> fill(Number, Stepped);
                {error, _} -> lost(Socket, closed, Stepped)
            end;
        {error, Reason} ->
            {Failed, Noted} = weir_load_connection:not_opened(Reason, Connection, Profile, Sample),
            again(abort, Number, Failed, Driver#driver{sample = Noted, last_error = Reason})
    end.

%% The load

go(#{start := Start, window := {From, _} = Window, schedule := Schedule} = Timetable, Driver) ->
    #driver{share = #{number := Number, drivers := Drivers}, profile = Profile} = Driver,
    Next =
        case Schedule of
            none -> done;
            _ -> absolute(Start, weir_load_schedule:next(weir_load_schedule:first(Schedule, Number, Drivers)))
        end,
    Now = now_ns(),
    Running = Driver#driver{
        phase = running,
        profile = Profile#{window := Window},
        timetable = Timetable,
        next = Next,
        second = floor((min(Now, Start) - From) / ?SECOND),
        scan_at = Now
    },
    begin_loop(Running).

absolute(_Start, done) -> done;
absolute(Start, {Due, Arrivals}) -> {Start + Due, Arrivals}.

begin_loop(#driver{share = #{loop := closed, total := Total}, profile = #{arrivals := connection}} = Driver) ->
    #driver{share = #{number := Number, drivers := Drivers}} = Driver,
    %% Here the total is how many requests, each with its connection, are under way at a time.
    lists:foldl(fun start_another/2, Driver, lists:seq(Number, Total, Drivers));
begin_loop(#driver{share = #{loop := closed}, connections = Connections} = Driver) ->
    lists:foldl(fun fill/2, Driver, maps:keys(Connections));
begin_loop(Driver) ->
    Driver.

start_another(_Number, #driver{turn = Turn, share = #{drivers := Drivers}} = Driver) ->
    Now = now_ns(),
    {[], Connection, Sample} =
        weir_load_connection:ask(Now, weir_load_connection:new(Turn), Driver#driver.profile, Driver#driver.sample),
    dial(Turn, store(Turn, none, Connection, Driver#driver{turn = Turn + Drivers, sample = Sample})).

dispatch(0, Driver) ->
    Driver;
dispatch(Burst, #driver{next = {Due, Arrivals}, timetable = #{start := Start}} = Driver) ->
    case now_ns() of
        Now when Due =< Now ->
            Next = absolute(Start, weir_load_schedule:next(Arrivals)),
            dispatch(Burst - 1, arrival(Due, Now, Driver#driver{next = Next}));
        _ ->
            Driver
    end;
dispatch(_Burst, Driver) ->
    Driver.

arrival(Due, Now, #driver{profile = #{arrivals := connection} = Profile, turn = Turn} = Driver) ->
    #driver{share = #{drivers := Drivers}, sample = Before} = Driver,
    {[], Connection, Sample} = weir_load_connection:due(Due, Now, weir_load_connection:new(Turn), Profile, Before),
    dial(Turn, store(Turn, none, Connection, Driver#driver{turn = Turn + Drivers, sample = Sample}));
arrival(Due, Now, #driver{ring = Ring, turn = Turn, profile = Profile, sample = Sample} = Driver) ->
    Number = element(Turn + 1, Ring),
    {Socket, Connection} = maps:get(Number, Driver#driver.connections),
    Step = weir_load_connection:due(Due, Now, Connection, Profile, Sample),
    step(Number, Socket, Step, Driver#driver{turn = (Turn + 1) rem tuple_size(Ring)}).

received(Socket, Data, #driver{numbers = Numbers, profile = Profile, sample = Sample} = Driver) ->
    case Numbers of
        #{Socket := Number} ->
            {Socket, Connection} = maps:get(Number, Driver#driver.connections),
            Now = now_ns(),
            Step = weir_load_connection:received(Data, Now, Connection, Profile, Sample),
            fill(Number, step(Number, Socket, Step, Driver#driver{last_answer = Now}));
        #{} ->
            %% It was closed when this was in the mailbox already.
            Driver
    end.

lost(Socket, Reason, #driver{numbers = Numbers, profile = Profile, sample = Sample} = Driver) ->
    case Numbers of
        #{Socket := Number} ->
            {Socket, Connection} = maps:get(Number, Driver#driver.connections),
            {Closed, Noted} = weir_load_connection:closed(Reason, Connection, Profile, Sample),
            hang_up(abort, Number, Socket, Closed, Driver#driver{sample = Noted});
        #{} ->
            Driver
    end.

%% A closed loop asks as soon as there is room.
fill(Number, #driver{share = #{loop := closed}, phase = running, profile = Profile} = Driver) ->
    #driver{connections = Connections, sample = Sample} = Driver,
    Now = now_ns(),
    case {Profile, Connections} of
        {#{arrivals := request, window := {_, To}}, #{Number := {Socket, Connection}}} when Now < To ->
            case weir_load_connection:room(Connection, Profile) of
                0 -> Driver;
                _ ->
                    Step = weir_load_connection:ask(Now, Connection, Profile, Sample),
                    fill(Number, step(Number, Socket, Step, Driver))
            end;
        _ ->
            Driver
    end;
fill(_Number, Driver) ->
    Driver.

%% Carries out what a connection wants.
step(Number, Socket, {Effects, Connection, Sample}, Driver) ->
    effects(Effects, Number, Socket, Connection, Driver#driver{sample = Sample}).

effects([], Number, Socket, Connection, Driver) ->
    store(Number, Socket, Connection, Driver);
effects([{send, Bytes} | Effects], Number, Socket, Connection, #driver{profile = Profile, sample = Sample} = Driver) ->
    case gen_tcp:send(Socket, Bytes) of
        ok ->
            effects(Effects, Number, Socket, Connection, Driver);
        {error, Reason} ->
            {Closed, Noted} = weir_load_connection:closed(error_kind(Reason), Connection, Profile, Sample),
            hang_up(abort, Number, Socket, Closed, Driver#driver{sample = Noted})
    end;
effects([How], Number, Socket, Connection, Driver) when How =:= close; How =:= abort ->
    hang_up(How, Number, Socket, Connection, Driver).

hang_up(How, Number, Socket, Connection, #driver{profile = Profile, numbers = Numbers} = Driver) ->
    %% A reset leaves no port behind in TIME_WAIT: a minute's connections would use them up.
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    _ = gen_tcp:close(Socket),
    Finished = weir_load_connection:finish(Connection, Profile),
    again(How, Number, Finished, Driver#driver{numbers = maps:remove(Socket, Numbers)}).

%% A connection is opened anew; or, where each request has its own, it is forgotten, and a closed loop begins another.
again(How, Number, Connection, #driver{profile = #{arrivals := connection}, connections = Connections} = Driver) ->
    Forgotten = store(Number, none, Connection, Driver),
    #driver{pending = Pending} = Forgotten,
    Left = Pending - weir_load_connection:pending(Connection),
    another(How, Forgotten#driver{connections = maps:remove(Number, Connections), pending = Left});
again(How, Number, Connection, Driver) ->
    Stored = store(Number, none, Connection, Driver),
    case is_wanted(Connection, Driver) of
        true when How =:= close ->
            dial(Number, Stored);
        true ->
            _ = erlang:send_after(?REST, self(), {dial, Number}),
            Stored;
        false ->
            Stored
    end.

%% After the window only what still waits needs a connection.
is_wanted(Connection, #driver{phase = draining}) -> weir_load_connection:pending(Connection) > 0;
is_wanted(_Connection, _Driver) -> true.

another(How, #driver{share = #{loop := closed}, phase = running, profile = #{window := {_, To}}} = Driver) ->
    case now_ns() < To of
        true when How =:= close ->
            start_another(0, Driver);
        true ->
            _ = erlang:send_after(?REST, self(), {start_another, 0}),
            Driver;
        false ->
            Driver
    end;
another(_How, Driver) ->
    Driver.

store(Number, Socket, Connection, #driver{connections = Connections, pending = Pending} = Driver) ->
    Before =
        case Connections of
            #{Number := {_, Old}} -> weir_load_connection:pending(Old);
            #{} -> 0
        end,
    Driver#driver{
        connections = Connections#{Number => {Socket, Connection}},
        pending = Pending - Before + weir_load_connection:pending(Connection)
    }.

%% Time

%% Says what the seconds that are over have brought.
seconds(Now, #driver{share = #{run := Run}, second = Second, sample = Sample} = Driver) ->
    case end_of_second(Driver) =< Now of
        true ->
            Run ! {sample, self(), Second, weir_load_sample:pack(Sample)},
            seconds(Now, Driver#driver{second = Second + 1, sample = weir_load_sample:new()});
        false ->
            Driver
    end.

scan(Now, #driver{scan_at = ScanAt} = Driver) when Now < ScanAt ->
    Driver;
scan(Now, #driver{pending = 0} = Driver) ->
    Driver#driver{scan_at = Now + ?SCAN};
scan(Now, #driver{connections = Connections} = Driver) ->
    maps:fold(
        fun(Number, {Socket, Connection}, Acc) -> expire(Now, Number, Socket, Connection, Acc) end,
        Driver#driver{scan_at = Now + ?SCAN},
        Connections
    ).

expire(Now, Number, Socket, Connection, #driver{profile = Profile, sample = Sample} = Driver) ->
    case weir_load_connection:pending(Connection) of
        0 -> Driver;
        _ -> step(Number, Socket, weir_load_connection:expire(Now, Connection, Profile, Sample), Driver)
    end.

%% The window is over; what was due in it is waited for, but not for ever.
drain(Now, #driver{timetable = #{window := {_, To}}, profile = #{timeout := Timeout}} = Driver) ->
    case Driver of
        #driver{} when Now < To -> Driver;
        #driver{next = done, pending = 0} -> finish(Driver);
        #driver{} when Now > To + Timeout + 2 * ?SCAN -> finish(Driver);
        #driver{next = done} -> Driver#driver{phase = draining};
        #driver{} -> Driver
    end.

finish(#driver{share = #{run := Run}, profile = Profile, second = Second, sample = Sample} = Driver) ->
    maps:foreach(
        fun(_Number, {Socket, Connection}) ->
            _ = weir_load_connection:finish(Connection, Profile),
            Socket =:= none orelse gen_tcp:close(Socket)
        end,
        Driver#driver.connections
    ),
    Run ! {sample, self(), Second, weir_load_sample:pack(Sample)},
    Run ! {finished, self(), Driver#driver.last_answer},
    Driver#driver{phase = over}.
