%% @doc Drives connections from one process, which is a reactor: what has come for all of them is taken in one call,
%% which first sends what was asked for on all of them.
%%
%% A turn is such a call, what the events mean, messages, and what is due by now; then the next, or sleep until something
%% comes. The time of a turn is taken once, after its call: it is when the generator has what came, and from when what it
%% sends now is counted.
%%
%% Connections are in the process dictionary: by the handle of the socket, and for a number, negative, the handle, or
%% the connection itself while it has no socket. Finding one costs one look into the table, and changing it no copy of
%% anything else, whether there are ten or twenty thousand.
-module(weir_load_driver).

-export([start_link/2]).
-export([init/1]).

-record(driver, {
    share :: weir_load_engine:share(),
    profile :: weir_load_connection:profile(),
    reactor :: weir_load_reactor:reactor(),
    phase = opening :: opening | waiting | running | draining | over,
    %% For the next call, the last one first.
    writes = [] :: [weir_load_reactor:write()],
    %% Requests that wait, for their turn or for an answer.
    pending = 0 :: non_neg_integer(),
    sample = weir_load_sample:new() :: weir_load_sample:sample(),
    %% While opening: the number that is dialed next, how many are dialed and open, and what went wrong last.
    to_open :: pos_integer(),
    opening_since :: integer(),
    dialed = 0 :: non_neg_integer(),
    dialing = 0 :: non_neg_integer(),
    opened = 0 :: non_neg_integer(),
    last_error = none :: none | atom(),
    %% From `go' on.
    timetable :: weir_load_engine:timetable() | undefined,
    next = done :: {Due :: integer(), weir_load_schedule:arrivals()} | done,
    second = 0 :: integer(),
    %% Whether it is a closed loop in its window.
    asks = false :: boolean(),
    %% When time brings something next.
    wake_at = never :: integer() | never,
    %% When to look next for what has waited too long, and where this look has still to look.
    scan_at :: integer(),
    to_scan = [] :: [key()],
    %% The number of the connection whose turn it is, or of the next one, where each arrival has its own.
    turn :: pos_integer(),
    last_answer = none :: none | integer()
}).

%% Two words for two things, in every write.
-dialyzer({no_improper_lists, [effects/5]}).

%% The handle of a socket, or a number with a minus.
-type key() :: integer().

-define(SECOND, 1_000_000_000).
-define(MILLISECOND, 1_000_000).

%% Between looks for what has waited too long, and how many connections are looked at in one turn.
-define(SCAN, 100 * ?MILLISECOND).
-define(SCANNED, 256).

%% Arrivals and messages of one turn.
-define(BURST, 64).
-define(MESSAGES, 64).

%% Connects at the same time while the connections of a run are opened: fewer than the backlog of most servers.
-define(MOST_DIALING, 100).

%% Milliseconds before a connection that has failed is opened anew: a server that refuses is not to be stormed.
-define(REST, 100).

%% Closed in one call, which stays short.
-define(CLOSED, 64).

%% Words. What a turn makes dies in the next, so the heap fits the caches; but every collection looks at all
%% connections, so with many of them it is larger, up to 8 MiB, and collections are rare.
-define(HEAP, 32_768).
-define(HEAP_MOST, 1_048_576).
-define(HEAP_PER_CONNECTION, 32).

%% Words of binaries on the way that make a collection worth it: 4 MiB.
-define(BINARIES, 524_288).

%% @doc Starts a driver on a node, linked to its run, which is the caller.
-spec start_link(node(), weir_load_engine:share()) -> {ok, pid()}.
start_link(Node, Share) ->
    Memory = [{min_heap_size, ?HEAP}, {min_bin_vheap_size, ?BINARIES}, {message_queue_data, off_heap}],
    {ok, spawn_opt(Node, ?MODULE, init, [Share], [link | Memory])}.

%% @private
-spec init(weir_load_engine:share()) -> ok.
init(#{profile := Profile, number := Number, total := Total, drivers := Drivers} = Share) ->
    {ok, Reactor} = weir_load_reactor:start(),
    _ = process_flag(min_heap_size, max(?HEAP, min(?HEAP_MOST, Total div Drivers * ?HEAP_PER_CONNECTION))),
    Now = now_ns(),
    turn(Now, #driver{
        share = Share,
        profile = Profile,
        reactor = Reactor,
        to_open = Number,
        opening_since = Now,
        scan_at = Now,
        turn = Number
    }).

now_ns() -> erlang:monotonic_time(nanosecond).

%% The loop

loop(#driver{writes = Writes, reactor = Reactor} = Driver) ->
    case weir_load_reactor:react(Writes, Reactor) of
        {[], NewReactor} ->
            turn(now_ns(), Driver#driver{writes = [], reactor = NewReactor});
        {Events, NewReactor} ->
            Now = now_ns(),
            turn(Now, events(Events, Now, [], Driver#driver.sample, Driver#driver{reactor = NewReactor}))
    end.

turn(Now, Driver) ->
    Heard = messages(?MESSAGES, Driver),
    case Heard of
        %% In the midst of a load, with nothing due: an atom is later than any time.
        #driver{phase = running, wake_at = At, writes = [_ | _]} when Now < At -> loop(Heard);
        #driver{phase = running, wake_at = At} when Now < At -> rest(Now, Heard);
        _ -> due_turn(now_ns(), Heard)
    end.

due_turn(Now, Driver) ->
    case on_time(Now, Driver) of
        #driver{phase = over} -> ok;
        #driver{writes = [_ | _]} = Busy -> loop(Busy#driver{wake_at = wake_at(Busy)});
        Idle -> rest(Now, Idle#driver{wake_at = wake_at(Idle)})
    end.

rest(Now, #driver{reactor = Reactor, wake_at = At} = Driver) ->
    case weir_load_reactor:rest(At, Now, Reactor) of
        {ready, NewReactor} -> loop(Driver#driver{reactor = NewReactor});
        {message, Message, NewReactor} -> loop(message(Message, Driver#driver{reactor = NewReactor}))
    end.

wake_at(#driver{phase = opening, dialing = Dialing} = Driver) ->
    case is_all_dialed(Driver) orelse Dialing >= ?MOST_DIALING of
        true -> Driver#driver.scan_at;
        false -> min(dial_at(Driver), Driver#driver.scan_at)
    end;
wake_at(#driver{phase = waiting}) ->
    never;
wake_at(#driver{to_scan = [_ | _]}) ->
    now_ns();
wake_at(#driver{next = Next, scan_at = ScanAt, timetable = #{window := {_, To}}} = Driver) ->
    Other = min(ScanAt, end_of_second(Driver)),
    case Next of
        {Due, _} -> min(Due, Other);
        done when Driver#driver.asks -> min(To, Other);
        done -> Other
    end.

end_of_second(#driver{timetable = #{window := {From, _}}, second = Second}) ->
    From + (Second + 1) * ?SECOND.

messages(0, Driver) ->
    Driver;
messages(Count, Driver) ->
    receive
        Message -> messages(Count - 1, message(Message, Driver))
    after 0 -> Driver
    end.

message(_Message, #driver{phase = over} = Driver) ->
    Driver;
message({dial, Number}, Driver) ->
    Connection = get(-Number),
    case is_wanted(Connection, Driver) of
        true -> dial(Number, Connection, Driver);
        false -> Driver
    end;
message(start_another, #driver{asks = true} = Driver) ->
    start_another(Driver);
message(start_another, Driver) ->
    Driver;
message({go, Timetable}, Driver) ->
    go(Timetable, Driver);
message(stop, Driver) ->
    finish(Driver);
message(Message, #driver{reactor = Reactor} = Driver) ->
    {ok, NewReactor} = weir_load_reactor:message(Message, Reactor),
    Driver#driver{reactor = NewReactor}.

%% Events

%% Writes and sample are apart from the driver, which would be copied for every event.
events([[Handle | Data] | Events], Now, Writes, Sample, #driver{profile = Profile} = Driver) ->
    case get(Handle) of
        undefined ->
            %% It was closed when this had come already.
            events(Events, Now, Writes, Sample, Driver);
        Connection ->
            case weir_load_connection:received(Data, Now, Connection, Profile, Sample) of
                {asked, Bytes, Asked, Counted} ->
                    _ = put(Handle, Asked),
                    events(Events, Now, [[Handle | Bytes] | Writes], Counted, Driver);
                Step ->
                    Received = Driver#driver{writes = Writes, last_answer = Now},
                    #driver{writes = Later, sample = Counted} = Stepped = step(Handle, Connection, Step, Received),
                    events(Events, Now, Later, Counted, Stepped)
            end
    end;
events([], _Now, Writes, Sample, Driver) ->
    Driver#driver{writes = Writes, sample = Sample};
events([Event | Events], Now, Writes, Sample, Driver) ->
    #driver{writes = Later, sample = Counted} = Done = event(Event, Now, Driver#driver{writes = Writes, sample = Sample}),
    events(Events, Now, Later, Counted, Done).

event({connected, Handle}, Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    Connection = get(Handle),
    Step = weir_load_connection:opened(Now, Connection, Profile, Sample),
    #driver{dialing = Dialing, opened = Opened} = Driver,
    step(Handle, Connection, Step, Driver#driver{dialing = Dialing - 1, opened = Opened + 1});
event({refused, Handle, Reason}, Now, Driver) ->
    event({closed, Handle, Reason}, Now, Driver);
event({closed, Handle, Reason}, _Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    case erase(Handle) of
        undefined ->
            Driver;
        Connection ->
            case weir_load_connection:is_open(Connection) of
                true ->
                    {Closed, Noted} = weir_load_connection:closed(error_kind(Reason), Connection, Profile, Sample),
                    ended(abort, Connection, Closed, Driver#driver{sample = Noted});
                false ->
                    not_opened(error_kind(Reason), Connection, Driver)
            end
    end;
event({writable, _Handle}, _Now, Driver) ->
    Driver;
event({unsent, _Handle, Reason, Data}, _Now, _Driver) ->
    %% The scenario's fault, which no count should hide.
    error(Reason, [Data]).

error_kind(econnrefused) -> refused;
error_kind(econnreset) -> reset;
error_kind(etimedout) -> timeout;
error_kind(Reason) -> Reason.

%% Opening

is_all_dialed(#driver{to_open = Next, share = #{total := Total, opens := true}}) -> Next > Total;
is_all_dialed(_Driver) -> true.

dial_at(#driver{share = #{connect_rate := unlimited}, opening_since = Since}) ->
    Since;
dial_at(#driver{share = #{connect_rate := Rate}, dialed = Dialed, opening_since = Since}) ->
    Since + round(Dialed / Rate * ?SECOND).

open_more(Now, #driver{dialing = Dialing, dialed = Dialed, to_open = Number} = Driver) ->
    #driver{share = #{run := Run, drivers := Drivers}} = Driver,
    case is_all_dialed(Driver) of
        true when Dialing =:= 0 ->
            Run ! {opened, self(), Driver#driver.opened, Driver#driver.last_error},
            Driver#driver{phase = waiting};
        false when Dialing < ?MOST_DIALING ->
            case dial_at(Driver) =< Now of
                true ->
                    Next = Driver#driver{to_open = Number + Drivers, dialed = Dialed + 1},
                    open_more(Now, dial(Number, weir_load_connection:new(Number), Next));
                false ->
                    Driver
            end;
        _ ->
            Driver
    end.

dial(Number, Connection, #driver{share = Share, reactor = Reactor, dialing = Dialing} = Driver) ->
    #{address := Address, port := Port} = Share,
    Opening = weir_load_connection:opening(now_ns(), Connection),
    Options = weir_load_family:source(Address, Number) ++ [
        binary,
        {nodelay, true},
        %% A reset leaves no port behind in TIME_WAIT: a minute's connections would use them up.
        {linger, {true, 0}}
    ],
    case weir_load_reactor:connect(Address, Port, Options, Reactor) of
        {ok, Handle} ->
            _ = put(Handle, Opening),
            _ = put(-Number, Handle),
            Driver#driver{dialing = Dialing + 1};
        {error, Reason} ->
            not_opened(error_kind(Reason), Opening, Driver#driver{dialing = Dialing + 1})
    end.

not_opened(Reason, Connection, #driver{profile = Profile, sample = Sample, dialing = Dialing} = Driver) ->
    {Failed, Noted} = weir_load_connection:not_opened(Reason, Connection, Profile, Sample),
    ended(abort, Connection, Failed, Driver#driver{sample = Noted, dialing = Dialing - 1, last_error = Reason}).

%% The load

go(#{start := Start, window := {From, _} = Window, schedule := Schedule} = Timetable, Driver) ->
    #driver{share = #{number := Number, drivers := Drivers, loop := Loop, opens := Opens}, profile = Profile} = Driver,
    Next =
        case Schedule of
            none -> done;
            _ -> absolute(Start, weir_load_schedule:next(weir_load_schedule:first(Schedule, Number, Drivers)))
        end,
    Now = now_ns(),
    begin_loop(Now, Driver#driver{
        phase = running,
        wake_at = Now,
        profile = weir_load_connection:asking(
            Loop =:= closed andalso Opens, weir_load_connection:profile(Window, Profile)
        ),
        timetable = Timetable,
        next = Next,
        second = floor((min(Now, Start) - From) / ?SECOND),
        asks = Loop =:= closed,
        scan_at = Now
    }).

absolute(_Start, done) -> done;
absolute(Start, {Due, Arrivals}) -> {Start + Due, Arrivals}.

begin_loop(_Now, #driver{asks = true, share = #{opens := false} = Share} = Driver) ->
    %% Here the total is how many requests, each with its connection, are under way at a time.
    #{number := Number, drivers := Drivers, total := Total} = Share,
    lists:foldl(fun(_, Started) -> start_another(Started) end, Driver, lists:seq(Number, Total, Drivers));
begin_loop(Now, #driver{asks = true} = Driver) ->
    lists:foldl(fun(Key, Asking) -> ask(Key, Now, Asking) end, Driver, keys());
begin_loop(_Now, Driver) ->
    Driver.

%% Connections, by what they are found with: none twice.
keys() -> [Key || {Key, Connection} <- get(), is_integer(Key), not is_integer(Connection)].

ask(Key, Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    Connection = get(Key),
    step(Key, Connection, weir_load_connection:ask(Now, Connection, Profile, Sample), Driver).

start_another(#driver{profile = Profile, sample = Sample} = Driver) ->
    {Number, Numbered} = next_number(Driver),
    {[], Connection, Counted} =
        weir_load_connection:ask(now_ns(), weir_load_connection:new(Number), Profile, Sample),
    begin_with(Connection, Numbered#driver{sample = Counted}).

%% A connection with a request that waits for it.
begin_with(Connection, #driver{pending = Pending} = Driver) ->
    dial(weir_load_connection:number(Connection), Connection, Driver#driver{pending = Pending + 1}).

next_number(#driver{turn = Number, share = #{drivers := Drivers}} = Driver) ->
    {Number, Driver#driver{turn = Number + Drivers}}.

dispatch(0, _Now, Driver) ->
    Driver;
dispatch(Burst, Now, #driver{next = {Due, Arrivals}, timetable = #{start := Start}} = Driver) when Due =< Now ->
    Next = absolute(Start, weir_load_schedule:next(Arrivals)),
    dispatch(Burst - 1, Now, arrival(Due, Now, Driver#driver{next = Next}));
dispatch(_Burst, _Now, Driver) ->
    Driver.

arrival(Due, Now, #driver{share = #{opens := false}, profile = Profile, sample = Sample} = Driver) ->
    {Number, Numbered} = next_number(Driver),
    {[], Connection, Timed} =
        weir_load_connection:due(Due, Now, weir_load_connection:new(Number), Profile, Sample),
    begin_with(Connection, Numbered#driver{sample = Timed});
arrival(Due, Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    {Number, Numbered} = next_turn(Driver),
    {Key, Connection} =
        case get(-Number) of
            Handle when is_integer(Handle) -> {Handle, get(Handle)};
            Unconnected -> {-Number, Unconnected}
        end,
    step(Key, Connection, weir_load_connection:due(Due, Now, Connection, Profile, Sample), Numbered).

next_turn(#driver{turn = Number, share = #{number := First, drivers := Drivers, total := Total}} = Driver) ->
    case Number + Drivers of
        Next when Next =< Total -> {Number, Driver#driver{turn = Next}};
        _ -> {Number, Driver#driver{turn = First}}
    end.

%% Keeps what has become of a connection, and does what it wants.
step(Key, Before, {Effects, Connection, Sample}, #driver{writes = Writes} = Driver) ->
    _ = put(Key, Connection),
    Pending =
        Driver#driver.pending - weir_load_connection:pending(Before) + weir_load_connection:pending(Connection),
    case Effects of
        [] -> Driver#driver{sample = Sample, pending = Pending};
        [{send, Bytes}] -> Driver#driver{sample = Sample, pending = Pending, writes = [[Key | Bytes] | Writes]};
        _ -> effects(Effects, [], Key, Connection, Driver#driver{sample = Sample, pending = Pending})
    end.

%% Several sends are one write.
effects([{send, Bytes} | Effects], Sent, Handle, Connection, Driver) ->
    effects(Effects, [Bytes | Sent], Handle, Connection, Driver);
effects([How], [], Handle, Connection, #driver{writes = Writes} = Driver) when How =:= close; How =:= abort ->
    _ = erase(Handle),
    ended(How, Connection, Connection, Driver#driver{writes = [Handle | Writes]});
effects(Effects, [_ | _] = Sent, Handle, Connection, #driver{writes = Writes} = Driver) ->
    Sending = Driver#driver{writes = [[Handle | lists:reverse(Sent)] | Writes]},
    case Effects of
        [] -> Sending;
        [_] -> effects(Effects, [], Handle, Connection, Sending)
    end.

%% The socket is gone. `Counted' is the connection as its requests were counted last.
ended(How, Counted, Ended, #driver{profile = Profile, pending = Pending} = Driver) ->
    Connection = weir_load_connection:finish(Ended, Profile),
    Left = Pending - weir_load_connection:pending(Counted) + weir_load_connection:pending(Connection),
    again(How, weir_load_connection:number(Connection), Connection, Driver#driver{pending = Left}).

%% A connection is opened anew; or, where each request has its own, it is forgotten, and a closed loop begins another.
again(How, Number, Connection, #driver{share = #{opens := false}, pending = Pending} = Driver) ->
    _ = erase(-Number),
    another(How, Driver#driver{pending = Pending - weir_load_connection:pending(Connection)});
again(How, Number, Connection, Driver) ->
    _ = put(-Number, Connection),
    case is_wanted(Connection, Driver) of
        true when How =:= close ->
            dial(Number, Connection, Driver);
        true ->
            _ = erlang:send_after(?REST, self(), {dial, Number}),
            Driver;
        false ->
            Driver
    end.

%% After the window only what still waits needs a connection.
is_wanted(Connection, #driver{phase = draining}) -> weir_load_connection:pending(Connection) > 0;
is_wanted(_Connection, _Driver) -> true.

another(_How, #driver{asks = false} = Driver) ->
    Driver;
another(close, Driver) ->
    start_another(Driver);
another(abort, Driver) ->
    _ = erlang:send_after(?REST, self(), start_another),
    Driver.

%% Time

%% What time brings.
on_time(_Now, #driver{phase = Phase} = Driver) when Phase =:= over; Phase =:= waiting ->
    Driver;
on_time(Now, #driver{phase = opening} = Driver) ->
    scan(Now, open_more(Now, Driver));
on_time(Now, Driver) ->
    drain(Now, scan(Now, dispatch(?BURST, Now, seconds(Now, Driver)))).

%% Says what the seconds that are over have brought.
seconds(Now, #driver{share = #{run := Run}, second = Second, sample = Sample} = Driver) ->
    case end_of_second(Driver) =< Now of
        true ->
            Run ! {sample, self(), Second, weir_load_sample:pack(Sample)},
            seconds(Now, Driver#driver{second = Second + 1, sample = weir_load_sample:new()});
        false ->
            Driver
    end.

%% Some connections at a time: looking at thousands would make the next arrivals late.
scan(Now, #driver{to_scan = [], scan_at = ScanAt} = Driver) when Now < ScanAt ->
    Driver;
scan(Now, #driver{to_scan = [], pending = 0, dialing = 0} = Driver) ->
    Driver#driver{scan_at = Now + ?SCAN};
scan(Now, #driver{to_scan = []} = Driver) ->
    Driver#driver{scan_at = Now + ?SCAN, to_scan = keys()};
scan(Now, #driver{to_scan = Keys} = Driver) ->
    scan(?SCANNED, Keys, Now, Driver).

scan(Count, [Key | Keys], Now, Driver) when Count > 0 ->
    scan(Count - 1, Keys, Now, expire(Key, Now, Driver));
scan(_Count, Keys, _Now, Driver) ->
    Driver#driver{to_scan = Keys}.

expire(Key, Now, Driver) ->
    case get(Key) of
        Gone when Gone =:= undefined; is_integer(Gone) -> Driver;
        Connection -> expire(Key, Connection, Now, Driver)
    end.

expire(Key, Connection, Now, #driver{profile = Profile, sample = Sample, share = #{opens := Opens}} = Driver) ->
    case Key > 0 andalso weir_load_connection:is_late(Now, Connection, Profile) of
        true ->
            _ = erase(Key),
            not_opened(timeout, Connection, Driver#driver{writes = [Key | Driver#driver.writes]});
        false ->
            %% A request with a connection of its own fails with its connect.
            case Opens orelse weir_load_connection:is_open(Connection) of
                true -> step(Key, Connection, weir_load_connection:expire(Now, Connection, Profile, Sample), Driver);
                false -> Driver
            end
    end.

%% The window is over; what was due in it is waited for, but not for ever.
drain(Now, #driver{timetable = #{window := {_, To}}, profile = Profile} = Driver) ->
    Longest = To + weir_load_connection:timeout(Profile) + 2 * ?SCAN,
    case Driver of
        #driver{} when Now < To -> Driver;
        #driver{next = done, pending = 0} -> finish(Driver);
        #driver{} when Now > Longest -> finish(Driver);
        #driver{next = done} -> asks_no_longer(Driver#driver{phase = draining});
        #driver{} -> asks_no_longer(Driver)
    end.

asks_no_longer(#driver{asks = false} = Driver) ->
    Driver;
asks_no_longer(#driver{profile = Profile} = Driver) ->
    Driver#driver{asks = false, profile = weir_load_connection:asking(false, Profile)}.

finish(#driver{share = #{run := Run}, profile = Profile, second = Second, sample = Sample} = Driver) ->
    Keys = keys(),
    lists:foreach(fun(Key) -> weir_load_connection:finish(get(Key), Profile) end, Keys),
    close(Keys, [], 0, Driver#driver.reactor),
    Run ! {sample, self(), Second, weir_load_sample:pack(Sample)},
    Run ! {finished, self(), Driver#driver.last_answer},
    Driver#driver{phase = over}.

close([], [], _Count, _Reactor) ->
    ok;
close([Key | Keys], Writes, Count, Reactor) when Count < ?CLOSED ->
    close(Keys, [Key || Key > 0] ++ Writes, Count + 1, Reactor);
close(Keys, Writes, _Count, Reactor) ->
    {_Events, NewReactor} = weir_load_reactor:react(Writes, Reactor),
    close(Keys, [], 0, NewReactor).
