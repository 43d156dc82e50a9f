%% @doc Formats the results of a run: a line for each suite while they run, then the failures, the skipped tests with
%% their reasons, the slowest tests, and the sum.
-module(weir_test_report).

-export([suite/2]).
-export([failure/1]).
-export([sum/2]).
-export([has_failed/1]).
-export([label/1]).

-export_type([result/0]).

%% A result of a test, or a fault of the run itself, which has no suite.
-type result() :: #{
    part := string(),
    suite => module(),
    groups => [atom()],
    name := atom() | string(),
    time := non_neg_integer(),
    outcome := weir_test_connection:outcome()
}.

%% How many of the slowest suites and cases are named.
-define(SLOWEST, 10).
%% Length of a reason in characters: in the sum, and when it is printed at once.
-define(SHORT, 300).
-define(LONG, 4000).

%% @doc Returns the line of a suite that has ended.
-spec suite(module(), [result()]) -> iolist().
suite(Suite, Results) ->
    Time = lists:sum([Time || #{time := Time} <- Results]),
    Others = [
        io_lib:format(", ~b ~s", [Count, Kind])
     || Kind <- [failed, skipped], Count <- [count(Kind, Results)], Count > 0
    ],
    io_lib:format("~-46s ~4b passed~s, ~.1f s~n", [Suite, count(passed, Results), Others, Time / 1000]).

%% @doc Returns everything that is known of a failure.
-spec failure(result()) -> iolist().
failure(#{outcome := {failed, Reason}} = Result) ->
    io_lib:format("~ts failed:~n    ~ts~n", [label(Result), indented(text(Reason, "~tp", ?LONG))]).

indented(Text) -> lists:join("\n    ", string:split(Text, "\n", all)).

%% @doc Returns the end of the report of a run that took this many seconds.
-spec sum([result()], non_neg_integer()) -> iolist().
sum(Results, Seconds) ->
    Skipped = count(skipped, Results),
    [
        "\n",
        slowest_suites(Results),
        slowest_cases(Results),
        skipped(Results),
        [
            io_lib:format("FAILED ~ts: ~ts~n", [label(Result), text(Reason, "~0tp", ?SHORT)])
         || #{outcome := {failed, Reason}} = Result <- Results
        ],
        io_lib:format("in ~b s~n", [Seconds]),
        io_lib:format("~b passed, ~b failed", [count(passed, Results), count(failed, Results)]),
        [io_lib:format(", ~b skipped", [Skipped]) || Skipped > 0],
        "\n"
    ].

%% @doc Whether a test failed, or none passed.
-spec has_failed([result()]) -> boolean().
has_failed(Results) -> count(failed, Results) > 0 orelse count(passed, Results) =:= 0.

%% @doc Returns the name of a test: `SUITE:GROUP.CASE'.
-spec label(result()) -> iolist().
label(#{suite := Suite, groups := Groups, name := Name}) ->
    [atom_to_list(Suite), ":", [[atom_to_list(Group), "."] || Group <- Groups], name(Name)];
label(#{part := Part, name := Name}) ->
    [Part, ": ", name(Name)].

name(Name) when is_atom(Name) -> atom_to_list(Name);
name(Name) -> Name.

count(Kind, Results) -> length([Result || Result <- Results, kind(Result) =:= Kind]).

kind(#{outcome := passed}) -> passed;
kind(#{outcome := {Kind, _}}) -> Kind.

slowest_suites(Results) ->
    Times = maps:groups_from_list(
        fun(#{suite := Suite}) -> Suite end, fun(#{time := Time}) -> Time end, of_suites(Results)
    ),
    slowest("suites", [{lists:sum(Of), atom_to_list(Suite)} || {Suite, Of} <- maps:to_list(Times)]).

slowest_cases(Results) ->
    slowest("cases", [{Time, label(Result)} || #{time := Time} = Result <- of_suites(Results)]).

of_suites(Results) -> [Result || #{suite := _} = Result <- Results].

slowest(What, Times) when length(Times) > ?SLOWEST ->
    Slowest = lists:sublist(lists:reverse(lists:keysort(1, Times)), ?SLOWEST),
    ["slowest ", What, ":\n", [io_lib:format("  ~6.1f s  ~ts~n", [Time / 1000, Name]) || {Time, Name} <- Slowest]];
slowest(_What, _Times) ->
    [].

%% One line for each reason, with the number of its tests and the first one.
skipped(Results) ->
    Reasons = maps:groups_from_list(
        fun(#{outcome := {skipped, Reason}}) -> text(Reason, "~0tp", ?SHORT) end,
        fun label/1,
        [Result || Result <- Results, kind(Result) =:= skipped]
    ),
    [
        io_lib:format("SKIPPED ~b: ~ts (~ts)~n", [length(Labels), Reason, some(Labels)])
     || {Reason, Labels} <- maps:to_list(Reasons)
    ].

some(Labels) when length(Labels) =< 3 -> lists:join(", ", Labels);
some([First | _]) -> [First, ", ..."].

%% Printable text stays as it is.
text(Reason, Format, Most) ->
    Text = case io_lib:printable_unicode_list(Reason) of
        true -> Reason;
        false -> lists:flatten(io_lib:format(Format, [Reason]))
    end,
    case length(Text) > Most of
        true -> string:slice(Text, 0, Most) ++ "...";
        false -> Text
    end.
