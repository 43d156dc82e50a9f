%% Requests of the protocol at `/ws', decoded from their frames.
-module(weir_pubsub_ws_frames_tests).

-include_lib("eunit/include/eunit.hrl").

%% Subscriptions and messages are kept for long, and would keep the whole frame that they came in.
what_is_kept_does_not_keep_its_frame_test_() ->
    Long = binary:copy(<<"c">>, 200),
    [
        {atom_to_list(Type), fun() ->
            Frame = Fields#{
                type => Type, channel => Long, ref => binary:copy(<<"r">>, 64), padding => binary:copy(<<"x">>, 100000)
            },
            {ok, Ref, Request} = weir_pubsub_ws_frames:request(iolist_to_binary(weir_json:compact(Frame))),
            Kept = binaries({Ref, Request}),
            ?assert(lists:member(Long, Kept)),
            ?assertEqual([], [Binary || Binary <- Kept, binary:referenced_byte_size(Binary) > 2000])
        end}
     || {Type, Fields} <- [
            {subscribe, #{info => #{name => Long, list => [Long]}}},
            {unsubscribe, #{}},
            {publish, #{data => Long, event => Long, content_type => Long}},
            {history, #{}},
            {presence, #{}}
        ]
    ].

binaries(Binary) when is_binary(Binary) -> [Binary];
binaries([First | Rest]) -> binaries(First) ++ binaries(Rest);
binaries(Tuple) when is_tuple(Tuple) -> binaries(tuple_to_list(Tuple));
binaries(#{} = Map) -> binaries(maps:to_list(Map));
binaries(_Other) -> [].
