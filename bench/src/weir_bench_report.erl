%% @doc The record of a run of the matrix: as JSON for programs and as Markdown for people.
-module(weir_bench_report).

-export([json/1]).
-export([markdown/1]).
-export([write/2]).
-export([median/2]).

-export_type([record/0]).

-type record() :: #{
    machine := #{atom() => binary() | integer()},
    %% Of the beginning, as in 2026-11-21T10:30:00+00:00.
    started := binary(),
    rounds := pos_integer(),
    quick := boolean(),
    %% False while the run is under way, and for ever if it was interrupted.
    complete := boolean(),
    %% In the order in which they were measured.
    scenarios := [{weir_bench_scenarios:scenario(), weir_bench_rounds:results()}]
}.

%% @doc Writes a file whole or not at all: a reader, or an interruption, never meets a half.
-spec write(file:filename(), iodata()) -> ok | {error, file:posix() | badarg | terminated | system_limit}.
write(File, Content) ->
    Beside = File ++ ".new",
    case file:write_file(Beside, Content) of
        ok -> file:rename(Beside, File);
        {error, _} = Error -> Error
    end.

%% @doc The record as a JSON document, with every single measurement.
-spec json(record()) -> iodata().
json(#{scenarios := Scenarios} = Record) ->
    weir_load_json:encode(
        (maps:with([machine, started, rounds, quick, complete], Record))#{
            targets => [json_verdict(Verdict) || Verdict <- verdicts(Record)],
            scenarios => [json_scenario(Scenario, Results) || {Scenario, Results} <- Scenarios]
        }
    ).

json_verdict(#{rival := {best_of, Titles}} = Verdict) -> Verdict#{rival := Titles};
json_verdict(Verdict) -> Verdict.

json_scenario(Scenario, Results) ->
    Settings = [
        name, title, server, load, connections, packet, tls, rate, size, sndbuf, bytes, together, busy, warmup, duration
    ],
    (maps:with(Settings, Scenario))#{
        contestants => [
            (maps:with([title, backend, server, active, connections, slow, schedulers], Contestant))#{
                metrics => weir_bench_sample:summary(samples(Measurements)),
                errors => errors(Measurements),
                failures => failures(Measurements),
                skipped => skipped(Measurements)
            }
         || {Contestant, Measurements} <- Results
        ]
    }.

%% @doc The record as Markdown: what it was measured on, the targets, a table for each scenario.
-spec markdown(record()) -> unicode:chardata().
markdown(#{machine := Machine, started := Started, rounds := Rounds, scenarios := Scenarios} = Record) ->
    #{otp := Otp, erts := Erts, kernel := Kernel, processor := Processor, cores := Cores, commit := Commit} = Machine,
    [
        "# Measured on OTP ", Otp, "\n\n",
        "| | |\n| --- | --- |\n",
        [["| ", Name, " | ", Value, " |\n"] || {Name, Value} <- [
            {"started", Started},
            {"processor", io_lib:format("~ts, ~b cores", [Processor, Cores])},
            {"kernel", Kernel},
            {"OTP", io_lib:format("~ts, erts ~ts", [Otp, Erts])},
            {"commit", Commit},
            {"cores", map_get(pinning, Machine)},
            {"rounds", io_lib:format("~b~ts~ts", [Rounds, quick(Record), complete(Record)])}
        ]],
        "\nContestants take turns; figures are medians, with the lowest and the highest in brackets.\n",
        targets(verdicts(Record)),
        [scenario(Scenario, Results) || {Scenario, Results} <- Scenarios]
    ].

quick(#{quick := true}) -> ", short ones";
quick(_) -> "".

complete(#{complete := true}) -> "";
complete(_) -> "; interrupted or under way: not all is here".

targets([]) ->
    "";
targets(Verdicts) ->
    [
        "\n## Targets\n\n",
        weir_bench_table:markdown(["", "target", "measured", "met"], [
            [Title, limit(Verdict), measured(Verdict), met(Verdict)] || #{title := Title} = Verdict <- Verdicts
        ])
    ].

limit(#{relation := at_most, limit := Limit}) ->
    io_lib:format("≤ ~p", [Limit]);
limit(#{relation := Relation, limit := Limit, rival := Rival}) ->
    Format =
        case Relation of
            ratio_at_least -> "≥ ~p× ~ts";
            ratio_at_most -> "≤ ~p× ~ts";
            difference_at_most -> "≤ ~p more than ~ts"
        end,
    io_lib:format(Format, [Limit, rival(Rival)]).

rival({best_of, Titles}) -> ["the best of ", lists:join(", ", Titles)];
rival(Title) -> Title.

measured(#{relation := at_most, measured := Measured}) -> weir_bench_table:number(round(Measured));
measured(#{relation := difference_at_most, measured := Measured}) -> io_lib:format("~.3f", [float(Measured)]);
measured(#{measured := Measured}) -> io_lib:format("~.2f×", [Measured]);
measured(_) -> "not measured".

met(#{met := true}) -> "yes";
met(#{met := false}) -> "**no**";
met(_) -> "".

scenario(#{title := Title, metrics := Metrics}, Results) ->
    [
        "\n## ", Title, "\n\n",
        weir_bench_table:markdown(["" | [weir_bench_sample:title(Metric) || Metric <- Metrics]], [
            [Name | cells(Metrics, weir_bench_sample:summary(samples(Measurements)))]
         || {#{title := Name}, Measurements} <- Results
        ]),
        [note(Name, Measurements) || {#{title := Name}, Measurements} <- Results]
    ].

cells(Metrics, Summary) ->
    [
        case Summary of
            #{Metric := #{median := Median, min := Min, max := Max}} ->
                [
                    weir_bench_sample:format(Metric, Median),
                    " (", weir_bench_sample:format(Metric, Min), "–", weir_bench_sample:format(Metric, Max), ")"
                ];
            #{} ->
                ""
        end
     || Metric <- Metrics
    ].

note(Name, Measurements) ->
    [
        case errors(Measurements) of
            0 -> "";
            Errors -> ["\n", Name, ": ", weir_bench_table:number(Errors), " errors.\n"]
        end,
        [["\n", Name, ": failed, ", Failure, "\n"] || Failure <- lists:usort(failures(Measurements))],
        [["\n", Name, ": skipped, ", Reason, "\n"] || Reason <- lists:usort(skipped(Measurements))]
    ].

verdicts(#{scenarios := Scenarios}) ->
    weir_bench_targets:check(erlang:system_info(otp_release), fun(Scenario, Contestant, Metric) ->
        case [Results || {#{name := Name}, Results} <- Scenarios, Name =:= Scenario] of
            [Results] ->
                case [Measured || {#{title := Title}, Measured} <- Results, Title =:= Contestant] of
                    [Measurements] -> median(Metric, Measurements);
                    [] -> unknown
                end;
            [] ->
                unknown
        end
    end).

%% @doc The median of a metric over some measurements of the same, or `unknown' if none has it.
-spec median(weir_bench_sample:metric(), [{ok, weir_bench_sample:sample()} | {skipped | error, binary()}]) ->
    {ok, number()} | unknown.
median(Metric, Measurements) ->
    case weir_bench_sample:summary(samples(Measurements)) of
        #{Metric := #{median := Median}} -> {ok, Median};
        #{} -> unknown
    end.

samples(Measurements) -> [Sample || {ok, Sample} <- Measurements].

errors(Measurements) -> lists:sum([Errors || #{errors := Errors} <- samples(Measurements)]).

failures(Measurements) -> [Reason || {error, Reason} <- Measurements].

skipped(Measurements) -> [Reason || {skipped, Reason} <- Measurements].
