%% @doc The targets of Weir against stock gen_tcp on the same OTP, native code and other peers, and whether they are
%% met.
-module(weir_bench_targets).

-export([target/2]).
-export([check/3]).

-export_type([target/0, verdict/0, rival/0]).

-type target() :: #{
    title := binary(),
    scenario := weir_bench_scenario:name(),
    metric := weir_bench_sample:metric(),
    contestant := binary(),
    rival := rival(),
    relation := relation(),
    %% By OTP release. A release that is missing has no target.
    limits := #{pos_integer() => number()}
}.

%% `measured' is absent unless both contestants were measured.
-type verdict() :: #{
    title := binary(),
    rival := rival(),
    relation := relation(),
    limit := number(),
    measured => number(),
    met => boolean()
}.

%% What Weir is compared with: a contestant by title, the best of several, or `nobody' for an absolute figure.
-type rival() :: binary() | {best_of, [binary(), ...]} | nobody.

%% The limit is for the ratio to the rival's figure (at least or at most), for the difference, or for the figure
%% itself.
-type relation() :: ratio_at_least | ratio_at_most | difference_at_most | at_most.

-define(RELATIONS, [ratio_at_least, ratio_at_most, difference_at_most, at_most]).

%% @doc Converts the settings of a target, with strings for titles; or returns the error. Unknown scenarios and
%% contestants are refused, because such a target would never be met or missed.
-spec target(#{atom() => term()}, [weir_bench_scenario:scenario()]) -> {ok, target()} | {error, iodata()}.
target(
    #{
        title := Title, scenario := Name, metric := Metric, contestant := Contestant, rival := Rival,
        relation := Relation, limits := Limits
    } = Settings,
    Scenarios
) when map_size(Settings) =:= 7 ->
    Known = [Of || #{name := Known} = Of <- Scenarios, Known =:= Name],
    Titles = [Of || #{contestants := Contestants} <- Known, #{title := Of} <- Contestants],
    Named = [unicode:characters_to_binary(One) || One <- [Contestant | titles(Rival)]],
    Checks = [
        {Known =/= [], {"no scenario ~tp is defined above it", Name}},
        {lists:member(Metric, weir_bench_sample:metrics()), {"unknown metric ~tp", Metric}},
        {lists:member(Relation, ?RELATIONS), {"unknown relation ~tp", Relation}},
        {Named -- Titles =:= [], {"its scenario has no contestant ~ts", lists:join(", ", Named -- Titles)}},
        {are_limits(Limits), {"limits are ~tp, a map of OTP releases to numbers is needed", Limits}}
    ],
    case [Wrong || {false, Wrong} <- Checks] of
        [{Format, Value} | _] ->
            {error, io_lib:format(Format, [Value])};
        [] ->
            [Of | _] = Named,
            {ok, Settings#{title := unicode:characters_to_binary(Title), contestant := Of, rival := rival(Rival)}}
    end;
target(_Settings, _Scenarios) ->
    {error, "exactly title, scenario, metric, contestant, rival, relation and limits are needed"}.

titles(nobody) -> [];
titles({best_of, Titles}) -> Titles;
titles(Title) -> [Title].

rival(nobody) -> nobody;
rival({best_of, Titles}) -> {best_of, [unicode:characters_to_binary(Title) || Title <- Titles]};
rival(Title) -> unicode:characters_to_binary(Title).

are_limits(Limits) when is_map(Limits) ->
    lists:all(fun({Release, Limit}) -> is_integer(Release) andalso is_number(Limit) end, maps:to_list(Limits));
are_limits(_) ->
    false.

%% @doc Compares the targets of an OTP release with the measurements. `Median' returns the median of a metric for a
%% contestant, by title, in a scenario.
-spec check(Release :: pos_integer(), [target()], Median) -> [verdict()] when
    Median :: fun(
        (weir_bench_scenario:name(), Contestant :: binary(), weir_bench_sample:metric()) -> {ok, number()} | unknown
    ).
check(Release, Targets, Median) ->
    [
        verdict(#{title => Title, rival => Rival, relation => Relation, limit => Limit},
            Of(Contestant), figure(Rival, Relation, Of))
     || #{
            title := Title, scenario := Scenario, metric := Metric, contestant := Contestant, rival := Rival,
            relation := Relation, limits := #{Release := Limit}
        } <- Targets,
        Of <- [fun(Named) -> Median(Scenario, Named, Metric) end]
    ].

figure(nobody, _Relation, _Of) ->
    {ok, 0};
figure({best_of, Titles}, Relation, Of) ->
    case [Value || {ok, Value} <- lists:map(Of, Titles)] of
        Values when length(Values) < length(Titles) -> unknown;
        Values when Relation =:= ratio_at_least -> {ok, lists:max(Values)};
        Values -> {ok, lists:min(Values)}
    end;
figure(Title, _Relation, Of) ->
    Of(Title).

verdict(#{relation := Relation, limit := Limit} = Target, {ok, Weir}, {ok, Rival}) when
    Rival > 0; Relation =:= difference_at_most; Relation =:= at_most
->
    Measured = measured(Relation, Weir, Rival),
    Met =
        case Relation of
            ratio_at_least -> Measured >= Limit;
            _ -> Measured =< Limit
        end,
    Target#{measured => Measured, met => Met};
verdict(Target, _, _) ->
    Target.

measured(difference_at_most, Weir, Rival) -> Weir - Rival;
measured(at_most, Weir, _Nobody) -> Weir;
measured(_Ratio, Weir, Rival) -> Weir / Rival.
