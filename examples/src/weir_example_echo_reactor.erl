%% @doc Sends back what comes, as {@link weir_example_echo} does, by reactors: one process for each scheduler serves
%% its connections.
-module(weir_example_echo_reactor).
-behaviour(weir_reactor).

-export([start/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).

%% @doc Starts the server. `packet' has connections receive and send packets, `4' with the length in front or `line'
%% (bytes as they come). The rest is for {@link weir_example_reactors:start/2}.
-spec start(#{packet => 4 | line, port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    %% Connections have it from the socket that they were accepted on.
    Listen = maps:get(listen, Options, []) ++ maps:to_list(maps:with([packet], Options)),
    weir_example_reactors:start(Options#{listen => Listen}, #{module => ?MODULE}).

-spec init(weir_tcp:socket(), term()) -> weir_reactor:result(no_state).
init(_Socket, _Args) -> {ok, no_state}.

-spec handle_data(weir_tcp:socket(), binary(), no_state) -> weir_reactor:result(no_state).
handle_data(_Socket, Data, State) -> {send, Data, State}.

-spec handle_close(weir_tcp:socket(), term(), no_state) -> {ok, no_state}.
handle_close(_Socket, _Reason, State) -> {ok, State}.
