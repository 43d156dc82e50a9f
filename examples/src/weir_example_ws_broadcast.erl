%% @doc Broadcasts messages to all WebSockets: a frame is encoded once, and a group sends it.
%%
%% {@link weir_example_fanout} does the same with bare sockets.
-module(weir_example_ws_broadcast).
-behaviour(weir_http_direct).
-behaviour(weir_http_websocket).

-export([start/1]).

-export([handle/2]).
-export([open/2]).
-export([message/2]).

%% @doc Starts the server, on any path. `size' and `rate' are those of {@link weir_example_broadcaster:start/2};
%% `port' is the port to listen on (default 0: a free one); of `listen' only the address is used.
-spec start(#{
    size => pos_integer(), rate => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    {Group, Stop} = weir_example_broadcaster:start(Options, fun(Message) ->
        weir_http_websocket:frame({binary, Message})
    end),
    Routes = [{Path, ?MODULE, Group} || Path <- ["/", "/*path"]],
    weir_example_broadcaster:serve(Stop, weir_example_http_server:start(Options, Routes)).

-spec handle(weir_http_request:request(), weir_group:group()) -> weir_http_direct:result().
handle(_Request, Group) -> {websocket, ?MODULE, Group, #{origins => any}}.

-spec open(weir_http_websocket:websocket(), weir_group:group()) -> weir_http_websocket:result(weir_group:group()).
open(Socket, Group) ->
    %% If the connection is already closed, its end is reported as usual.
    _ = weir_group:join(Group, Socket),
    {ok, Group}.

-spec message(weir_http_websocket:message(), weir_group:group()) -> weir_http_websocket:result(weir_group:group()).
message(_Message, Group) -> {ok, Group}.
