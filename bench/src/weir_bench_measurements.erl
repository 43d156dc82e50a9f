%% @doc Writes figures into documents that are otherwise written by hand: the text between `<!-- NAME -->' and `<!--
%% /NAME -->' is generated from results. NAME is one of these:
%% <dl>
%% <dt>a table of `priv/comparisons.config'</dt><dd>that table</dd>
%% <dt>a scenario</dt><dd>all its contestants, with a table for each release</dd>
%% <dt>a chapter of the suite</dt><dd>all its scenarios without a place of their own</dd>
%% <dt>`results'</dt><dd>the runs and their machines</dd>
%% <dt>`targets'</dt><dd>how many targets were met</dd>
%% <dt>`conformance'</dt><dd>what OTP's own suites say</dd>
%% </dl>
%% Charts that a document shows are drawn again.
-module(weir_bench_measurements).

-export([update/0]).
-export([contents/0]).
-export([places/1]).
-export([fill/2]).

-export_type([sources/0]).

%% What documents are made from. Results are pairs of a file name and a document, in the order of their runs.
-type sources() :: #{
    results := [{string(), weir_bench_results:document()}],
    suite := weir_bench_suite:suite(),
    comparisons := weir_bench_comparison:comparisons(),
    %% The results of OTP's suites.
    conformance := binary()
}.

%% More columns would not fit into a page.
-define(METRICS, 5).

%% @doc Writes the results in the tree into the documents, and their charts beside them. If two files of one OTP
%% release have the same scenario, the later run counts.
-spec update() -> {ok, [Written :: file:filename()]} | {error, iodata()}.
update() ->
    case contents() of
        {ok, Contents} -> write(Contents);
        {error, _} = Error -> Error
    end.

%% @doc Returns the files that {@link update/0} writes, with their contents.
-spec contents() -> {ok, [{file:filename(), binary()}]} | {error, iodata()}.
contents() ->
    case sources(filelib:wildcard(filename:join(weir_bench_tree:results(), "*.json"))) of
        {ok, Sources} -> contents(weir_bench_tree:measurements(), Sources, []);
        {error, _} = Error -> Error
    end.

contents([], _Sources, Contents) ->
    {ok, Contents};
contents([File | Files], Sources, Contents) ->
    case file:read_file(File) of
        {ok, Text} ->
            case fill(Text, Sources) of
                {ok, Filled, Pictures} ->
                    Charts = filename:join(filename:dirname(File), "measurements"),
                    Drawn = [{filename:join(Charts, Name), Svg} || {Name, Svg} <- Pictures],
                    contents(Files, Sources, Contents ++ [{File, Filled} | Drawn]);
                {error, Reason} ->
                    {error, [File, ": ", Reason]}
            end;
        {error, Reason} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

