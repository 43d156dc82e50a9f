%% The send queue from end to end: data arrives unchanged for any pieces and any behaviour of the reader, and the
%% queue keeps its limit.
-module(prop_send_queue).

-include_lib("proper/include/proper.hrl").

-export([prop_send_queue/0]).

-define(LARGEST, 200000).

%% The period of the data. It is prime, so that a misplaced piece shows.
-define(PERIOD, 251).

prop_send_queue() ->
    Pattern = pattern(),
    ?FORALL(
        {Sizes, Settings, Reads, End},
        {list(message()), settings(), non_empty(list(read())), oneof([close, shutdown])},
        weir_test_property:holds(fun() -> arrives(messages(Sizes, Pattern), Settings, Reads, End) end)
    ).

arrives({Messages, Data}, Settings, Reads, End) ->
    {Socket, Peer} = pair(Settings),
    Largest = lists:max([0 | [iolist_size(Message) || Message <- Messages]]),
    %% An empty queue accepts any send whole, as OTP's driver does, and one more send may exceed the watermark.
    Bound = max(proplists:get_value(high_watermark, Settings), Largest) + Largest,
    Self = self(),
    Reader = spawn_link(fun() ->
        receive
            {take, Peer} -> Self ! {self(), read(Peer, Reads)}
        end
    end),
    ok = gen_tcp:controlling_process(Peer, Reader),
    Reader ! {take, Peer},
    Results = [send(Socket, Message, Bound) || Message <- Messages],
    ok = finish(End, Socket),
    Received =
        receive
            {Reader, Read} -> Read
        after weir_test_wait:patience() ->
            error({no_end, {sent, byte_size(Data)}, process_info(Reader, current_stacktrace)})
        end,
    ok = gen_tcp:close(Socket),
    (Received =:= Data andalso [Result || Result <- Results, Result =/= ok] =:= []) orelse
        {{results, Results}, {sent, byte_size(Data)}, {received, byte_size(Received)},
            {same_up_to, binary:longest_common_prefix([Data, Received])}}.

%% Generators -----------------------------------------------------------------

message() ->
    {size(), oneof([binary, list, nested, bytes])}.

size() ->
    frequency([
        {1, 0},
        {6, integer(1, 100)},
        {4, integer(100, 10000)},
        {2, integer(10000, ?LARGEST)}
    ]).

settings() ->
    ?LET(
        {High, Low, SendBuffer, ReceiveBuffer},
        {oneof([1, 1000, 8192, 100000]), oneof([0, 1, 4096, 1000000]), oneof([4096, 65536]), oneof([4096, 65536])},
        [{low_watermark, min(Low, High)}, {high_watermark, High}, {sndbuf, SendBuffer}, {recbuf, ReceiveBuffer}]
    ).

%% How much to read, and how long to pause before.
read() ->
    {frequency([{1, integer(100, 1000)}, {2, integer(1000, 10000)}, {3, integer(10000, 100000)}]), integer(0, 20)}.

%% Sending and reading --------------------------------------------------------

pattern() ->
    binary:copy(list_to_binary(lists:seq(0, ?PERIOD - 1)), ?LARGEST div ?PERIOD + 2).

messages(Sizes, Pattern) ->
    {Messages, _} = lists:mapfoldl(
        fun({Size, Form}, Offset) ->
            Data = binary:part(Pattern, Offset rem ?PERIOD, Size),
            {form(Form, Data), Offset + Size}
        end,
        0,
        Sizes
    ),
    {Messages, iolist_to_binary(Messages)}.

form(binary, Data) -> Data;
form(list, Data) -> pieces(Data, 3000);
form(nested, Data) -> lists:foldl(fun(Piece, Rest) -> [[Rest], [[], Piece]] end, [], pieces(Data, 700));
form(bytes, Data) when byte_size(Data) < 2000 -> binary_to_list(Data);
form(bytes, <<Front:1000/binary, Middle:10/binary, Back/binary>>) -> [Front, binary_to_list(Middle) | Back].

pieces(Data, Size) when byte_size(Data) =< Size ->
    [Data];
pieces(Data, Size) ->
    <<Piece:Size/binary, Rest/binary>> = Data,
    [Piece | pieces(Rest, Size)].

pair(Settings) ->
    {[Buffer], Options} = proplists:split(Settings, [recbuf]),
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {ip, loopback} | Buffer]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [{tcp_module, weir_tcp}, {active, false} | Options]),
    {ok, Peer} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    {Socket, Peer}.

send(Socket, Message, Bound) ->
    case gen_tcp:send(Socket, Message) of
        ok -> within(Socket, Bound);
        Error -> Error
    end.

within(Socket, Bound) ->
    case inet:getstat(Socket, [send_pend]) of
        {ok, [{send_pend, Pending}]} when Pending > Bound -> {beyond, Bound, Pending};
        {ok, _} -> ok
    end.

finish(shutdown, Socket) -> gen_tcp:shutdown(Socket, write);
finish(close, Socket) -> gen_tcp:close(Socket).

%% Reads to the end, in pieces of at most these sizes, repeated.
read(Peer, Reads) ->
    iolist_to_binary(read(Peer, Reads, Reads)).

read(Peer, [], Reads) ->
    read(Peer, Reads, Reads);
read(Peer, [{Size, Yields} | Left], Reads) ->
    [erlang:yield() || _ <- lists:seq(1, Yields)],
    ok = inet:setopts(Peer, [{buffer, Size}]),
    case gen_tcp:recv(Peer, 0, weir_test_wait:patience()) of
        {ok, Data} -> [Data | read(Peer, Left, Reads)];
        {error, closed} -> []
    end.
