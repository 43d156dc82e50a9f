%% @doc Recognizes a client's protocol, and what it asks for, from its first bytes. Pure functions.
-module(weir_proxy_first_bytes).

-export([classify/1]).
-export([needed/1]).
-export([limit/0]).
-export([lower/1]).

-export_type([protocol/0]).

-type protocol() :: http | tls | ssh | postgres | redis | unknown | none.
%% `none': the client has sent nothing in time.

%% Most bytes read before a decision. A ClientHello of 16 KiB in records of one byte is longer, and counts as
%% `unknown'.
-define(LIMIT, 16#8000).

-define(METHODS, [
    <<"GET ">>,
    <<"HEAD ">>,
    <<"POST ">>,
    <<"PUT ">>,
    <<"DELETE ">>,
    <<"OPTIONS ">>,
    <<"PATCH ">>,
    <<"CONNECT ">>,
    <<"TRACE ">>
]).

%% A name of 255 bytes, a colon and a port.
-define(HOST_MAX, 261).

%% PostgreSQL refuses longer startup messages.
-define(STARTUP_MAX, 10_000).

%% @doc Returns how many bytes are looked at, at most.
-spec limit() -> pos_integer().
limit() -> ?LIMIT.

%% @doc Returns the facts in the bytes so far, or `more' if they may be the beginning of a known protocol.
-spec classify(binary()) -> {ok, weir_proxy_rules:facts()} | more.
classify(<<>>) -> more;
classify(<<22, _/binary>> = Bytes) ->
    case weir_proxy_client_hello:parse(Bytes) of
        {ok, Hello} -> {ok, Hello#{protocol => tls}};
        more -> more;
        {error, _} -> unknown()
    end;
classify(<<0, _/binary>> = Bytes) -> postgres(Bytes);
classify(<<"*", _/binary>> = Bytes) -> redis(Bytes);
classify(Bytes) ->
    case begins(Bytes, [<<"SSH-">> | ?METHODS]) of
        {yes, <<"SSH-">>} -> {ok, #{protocol => ssh}};
        {yes, _Method} -> http(Bytes);
        unclear -> more;
        no -> unknown()
    end.

%% @doc Returns how many bytes {@link classify/1} needs before it can return anything but `more', after it has returned
%% that.
-spec needed(binary()) -> pos_integer().
needed(<<22, _/binary>> = Bytes) -> weir_proxy_client_hello:needed(Bytes);
needed(Bytes) -> byte_size(Bytes) + 1.

unknown() -> {ok, #{protocol => unknown}}.

begins(Bytes, Words) ->
    Size = byte_size(Bytes),
    case [Word || Word <- Words, binary:longest_common_prefix([Word, Bytes]) =:= byte_size(Word)] of
        [Word | _] ->
            {yes, Word};
        [] ->
            case
                lists:any(fun(Word) -> Size < byte_size(Word) andalso binary:part(Word, 0, Size) =:= Bytes end, Words)
            of
                true -> unclear;
                false -> no
            end
    end.

%% Finds the Host field of a request. Lines may end without a carriage return, because some servers accept that.
http(Bytes) ->
    case binary:split(Bytes, [<<"\n\r\n">>, <<"\n\n">>]) of
        [Head, _] -> {ok, host(Head, #{protocol => http})};
        [_] -> more
    end.

%% Two different Host fields count as none: the server might use the other one.
host(Head, Facts) ->
    [_Request | Fields] = binary:split(Head, <<"\n">>, [global]),
    case
        lists:usort([name(trimmed(Value)) || <<Name:4/binary, $:, Value/binary>> <- Fields, lower(Name) =:= <<"host">>])
    of
        [Host] when Host =/= none -> Facts#{host => Host};
        _ -> Facts
    end.

%% Trims blanks. A regular expression would take quadratic time for a client that sends many blanks.
trimmed(<<Blank, Rest/binary>>) when Blank =:= $\s; Blank =:= $\t -> trimmed(Rest);
trimmed(Text) -> trimmed_end(Text, byte_size(Text)).

trimmed_end(_Text, 0) -> <<>>;
trimmed_end(Text, Size) ->
    case binary:at(Text, Size - 1) of
        Blank when Blank =:= $\s; Blank =:= $\t; Blank =:= $\r -> trimmed_end(Text, Size - 1);
        _ -> binary:part(Text, 0, Size)
    end.

%% The host name without its port, in lower case.
name(Text) when byte_size(Text) > ?HOST_MAX -> none;
name(Text) ->
    case
        re:run(Text, "^([^\\x00-\\x20\\x7f]+?)(?::[0-9]{1,5})?$", [{capture, all_but_first, binary}, dollar_endonly])
    of
        {match, [Host]} -> lower(Host);
        nomatch -> none
    end.

%% @doc Converts ASCII letters to lower case and keeps other bytes. Unlike string:lowercase/1 it does not raise for
%% bytes that are not UTF-8, which clients may send.
-spec lower(binary()) -> binary().
lower(Text) -> << <<(case Byte of _ when Byte >= $A, Byte =< $Z -> Byte + 32; _ -> Byte end)>> || <<Byte>> <= Text >>.

%% SSLRequest or GSSENCRequest (the server answers it), CancelRequest, or a startup message with its parameters.
postgres(<<8:32, Code:32, _/binary>>) when Code =:= 80877103; Code =:= 80877104 -> {ok, #{protocol => postgres}};
postgres(<<Size:32, _/binary>>) when Size < 8; Size > ?STARTUP_MAX -> unknown();
postgres(<<Size:32, Version:16, _/binary>> = Bytes) when Version =:= 3 ->
    Rest = Size - 8,
    case Bytes of
        <<_:64, Pairs:Rest/binary, _/binary>> ->
            {ok, pairs(binary:split(Pairs, <<0>>, [global]), #{protocol => postgres})};
        _ ->
            more
    end;
postgres(<<16:32, 1234:16, _/binary>>) ->
    {ok, #{protocol => postgres}};
postgres(<<_:48, _/binary>>) ->
    unknown();
postgres(_Part) ->
    more.

pairs([<<"user">>, User | More], Facts) -> pairs(More, Facts#{user => User});
pairs([<<"database">>, Database | More], Facts) -> pairs(More, Facts#{database => Database});
pairs([Name, _Value | More], Facts) when Name =/= <<>> -> pairs(More, Facts);
%% The default database has the user's name.
pairs(_End, #{user := User} = Facts) when not is_map_key(database, Facts) -> Facts#{database => User};
pairs(_End, Facts) -> Facts.

%% A RESP array of bulk strings, as clients send commands.
redis(Bytes) ->
    case re:run(Bytes, "^\\*[0-9]{1,7}\r\n\\$", [{capture, none}]) of
        match -> {ok, #{protocol => redis}};
        nomatch when byte_size(Bytes) > 11 -> unknown();
        nomatch ->
            case re:run(Bytes, "^\\*([0-9]{1,7}(\r\n?)?)?$", [{capture, none}, dollar_endonly]) of
                match -> more;
                nomatch -> unknown()
            end
    end.
