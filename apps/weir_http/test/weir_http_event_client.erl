%% A client of event streams for the tests: of the route /go of `weir_http_funs'.
-module(weir_http_event_client).

-export([open/1, open/2, chunk/1, events/1, rest/1]).

%% A client whose stream has begun: the socket of the server's side, and the client's with its head read.
open(Port) -> open(weir_http_client:connect(Port), weir_http_client:get("/go")).

open(Client, Request) ->
    ok = weir_http_client:send(Client, Request),
    {200, Fields} = head(Client),
    {weir_http_funs:opened(), Client, Fields}.

head(Client) ->
    Bytes = until_end(Client, erlang:get({rest, Client})),
    [Head, Rest] = binary:split(Bytes, <<"\r\n\r\n">>),
    [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
    put({rest, Client}, Rest),
    {binary_to_integer(Status), maps:from_list([list_to_tuple(binary:split(Line, <<": ">>)) || Line <- Lines])}.

until_end(Client, Bytes) ->
    case binary:match(Bytes, <<"\r\n\r\n">>) of
        nomatch -> until_end(Client, more(Client, Bytes));
        _ -> Bytes
    end.

more(Client, Bytes) ->
    {ok, More} = weir_http_client:recv(Client, 10000),
    <<Bytes/binary, More/binary>>.

%% The next chunk.
chunk(Client) ->
    Bytes = erlang:get({rest, Client}),
    case binary:split(Bytes, <<"\r\n">>) of
        [<<"0">>, _] -> done;
        [Size, Rest] -> chunk(Client, Bytes, binary_to_integer(Size, 16), Rest);
        [_] -> again(Client, Bytes)
    end.

chunk(Client, Bytes, Length, Rest) ->
    case Rest of
        <<Chunk:Length/binary, "\r\n", After/binary>> ->
            put({rest, Client}, After),
            Chunk;
        _ ->
            again(Client, Bytes)
    end.

again(Client, Bytes) ->
    put({rest, Client}, more(Client, Bytes)),
    chunk(Client).

%% All that comes until the end, as events.
events(Client) -> weir_http_event_reader:body(rest(Client)).

%% The bytes of that.
rest(Client) -> <<(erlang:get({rest, Client}))/binary, (weir_http_client:recv_all(Client))/binary>>.
