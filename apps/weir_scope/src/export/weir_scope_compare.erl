%% @doc Compares the medians of the numbers of two recordings.
-module(weir_scope_compare).

-export([medians/2]).
-export([text/3]).

-export_type([difference/0]).

-type difference() :: #{
    section := binary(), name := binary(), before := number() | none, later := number() | none, change := float() | none
}.
%% `change': by which fraction `later' is larger (0.1: 10 % larger); `none' if one of them is zero or missing, 0.0 if
%% they are equal. `section': the first word of the name.

%% @doc Returns the median of each number in both recordings, in the order of the names.
-spec medians(weir_scope_recording:recording(), weir_scope_recording:recording()) -> [difference()].
medians(Before, Later) ->
    First = of_all(Before),
    Second = of_all(Later),
    [
        difference(Name, maps:get(Name, First, none), maps:get(Name, Second, none))
     || Name <- lists:usort(maps:keys(First) ++ maps:keys(Second))
    ].

of_all(Recording) ->
    Named = lists:append([
        lists:zip(Columns, Values)
     || #{columns := Columns, rows := Rows} <- weir_scope_recording:series(Recording, 0), {_, Values} <- Rows
    ]),
    Grouped = lists:foldl(fun({Name, Value}, Map) -> Map#{Name => [Value | maps:get(Name, Map, [])]} end, #{}, Named),
    maps:map(fun(_, Values) -> median(lists:sort(Values)) end, Grouped).

median(Sorted) ->
    Length = length(Sorted),
    case Length rem 2 of
        1 -> lists:nth(Length div 2 + 1, Sorted);
        0 -> (lists:nth(Length div 2, Sorted) + lists:nth(Length div 2 + 1, Sorted)) / 2
    end.

difference(Name, Before, Later) ->
    [Section | _] = binary:split(Name, <<".">>),
    #{section => Section, name => Name, before => Before, later => Later, change => change(Before, Later)}.

change(Before, Later) when is_number(Before), is_number(Later), Before > 0, Later > 0 -> Later / Before - 1;
change(Before, Later) when is_number(Before), is_number(Later), Before == Later -> 0.0;
change(_, _) -> none.

%% @doc Returns a table by sections of the numbers that differ by the fraction `Least' or more, and of those without a
%% change.
-spec text([difference()], Names :: {unicode:chardata(), unicode:chardata()}, Least :: float()) -> unicode:chardata().
text(Differences, {Before, Later}, Least) ->
    Told = [Difference || #{change := Change} = Difference <- Differences, Change =:= none orelse abs(Change) >= Least],
    Sections = lists:usort([Section || #{section := Section} <- Told]),
    [
        ["before  ", Before, "\nlater   ", Later, $\n],
        [
            [$\n, Section, $\n, head() | [row(Difference) || #{section := Same} = Difference <- Told, Same =:= Section]]
         || Section <- Sections
        ],
        io_lib:format("~n~b of ~b medians differ by ~b % or more.~n", [
            length(Told), length(Differences), round(Least * 100)
        ])
    ].

head() -> io_lib:format("  ~-42s ~14s ~14s ~10s~n", ["", "before", "later", "change"]).

row(#{name := Name, before := Before, later := Later, change := Change}) ->
    io_lib:format("  ~-42ts ~14s ~14s ~10s~n", [Name, number(Before), number(Later), percent(Change)]).

number(none) -> "-";
number(Value) when Value == trunc(Value); abs(Value) >= 10_000 -> integer_to_list(round(Value));
number(Value) -> float_to_list(float(Value), [{decimals, 4}]).

percent(none) -> "";
percent(Change) -> io_lib:format("~s~.1f%", [case Change > 0 of true -> "+"; false -> "" end, Change * 100]).
