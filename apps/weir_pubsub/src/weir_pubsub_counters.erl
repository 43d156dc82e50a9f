%% @doc Counters of channels since the first start of the application. One table is the source for
%% `weir_pubsub:counters/0', exporters and `docs/counters.md'.
-module(weir_pubsub_counters).

-export([init/0]).
-export([add/2]).
-export([get/0]).
-export([table/0]).
-export([values/2]).

-export_type([name/0, row/0]).

-type name() ::
    published
    | refused
    | delivered
    | broadcast
    | gaps
    | slow
    | lagged
    | created
    | deleted
    | reaped
    | subscribed
    | unsubscribed
    | restarts
    | broker_losses
    | asked
    | ask_failures.

-type row() :: #{subject := pubsub, name := name(), kind := counter, unit := none, help := string()}.

%% @private
%% @doc Creates the counters, once for each virtual machine.
-spec init() -> ok.
init() ->
    case persistent_term:get(?MODULE, none) of
        none -> persistent_term:put(?MODULE, counters:new(length(rows()), [write_concurrency]));
        _ -> ok
    end.

%% @private
%% @doc Adds to a counter.
-spec add(name(), non_neg_integer()) -> ok.
add(Name, Count) -> counters:add(persistent_term:get(?MODULE), index(Name), Count).

%% @private
%% @doc Returns all counters by their names.
-spec get() -> #{name() => non_neg_integer()}.
get() ->
    Counters = persistent_term:get(?MODULE),
    maps:from_list([{Name, counters:get(Counters, index(Name))} || {Name, _} <- rows()]).

index(published) -> 1;
index(refused) -> 2;
index(delivered) -> 3;
index(broadcast) -> 4;
index(gaps) -> 5;
index(slow) -> 6;
index(created) -> 7;
index(deleted) -> 8;
index(reaped) -> 9;
index(subscribed) -> 10;
index(unsubscribed) -> 11;
index(restarts) -> 12;
index(broker_losses) -> 13;
index(asked) -> 14;
index(ask_failures) -> 15;
index(lagged) -> 16.

%% @doc Returns all counters, in the form of {@link weir_counters:table/0}: exporters append the two.
-spec table() -> [row(), ...].
table() ->
    [#{subject => pubsub, name => Name, kind => counter, unit => none, help => Help} || {Name, Help} <- rows()].

%% @doc Returns their values from the map of `weir_pubsub:counters/0', in the order of the table.
-spec values(pubsub, map()) -> [{name(), non_neg_integer()}].
values(pubsub, Counters) -> [{Name, map_get(Name, Counters)} || {Name, _} <- rows()].

rows() ->
    [
        {published, "messages published"},
        {refused,
            "messages and subscriptions refused: a limit was reached, a message was too large, or Redis was away"},
        {delivered, "messages sent to processes and long polls"},
        {broadcast, "messages given to sockets, counted once for each subscribed socket"},
        {gaps, "gaps announced to subscribers"},
        {slow, "subscriptions that ended because the process, or the client of a stream or WebSocket, lagged behind"},
        {lagged, "times that a client's queue was full, and the client continued after it was written"},
        {created, "channels created, including those whose first message or subscription was then refused"},
        {deleted, "channels deleted by a call"},
        {reaped, "channels removed because they were unused"},
        {subscribed, "subscriptions"},
        {unsubscribed, "subscriptions that ended"},
        {restarts, "shards that were restarted, and lost their channels"},
        {broker_losses, "connections to Redis that were lost, counted for each shard"},
        {asked, "requests to the server that decides who may use channels"},
        {ask_failures, "clients refused because that server gave no answer, or had the maximum of concurrent requests"}
    ].
