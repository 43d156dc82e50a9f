%% Packets of any type, valid or not, cut into any pieces: a socket delivers what `erlang:decode_packet/3' returns for
%% the same bytes. If that fails, the socket reports `emsgsize' and closes.
-module(prop_packet).

-include_lib("proper/include/proper.hrl").

-export([prop_packet/0]).

prop_packet() ->
    ?FORALL(
        {{Type, Limit, Active, Packets}, Sizes},
        {stream(), list(integer(1, 40))},
        weir_test_property:holds(fun() ->
            Bytes = iolist_to_binary(Packets),
            Options = [{packet, Type} | socket_options(Limit)],
            Received = received(Options, Active, pieces(Sizes, Bytes)),
            Expected = expected(Type, Limit, Bytes),
            Received =:= Expected orelse {{expected, Expected}, {received, Received}}
        end)
    ).

%% Generators --------------------------------------------------------------------

stream() ->
    ?LET(Type, type(), {Type, limit(Type), oneof([true, once, 1, 3]), list(packet(Type))}).

type() ->
    oneof([1, 2, 4, asn1, sunrm, cdr, fcgi, tpkt, line, http, http_bin, httph, httph_bin]).

%% The limit for this kind of type: lines are cut at the buffer.
limit(line) -> oneof([none, {buffer, integer(1, 60)}]);
limit(Type) when Type =:= http; Type =:= http_bin; Type =:= httph; Type =:= httph_bin -> none;
limit(_) -> oneof([none, {packet_size, integer(1, 60)}]).

packet(Type) ->
    frequency([
        {20, valid(Type)}, {1, binary()}, {1, ?LET({Packet, Size}, {valid(Type), integer(0, 9)}, cut(Packet, Size))}
    ]).

cut(Packet, Size) ->
    Bytes = iolist_to_binary(Packet),
    binary:part(Bytes, 0, min(Size, byte_size(Bytes))).

body() ->
    ?SUCHTHAT(Body, resize(50, binary()), byte_size(Body) < 128).

