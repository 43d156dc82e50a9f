%% @doc Runs the scenarios of the suite and records their results.
-module(weir_bench_matrix).

-export([list/2]).
-export([run/2]).

%% @doc Lists the scenarios by chapter, each with its approximate time for this many rounds, and the sets.
-spec list(weir_bench_suite:suite(), Rounds :: pos_integer()) -> unicode:chardata().
list(#{chapters := Chapters, scenarios := Scenarios, sets := Sets}, Rounds) ->
    Width = lists:max([length(atom_to_list(Name)) || #{name := Name} <- Scenarios]),
    [
        [
            [Title, io_lib:format(" (~s)~n", [Chapter])],
            [
                io_lib:format("  ~s   ~ts; ~b contestants, ~b s~n", [
                    string:pad(atom_to_list(Name), Width), About, length(Contestants),
                    ceil(weir_bench_scenario:seconds(Rounds, Scenario))
                ])
             || #{name := Name, chapter := In, title := About, contestants := Contestants} = Scenario <- Scenarios,
                In =:= Chapter
            ],
            "\n"
        ]
     || {Chapter, Title} <- Chapters
    ] ++
        [
            io_lib:format("~s: ~ts~n", [Set, lists:join(", ", [atom_to_list(Name) || Name <- Names])])
         || {Set, Names} <- Sets, not lists:keymember(Set, 1, Chapters)
        ] ++
        [io_lib:format("~nAll of them, ~b rounds: about ~b minutes~n", [Rounds, minutes(Rounds, Scenarios)])].

minutes(Rounds, Scenarios) ->
    ceil(lists:sum([weir_bench_scenario:seconds(Rounds, Scenario) || Scenario <- Scenarios]) / 60).

%% @doc Runs the scenarios of `only', or all, `repeat' rounds each. After every measurement it writes
%% DATE-otpRELEASE.json, .md and .html to `results'. With a `name' the files are called DATE-NAME-otpRELEASE, and
%% curves are also drawn into DATE-NAME-otpRELEASE-SCENARIO.svg. `pinning' describes how these scenarios are pinned. A
%% failed measurement is recorded and does not stop the others, but the run fails.
-spec run(weir_bench_suite:suite(), #{
    repeat := pos_integer(),
    quick := boolean(),
    only => [weir_bench_scenario:name()],
    results => file:filename(),
    name => string(),
    pinning => binary(),
    _ => _
}) -> ok | {failed, iodata()}.
run(Suite, #{repeat := Rounds, quick := Quick} = Options) ->
    Scenarios = [shortened(Scenario, Quick) || Scenario <- chosen(Suite, Options)],
    Directory = maps:get(results, Options, weir_bench_tree:results()),
    case weir_bench_tree:missing() of
        [] ->
            Stem = stem(Directory, [["-", Name] || #{name := Name} <- [Options]]),
            Record = #{
                suite => Suite,
                machine => maps:merge(weir_bench_machine:description(), maps:with([pinning], Options)),
                started => list_to_binary(calendar:system_time_to_rfc3339(erlang:system_time(second))),
                rounds => Rounds,
                quick => Quick,
                complete => false,
                scenarios => []
            },
            %% The empty record is written first, so that an unwritable directory fails before anything is measured.
            case create(Record, Stem) of
                ok -> measure(Scenarios, Rounds, Record, Stem);
                {error, Reason} -> {failed, ["cannot write to ", Directory, ": ", file:format_error(Reason)]}
            end;
        Missing ->
            {failed, Missing}
    end.

chosen(#{scenarios := Scenarios}, #{only := Names}) ->
    [Scenario || #{name := Name} = Scenario <- Scenarios, lists:member(Name, Names)];
chosen(#{scenarios := Scenarios}, _) ->
    Scenarios.

shortened(Scenario, true) -> weir_bench_scenario:quick(Scenario);
shortened(Scenario, false) -> Scenario.

measure(Scenarios, Rounds, #{machine := #{pinning := Pinning}} = Record, Stem) ->
    io:format("~ts~n~b scenarios, ~b rounds: about ~b minutes~n", [
        Pinning, length(Scenarios), Rounds, minutes(Rounds, Scenarios)
    ]),
    io:format("results are written to ~ts.json, .md and .html~n", [Stem]),
    Cores = weir_bench_machine:cores(),
    #{scenarios := Measured} = Whole = lists:foldl(
        fun(Scenario, #{scenarios := Before} = SoFar) ->
            Add = fun(Results) -> SoFar#{scenarios := Before ++ [{Scenario, Results}]} end,
            OfThis = weir_bench_scenario:rounds(Rounds, Scenario),
            Left = minutes(Rounds, lists:nthtail(length(Before), Scenarios)),
            Results = weir_bench_rounds:run(
                Scenario, OfThis, Cores,
                fun(Contestant, Round) ->
                    progress(Scenario, Contestant, Round, OfThis, {length(Before), length(Scenarios), Left})
                end,
                fun(Results) -> ok = write(Add(Results), Stem) end
            ),
            Add(Results)
        end,
        Record,
        Scenarios
    ),
    ok = write(Whole#{complete := true}, Stem),
    weir_bench_progress:clear(),
    io:put_chars(weir_bench_report:missed(weir_bench_results:document(Whole))),
    io:format("done: ~ts.html~n", [Stem]),
    case [Reason || {_, Results} <- Measured, {_, Measurements} <- Results, {error, Reason} <- Measurements] of
        [] -> ok;
        [First | _] = Failures ->
            {failed, io_lib:format("~b measurements failed, the first: ~ts", [length(Failures), First])}
    end.

progress(#{title := Title}, #{title := Contestant}, Round, Rounds, {Done, All, Left}) ->
    weir_bench_progress:show("~b/~b, ~b minutes left; ~ts: round ~b of ~b, ~ts", [
        Done + 1, All, Left, Title, Round, Rounds, Contestant
    ]).

create(Record, Stem) ->
    case filelib:ensure_dir(Stem) of
        ok -> write(Record, Stem);
        {error, _} = Error -> Error
    end.

write(Record, Stem) ->
    #{<<"scenarios">> := Scenarios} = Document = weir_bench_results:document(Record),
    Curves = [
        {lists:concat([Stem, "-", binary_to_list(Name), ".svg"]), Svg}
     || #{<<"over">> := _, <<"name">> := Name} = Scenario <- Scenarios, {ok, Svg} <- [weir_bench_chart:svg(Scenario)]
    ],
    written([
        {Stem ++ ".json", weir_bench_results:text(Document)},
        {Stem ++ ".md", weir_bench_report:markdown(Document)},
        {Stem ++ ".html", weir_bench_page:html(Document)}
        | Curves
    ]).

written([]) -> ok;
written([{File, Text} | Files]) ->
    case weir_bench_tree:replace(File, unicode:characters_to_binary(Text)) of
        ok -> written(Files);
        {error, _} = Error -> Error
    end.

%% The name has today's date and this release, and a number if such files exist, which are kept.
stem(Directory, Name) ->
    {{Year, Month, Day}, _} = calendar:local_time(),
    Base = io_lib:format("~4..0b-~2..0b-~2..0b~s-otp~s", [Year, Month, Day, Name, erlang:system_info(otp_release)]),
    number(filename:join(Directory, Base), 1).

number(Base, Number) ->
    Stem = case Number of 1 -> Base; _ -> Base ++ "-" ++ integer_to_list(Number) end,
    case filelib:is_file(Stem ++ ".json") of
        true -> number(Base, Number + 1);
        false -> Stem
    end.
