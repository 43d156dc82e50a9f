%% @doc The interface between a run, which decides what to offer and sums up, and the drivers, which have the sockets.
%%
%% A run starts several drivers, each with its share, and links to them. A driver sends these messages to its run, in
%% this order:
%%
%%     {opened, Pid, Open, LastError}      it has tried to open all its connections
%%     {sample, Pid, Second, Packed}       what it has measured in this second of the window; one for each second, in
%%                                         order; seconds before the window are negative
%%     {finished, Pid, LastAnswer}         the monotonic time of its last answer in nanoseconds, or `none'
%%
%% After `opened' a driver waits for {@link go/2}. {@link stop/1} ends it at once; it still sends its last sample.
-module(weir_load_engine).

-export([go/2]).
-export([stop/1]).

-export_type([share/0, timetable/0, event/0]).

%% `number' is the number of its first connection, `drivers' the step to the next. `total' counts over all drivers:
%% their connections, or, if each request has its own connection, how many requests of a closed loop are under way at a
%% time. `opens': connections are opened before the load.
-type share() :: #{
    run := pid(),
    number := pos_integer(),
    drivers := pos_integer(),
    total := non_neg_integer(),
    %% Connects per second of this driver.
    connect_rate := number() | unlimited,
    address := inet:ip_address(),
    port := inet:port_number(),
    opens := boolean(),
    profile := weir_load_profile:profile(),
    loop := open | closed | none
}.

%% Monotonic time of the driver's node in nanoseconds. The schedule begins at `start' and includes the warm-up.
-type timetable() :: #{
    start := integer(),
    window := {From :: integer(), To :: integer()},
    schedule := weir_load_schedule:schedule() | none
}.

-type event() ::
    {opened, pid(), non_neg_integer(), none | weir_load_scenario:error()}
    | {sample, pid(), integer(), weir_load_sample:packed()}
    | {finished, pid(), LastAnswer :: none | integer()}.

%% @doc Gives a driver its timetable.
-spec go(pid(), timetable()) -> ok.
go(Driver, Timetable) ->
    Driver ! {go, Timetable},
    ok.

%% @doc Ends a driver. It still sends `finished'.
-spec stop(pid()) -> ok.
stop(Driver) ->
    Driver ! stop,
    ok.
