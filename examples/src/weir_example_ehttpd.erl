%% @doc Answers every request with `hello world!' and keeps the connection alive.
%%
%% The smallest server that an HTTP load generator accepts: it only looks for the end of a request's head, so requests
%% must have no body.
-module(weir_example_ehttpd).

-export([start/1]).

-define(LONGEST_HEAD, 8192).
-define(HELLO, <<"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: keep-alive\r\n\r\nhello world!">>).
-define(TOO_LONG,
    <<"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n">>
).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `once'). Other options: see {@link
%% weir_example_acceptors:start/2}.
-spec start(#{active => active(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Active = maps:get(active, Options, once),
    %% Compiled once, because compiling the pattern for each request would cost more than the search.
    EndOfHead = binary:compile_pattern(<<"\r\n\r\n">>),
    weir_example_acceptors:start(Options, fun(Socket) ->
        _ = inet:setopts(Socket, [{active, Active}]),
        serve(Socket, Active, EndOfHead, <<>>)
    end).

%% `Buffer' is the incomplete head of a request.
serve(Socket, Active, EndOfHead, Buffer) ->
    case next(Socket, Active) of
        {ok, Data} when Buffer =:= <<>> -> answer(Socket, Active, EndOfHead, Data);
        {ok, Data} -> answer(Socket, Active, EndOfHead, <<Buffer/binary, Data/binary>>);
        closed -> gen_tcp:close(Socket)
    end.

answer(Socket, Active, EndOfHead, Buffer) ->
    case answers(Buffer, EndOfHead, []) of
        {[], Rest} when byte_size(Rest) > ?LONGEST_HEAD ->
            _ = gen_tcp:send(Socket, ?TOO_LONG),
            gen_tcp:close(Socket);
        {[], Rest} ->
            await_more(Socket, Active, EndOfHead, Rest);
        {Answers, Rest} ->
            case gen_tcp:send(Socket, Answers) of
                ok -> await_more(Socket, Active, EndOfHead, Rest);
                {error, _} -> gen_tcp:close(Socket)
            end
    end.

await_more(Socket, Active, EndOfHead, Rest) ->
    weir_example_active:received(inet, Socket, Active),
    serve(Socket, Active, EndOfHead, Rest).

%% One answer for each complete head, because a client may pipeline requests.
answers(Buffer, EndOfHead, Answers) ->
    case binary:split(Buffer, EndOfHead) of
        [_Head, Rest] -> answers(Rest, EndOfHead, [?HELLO | Answers]);
        [Rest] -> {Answers, Rest}
    end.

next(Socket, false) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} -> {ok, Data};
        {error, _} -> closed
    end;
next(Socket, Active) ->
    receive
        {tcp, Socket, Data} ->
            {ok, Data};
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, Active}]),
            next(Socket, Active);
        {tcp_error, Socket, _Reason} ->
            closed;
        {tcp_closed, Socket} ->
            closed
    end.
