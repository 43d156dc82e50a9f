%% @doc A run: starts drivers, gives them a timetable, and sums up what they have measured.
-module(weir_load_run).

-export([run/2]).

-export_type([plan/0, news/0, outcome/0]).

%% Times are nanoseconds. `options' go to the scenario's `init'. If each request has its own connection, `connections'
%% is 0.
-type plan() :: #{
    scenario := module(),
    options := #{atom() => term()},
    address := inet:ip_address(),
    port := inet:port_number(),
    load := {open, [weir_load_schedule:segment()], weir_load_schedule:pattern()} | {closed, pos_integer()} | none,
    connections := non_neg_integer(),
    connect_rate := number() | unlimited,
    depth := pos_integer(),
    duration := pos_integer(),
    warmup := non_neg_integer(),
    timeout := pos_integer(),
    %% Drivers on each node.
    drivers := pos_integer(),
    %% The nodes that offer the load.
    nodes := [node(), ...],
    observe := none | weir_load_observer:target()
}.

%% Progress, for a display.
-type news() ::
    {opening, Connections :: non_neg_integer()}
    | warming_up
    | {second, weir_load_second:second()}.

-type outcome() :: #{
    total := weir_load_sample:measured(),
    seconds := [weir_load_second:second()],
    %% Arrivals that were due in the window by the schedule.
    offered := none | non_neg_integer(),
    %% Nanoseconds: the window, and from its start to its end or to the last answer, if that came later.
    window := pos_integer(),
    elapsed := pos_integer(),
    interrupted := boolean()
}.

-record(run, {
    plan :: plan(),
    show :: fun((news()) -> ok),
    %% Running drivers, with the second of their last sample.
    drivers :: #{pid() => integer()},
    %% Nanoseconds by which the clocks of nodes are ahead of ours.
    offsets :: #{node() => integer()},
    schedule :: none | weir_load_schedule:schedule(),
    start :: integer(),
    from :: integer(),
    to :: integer(),
    %% Seconds that some drivers have not reported yet.
    open = #{} :: #{integer() => weir_load_sample:measured()},
    total = weir_load_sample:empty() :: weir_load_sample:measured(),
    seconds = [] :: [weir_load_second:second()],
    observer :: none | weir_load_observer:observer(),
    observed = #{} :: #{integer() => weir_load_observer:observation()},
    %% The last second for which the server was observed. A second is shown together with its observation.
    looked :: integer(),
    last_answer :: integer(),
    interrupted = false :: false | {true, At :: integer()}
}).

%% Descriptors that the VM needs for other things.
-define(OTHER_DESCRIPTORS, 64).

%% Later than any second.
-define(LAST, (1 bsl 60)).

-define(SECOND, 1_000_000_000).
-define(MILLISECOND, 1_000_000).

%% From opening the last connection to the first arrival, so that every driver has its timetable by then.
-define(HEAD_START, 100 * ?MILLISECOND).

