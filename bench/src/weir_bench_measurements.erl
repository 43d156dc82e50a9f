%% @doc Writes figures into documents that are otherwise written by hand: the text between `<!-- NAME -->' and `<!--
%% /NAME -->' is generated from results. NAME is a chapter of the suite (one table of all its scenarios without a
%% place of their own), a scenario (all its contestants), `results' (which runs were made where) or `targets' (how
%% many were met, and the missed ones). Charts that a document shows are drawn again.
-module(weir_bench_measurements).

-export([update/1]).
-export([places/1]).
-export([fill/3]).

%% @doc Writes the results of these files into docs/measurements.md, docs/targets.md and docs/seeds.md, and their
%% charts beside them. If two files of one OTP release have the same scenario, the later run counts. A table without
%% any results stays as it is.
-spec update([file:filename(), ...]) -> {ok, [Written :: file:filename()]} | {error, iodata()}.
update(Files) ->
    case {weir_bench_suite:read(), weir_bench_scaling:read(), read(Files)} of
        {{ok, #{scenarios := Scenarios} = Suite}, {ok, #{scenarios := OverSchedulers}}, {ok, Results}} ->
            update(weir_bench_tree:measurements(), Results, Suite#{scenarios := Scenarios ++ OverSchedulers}, []);
        {{error, _} = Error, _, _} -> Error;
        {_, {error, _} = Error, _} -> Error;
        {_, _, {error, _} = Error} -> Error
    end.

update([], _Results, _Suite, Contents) ->
    write(Contents);
update([File | Files], Results, Suite, Contents) ->
    case file:read_file(File) of
        {ok, Text} ->
            case fill(Text, Results, Suite) of
                {ok, Filled, Pictures} ->
                    Charts = filename:join(filename:dirname(File), "measurements"),
                    Drawn = [{filename:join(Charts, Name), Svg} || {Name, Svg} <- Pictures],
                    update(Files, Results, Suite, Contents ++ [{File, Filled} | Drawn]);
                {error, Reason} ->
                    {error, [File, ": ", Reason]}
            end;
        {error, Reason} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

read(Files) ->
    lists:foldl(
        fun
            (File, {ok, Read}) ->
                case weir_bench_results:read(File) of
                    {ok, Document} -> {ok, Read ++ [{filename:rootname(filename:basename(File)), Document}]};
                    {error, _} = Error -> Error
                end;
            (_File, Error) ->
                Error
        end,
        {ok, []},
        Files
    ).

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
    case re:run(Text, "^<!-- (/?[a-z0-9-]+) -->$", [global, multiline, {capture, all_but_first, binary}]) of
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

%% @doc Fills the places of a text and draws its charts. Results are pairs of a file name and a document.
-spec fill(binary(), [{string(), weir_bench_results:document()}], weir_bench_suite:suite()) ->
    {ok, binary(), [{file:filename(), Svg :: binary()}]} | {error, iodata()}.
fill(Text, Results, #{scenarios := Scenarios, chapters := Chapters, targets := Targets}) ->
    case places(Text) of
        {ok, Names} ->
            Known = [{atom_to_binary(Name), Scenario} || #{name := Name} = Scenario <- Scenarios],
            Of = [
                {atom_to_binary(Chapter), [
                    Entry
                 || {Name, #{chapter := In}} = Entry <- Known, In =:= Chapter, not lists:member(Name, Names)
                ]}
             || {Chapter, _} <- Chapters
            ],
            Places = maps:from_list([{Name, [Entry]} || {Name, _} = Entry <- Known] ++ Of),
            case
                [Name || Name <- Names, not is_map_key(Name, Places), Name =/= <<"results">>, Name =/= <<"targets">>]
            of
                [] ->
                    Judged = [{File, with_verdicts_on(Targets, Document)} || {File, Document} <- Results],
                    Sorted = lists:sort(fun({_, A}, {_, B}) -> started(A) =< started(B) end, Judged),
                    Filled = lists:foldl(
                        fun(Name, SoFar) ->
                            case block(Name, Sorted, Places, lists:keymember(Name, 1, Known)) of
                                [] -> SoFar;
                                Block -> put_between(Name, Block, SoFar)
                            end
                        end,
                        Text,
                        Names
                    ),
                    {ok, Filled, pictures(Filled, Sorted, maps:from_list(Known))};
                [Unknown | _] ->
                    {error, ["unknown scenario or chapter ", Unknown]}
            end;
        {error, _} = Error ->
            Error
    end.

started(#{<<"started">> := Started}) -> Started.

%% Ignores results of targets that the suite no longer has.
with_verdicts_on(Targets, #{<<"targets">> := Verdicts} = Document) ->
    Titles = [Title || #{title := Title} <- Targets],
    Document#{<<"targets">> := [Verdict || #{<<"title">> := Title} = Verdict <- Verdicts, lists:member(Title, Titles)]}.

put_between(Name, Block, Text) ->
    Begin = <<"<!-- ", Name/binary, " -->\n">>,
    End = <<"<!-- /", Name/binary, " -->">>,
    [Before, Rest] = binary:split(Text, Begin),
    [_, After] = binary:split(Rest, End),
    iolist_to_binary([Before, Begin, unicode:characters_to_binary(Block), End, After]).

block(<<"results">>, Results, _Places, _) ->
    [
        [
            "- [",
            Name,
            "](../bench/results/",
            Name,
            ".md): ",
            lists:join("; ", [
                [What, " ", Value]
             || {What, Value} <- weir_bench_report:machine(Document), What =/= "cores"
            ]),
            "\n"
        ]
     || {Name, Document} <- Results
    ];
block(<<"targets">>, Results, _Places, _) ->
    targets(Results);
block(Name, Results, Places, IsScenario) ->
    case [{Of, measured(Of, Results, Scenario)} || {Of, Scenario} <- map_get(Name, Places)] of
        [{_, [_ | _] = ByRelease}] when IsScenario ->
            [{_, #{title := Title}}] = map_get(Name, Places),
            [{_, Measured} | _] = ByRelease,
            [
                "### ",
                Title,
                "\n\n    ",
                weir_bench_report:command(Measured),
                "\n\n",
                lists:join("\n", [part(Release, Scenario) || {Release, Scenario} <- ByRelease])
            ];
        Scenarios ->
            case [Entry || {_, [_ | _]} = Entry <- Scenarios] of
                [] ->
                    [];
                Measured ->
                    Titles = maps:from_list([{Of, Title} || {Of, #{title := Title}} <- map_get(Name, Places)]),
                    {Header, Rows} = weir_bench_topic:table(Measured, Titles),
                    weir_bench_table:markdown(Header, Rows)
            end
    end.

targets(Results) ->
    Newest = maps:from_list([
        {{weir_bench_results:release(Document), {Title, maps:get(<<"rival">>, Verdict, none)}}, Verdict}
     || {_, #{<<"targets">> := Verdicts} = Document} <- Results,
        #{<<"title">> := Title, <<"measured">> := _} = Verdict <- Verdicts
    ]),
    case lists:usort([Release || {Release, _} <- maps:keys(Newest)]) of
        [] ->
            [];
        Releases ->
            [
                lists:join("; ", [count(Release, Newest) || Release <- Releases]),
                ". Missed by one or more (**bold**):\n\n",
                weir_bench_table:markdown(
                    ["work", "target" | [["OTP ", Release] || Release <- Releases]],
                    [
                        compared([maps:get({Release, Of}, Newest, none) || Release <- Releases])
                     || Of <- lists:usort([Of || {{_, Of}, #{<<"met">> := false}} <- maps:to_list(Newest)])
                    ]
                )
            ]
    end.

count(Of, Newest) ->
    Verdicts = [Met || {{Release, _}, #{<<"met">> := Met}} <- maps:to_list(Newest), Release =:= Of],
    io_lib:format("OTP ~ts: ~b of ~b met", [Of, length([true || true <- Verdicts]), length(Verdicts)]).

%% The row of one target. It has the same title for all releases, but its limit may differ.
compared(Verdicts) ->
    Known = [
        Row
     || #{} = Verdict <- Verdicts, {_, [Row]} <- [weir_bench_report:targets(#{<<"targets">> => [Verdict]})]
    ],
    [[Title | _] | _] = Known,
    Limits = lists:usort([unicode:characters_to_binary(Limit) || [_, Limit | _] <- Known]),
    [Title, lists:join("<br>", Limits) | [figure(Verdict) || Verdict <- Verdicts]].

figure(none) ->
    "–";
figure(#{<<"met">> := Met} = Verdict) ->
    {_, [[_, _, Measured, _]]} = weir_bench_report:targets(#{<<"targets">> => [Verdict]}),
    case Met of
        true -> Measured;
        false -> ["**", Measured, "**"]
    end.

%% The results of a scenario by release; the last run counts. The suite of today decides which metrics are shown, so
%% that releases are comparable; over schedulers it is the metrics that the machine could measure.
measured(Name, Results, #{metrics := Metrics}) ->
    Shown = #{<<"metrics">> => [atom_to_binary(Metric) || Metric <- Metrics]},
    lists:sort(
        maps:to_list(
            maps:from_list([
                {
                    weir_bench_results:release(Document),
                    case Scenario of
                        #{<<"over">> := _} -> Scenario;
                        _ -> maps:merge(Scenario, Shown)
                    end
                }
             || {_, #{<<"scenarios">> := Scenarios} = Document} <- Results,
                #{<<"name">> := Of} = Scenario <- Scenarios,
                Of =:= Name
            ])
        )
    ).

part(Release, Scenario) ->
    {[_ | Header], Rows} = weir_bench_report:table(Scenario),
    [
        weir_bench_table:markdown([["OTP ", Release] | Header], Rows),
        [["\n", Note, "\n"] || Note <- weir_bench_report:notes(Scenario)]
    ].

%% The charts that a text shows, if these results have them.
pictures(Text, Results, Known) ->
    Shown =
        case
            re:run(Text, "\\(measurements/([a-z0-9-]+)-otp([0-9]+)\\.svg\\)", [
                global, {capture, all_but_first, binary}
            ])
        of
            {match, Pictures} -> lists:usort(Pictures);
            nomatch -> []
        end,
    [
        {binary_to_list(<<Name/binary, "-otp", Release/binary, ".svg">>), unicode:characters_to_binary(Svg)}
     || [Name, Release] <- Shown,
        is_map_key(Name, Known),
        {Of, Scenario} <- measured(Name, Results, map_get(Name, Known)),
        Of =:= Release,
        {ok, Svg} <- [weir_bench_chart:svg(Scenario)]
    ].
