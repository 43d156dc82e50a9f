%% @doc Draws the bars of a scenario as SVG: one for each contestant, with a whisker from its lowest to its highest
%% round. A scenario over schedulers has curves instead. Documents and the page use the same chart; it follows the
%% reader's choice of light or dark.
-module(weir_bench_chart).

-export([svg/1]).

-import(weir_bench_svg, [style/0, escape/1]).

-define(WIDTH, 760).
-define(LABELS, 230).
-define(BARS, 400).
-define(ROW, 24).
-define(TOP, 34).
-define(BOTTOM, 10).

%% @doc Returns the chart of a scenario's first metric, or `none' if no contestant has it.
-spec svg(weir_bench_results:document()) -> {ok, unicode:chardata()} | none.
svg(#{<<"over">> := _} = Scenario) ->
    weir_bench_curve:svg(Scenario);
svg(#{<<"metrics">> := [Name | _], <<"title">> := Title, <<"contestants">> := Contestants}) ->
    Rows = [
        {Label, family(Contestant), Median, Min, Max}
     || #{<<"title">> := Label, <<"metrics">> := #{Name := Summary}} = Contestant <- Contestants,
        #{<<"median">> := Median, <<"min">> := Min, <<"max">> := Max} <- [Summary]
    ],
    case Rows of
        [] -> none;
        _ -> {ok, svg(Title, binary_to_existing_atom(Name), Rows)}
    end.

%% The family of a server decides the colour of its bar.
family(#{<<"backend">> := Backend}) when Backend =:= <<"weir">>; Backend =:= <<"inet">>; Backend =:= <<"socket">> ->
    Backend;
family(#{<<"backend">> := <<"reference">>}) -> <<"native">>;
family(_) -> <<"peer">>.

svg(Title, Metric, Rows) ->
    Height = ?TOP + ?ROW * length(Rows) + ?BOTTOM,
    %% Zero gives a bar of no length; the longest bar fills the width.
    Scale = ?BARS / max(1.0e-9, lists:max([Max || {_, _, _, _, Max} <- Rows])),
    [
        io_lib:format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bars\" viewBox=\"0 0 ~b ~b\" width=\"~b\" role=\"img\">",
            [?WIDTH, Height, ?WIDTH]
        ),
        "<title>", escape(Title), "</title>",
        "<style>", style(), "</style>",
        io_lib:format("<text class=\"unit\" x=\"~b\" y=\"18\">~ts, ~ts is better</text>", [
            ?LABELS, weir_bench_sample:title(Metric), weir_bench_sample:better(Metric)
        ]),
        [row(Number, Row, Metric, Scale) || {Number, Row} <- lists:zip(lists:seq(0, length(Rows) - 1), Rows)],
        "</svg>\n"
    ].

row(Number, {Label, Family, Median, Min, Max}, Metric, Scale) ->
    Top = ?TOP + Number * ?ROW,
    Middle = Top + ?ROW div 2,
    [Bar, Low, High] = [?LABELS + Value * Scale || Value <- [Median, Min, Max]],
    Value = weir_bench_sample:format(Metric, Median),
    [
        io_lib:format("<g><title>~ts: ~ts (~ts–~ts)</title>", [
            escape(Label), Value, weir_bench_sample:format(Metric, Min), weir_bench_sample:format(Metric, Max)
        ]),
        io_lib:format("<text class=\"label\" x=\"~b\" y=\"~b\">~ts</text>", [?LABELS - 8, Middle + 4, escape(Label)]),
        io_lib:format("<rect class=\"~ts\" x=\"~b\" y=\"~b\" width=\"~.1f\" height=\"~b\" rx=\"2\"/>", [
            Family, ?LABELS, Top + 4, float(Bar - ?LABELS), ?ROW - 8
        ]),
        io_lib:format("<path class=\"whisker\" d=\"M~.1f ~bH~.1fM~.1f ~bv8M~.1f ~bv8\"/>", [
            float(Low), Middle, float(High), float(Low), Middle - 4, float(High), Middle - 4
        ]),
        io_lib:format("<text class=\"value\" x=\"~.1f\" y=\"~b\">~ts</text></g>", [
            float(max(Bar, High)) + 8, Middle + 4, Value
        ])
    ].
