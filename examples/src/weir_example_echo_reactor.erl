%% @doc Echoes data, as {@link weir_example_echo} does, with reactors: one process for each scheduler serves its
%% connections.
-module(weir_example_echo_reactor).
-behaviour(weir_reactor).

-export([start/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).

%% @doc Starts the server. `packet' is the packet mode of connections, `4' or `line' (default: raw bytes). `work' is
%% the microseconds of computation for each message (default: 0). Other options: see {@link
%% weir_example_reactors:start/2}.
-spec start(#{
    packet => 4 | line,
    work => non_neg_integer(),
    port => inet:port_number(),
    listen => [gen_tcp:listen_option()],
    _ => _
}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    %% Accepted sockets inherit `packet' from the listening socket.
    Listen = maps:get(listen, Options, []) ++ maps:to_list(maps:with([packet], Options)),
    weir_example_reactors:start(Options#{listen => Listen}, #{
        module => ?MODULE, args => weir_example_work:of_options(Options)
    }).

-spec init(weir_tcp:socket(), weir_example_work:work()) -> weir_reactor:result(weir_example_work:work()).
init(_Socket, Work) -> {ok, Work}.

-spec handle_data(weir_tcp:socket(), binary(), weir_example_work:work()) ->
    weir_reactor:result(weir_example_work:work()).
handle_data(_Socket, Data, Work) ->
    ok = weir_example_work:do(Work),
    {send, Data, Work}.

-spec handle_close(weir_tcp:socket(), term(), weir_example_work:work()) -> {ok, weir_example_work:work()}.
handle_close(_Socket, _Reason, Work) -> {ok, Work}.
