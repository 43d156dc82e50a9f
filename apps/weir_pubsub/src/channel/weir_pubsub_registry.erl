%% @private
%% @doc The channels of a shard: creates and removes them, keeps their policies current, and schedules when the sweep
%% visits them.
-module(weir_pubsub_registry).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").

-export([find/2]).
-export([open/2]).
-export([new/1]).
-export([save/3]).
-export([abandon/2]).
-export([remove/2]).
-export([names/1]).
-export([renew/2]).
-export([due/3]).
-export([next_due/1]).

%% Channels whose policy is renewed before other requests are handled.
-define(RENEWED, 100).

%% @doc Returns a channel with its current policy, and without messages that are too old.
-spec find(weir_pubsub:channel(), #shard{}) -> {ok, #channel{}, #policy{}} | none.
find(Name, #shard{index = Index, channels = Channels, messages = Messages} = Shard) ->
    case ets:lookup(Channels, Name) of
        [Found] ->
            Now = erlang:monotonic_time(millisecond),
            case weir_pubsub_policies:find(Name, Found#channel.policy) of
                {Known, Policy} when Known =:= Found#channel.policy ->
                    Expired = weir_pubsub_history:expire(Index, Messages, Found, {Policy, Now}),
                    Expired =:= Found orelse ets:insert(Channels, Expired),
                    {ok, Expired, Policy};
                {Known, Policy} ->
                    Renewed = renewed(Found, Known, Policy, Shard),
                    Expired = weir_pubsub_history:expire(Index, Messages, Renewed, {Policy, Now}),
                    {ok, save(Expired, Policy, Shard), Policy}
            end;
        [] ->
            none
    end.

%% It is counted in the group of its new policy, and its next visit is computed again.
renewed(#channel{name = Name, group = Before, due = Due} = Channel, Known, #policy{group = Group}, Shard) ->
    #shard{index = Index, due = Table} = Shard,
    ok = weir_pubsub_limits:move(Index, Before, Group, usage(Channel)),
    true = ets:delete(Table, {Due, Name}),
    Channel#channel{policy = Known, group = Group, due = infinity}.

%% @doc Returns the names of all channels.
-spec names(#shard{}) -> [weir_pubsub:channel()].
names(#shard{channels = Channels}) -> ets:select(Channels, [{#channel{name = '$1', _ = '_'}, [], ['$1']}]).

%% @doc Renews the policies of some channels. Returns the names of those that are left.
-spec renew([weir_pubsub:channel()], #shard{}) -> [weir_pubsub:channel()].
renew(Names, Shard) -> renew(Names, ?RENEWED, Shard).

renew([Name | Names], Left, Shard) when Left > 0 ->
    _ = find(Name, Shard),
    renew(Names, Left - 1, Shard);
renew(Names, _Left, _Shard) ->
    Names.

usage(#channel{first = First, last = Last, bytes = Bytes, processes = Processes, sockets = Sockets}) ->
    [{channels, 1}, {subscribers, Processes + Sockets}, {messages, Last - First + 1}, {bytes, Bytes}].

%% @doc Same as {@link find/2}, but creates the channel if it does not exist and limits allow it. The caller has to
%% save or abandon it.
-spec open(weir_pubsub:channel(), #shard{}) -> {ok, #channel{}, #policy{}} | {error, weir_pubsub:limit()}.
open(Name, #shard{index = Index} = Shard) ->
    case find(Name, Shard) of
        none ->
            {#channel{group = Group} = New, Policy} = new(Name),
            case weir_pubsub_limits:take(Index, Group, channels, 1) of
                ok ->
                    ok = weir_pubsub_counters:add(created, 1),
                    {ok, New, Policy};
                {error, _} = Error -> Error
            end;
        Found ->
            Found
    end.

%% @doc Returns a new channel that is in no table.
-spec new(weir_pubsub:channel()) -> {#channel{}, #policy{}}.
new(Name) ->
    Now = erlang:monotonic_time(millisecond),
    {Known, #policy{group = Group} = Policy} = weir_pubsub_policies:find(Name, none),
    New = #channel{
        name = binary:copy(Name),
        epoch = weir_pubsub_id:new_epoch(),
        policy = Known,
        group = Group,
        created = Now,
        used = Now
    },
    {New, Policy}.

%% @doc Stores a channel, and schedules its next visit.
-spec save(#channel{}, #policy{}, #shard{}) -> #channel{}.
save(#channel{name = Name, due = Due} = Channel, Policy, #shard{channels = Channels, due = Table} = Shard) ->
    Saved =
        case due(Channel, Policy, Shard) of
            Earlier when Earlier < Due ->
                _ = ets:delete(Table, {Due, Name}),
                true = ets:insert(Table, {{Earlier, Name}}),
                Channel#channel{due = Earlier};
            _ ->
                Channel
        end,
    true = ets:insert(Channels, Saved),
    Saved.

%% @doc Returns the time of its next visit: when its oldest message is too old, or when it has been unused for its
%% idle timeout.
-spec due(#channel{}, #policy{}, #shard{}) -> integer() | infinity.
due(#channel{processes = 0, sockets = 0, used = Used}, #policy{idle_timeout = Idle}, #shard{broker = redis}) ->
    %% The broker has its messages.
    Used + Idle;
due(#channel{first = First, last = Last, used = Used} = Channel, Policy, #shard{messages = Messages}) ->
    #policy{max_age = Age, idle_timeout = Idle} = Policy,
    case Channel of
        #channel{} when First =< Last, Age =:= infinity -> infinity;
        %% It has a visit, scheduled for messages before these.
        #channel{due = Due} when First =< Last, is_integer(Due) -> Due;
        #channel{} when First =< Last -> weir_pubsub_history:oldest_at(Messages, Channel) + Age;
        #channel{processes = 0, sockets = 0} -> Used + Idle;
        #channel{} -> infinity
    end.

%% @doc Gives up a channel that was opened. Does nothing if it was saved before.
-spec abandon(#channel{}, #shard{}) -> ok.
abandon(#channel{name = Name, group = Group}, #shard{index = Index, channels = Channels}) ->
    case ets:member(Channels, Name) of
        true -> ok;
        false -> weir_pubsub_limits:give_back(Index, Group, channels, 1)
    end.

%% @doc Removes a channel, with its messages.
-spec remove(#channel{}, #shard{}) -> ok.
remove(#channel{name = Name, group = Group, due = Due} = Channel, Shard) ->
    #shard{index = Index, broker = Broker, channels = Channels, messages = Messages, due = Table} = Shard,
    _ = Broker =:= redis andalso weir_pubsub_broker:ask(Index, {leave, Name}),
    _ = weir_pubsub_history:drop(Index, Messages, Channel),
    ok = weir_pubsub_limits:give_back(Index, Group, channels, 1),
    true = ets:delete(Table, {Due, Name}),
    true = ets:delete(Channels, Name),
    ok.

%% @doc Returns the channel with the earliest visit, and the time of it.
-spec next_due(#shard{}) -> {integer(), weir_pubsub:channel()} | none.
next_due(#shard{due = Table}) ->
    case ets:first(Table) of
        '$end_of_table' -> none;
        Due -> Due
    end.
