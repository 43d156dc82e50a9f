%% @doc Events of channels, see {@link weir_event}.
%% <table>
%% <tr><td>event</td><td>measurements</td><td>metadata</td></tr>
%% <tr><td>`[weir, channel, publish]': a message was published on this node</td>
%%   <td>`count', `bytes', `subscribers': those of this node</td><td>`channel', `id'</td></tr>
%% <tr><td>`[weir, channel, refuse]': a message or a subscription was refused</td><td>`count'</td>
%%   <td>`channel', `reason': `{limit, Kind, Group, Limit}', `{too_large, Most}' or `unavailable'</td></tr>
%% <tr><td>`[weir, channel, gap]': a subscriber got a gap, or all clients of the channel with the same transport
%% did</td><td>`count'</td>
%%   <td>`channel', `missed': how many messages, or `unknown'</td></tr>
%% <tr><td>`[weir, channel, slow]': a subscription has ended because the subscriber lagged behind</td><td>`count'</td>
%%   <td>`channels': those of the subscription</td></tr>
%% <tr><td>`[weir, shard, restart]': a shard has failed, and its channels are lost</td>
%%   <td>`count', `subscribers': how many it had, `requests': how many it had not answered</td>
%%   <td>`shard': its number</td></tr>
%% <tr><td>`[weir, broker, start]': a shard has a connection to Redis</td><td>`count'</td><td>`shard'</td></tr>
%% <tr><td>`[weir, broker, stop]': that connection was lost</td><td>`count'</td><td>`shard', `reason'</td></tr>
%% </table>
%% Handlers run in the process that serves the channel at the time, a shard or a reactor. All channels of that shard
%% wait for a handler, so it must not wait, nor call {@link weir_pubsub}; it may send a message to a process that
%% does.
-module(weir_pubsub_observation).

-export([published/4]).
-export([refused/2]).
-export([gap/2]).
-export([slow/1]).
-export([restarted/3]).
-export([broker_there/1]).
-export([broker_lost/2]).

-define(PUBLISH, [weir, channel, publish]).

%% @private
%% There are many of these, so maps are made only for an attached handler. The message is counted earlier, before a
%% subscriber has it.
-spec published(
    weir_pubsub:channel(), weir_pubsub_id:id(), Bytes :: non_neg_integer(), Subscribers :: non_neg_integer()
) -> ok.
published(Channel, Id, Bytes, Subscribers) ->
    case weir_event:is_attached(?PUBLISH) of
        false ->
            ok;
        true ->
            weir_event:execute(?PUBLISH, #{count => 1, bytes => Bytes, subscribers => Subscribers}, #{
                channel => Channel, id => Id
            })
    end.

%% @private
-spec refused(weir_pubsub:channel(), Reason :: term()) -> ok.
refused(Channel, Reason) ->
    ok = weir_pubsub_counters:add(refused, 1),
    weir_event:execute([weir, channel, refuse], #{count => 1}, #{channel => Channel, reason => Reason}).

%% @private
-spec gap(weir_pubsub:channel(), weir_pubsub:missed()) -> ok.
gap(Channel, Missed) ->
    ok = weir_pubsub_counters:add(gaps, 1),
    weir_event:execute([weir, channel, gap], #{count => 1}, #{channel => Channel, missed => Missed}).

%% @private
-spec slow([weir_pubsub:channel()]) -> ok.
slow(Channels) ->
    ok = weir_pubsub_counters:add(slow, 1),
    weir_event:execute([weir, channel, slow], #{count => 1}, #{channels => Channels}).

%% @private
-spec restarted(Shard :: pos_integer(), Subscribers :: non_neg_integer(), Requests :: non_neg_integer()) -> ok.
restarted(Shard, Subscribers, Requests) ->
    ok = weir_pubsub_counters:add(restarts, 1),
    weir_event:execute([weir, shard, restart], #{count => 1, subscribers => Subscribers, requests => Requests}, #{
        shard => Shard
    }).

%% @private
-spec broker_there(Shard :: pos_integer()) -> ok.
broker_there(Shard) -> weir_event:execute([weir, broker, start], #{count => 1}, #{shard => Shard}).

%% @private
-spec broker_lost(Shard :: pos_integer(), Reason :: term()) -> ok.
broker_lost(Shard, Reason) ->
    ok = weir_pubsub_counters:add(broker_losses, 1),
    weir_event:execute([weir, broker, stop], #{count => 1}, #{shard => Shard, reason => Reason}).
