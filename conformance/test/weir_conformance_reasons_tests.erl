-module(weir_conformance_reasons_tests).

-include_lib("eunit/include/eunit.hrl").

rows_are_named_by_their_first_cell_test() ->
    Text =
        <<"# Title\n\ntext | with a bar\n\n| what | why |\n| --- | --- |\n| `buffer` unless set | fewer messages |\n">>,
    ?assertEqual(["what", "---", "`buffer` unless set"], weir_conformance_reasons:rows(Text)).

%% Reads the files of the tree, as scripts/conformance does.
every_reason_is_a_row_of_the_document_test() ->
    Tree = tree(filename:absname("")),
    Reasons = weir_conformance_reasons:read(
        filename:join([Tree, "conformance", "priv", "differences.terms"]),
        filename:join([Tree, "docs", "differences.md"])
    ),
    ?assert(is_map(Reasons)).

tree(Directory) ->
    case filelib:is_regular(filename:join([Directory, "docs", "differences.md"])) of
        true -> Directory;
        false -> tree(filename:dirname(Directory))
    end.
