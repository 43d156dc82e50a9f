%% @doc Sends back every message of a WebSocket, by Cowboy, on every path: what {@link weir_example_ws_echo} is on
%% `weir_http'.
%%
%% Compiled wherever Weir is, run where Cowboy is installed.
-module(weir_example_cowboy_ws_echo).

-export([start/1]).
-export([init/2]).
-export([websocket_handle/2]).
-export([websocket_info/2]).

%% Of a client that says nothing: an hour, as Cowboy's minute would end connections that are counted.
-define(IDLE, 3600_000).

%% @doc Starts the server, see {@link weir_example_cowboy_server:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}.
start(Options) -> weir_example_cowboy_server:start(Options, ?MODULE).

%% @private
-spec init(Request, State) -> {cowboy_websocket, Request, State, map()} when Request :: map(), State :: [].
init(Request, State) -> {cowboy_websocket, Request, State, #{idle_timeout => ?IDLE}}.

%% @private
-spec websocket_handle(ping | pong | {atom(), binary()}, State) -> {[{text | binary, binary()}], State} when State :: [].
websocket_handle({Kind, _} = Message, State) when Kind =:= text; Kind =:= binary -> {[Message], State};
websocket_handle(_Control, State) -> {[], State}.

%% @private
-spec websocket_info(term(), State) -> {[], State} when State :: [].
websocket_info(_Message, State) -> {[], State}.
