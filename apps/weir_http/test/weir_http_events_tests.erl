%% The encoding of events, and what they may not contain.
-module(weir_http_events_tests).

-include_lib("eunit/include/eunit.hrl").

event_test_() ->
    [
        ?_assertEqual(Bytes, weir_http_events:event(Event))
     || {Bytes, Event} <- [
            {<<"data: x\n\n">>, #{data => <<"x">>}},
            {<<"data: \n\n">>, #{data => <<>>}},
            {<<"data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n">>, #{data => <<"a\nb\r\nc\rd\n">>}},
            {<<"data:  two\ndata: \ndata: \n\n">>, #{data => [" two", $\r, "\n", <<"\r">>]}},
            {<<": said\n: twice\nevent: change\nid: 7\nretry: 10\ndata: x\n\n">>,
                #{data => "x", event => "change", id => "7", retry => 10, comment => "said\ntwice"}},
            {<<"id: \n\n">>, #{id => <<>>}},
            {<<"retry: 0\n\n">>, #{retry => 0}}
        ]
    ].

frame_test_() ->
    [
        ?_assertEqual(<<"9\r\ndata: x\n\n\r\n">>, weir_http_events:frame(#{data => "x"})),
        ?_assertEqual(<<"12\r\ndata: x\n\ndata: y\n\n\r\n">>, weir_http_events:frame([#{data => "x"}, #{data => "y"}])),
        %% An empty chunk would end the body.
        ?_assertEqual(<<>>, weir_http_events:frame([]))
    ].

wrong_test_() ->
    [
        ?_assertError({bad_option, Name, Value, [_ | _]}, weir_http_events:event(#{Name => Value}))
     || {Name, Value} <- [
            {id, <<"a\nb">>},
            {id, <<"a\rb">>},
            {id, <<0>>},
            {event, <<"a\nb">>},
            {event, <<"\r">>},
            {retry, -1},
            {retry, 1.5},
            {data, 1},
            {comment, x},
            {id, [[256]]}
        ]
    ] ++
        [
            ?_assertError({bad_option, event, Event, [_ | _]}, weir_http_events:event(Event))
         || Event <- [#{}, #{other => 1}, #{data => "x", other => 1}, x]
        ].

%% A member with HTTP/1.0 gets the chunked frames as they are. The framing gives no events, and spoils none.
a_reader_of_an_old_client_passes_over_the_frames_test() ->
    Events = [
        [#{data => integer_to_list(N), id => integer_to_list(N)} || N <- lists:seq(1, Size)]
     || Size <- lists:seq(1, 50)
    ],
    Bytes = iolist_to_binary([weir_http_events:frame(Each) || Each <- Events]),
    Expected = [
        {<<"message">>, integer_to_binary(N), integer_to_binary(N)}
     || Each <- Events, {N, _} <- lists:zip(lists:seq(1, length(Each)), Each)
    ],
    ?assertEqual(Expected, weir_http_event_reader:read(Bytes)).
