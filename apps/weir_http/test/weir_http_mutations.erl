%% Valid requests and random mutations of them, reproducible by their seed.
-module(weir_http_mutations).

-export([cases/2, last/0]).

-define(LAST, "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").

%% A request appended to each case: a server that finds the end of the case answers it.
last() -> <<?LAST>>.

%% Returns Count cases: the seeds, then mutations of them.
cases(Count, Seed) ->
    Right = [iolist_to_binary(Text) || Text <- right()],
    Odd = odd(),
    Seeds = {list_to_tuple(Right), list_to_tuple(Odd)},
    {Mutated, _} = lists:mapfoldl(
        fun(_, State) -> mutated(Seeds, State) end, rand:seed_s(exsss, Seed), lists:seq(1, Count)
    ),
    lists:sublist(Right ++ Odd ++ Mutated, Count).

%% Without HEAD, whose responses do not say how the request was read, and without Upgrade, after which some servers
%% stop reading HTTP.
odd() ->
    [Bytes || {_, _, Text, _} <- weir_http_probes:all(), Bytes <- [iolist_to_binary(Text)],
        byte_size(Bytes) < 4096, byte_size(Bytes) > 0, binary:match(Bytes, [<<"HEAD">>, <<"Upgrade">>]) =:= nomatch].

