%% @private
%% @doc Publishes on the other nodes of an Erlang cluster, at most once: on all nodes that are connected at the time.
%% Each gives the message its own id. A node that was disconnected gets nothing of that time.
-module(weir_pubsub_pg).
-behaviour(gen_server).

-export([start_link/0]).
-export([publish/3]).
-export([delete/1]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).

-define(SCOPE, weir_pubsub_cluster).
-define(GROUP, nodes).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, none, []).

%% @doc Publishes a message on the other nodes.
-spec publish(weir_pubsub:channel(), binary(), weir_pubsub:meta()) -> ok.
publish(Channel, Data, Meta) -> tell({relayed, Channel, {publish, Channel, Data, Meta}}).

%% @doc Deletes a channel on the other nodes.
-spec delete(weir_pubsub:channel()) -> ok.
delete(Channel) -> tell({relayed, Channel, {delete, Channel}}).

%% Sending to a node that cannot be reached does not wait; the node does not get the message.
tell(Message) ->
    lists:foreach(
        fun
            (Pid) when node(Pid) =/= node() -> erlang:send(Pid, {'$gen_cast', Message}, [nosuspend, noconnect]);
            (_) -> ok
        end,
        pg:get_members(?SCOPE, ?GROUP)
    ).

-spec init(none) -> {ok, none}.
init(none) ->
    case pg:start_link(?SCOPE) of
        {ok, _} -> ok;
        {error, {already_started, _}} -> ok
    end,
    ok = pg:join(?SCOPE, ?GROUP, self()),
    {ok, none}.

-spec handle_call(term(), gen_server:from(), none) -> {reply, {error, unknown_call}, none}.
handle_call(_Request, _From, none) -> {reply, {error, unknown_call}, none}.

-spec handle_cast({relayed, weir_pubsub:channel(), term()}, none) -> {noreply, none}.
handle_cast({relayed, Channel, _} = Relayed, none) ->
    _ = weir_pubsub_shards:cast(Channel, Relayed),
    {noreply, none}.
