%% Random sequences of operations on a connection: the options with which the socket is opened, then calls of its
%% processes and actions of the peer.
-module(parity_sequence).

-include_lib("proper/include/proper.hrl").

-export([sequence/0]).

-export_type([sequence/0, step/0, name/0]).

-type sequence() :: {accepted | connected, [gen_tcp:option()], [step()]}.
-type name() :: a | b | c.
%% Names of processes; `a' opens the socket.

-type step() :: {peer, peer_action()} | {name(), call()}.
-type peer_action() :: {send, binary()} | {shutdown, read | write | read_write} | close | reset | drain.
%% reset is a close with `{linger, {true, 0}}'; drain reads everything.

-type call() ::
    {send, iodata()}
    | {recv, non_neg_integer(), timeout()}
    | {recv_waiting, non_neg_integer()}
    | {unrecv, binary()}
    | {setopts, [gen_tcp:option()]}
    | {getopts, [gen_tcp:option_name()]}
    | {getstat, [inet:stat_option()]}
    | {shutdown, read | write | read_write}
    | {give_to, name()}
    | monitor
    | sockname
    | peername
    | flush
    | close
    | kill.
%% recv_waiting has no timeout, and the sequence goes on meanwhile. flush empties the mailbox, which otherwise stays
%% as it is. kill ends the process.

%% A sequence mostly uses one packet type, and sometimes another.
-spec sequence() -> proper_types:type().
sequence() ->
    ?LET(
        Packet,
        packet(),
        {oneof([accepted, connected]), opening(Packet), ?LET(Groups, list(group(Packet)), lists:append(Groups))}
    ).

%% Options ----------------------------------------------------------------------

packet() ->
    frequency([
        {4, raw},
        {1, oneof([0, 1, 2])},
        {3, 4},
        {3, line},
        {3, oneof([asn1, cdr, sunrm, fcgi, tpkt])},
        {3, oneof([http, httph, http_bin, httph_bin])}
    ]).

