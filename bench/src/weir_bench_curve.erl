%% @doc Draws a scenario over schedulers as SVG: a curve of the first metric for each contestant. The y axis begins at
%% 0; the steps of the x axis, numbers of schedulers, have equal width.
-module(weir_bench_curve).

-export([svg/1]).

-import(weir_bench_svg, [style/0, escape/1]).

-define(WIDTH, 760).
-define(LEFT, 70).
-define(CURVES, 470).
-define(TOP, 34).
-define(HEIGHT, 260).
-define(ROW, 20).

%% @doc Returns the chart of a scenario, or `none' if no contestant has its first metric.
-spec svg(weir_bench_results:document()) -> {ok, unicode:chardata()} | none.
svg(#{<<"metrics">> := [Name | _], <<"title">> := Title, <<"contestants">> := Contestants}) ->
    Points = [
        {weir_bench_scenario:plain_title(Label), Schedulers, Median}
     || #{
            <<"title">> := Label,
            <<"schedulers">> := Schedulers,
            <<"metrics">> := #{Name := #{<<"median">> := Median}}
        } <- Contestants
    ],
    case Points of
        [] -> none;
        _ -> {ok, svg(Title, binary_to_existing_atom(Name), Points)}
    end.

svg(Title, Metric, Points) ->
    Steps = lists:usort([Schedulers || {_, Schedulers, _} <- Points]),
    Labels = first_of_each([Label || {Label, _, _} <- Points]),
    Top = lists:max([1.0e-9 | [Value || {_, _, Value} <- Points]]),
    At = fun(Schedulers, Value) ->
        {?LEFT + ?CURVES * position(Schedulers, Steps) / max(1, length(Steps) - 1), ?TOP + ?HEIGHT * (1 - Value / Top)}
    end,
    Height = max(?TOP + ?HEIGHT + 40, ?TOP + ?ROW * (length(Labels) + 1)),
    [
        io_lib:format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bars\" viewBox=\"0 0 ~b ~b\" width=\"~b\" role=\"img\">",
            [?WIDTH, Height, ?WIDTH]
        ),
        "<title>",
        escape(Title),
        "</title><style>",
        style(),
        "</style>",
        io_lib:format("<text class=\"unit\" x=\"~b\" y=\"18\">~ts by schedulers, ~ts is better</text>", [
            ?LEFT, weir_bench_sample:title(Metric), weir_bench_sample:better(Metric)
        ]),
        axes(Metric, Top, [{Step, At(Step, 0)} || Step <- Steps]),
        [
            curve(
                Number,
                Label,
                [{Step, Value, At(Step, Value)} || {Of, Step, Value} <- lists:keysort(2, Points), Of =:= Label],
                Metric
            )
         || {Number, Label} <- lists:zip(lists:seq(0, length(Labels) - 1), Labels)
        ],
        "</svg>\n"
    ].

position(Step, Steps) -> length(lists:takewhile(fun(Other) -> Other < Step end, Steps)).

first_of_each([]) -> [];
first_of_each([Label | Labels]) -> [Label | first_of_each([Other || Other <- Labels, Other =/= Label])].

axes(Metric, Top, Steps) ->
    Bottom = ?TOP + ?HEIGHT,
    [
        io_lib:format("<path class=\"axis\" d=\"M~b ~bV~bH~b\"/>", [?LEFT, ?TOP, Bottom, ?LEFT + ?CURVES]),
        [
            io_lib:format("<text class=\"label\" x=\"~b\" y=\"~b\">~ts</text>", [
                ?LEFT - 8, Y + 4, weir_bench_sample:format(Metric, Value)
            ])
         || {Y, Value} <- [{?TOP, Top}, {?TOP + ?HEIGHT div 2, Top / 2}, {Bottom, 0}]
        ],
        [
            io_lib:format("<text class=\"middle\" x=\"~.1f\" y=\"~b\">~b:~b</text>", [
                float(X), Bottom + 20, Step, Step
            ])
         || {Step, {X, _}} <- Steps
        ]
    ].

%% A line with a point for each step, and its name on the right.
curve(Number, Label, Points, Metric) ->
    Colour = colour(Number),
    Named = ?TOP + ?ROW * Number,
    [
        "<g><path class=\"curve\" stroke=\"",
        Colour,
        "\" d=\"M",
        lists:join("L", [io_lib:format("~.1f ~.1f", [float(X), float(Y)]) || {_, _, {X, Y}} <- Points]),
        "\"/>",
        [
            io_lib:format(
                "<circle cx=\"~.1f\" cy=\"~.1f\" r=\"3.5\" fill=\"~s\"><title>~ts, ~b:~b: ~ts</title></circle>", [
                    float(X), float(Y), Colour, escape(Label), Step, Step, weir_bench_sample:format(Metric, Value)
                ]
            )
         || {Step, Value, {X, Y}} <- Points
        ],
        io_lib:format("<rect x=\"~b\" y=\"~b\" width=\"12\" height=\"12\" rx=\"2\" fill=\"~s\"/>", [
            ?LEFT + ?CURVES + 30, Named, Colour
        ]),
        io_lib:format("<text x=\"~b\" y=\"~b\">~ts</text></g>", [?LEFT + ?CURVES + 50, Named + 11, escape(Label)])
    ].

colour(Number) ->
    Colours = ["#2563eb", "#d97706", "#059669", "#8b5cf6", "#dc2626", "#0891b2", "#8a97a6", "#db2777"],
    lists:nth(Number rem length(Colours) + 1, Colours).