right() ->
    Host = "Host: a\r\n",
    [
        ["GET /a?b=c HTTP/1.1\r\n", Host, "Accept: */*\r\nUser-Agent: x/1 (y; z)\r\n\r\n"],
        ["GET http://a/b HTTP/1.1\r\n", Host, "\r\n"],
        ["GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"],
        ["GET / HTTP/1.0\r\n\r\n"],
        ["OPTIONS * HTTP/1.1\r\n", Host, "\r\n"],
        ["DELETE /a HTTP/1.1\r\n", Host, "If-Match: \"x\", W/\"y\"\r\n\r\n"],
        ["POST /a HTTP/1.1\r\n", Host, "Content-Length: 5\r\n\r\nhello"],
        ["POST /a HTTP/1.1\r\nContent-Length: 11\r\n", Host, "Content-Type: text/plain\r\n\r\nhello\r\n\r\nyou"],
        ["PUT /a HTTP/1.1\r\n", Host, "Content-Length: 0\r\n\r\n"],
        ["POST /a HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"],
        ["POST /a HTTP/1.1\r\n", Host, "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"],
        chunked("5\r\nhello\r\n0\r\n\r\n"),
        chunked("5;a=\"b;\\\"c\";d\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY: z\r\n\r\n"),
        chunked("0\r\n\r\n"),
        chunked("1\r\na\r\n02\r\nbc\r\n1f\r\n0123456789012345678901234567890\r\n000\r\n\r\n"),
        [chunked("5\r\nhello\r\n0\r\n\r\n"), "GET /b HTTP/1.1\r\n", Host, "\r\n"],
        [
            "POST /a HTTP/1.1\r\n",
            Host,
            "Content-Length: 3\r\n\r\nabcPOST /b HTTP/1.1\r\n",
            Host,
            "Content-Length: 2\r\n\r\nxy"
        ],
        [
            "POST /a HTTP/1.1\r\n",
            Host,
            "TE: trailers\r\nTransfer-Encoding:chunked\r\nConnection: keep-alive, te\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        ]
    ].

chunked(Body) -> ["POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Body].

%% Values that have confused servers.
words() ->
    {
        <<"\r">>,
        <<"\n">>,
        <<"\r\n">>,
        <<"\r\n\r\n">>,
        <<"\n\n">>,
        <<" ">>,
        <<"\t">>,
        <<0>>,
        <<"\v">>,
        <<"\f">>,
        <<16#7f>>,
        <<16#80>>,
        <<16#ff>>,
        <<16#a0>>,
        <<":">>,
        <<";">>,
        <<",">>,
        <<"+">>,
        <<"-">>,
        <<"_">>,
        <<"\"">>,
        <<"\\">>,
        <<"#">>,
        <<"?">>,
        <<"%">>,
        <<"%00">>,
        <<"/../">>,
        <<"//">>,
        <<"0">>,
        <<"1">>,
        <<"5">>,
        <<"a">>,
        <<"0x">>,
        <<"chunked">>,
        <<"identity">>,
        <<"gzip, ">>,
        <<"Content-Length: 3\r\n">>,
        <<"Content-Length: 5, 5\r\n">>,
        <<"Transfer-Encoding: chunked\r\n">>,
        <<"Transfer-Encoding: identity\r\n">>,
        <<"transfer_encoding: chunked\r\n">>,
        <<"Host: b\r\n">>,
        <<"Connection: close\r\n">>,
        <<"Connection: keep-alive\r\n">>,
        <<"Expect: 100-continue\r\n">>,
        <<" HTTP/1.1">>,
        <<"HTTP/1.0">>,
        <<"HTTP/1.2">>,
        <<"HTTP/2.0">>,
        <<"0\r\n\r\n">>,
        <<"ffffffffffffffff">>,
        <<"18446744073709551617">>,
        <<";a=b">>,
        <<"http://b">>,
        <<"GET ">>,
        <<"X: y\r\n">>
    }.

mutated(Seeds, State) ->
    {Seed, State1} = a_seed(Seeds, State),
    {Times, State2} = rand:uniform_s(2, State1),
    lists:foldl(
        fun(_, {Bytes, Before}) -> mutation(Seeds, Bytes, Before) end,
        {Seed, State2},
        lists:seq(1, Times)
    ).

mutation(_Seeds, <<>>, State) ->
    {<<"\r\n">>, State};
mutation(Seeds, Bytes, State) ->
    {Kind, State1} = rand:uniform_s(10, State),
    {Place, State2} = rand:uniform_s(byte_size(Bytes), State1),
    At = Place - 1,
    <<Before:At/binary, Byte, After/binary>> = Bytes,
    case Kind of
        1 ->
            {<<Before/binary, After/binary>>, State2};
        2 ->
            {Length, State3} = rand:uniform_s(8, State2),
            {<<Before/binary, (drop(Length, <<Byte, After/binary>>))/binary>>, State3};
        3 ->
            {Word, State3} = one_of(words(), State2),
            {<<Before/binary, Word/binary, Byte, After/binary>>, State3};
        4 ->
            {Word, State3} = one_of(words(), State2),
            {<<Before/binary, Word/binary, After/binary>>, State3};
        5 ->
            {Other, State3} = rand:uniform_s(256, State2),
            {<<Before/binary, (Other - 1), After/binary>>, State3};
        6 ->
            {<<Before/binary, (other_case(Byte)), After/binary>>, State2};
        7 ->
            at_a_joint(Bytes, State2);
        8 ->
            with_lines(Bytes, State2);
        9 ->
            {Other, State3} = a_seed(Seeds, State2),
            {From, State4} = rand:uniform_s(byte_size(Other), State3),
            {<<Before/binary, (drop(From - 1, Other))/binary>>, State4};
        10 ->
            {Delta, State3} = rand:uniform_s(3, State2),
            {another_number(Bytes, Delta - 2), State3}
    end.

%% Changes at line ends and at the beginnings of values matter most.
at_a_joint(Bytes, State) ->
    case binary:matches(Bytes, [<<"\r\n">>, <<": ">>, <<":">>, <<";">>, <<" ">>]) of
        [] ->
            {Bytes, State};
        Joints ->
            {{At, Length}, State1} = one_of(list_to_tuple(Joints), State),
            {Word, State2} = one_of(words(), State1),
            {Side, State3} = rand:uniform_s(3, State2),
            <<Before:At/binary, Joint:Length/binary, After/binary>> = Bytes,
            case Side of
                1 -> {<<Before/binary, Word/binary, Joint/binary, After/binary>>, State3};
                2 -> {<<Before/binary, Joint/binary, Word/binary, After/binary>>, State3};
                3 -> {<<Before/binary, Word/binary, After/binary>>, State3}
            end
    end.

%% Duplicates, removes or replaces a line.
with_lines(Bytes, State) ->
    Lines = binary:split(Bytes, <<"\r\n">>, [global]),
    {N, State1} = rand:uniform_s(length(Lines), State),
    {Kind, State2} = rand:uniform_s(3, State1),
    {Before, [Line | After]} = lists:split(N - 1, Lines),
    Changed =
        case {Kind, Before} of
            {1, _} -> Before ++ [Line, Line | After];
            {2, _} -> Before ++ After;
            {3, []} -> After ++ [Line];
            {3, [First | Others]} -> [Line | Others] ++ [First | After]
        end,
    {iolist_to_binary(lists:join(<<"\r\n">>, Changed)), State2}.

another_number(Bytes, Delta) ->
    case re:run(Bytes, "\r\n(?:Content-Length: )?([0-9]{1,9})\r\n", [{capture, all_but_first, index}]) of
        {match, [{At, Length}]} ->
            <<Before:At/binary, Number:Length/binary, After/binary>> = Bytes,
            <<Before/binary, (integer_to_binary(max(0, binary_to_integer(Number) + Delta)))/binary, After/binary>>;
        nomatch ->
            Bytes
    end.

other_case(Byte) when Byte >= $a, Byte =< $z -> Byte - 32;
other_case(Byte) when Byte >= $A, Byte =< $Z -> Byte + 32;
other_case(Byte) -> Byte bxor 1.

drop(Length, Bytes) when Length >= byte_size(Bytes) -> <<>>;
drop(Length, Bytes) -> binary:part(Bytes, Length, byte_size(Bytes) - Length).

%% Chooses valid and invalid seeds equally often.
a_seed(Seeds, State) ->
    {Of, State1} = one_of(Seeds, State),
    one_of(Of, State1).

one_of(Tuple, State) ->
    {N, Next} = rand:uniform_s(tuple_size(Tuple), State),
    {element(N, Tuple), Next}.
