%% @doc Sends the time to all clients as an event stream: an event is encoded once, and a group sends it. `curl -N'
%% shows it.
-module(weir_example_sse_clock).
-behaviour(weir_http_direct).
-behaviour(weir_http_events).

-export([start/1]).

-export([handle/2]).
-export([open/2]).

%% Events in a second.
-define(RATE, 1).

%% @doc Starts the server, on any path. `rate' is that of {@link weir_example_broadcaster:start/2}, but its default is
%% 1. `port' is the port to listen on (default 0: a free one); of `listen' only the address is used.
-spec start(#{
    rate => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    {Group, Stop} = weir_example_broadcaster:start(maps:merge(#{rate => ?RATE}, Options), fun(_Message) ->
        Time = calendar:system_time_to_rfc3339(erlang:system_time(millisecond), [{unit, millisecond}, {offset, "Z"}]),
        weir_http_events:frame(#{event => <<"time">>, data => Time})
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
