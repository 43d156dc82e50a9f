%% Requests and responses of clients of channels over HTTP.
-module(weir_pubsub_http_test).

-export([field/2]).
-export([resume/1]).
-export([read_until_end/2]).
-export([wait_for_number/2]).
-export([close_frame/1]).
-export([inflated/1]).
-export([read_until/2]).
-export([read_until/3]).
-export([body/1]).
-export([seen/2]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

field(Name, {_, Fields, _}) -> proplists:get_value(Name, Fields).

%% The fields of a client that comes back.
resume(Answer) ->
    [{"If-Modified-Since", field(<<"last-modified">>, Answer)}, {"If-None-Match", field(<<"etag">>, Answer)}].

read_until_end(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, More} -> read_until_end(Socket, <<Bytes/binary, More/binary>>);
        {error, closed} -> Bytes
    end.

wait_for_number(Channel, Number) ->
    ?waitEqual(Number, begin {ok, #{last_id := {_, Last}}} = weir_pubsub:info(Channel), Last end),
    ok.

close_frame(Socket) ->
    case weir_pubsub_nchan:frames(Socket, 1) of
        [{8, Data}] -> Data;
        _ -> close_frame(Socket)
    end.

inflated(Bytes) ->
    Zlib = zlib:open(),
    ok = zlib:inflateInit(Zlib, -15),
    iolist_to_binary(zlib:inflate(Zlib, <<Bytes/binary, 0, 0, 255, 255>>)).

read_until(Socket, Text) -> read_until(Socket, Text, <<>>).

read_until(_Socket, <<>>, Bytes) -> Bytes;
read_until(Socket, Text, Bytes) -> read_until(Socket, Text, Bytes, 0).

%% The text begins at From or later.
read_until(Socket, Text, Bytes, From) ->
    case binary:match(Bytes, Text, [{scope, {From, byte_size(Bytes) - From}}]) of
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            read_until(Socket, Text, <<Bytes/binary, More/binary>>, max(0, byte_size(Bytes) - byte_size(Text)));
        _ ->
            Bytes
    end.

body(Bytes) -> element(3, weir_pubsub_nchan:parsed(Bytes)).

%% A message follows the one before it; a gap says how many are missing.
seen([Number, <<":">>], Last) -> ?assertEqual(Last + 1, binary_to_integer(Number)), Last + 1;
seen([Missed, _], Last) -> Last + binary_to_integer(Missed).
