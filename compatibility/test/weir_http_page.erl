%% The server of a test page: an event stream that ends, after which the browser reconnects, and a WebSocket.
-module(weir_http_page).
-behaviour(weir_http_direct).
-behaviour(weir_http_events).

-export([handle/2, open/2, message/2]).

handle(Request, events) ->
    Last = weir_http_request:field(<<"last-event-id">>, Request, <<"0">>),
    {events, ?MODULE, {events, binary_to_integer(Last) + 1}, #{retry => 50}};
handle(_Request, websocket) ->
    {websocket, ?MODULE, websocket, #{deflate => true}};
handle(Request, Fun) when is_function(Fun) ->
    Fun(Request);
handle(_Request, {reply, _, _, _} = Reply) ->
    Reply.

open(_Stream, {events, N} = State) -> {close, #{id => integer_to_binary(N), data => integer_to_binary(N)}, State};
open(_Socket, websocket) -> {send, {text, <<"welcome">>}, websocket}.

message(Message, websocket) -> {send, Message, websocket}.
