%% The parser of forms, with input split into any pieces.
-module(weir_http_multipart_parser_tests).

-include_lib("proper/include/proper.hrl").
-include_lib("eunit/include/eunit.hrl").

-define(LIMITS, {5, 100}).

%% Returns the parts, each as its lines and its data, or the error.
parsed(Pieces) -> parsed(Pieces, weir_http_multipart_parser:new(<<"B">>, ?LIMITS), []).

parsed(Pieces, Parser, Parts) ->
    case {weir_http_multipart_parser:next(Parser), Pieces, Parts} of
        {{part, Lines, Next}, _, _} ->
            parsed(Pieces, Next, [{Lines, <<>>} | Parts]);
        {{data, Bytes, Next}, _, [{Lines, Data} | Before]} ->
            parsed(Pieces, Next, [{Lines, <<Data/binary, Bytes/binary>>} | Before]);
        {{end_of_part, Next}, _, _} ->
            parsed(Pieces, Next, Parts);
        {more, [Piece | Rest], _} ->
            parsed(Rest, weir_http_multipart_parser:feed(Piece, Parser), Parts);
        {more, [], _} ->
            {more, lists:reverse(Parts)};
        {done, _, _} ->
            lists:reverse(Parts);
        {{error, Reason}, _, _} ->
            Reason
    end.

forms_test() ->
    [
        ?assertEqual(Parts, parsed([Text]), Text)
     || {Text, Parts} <- [
            {<<"--B--">>, []},
            {<<"--B\r\n\r\na\r\n--B--\r\n">>, [{<<>>, <<"a">>}]},
            {<<"--B\r\n\r\n\r\n--B--">>, [{<<>>, <<>>}]},
            {<<"preamble\r\n--B \t\r\nA: b\r\n\r\n\r\n\r\n--B\r\nC: d\r\n\r\n--B\r--\n\r\n--B--epilogue">>,
                [{<<"A: b\r\n">>, <<"\r\n">>}, {<<"C: d\r\n">>, <<"--B\r--\n">>}]}
        ]
    ].

wrong_test() ->
    [
        ?assertEqual(Reason, parsed([Text]), Text)
     || {Text, Reason} <- [
            {binary:copy(<<"x">>, 5000), {bad_multipart, preamble}},
            {<<"--Bx\r\n\r\n">>, {bad_multipart, boundary}},
            {<<"--B-x\r\n\r\n">>, {bad_multipart, boundary}},
            {<<"--B\n\r\n">>, {bad_multipart, boundary}},
            {<<"--B", (binary:copy(<<" ">>, 300))/binary>>, {bad_multipart, boundary}},
            {<<"--B\r\n\r\na\r\n--Bx">>, {bad_multipart, boundary}},
            {<<"--B\r\nA b\r\n\r\n">>, {bad_multipart, fields}},
            {<<"--B\r\nA: b\n\r\n">>, {bad_multipart, fields}},
            {<<"--B\r\nA: ", (binary:copy(<<"b">>, 100))/binary>>, {too_large, part_head}},
            {
                iolist_to_binary(["--B\r\n", [["A:", integer_to_list(N rem 10), "\r\n"] || N <- lists:seq(1, 17)]]),
                {too_large, part_head}
            },
            {binary:copy(<<"--B\r\n\r\n\r\n">>, 6), {too_large, parts}}
        ]
    ].

incomplete_test() ->
    Text = <<"--B\r\nA: b\r\n\r\ndata\r\n--B--">>,
    [?assertMatch({more, _}, parsed([binary:part(Text, 0, End)])) || End <- lists:seq(0, byte_size(Text) - 1)].

%% An encoded form is decoded to the same, in any pieces.
any_pieces_test_() ->
    {timeout, 60, ?_assert(proper:quickcheck(any_pieces(), [{numtests, 500}, {to_file, user}, quiet]))}.

any_pieces() ->
    ?FORALL(
        {Datas, Sizes},
        {?LET(Count, range(0, 5), vector(Count, data())), non_empty(list(range(1, 9)))},
        begin
            Text = iolist_to_binary([[["--B\r\nA: b\r\n\r\n", Data, "\r\n"] || Data <- Datas], "--B--\r\n"]),
            parsed(pieces(Text, Sizes, Sizes)) =:= [{<<"A: b\r\n">>, Data} || Data <- Datas]
        end
    ).

%% Consists of fragments of boundaries, but contains no complete one.
data() ->
    ?SUCHTHAT(
        Data,
        ?LET(
            Parts,
            list(oneof([<<"\r">>, <<"\n">>, <<"-">>, <<"B">>, <<"\r\n-">>, <<"\r\n--">>, binary()])),
            iolist_to_binary(Parts)
        ),
        binary:match(<<"\r\n", Data/binary, "\r\n-">>, <<"\r\n--B">>) =:= nomatch
    ).

pieces(Text, [Size | Sizes], All) when byte_size(Text) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Text,
    [Piece | pieces(Rest, Sizes, All)];
pieces(Text, [], All) -> pieces(Text, All, All);
pieces(Text, _, _) -> [Text].

any_bytes_test_() ->
    {timeout, 60, ?_assert(proper:quickcheck(any_bytes(), [{numtests, 500}, {to_file, user}, quiet]))}.

%% Any input gives the same result in pieces as in one, and does not raise.
any_bytes() ->
    ?FORALL(
        {Parts, Sizes},
        {
            list(
                oneof([
                    <<"--B">>, <<"\r\n">>, <<"--">>, <<"A: b">>, <<" ">>, <<"\r\n--B\r\n">>, <<"\r\n\r\n">>, binary()
                ])
            ),
            non_empty(list(range(1, 9)))
        },
        begin
            Text = iolist_to_binary(Parts),
            without_data(parsed([Text])) =:= without_data(parsed(pieces(Text, Sizes, Sizes)))
        end
    ).

%% How much of the last data is held back depends on the pieces.
without_data({more, Parts}) -> {more, length(Parts)};
without_data(Other) -> Other.
