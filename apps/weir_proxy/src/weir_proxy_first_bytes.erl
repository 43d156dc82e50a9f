%% @doc Which protocol a client speaks, and what it asks for, by its first bytes. A value.
-module(weir_proxy_first_bytes).

-export([classify/1]).
-export([needed/1]).
-export([limit/0]).
-export([lower/1]).

-export_type([protocol/0]).

-type protocol() :: http | tls | ssh | postgres | redis | unknown | none.
%% `none': the client has said nothing in time.

%% What is read before a decision, at most: a ClientHello of 16 KiB in records of one byte has more, and is refused.
-define(LIMIT, 16#8000).

-define(METHODS, [
    <<"GET ">>, <<"HEAD ">>, <<"POST ">>, <<"PUT ">>, <<"DELETE ">>, <<"OPTIONS ">>, <<"PATCH ">>, <<"CONNECT ">>, <<"TRACE ">>
]).

%% A name has at most 255 bytes; and a port.
-define(HOST_MAX, 261).

%% The lengths of PostgreSQL's first message.
-define(STARTUP_MAX, 10_000).

%% @doc How many bytes are looked at.
-spec limit() -> pos_integer().
limit() -> ?LIMIT.

%% @doc The facts in the bytes so far; `more' if they may begin something that is known.
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

%% @doc How many bytes there must be before {@link classify/1} may say anything but `more', where it has said that.
-spec needed(binary()) -> pos_integer().
needed(<<22, _/binary>> = Bytes) -> weir_proxy_client_hello:needed(Bytes);
needed(Bytes) -> byte_size(Bytes) + 1.

unknown() -> {ok, #{protocol => unknown}}.

begins(Bytes, Words) ->
    Size = byte_size(Bytes),
    case [Word || Word <- Words, binary:longest_common_prefix([Word, Bytes]) =:= byte_size(Word)] of
        [Word | _] -> {yes, Word};
        [] ->
            case lists:any(fun(Word) -> Size < byte_size(Word) andalso binary:part(Word, 0, Size) =:= Bytes end, Words) of
                true -> unclear;
                false -> no
            end
    end.

%% The host of the request; what follows its head is not read. Servers differ in whether a line may end without a carriage return.
http(Bytes) ->
    case binary:split(Bytes, [<<"\n\r\n">>, <<"\n\n">>]) of
        [Head, _] -> {ok, host(Head, #{protocol => http})};
        [_] -> more
    end.

%% Two that differ are none: two readers could take another one each.
host(Head, Facts) ->
    [_Request | Fields] = binary:split(Head, <<"\n">>, [global]),
    case lists:usort([name(trimmed(Value)) || <<Name:4/binary, $:, Value/binary>> <- Fields, lower(Name) =:= <<"host">>]) of
        [Host] when Host =/= none -> Facts#{host => Host};
        _ -> Facts
    end.

%% Without blanks before it and behind it. Not by a regular expression: a client that sends many blanks would have it try them all.
trimmed(<<Blank, Rest/binary>>) when Blank =:= $\s; Blank =:= $\t -> trimmed(Rest);
trimmed(Text) -> trimmed_end(Text, byte_size(Text)).

trimmed_end(_Text, 0) -> <<>>;
trimmed_end(Text, Size) ->
    case binary:at(Text, Size - 1) of
        Blank when Blank =:= $\s; Blank =:= $\t; Blank =:= $\r -> trimmed_end(Text, Size - 1);
        _ -> binary:part(Text, 0, Size)
    end.

%% Without its port.
name(Text) when byte_size(Text) > ?HOST_MAX -> none;
name(Text) ->
    case re:run(Text, "^([^\\x00-\\x20\\x7f]+?)(?::[0-9]{1,5})?$", [{capture, all_but_first, binary}, dollar_endonly]) of
        {match, [Host]} -> lower(Host);
        nomatch -> none
    end.

%% @doc Letters of ASCII in lower case, other bytes as they are: what somebody else says need not be UTF-8, and string:lowercase/1 raises
%% for what is not.
-spec lower(binary()) -> binary().
lower(Text) -> << <<(case Byte of _ when Byte >= $A, Byte =< $Z -> Byte + 32; _ -> Byte end)>> || <<Byte>> <= Text >>.

%% A request for TLS (answered by the server), a cancellation, or the startup message with its pairs.
postgres(<<8:32, Code:32, _/binary>>) when Code =:= 80877103; Code =:= 80877104 -> {ok, #{protocol => postgres}};
postgres(<<Size:32, _/binary>>) when Size < 8; Size > ?STARTUP_MAX -> unknown();
postgres(<<Size:32, Version:16, _/binary>> = Bytes) when Version =:= 3 ->
    Rest = Size - 8,
    case Bytes of
        <<_:64, Pairs:Rest/binary, _/binary>> -> {ok, pairs(binary:split(Pairs, <<0>>, [global]), #{protocol => postgres})};
        _ -> more
    end;
postgres(<<16:32, 1234:16, _/binary>>) -> {ok, #{protocol => postgres}};
postgres(<<_:48, _/binary>>) -> unknown();
postgres(_Part) -> more.

pairs([<<"user">>, User | More], Facts) -> pairs(More, Facts#{user => User});
pairs([<<"database">>, Database | More], Facts) -> pairs(More, Facts#{database => Database});
pairs([Name, _Value | More], Facts) when Name =/= <<>> -> pairs(More, Facts);
%% Without a database the user's name is that of the database.
pairs(_End, #{user := User} = Facts) when not is_map_key(database, Facts) -> Facts#{database => User};
pairs(_End, Facts) -> Facts.

%% An array of strings, as every client of Redis sends its commands.
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