%% @doc Runs a load. The message `stop' ends it early and returns what was measured until then, or an error if the load
%% has not begun. Links to the drivers, so call it in its own process. `unoffered': the nodes cannot hold so many
%% connections.
-spec run(plan(), fun((news()) -> ok)) -> {ok, outcome()} | {error, iodata()} | {unoffered, iodata()}.
run(#{scenario := Scenario, options := Options} = Plan, Show) ->
    case {Scenario:init(Options), observer(Plan), ready(Plan)} of
        {{error, _} = Error, _, _} -> Error;
        {_, {error, _} = Error, _} -> Error;
        {{ok, Config}, {ok, Observer}, ok} -> open(Plan, Config, Observer, Show);
        {_, _, NotReady} -> NotReady
    end.

%% Checks that each node can hold its share of the connections.
ready(#{nodes := Nodes, connections := Connections}) ->
    Answers = [weir_load_nodes:ready(Node) || Node <- Nodes],
    case [Error || {error, _} = Error <- Answers] of
        [Error | _] -> Error;
        [] -> enough(Connections, length(Nodes), lists:min([Most || {ok, #{descriptors := Most}} <- Answers]))
    end.

enough(Connections, Nodes, Most) ->
    Each = max(1, Most - ?OTHER_DESCRIPTORS),
    case (Connections + Each - 1) div Each of
        Needed when Needed =< Nodes ->
            ok;
        Needed ->
            Format =
                "~b connections need as many descriptors, but a process may open only ~b (ulimit -n): "
                "use --local-nodes ~b to share them among processes",
            {unoffered, io_lib:format(Format, [Connections, Most, Needed])}
    end.

observer(#{observe := none}) -> {ok, none};
observer(#{observe := Target}) -> weir_load_observer:new(Target).

open(#{connections := Connections} = Plan, Config, Observer, Show) ->
    Show({opening, Connections}),
    case reaches(Plan) of
        ok ->
            Drivers = start_drivers(Plan, Config),
            case opened(Drivers, 0, none) of
                {0, Reason} when Connections > 0 ->
                    lists:foreach(fun weir_load_engine:stop/1, Drivers),
                    cannot_connect(Plan, Reason);
                interrupted ->
                    lists:foreach(fun weir_load_engine:stop/1, Drivers),
                    {error, "interrupted before the load began"};
                {_, _} ->
                    {ok, load(Plan, Drivers, Observer, Show)}
            end;
        {error, Reason} ->
            cannot_connect(Plan, Reason)
    end.

%% If no connection is opened before the load, tries one, so that an unreachable server is one clear error.
reaches(#{connections := 0, address := Address, port := Port, timeout := Timeout}) ->
    Options = weir_load_family:options(Address) ++ [{linger, {true, 0}}],
    case gen_tcp:connect(Address, Port, Options, Timeout div ?MILLISECOND) of
        {ok, Socket} -> gen_tcp:close(Socket);
        {error, _} = Error -> Error
    end;
reaches(_Plan) ->
    ok.

cannot_connect(#{address := Address, port := Port}, Reason) ->
    Text =
        case Reason of
            refused -> "connection refused";
            reset -> "connection reset";
            timeout -> "no answer in time";
            none -> "no connection could be opened";
            _ -> inet:format_error(Reason)
        end,
    {error, ["cannot connect to ", inet:ntoa(Address), " port ", integer_to_list(Port), ": ", Text]}.

start_drivers(Plan, Config) ->
    #{drivers := EachNode, nodes := Nodes, connections := Connections, scenario := Scenario} = Plan,
    Wanted = EachNode * length(Nodes),
    #{arrivals := Arrivals, held := Held} = weir_load_scenario:describe(Scenario, maps:get(options, Plan)),
    {Loop, Total} =
        case Plan of
            #{load := {closed, Concurrency}} when Arrivals =:= connection -> {closed, Concurrency};
            #{load := {closed, _}} -> {closed, Connections};
            #{load := {open, _, _}} -> {open, Connections};
            #{load := none} -> {none, Connections}
        end,
    %% No driver without connections.
    Count =
        case Total of
            0 -> Wanted;
            _ -> min(Wanted, Total)
        end,
    Rate =
        case Plan of
            #{connect_rate := unlimited} -> unlimited;
            #{connect_rate := PerSecond} -> PerSecond / Count
        end,
    Profile = weir_load_profile:new(#{
        scenario => Scenario,
        config => Config,
        arrivals => Arrivals,
        held => Held,
        depth => maps:get(depth, Plan),
        timeout => maps:get(timeout, Plan)
    }),
    [
        begin
            {ok, Driver} = weir_load_driver:start_link(
                lists:nth(1 + Number rem length(Nodes), Nodes),
                (maps:with([address, port], Plan))#{
                    run => self(),
                    number => Number,
                    drivers => Count,
                    total => Total,
                    connect_rate => Rate,
                    opens => Arrivals =/= connection,
                    profile => Profile,
                    loop => Loop
                }
            ),
            Driver
        end
     || Number <- lists:seq(1, Count)
    ].

opened([], Open, Reason) ->
    {Open, Reason};
opened([Driver | Drivers], Sum, Before) ->
    receive
        {opened, Driver, Open, none} -> opened(Drivers, Sum + Open, Before);
        {opened, Driver, Open, Reason} -> opened(Drivers, Sum + Open, Reason);
        stop -> interrupted
    end.

load(#{warmup := Warmup, duration := Duration} = Plan, Drivers, Observer, Show) ->
    Offsets = maps:from_list([{Node, weir_load_nodes:offset(Node)} || Node <- maps:get(nodes, Plan)]),
    Start = erlang:monotonic_time(nanosecond) + ?HEAD_START,
    From = Start + Warmup,
    To = From + Duration,
    Schedule = schedule(Plan),
    lists:foreach(
        fun(Driver) ->
            Offset = maps:get(node(Driver), Offsets),
            Window = {From + Offset, To + Offset},
            weir_load_engine:go(Driver, #{start => Start + Offset, window => Window, schedule => Schedule})
        end,
        Drivers
    ),
    _ = Warmup > 0 andalso Show(warming_up),
    Run = #run{
        plan = Plan,
        show = Show,
        drivers = maps:from_list([{Driver, -?LAST} || Driver <- Drivers]),
        offsets = Offsets,
        schedule = Schedule,
        start = Start,
        from = From,
        to = To,
        observer = Observer,
        looked = case Observer of none -> ?LAST; _ -> -1 end,
        last_answer = From
    },
    observe_at(0, Run),
    measure(Run).

%% The warm-up has the rate of the window's beginning.
schedule(#{load := {open, [First | _] = Segments, Pattern}, warmup := Warmup}) ->
    Rate = weir_load_schedule:rate_at(weir_load_schedule:new([First]), 0),
    weir_load_schedule:new([{constant, Rate, Warmup} || Warmup > 0] ++ Segments, Pattern);
schedule(_Closed) ->
    none.

measure(#run{drivers = Drivers, looked = Looked, from = From, to = To, interrupted = Interrupted} = Run) when
    map_size(Drivers) =:= 0
->
    %% The last observation is due at the end of the window, when the drivers end too: wait for it.
    case Interrupted =/= false orelse Looked >= (To - From) div ?SECOND - 1 of
        true -> outcome(tell(Run#run{looked = ?LAST}));
        false -> receive {observe, Second} -> measure(observe(Second, Run)) end
    end;
measure(#run{drivers = Drivers, open = Open, last_answer = LastAnswer} = Run) ->
    receive
        {sample, Driver, Second, Packed} ->
            Sum = weir_load_sample:merge(Packed, sum_of(Second, Open)),
            measure(tell(Run#run{drivers = Drivers#{Driver => Second}, open = Open#{Second => Sum}}));
        {finished, Driver, Last} ->
            Left = tell(Run#run{drivers = maps:remove(Driver, Drivers)}),
            case Last of
                none -> measure(Left);
                _ -> measure(Left#run{last_answer = max(Last - maps:get(node(Driver), Run#run.offsets), LastAnswer)})
            end;
        {observe, Second} ->
            measure(tell(observe(Second, Run)));
        stop ->
            lists:foreach(fun weir_load_engine:stop/1, maps:keys(Drivers)),
            Now = erlang:monotonic_time(nanosecond),
            measure(Run#run{interrupted = {true, Now}})
    end.

sum_of(Second, Open) ->
    case Open of
        #{Second := Sum} -> Sum;
        #{} -> weir_load_sample:empty()
    end.

observe_at(_Second, #run{observer = none}) ->
    ok;
observe_at(Second, #run{from = From}) ->
    At = erlang:convert_time_unit(From + Second * ?SECOND, nanosecond, millisecond),
    _ = erlang:send_after(At, self(), {observe, Second}, [{abs, true}]),
    ok.

%% Observed at the beginning of a second, for the second before.
observe(Second, #run{observer = Observer, observed = Observed} = Run) ->
    observe_at(Second + 1, Run),
    Looked = Run#run{looked = Second - 1},
    case weir_load_observer:observe(Observer) of
        {ok, Observation, Later} -> Looked#run{observer = Later, observed = Observed#{Second - 1 => Observation}};
        {gone, Later} -> Looked#run{observer = Later}
    end.

%% Closes the seconds that all drivers and the observer have reported.
tell(#run{drivers = Drivers, looked = Looked, open = Open, show = Show} = Run) ->
    Latest = lists:min([Looked | maps:values(Drivers)]),
    case lists:sort([Second || Second <- maps:keys(Open), Second =< Latest]) of
        [] ->
            Run;
        [First | _] ->
            {Sum, Rest} = maps:take(First, Open),
            %% Before add_up, which reuses Sum.
            Seconds =
                case First >= 0 andalso second(First, Sum, Run) of
                    #{answered := 0, pushed := 0, error_count := 0} when First * ?SECOND >= Run#run.to - Run#run.from ->
                        %% A second after the window in which nothing happened is not shown.
                        Run#run.seconds;
                    #{} = Second ->
                        Show({second, Second}),
                        [Second | Run#run.seconds];
                    false ->
                        Run#run.seconds
                end,
            tell(Run#run{open = Rest, seconds = Seconds, total = weir_load_sample:add_up(Sum, Run#run.total)})
    end.

second(Number, Sum, #run{observed = Observed, from = From} = Run) ->
    weir_load_second:new(
        Number,
        offered(From + Number * ?SECOND, From + (Number + 1) * ?SECOND, Run),
        maps:get(Number, Observed, none),
        Sum
    ).

%% Arrivals that were due between two times, within the window.
offered(_Since, _Until, #run{schedule = none}) ->
    none;
offered(Since, Until, #run{schedule = Schedule, start = Start, from = From, to = To}) ->
    Due = fun(Time) -> weir_load_schedule:due_until(Schedule, max(From, min(Time, To)) - Start) end,
    Due(Until) - Due(Since).

outcome(#run{from = From, to = To, last_answer = LastAnswer, interrupted = Interrupted} = Run) ->
    {End, IsInterrupted} =
        case Interrupted of
            %% A driver may go on for a moment after `stop': include its last answers.
            {true, At} -> {max(From + 1, min(max(At, LastAnswer), To)), true};
            false -> {To, false}
        end,
    #{
        total => Run#run.total,
        seconds => lists:reverse(Run#run.seconds),
        offered => offered(From, End, Run),
        window => End - From,
        elapsed => max(End, LastAnswer) - From,
        interrupted => IsInterrupted
    }.