valid(1) -> ?LET(Body, body(), <<(byte_size(Body)), Body/binary>>);
valid(2) -> ?LET(Body, body(), <<(byte_size(Body)):16, Body/binary>>);
valid(4) -> ?LET(Body, body(), <<(byte_size(Body)):32, Body/binary>>);
valid(sunrm) -> ?LET({Last, Body}, {integer(0, 1), body()}, <<Last:1, (byte_size(Body)):31, Body/binary>>);
valid(asn1) ->
    ?LET({Tag, Width, Body}, {oneof([<<16#30>>, <<16#3f, 16#81, 1>>]), integer(0, 4), body()}, begin
        Length =
            case Width of
                0 -> <<(byte_size(Body))>>;
                _ -> <<1:1, Width:7, (byte_size(Body)):Width/unit:8>>
            end,
        [Tag, Length, Body]
    end);
valid(cdr) ->
    ?LET({Little, Body}, {boolean(), body()}, case Little of
        true -> <<"GIOP", 1, 0, 1, 0, (byte_size(Body)):32/little, Body/binary>>;
        false -> <<"GIOP", 1, 0, 0, 0, (byte_size(Body)):32, Body/binary>>
    end);
valid(fcgi) ->
    ?LET({Padding, Body}, {integer(0, 7), body()},
        <<1, 5, 0, 1, (byte_size(Body)):16, Padding, 0, Body/binary, 0:Padding/unit:8>>
    );
valid(tpkt) -> ?LET(Body, body(), <<3, 0, (byte_size(Body) + 4):16, Body/binary>>);
valid(line) -> ?LET(Body, body(), [Body, $\n]);
valid(Type) when Type =:= httph; Type =:= httph_bin -> field();
valid(_Http) -> frequency([{1, start_line()}, {3, field()}]).

start_line() ->
    ?LET(
        {Words, End},
        {
            list(
                oneof([
                    <<"GET">>,
                    <<"DELETE">>,
                    <<"own-Method">>,
                    <<"HTTP/1.1">>,
                    <<"HTTP/">>,
                    <<"HTTP/12.345">>,
                    <<"200">>,
                    <<"OK">>,
                    <<"*">>,
                    <<"/">>,
                    <<"/path?query">>,
                    <<"http://host:80/path">>,
                    <<"HTTPS://host">>,
                    <<"http://host:port/">>,
                    <<"scheme:rest">>,
                    <<"x">>,
                    <<>>,
                    word()
                ])
            ),
            line_end()
        },
        [lists:join(oneof_blank(Words), Words), End]
    ).

oneof_blank(Words) -> lists:nth(1 + erlang:phash2(Words, 3), [<<" ">>, <<"\t">>, <<"  ">>]).

field() ->
    ?LET(
        {Name, Colon, Value, End},
        {
            oneof([<<"Host">>, <<"content-LENGTH">>, <<"x--Y-z">>, <<"te">>, word(), binary(51)]),
            oneof([<<":">>, <<": ">>, <<":\t ">>, <<" :">>, <<>>]),
            word(),
            line_end()
        },
        [Name, Colon, Value, End]
    ).

word() ->
    ?LET(
        Characters,
        list(oneof([integer($a, $z), integer($A, $Z), integer(0, 255), $-, $\s])),
        list_to_binary(Characters)
    ).

line_end() ->
    oneof([<<"\r\n">>, <<"\n">>, <<"\r\n\r\n">>, <<"\r\n ">>, <<"\r\n\t\r\n">>, <<"\r">>]).

%% The oracle --------------------------------------------------------------------

expected(Type, Limit, Bytes) ->
    expected(Type, decoder_options(Limit), Type, Bytes).

expected(Type, Options, Current, Bytes) ->
    case erlang:decode_packet(Current, Bytes, Options) of
        {ok, Packet, Rest} -> [Packet | expected(Type, Options, next(Type, Current, Packet), Rest)];
        {more, _} -> [closed];
        {error, _} -> [emsgsize, closed]
    end.

%% The socket remembers its place in a message; decode_packet/3 gets it as an argument.
next(Type, _Current, http_eoh) -> Type;
next(http, _Current, {Line, _, _, _}) when Line =:= http_request; Line =:= http_response -> httph;
next(http_bin, _Current, {Line, _, _, _}) when Line =:= http_request; Line =:= http_response -> httph_bin;
next(_Type, Current, _Packet) -> Current.

decoder_options(none) -> [];
decoder_options({buffer, Size}) -> [{line_length, Size}];
decoder_options({packet_size, Size}) -> [{packet_size, Size}].

socket_options(none) -> [];
socket_options(Limit) -> [Limit].

%% The socket --------------------------------------------------------------------

pieces([], Bytes) -> [Bytes];
pieces([Size | Sizes], Bytes) when Size < byte_size(Bytes) ->
    <<Piece:Size/binary, Rest/binary>> = Bytes,
    [Piece | pieces(Sizes, Rest)];
pieces(_, Bytes) -> [Bytes].

received(Options, Active, Pieces) ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, loopback} | Options]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    ok = inet:setopts(Socket, [{active, Active}]),
    %% The socket may close before everything is sent.
    _ = [gen_tcp:send(Peer, Piece) || Piece <- Pieces],
    _ = gen_tcp:shutdown(Peer, write),
    Received = messages(Socket, Active),
    ok = gen_tcp:close(Socket),
    ok = gen_tcp:close(Peer),
    Received.

messages(Socket, Active) ->
    receive
        {Tag, Socket, Packet} when Tag =:= tcp; Tag =:= http ->
            _ = [inet:setopts(Socket, [{active, once}]) || Active =:= once],
            [Packet | messages(Socket, Active)];
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, Active}]),
            messages(Socket, Active);
        {tcp_error, Socket, Reason} ->
            [Reason | messages(Socket, Active)];
        {tcp_closed, Socket} ->
            [closed]
    after weir_test_wait:patience() -> error(nothing_comes)
    end.
