%% @private
%% @doc Removes channels: on request, or when they are unused.
-module(weir_pubsub_removal).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([delete/2]).
-export([ended/2]).
-export([sweep/2]).
-export([arm/1]).

%% Channels that a sweep visits before other requests are handled, and the minimum time between sweeps in
%% milliseconds.
-define(SWEEP, 100).
-define(SWEEP_MS, 50).

%% @doc Deletes a channel. Its subscribers are notified; sockets first get what was published before.
-spec delete(weir_pubsub:channel(), #shard{}) -> {{ok, weir_pubsub:info()} | {error, no_channel}, #shard{}}.
delete(Name, #shard{channels = Channels} = Shard) ->
    case weir_pubsub_registry:find(Name, Shard) of
        {ok, Channel, Policy} ->
            %% A subscriber that is notified of the end must not find the channel.
            true = ets:delete(Channels, Name),
            Info = weir_pubsub_inspection:describe(Channel, erlang:monotonic_time(millisecond)),
            {Sockets, Told} = weir_pubsub_subscription:end_all(Channel, deleted, Shard),
            ok = remove(Channel, Told),
            ok = weir_pubsub_counters:add(deleted, 1),
            ok = weir_pubsub_events:deleted(Policy, Channel),
            {
                {ok, Info},
                lists:foldl(fun(Audience, S) -> finish(Audience, Sockets, S) end, Told, Channel#channel.audiences)
            };
        none ->
            {{error, no_channel}, Shard}
    end.

remove(Channel, Shard) ->
    ok = weir_pubsub_poll_group:disband(Channel, Shard),
    weir_pubsub_registry:remove(Channel, Shard).

finish(Audience, Sockets, #shard{ending = Ending} = Shard) ->
    Group = weir_pubsub_stream_group:group(Audience),
    Members = [Subscriber || #subscriber{group = Of} = Subscriber <- Sockets, Of =:= Group],
    case weir_pubsub_stream_group:finish(Audience) of
        {ok, Reference} -> Shard#shard{ending = Ending#{Reference => {Audience, Members}}};
        {error, _} -> finished(Audience, Members), Shard
    end.

finished(Audience, Members) ->
    ok = weir_pubsub_stream_group:delete(Audience),
    lists:foreach(fun(Member) -> weir_pubsub_delivery:tell(Member, {closed, deleted}) end, Members).

%% @doc Handles the end of an audience whose messages are all written.
-spec ended(reference(), #shard{}) -> #shard{}.
ended(Reference, #shard{ending = Ending} = Shard) ->
    case maps:take(Reference, Ending) of
        {{Audience, Members}, Others} ->
            ok = finished(Audience, Members),
            Shard#shard{ending = Others};
        error ->
            Shard
    end.

%% @doc Visits the channels whose time has come: drops messages that are too old, and removes channels that are
%% unused.
-spec sweep(Now :: integer(), #shard{}) -> #shard{}.
sweep(Now, Shard) ->
    ok = sweep(?SWEEP, Now, Shard),
    Shard.

sweep(0, _Now, _Shard) ->
    ok;
sweep(Left, Now, #shard{due = Table, channels = Channels, opening = Opening} = Shard) ->
    case weir_pubsub_registry:next_due(Shard) of
        {Due, Name} when Due =< Now ->
            true = ets:delete(Table, {Due, Name}),
            true = ets:update_element(Channels, Name, {#channel.due, infinity}),
            {ok, Channel, Policy} = weir_pubsub_registry:find(Name, Shard),
            case weir_pubsub_registry:due(Channel, Policy, Shard) of
                %% Requests that wait for the snapshot of a channel must find it.
                Over when Over =< Now, not is_map_key(Name, Opening) ->
                    ok = remove(Channel, Shard),
                    ok = weir_pubsub_counters:add(reaped, 1);
                _ ->
                    _ = weir_pubsub_registry:save(Channel, Policy, Shard),
                    ok
            end,
            sweep(Left - 1, Now, Shard);
        _ ->
            ok
    end.

%% @doc Sets the timer of the next sweep, if one is needed and the timer is not set or would fire too late.
-spec arm(#shard{}) -> #shard{}.
arm(#shard{timer = Timer} = Shard) ->
    case {weir_pubsub_registry:next_due(Shard), Timer} of
        {none, _} -> Shard;
        {{Due, _}, none} -> arm(Due, Shard);
        {{Due, _}, {Reference, At}} when Due < At - ?SWEEP_MS ->
            _ = erlang:cancel_timer(Reference),
            arm(Due, Shard);
        {_, _} -> Shard
    end.

arm(Due, Shard) ->
    Now = erlang:monotonic_time(millisecond),
    At = max(Now + ?SWEEP_MS, Due),
    Shard#shard{timer = {erlang:start_timer(At - Now, self(), sweep), At}}.
