%% @doc Counts what a server does for a request besides using the processor: its futex calls, and where its sockets
%% are on the pollsets. Counting costs time, so after the measurement the server is loaded again for each of the two.
-module(weir_bench_counts).

-export([add/4]).
-export([loads/0]).
-export([futexes_per_s/2]).
-export([places/1]).

-type sample() :: weir_bench_sample:sample().
-type load() :: fun((weir_bench_scenario:run()) -> {ok, sample()} | {error, binary()}).

%% Milliseconds: the shortest load for a count, the interval of perf, and the interval of questions for places.
-define(LEAST, 600).
-define(EVERY, 50).
-define(ASK_EVERY, 250).
%% The connections close in the last intervals of a load, so these do not count.
-define(CLOSING, 2).

%% @doc Returns how often a server with counts is loaded: for the measurement, the futexes and the places.
-spec loads() -> pos_integer().
loads() -> 3.

%% @doc Adds counts to a sample if the run has `counts': calls `Load' to load the servers again. A count that cannot
%% be taken is missing, and a note gives the reason.
-spec add(weir_bench_scenario:run(), [weir_bench_server:server(), ...], load(), {ok, sample()} | {error, binary()}) ->
    {ok, sample()} | {error, binary()}.
add(#{counts := true, duration := Duration} = Run, Servers, Load, {ok, Sample}) ->
    Again = fun() -> Load(Run#{duration := max(?LEAST, Duration)}) end,
    case count_futexes(Servers, Again, Sample) of
        {ok, Counted} -> ask_for_places(Run, Servers, Again, Counted);
        {error, _} = Error -> Error
    end;
add(_Run, _Servers, _Load, Result) ->
    Result.

count_futexes(Servers, Load, Sample) ->
    case os:find_executable("perf") of
        false ->
            {ok, weir_bench_sample:note(<<"futexes were not counted: perf is not installed">>, Sample)};
        Perf ->
            Pids = lists:join(",", [Pid || #{pid := Pid} <- Servers]),
            Program = weir_bench_program:start(
                [
                    Perf,
                    "stat",
                    "-x",
                    ",",
                    "-I",
                    integer_to_list(?EVERY),
                    "-e",
                    "syscalls:sys_enter_futex",
                    "-p",
                    lists:flatten(Pids)
                ],
                []
            ),
            Loaded = Load(),
            Lines = said(Program),
            ok = weir_bench_program:stop(Program),
            with_futexes(Loaded, Lines, Sample)
    end.

with_futexes({ok, #{metrics := #{requests_per_s := PerSecond}}}, Lines, Sample) when PerSecond > 0 ->
    case futexes_per_s(Lines, ?LEAST) of
        {ok, Futexes} ->
            {ok, with_metric(futexes_per_request, Futexes / PerSecond, Sample)};
        none ->
            {ok, weir_bench_sample:note(<<"futexes were not counted: ", (why(Lines))/binary>>, Sample)}
    end;
with_futexes({ok, _}, _Lines, Sample) ->
    {ok, Sample};
with_futexes({error, _} = Error, _Lines, _Sample) ->
    Error.

why(Lines) ->
    case [Line || Line <- Lines, interval(Line) =:= none] of
        [] -> <<"perf printed too few intervals, the machine may be busy">>;
        [Said | _] -> Said
    end.

%% @doc Returns the futexes a second from the lines of `perf stat -I' up to the end of the load, in the middle of its
%% last `Window' milliseconds.
-spec futexes_per_s([binary()], Window :: pos_integer()) -> {ok, float()} | none.
futexes_per_s(Lines, Window) ->
    Counts = [Count || Line <- Lines, {ok, Count} <- [interval(Line)]],
    Most = max(1, Window * 6 div 10 div ?EVERY),
    case length(Counts) - ?CLOSING - Most of
        Before when Before >= 1 ->
            [{From, _} | During] = lists:sublist(Counts, Before, Most + 1),
            {To, _} = lists:last(During),
            {ok, lists:sum([Count || {_, Count} <- During]) / (To - From)};
        _ ->
            none
    end.

%% "     0.050123456,123,,syscalls:sys_enter_futex,...": seconds since the start, and the count since the line before.
interval(Line) ->
    case binary:split(Line, <<",">>, [global]) of
        [Time, Count | _] ->
            case {string:to_float(string:trim(Time)), string:to_integer(Count)} of
                {{At, <<>>}, {Number, <<>>}} when is_float(At), is_integer(Number) -> {ok, {At, Number}};
                %% No thread ran in this interval.
                {{At, <<>>}, _} when is_float(At), Count =:= <<"<not counted>">> -> {ok, {At, 0}};
                _ -> none
            end;
        _ ->
            none
    end.

%% Only Weir's sockets have places, and weir_proxy has no option to print them.
ask_for_places(#{backend := weir, server := Kind}, [#{pid := Pid, program := Program}], Load, Sample) when
    Kind =/= weir_proxy
->
    Asker = spawn_link(fun() -> ask(Pid) end),
    Loaded = Load(),
    true = unlink(Asker),
    true = exit(Asker, kill),
    case Loaded of
        {ok, _} -> {ok, maps:fold(fun with_metric/3, Sample, places(said(Program)))};
        {error, _} = Error -> Error
    end;
ask_for_places(_Run, _Servers, _Load, Sample) ->
    {ok, Sample}.

ask(Pid) ->
    _ = os:cmd("kill -s USR2 " ++ Pid),
    ok = timer:sleep(?ASK_EVERY),
    ask(Pid).

%% @doc Returns the figures of the line of `weir run --places' that counted most connections.
-spec places([binary()]) -> #{weir_bench_sample:metric() => float()}.
places(Lines) ->
    Said = [
        [binary_to_integer(Number) || Number <- string:lexemes(Numbers, " ")]
     || <<"places ", Numbers/binary>> <- Lines
    ],
    case lists:sort([{Seen, Events, Away, Busiest} || [Seen, Away, Events, Busiest] <- Said]) of
        [] ->
            #{};
        Sorted ->
            {Seen, Events, Away, Busiest} = lists:last(Sorted),
            maps:from_list(
                [{away_percent, 100 * Away / Seen} || Seen > 0] ++
                    [{busiest_percent, 100 * Busiest / Events} || Events > 0]
            )
    end.

with_metric(Metric, Value, #{metrics := Metrics} = Sample) ->
    Sample#{metrics := Metrics#{Metric => Value}}.

%% Returns the lines that a running program has printed so far.
said(Program) ->
    {error, {_, Lines}} = weir_bench_program:await(Program, fun(_) -> no end, 0),
    Lines.
