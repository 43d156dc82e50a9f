%% @doc The tables of the documents: each answers one question with the figures of one OTP release. They are defined in
%% `priv/comparisons.config', which explains its format.
-module(weir_bench_comparison).

-export([read/0]).
-export([table/2]).

-export_type([comparisons/0, comparison/0, figure/0]).

-type comparisons() :: #{Name :: binary() => comparison()}.

-type comparison() ::
    #{
        otp := pos_integer(),
        metric := weir_bench_sample:metric(),
        columns := [string() | {Header :: string(), cell()}],
        rows := [{Label :: string(), weir_bench_scenario:name()} | {string(), weir_bench_scenario:name(), [cell()]}]
    }
    | #{
        otp := pos_integer(),
        scenario := weir_bench_scenario:name(),
        metrics := [weir_bench_sample:metric()],
        rows := [{Label :: string(), Contestant :: string()}]
    }
    | #{
        otp := pos_integer(),
        metric := weir_bench_sample:metric(),
        schedulers := [pos_integer()],
        rows := [{Label :: string(), weir_bench_scenario:name(), Contestant :: string()}]
    }
    | #{
        otp := pos_integer(),
        slower := [
            {
                Label :: string(),
                weir_bench_scenario:name(),
                weir_bench_sample:metric(),
                Weir :: string(),
                {Name :: string(), Other :: string()}
            }
        ]
    }.

%% A contestant; the best of several, which is named; or one that is named because others of its column are not it.
-type cell() :: Contestant :: string() | {best, [string(), ...]} | {named, Name :: string(), string()} | none.

%% Returns the median of a metric for a contestant of a scenario.
-type figure() :: fun((weir_bench_scenario:name(), string(), weir_bench_sample:metric()) -> {ok, number()} | unknown).

%% @doc Reads the definitions of all tables.
-spec read() -> {ok, comparisons()} | {error, iodata()}.
read() ->
    File = weir_bench_tree:comparisons(),
    case file:consult(File) of
        {ok, Terms} ->
            {ok, maps:from_list([{atom_to_binary(Name), Comparison} || {table, Name, #{} = Comparison} <- Terms])};
        {error, {Line, _, _} = Reason} when is_integer(Line) ->
            {error, [File, ":", file:format_error(Reason)]};
        {error, Reason} ->
            {error, [File, ": ", file:format_error(Reason)]}
    end.

%% @doc Returns header and rows of a table. A figure that was not measured is a question mark.
-spec table(comparison(), figure()) -> {[unicode:chardata()], [[unicode:chardata()]]}.
table(#{otp := Otp, metric := Metric, columns := Columns, rows := Rows}, Figure) ->
    Headers = [case Column of {Header, _} -> Header; Header -> Header end || Column <- Columns],
    {[unit(Otp, Metric) | Headers], [
        [Label | [cell(Cell, Scenario, Metric, Figure) || Cell <- Cells]]
     || {Label, Scenario, Cells} <- [with_cells(Row, Columns) || Row <- Rows]
    ]};
table(#{otp := Otp, scenario := Scenario, metrics := Metrics, rows := Rows}, Figure) ->
    {[release(Otp) | [weir_bench_sample:title(Metric) || Metric <- Metrics]], [
        [Label | [cell(Contestant, Scenario, Metric, Figure) || Metric <- Metrics]]
     || {Label, Contestant} <- Rows
    ]};
table(#{otp := Otp, metric := Metric, schedulers := [First | Others] = Schedulers, rows := Rows}, Figure) ->
    {[unit(Otp, Metric), io_lib:format("~b scheduler", [First]) | [integer_to_list(Other) || Other <- Others]], [
        [
            Label
            | [
                cell(lists:flatten(io_lib:format("~ts, ~b:~b", [Contestant, Of, Of])), Scenario, Metric, Figure)
             || Of <- Schedulers
            ]
        ]
     || {Label, Scenario, Contestant} <- Rows
    ]};
table(#{otp := Otp, slower := Pairs}, Figure) ->
    {[release(Otp), "measure", "Weir", "the other", "ratio"], lists:append([slower(Pair, Figure) || Pair <- Pairs])}.

release(Otp) -> io_lib:format("OTP ~b", [Otp]).

unit(Otp, Metric) -> [release(Otp), ": ", weir_bench_sample:title(Metric)].

with_cells({Label, Scenario}, Columns) -> {Label, Scenario, [Cell || {_Header, Cell} <- Columns]};
with_cells({_Label, _Scenario, _Cells} = Row, _Columns) -> Row.

cell(none, _Scenario, _Metric, _Figure) ->
    <<"–"/utf8>>;
cell({named, Name, Contestant}, Scenario, Metric, Figure) ->
    [cell(Contestant, Scenario, Metric, Figure), " (", Name, ")"];
cell({best, Contestants}, Scenario, Metric, Figure) ->
    case lists:sort([{Value, Of} || Of <- Contestants, {ok, Value} <- [Figure(Scenario, Of, Metric)]]) of
        Sorted when length(Sorted) < length(Contestants) ->
            "?";
        [Least | _] = Sorted ->
            {Value, Of} = case weir_bench_sample:better(Metric) of less -> Least; more -> lists:last(Sorted) end,
            [weir_bench_sample:format(Metric, Value), " (", Of, ")"]
    end;
cell(Contestant, Scenario, Metric, Figure) ->
    case Figure(Scenario, Contestant, Metric) of
        {ok, Value} -> weir_bench_sample:format(Metric, Value);
        unknown -> "?"
    end.

%% A row, or nothing if Weir is as good as the other or better, to two digits of the ratio.
slower({Label, Scenario, Metric, Weir, {Name, Other}}, Figure) ->
    case {Figure(Scenario, Weir, Metric), Figure(Scenario, Other, Metric)} of
        {{ok, Own}, {ok, Others}} when Others > 0 ->
            Ratio = round(100 * Own / Others) / 100,
            case weir_bench_sample:better(Metric) of
                less when Ratio =< 1.0 -> [];
                more when Ratio >= 1.0 -> [];
                _ -> [row(Label, Metric, Own, Others, Name, Ratio)]
            end;
        _ ->
            [[Label, weir_bench_sample:title(Metric), "?", "?", "?"]]
    end.

row(Label, Metric, Own, Others, Name, Ratio) ->
    [
        Label, weir_bench_sample:title(Metric), weir_bench_sample:format(Metric, Own),
        [weir_bench_sample:format(Metric, Others), " (", Name, ")"], [io_lib:format("~.2f", [Ratio]), <<"×"/utf8>>]
    ].
