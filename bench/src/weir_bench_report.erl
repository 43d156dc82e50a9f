%% @doc Formats results for people as tables, as values and in Markdown.
-module(weir_bench_report).

-export([markdown/1]).
-export([machine/1]).
-export([targets/1]).
-export([missed/1]).
-export([met/2]).
-export([table/1]).
-export([notes/1]).
-export([command/1]).

-type document() :: weir_bench_results:document().

%% @doc Returns a document as Markdown: the machine, the targets, and a table for each scenario.
-spec markdown(document()) -> unicode:chardata().
markdown(#{<<"machine">> := #{<<"otp">> := Otp}, <<"scenarios">> := Scenarios} = Document) ->
    [
        "# Measured on OTP ", Otp, "\n\n",
        "| | |\n| --- | --- |\n",
        [["| ", Name, " | ", Value, " |\n"] || {Name, Value} <- machine(Document)],
        "\nContestants take turns; figures are medians, with the lowest and the highest in brackets.\n",
        legend(Scenarios),
        case targets(Document) of
            {_, []} -> "";
            {Header, Rows} -> ["\n## Targets\n\n", weir_bench_table:markdown(Header, Rows)]
        end,
        [
            begin
                {Header, Rows} = table(Scenario),
                [
                    "\n## ", Title, "\n\n",
                    "`", command(Scenario), "`\n\n",
                    weir_bench_table:markdown(Header, Rows),
                    [["\n", Note, "\n"] || Note <- notes(Scenario)]
                ]
            end
         || #{<<"title">> := Title} = Scenario <- Scenarios
        ]
    ].

%% Explains the columns that only results over schedulers have.
legend(Scenarios) ->
    case [Scenario || #{<<"over">> := _} = Scenario <- Scenarios] of
        [] ->
            "";
        _ ->
            "\nS:S is so many schedulers, all online; of native code, so many processes. "
            "*switches*: context switches of all threads of the\n"
            "server. *busiest pollset*: its share of the sockets that polls found ready. "
            "*away from owner*: sockets whose pollset is not that of\n"
            "the scheduler where their owner ran last.\n"
    end.

%% @doc Returns the command that measures a scenario.
-spec command(document()) -> unicode:chardata().
command(#{<<"over">> := _, <<"name">> := Name}) -> ["bench/scaling --only ", Name];
command(#{<<"name">> := Name}) -> ["bin/weir bench --only ", Name].

%% @doc Returns the conditions of the measurement.
-spec machine(document()) -> [{string(), unicode:chardata()}].
machine(#{<<"machine">> := Machine, <<"started">> := Started, <<"rounds">> := Rounds} = Document) ->
    #{
        <<"otp">> := Otp, <<"erts">> := Erts, <<"kernel">> := Kernel, <<"processor">> := Processor,
        <<"cores">> := Cores, <<"commit">> := Commit, <<"pinning">> := Pinning
    } = Machine,
    Peers = maps:get(<<"peers">>, Machine, #{}),
    [
        {"started", Started},
        {"processor", io_lib:format("~ts, ~b cores", [Processor, Cores])},
        {"kernel", Kernel},
        {"OTP", io_lib:format("~ts, erts ~ts", [Otp, Erts])},
        {"commit", Commit}
    ] ++
        [
            {"peers", lists:join(", ", [[Name, " ", Version] || {Name, Version} <- lists:sort(maps:to_list(Peers))])}
         || map_size(Peers) > 0
        ] ++
        [
            {"cores", Pinning},
            {"rounds", io_lib:format("~b~ts~ts", [Rounds, quick(Document), complete(Document)])}
        ].

quick(#{<<"quick">> := true}) -> ", short ones";
quick(_) -> "".

complete(#{<<"complete">> := true}) -> "";
complete(_) -> "; interrupted or under way: not all is here".

%% @doc Returns header and rows of the targets that were measured.
-spec targets(document()) -> {[unicode:chardata()], [[unicode:chardata()]]}.
targets(#{<<"targets">> := Verdicts}) ->
    {["", "target", "measured", "met"], [
        [Title, limit(Verdict), measured(Verdict), met(Verdict)]
     || #{<<"title">> := Title, <<"measured">> := _} = Verdict <- Verdicts
    ]}.

%% @doc Returns the missed targets as lines of text.
-spec missed(document()) -> unicode:chardata().
missed(#{<<"targets">> := Verdicts} = Document) ->
    {_, Rows} = targets(Document#{<<"targets">> := [Verdict || #{<<"met">> := false} = Verdict <- Verdicts]}),
    [["missed target: ", Title, ": ", Limit, ", measured ", Measured, "\n"] || [Title, Limit, Measured, _] <- Rows].

%% @doc Returns how many targets were met and measured, the newest release first. Of several runs of a release the last
%% that measured a target counts. Targets that the suite no longer has are left out.
-spec met([weir_bench_targets:target()], [document()]) ->
    [{Release :: binary(), Met :: non_neg_integer(), Measured :: pos_integer()}].
met(Targets, Documents) ->
    Titles = [Title || #{title := Title} <- Targets],
    Last = maps:from_list([
        {{weir_bench_results:release(Document), Title, maps:get(<<"rival">>, Verdict)}, Met}
     || #{<<"targets">> := Verdicts} = Document <- Documents,
        #{<<"title">> := Title, <<"met">> := Met} = Verdict <- Verdicts,
        lists:member(Title, Titles)
    ]),
    [
        {Release, length([true || true <- Verdicts]), length(Verdicts)}
     || Release <- lists:reverse(lists:usort([Release || {Release, _, _} <- maps:keys(Last)])),
        Verdicts <- [[Met || {{Of, _, _}, Met} <- maps:to_list(Last), Of =:= Release]]
    ].

limit(#{<<"relation">> := <<"at_most">>, <<"limit">> := Limit}) ->
    io_lib:format("≤ ~p", [Limit]);
limit(#{<<"relation">> := Relation, <<"limit">> := Limit} = Verdict) ->
    Format =
        case Relation of
            <<"ratio_at_least">> -> "≥ ~p× ~ts";
            <<"ratio_at_most">> -> "≤ ~p× ~ts";
            <<"difference_at_most">> -> "≤ ~p more than ~ts"
        end,
    io_lib:format(Format, [Limit, rival(Verdict)]).

rival(#{<<"rival">> := Titles}) when is_list(Titles) -> ["the best of ", lists:join(", ", Titles)];
rival(#{<<"rival">> := Title}) -> Title.

measured(#{<<"relation">> := <<"at_most">>, <<"measured">> := Measured}) ->
    weir_bench_table:number(round(Measured));
measured(#{<<"relation">> := <<"difference_at_most">>, <<"measured">> := Measured}) ->
    io_lib:format("~.3f", [float(Measured)]);
measured(#{<<"measured">> := Measured}) ->
    io_lib:format("~.2f×", [float(Measured)]).

met(#{<<"met">> := true}) -> "yes";
met(#{<<"met">> := false}) -> "**no**".

%% @doc Returns header and rows of a scenario: for each contestant the median and the spread of the scenario's
%% metrics.
-spec table(document()) -> {[unicode:chardata()], [[unicode:chardata()]]}.
table(#{<<"metrics">> := Names, <<"contestants">> := Contestants}) ->
    Metrics = [binary_to_existing_atom(Name) || Name <- Names],
    {["" | [weir_bench_sample:title(Metric) || Metric <- Metrics]], [
        [Title | [cell(Metric, Summary) || Metric <- Metrics]]
     || #{<<"title">> := Title, <<"metrics">> := Summary} = Contestant <- Contestants,
        maps:get(<<"skipped">>, Contestant, []) =:= []
    ]}.

cell(Metric, Summary) ->
    Key = atom_to_binary(Metric),
    case Summary of
        #{Key := #{<<"median">> := Median, <<"min">> := Min, <<"max">> := Max}} ->
            [
                weir_bench_sample:format(Metric, Median),
                " (", weir_bench_sample:format(Metric, Min), "–", weir_bench_sample:format(Metric, Max), ")"
            ];
        #{} ->
            ""
    end.

%% @doc Returns notes about the figures of a scenario, a line each.
-spec notes(document()) -> [unicode:chardata()].
notes(#{<<"contestants">> := Contestants}) ->
    lists:flatmap(fun notes_of/1, Contestants).

notes_of(#{<<"title">> := Title, <<"errors">> := Errors, <<"failures">> := Failures} = Contestant) ->
    [[Title, ": ", weir_bench_table:number(Errors), " errors."] || Errors > 0] ++
        [[Title, ": ", Note, "."] || Note <- maps:get(<<"notes">>, Contestant, [])] ++
        [[Title, ": failed, ", Failure] || Failure <- lists:usort(Failures)] ++
        [[Title, ": skipped, ", Reason, "."] || Reason <- lists:usort(maps:get(<<"skipped">>, Contestant, []))].
