%% @doc Finds wrong settings and present faults of a node. A finding says what was seen, why it matters, what to set,
%% and how sure the rule is. The doctor changes nothing.
-module(weir_scope_doctor).

-export([examine/2]).
-export([judge/1]).
-export([worst/1]).
-export([text/1]).

-export_type([report/0]).

-type report() :: #{
    node := node(),
    findings := [weir_scope_rule:finding()],
    fine := [atom()],
    unknown := [{Rule :: atom(), Missing :: [weir_scope_rule:need()]}]
}.
%% `findings': the worst first. `fine': rules that found nothing. `unknown': rules that could not be applied, with the
%% facts that are missing.

%% @doc Examines a node. See {@link weir_scope_visit:facts/2} for options and errors.
-spec examine(node(), weir_scope_visit:options()) -> {ok, report()} | {error, weir_scope_visit:reason()}.
examine(Node, Options) ->
    case weir_scope_visit:facts(Node, Options) of
        {ok, Facts} -> {ok, judge(Facts)};
        {error, _} = Error -> Error
    end.

%% @doc Applies all rules to the facts of a node.
-spec judge(weir_scope_facts:facts()) -> report().
judge(#{node := Node} = Facts) ->
    Rules = weir_scope_limits:rules() ++ weir_scope_network:rules() ++ weir_scope_usage:rules(),
    Verdicts = [{Name, weir_scope_rule:apply(Rule, Facts)} || #{name := Name} = Rule <- Rules],
    Findings = [Finding || {_, {found, Finding}} <- Verdicts],
    #{
        node => Node,
        findings => lists:sort(fun(#{severity := A}, #{severity := B}) -> rank(A) >= rank(B) end, Findings),
        fine => [Name || {Name, ok} <- Verdicts],
        unknown => [{Name, Missing} || {Name, {unknown, Missing}} <- Verdicts]
    }.

rank(critical) -> 3;
rank(warning) -> 2;
rank(note) -> 1.

%% @doc Returns the severity of the worst finding.
-spec worst(report()) -> none | weir_scope_rule:severity().
worst(#{findings := []}) -> none;
worst(#{findings := [#{severity := Severity} | _]}) -> Severity.

%% @doc Returns a report as text.
-spec text(report()) -> iodata().
text(#{node := Node, findings := Findings, fine := Fine, unknown := Unknown}) ->
    [
        io_lib:format("~s: ~s~n", [Node, summary(Findings)]),
        [finding(Finding) || Finding <- Findings],
        io_lib:format("~nNothing found by: ~s.~n", [names(Fine)]),
        [io_lib:format("Could not be checked: ~s.~n", [names([Name || {Name, _} <- Unknown])]) || Unknown =/= []]
    ].

summary([]) ->
    "nothing found";
summary(Findings) ->
    Count = fun(Severity) -> length([found || #{severity := Found} <- Findings, Found =:= Severity]) end,
    io_lib:format("~b critical, ~s, ~s", [
        Count(critical), several(Count(warning), "warning"), several(Count(note), "note")
    ]).

several(1, Name) -> ["1 ", Name];
several(Count, Name) -> [integer_to_list(Count), $\s, Name, $s].

finding(#{
    rule := Rule, severity := Severity, seen := Seen, why := Why, advice := Advice, sure := Sure, link := Link
}) ->
    io_lib:format("~n~s: ~s~n  seen    ~ts~n  why     ~ts~n  set     ~ts~n  sure    ~s~n  read    ~s~n", [
        Severity, Rule, Seen, wrapped(Why), wrapped(Advice), Sure, Link
    ]).

%% Wraps lines after about 90 characters and indents all but the first.
wrapped(Text) ->
    Lines = lists:foldl(
        fun
            (Word, [Line | Lines]) when byte_size(Line) + byte_size(Word) < 90 ->
                [<<Line/binary, " ", Word/binary>> | Lines];
            (Word, Lines) ->
                [Word | Lines]
        end,
        [],
        binary:split(Text, <<" ">>, [global])
    ),
    lists:join("\n          ", lists:reverse(Lines)).

names([]) -> "none";
names(Names) -> lists:join(", ", [atom_to_list(Name) || Name <- Names]).
