%% A server with only the protocol at `/ws', and a client of it, frame by frame.
-module(weir_pubsub_ws_test).

-include_lib("stdlib/include/assert.hrl").

-export([start/1, start/2, stop/0, port/0]).
-export([connect/0, say/2, say_text/2, frame/1, hear/1, hear_all/1]).
-export([ask/2, subscribe/3]).

start(Options) -> start(Options, #{}).

start(Options, Listener) ->
    ok = stop(),
    {ok, _} = weir_http:start_listener(?MODULE, Listener#{ip => {127, 0, 0, 1}}, [weir_pubsub_ws:route(Options)]).

stop() ->
    _ = weir_http:stop_listener(?MODULE),
    ok.

port() -> weir:get_port(?MODULE).

connect() ->
    {{101, _}, Socket} = weir_pubsub_nchan:websocket(port(), "/ws", none),
    #{<<"type">> := <<"welcome">>, <<"protocol">> := 1} = hear(Socket),
    Socket.

say(Socket, Frame) -> say_text(Socket, iolist_to_binary(weir_json:compact(Frame))).

say_text(Socket, Text) ->
    Size = byte_size(Text),
    Length =
        if
            Size < 126 -> <<1:1, Size:7>>;
            Size < 65536 -> <<1:1, 126:7, Size:16>>;
            true -> <<1:1, 127:7, Size:64>>
        end,
    ok = gen_tcp:send(Socket, [<<16#81>>, Length, <<0:32>>, Text]).

frame(Socket) ->
    {ok, <<1:1, 0:3, Opcode:4, 0:1, Short:7>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
    Length =
        case Short of
            126 -> {ok, <<Long:16>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()), Long;
            127 -> {ok, <<Long:64>>} = gen_tcp:recv(Socket, 8, weir_test_wait:patience()), Long;
            _ -> Short
        end,
    {ok, Data} = case Length of 0 -> {ok, <<>>}; _ -> gen_tcp:recv(Socket, Length, weir_test_wait:patience()) end,
    {Opcode, Data}.

%% Returns the next frame, except positions, which may come anywhere.
hear(Socket) ->
    case hear_all(Socket) of
        #{<<"type">> := <<"position">>} -> hear(Socket);
        Frame -> Frame
    end.

%% A client that sends nothing for long gets a ping.
hear_all(Socket) ->
    case frame(Socket) of
        {9, <<>>} ->
            hear_all(Socket);
        {1, Text} ->
            {ok, Frame} = weir_json:decode(Text),
            Frame
    end.

ask(Socket, Frame) ->
    say(Socket, Frame#{ref => 7}),
    #{<<"ref">> := 7} = Answer = hear(Socket),
    maps:remove(<<"ref">>, Answer).

subscribe(Socket, Channel, From) ->
    ?assertEqual(
        #{<<"type">> => <<"subscribed">>, <<"channel">> => Channel},
        ask(Socket, #{type => subscribe, channel => Channel, from => From})
    ).
