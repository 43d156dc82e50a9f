%% The cases of the Autobahn test suite by their numbers, rewritten: what a client sends to an echo server, and what it
%% must receive. See `weir_http_websocket_cases_SUITE'.
%%
%% A case is a map: `steps' are sent, `items' are expected before the end, `closes' says which side ends it. With
%% `client' the client sends a close frame with 1000 after all items, and gets one back; with `{server, Codes}' the
%% server closes, with one of the codes. `lenient' items may be missing. `informational': the RFC does not decide.
-module(weir_http_websocket_cases).

-export([all/1]).

-import(weir_http_websocket_client, [frame/2]).

-define(TEXT, 16#81).
-define(BINARY, 16#82).
-define(CLOSE, 16#88).
-define(PING, 16#89).
-define(PONG, 16#8a).

%% "kosme" with an accent of three bytes.
-define(GREEK, <<16#ce, 16#ba, 16#e1, 16#bd, 16#b9, 16#cf, 16#83, 16#ce, 16#bc, 16#ce, 16#b5>>).

%% `quick': without the large messages, and with fewer messages.
all(Size) ->
    lists:append([
        framing(),
        pings(),
        reserved_bits(),
        opcodes(),
        fragmentation(),
        utf8(),
        closing(),
        limits(Size),
        misc(),
        compression(Size)
    ]).

'case'(Id, Steps, Items) -> #{id => Id, steps => Steps, items => Items, closes => client}.

failing(Id, Steps, Items, Codes) -> #{id => Id, steps => Steps, items => Items, closes => {server, Codes}}.

id(Parts) -> lists:flatten(lists:join(".", [integer_to_list(Part) || Part <- Parts])).

numbered(Prefix, Cases) -> [Case(id(Prefix ++ [N])) || {N, Case} <- lists:enumerate(Cases)].

%% 1. Lengths.
framing() ->
    Sizes = [
        {0, whole}, {125, whole}, {126, whole}, {127, whole}, {128, whole}, {65535, whole}, {65536, whole}, {65536, 997}
    ],
    lists:append([
        numbered([1, Group], [
            fun(Id) ->
                Payload = binary:copy(Byte, Size),
                'case'(Id, [chopped(Chops, frame(First, Payload))], [{Kind, Payload}])
            end
         || {Size, Chops} <- Sizes
        ])
     || {Group, First, Kind, Byte} <- [{1, ?TEXT, text, <<"*">>}, {2, ?BINARY, binary, <<254>>}]
    ]).

chopped(whole, Bytes) -> {send, Bytes};
chopped(Size, Bytes) -> {chops, Size, Bytes}.

%% 2. Pings and pongs.
pings() ->
    Most = binary:copy(<<254>>, 125),
    Ten = [{integer_to_list(N), frame(?PING, ["payload-", integer_to_list(N)])} || N <- lists:seq(0, 9)],
    Pongs = [{pong, iolist_to_binary(["payload-", N])} || {N, _} <- Ten],
    Bytes = [Frame || {_, Frame} <- Ten],
    numbered([2], [
        fun(Id) -> 'case'(Id, [{send, frame(?PING, "")}], [{pong, <<>>}]) end,
        fun(Id) -> 'case'(Id, [{send, frame(?PING, "Hello, world!")}], [{pong, <<"Hello, world!">>}]) end,
        fun(Id) ->
            'case'(Id, [{send, frame(?PING, [0, 255, 254, 253, 0, 255])}], [{pong, <<0, 255, 254, 253, 0, 255>>}])
        end,
        fun(Id) -> 'case'(Id, [{send, frame(?PING, Most)}], [{pong, Most}]) end,
        fun(Id) -> failing(Id, [{send, frame(?PING, [Most, 0])}], [], [1002]) end,
        fun(Id) -> 'case'(Id, [{chops, 1, frame(?PING, Most)}], [{pong, Most}]) end,
        fun(Id) -> 'case'(Id, [{send, frame(?PONG, "")}], []) end,
        fun(Id) -> 'case'(Id, [{send, frame(?PONG, "unsolicited")}], []) end,
        fun(Id) ->
            'case'(Id, [{send, [frame(?PONG, "unsolicited"), frame(?PING, "asked")]}], [{pong, <<"asked">>}])
        end,
        fun(Id) -> 'case'(Id, [{send, Bytes}], Pongs) end,
        fun(Id) -> 'case'(Id, [{chops, 1, Bytes}], Pongs) end
    ]).

%% 3. Reserved bits, 4. reserved opcodes: alone, or after a message and before a ping that stays unanswered.
reserved_bits() ->
    numbered([3], [
        fun(Id) -> failing(Id, [{send, frame(?TEXT bor 16#10, "Hello")}], [], [1002]) end,
        fun(Id) -> behind(Id, whole, frame(?TEXT bor 16#20, "Hello")) end,
        fun(Id) -> behind(Id, frames, frame(?TEXT bor 16#30, "Hello")) end,
        fun(Id) -> behind(Id, 1, frame(?TEXT bor 16#40, "Hello")) end,
        fun(Id) -> failing(Id, [{send, frame(?BINARY bor 16#50, <<0, 255>>)}], [], [1002]) end,
        fun(Id) -> failing(Id, [{send, frame(?PING bor 16#60, "")}], [], [1002]) end,
        fun(Id) -> failing(Id, [{send, frame(?CLOSE bor 16#70, "")}], [], [1002]) end
    ]).

opcodes() ->
    lists:append([
        numbered([4, Group], [
            fun(Id) -> failing(Id, [{send, frame(First, "")}], [], [1002]) end,
            fun(Id) -> failing(Id, [{send, frame(First + 1, "reserved")}], [], [1002]) end,
            fun(Id) -> behind(Id, whole, frame(First + 2, "")) end,
            fun(Id) -> behind(Id, whole, frame(First + 3, "reserved")) end,
            fun(Id) -> behind(Id, 1, frame(First + 4, "reserved")) end
        ])
     || {Group, First} <- [{1, 16#83}, {2, 16#8b}]
    ]).

behind(Id, Chops, Wrong) ->
    Frames = [frame(?TEXT, "Hello, world!"), Wrong, frame(?PING, "")],
    (failing(Id, steps(Chops, Frames), [{text, <<"Hello, world!">>}], [1002]))#{lenient => []}.

steps(whole, Frames) -> [{send, Frames}];
steps(frames, Frames) -> [{send, Frame} || Frame <- Frames];
steps(Size, Frames) -> [{chops, Size, Frame} || Frame <- Frames].

%% 5. Fragments.
fragmentation() ->
    Pong = {pong, <<"ping">>},
    Message = {text, <<"onetwo">>},
    [One, Ping, Two] = [frame(16#01, "one"), frame(?PING, "ping"), frame(16#80, "two")],
    Ways = [whole, frames, 1],
    numbered(
        [5],
        lists:append([
            [fun(Id) -> failing(Id, [{send, [frame(16#09, "one"), Two]}], [], [1002]) end],
            [fun(Id) -> failing(Id, [{send, [frame(16#0a, "one"), Two]}], [], [1002]) end],
            [fun(Id) -> 'case'(Id, steps(Way, [One, Two]), [Message]) end || Way <- Ways],
            [fun(Id) -> 'case'(Id, steps(Way, [One, Ping, Two]), [Pong, Message]) end || Way <- Ways],
            [
                fun(Id) ->
                    failing(Id, steps(Way, [frame(First, "nothing to continue"), frame(?TEXT, "Hello")]), [], [1002])
                end
             || First <- [16#80, 16#00], Way <- Ways
            ],
            [
                fun(Id) ->
                    Case = failing(
                        Id, [{send, [One, Two, frame(16#00, "three"), frame(?TEXT, "four")]}], [Message], [1002]
                    ),
                    Case#{lenient => []}
                end
            ],
            [
                fun(Id) -> failing(Id, [{send, lists:duplicate(2, [frame(First, "a"), One, Two])}], [], [1002]) end
             || First <- [16#00, 16#80]
            ],
            [fun(Id) -> failing(Id, [{send, [One, frame(?TEXT, "two")]}], [], [1002]) end],
            [
                fun(Id) ->
                    Middle = frame(16#00, "-"),
                    First = steps(Way, [One, Middle, Ping]),
                    Then = steps(Way, [Middle, Middle, frame(?PING, "again"), Two]),
                    'case'(Id, First ++ [{items, 1} | Then], [Pong, {pong, <<"again">>}, {text, <<"one---two">>}])
                end
             || Way <- [whole, frames]
            ]
        ])
    ).

%% 6. UTF-8.
utf8() ->
    Greek = ?GREEK,
    Text = <<"Hello-µ@ßöäüàá-UTF-8!!"/utf8>>,
    Half = <<"Hello-µ@ßöä"/utf8>>,
    Rest = binary:part(Text, byte_size(Half), byte_size(Text) - byte_size(Half)),
    Bad = <<Greek/binary, 16#ed, 16#a0, 16#80, "edited">>,
    Far = <<Greek/binary, 16#f4, 16#90, 16#80, 16#80, "edited">>,
    numbered([6, 1], [
        fun(Id) -> 'case'(Id, [{send, frame(?TEXT, "")}], [{text, <<>>}]) end,
        fun(Id) -> 'case'(Id, [{send, [frame(16#01, ""), frame(0, ""), frame(16#80, "")]}], [{text, <<>>}]) end,
        fun(Id) ->
            'case'(Id, [{send, [frame(16#01, ""), frame(0, "middle"), frame(16#80, "")]}], [{text, <<"middle">>}])
        end
    ]) ++
        numbered([6, 2], [
            fun(Id) -> 'case'(Id, [{send, frame(?TEXT, Text)}], [{text, Text}]) end,
            fun(Id) -> 'case'(Id, [{send, [frame(16#01, Half), frame(16#80, Rest)]}], [{text, Text}]) end,
            fun(Id) -> 'case'(Id, [{send, fragments(16#81, Text, 1)}], [{text, Text}]) end,
            fun(Id) -> 'case'(Id, [{send, fragments(16#81, Greek, 1)}], [{text, Greek}]) end
        ]) ++
        numbered([6, 3], [
            fun(Id) -> failing(Id, [{send, frame(?TEXT, Bad)}], [], [1007]) end,
            fun(Id) -> failing(Id, [{send, fragments(16#81, Bad, 1)}], [], [1007]) end
        ]) ++
        numbered([6, 4], [
            fun(Id) ->
                fast(Id, [frame(16#01, Greek), frame(0, <<16#f4, 16#90, 16#80, 16#80>>)], frame(16#80, "edited"))
            end,
            fun(Id) ->
                fast(
                    Id,
                    [frame(16#01, binary:part(Far, 0, 12)), frame(0, <<16#90>>)],
                    frame(16#80, <<16#80, 16#80, "edited">>)
                )
            end,
            fun(Id) -> fast(Id, cut(frame(?TEXT, Far), 6 + 11, 4), cut_rest(frame(?TEXT, Far), 6 + 11 + 4)) end,
            fun(Id) -> fast(Id, cut(frame(?TEXT, Far), 6 + 12, 1), cut_rest(frame(?TEXT, Far), 6 + 12 + 1)) end
        ]) ++
        lists:append([
            numbered([6, Group], [
                fun(Id) ->
                    case unicode:characters_to_binary(Sequence) of
                        Sequence -> 'case'(Id, [{send, frame(?TEXT, Sequence)}], [{text, Sequence}]);
                        _ -> failing(Id, [{send, frame(?TEXT, Sequence)}], [], [1007])
                    end
                end
             || Sequence <- Sequences
            ])
         || {Group, Sequences} <- lists:zip(lists:seq(5, 23), sequences())
        ]).

%% The server has to refuse the first parts before the rest is sent.
fast(Id, [First, Second], Rest) ->
    Steps = [{send, First}, silence, {send, Second}, closed, {send, Rest}],
    failing(Id, Steps, [], [1007]).

cut(Bytes, First, Second) -> [binary:part(Bytes, 0, First), binary:part(Bytes, First, Second)].

cut_rest(Bytes, From) -> binary:part(Bytes, From, byte_size(Bytes) - From).

fragments(First, Payload, Size) -> fragments(First band 16#7f, Payload, Size, First band 16#80).

fragments(First, Payload, Size, Final) when byte_size(Payload) =< Size -> [frame(First bor Final, Payload)];
fragments(First, Payload, Size, Final) ->
    <<Piece:Size/binary, Rest/binary>> = Payload,
    [frame(First, Piece) | fragments(0, Rest, Size, Final)].

%% The sequences of Markus Kuhn's UTF-8 test, by group.
sequences() ->
    Greek = ?GREEK,
    Cut = cut(),
    Continuations = fun(N) -> binary:part(<<16#80, 16#bf, 16#80, 16#bf, 16#80, 16#bf>>, 0, N) end,
    [
        [<<"hello$world">>, <<"hello¢world"/utf8>>, <<"hello€world"/utf8>>, <<"hello𤭢world"/utf8>>, Greek],
        [binary:part(Greek, 0, N) || N <- lists:seq(1, byte_size(Greek))],
        [<<0>>, <<16#80/utf8>>, <<16#800/utf8>>, <<16#10000/utf8>>],
        [<<16#f8, 16#88, 16#80, 16#80, 16#80>>, <<16#fc, 16#84, 16#80, 16#80, 16#80, 16#80>>],
        [<<16#7f>>, <<16#7ff/utf8>>, <<16#ffff/utf8>>, <<16#10ffff/utf8>>],
        [
            <<16#f7, 16#bf, 16#bf, 16#bf>>,
            <<16#fb, 16#bf, 16#bf, 16#bf, 16#bf>>,
            <<16#fd, 16#bf, 16#bf, 16#bf, 16#bf, 16#bf>>
        ],
        [<<16#d7ff/utf8>>, <<16#e000/utf8>>, <<16#fffd/utf8>>, <<16#10ffff/utf8>>, <<16#f4, 16#90, 16#80, 16#80>>],
        [<<16#80>>, <<16#bf>>] ++ [Continuations(N) || N <- lists:seq(2, 6)] ++
            [list_to_binary(lists:seq(16#80, 16#be))],
        [
            <<<<Byte, " ">> || Byte <- lists:seq(From, To - 1)>>
         || {From, To} <- [{16#c0, 16#df}, {16#e0, 16#ef}, {16#f0, 16#f7}, {16#f8, 16#fb}, {16#fc, 16#fd}]
        ],
        Cut,
        [iolist_to_binary(Cut)],
        [<<16#fe>>, <<16#ff>>, <<16#fe, 16#fe, 16#ff, 16#ff>>],
        [
            <<16#c0, 16#af>>,
            <<16#e0, 16#80, 16#af>>,
            <<16#f0, 16#80, 16#80, 16#af>>,
            <<16#f8, 16#80, 16#80, 16#80, 16#af>>,
            <<16#fc, 16#80, 16#80, 16#80, 16#80, 16#af>>
        ],
        [
            <<16#c1, 16#bf>>,
            <<16#e0, 16#9f, 16#bf>>,
            <<16#f0, 16#8f, 16#bf, 16#bf>>,
            <<16#f8, 16#87, 16#bf, 16#bf, 16#bf>>,
            <<16#fc, 16#83, 16#bf, 16#bf, 16#bf, 16#bf>>
        ],
        [
            <<16#c0, 16#80>>,
            <<16#e0, 16#80, 16#80>>,
            <<16#f0, 16#80, 16#80, 16#80>>,
            <<16#f8, 16#80, 16#80, 16#80, 16#80>>,
            <<16#fc, 16#80, 16#80, 16#80, 16#80, 16#80>>
        ],
        surrogates(),
        [
            <<16#ed, A, B, 16#ed, C, D>>
         || {A, B} <- [{16#a0, 16#80}, {16#ad, 16#bf}, {16#ae, 16#80}, {16#af, 16#bf}],
            {C, D} <- [{16#b0, 16#80}, {16#bf, 16#bf}]
        ],
        [<<16#fffe/utf8>>, <<16#ffff/utf8>>] ++
            [<<(Plane * 16#10000 + 16#fffe + Last)/utf8>> || Plane <- lists:seq(1, 16), Last <- [0, 1]],
        [<<Code/utf8>> || Code <- lists:seq(16#fff9, 16#ffff)]
    ].

%% The last byte of each is missing.
cut() ->
    [
        <<16#c0>>,
        <<16#e0, 16#80>>,
        <<16#f0, 16#80, 16#80>>,
        <<16#f8, 16#80, 16#80, 16#80>>,
        <<16#fc, 16#80, 16#80, 16#80, 16#80>>,
        <<16#df>>,
        <<16#ef, 16#bf>>,
        <<16#f7, 16#bf, 16#bf>>,
        <<16#fb, 16#bf, 16#bf, 16#bf>>,
        <<16#fd, 16#bf, 16#bf, 16#bf, 16#bf>>
    ].

surrogates() ->
    [
        <<16#ed, Second, Third>>
     || {Second, Third} <- [
            {16#a0, 16#80},
            {16#ad, 16#bf},
            {16#ae, 16#80},
            {16#af, 16#bf},
            {16#b0, 16#80},
            {16#be, 16#80},
            {16#bf, 16#bf}
        ]
    ].

%% 7. Closing.
closing() ->
    Normal = frame(?CLOSE, <<1000:16>>),
    Large = binary:copy(<<"0123456789abcdef">>, 16384),
    closes([7, 1], [
        {[frame(?TEXT, "Hello World!"), Normal], [{text, <<"Hello World!">>}], [1000]},
        {[Normal, frame(?CLOSE, "")], [], [1000]},
        {[Normal, frame(?PING, "")], [], [1000]},
        {[Normal, frame(?TEXT, "Hello World!")], [], [1000]},
        {[frame(16#01, "one"), Normal, frame(16#80, "two")], [], [1000]}
    ]) ++ [
        (failing("7.1.6", [{send, [frame(?TEXT, Large), frame(?TEXT, "Hello World!"), Normal, frame(?PING, "")]}],
            [{text, Large}, {text, <<"Hello World!">>}], [1000]))#{informational => true}
    ] ++ closes([7, 3], [
        {frame(?CLOSE, ""), [], [none, 1000]},
        {frame(?CLOSE, "a"), [], [1002]},
        {Normal, [], [1000]},
        {frame(?CLOSE, <<1000:16, "Hello World!">>), [], [1000]},
        {frame(?CLOSE, [<<1000:16>>, lists:duplicate(123, $*)]), [], [1000]},
        {frame(?CLOSE, [<<1000:16>>, lists:duplicate(124, $*)]), [], [1002]}
    ]) ++ closes([7, 5], [
        {frame(?CLOSE, <<1000:16, ?GREEK/binary, 16#ed, 16#a0, 16#80, "edited">>), [], [1007, 1002]}
    ]) ++ closes([7, 7], [
        {frame(?CLOSE, <<Code:16>>), [], [Code, 1000]}
     || Code <- [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
    ]) ++ closes([7, 9], [
        {frame(?CLOSE, <<Code:16>>), [], [1002]}
     || Code <- [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999]
    ]) ++ [
        Case#{informational => true}
     || Case <- closes([7, 13], [{frame(?CLOSE, <<Code:16>>), [], [1002, 1000, Code]} || Code <- [5000, 65535]])
    ].

closes(Prefix, Cases) ->
    numbered(Prefix, [fun(Id) -> failing(Id, [{send, Bytes}], Items, Codes) end || {Bytes, Items, Codes} <- Cases]).

%% 9. Large messages and many.
limits(Size) ->
    {Sizes, Whole, Chopped, Count} =
        case Size of
            all -> {[65536, 262144, 1 bsl 20, 4 bsl 20, 8 bsl 20, 16 bsl 20], 4 bsl 20, 1 bsl 20, 1000};
            quick -> {[65536, 131072, 196608, 262144, 524288, 1 bsl 20], 1 bsl 18, 1 bsl 16, 20}
        end,
    Kinds = [{0, ?TEXT, text, <<"*">>}, {1, ?BINARY, binary, <<254>>}],
    lists:append([
        numbered([9, 1 + Kind], [
            fun(Id) -> large(Id, Name, Payload, frame(First, Payload), whole) end
         || Bytes <- Sizes, Payload <- [binary:copy(Byte, Bytes)]
        ]) ++
            numbered([9, 3 + Kind], [
                fun(Id) -> large(Id, Name, Payload, fragments(First, Payload, Fragment), whole) end
             || Fragment <- [64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304],
                Payload <- [binary:copy(Byte, Whole)]
            ]) ++
            numbered([9, 5 + Kind], [
                fun(Id) -> large(Id, Name, Payload, frame(First, Payload), Chops) end
             || Chops <- [64, 128, 256, 512, 1024, 2048], Payload <- [binary:copy(Byte, Chopped)]
            ]) ++
            numbered([9, 7 + Kind], [
                fun(Id) ->
                    Payload = binary:copy(Byte, Bytes),
                    'case'(Id, [{exchange, Count, frame(First, Payload), {Name, Payload}}], [])
                end
             || Bytes <- [0, 16, 64, 256, 1024, 4096]
            ])
     || {Kind, First, Name, Byte} <- Kinds
    ]).

large(Id, Kind, Payload, Bytes, Chops) -> 'case'(Id, [chopped(Chops, Bytes)], [{Kind, Payload}]).

%% 10. A message fragmented by its length.
misc() ->
    Payload = binary:copy(<<"*">>, 65536),
    ['case'("10.1.1", [{send, fragments(?TEXT, Payload, 1300)}], [{text, Payload}])].

%% 12. Compressed messages of five kinds; 13. with seven offers.
compression(Size) ->
    Plain = "permessage-deflate; client_no_context_takeover; client_max_window_bits",
    Offers = [
        [],
        ["; server_no_context_takeover"],
        ["; server_max_window_bits=9"],
        ["; server_max_window_bits=15"],
        ["; server_no_context_takeover; server_max_window_bits=9"],
        ["; server_no_context_takeover; server_max_window_bits=15"],
        ["; server_no_context_takeover; server_max_window_bits=9, ", Plain, "; server_no_context_takeover, ", Plain]
    ],
    lists:append([
        compressed([12, N], Plain, Kind, Size)
     || {N, Kind} <- lists:enumerate([json, image, prose, html, document])
    ]) ++
        lists:append([compressed([13, N], [Plain | Offer], json, Size) || {N, Offer} <- lists:enumerate(Offers)]).

compressed(Prefix, Offer, Kind, Size) ->
    Sizes =
        [{Bytes, 0} || Bytes <- [16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072]] ++
            [{Bytes, 256} || Bytes <- [8192, 16384, 32768, 65536, 131072]] ++
            [{131072, Fragment} || Fragment <- [1024, 4096, 32768]],
    numbered(Prefix, [
        fun(Id) -> #{id => Id, compressed => {Kind, Bytes, Fragment, count(Size, Bytes)}, offer => Offer} end
     || {Bytes, Fragment} <- Sizes
    ]).

count(all, Bytes) when Bytes =< 4096 -> 200;
count(all, _Bytes) -> 30;
count(quick, _Bytes) -> 3.