%% The default of `buffer' differs ("`buffer` unless set"), so it is always set.
opening(Packet) ->
    ?LET(
        {Buffer, Mode, Active, More},
        {buffer(), oneof([[], [binary], [list], [{mode, binary}]]), list(active()), list(option(Packet))},
        [{packet, Packet}, {buffer, Buffer}] ++ Mode ++ [{active, A} || A <- lists:sublist(Active, 1)] ++ More
    ).

buffer() ->
    frequency([{8, 1460}, {2, integer(10, 60)}, {1, integer(1, 9)}, {1, 65536}]).

active() ->
    frequency([{3, false}, {2, true}, {4, once}, {3, integer(1, 4)}]).

%% Options that can be set at any time: all except "`buffer` changed while a connection is in use".
option(Packet) ->
    frequency([
        {3, {packet_size, frequency([{2, 0}, {4, integer(1, 30)}, {1, 1000}])}},
        {2, {header, integer(0, 6)}},
        {2, {mode, oneof([list, binary])}},
        {3, {exit_on_close, boolean()}},
        {2, {show_econnreset, boolean()}},
        {1, {line_delimiter, oneof([$\n, $\r, $;, 0])}},
        {1, {packet, oneof([Packet, packet()])}},
        {1, {nodelay, boolean()}},
        {1, {keepalive, boolean()}},
        {1, {linger, oneof([{false, 0}, {true, 0}, {true, 2}])}},
        {1, {send_timeout, oneof([infinity, 100, 5000])}},
        {1, {send_timeout_close, boolean()}},
        {1, {high_watermark, oneof([1, 1000, 10000])}},
        {1, {low_watermark, oneof([0, 500, 20000])}},
        {1, {deliver, oneof([term, term, port])}},
        {1, {delay_send, boolean()}},
        {1, {priority, integer(0, 6)}},
        {1, {tos, oneof([0, 16#10])}}
    ]).

settings(Packet) ->
    frequency([
        {6, [{active, active()}]},
        {2, [{active, integer(-3, 3)}]},
        {2, [{packet, oneof([Packet, packet()])}]},
        {2, ?LET({New, Active}, {packet(), active()}, [{packet, New}, {active, Active}])},
        {1, ?LET({New, Active}, {packet(), active()}, [{active, Active}, {packet, New}])},
        {3, list(option(Packet))},
        {1, ?LET({Active, More}, {active(), list(option(Packet))}, [{active, Active} | More])},
        {1, [wrong_option()]}
    ]).

wrong_option() ->
    oneof([{active, 40000}, {active, yes}, {packet, 3}, {packet_size, -1}, {mode, text}, {no_such_option, 1}, none]).

names_of_options() ->
    non_empty(
        list(
            oneof([
                active, packet, packet_size, header, mode, buffer, exit_on_close, send_timeout, send_timeout_close,
                show_econnreset, nodelay, keepalive, linger, line_delimiter, high_watermark, low_watermark, deliver,
                delay_send, priority, tos, no_such_option
            ])
        )
    ).

names_of_counters() ->
    non_empty(
        list(
            oneof([
                recv_oct, recv_cnt, recv_max, recv_avg, recv_dvi, send_oct, send_cnt, send_max, send_avg, send_pend
            ])
        )
    ).

%% Steps ------------------------------------------------------------------------

group(Packet) ->
    frequency([
        {10, traffic(Packet)},
        {12, call(Packet)},
        {1, ending()}
    ]).

call(Packet) ->
    ?LET(
        {Name, Call},
        {
            frequency([{6, a}, {2, b}, {1, c}]),
            frequency([
                {8, {setopts, settings(Packet)}},
                {4, {recv, frequency([{3, 0}, {1, integer(1, 20)}]), oneof([0, 5])}},
                {2, {recv_waiting, frequency([{3, 0}, {1, integer(1, 20)}])}},
                {4, {send, outgoing()}},
                %% "`unrecv` of nothing"
                {1, {unrecv, ?SUCHTHAT(Frame, frame(Packet), Frame =/= <<>>)}},
                {1, {getopts, names_of_options()}},
                {1, {getstat, names_of_counters()}},
                {2, {give_to, name()}},
                {2, flush},
                {1, oneof([monitor, sockname, peername])}
            ])
        },
        [{Name, Call}]
    ).

ending() ->
    oneof([
        [{peer, close}],
        [{peer, reset}],
        [{peer, {shutdown, oneof([read, write, read_write])}}],
        [{name(), {shutdown, oneof([read, write, read_write])}}],
        [{name(), close}],
        [{name(), kill}]
    ]).

name() ->
    oneof([a, b, c]).

outgoing() ->
    frequency([{6, binary()}, {1, <<>>}, {1, list(binary())}, {1, ?LET(Size, integer(1, 3000), bytes(Size))}]).

%% Data of the peer: frames, several at once, one in two pieces or byte by byte, with other steps in between; or
%% malformed frames.
traffic(Packet) ->
    frequency([
        {6, ?LET(Frame, frame(Packet), sent([Frame]))},
        {4, ?LET(Frames, list(frame(Packet)), sent([iolist_to_binary(Frames)]))},
        {3,
            ?LET(
                {Frames, Call}, {non_empty(list(frame(Packet))), call(Packet)}, in_two(iolist_to_binary(Frames), Call)
            )},
        {1,
            ?LET(
                Frame, frame(Packet), sent([<<Byte>> || <<Byte>> <= binary:part(Frame, 0, min(12, byte_size(Frame)))])
            )},
        {2, ?LET(Wrong, malformed(Packet), sent([Wrong]))},
        {1, ?LET(Large, large(Packet), sent([Large]))},
        {1, [{peer, drain}]}
    ]).

sent(Pieces) ->
    [{peer, {send, Piece}} || Piece <- Pieces, Piece =/= <<>>].

in_two(Data, Between) ->
    ?LET(At, integer(0, byte_size(Data)), begin
        <<First:At/binary, Second/binary>> = Data,
        sent([First]) ++ Between ++ sent([Second])
    end).

%% Frames -----------------------------------------------------------------------

frame(Packet) ->
    ?LET(Data, binary(), frame(Packet, Data)).

large(Packet) ->
    ?LET(Size, integer(100, 3000), frame(Packet, bytes(Size))).

bytes(Size) ->
    <<<<Byte>> || Byte <- lists:seq(1, Size)>>.

frame(raw, Data) -> Data;
frame(0, Data) -> Data;
frame(1, Data) -> binary_part_at_most(255, Data, fun(Part) -> <<(byte_size(Part)), Part/binary>> end);
frame(2, Data) -> <<(byte_size(Data)):16, Data/binary>>;
frame(4, Data) -> <<(byte_size(Data)):32, Data/binary>>;
frame(sunrm, Data) -> ?LET(Last, integer(0, 1), <<Last:1, (byte_size(Data)):31, Data/binary>>);
frame(line, Data) -> ?LET(End, oneof([<<"\n">>, <<"\r\n">>, <<";">>]), <<Data/binary, End/binary>>);
frame(asn1, Data) -> ?LET({Tag, Length}, {asn1_tag(), asn1_length(Data)}, <<Tag/binary, Length/binary, Data/binary>>);
frame(cdr, Data) ->
    ?LET(Little, integer(0, 1), begin
        Size =
            case Little of
                1 -> <<(byte_size(Data)):32/little>>;
                0 -> <<(byte_size(Data)):32>>
            end,
        <<"GIOP", 1, 2, Little, 0, Size/binary, Data/binary>>
    end);
frame(fcgi, Data) ->
    ?LET(Padding, integer(0, 9), <<1, 4, 1:16, (byte_size(Data)):16, Padding, 0, Data/binary, 0:Padding/unit:8>>);
frame(tpkt, Data) ->
    <<3, 0, (byte_size(Data) + 4):16, Data/binary>>;
frame(Http, Data) when Http =:= http; Http =:= http_bin ->
    frequency([{3, request()}, {1, response()}, {3, head()}, {3, header()}, {2, <<"\r\n">>}, {1, frame(line, Data)}]);
frame(Headers, Data) when Headers =:= httph; Headers =:= httph_bin ->
    frequency([{4, header()}, {2, <<"\r\n">>}, {1, frame(line, Data)}, {1, request()}]).

binary_part_at_most(Size, Data, Frame) ->
    Frame(binary:part(Data, 0, min(Size, byte_size(Data)))).

asn1_tag() ->
    oneof([<<16#30>>, <<4>>, <<16#1f, 16#81, 2>>, <<16#3f, 5>>]).

asn1_length(Data) when byte_size(Data) < 128 ->
    oneof([<<(byte_size(Data))>>, <<16#81, (byte_size(Data))>>, <<16#84, (byte_size(Data)):32>>]);
asn1_length(Data) ->
    oneof([<<16#82, (byte_size(Data)):16>>, <<16#83, (byte_size(Data)):24>>]).

request() ->
    ?LET(
        {Method, Target, Version, End},
        {
            oneof(["GET", "POST", "OPTIONS", "BREW", "get"]),
            oneof([
                "/", "/a/b?c=d", "*", "http://host/path", "https://host:8443/", "http://host", "mailto:x", "odd", ""
            ]),
            oneof([" HTTP/1.1", " HTTP/1.0", " HTTP/0.9", "", " HTTP/1", " FTP/1.1"]),
            end_of_line()
        },
        list_to_binary([Method, " ", Target, Version, End])
    ).

response() ->
    ?LET(
        {Status, Phrase, End},
        {oneof([" 200", " 404", " x", ""]), oneof([" OK", "", " Not  Found"]), end_of_line()},
        list_to_binary(["HTTP/1.1", Status, Phrase, End])
    ).

header() ->
    ?LET(
        {Name, Value, End},
        {
            oneof([
                "Host",
                "content-length",
                "X-FORWARDED-FOR",
                "a-name-of-more-than-twenty-characters",
                "",
                "b d",
                "accept"
            ]),
            oneof([": x", ":", ":   spaces  ", " no colon", ": folded\r\n more", ": two\n\tlines"]),
            end_of_line()
        },
        list_to_binary([Name, Value, End])
    ).

head() ->
    ?LET({Request, Headers}, {request(), list(header())}, list_to_binary([Request, Headers, "\r\n"])).

end_of_line() ->
    frequency([{6, "\r\n"}, {2, "\n"}, {1, "\r"}]).

%% Negative or too large lengths, wrong magic numbers, lines without an end, random bytes.
malformed(Packet) ->
    frequency([
        {1, ?LET(Data, binary(), Data)},
        {3, wrong(Packet)}
    ]).

wrong(4) ->
    oneof([<<-1:32>>, <<16#7fffffff:32, 1>>, <<16#80000000:32>>, <<100000:32, "x">>]);
wrong(2) ->
    <<16#ffff:16, "x">>;
wrong(sunrm) ->
    oneof([<<-1:32>>, <<16#7fffffff:32>>, <<16#fffffffc:32, 1, 2>>]);
wrong(asn1) ->
    oneof([<<16#30, 16#85, 1, 2, 3, 4, 5>>, <<16#30, 16#84, -1:32>>, <<16#30, 16#80>>, <<16#1f, -1:64>>]);
wrong(cdr) ->
    oneof([<<"GIOQ", 1, 2, 0, 0, 3:32, "abc">>, <<"GIOP", 1, 2, 0, 0, -1:32>>, <<"GIOP", 1, 2, 1, 0, -2:32>>]);
wrong(fcgi) ->
    oneof([<<2, 4, 1:16, 0:16, 0, 0>>, <<1, 4, 1:16, 16#ffff:16, 255, 0, "x">>]);
wrong(tpkt) ->
    oneof([<<4, 0, 8:16, "abcd">>, <<3, 0, 3:16>>, <<3, 0, 0:16, "x">>, <<3, 0, 4:16>>]);
wrong(line) ->
    ?LET(Size, integer(20, 2000), list_to_binary(lists:duplicate(Size, $x)));
wrong(Http) when is_atom(Http), Http =/= raw ->
    oneof([
        <<"GET\r\n">>, <<" \r\n">>, <<"\n">>, <<"HTTP/1\r\n">>, <<"no end of line">>, <<0, 1, 2, "\r\n">>, <<": x\r\n">>
    ]);
wrong(_) ->
    binary().
