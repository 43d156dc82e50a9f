%% @doc Broadcasts messages to all event streams: an event is encoded once, and a group sends it.
%%
%% {@link weir_example_fanout} does the same with bare sockets. The timestamp of a message becomes the event's id, in
%% hexadecimal, and the rest its data.
-module(weir_example_sse_broadcast).
-behaviour(weir_http_direct).
-behaviour(weir_http_events).

-export([start/1]).

-export([handle/2]).
-export([open/2]).

%% @doc Starts the server, on any path. `size' and `rate' are those of {@link weir_example_broadcaster:start/2};
%% `port' is the port to listen on (default 0: a free one); of `listen' only the address is used.
-spec start(#{
    size => pos_integer(), rate => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    {Group, Stop} = weir_example_broadcaster:start(Options, fun(<<Clock:64, Filling/binary>>) ->
        weir_http_events:frame(#{id => io_lib:format("~16.16.0b", [Clock]), data => Filling})
    end),
    Routes = [{Path, ?MODULE, Group} || Path <- ["/", "/*path"]],
    weir_example_broadcaster:serve(Stop, weir_example_http_server:start(Options, Routes)).

-spec handle(weir_http_request:request(), weir_group:group()) -> weir_http_direct:result().
handle(_Request, Group) -> {events, ?MODULE, Group}.

-spec open(weir_http_events:stream(), weir_group:group()) -> weir_http_events:result(weir_group:group()).
open(Stream, Group) ->
    %% If the stream is already closed, its end is reported as usual.
    _ = weir_group:join(Group, Stream),
    {ok, Group}.
