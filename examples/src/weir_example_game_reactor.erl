%% @doc Sends the state of a game to every player, 512 bytes twice a second, as {@link weir_example_game} does, with
%% reactors: the sends of a tick are made together.
%%
%% Answers of players are ignored.
-module(weir_example_game_reactor).
-behaviour(weir_reactor).

-export([start/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_tick/2]).
-export([handle_close/3]).

-define(TICK, 500).
-define(STATE_BYTES, 512).

%% @doc Starts the server. Options: see {@link weir_example_reactors:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    World = binary:copy(<<"w">>, ?STATE_BYTES),
    weir_example_reactors:start(Options, #{module => ?MODULE, args => World, tick => ?TICK}).

%% The state of each player is the shared world.
-spec init(weir_tcp:socket(), binary()) -> weir_reactor:result(binary()).
init(_Socket, World) -> {ok, World}.

-spec handle_data(weir_tcp:socket(), binary(), binary()) -> weir_reactor:result(binary()).
handle_data(_Socket, _Answer, World) -> {ok, World}.

-spec handle_tick(weir_tcp:socket(), binary()) -> weir_reactor:result(binary()).
handle_tick(_Socket, World) -> {send, World, World}.

-spec handle_close(weir_tcp:socket(), term(), binary()) -> {ok, binary()}.
handle_close(_Socket, _Reason, World) -> {ok, World}.
