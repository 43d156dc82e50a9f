%% @private
%% @doc One check of a server: connects, sends a request and compares the answer.
-module(weir_proxy_probe).

-export([probe/2]).

%% @doc Checks a server. Takes at most the `timeout' of the options.
-spec probe(weir_tcp:name(), weir_proxy_config:health()) -> ok | {error, term()}.
probe(Where, Health = #{timeout := Timeout}) ->
    Deadline = erlang:monotonic_time(millisecond) + Timeout,
    case connect(Where, Timeout) of
        {ok, Socket} ->
            try
                ask(Socket, Deadline, Health)
            after
                gen_tcp:close(Socket)
            end;
        {error, _} = Error ->
            Error
    end.

connect({local, Path}, Timeout) -> weir_tcp:connect({local, Path}, 0, options(), Timeout);
connect({Address, Port}, Timeout) -> weir_tcp:connect(Address, Port, [{nodelay, true} | options()], Timeout).

%% Close with a reset, so that no check leaves a socket in TIME_WAIT.
options() -> [binary, {active, false}, {linger, {true, 0}}].

ask(Socket, Deadline, Health = #{send_proxy := Proxy}) ->
    {Question, Answer} = conversation(Health),
    case say(Socket, iolist_to_binary([weir_proxy_outgoing:of_check(Proxy), Question])) of
        ok -> await(Socket, Deadline, Answer, <<>>);
        {error, _} = Error -> Error
    end.

say(_Socket, <<>>) -> ok;
say(Socket, Words) -> gen_tcp:send(Socket, Words).

await(Socket, Deadline, Answer, Before) ->
    case {Answer(Before), byte_size(Before) >= weir_proxy_health:longest()} of
        {ok, _} -> ok;
        {{error, _} = Error, _} -> Error;
        {more, true} -> {error, {unexpected, binary:part(Before, 0, 64)}};
        {more, false} ->
            case gen_tcp:recv(Socket, 0, max(0, Deadline - erlang:monotonic_time(millisecond))) of
                {ok, Data} -> await(Socket, Deadline, Answer, <<Before/binary, Data/binary>>);
                {error, _} = Error -> Error
            end
    end.

%% What to send, and a fun that judges the bytes received so far: ok, an error, or more to come.
conversation(#{kind := tcp}) ->
    {<<>>, fun(_Answer) -> ok end};
conversation(#{kind := send_expect, send := Send, expect := Expect}) ->
    {Send, fun(Answer) -> found(Answer, Expect) end};
conversation(#{kind := http, path := Path, host := Host}) ->
    {["GET ", Path, " HTTP/1.1\r\nHost: ", Host, "\r\nConnection: close\r\n\r\n"], fun http/1};
conversation(#{kind := redis}) ->
    {<<"*1\r\n$4\r\nPING\r\n">>, fun(Answer) -> begins(Answer, <<"+PONG\r\n">>) end};
conversation(#{kind := smtp}) ->
    {<<>>, fun(Answer) -> begins(Answer, <<"220">>) end};
%% A request for a password or most refusals of the user count as ok: the server is up.
conversation(#{kind := postgres, user := User}) ->
    Pairs = <<"user", 0, User/binary, 0, 0>>,
    {<<(byte_size(Pairs) + 8):32, 3:16, 0:16, Pairs/binary>>, fun postgres/1};
conversation(#{kind := tls, host := Host}) ->
    {weir_proxy_hello:build(Host), fun tls/1}.

found(_Answer, <<>>) -> ok;
found(Answer, Expect) ->
    case binary:match(Answer, Expect) of
        nomatch -> more;
        _ -> ok
    end.

begins(Answer, Wanted) ->
    Size = min(byte_size(Answer), byte_size(Wanted)),
    case binary:part(Answer, 0, Size) =:= binary:part(Wanted, 0, Size) of
        true when Size =:= byte_size(Wanted) -> ok;
        true -> more;
        false -> unexpected(Answer)
    end.

unexpected(Answer) -> {error, {unexpected, binary:part(Answer, 0, min(64, byte_size(Answer)))}}.

http(<<"HTTP/1.", _, " ", Status, _, _, _/binary>>) when Status =:= $2; Status =:= $3 -> ok;
http(<<"HTTP/1.", _, " ", Status:3/binary, _/binary>>) -> {error, {status, Status}};
http(Answer) when byte_size(Answer) < 12 -> more;
http(Answer) -> unexpected(Answer).

postgres(<<$R, _/binary>>) ->
    ok;
postgres(<<$E, Size:32, Fields/binary>>) when Size - 4 =< byte_size(Fields) ->
    refused([Code || <<$C, Code/binary>> <- binary:split(Fields, <<0>>, [global])]);
postgres(<<$E, _/binary>>) ->
    more;
postgres(<<>>) ->
    more;
postgres(Answer) ->
    unexpected(Answer).

%% Classes of SQLSTATE: 57 means that the server starts, stops or recovers, 53 that its resources are exhausted. Any
%% other error is about the user.
refused([<<Class:2/binary, _/binary>> = Code]) when Class =:= <<"57">>; Class =:= <<"53">> -> {error, {sqlstate, Code}};
refused(_) -> ok.

%% A handshake record or an alert: either way the server speaks TLS.
tls(<<Type, 3, _/binary>>) when Type =:= 22; Type =:= 21 -> ok;
tls(Answer) when byte_size(Answer) < 2 -> more;
tls(Answer) -> unexpected(Answer).
