%% @private
%% @doc Parses the ClientHello of TLS: the server name and the protocols that the client offers. Pure functions.
%%
%% The message may come in any number of pieces and records, up to a limit. It is checked only as far as finding the
%% two extensions needs.
-module(weir_proxy_client_hello).

-export([parse/1]).
-export([needed/1]).

-export_type([hello/0]).

-type hello() :: #{sni => binary(), alpn => [binary()]}.
%% The name is in lower case.

%% Most bytes of a message, as in OpenSSL.
-define(LONGEST, 16#4000).
%% Most bytes of a record.
-define(RECORD, 16#4000).

%% Bytes of a record's header.
-define(HEADER, 5).

-define(HANDSHAKE, 22).
-define(CLIENT_HELLO, 1).
-define(SERVER_NAME, 0).
-define(HOST_NAME, 0).
-define(ALPN, 16).

%% @doc Parses the bytes received so far. Returns `more' if the message is incomplete, `not_tls' if it is not a
%% ClientHello, `bad_hello' if it is malformed or too long.
-spec parse(binary()) -> {ok, hello()} | more | {error, not_tls | bad_hello}.
parse(Bytes) ->
    case fragments(Bytes, <<>>) of
        {error, _} = Error -> Error;
        {Message, _Missing} -> message(Message)
    end.

%% @doc Returns how many bytes {@link parse/1} needs before it can return anything but `more', after it has returned
%% that. Calling it for each byte of a long message would take quadratic time.
-spec needed(binary()) -> pos_integer().
needed(Bytes) ->
    {_Message, Missing} = fragments(Bytes, <<>>),
    byte_size(Bytes) + Missing.

%% The part of the message in the records so far, and the least number of missing bytes.
fragments(<<?HANDSHAKE, 3, _Minor, 0:16, _/binary>>, _Message) ->
    {error, bad_hello};
fragments(<<?HANDSHAKE, 3, _Minor, Size:16, Rest/binary>>, Message) when Size =< ?RECORD ->
    case Rest of
        <<Fragment:Size/binary, More/binary>> ->
            Whole = <<Message/binary, Fragment/binary>>,
            case missing(Whole) of
                0 -> {Whole, 0};
                _ -> fragments(More, Whole)
            end;
        Part ->
            Whole = <<Message/binary, Part/binary>>,
            Missing = missing(Whole),
            case Missing > Size - byte_size(Part) of
                true -> {Whole, Missing + ?HEADER};
                false -> {Whole, Missing}
            end
    end;
fragments(<<?HANDSHAKE, 3, _Minor, _Size:16, _/binary>>, _Message) ->
    {error, bad_hello};
fragments(Part, Message) when byte_size(Part) < ?HEADER ->
    case is_beginning(Part) of
        true -> {Message, ?HEADER - byte_size(Part) + missing(Message)};
        false -> refused(Message)
    end;
fragments(_Other, Message) ->
    refused(Message).

is_beginning(<<>>) -> true;
is_beginning(<<?HANDSHAKE>>) -> true;
is_beginning(<<?HANDSHAKE, 3, _/binary>>) -> true;
is_beginning(_) -> false.

refused(<<>>) -> {error, not_tls};
refused(_Message) -> {error, bad_hello}.

%% Bytes missing until a decision; 0 for a message that is complete, not a ClientHello, or too long.
missing(<<>>) -> 1;
missing(<<?CLIENT_HELLO, Size:24, _/binary>>) when Size > ?LONGEST -> 0;
missing(<<?CLIENT_HELLO, Size:24, Body/binary>>) -> max(0, Size - byte_size(Body));
missing(<<?CLIENT_HELLO, Part/binary>>) -> 3 - byte_size(Part);
missing(_Other) -> 0.

message(<<?CLIENT_HELLO, Size:24, _/binary>>) when Size > ?LONGEST -> {error, bad_hello};
message(<<?CLIENT_HELLO, Size:24, Body:Size/binary, _/binary>>) -> hello(Body);
message(<<?CLIENT_HELLO, _/binary>>) -> more;
message(<<>>) -> more;
message(_Other) -> {error, not_tls}.

hello(<<3, _Minor, _Random:32/binary, IdSize, _Id:IdSize/binary, CipherSize:16, _Ciphers:CipherSize/binary, MethodSize,
        _Methods:MethodSize/binary, Extensions/binary>>) ->
    case Extensions of
        <<>> -> {ok, #{}};
        <<Size:16, All:Size/binary>> -> extensions(All, #{});
        _ -> {error, bad_hello}
    end;
hello(_Body) ->
    {error, bad_hello}.

extensions(<<>>, Hello) ->
    {ok, Hello};
extensions(<<?SERVER_NAME:16, Size:16, Value:Size/binary, More/binary>>, Hello) when not is_map_key(sni, Hello) ->
    case Value of
        <<ListSize:16, List:ListSize/binary>> ->
            case host_name(List) of
                {ok, Name} -> extensions(More, Hello#{sni => string:lowercase(Name)});
                none -> extensions(More, Hello);
                error -> {error, bad_hello}
            end;
        _ ->
            {error, bad_hello}
    end;
extensions(<<?ALPN:16, Size:16, Value:Size/binary, More/binary>>, Hello) when not is_map_key(alpn, Hello) ->
    case Value of
        <<ListSize:16, List:ListSize/binary>> ->
            case protocols(List, []) of
                {ok, Protocols} -> extensions(More, Hello#{alpn => Protocols});
                error -> {error, bad_hello}
            end;
        _ ->
            {error, bad_hello}
    end;
%% Refuses an extension that occurs twice: the server might use the other one.
extensions(<<Type:16, _/binary>>, _Hello) when Type =:= ?SERVER_NAME; Type =:= ?ALPN -> {error, bad_hello};
extensions(<<_Type:16, Size:16, _:Size/binary, More/binary>>, Hello) -> extensions(More, Hello);
extensions(_Bad, _Hello) -> {error, bad_hello}.

host_name(<<?HOST_NAME, Size:16, Name:Size/binary, _/binary>>) ->
    case re:run(Name, "^[A-Za-z0-9._-]{1,255}$", [{capture, none}, dollar_endonly]) of
        match -> {ok, Name};
        nomatch -> error
    end;
host_name(<<_Type, Size:16, _:Size/binary, More/binary>>) -> host_name(More);
host_name(<<>>) -> none;
host_name(_Bad) -> error.

protocols(<<Size, Protocol:Size/binary, More/binary>>, Protocols) when Size > 0 ->
    protocols(More, [Protocol | Protocols]);
protocols(<<>>, Protocols) ->
    {ok, lists:reverse(Protocols)};
protocols(_Bad, _Protocols) ->
    error.
