%% @doc Formats waits and turns of processes as text: histograms by powers of two, as SystemTap draws them.
-module(weir_cli_scope_schedules).

-export([cost/2]).
-export([text/1]).

-define(WIDTH, 50).

%% @doc Returns a line about what the measurement costs the node, to print before it.
-spec cost(weir_scope_schedules:tracer(), Seconds :: pos_integer()) -> iodata().
cost(native, Seconds) ->
    io_lib:format(
        "tracing every turn of every process in native code for ~b s, with two reads of the clock: short turns take "
        "longer",
        [Seconds]
    );
cost(otp, Seconds) ->
    io_lib:format(
        "tracing every turn of the ten busiest processes with OTP's tracer for ~b s or 200,000 events: their turns "
        "take about ten times as long",
        [Seconds]
    ).

-spec text(weir_scope_schedules:schedules()) -> iodata().
text(#{events := Events, complete := Complete, running := Running, long := Long, schedulers := Schedulers} = All) ->
    [
        kind(ready, "from ready to running, nanoseconds (a process on each scheduler, once a millisecond)", Schedulers),
        kind(
            between,
            "from the end of a turn to the next, nanoseconds (as sch.stp; without sleeps of 10 ms and more)",
            Schedulers
        ),
        case kind(running, "turns, nanoseconds", Schedulers) of
            [] when Running =/= [] -> ["turns of some processes, nanoseconds\n", drawn(Running), $\n];
            Turns -> Turns
        end,
        [
            io_lib:format("migrations: ~b turns were on another scheduler than the previous turn of the process~n", [
                Migrations
            ])
         || #{migrations := Migrations} <- [All]
        ],
        long(Long),
        case Complete of
            true -> [];
            false -> io_lib:format("~nEnded early, after ~b events.~n", [Events])
        end
    ].

long({ok, []}) ->
    "no turn and no collection took 20 ms\n";
long({ok, Turns}) ->
    ["turns and collections of 20 ms and more\n" | [turn(Turn) || Turn <- Turns]];
long({error, {system_monitor, Other}}) ->
    io_lib:format("long turns: not measured, ~p is the node's system monitor (before OTP 28 there is only one)~n", [
        Other
    ]).

turn(#{kind := Kind, milliseconds := Milliseconds, who := Who} = Turn) ->
    Names = [io_lib:format("  ~0tp", [Name]) || Key <- [label, name], #{Key := Name} <- [Turn]],
    Places = [
        io_lib:format("  ~s ~0tp", [Key, Place])
     || Key <- [in, out], #{Key := Place} <- [Turn], Place =/= undefined
    ],
    io_lib:format("~8b ms  ~-13s ~p~ts~ts~n", [Milliseconds, Kind, Who, Names, Places]).

kind(Kind, Title, Schedulers) ->
    case [{Number, Histogram} || #{scheduler := Number, Kind := Histogram} <- Schedulers, Histogram =/= []] of
        [] ->
            [];
        Histograms ->
            [
                Title,
                $\n,
                [scheduler(Number, Histogram) || {Number, Histogram} <- Histograms],
                drawn(together(Histograms)),
                $\n
            ]
    end.

scheduler(Number, Histogram) ->
    Count = count(Histogram),
    io_lib:format("  scheduler ~b: ~b, half below ~b, 99 % below ~b~n", [
        Number, Count, below(Histogram, (Count + 1) div 2), below(Histogram, (Count * 99 + 99) div 100)
    ]).

count(Histogram) -> lists:sum([Count || {_, Count} <- Histogram]).

below([{From, Count} | _], N) when N =< Count -> 2 * From;
below([{_, Count} | Histogram], N) -> below(Histogram, N - Count).

together(Histograms) ->
    Sums = lists:foldl(
        fun({From, Count}, Known) -> maps:update_with(From, fun(Sum) -> Sum + Count end, Count, Known) end,
        #{},
        lists:append([Histogram || {_, Histogram} <- Histograms])
    ),
    lists:sort(maps:to_list(Sums)).

%% A line for every power of two from the first to the last, also for empty ones.
drawn(Histogram) ->
    {First, Last} = {element(1, hd(Histogram)), element(1, lists:last(Histogram))},
    Most = lists:max([Count || {_, Count} <- Histogram]),
    Known = maps:from_list(Histogram),
    [
        io_lib:format("~12s |~s count~n", ["value", lists:duplicate(?WIDTH, $-)]),
        [
            io_lib:format("~12b |~s ~b~n", [
                From, string:pad(lists:duplicate(round(Count * ?WIDTH / Most), $@), ?WIDTH), Count
            ])
         || From <- powers(First, Last), Count <- [maps:get(From, Known, 0)]
        ]
    ].

powers(From, Last) when From > Last -> [];
powers(From, Last) -> [From | powers(2 * From, Last)].
