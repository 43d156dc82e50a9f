%% @doc What drives connections: the boundary between a run, which knows what to offer and sums up, and the processes
%% that have sockets.
%%
%% A run starts several drivers, each with its share, and links to them. A driver tells its run, in this order:
%%
%%     {opened, Pid, Open, LastError}      all its connections have been tried
%%     {sample, Pid, Second, Packed}       what it has measured until the end of that second of the window, once for each
%%                                         second, in order; those before the window are negative
%%     {finished, Pid, LastAnswer}         with the monotonic nanosecond of its last answer, or `none'
%%
%% A driver that has said `opened' waits for {@link go/2}. {@link stop/1} ends it at once, with what it has measured.
-module(weir_load_engine).

-export([go/2]).
-export([stop/1]).

-export_type([share/0, timetable/0, event/0]).

%% `number' is that of its first connection, `drivers' the step to the next. `total' is that of all drivers: their
%% connections, or, where each request has a connection of its own, which are not opened before the load, the requests
%% of a closed loop that are under way at a time.
-type share() :: #{
    run := pid(),
    number := pos_integer(),
    drivers := pos_integer(),
    total := non_neg_integer(),
    %% Connects a second, of this driver.
    connect_rate := number() | unlimited,
    address := inet:ip_address(),
    port := inet:port_number(),
    opens := boolean(),
    profile := weir_load_profile:profile(),
    loop := open | closed | none
}.

%% Monotonic nanoseconds of the driver's node. Arrivals are counted from `start', the warm-up included.
-type timetable() :: #{
    start := integer(),
    window := {From :: integer(), To :: integer()},
    schedule := weir_load_schedule:schedule() | none
}.

-type event() ::
    {opened, pid(), non_neg_integer(), none | weir_load_scenario:error()}
    | {sample, pid(), integer(), weir_load_sample:packed()}
    | {finished, pid(), LastAnswer :: none | integer()}.

%% @doc Tells a driver when to do what.
-spec go(pid(), timetable()) -> ok.
go(Driver, Timetable) ->
    Driver ! {go, Timetable},
    ok.

%% @doc Ends a driver, which says that it has finished.
-spec stop(pid()) -> ok.
stop(Driver) ->
    Driver ! stop,
    ok.
