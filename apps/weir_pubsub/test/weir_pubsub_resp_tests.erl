%% The protocol of Redis.
-module(weir_pubsub_resp_tests).

-include_lib("eunit/include/eunit.hrl").

values() ->
    [
        {<<"+OK\r\n">>, <<"OK">>},
        {<<"-ERR no\r\n">>, {error, <<"ERR no">>}},
        {<<":-12\r\n">>, -12},
        {<<"$5\r\na\r\nbc\r\n">>, <<"a\r\nbc">>},
        {<<"$0\r\n\r\n">>, <<>>},
        {<<"$-1\r\n">>, null},
        {<<"_\r\n">>, null},
        {<<"#t\r\n">>, true},
        {<<",1.5\r\n">>, <<"1.5">>},
        {<<"=7\r\ntxt:abc\r\n">>, <<"abc">>},
        {<<"*3\r\n:1\r\n*0\r\n$1\r\nx\r\n">>, [1, [], <<"x">>]},
        {<<"%1\r\n+a\r\n:1\r\n">>, [<<"a">>, 1]},
        {<<">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n">>, {push, [<<"message">>, <<"c">>, <<"hi">>]}}
    ].

every_value_test() ->
    [
        ?assertEqual({ok, Value, <<"rest">>}, weir_pubsub_resp:decode(<<Bytes/binary, "rest">>))
     || {Bytes, Value} <- values()
    ].

%% A value that is incomplete says how many bytes it needs at least: more than there are, and not more than it has.
in_parts_test() ->
    [
        begin
            {more, Wanted} = weir_pubsub_resp:decode(binary:part(Bytes, 0, Size)),
            ?assert(Wanted > Size andalso Wanted =< byte_size(Bytes), {Bytes, Size, Wanted})
        end
     || {Bytes, _} <- values(), Size <- lists:seq(0, byte_size(Bytes) - 1)
    ].

what_is_none_test() ->
    Wrong = [
        <<"hello\r\n">>, <<"$x\r\n">>, <<"$-2\r\n">>, <<"$2\r\nabcd">>, <<":1x\r\n">>, <<"#x\r\n">>, <<"=2\r\nab\r\n">>,
        <<"$99999999999\r\n">>, <<"*99999999999\r\n">>, binary:copy(<<"*1\r\n">>, 20)
    ],
    [?assertEqual({error, bad_reply}, weir_pubsub_resp:decode(Bytes)) || Bytes <- Wrong].

command_test() ->
    ?assertEqual(
        <<"*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$2\r\n12\r\n">>,
        iolist_to_binary(weir_pubsub_resp:command(["SET", [<<"a">>, " b"], 12]))
    ).

packed_test() ->
    Messages = [
        {<<>>, #{}},
        {<<"x">>, #{type => <<"text/plain">>}},
        {<<0, 1, 2>>, #{type => <<>>, event => <<"e">>}}
        | [
            {<<"x">>, #{mercure => {[<<"https://a.example/{b}">>, <<"b">>], IsPrivate, Retry}}}
         || IsPrivate <- [true, false], Retry <- [none, 0, 10]
        ]
    ],
    [
        ?assertEqual({ok, Data, Meta}, weir_pubsub_packed:unpack(weir_pubsub_packed:pack(Data, Meta)))
     || {Data, Meta} <- Messages
    ],
    %% Another program writes to the same Redis.
    Strange = [
        <<0, 0, 1, (byte_size(Json)):32, Json/binary, "data">>
     || Json <- [<<"[5,true]">>, <<"[[5],true]">>, <<"[[],1]">>, <<"[[],true,1,1]">>]
    ],
    [?assertEqual(error, weir_pubsub_packed:unpack(Bytes)) || Bytes <- Strange],
    [
        ?assertEqual(error, weir_pubsub_packed:unpack(Bytes))
     || Bytes <- [<<>>, <<0>>, <<7, 0>>, <<1, 0, 0, 0, 9, "short">>]
    ].
