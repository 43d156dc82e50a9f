%% @doc Broadcasts messages to all connections with a group, without a process for each connection.
%%
%% The same service as {@link weir_example_fanout_processes}, which has a process for each member. A member that has
%% not taken the last message misses the next, so that no queue grows for a slow one.
-module(weir_example_fanout).
-behaviour(weir_reactor).

-export([start/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).

%% @doc Starts the server. `size' is the number of bytes of a message, at least 8 (default: 128): the first eight are
%% the system's monotonic clock at the broadcast, in nanoseconds, big-endian. `rate' is the number of messages a
%% second (default: 10); at 0 the next follows as soon as the last has been delivered. Other options: see {@link
%% weir_example_reactors:start/2}.
-spec start(#{
    size => pos_integer(), rate => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    {Group, Stop} = weir_example_broadcaster:start(Options, fun(Message) -> Message end),
    weir_example_broadcaster:serve(Stop, weir_example_reactors:start(Options, #{module => ?MODULE, args => Group})).

-spec init(weir_tcp:socket(), weir_group:group()) -> weir_reactor:result(no_state).
init(Socket, Group) ->
    %% If the connection is already closed, its end is reported as usual.
    _ = weir_group:join(Group, Socket),
    {ok, no_state}.

-spec handle_data(weir_tcp:socket(), binary(), no_state) -> weir_reactor:result(no_state).
handle_data(_Socket, _Data, State) -> {ok, State}.

-spec handle_close(weir_tcp:socket(), term(), no_state) -> {ok, no_state}.
handle_close(_Socket, _Reason, State) -> {ok, State}.
