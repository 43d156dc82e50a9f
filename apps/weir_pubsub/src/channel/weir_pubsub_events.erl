%% @private
%% @doc Messages about events in channels, published to the channel that their policy names: `subscriber_enqueue',
%% `subscriber_dequeue', `channel_publish' and `channel_delete', each with the name of the channel, as with Nchan.
-module(weir_pubsub_events).

-include("weir_pubsub.hrl").

-export([subscribed/2]).
-export([unsubscribed/2]).
-export([published/2]).
-export([deleted/2]).

-spec subscribed(#policy{}, #channel{}) -> ok.
subscribed(Policy, Channel) -> tell(Policy, <<"subscriber_enqueue ">>, Channel).

-spec unsubscribed(#policy{}, #channel{}) -> ok.
unsubscribed(Policy, Channel) -> tell(Policy, <<"subscriber_dequeue ">>, Channel).

-spec published(#policy{}, #channel{}) -> ok.
published(Policy, Channel) -> tell(Policy, <<"channel_publish ">>, Channel).

-spec deleted(#policy{}, #channel{}) -> ok.
deleted(Policy, Channel) -> tell(Policy, <<"channel_delete ">>, Channel).

tell(#policy{events = none}, _What, _Channel) ->
    ok;
tell(#policy{events = Events}, What, #channel{name = Name}) ->
    %% A cast, because two shards may send events to each other. A shard that is restarting loses it.
    _ = weir_pubsub_shards:cast(Events, {event, Events, <<What/binary, Name/binary>>}),
    ok.
