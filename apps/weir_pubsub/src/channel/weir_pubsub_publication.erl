%% @private
%% @doc Publishes a message: numbers it, keeps it and gives it to the subscribers. Runs in the shard of the channel,
%% or in a reactor that has the claim on the shard.
-module(weir_pubsub_publication).

-include_lib("weir/include/weir_step.hrl").
-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").

-export([publish/5]).
-export([give/5]).
-export([in_reactor/3]).

-export_type([news/0]).

-type news() :: due | behind | {lagging, weir_pubsub_subscribers:subscriber()}.
%% What the shard has to do afterwards.

-type published() :: #{id := weir_pubsub_id:id(), subscribers := non_neg_integer(), messages := non_neg_integer()}.

-type event() :: fun((#policy{}, #channel{}) -> ok).

%% A reactor sends to at most this many processes, because its connections wait until it has done so.
-define(FEW, 64).

%% @doc Publishes in the tables of a shard. The caller has the claim.
-spec publish(weir_pubsub:channel(), binary(), weir_pubsub:meta(), event(), #shard{}) ->
    {ok, published(), [news()]} | {error, {too_large, pos_integer()} | weir_pubsub:limit()}.
publish(Name, Data, Meta, Event, Shard) ->
    opened(weir_pubsub_registry:open(Name, Shard), Name, {Data, Meta}, Event, Shard).

opened({ok, Channel, #policy{max_message = Most}}, Name, {Data, _Meta}, _Event, Shard) when byte_size(Data) > Most ->
    ok = weir_pubsub_registry:abandon(Channel, Shard),
    refused(Name, {too_large, Most});
opened({ok, Channel, Policy}, Name, {Data, Meta}, Event, #shard{index = Index, messages = Messages} = Shard) ->
    Now = erlang:monotonic_time(millisecond),
    case weir_pubsub_history:append(Index, Messages, Channel#channel{used = Now}, Policy, {Now, Data, Meta}) of
        {ok, Appended} ->
            ok = weir_pubsub_counters:add(published, 1),
            {ok, #{id := Id, subscribers := Subscribers}, _} =
                Given = give(Appended, Policy, {Data, Meta}, Event, Shard),
            ok = weir_pubsub_observation:published(Name, Id, byte_size(Data), Subscribers),
            Given;
        {error, Reason} ->
            ok = weir_pubsub_registry:abandon(Channel, Shard),
            refused(Name, Reason)
    end;
opened({error, Reason}, Name, _Message, _Event, _Shard) ->
    refused(Name, Reason).

refused(Name, Reason) ->
    ok = weir_pubsub_observation:refused(Name, Reason),
    {error, Reason}.

%% @doc Gives the latest message of a channel to its subscribers. It is in the history before any subscriber gets it:
%% a subscriber may read the history from that id at once.
-spec give(#channel{}, #policy{}, {binary(), weir_pubsub:meta()}, event(), #shard{}) -> {ok, published(), [news()]}.
give(#channel{epoch = Epoch, first = First, last = Last, due = Due} = Channel, Policy, {Data, Meta}, Event, Shard) ->
    #channel{processes = Processes, sockets = Sockets} = Channel,
    {Crowds, Left} = weir_pubsub_poll_group:take(Channel, Shard),
    Saved = weir_pubsub_registry:save(Left, Policy, Shard),
    ?STEP,
    ok = Event(Policy, Saved),
    {#channel{audiences = Audiences} = Delivered, Lagging} =
        weir_pubsub_delivery:deliver(Saved, Policy, {Crowds, {message, {Epoch, Last}, Data, Meta}}, Shard),
    ?STEP,
    %% Delivery mostly changes nothing.
    Delivered =:= Saved orelse weir_pubsub_registry:save(Delivered, Policy, Shard),
    News =
        [due || Saved#channel.due =/= Due] ++
            [behind || lists:any(fun weir_pubsub_stream_group:is_behind/1, Audiences)] ++
            [{lagging, Subscriber} || Subscriber <- Lagging],
    {ok, #{id => {Epoch, Last}, subscribers => Processes + Sockets, messages => Last - First + 1}, News}.

%% @doc Publishes at once in the calling reactor. Returns `busy' if the claim is taken, if there are too many
%% processes to send to, or if the broker is not `memory'.
-spec in_reactor(weir_pubsub:channel(), binary(), weir_pubsub:meta()) ->
    {ok, published()} | {error, {too_large, pos_integer()} | weir_pubsub:limit() | weir_pubsub:unavailable()} | busy.
in_reactor(Name, Data, Meta) ->
    Publish = fun
        (#shard{broker = memory} = Shard) ->
            Opened = weir_pubsub_registry:open(Name, Shard),
            case is_large(Opened) of
                true -> busy;
                false -> opened(Opened, Name, {Data, Meta}, fun weir_pubsub_events:published/2, Shard)
            end;
        (_Shard) ->
            busy
    end,
    case weir_pubsub_shards:claimed(Name, Publish) of
        {ok, Published, []} ->
            {ok, Published};
        {ok, Published, News} ->
            _ = weir_pubsub_shards:cast(Name, {news, Name, News}),
            {ok, Published};
        BusyOrError ->
            BusyOrError
    end.

is_large({ok, #channel{processes = Processes, crowds = Crowds}, _Policy}) ->
    Processes - weir_pubsub_poll_group:waiting(Crowds) > ?FEW;
is_large({error, _}) ->
    false.
