%% @doc The measurements of a run, as a value that grows, as a document, and as the text of a results file.
%%
%% The file is JSON with a line for each measured contestant: scenario, contestant, backend, number of rounds, and for
%% each metric of the scenario `[MEDIAN, LOWEST, HIGHEST]' over the rounds. The lines above have the machine, the
%% targets and the titles of the scenarios.
-module(weir_bench_results).

-export([document/1]).
-export([text/1]).
-export([read/1]).
-export([release/1]).
-export([median/2]).

-export_type([measurements/0, document/0]).

-type measurements() :: #{
    suite := weir_bench_suite:suite(),
    machine := #{atom() => term()},
    %% Time of the start, as in 2026-11-21T10:30:00+00:00.
    started := binary(),
    rounds := pos_integer(),
    quick := boolean(),
    %% False while the run is under way or after an interruption.
    complete := boolean(),
    %% In the order of measurement.
    scenarios := [{weir_bench_scenario:scenario(), weir_bench_rounds:results()}]
}.

%% Keys and texts are binaries. Each scenario has its contestants, and each of them its figures.
-type document() :: weir_json:value().

%% Members of the file that are a line each.
-define(CONDITIONS, [<<"started">>, <<"machine">>, <<"rounds">>, <<"quick">>, <<"complete">>]).
%% Members of a contestant that its line has as they are.
-define(SETTINGS, [<<"backend">>, <<"schedulers">>, <<"rounds">>]).
%% Members of a contestant that are left out of its line if they are empty.
-define(REMARKS, [<<"notes">>, <<"failures">>, <<"skipped">>]).

%% @doc Returns the document of a run.
-spec document(measurements()) -> document().
document(#{suite := #{chapters := Chapters}, scenarios := Scenarios} = Record) ->
    {ok, Document} = weir_json:decode(
        iolist_to_binary(
            weir_json:encode(
                (maps:with([machine, started, rounds, quick, complete], Record))#{
                    chapters => [#{name => Name, title => Title} || {Name, Title} <- Chapters],
                    targets => [verdict(Verdict) || #{measured := _} = Verdict <- verdicts(Record)],
                    scenarios => [scenario(Scenario, Results) || {Scenario, Results} <- Scenarios]
                }
            )
        )
    ),
    Document.

verdict(#{rival := {best_of, Titles}} = Verdict) -> verdict(Verdict#{rival := Titles});
verdict(#{measured := Measured} = Verdict) -> Verdict#{measured := rounded(Measured)}.

scenario(#{metrics := Metrics} = Scenario, Results) ->
    (maps:with([name, chapter, title, metrics, over], Scenario))#{
        contestants => [contestant(Contestant, Measurements, Metrics) || {Contestant, Measurements} <- Results]
    }.

contestant(Contestant, Measurements, Metrics) ->
    Samples = samples(Measurements),
    (maps:with([title, backend, schedulers], Contestant))#{
        rounds => length(Samples),
        metrics => maps:map(fun figures/2, maps:with(Metrics, weir_bench_sample:summary(Samples))),
        errors => lists:sum([Errors || #{errors := Errors} <- Samples]),
        seconds => [rounded(Second) || Second <- weir_bench_sample:median_seconds(Samples)],
        notes => counted([Note || #{notes := Notes} <- Samples, Note <- Notes]),
        failures => [Reason || {error, Reason} <- Measurements],
        skipped => [Reason || {skipped, Reason} <- Measurements]
    }.

figures(_Metric, Summary) -> rounded(maps:with([median, min, max], Summary)).

%% Three decimals, or none from 1,000 on: more digits would be noise.
rounded(Figures) when is_map(Figures) -> maps:map(fun(_, Value) -> rounded(Value) end, Figures);
rounded(Value) when is_integer(Value) -> Value;
rounded(Value) when Value >= 1000 -> round(Value);
rounded(Value) -> round(Value * 1000) / 1000.

%% Equal notes of several rounds are counted.
counted(Notes) ->
    [
        iolist_to_binary([Note, case Count of 1 -> ""; _ -> io_lib:format(" (~b times)", [Count]) end])
     || Note <- lists:usort(Notes), Count <- [length([Same || Same <- Notes, Same =:= Note])]
    ].

verdicts(#{suite := #{targets := Targets}, scenarios := Scenarios}) ->
    Release = list_to_integer(erlang:system_info(otp_release)),
    weir_bench_targets:check(Release, Targets, fun(Scenario, Contestant, Metric) ->
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

%% @doc Returns the text of a results file.
-spec text(document()) -> iodata().
text(#{<<"chapters">> := Chapters, <<"targets">> := Targets, <<"scenarios">> := Scenarios} = Document) ->
    [
        "{\n",
        [[member(Key, map_get(Key, Document)), ",\n"] || Key <- ?CONDITIONS],
        list(<<"chapters">>, [weir_json:compact(Chapter) || Chapter <- Chapters]),
        ",\n",
        list(<<"targets">>, [weir_json:compact(Target) || Target <- Targets]),
        ",\n",
        list(<<"scenarios">>, [weir_json:compact(maps:remove(<<"contestants">>, Scenario)) || Scenario <- Scenarios]),
        ",\n",
        list(<<"measurements">>, [
            line(Scenario, Contestant)
         || #{<<"contestants">> := Contestants} = Scenario <- Scenarios, Contestant <- Contestants
        ]),
        "\n}\n"
    ].

member(Key, Value) -> [weir_json:compact(Key), ": ", weir_json:compact(Value)].

list(Key, []) -> member(Key, []);
list(Key, Lines) -> [weir_json:compact(Key), ": [\n", lists:join(",\n", Lines), "\n]"].

line(#{<<"name">> := Name, <<"metrics">> := Metrics}, #{<<"title">> := Title, <<"metrics">> := Summary} = Contestant) ->
    Members =
        [{<<"scenario">>, Name}, {<<"contestant">>, Title}] ++
            [{Key, map_get(Key, Contestant)} || Key <- ?SETTINGS, is_map_key(Key, Contestant)] ++
            [
                {Metric, [Median, Min, Max]}
             || Metric <- Metrics,
                #{Metric := #{<<"median">> := Median, <<"min">> := Min, <<"max">> := Max}} <- [Summary]
            ] ++
            [{<<"errors">>, Errors} || #{<<"errors">> := Errors} <- [Contestant], Errors > 0] ++
            [{<<"seconds">>, Seconds} || [_ | _] = Seconds <- [seconds(Contestant)]] ++
            [{Key, Remarks} || Key <- ?REMARKS, [_ | _] = Remarks <- [map_get(Key, Contestant)]],
    ["{", lists:join(", ", [member(Key, Value) || {Key, Value} <- Members]), "}"].

seconds(#{<<"seconds">> := Seconds}) ->
    [[Offered, P50, P99] || #{<<"offered">> := Offered, <<"p50_us">> := P50, <<"p99_us">> := P99} <- Seconds].

%% @doc Reads a document from a results file. An error is one line that names the file.
-spec read(file:filename()) -> {ok, document()} | {error, iodata()}.
read(File) ->
    case file:read_file(File) of
        {ok, Json} ->
            case weir_json:decode(Json) of
                {ok, #{<<"scenarios">> := _, <<"measurements">> := _, <<"machine">> := #{<<"otp">> := _}} = Members} ->
                    {ok, joined(Members)};
                _ ->
                    {error, [File, " has no results of weir bench"]}
            end;
        {error, Reason} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

%% Gives each scenario its contestants.
joined(#{<<"scenarios">> := Scenarios, <<"measurements">> := Lines} = Members) ->
    (maps:remove(<<"measurements">>, Members))#{
        <<"scenarios">> := [
            Scenario#{
                <<"contestants">> => [
                    contestant(Line, Metrics) || #{<<"scenario">> := Of} = Line <- Lines, Of =:= Name
                ]
            }
         || #{<<"name">> := Name, <<"metrics">> := Metrics} = Scenario <- Scenarios
        ]
    }.

contestant(#{<<"contestant">> := Title} = Line, Metrics) ->
    maps:merge(
        maps:from_list([{Key, maps:get(Key, Line, [])} || Key <- ?REMARKS]),
        (maps:with(?SETTINGS, Line))#{
            <<"title">> => Title,
            <<"metrics">> => maps:map(
                fun(_, [Median, Min, Max]) -> #{<<"median">> => Median, <<"min">> => Min, <<"max">> => Max} end,
                maps:with(Metrics, Line)
            ),
            <<"errors">> => maps:get(<<"errors">>, Line, 0),
            <<"seconds">> => [
                #{<<"offered">> => Offered, <<"p50_us">> => P50, <<"p99_us">> => P99}
             || [Offered, P50, P99] <- maps:get(<<"seconds">>, Line, [])
            ]
        }
    ).

%% @doc Returns the OTP release that a document was measured on.
-spec release(document()) -> binary().
release(#{<<"machine">> := #{<<"otp">> := Version}}) ->
    hd(binary:split(Version, <<".">>)).

%% @doc Returns the median of a metric over measurements of one contestant, or `unknown' if none has it.
-spec median(weir_bench_sample:metric(), [{ok, weir_bench_sample:sample()} | {skipped | error, binary()}]) ->
    {ok, number()} | unknown.
median(Metric, Measurements) ->
    case weir_bench_sample:summary(samples(Measurements)) of
        #{Metric := #{median := Median}} -> {ok, Median};
        #{} -> unknown
    end.

samples(Measurements) -> [Sample || {ok, Sample} <- Measurements].
