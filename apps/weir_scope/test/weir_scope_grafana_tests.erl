%% The Grafana dashboard uses metrics that exist, and a rate only for counters.
-module(weir_scope_grafana_tests).

-include_lib("eunit/include/eunit.hrl").

%% promtool reads them too.
-export([expressions/0]).

dashboard() ->
    {ok, Bytes} = file:read_file(filename:join([code:priv_dir(weir_scope), "grafana", "weir_scope.json"])),
    {ok, Dashboard} = weir_json:decode(Bytes),
    Dashboard.

panels() ->
    #{<<"panels">> := Panels} = dashboard(),
    Panels.

expressions() ->
    #{<<"templating">> := #{<<"list">> := Variables}} = dashboard(),
    [Expression || #{<<"targets">> := Targets} <- panels(), #{<<"expr">> := Expression} <- Targets] ++
        [Query || #{<<"query">> := #{<<"query">> := Query}} <- Variables].

%% Each metric in an expression, whether it is in a rate(), and the labels of its selector.
asked(Expression) ->
    {match, Found} = re:run(Expression, "(rate\\()?\\b((?:beam|weir)_[a-z_]+)(?:\\{([^}]*)\\})?", [
        global, {capture, all_but_first, binary}
    ]),
    [
        {Name, Rate =/= <<>>, [
            hd(binary:split(Label, [<<"=">>, <<"!=">>]))
         || Label <- binary:split(Labels, <<",">>, [global, trim_all])
        ]}
     || [Rate, Name | More] <- Found, Labels <- [iolist_to_binary(More)]
    ].

%% The name of each series, with its kind and its labels.
metrics() ->
    {_, Metrics} = lists:foldl(
        fun
            (<<"# TYPE ", Rest/binary>>, {_, Metrics}) ->
                [_, Kind] = binary:split(Rest, <<" ">>),
                {Kind, Metrics};
            (<<"#", _/binary>>, State) ->
                State;
            (<<>>, State) ->
                State;
            (Line, {Kind, Metrics}) ->
                {match, [Name | Labels]} = re:run(Line, "^([a-z0-9_]+)(?:\\{(.*)\\})? ", [
                    {capture, all_but_first, binary}
                ]),
                {match, Keys} =
                    case iolist_to_binary(Labels) of
                        <<>> -> {match, []};
                        Text -> re:run(Text, "([a-z]+)=\"", [global, {capture, all_but_first, binary}])
                    end,
                {Kind, Metrics#{Name => {Kind, lists:append(Keys)}}}
        end,
        {none, #{}},
        weir_scope_metrics_tests:lines()
    ),
    Metrics.

metrics_exist_test() ->
    Metrics = metrics(),
    Asked = lists:append([asked(Expression) || Expression <- expressions()]),
    ?assert(length(Asked) > 30),
    [?assertEqual({Name, true}, {Name, is_map_key(Name, Metrics)}) || {Name, _, _} <- Asked].

counters_are_asked_for_by_their_rate_test() ->
    Metrics = metrics(),
    [
        ?assertEqual({Expression, Name, grows(Name, Kind)}, {Expression, Name, Rate})
     || Expression <- expressions(),
        {Name, Rate, _} <- asked(Expression),
        not is_of_a_variable(Expression),
        #{Name := {Kind, _}} <- [Metrics]
    ].

grows(_Name, <<"counter">>) -> true;
grows(Name, <<"summary">>) -> re:run(Name, "_(count|sum)$", [{capture, none}]) =:= match;
grows(_Name, _Kind) -> false.

is_of_a_variable(Expression) -> binary:match(Expression, <<"label_values">>) =/= nomatch.

labels_exist_test() ->
    Metrics = metrics(),
    [
        ?assertEqual({Name, Label, true}, {Name, Label, lists:member(Label, [<<"job">>, <<"instance">> | Known])})
     || Expression <- expressions(),
        {Name, _, Labels} <- asked(Expression),
        #{Name := {_, Known}} <- [Metrics],
        Label <- Labels
    ],
    [
        ?assertEqual(
            {Legend, Label, true},
            {Legend, Label,
                lists:any(
                    fun({Name, _, _}) -> lists:member(Label, element(2, maps:get(Name, Metrics))) end, asked(Expression)
                )}
        )
     || #{<<"targets">> := Targets} <- panels(),
        #{<<"expr">> := Expression, <<"legendFormat">> := Legend} <- Targets,
        {match, Labels} <- [re:run(Legend, "\\{\\{([a-z]+)\\}\\}", [global, {capture, all_but_first, binary}])],
        [Label] <- Labels
    ].

panels_have_their_own_place_test() ->
    Places = [
        {X + Column, Y + Row}
     || #{<<"gridPos">> := #{<<"x">> := X, <<"y">> := Y, <<"w">> := W, <<"h">> := H}} <- panels(),
        Column <- lists:seq(0, W - 1),
        Row <- lists:seq(0, H - 1)
    ],
    ?assertEqual(length(Places), length(lists:usort(Places))),
    ?assertEqual([], [Place || {X, _} = Place <- Places, X > 23]),
    Ids = [Id || #{<<"id">> := Id} <- panels()],
    ?assertEqual(length(panels()), length(lists:usort(Ids))),
    [?assertMatch(#{<<"title">> := <<_, _/binary>>}, Panel) || Panel <- panels()].
