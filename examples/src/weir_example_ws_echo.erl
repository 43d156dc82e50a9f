%% @doc Echoes WebSocket messages, text as text and binary as binary: `weir_http' with {@link weir_http_websocket}.
-module(weir_example_ws_echo).
-behaviour(weir_http_direct).
-behaviour(weir_http_websocket).

-export([start/1]).

-export([handle/2]).
-export([message/2]).

%% Maximum bytes of a message.
-define(MOST, 16#1000000).

%% @doc Starts the server, on any path. `port' is the port to listen on (default 0: a free one); of `listen' only the
%% address is used.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    WebSocket = #{origins => any, deflate => #{context => true, window_bits => 15}, max_message => ?MOST},
    weir_example_http_server:start(Options, [{"/", ?MODULE, WebSocket}, {"/*path", ?MODULE, WebSocket}]).

-spec handle(weir_http_request:request(), weir_http_websocket:options()) -> weir_http_direct:result().
handle(_Request, Options) -> {websocket, ?MODULE, none, Options}.

-spec message(weir_http_websocket:message(), none) -> weir_http_websocket:result(none).
message(Message, State) -> {send, Message, State}.