sources(Files) ->
    Read = [
        weir_bench_suite:read(), weir_bench_scaling:read(), weir_bench_comparison:read(),
        file:read_file(weir_bench_tree:conformance())
        | [weir_bench_results:read(File) || File <- Files]
    ],
    case [Error || {error, _} = Error <- Read] of
        [] ->
            [{ok, #{scenarios := Scenarios} = Suite}, {ok, #{scenarios := OverSchedulers}} | _] = Read,
            [_, _, {ok, Comparisons}, {ok, Conformance} | Results] = Read,
            Named = [
                {filename:basename(File), Document}
             || {File, {ok, Document}} <- lists:zip(Files, Results)
            ],
            {ok, #{
                results => lists:sort(fun({_, A}, {_, B}) -> started(A) =< started(B) end, Named),
                suite => Suite#{scenarios := Scenarios ++ OverSchedulers},
                comparisons => Comparisons,
                conformance => Conformance
            }};
        [{error, Reason} | _] when is_atom(Reason) ->
            {error, ["cannot read ", weir_bench_tree:conformance(), ": ", file:format_error(Reason)]};
        [Error | _] ->
            Error
    end.

started(#{<<"started">> := Started}) -> Started.

write(Files) ->
    lists:foldl(
        fun
            ({File, Content}, {ok, Written}) ->
                ok = filelib:ensure_dir(File),
                case weir_bench_tree:replace(File, Content) of
                    ok -> {ok, Written ++ [File]};
                    {error, Reason} -> {error, ["cannot write ", File, ": ", file:format_error(Reason)]}
                end;
            (_, Error) ->
                Error
        end,
        {ok, []},
        Files
    ).

%% @doc Returns the names of the places in a text, in order; an error if one has no end.
-spec places(binary()) -> {ok, [binary()]} | {error, iodata()}.
places(Text) ->
    case re:run(Text, "<!-- (/?[a-z0-9-]+) -->", [global, {capture, all_but_first, binary}]) of
        nomatch -> {ok, []};
        {match, Marks} -> pairs([Mark || [Mark] <- Marks])
    end.

pairs([]) ->
    {ok, []};
pairs([Name, <<"/", Name/binary>> | Marks]) ->
    case pairs(Marks) of
        {ok, Names} -> {ok, [Name | Names]};
        {error, _} = Error -> Error
    end;
pairs([Mark | _]) ->
    {error, ["<!-- ", Mark, " --> is not closed, not opened, or contains another"]}.

%% @doc Fills the places of a text and draws its charts.
-spec fill(binary(), sources()) -> {ok, binary(), [{file:filename(), Svg :: binary()}]} | {error, iodata()}.
fill(Text, Sources) ->
    case places(Text) of
        {ok, Names} ->
            Fill = fun(Name, SoFar) -> fill(Name, Names, SoFar, Sources) end,
            case lists:foldl(Fill, {ok, Text}, Names) of
                {ok, Filled} -> {ok, Filled, pictures(Filled, Sources)};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

fill(Name, Names, {ok, Text}, Sources) ->
    case block(Name, Names, Sources) of
        unknown -> {error, ["unknown table, scenario or chapter ", Name]};
        [] -> {ok, Text};
        Block -> {ok, put_between(Name, Block, Text)}
    end;
fill(_Name, _Names, Error, _Sources) ->
    Error.

%% The marks are lines of their own, or stand in a sentence.
put_between(Name, Block, Text) ->
    Begin = <<"<!-- ", Name/binary, " -->">>,
    End = <<"<!-- /", Name/binary, " -->">>,
    [Before, Rest] = binary:split(Text, Begin),
    [Old, After] = binary:split(Rest, End),
    New = unicode:characters_to_binary(Block),
    Between =
        case Old of
            <<"\n", _/binary>> -> ["\n", New, "\n"];
            _ -> New
        end,
    iolist_to_binary([Before, Begin, Between, End, After]).

%% The text of a place without its last line feed, `[]' if it has no results and stays as it is, or `unknown'.
block(<<"results">>, _Names, #{results := Results}) ->
    lists:join("\n", [run(File, Document) || {File, Document} <- lists:reverse(Results)]);
block(<<"targets">>, _Names, #{results := Results, suite := #{targets := Targets}}) ->
    lists:join("; ", [
        io_lib:format("OTP ~ts: ~b of ~b", [Release, Met, All])
     || {Release, Met, All} <- weir_bench_report:met(Targets, [Document || {_, Document} <- Results])
    ]);
block(<<"conformance">>, _Names, #{conformance := Text}) ->
    {match, [All, Same, Worse, Not]} = re:run(
        Text, "([0-9]+) cases: ([0-9]+) same, [0-9]+ better, ([0-9]+) worse, ([0-9]+) not on Weir",
        [{capture, all_but_first, binary}]
    ),
    [
        "of ", All, " cases on OTP 25, ", Same, " match, ", Worse, " do worse (reasons listed) and ", Not,
        " do not apply"
    ];
block(Name, _Names, #{comparisons := Comparisons} = Sources) when is_map_key(Name, Comparisons) ->
    #{otp := Otp} = Comparison = map_get(Name, Comparisons),
    {Header, Rows} = weir_bench_comparison:table(Comparison, figures(integer_to_binary(Otp), Sources)),
    string:trim(unicode:characters_to_binary(weir_bench_table:markdown(Header, Rows)), trailing);
block(Name, Names, #{suite := #{scenarios := Scenarios}} = Sources) ->
    case [Scenario || #{name := Of, chapter := In} = Scenario <- Scenarios, is_in(Name, Of, In, Names)] of
        [] -> unknown;
        Known -> lists:join("\n\n", lists:append([scenario(Scenario, Sources) || Scenario <- Known]))
    end.

%% Whether a scenario belongs to a place: its own, or that of its chapter if it has no place of its own.
is_in(Name, Scenario, Chapter, Names) ->
    Name =:= atom_to_binary(Scenario) orelse
        (Name =:= atom_to_binary(Chapter) andalso not lists:member(atom_to_binary(Scenario), Names)).

run(File, #{<<"machine">> := Machine, <<"rounds">> := Rounds}) ->
    #{<<"otp">> := Otp, <<"processor">> := Processor, <<"cores">> := Cores, <<"kernel">> := Kernel} = Machine,
    Peers = lists:sort(maps:to_list(maps:get(<<"peers">>, Machine, #{}))),
    [
        io_lib:format("- [~ts](../bench/results/~ts): OTP ~ts, ~ts, ~b cores, Linux ~ts, ~b rounds", [
            filename:rootname(File), File, Otp, Processor, Cores, Kernel, Rounds
        ]),
        [["; ", lists:join(", ", [[Name, " ", Version] || {Name, Version} <- Peers])] || Peers =/= []]
    ].

%% The median of a metric in the last run of a release that has the scenario.
figures(Release, #{results := Results}) ->
    fun(Name, Title, Metric) ->
        Wanted = {atom_to_binary(Name), unicode:characters_to_binary(Title), atom_to_binary(Metric)},
        case [Scenario || {Of, Scenario} <- of_name(element(1, Wanted), Results), Of =:= Release] of
            [] -> unknown;
            Scenarios -> figure(Wanted, lists:last(Scenarios))
        end
    end.

figure({_, Wanted, Metric}, #{<<"contestants">> := Contestants}) ->
    case
        [
            Median
         || #{<<"title">> := Title, <<"metrics">> := #{Metric := #{<<"median">> := Median}}} <- Contestants,
            Title =:= Wanted
        ]
    of
        [Median] -> {ok, Median};
        [] -> unknown
    end.

%% The results of a scenario in all runs, each with its release.
of_name(Name, Results) ->
    [
        {weir_bench_results:release(Document), Scenario}
     || {_, #{<<"scenarios">> := Scenarios} = Document} <- Results,
        #{<<"name">> := Of} = Scenario <- Scenarios,
        Of =:= Name
    ].

%% The results of a scenario by release, the newest release first; the last run counts. The suite of today decides
%% which metrics are shown, so that releases are comparable; over schedulers it is the metrics that the machine could
%% measure.
measured(#{name := Name, metrics := Metrics}, #{results := Results}) ->
    Shown = #{<<"metrics">> => [atom_to_binary(Metric) || Metric <- Metrics]},
    lists:reverse(
        lists:sort(
            maps:to_list(
                maps:from_list([
                    {
                        Release,
                        case Scenario of
                            #{<<"over">> := _} -> Scenario;
                            _ -> maps:merge(Scenario, Shown)
                        end
                    }
                 || {Release, Scenario} <- of_name(atom_to_binary(Name), Results)
                ])
            )
        )
    ).

scenario(#{title := Title} = Scenario, Sources) ->
    case measured(Scenario, Sources) of
        [] ->
            [];
        [{_, Measured} | _] = ByRelease ->
            Parts = [part(Release, Of) || {Release, Of} <- ByRelease],
            Head = ["### ", Title, "\n\n    ", weir_bench_report:command(Measured), "\n\n"],
            [string:trim(unicode:characters_to_binary([Head | lists:join("\n", Parts)]), trailing)]
    end.

part(Release, #{<<"metrics">> := Metrics} = Scenario) ->
    {[_ | Header], Rows} = weir_bench_report:table(Scenario#{<<"metrics">> := lists:sublist(Metrics, ?METRICS)}),
    [
        weir_bench_table:markdown([["OTP ", Release] | Header], Rows),
        [["\n", Note, "\n"] || Note <- weir_bench_report:notes(Scenario)]
    ].

%% The charts that a text shows, if these results have them.
pictures(Text, #{suite := #{scenarios := Scenarios}} = Sources) ->
    Picture = "\\(measurements/([a-z0-9-]+)-otp([0-9]+)\\.svg\\)",
    Shown =
        case re:run(Text, Picture, [global, {capture, all_but_first, binary}]) of
            {match, Pictures} -> lists:usort(Pictures);
            nomatch -> []
        end,
    [
        {binary_to_list(<<Name/binary, "-otp", Release/binary, ".svg">>), unicode:characters_to_binary(Svg)}
     || [Name, Release] <- Shown,
        #{name := Known} = Scenario <- Scenarios,
        atom_to_binary(Known) =:= Name,
        {Of, Measured} <- measured(Scenario, Sources),
        Of =:= Release,
        {ok, Svg} <- [weir_bench_chart:svg(Measured)]
    ].
