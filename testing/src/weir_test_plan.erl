%% @doc Plans a run: divides the tests of the tree into parts, one for each worker.
-module(weir_test_plan).

-export([parts/2]).
-export([chaos/2]).
-export([modules/1]).

-export_type([part/0, wanted/0]).

%% A part is run by one worker. `units' are EUnit modules, `suites' are Common Test suites in one directory of
%% compiled tests, `cargo' is a Rust crate. With `chaos' the part runs on the chaos build in that directory, with that
%% seed.
-type part() ::
    #{kind := units, name := string(), modules := [module()]}
    | #{
        kind := suites,
        name := string(),
        directory := file:filename(),
        suites := [module()],
        group => atom(),
        testcase => atom(),
        chaos => {file:filename(), Seed :: pos_integer()}
    }
    | #{kind := cargo, name := string(), crate := file:filename()}.
%% A filter on tests; without keys, all tests.
-type wanted() :: #{application => string(), suite => string(), group => atom(), testcase => atom()}.

%% Most suites in a part: few enough to spread them evenly over the workers.
-define(SUITES, 8).
%% These run first because they take longest: they start nodes, programs and browsers.
-define(FIRST, ["weir_cli", "weir_scope", "weir_load", "weir_compatibility", "weir_bench"]).

%% @doc Returns the parts of the tree that are wanted, longest first. `Lib' is where rebar3 has compiled the
%% applications. Fails with `{nothing_to_run, Wanted}' if no test matches.
-spec parts(file:filename(), wanted()) -> [part()].
parts(Lib, Wanted) ->
    case [Part || Application <- applications(Lib), Part <- of_application(Application, Wanted)] of
        [] -> error({nothing_to_run, Wanted});
        Parts -> units_together(Parts)
    end.

%% @doc Returns parts that run the scenarios of the tree again on the chaos build in the directory `Chaos'. Scenarios
%% are suites that act at random and check invariants.
-spec chaos(file:filename(), file:filename()) -> [part()].
chaos(Lib, Chaos) ->
    [
        #{kind => suites, name => Name ++ "-chaos", directory => filename:join([Lib, Name, "test"]), suites => Suites,
            chaos => {Chaos, rand:uniform(1000000)}}
     || {Name, Source, _} <- applications(Lib), Suites <- [sources(Source, "_scenario_SUITE", #{})], Suites =/= []
    ].

%% @doc Returns the test modules and crates of these parts. Each must have had a result when all have run.
-spec modules([part()]) -> [module()].
modules(Parts) -> lists:usort([Module || Part <- Parts, Module <- modules_of(Part)]).

modules_of(#{modules := Modules}) -> Modules;
modules_of(#{suites := Suites}) -> Suites;
modules_of(#{crate := Crate}) -> [list_to_atom(Crate)].

%% {Name, Directory of compiled tests}. Applications are found by their sources, so that compiled leftovers of removed
%% sources do not run.
applications(Lib) ->
    Files = filelib:wildcard("apps/*/src/*.app.src") ++ filelib:wildcard("*/src/*.app.src"),
    All = [{filename:basename(File, ".app.src"), filename:dirname(filename:dirname(File)), Lib} || File <- Files],
    {First, Others} = lists:partition(fun({Name, _, _}) -> lists:member(Name, ?FIRST) end, All),
    First ++ Others.

of_application({Name, Source, Lib}, Wanted) ->
    Directory = filename:join([Lib, Name, "test"]),
    case lists:member(maps:get(application, Wanted, Name), [Name, filename:basename(Source)]) of
        true ->
            units(Name, sources(Source, "_tests", Wanted)) ++
                suites(Name, Directory, sources(Source, "_SUITE", Wanted), Wanted);
        false ->
            []
    end.

sources(Source, Ending, Wanted) ->
    Names = [
        filename:basename(File, ".erl")
     || File <- filelib:wildcard(filename:join([Source, "test", "*" ++ Ending ++ ".erl"]))
    ],
    [list_to_atom(Name) || Name <- Names, maps:get(suite, Wanted, Name) =:= Name].

units(_Name, []) -> [];
units(Name, Modules) -> [#{kind => units, name => Name ++ "-units", modules => Modules}].

suites(_Name, _Directory, [], _Wanted) ->
    [];
suites(Name, Directory, Suites, Wanted) ->
    Parts = (length(Suites) + ?SUITES - 1) div ?SUITES,
    Size = (length(Suites) + Parts - 1) div Parts,
    Chosen = maps:with([group, testcase], Wanted),
    [
        Chosen#{kind => suites, name => part_name(Name, Number, Parts), directory => Directory, suites => Part}
     || {Number, Part} <- lists:zip(lists:seq(1, Parts), split(Suites, Size))
    ].

part_name(Name, _Number, 1) -> Name;
part_name(Name, Number, _Parts) -> lists:concat([Name, "-", Number]).

split(Suites, Size) when length(Suites) =< Size -> [Suites];
split(Suites, Size) ->
    {Part, Rest} = lists:split(Size, Suites),
    [Part | split(Rest, Size)].

%% EUnit modules are small: one worker runs all of them.
units_together(Parts) ->
    case lists:partition(fun(#{kind := Kind}) -> Kind =:= units end, Parts) of
        {[_, _ | _] = Units, Suites} -> [#{kind => units, name => "units", modules => modules(Units)} | Suites];
        _ -> Parts
    end.
