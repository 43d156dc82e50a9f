%% @doc The suite as a value: read from `priv/suite.config', which explains its format, and checked.
-module(weir_bench_suite).

-export([read/0]).
-export([read/1]).
-export([chosen/2]).
-export([in_set/2]).

-export_type([suite/0]).

-type suite() :: #{
    %% In order.
    chapters := [{atom(), Title :: binary()}],
    scenarios := [weir_bench_scenario:scenario()],
    %% Every chapter is also a set.
    sets := [{atom(), [weir_bench_scenario:name()]}],
    targets := [weir_bench_targets:target()]
}.

%% The state of reading. `contestants' are lists, of one element for a single contestant.
-record(reading, {
    defaults = #{} :: #{atom() => term()},
    contestants = #{} :: #{string() | atom() => [weir_bench_scenario:contestant()]},
    chapters = [] :: [{atom(), binary()}],
    scenarios = [] :: [weir_bench_scenario:scenario()],
    sets = [] :: [{atom(), [atom()]}],
    targets = [] :: [weir_bench_targets:target()]
}).

%% @doc Reads the suite of Weir.
-spec read() -> {ok, suite()} | {error, iodata()}.
read() ->
    read(weir_bench_tree:suite()).

%% @doc Reads a suite from a file. An error is one line, which names the file and the term.
-spec read(file:filename()) -> {ok, suite()} | {error, iodata()}.
read(File) ->
    case file:consult(File) of
        {ok, Terms} ->
            case terms(Terms, #reading{}) of
                {ok, Suite} -> {ok, Suite};
                {error, Reason} -> {error, [File, ": ", Reason]}
            end;
        {error, {Line, _, _} = Reason} when is_integer(Line) ->
            {error, [File, ":", file:format_error(Reason)]};
        {error, Reason} ->
            {error, [File, ": ", file:format_error(Reason)]}
    end.

terms([], #reading{chapters = Chapters, scenarios = Scenarios, sets = Sets, targets = Targets}) ->
    OfChapters = [{Name, [Of || #{name := Of, chapter := In} <- Scenarios, In =:= Name]} || {Name, _} <- Chapters],
    {ok, #{chapters => Chapters, scenarios => Scenarios, sets => OfChapters ++ Sets, targets => Targets}};
terms([Term | Terms], Reading) ->
    case term(Term, Reading) of
        {ok, Read} -> terms(Terms, Read);
        {error, Reason} -> {error, [called(Term), ": ", Reason]}
    end.

called(Term) when tuple_size(Term) >= 2, is_atom(element(1, Term)), not is_map(element(2, Term)) ->
    io_lib:format("~tp ~tp", [element(1, Term), element(2, Term)]);
called({target, #{title := Title}}) ->
    io_lib:format("target ~tp", [Title]);
called(Term) ->
    io_lib:format("~0tP", [Term, 6]).

term({defaults, Settings}, Reading) when is_map(Settings) ->
    with(weir_bench_scenario:check(Settings), fun(Checked) -> Reading#reading{defaults = Checked} end);
term({contestant, Title, Settings}, #reading{contestants = Known} = Reading) when is_map(Settings) ->
    case weir_bench_scenario:check_contestant(maps:merge(#{title => Title}, Settings)) of
        {ok, #{backend := _}} when is_map_key(Title, Known) -> {error, "it is already defined"};
        {ok, #{backend := _} = Checked} -> {ok, Reading#reading{contestants = Known#{Title => [Checked]}}};
        {ok, _} -> {error, "backend is missing"};
        {error, _} = Error -> Error
    end;
term({contestants, Name, Titles}, #reading{contestants = Known} = Reading) when is_atom(Name), is_list(Titles) ->
    with(contestants(Titles, Known), fun(Several) ->
        Reading#reading{contestants = Known#{Name => Several}}
    end);
term({chapter, Name, Title}, #reading{chapters = Chapters} = Reading) when is_atom(Name) ->
    with(weir_bench_scenario:check(#{title => Title}), fun(#{title := Checked}) ->
        Reading#reading{chapters = Chapters ++ [{Name, Checked}]}
    end);
term({scenario, _Name, _Settings}, #reading{chapters = []}) ->
    {error, "no chapter is above it"};
term({scenario, Name, Settings}, #reading{scenarios = Scenarios} = Reading) when is_atom(Name), is_map(Settings) ->
    case is_known(Name, Scenarios) of
        true -> {error, "it is already defined"};
        false ->
            with(scenario(Name, Settings, Reading), fun(One) -> Reading#reading{scenarios = Scenarios ++ [One]} end)
    end;
term({set, Name, Names}, #reading{scenarios = Scenarios, sets = Sets} = Reading) when is_atom(Name), is_list(Names) ->
    case [Unknown || Unknown <- Names, not is_known(Unknown, Scenarios)] of
        [] -> {ok, Reading#reading{sets = Sets ++ [{Name, Names}]}};
        [Unknown | _] -> {error, io_lib:format("no scenario ~tp is defined above it", [Unknown])}
    end;
term({target, Settings}, #reading{scenarios = Scenarios, targets = Targets} = Reading) when is_map(Settings) ->
    with(weir_bench_targets:target(Settings, Scenarios), fun(Target) ->
        Reading#reading{targets = Targets ++ [Target]}
    end);
term(_Term, _Reading) ->
    {error, "unknown term; the beginning of the suite lists the valid ones"}.

with({ok, Value}, Use) -> {ok, Use(Value)};
with({error, _} = Error, _Use) -> Error.

is_known(Name, Scenarios) ->
    lists:any(fun(#{name := Known}) -> Known =:= Name end, Scenarios).

scenario(Name, #{like := Model} = Settings, #reading{scenarios = Scenarios} = Reading) ->
    case [Scenario || #{name := Known} = Scenario <- Scenarios, Known =:= Model] of
        [Scenario] -> scenario(Name, maps:remove(like, Settings), Reading, Scenario);
        [] -> {error, io_lib:format("like: no scenario ~tp is defined above it", [Model])}
    end;
scenario(Name, Settings, #reading{defaults = Defaults} = Reading) ->
    scenario(Name, Settings, Reading, Defaults).

scenario(Name, Settings, #reading{contestants = Known, chapters = Chapters}, Inherited) ->
    {Chapter, _} = lists:last(Chapters),
    then(weir_bench_scenario:check(maps:remove(contestants, Settings)), fun(Checked) ->
        Whole = maps:merge(Inherited, Checked#{name => Name, chapter => Chapter}),
        then(own_contestants(Settings, Known), fun(Own) ->
            Scenario = maps:merge(Whole, Own),
            case weir_bench_scenario:complete(Scenario) of
                ok -> {ok, Scenario};
                {error, _} = Error -> Error
            end
        end)
    end).

own_contestants(#{contestants := Titles}, Known) when is_list(Titles) ->
    with(contestants(Titles, Known), fun(Contestants) -> #{contestants => Contestants} end);
own_contestants(#{contestants := _}, _Known) ->
    {error, "contestants is not a list"};
own_contestants(_Settings, _Known) ->
    {ok, #{}}.

then({ok, Value}, Then) -> Then(Value);
then({error, _} = Error, _Then) -> Error.

contestants([], _Known) ->
    {ok, []};
contestants([{Title, Settings} | Rest], Known) when is_map_key(Title, Known), is_map(Settings) ->
    case {weir_bench_scenario:check_contestant(Settings), map_get(Title, Known)} of
        {{ok, Own}, [Contestant]} ->
            with(contestants(Rest, Known), fun(Others) -> [maps:merge(Contestant, Own) | Others] end);
        {{error, Reason}, _} ->
            {error, io_lib:format("contestant ~tp: ~ts", [Title, Reason])};
        {{ok, _}, _Several} ->
            {error, io_lib:format("~tp names several contestants, which take no settings here", [Title])}
    end;
contestants([Title | Rest], Known) when is_map_key(Title, Known) ->
    with(contestants(Rest, Known), fun(Others) -> map_get(Title, Known) ++ Others end);
contestants([Unknown | _], _Known) ->
    {error, io_lib:format("no contestant ~0tp is defined above it", [Unknown])}.

%% @doc Returns the scenarios of these names and sets, in the order of the suite.
-spec chosen([string()], suite()) -> {ok, [weir_bench_scenario:name()]} | {error, Needed :: iodata()}.
chosen(Texts, #{scenarios := Scenarios, sets := Sets}) ->
    Names = [Name || #{name := Name} <- Scenarios],
    Choices = [{atom_to_list(Name), [Name]} || Name <- Names] ++ [{atom_to_list(Set), Of} || {Set, Of} <- Sets],
    case Texts -- [Choice || {Choice, _} <- Choices] of
        [] when Texts =/= [] ->
            Chosen = lists:append([Of || {Choice, Of} <- Choices, lists:member(Choice, Texts)]),
            {ok, [Name || Name <- Names, lists:member(Name, Chosen)]};
        Unknown ->
            {error, [
                "unknown scenario, chapter or set \"", lists:join(", ", Unknown), "\"; --list shows the valid ones"
            ]}
    end.

%% @doc Returns the scenarios of a set.
-spec in_set(atom(), suite()) -> [weir_bench_scenario:scenario()].
in_set(Set, #{scenarios := Scenarios, sets := Sets}) ->
    {Set, Names} = lists:keyfind(Set, 1, Sets),
    [Scenario || #{name := Name} = Scenario <- Scenarios, lists:member(Name, Names)].
