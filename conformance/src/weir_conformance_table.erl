%% @doc Formats the comparison as text for a terminal and as Markdown.
-module(weir_conformance_table).

-export([row/5]).
-export([text/1]).
-export([markdown/3]).

-export_type([row/0]).

-type row() :: #{
    suite := module(),
    'case' := atom(),
    stock := weir_conformance_verdict:outcome(),
    weir := weir_conformance_verdict:outcome(),
    verdict := weir_conformance_verdict:verdict(),
    reason := string() | undefined
}.
%% The reason is a row of `docs/differences.md', for a case that is worse.

%% @doc Returns a row of the table.
-spec row(module(), atom(), Stock, Weir, Reason :: string() | undefined) -> row() when
    Stock :: weir_conformance_verdict:outcome(),
    Weir :: weir_conformance_verdict:outcome().
row(Suite, Case, Stock, Weir, Reason) ->
    Verdict = weir_conformance_verdict:of_results(Stock, Weir),
    #{
        suite => Suite,
        'case' => Case,
        stock => Stock,
        weir => Weir,
        verdict => Verdict,
        reason =>
            case Verdict of
                worse -> Reason;
                _ -> undefined
            end
    }.

%% @doc Returns a line for each case, and what Common Test reported for cases that are worse without a reason.
-spec text([row()]) -> iodata().
text(Rows) ->
    Cells = [["suite", "case", "stock", "Weir", "sockets on Weir", "verdict"] | [cells(Row) || Row <- Rows]],
    Widths = [lists:max([string:length(Cell) || Cell <- Column]) || Column <- columns(Cells)],
    [
        [[line(Line, Widths), $\n] || Line <- Cells],
        $\n,
        [unexplained(Row) || Row = #{verdict := worse, reason := undefined} <- Rows],
        sums(Rows),
        $\n
    ].

cells(Row = #{suite := Suite, 'case' := Case, stock := Stock, weir := Weir}) ->
    [atom_to_list(Suite), atom_to_list(Case), result(Stock), result(Weir), sockets(Weir), verdict(Row)].

result(absent) -> "absent";
result(#{result := Result}) -> atom_to_list(Result).

sockets(absent) -> "";
sockets(#{on_weir := OnWeir, elsewhere := 0}) -> integer_to_list(OnWeir);
sockets(#{on_weir := OnWeir, elsewhere := Elsewhere}) -> lists:concat([OnWeir, " of ", OnWeir + Elsewhere]).

verdict(#{verdict := worse, reason := undefined}) -> "worse";
verdict(#{verdict := worse, reason := Reason}) -> "worse: " ++ Reason;
verdict(#{verdict := not_on_weir}) -> "not on Weir";
verdict(#{verdict := Verdict}) -> atom_to_list(Verdict).

columns([[] | _]) -> [];
columns(Rows) -> [[hd(Row) || Row <- Rows] | columns([tl(Row) || Row <- Rows])].

line([Cell], [_Width]) -> [Cell];
line([Cell | Cells], [Width | Widths]) -> [string:pad(Cell, Width + 2) | line(Cells, Widths)].

unexplained(#{suite := Suite, 'case' := Case, weir := Weir}) ->
    io_lib:format("worse without a reason: ~s:~s~n  ~ts~n", [Suite, Case, said(Weir)]).

said(absent) -> "it did not run";
said(#{reason := Reason}) -> string:slice(Reason, 0, 600).

sums(Rows) ->
    #{same := Same, better := Better, worse := Worse, not_on_weir := NotOnWeir} =
        weir_conformance_verdict:sums([Verdict || #{verdict := Verdict} <- Rows]),
    io_lib:format("~b cases: ~b same, ~b better, ~b worse, ~b not on Weir", [
        length(Rows), Same, Better, Worse, NotOnWeir
    ]).

%% @doc Returns a heading, remarks about the figures, the sums and a table for each suite.
-spec markdown(Title :: unicode:chardata(), About :: unicode:chardata(), [row()]) -> unicode:chardata().
markdown(Title, About, Rows) ->
    Suites = lists:usort([Suite || #{suite := Suite} <- Rows]),
    [
        ["# ", Title, "\n\n", About, "\n", sums(Rows), ".\n"],
        [section(Suite, [Row || Row = #{suite := Of} <- Rows, Of =:= Suite]) || Suite <- Suites]
    ].

section(Suite, Rows) ->
    [
        ["\n## ", atom_to_list(Suite), "\n\n", sums(Rows), ".\n\n"],
        "| case | stock | Weir | sockets on Weir | verdict |\n| --- | --- | --- | --- | --- |\n",
        [["| ", lists:join(" | ", tl(cells(Row))), " |\n"] || Row <- Rows]
    ].
