%% @doc Echoes WebSocket messages with Cowboy, on every path. {@link weir_example_ws_echo} does the same with
%% `weir_http'.
%%
%% Compiled everywhere; runs only if Cowboy is installed.
-module(weir_example_cowboy_ws_echo).

-export([start/1]).
-export([init/2]).
-export([websocket_handle/2]).
-export([websocket_info/2]).

%% Milliseconds after which a silent client is disconnected. Cowboy's default of a minute would close connections that
%% a benchmark counts.
-define(IDLE, 3600_000).

%% @doc Starts the server: see {@link weir_example_cowboy_server:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}.
start(Options) -> weir_example_cowboy_server:start(Options, ?MODULE).

%% @private
-spec init(Request, State) -> {cowboy_websocket, Request, State, map()} when Request :: map(), State :: [].
init(Request, State) -> {cowboy_websocket, Request, State, #{idle_timeout => ?IDLE}}.

%% @private
-spec websocket_handle(ping | pong | {atom(), binary()}, State) -> {[{text | binary, binary()}], State} when
    State :: [].
websocket_handle({Kind, _} = Message, State) when Kind =:= text; Kind =:= binary -> {[Message], State};
websocket_handle(_Control, State) -> {[], State}.

%% @private
-spec websocket_info(term(), State) -> {[], State} when State :: [].
websocket_info(_Message, State) -> {[], State}.
