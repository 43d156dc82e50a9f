%% @doc A chat robot: an ordinary client of the push protocol with its own WebSocket. It publishes a message about
%% every ten seconds, and records the delay of each message of a robot that it receives.
-module(weir_cli_chat_robot).

-export([start_link/4]).

-define(SPEAK_MS, 10000).

-define(CONNECT_MS, 10000).

-record(robot, {
    socket :: gen_tcp:socket(),
    room :: weir_pubsub:channel(),
    name :: binary(),
    delays :: weir_cli_chat_delay:delays(),
    buffer = <<>> :: binary()
}).

-spec start_link(inet:port_number(), weir_pubsub:channel(), Number :: pos_integer(), weir_cli_chat_delay:delays()) ->
    pid().
start_link(Port, Room, Number, Delays) ->
    spawn_link(fun() -> connect(Port, Room, iolist_to_binary(["robot ", integer_to_binary(Number)]), Delays) end).

%% A failure ends the robot, and `weir_cli_chat_robots' starts another.
connect(Port, Room, Name, Delays) ->
    case
        gen_tcp:connect(
            {127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}, {tcp_module, weir_tcp}], ?CONNECT_MS
        )
    of
        {ok, Socket} ->
            ok = gen_tcp:send(Socket, handshake(Port)),
            Rest = answered(Socket, <<>>),
            Robot = #robot{socket = Socket, room = Room, name = Name, delays = Delays, buffer = Rest},
            ok = say(#{type => subscribe, channel => Room, info => #{name => Name, robot => true}}, Robot),
            speak_later(),
            loop(Robot);
        {error, _} ->
            exit(normal)
    end.

handshake(Port) ->
    [
        "GET /ws HTTP/1.1\r\nhost: 127.0.0.1:", integer_to_list(Port),
        "\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: ",
        base64:encode(rand:bytes(16)), "\r\n\r\n"
    ].

answered(Socket, Read) ->
    case binary:split(Read, <<"\r\n\r\n">>) of
        [<<"HTTP/1.1 101 ", _/binary>>, Rest] ->
            Rest;
        [_] when byte_size(Read) < 4096 ->
            case gen_tcp:recv(Socket, 0, ?CONNECT_MS) of
                {ok, Data} -> answered(Socket, <<Read/binary, Data/binary>>);
                {error, _} -> exit(normal)
            end;
        _ ->
            exit(normal)
    end.

loop(#robot{socket = Socket, buffer = Buffer} = Robot) ->
    Left = frames(Buffer, Robot),
    _ = inet:setopts(Socket, [{active, once}]),
    receive
        {tcp, Socket, Data} -> loop(Robot#robot{buffer = <<Left/binary, Data/binary>>});
        speak -> speak(Robot#robot{buffer = Left});
        {tcp_closed, Socket} -> ok;
        {tcp_error, Socket, _} -> ok
    end.

speak(#robot{room = Room, name = Name} = Robot) ->
    Said = #{from => Name, robot => true, text => phrase(), at => erlang:monotonic_time(microsecond)},
    ok = say(#{type => publish, channel => Room, data => iolist_to_binary(weir_json:compact(Said))}, Robot),
    speak_later(),
    loop(Robot).

%% A random delay, so that robots do not all speak at the same time.
speak_later() -> erlang:send_after(rand:uniform(2 * ?SPEAK_MS), self(), speak).

%% Clients must mask their frames; a mask of zeros changes no byte.
say(Frame, #robot{socket = Socket}) ->
    Text = iolist_to_binary(weir_json:compact(Frame)),
    case gen_tcp:send(Socket, [16#81, masked_length(byte_size(Text)), <<0:32>>, Text]) of
        ok -> ok;
        {error, _} -> exit(normal)
    end.

masked_length(Size) when Size < 126 -> <<1:1, Size:7>>;
masked_length(Size) -> <<1:1, 126:7, Size:16>>.

%% Servers do not mask their frames. Returns the bytes of an incomplete last frame.
frames(<<_:9, Size:7, Text:Size/binary, Rest/binary>>, Robot) when Size < 126 -> frame(Text, Rest, Robot);
frames(<<_:9, 126:7, Size:16, Text:Size/binary, Rest/binary>>, Robot) -> frame(Text, Rest, Robot);
frames(<<_:9, 127:7, Size:64, Text:Size/binary, Rest/binary>>, Robot) -> frame(Text, Rest, Robot);
frames(Buffer, _Robot) -> Buffer.

%% `at' is the monotonic time of this node, where all robots run. It is in a JSON text that is a string within the JSON
%% of the frame. This searches for it without decoding the frame, because each message goes to hundreds of robots.
frame(Text, Rest, #robot{delays = Delays} = Robot) ->
    case binary:match(Text, <<"\\\"at\\\":">>) of
        {At, Size} ->
            Now = erlang:monotonic_time(microsecond),
            weir_cli_chat_delay:record(
                Now - number(binary:part(Text, At + Size, byte_size(Text) - At - Size), 0), Delays
            );
        nomatch ->
            ok
    end,
    frames(Rest, Robot).

%% Erlang's monotonic time may be negative.
number(<<$-, Text/binary>>, 0) -> -number(Text, 0);
number(<<Digit, Text/binary>>, Value) when Digit >= $0, Digit =< $9 -> number(Text, 10 * Value + Digit - $0);
number(_Text, Value) -> Value.

phrase() ->
    Phrases = {
        <<"Has anybody seen my other sock?">>,
        <<"Beep.">>,
        <<"I have read the whole manual.">>,
        <<"It works on my machine.">>,
        <<"Who left the window open?">>,
        <<"Tea is ready.">>,
        <<"I count 1,024 reasons to stay.">>,
        <<"Is this thing on?">>,
        <<"Good morning, everybody!">>,
        <<"I was rebooted once. Lovely.">>,
        <<"The garden needs water.">>,
        <<"Yes.">>,
        <<"No.">>,
        <<"Let me think about it for a microsecond.">>,
        <<"That was fast.">>,
        <<"My name is a number.">>
    },
    element(rand:uniform(tuple_size(Phrases)), Phrases).
