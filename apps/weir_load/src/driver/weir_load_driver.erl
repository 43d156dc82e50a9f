%% @doc Drives connections from one process, which is a reactor: one native call sends the writes of all connections
%% and returns their events.
%%
%% A turn makes this call, then handles the events, messages, and what is due by now. After it comes the next turn, or
%% sleep until something happens. The clock is read right after the call: its events count as received at that time,
%% and what they cause to be sent counts as sent then.
%%
%% `weir_load_connections' handles the connections.
-module(weir_load_driver).

-include("weir_load_driver.hrl").

-export([start_link/2]).
-export([init/1]).

-import(weir_load_connections, [step/4]).

-define(SECOND, 1_000_000_000).
-define(MILLISECOND, 1_000_000).

%% Interval of scans for timeouts, and how many connections one turn scans.
-define(SCAN, 100 * ?MILLISECOND).
-define(SCANNED, 256).

%% Most arrivals and most messages handled in one turn.
-define(BURST, 64).
-define(MESSAGES, 64).

%% Most connects at a time while the connections of a run are opened: fewer than the backlog of most servers.
-define(MOST_DIALING, 100).

%% Connections closed in one call, to keep it short.
-define(CLOSED, 64).

%% The minimal heap in words. The garbage of a turn is dead in the next, so a small heap fits into the caches. But
%% every collection visits all connections, so with many the heap is larger, up to 8 MiB, and collections are rare.
-define(HEAP, 32_768).
-define(HEAP_MOST, 1_048_576).
-define(HEAP_PER_CONNECTION, 32).

%% Words of binaries that trigger a collection: 4 MiB.
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
        %% Nothing is due. (`never', an atom, is later than any time.)
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
    weir_load_connections:dial_again(Number, Driver);
message(start_another, #driver{asks = true} = Driver) ->
    weir_load_connections:start_another(Driver);
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

%% Writes and Sample are separate arguments: updating them in the driver would copy it for every event.
events([[Handle | Data] | Events], Now, Writes, Sample, #driver{profile = Profile} = Driver) ->
    case get(Handle) of
        undefined ->
            %% The connection was closed after these bytes had come.
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
    #driver{writes = Later, sample = Counted} =
        Done = event(Event, Now, Driver#driver{writes = Writes, sample = Sample}),
    events(Events, Now, Later, Counted, Done).

event({connected, Handle}, Now, #driver{profile = Profile, sample = Sample} = Driver) ->
    Connection = get(Handle),
    Step = weir_load_connection:opened(Now, Connection, Profile, Sample),
    #driver{dialing = Dialing, opened = Opened} = Driver,
    step(Handle, Connection, Step, Driver#driver{dialing = Dialing - 1, opened = Opened + 1});
event({refused, Handle, Reason}, Now, Driver) ->
    event({closed, Handle, Reason}, Now, Driver);
event({closed, Handle, Reason}, _Now, Driver) ->
    weir_load_connections:lost(Handle, Reason, Driver);
event({writable, _Handle}, _Now, Driver) ->
    Driver;
event({unsent, _Handle, Reason, Data}, _Now, _Driver) ->
    %% A bug in the scenario: crash rather than count it.
    error(Reason, [Data]).

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
                    open_more(Now, weir_load_connections:dial(Number, weir_load_connection:new(Number), Next));
                false ->
                    Driver
            end;
        _ ->
            Driver
    end.

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
        profile = weir_load_profile:asking(
            Loop =:= closed andalso Opens, weir_load_profile:window(Window, Profile)
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
    %% Here `total' is how many requests are under way at a time, each on its own connection.
    #{number := Number, drivers := Drivers, total := Total} = Share,
    lists:foldl(
        fun(_, Started) -> weir_load_connections:start_another(Started) end, Driver, lists:seq(Number, Total, Drivers)
    );
begin_loop(Now, #driver{asks = true} = Driver) ->
    Ask = fun(Key, Asking) -> weir_load_connections:ask(Key, Now, Asking) end,
    lists:foldl(Ask, Driver, weir_load_connections:keys());
begin_loop(_Now, Driver) ->
    Driver.

dispatch(0, _Now, Driver) ->
    Driver;
dispatch(Burst, Now, #driver{next = {Due, Arrivals}, timetable = #{start := Start}} = Driver) when Due =< Now ->
    Next = absolute(Start, weir_load_schedule:next(Arrivals)),
    dispatch(Burst - 1, Now, weir_load_connections:arrival(Due, Now, Driver#driver{next = Next}));
dispatch(_Burst, _Now, Driver) ->
    Driver.

%% Time

%% Handles everything that is due by now.
on_time(_Now, #driver{phase = Phase} = Driver) when Phase =:= over; Phase =:= waiting ->
    Driver;
on_time(Now, #driver{phase = opening} = Driver) ->
    scan(Now, open_more(Now, Driver));
on_time(Now, Driver) ->
    drain(Now, scan(Now, dispatch(?BURST, Now, seconds(Now, Driver)))).

%% Reports the seconds that are over.
seconds(Now, #driver{share = #{run := Run}, second = Second, sample = Sample} = Driver) ->
    case end_of_second(Driver) =< Now of
        true ->
            Run ! {sample, self(), Second, weir_load_sample:pack(Sample)},
            seconds(Now, Driver#driver{second = Second + 1, sample = weir_load_sample:new()});
        false ->
            Driver
    end.

%% Scans some connections at a time: scanning thousands would delay the next arrivals.
scan(Now, #driver{to_scan = [], scan_at = ScanAt} = Driver) when Now < ScanAt ->
    Driver;
scan(Now, #driver{to_scan = [], pending = 0, dialing = 0} = Driver) ->
    Driver#driver{scan_at = Now + ?SCAN};
scan(Now, #driver{to_scan = []} = Driver) ->
    Driver#driver{scan_at = Now + ?SCAN, to_scan = weir_load_connections:keys()};
scan(Now, #driver{to_scan = Keys} = Driver) ->
    scan(?SCANNED, Keys, Now, Driver).

scan(Count, [Key | Keys], Now, Driver) when Count > 0 ->
    scan(Count - 1, Keys, Now, weir_load_connections:expire(Key, Now, Driver));
scan(_Count, Keys, _Now, Driver) ->
    Driver#driver{to_scan = Keys}.

%% After the window, waits for the answers to its requests, at most for the timeout.
drain(Now, #driver{timetable = #{window := {_, To}}, profile = Profile} = Driver) ->
    Longest = To + weir_load_profile:timeout(Profile) + 2 * ?SCAN,
    case Driver of
        #driver{} when Now < To -> Driver;
        #driver{next = done, pending = 0} -> finish(Driver);
        #driver{} when Now > Longest -> finish(expire_all(Now, Driver));
        #driver{next = done} -> asks_no_longer(Driver#driver{phase = draining});
        #driver{} -> asks_no_longer(Driver)
    end.

%% A generator that is late may end before its scans have found all timeouts.
expire_all(Now, Driver) ->
    Expire = fun(Key, Expiring) -> weir_load_connections:expire(Key, Now, Expiring) end,
    lists:foldl(Expire, Driver, weir_load_connections:keys()).

asks_no_longer(#driver{asks = false} = Driver) ->
    Driver;
asks_no_longer(#driver{profile = Profile} = Driver) ->
    Driver#driver{asks = false, profile = weir_load_profile:asking(false, Profile)}.

finish(#driver{share = #{run := Run}, profile = Profile, second = Second, sample = Sample} = Driver) ->
    Keys = weir_load_connections:keys(),
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
