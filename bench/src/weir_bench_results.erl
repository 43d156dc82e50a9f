%% @doc The measurements of a run, as a value that grows and as a document in the form of the JSON file.
-module(weir_bench_results).

-export([document/1]).
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

%% The members of the JSON file; keys and texts are binaries.
-type document() :: weir_json:value().

%% @doc Returns the document with every single measurement.
-spec document(measurements()) -> document().
document(#{suite := #{chapters := Chapters}, scenarios := Scenarios} = Record) ->
    {ok, Document} = weir_json:decode(
        iolist_to_binary(
            weir_json:encode(
                (maps:with([machine, started, rounds, quick, complete], Record))#{
                    chapters => [#{name => Name, title => Title} || {Name, Title} <- Chapters],
                    targets => [verdict(Verdict) || Verdict <- verdicts(Record)],
                    scenarios => [scenario(Scenario, Results) || {Scenario, Results} <- Scenarios]
                }
            )
        )
    ),
    Document.

verdict(#{rival := {best_of, Titles}} = Verdict) -> Verdict#{rival := Titles};
verdict(Verdict) -> Verdict.

scenario(Scenario, Results) ->
    (settings(maps:without([contestants], Scenario)))#{
        contestants => [
            (settings(maps:without([needs], Contestant)))#{
                metrics => weir_bench_sample:summary(samples(Measurements)),
                errors => lists:sum([Errors || #{errors := Errors} <- samples(Measurements)]),
                seconds => weir_bench_sample:median_seconds(samples(Measurements)),
                notes => counted([Note || #{notes := Notes} <- samples(Measurements), Note <- Notes]),
                failures => [Reason || {error, Reason} <- Measurements],
                skipped => [Reason || {skipped, Reason} <- Measurements]
            }
         || {Contestant, Measurements} <- Results
        ]
    }.

settings(Settings) ->
    maps:map(
        fun
            (rate, {From, To}) -> [From, To];
            (_Key, Value) -> Value
        end,
        Settings
    ).

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

%% @doc Reads a document from a file. An error is one line that names the file.
-spec read(file:filename()) -> {ok, document()} | {error, iodata()}.
read(File) ->
    case file:read_file(File) of
        {ok, Json} ->
            case weir_json:decode(Json) of
                {ok, #{<<"scenarios">> := _, <<"machine">> := #{<<"otp">> := _}} = Document} -> {ok, Document};
                _ -> {error, [File, " has no results of weir bench"]}
            end;
        {error, Reason} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

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
