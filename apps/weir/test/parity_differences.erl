%% Steps that a session does not compare: the rows of docs/differences.md. Some depend on how much of the stream the
%% socket has still to deliver.
-module(parity_differences).

-export([is_passed_over/2, knows_fields_only/1, undelivered/1]).

-include("parity_session.hrl").

%% A process that is dead or in a call cannot do anything. The other steps are rows of docs/differences.md.
-spec is_passed_over(parity_sequence:step() | finally, #session{}) -> boolean().
is_passed_over({peer, _}, _Session) ->
    false;
is_passed_over(finally, _Session) ->
    false;
is_passed_over({Name, Call}, Session = #session{killed = Killed, waiting = Waiting}) ->
    lists:member(Name, Killed) orelse
        case is_map_key(Name, Waiting) of
            %% "a process killed in `recv`"
            true -> true;
            false -> is_different(Call, maps:get(Name, Session#session.processes), Session)
        end.

is_different({recv, Length, Timeout}, Process, Session) ->
    %% "`recv(S, 0, 0)` with a packet that is longer than `buffer`"
    (Length =:= 0 andalso Timeout =:= 0 andalso option(packet, Session) =/= raw andalso
        byte_size(undelivered(Session)) > 0) orelse
        %% "`recv(S, N, 0)` with fewer than N bytes before the end of input"
        (Length > byte_size(undelivered(Session)) andalso Timeout =:= 0 andalso has_ended(Session)) orelse
        is_different({recv_waiting, Length}, Process, Session);
is_different({recv_waiting, Length}, _Process, Session = #session{short = Short}) ->
    %% "`recv(S, 0)` after a `recv(S, N, T)` that timed out", "`recv` with `{deliver, port}`"
    (Short andalso Length =:= 0) orelse option(deliver, Session) =:= port;
is_different({setopts, Options}, _Process, Session) ->
    lists:any(fun(Option) -> is_different_option(Option, Session) end, Options);
is_different({send, Data}, _Process, Session) ->
    %% "too long for the length field of `{packet, 1}` or `{packet, 2}`"
    iolist_size(Data) > 255 andalso option(packet, Session) =:= 1;
is_different({unrecv, Data}, _Process, Session = #session{waiting = Waiting}) ->
    %% "`unrecv` of a part of a packet", "`unrecv` before half a packet", "`unrecv` while a process is in `recv`"
    Packet = option(packet, Session),
    map_size(Waiting) > 0 orelse not is_whole(Packet, Data) orelse
        (Packet =/= raw andalso (byte_size(Data) > option(buffer, Session) orelse may_be_half_read(Session)));
is_different({give_to, _}, Process, Session) ->
    %% "`controlling_process` by an owner that has not seen all messages"
    {messages, Messages} = process_info(Process, messages),
    Tags = [element(1, Message) || Message <- Messages],
    lists:member(tcp_passive, Tags) orelse lists:member(tcp_error, Tags) orelse
        (lists:member(tcp_closed, Tags) andalso option(exit_on_close, Session) =/= undefined);
is_different(_Call, _Process, _Session) ->
    false.

%% "`recv(S, 0)` after a `recv(S, N, T)` that timed out", "`active` set while a process is in `recv`"
is_different_option({active, _}, #session{short = Short, waiting = Waiting}) ->
    Short orelse map_size(Waiting) > 0;
%% "the packet type or `packet_size` changes after half a packet was read"
is_different_option({Name, Value}, Session = #session{short = Short, waiting = Waiting}) when
    Name =:= packet; Name =:= packet_size
->
    Short orelse map_size(Waiting) > 0 orelse may_be_half_read(Session) orelse may_have_grown(Session) orelse
        (knows_requests(Value) andalso may_expect_fields(Session));
%% "`line_delimiter` changes after half a line"
is_different_option({line_delimiter, _}, Session) ->
    option(packet, Session) =:= line andalso undelivered(Session) =/= <<>>;
%% "`recv` with `{deliver, port}`"
is_different_option({deliver, port}, #session{waiting = Waiting}) ->
    map_size(Waiting) > 0;
is_different_option(_Option, _Session) ->
    false.

option(Name, #session{socket = Socket}) ->
    case inet:getopts(Socket, [Name]) of
        {ok, [{Name, Value}]} -> Value;
        _ -> undefined
    end.

has_ended(#session{socket = Socket, read_shut = ReadShut}) ->
    ReadShut orelse parity_wire:has_ended(parity_wire:look(Socket)).

%% The socket's counter recv_oct says how much it has delivered.
-spec undelivered(#session{}) -> binary().
undelivered(#session{socket = Socket, stream = Stream}) ->
    case inet:getstat(Socket, [recv_oct]) of
        {ok, [{recv_oct, Delivered}]} when Delivered =< byte_size(Stream) ->
            binary:part(Stream, Delivered, byte_size(Stream) - Delivered);
        _ ->
            <<>>
    end.

is_whole(Packet, _Data) when Packet =:= raw; Packet =:= 0; Packet =:= undefined ->
    true;
is_whole(_Packet, <<>>) ->
    true;
is_whole(line, _Data) ->
    %% A line may be longer than the part that was put back.
    false;
is_whole(Http, Data) when Http =:= http; Http =:= http_bin ->
    %% Whether the first line has been taken is unknown here. A header is complete only when the next line begins.
    is_whole(httph, Data);
is_whole(Packet, Data) ->
    case erlang:decode_packet(Packet, Data, []) of
        {ok, _, Rest} -> is_whole(Packet, Rest);
        _ -> false
    end.

%% Some bytes of a packet of known length may have been read and others not. Bytes that were put back count as such:
%% "`unrecv` of a part of a packet".
may_be_half_read(Session = #session{socket = Socket, put_back = PutBack}) ->
    case {undelivered(Session), option(packet, Session), parity_wire:look(Socket)} of
        {<<>>, _, _} -> false;
        {_, Raw, _} when Raw =:= raw; Raw =:= 0 -> PutBack;
        {_, _, gone} -> false;
        {_, _, #{unread := Unread}} when Unread > 0 -> true;
        %% "`packet_size` changes after the buffer has grown"
        {Data, Packet, _} -> PutBack orelse byte_size(Data) >= option(buffer, Session) orelse has_begun(Packet, Data)
    end.

%% "`packet_size` changes after the buffer has grown": up to `packet_size`, for a packet of unknown length.
may_have_grown(Session) ->
    undelivered(Session) =/= <<>> andalso option(packet_size, Session) > option(buffer, Session).

%% "from `httph` or `httph_bin` to `http` or `http_bin`": not after a header field has arrived.
may_expect_fields(Session = #session{had_fields = Had}) ->
    Had andalso not (knows_fields_only(Session) andalso undelivered(Session) =/= <<>>).

%% Whether a packet of known length begins after zero or more complete packets.
has_begun(_Packet, <<>>) ->
    false;
has_begun(Packet, Data) ->
    case erlang:decode_packet(Packet, Data, []) of
        {ok, _, Rest} -> has_begun(Packet, Rest);
        {more, undefined} -> false;
        {more, _} -> true;
        %% Read bytes of a bad packet are dropped, so the start of the next packet is unknown.
        {error, _} -> true
    end.

-spec knows_fields_only(#session{}) -> boolean().
knows_fields_only(Session) ->
    lists:member(option(packet, Session), [httph, httph_bin]).

knows_requests(Packet) ->
    Packet =:= http orelse Packet =:= http_bin.
