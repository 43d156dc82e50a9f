%% Properties of WebSockets and event streams.
-module(weir_http_properties_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [a_websocket_ends_as_its_model, events_are_read_as_they_were_written].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

holds(Property, Tests) ->
    ?assertEqual(true, proper:quickcheck(Property, [{numtests, Tests}, long_result, quiet, noshrink])).

%%% WebSockets.

%% A client sends messages, whole or in fragments, with pings anywhere between, and closes. It gets its messages back,
%% a pong for each ping and the close frame, in that order, however its bytes are split.
a_websocket_ends_as_its_model(_Config) ->
    Port = weir_http_websocket_handler:start(?LISTENER, #{}),
    try
        holds(
            ?FORALL({History, Code, Seed}, {list(step()), oneof([none, 1000, 3000, 4999]), pos_integer()}, begin
                {Frames, Expected} = lists:unzip([meant(Step) || Step <- History]),
                Close = [<<Code:16>> || Code =/= none],
                Socket = weir_http_websocket_client:open(Port),
                Last = weir_http_websocket_client:frame(16#88, Close),
                ok = in_pieces(Socket, iolist_to_binary([Frames, Last]), rand:seed_s(exsss, Seed)),
                Got = all_of(Socket, []),
                ok = gen_tcp:close(Socket),
                equals(Got, lists:append(Expected) ++ [{close, Code, <<>>}])
            end),
            40
        )
    after
        ok = weir_http:stop_listener(?LISTENER)
    end.

step() ->
    frequency([
        {4, {text, text()}},
        {4, {binary, binary()}},
        {2, {binary, ?LET(Size, range(100, 70000), binary(Size))}},
        {2, {ping, ?LET(Size, range(0, 125), binary(Size))}},
        {1, {pong, <<"unasked">>}},
        {3, {fragments, list({binary(), boolean()})}}
    ]).

text() ->
    Character = oneof([range(0, 127), range(128, 16#d7ff), range(16#e000, 16#10ffff)]),
    ?LET(Characters, list(Character), unicode:characters_to_binary(Characters)).

%% Returns the frames of an item, and the expected response.
meant({text, Text}) ->
    {weir_http_websocket_client:frame(16#81, Text), [{text, Text}]};
meant({binary, Bytes}) ->
    {weir_http_websocket_client:frame(16#82, Bytes), [{binary, Bytes}]};
meant({ping, Bytes}) ->
    {weir_http_websocket_client:frame(16#89, Bytes), [{pong, Bytes}]};
meant({pong, Bytes}) ->
    {weir_http_websocket_client:frame(16#8a, Bytes), []};
meant({fragments, Parts}) ->
    Pings = [{pong, <<"between">>} || {_, true} <- Parts],
    Whole = iolist_to_binary([Bytes || {Bytes, _} <- Parts]),
    Firsts = [16#02 | lists:duplicate(length(Parts), 16#00)],
    Frames = [
        [
            weir_http_websocket_client:frame(First, Bytes),
            [weir_http_websocket_client:frame(16#89, "between") || HasPing]
        ]
     || {First, {Bytes, HasPing}} <- lists:zip(lists:sublist(Firsts, length(Parts)), Parts)
    ],
    {[Frames, weir_http_websocket_client:frame(16#80 bor lists:last(Firsts), "")], Pings ++ [{binary, Whole}]}.

in_pieces(_Socket, <<>>, _Random) ->
    ok;
in_pieces(Socket, Bytes, Random) ->
    %% Mostly small ones.
    {Most, Random1} = rand:uniform_s(min(byte_size(Bytes), 5000), Random),
    {Size, Random2} = rand:uniform_s(Most, Random1),
    <<Piece:Size/binary, Rest/binary>> = Bytes,
    ok = gen_tcp:send(Socket, Piece),
    in_pieces(Socket, Rest, Random2).

all_of(Socket, Before) ->
    case weir_http_websocket_client:recv(Socket) of
        {close, _, _} = Last -> lists:reverse(Before, [Last]);
        Frame -> all_of(Socket, [Frame | Before])
    end.

%%% Event streams.

%% However events are combined into frames, a reader gets their names, data and ids; line ends become line feeds.
events_are_read_as_they_were_written(_Config) ->
    holds(
        ?FORALL(Frames, list(non_empty(list(event()))), begin
            Bytes = iolist_to_binary([[weir_http_events:frame(Events) || Events <- Frames], "0\r\n\r\n"]),
            equals(weir_http_event_reader:body(Bytes), read(lists:append(Frames), <<>>))
        end),
        30
    ).

event() ->
    ?LET(
        {Data, Name, Id, Comment},
        {lines(), oneof([none, non_empty_line()]), oneof([none, line()]), oneof([none, lines()])},
        maps:from_list([
            Field
         || Field = {_, Value} <- [{data, Data}, {event, Name}, {id, Id}, {comment, Comment}], Value =/= none
        ])
    ).

lines() -> ?LET(Parts, list(oneof([text(), <<"\n">>, <<"\r">>, <<"\r\n">>, <<" ">>])), iolist_to_binary(Parts)).

line() ->
    ?LET(
        Text,
        text(),
        <<<<Character/utf8>> || <<Character/utf8>> <= Text, not lists:member(Character, [0, $\r, $\n])>>
    ).

non_empty_line() -> ?LET(Line, line(), <<"x", Line/binary>>).

read([Event = #{data := Data} | Events], LastId) ->
    Id = maps:get(id, Event, LastId),
    [
        {maps:get(event, Event, <<"message">>), re:replace(Data, "\r\n?", "\n", [global, {return, binary}]), Id}
        | read(Events, Id)
    ];
read([], _LastId) ->
    [].
