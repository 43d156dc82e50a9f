%% @private
%% @doc A shard: the process that serves some of the channels. What happens in a channel happens here, one thing after another; so all
%% its subscribers see the same order, and one that joins misses nothing and gets nothing twice.
%%
%% State is in tables, which the garbage collector does not walk through: {@link weir_pubsub_history} has the messages,
%% {@link weir_pubsub_subscribers} the subscribers. Who reads (a history, a list of channels) reads the tables and does not wait here.
%%
%% A shard that is killed loses its channels. Its subscribers outlive it: the next one makes their channels anew, with other epochs, and
%% tells processes of the gap. Sockets are told by their process, which closes them: their clients come back with an id.
-module(weir_pubsub_shard).
-behaviour(gen_server).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([start_link/1]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% When an audience that is behind is tried again, in milliseconds.
-define(BEHIND_MS, 5).

-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Index) ->
    gen_server:start_link({local, weir_pubsub_shards:name(Index)}, ?MODULE, Index, [
        {spawn_opt, [{message_queue_data, off_heap}]}
    ]).

-spec init(pos_integer()) -> {ok, #shard{}}.
init(Index) ->
    {Channels, Messages, ByChannel} = weir_pubsub_shards:tables(Index),
    ok = weir_pubsub_limits:clear(Index),
    Options = [named_table, protected, {read_concurrency, true}],
    Shard = #shard{
        index = Index,
        channels = ets:new(Channels, [{keypos, #channel.name} | Options]),
        messages = ets:new(Messages, Options),
        subscribers = weir_pubsub_subscribers:open(ByChannel),
        due = ets:new(weir_pubsub_due, [ordered_set, private])
    },
    {ok, weir_pubsub_removal:arm(weir_pubsub_subscription:take_over(Shard))}.

-spec handle_call(term(), gen_server:from(), #shard{}) -> {reply, term(), #shard{}}.
handle_call(Request, _From, Shard) ->
    {Result, Next} = asked(Request, Shard),
    {reply, Result, weir_pubsub_removal:arm(Next)}.

-spec handle_cast(term(), #shard{}) -> {noreply, #shard{}}.
handle_cast({event, Name, Text}, Shard) ->
    {_, Next} = publish(Name, Text, #{}, fun(_, _) -> ok end, Shard),
    {noreply, weir_pubsub_removal:arm(Next)};
handle_cast({taken, Name, Who, Count}, Shard) ->
    {noreply, weir_pubsub_removal:arm(weir_pubsub_subscription:taken(Name, Who, Count, Shard))};
handle_cast({ask, Name, Request, {Pid, Tag}}, Shard) ->
    {Result, Next} = asked(Request, Shard),
    Pid ! weir_pubsub_subscribers:message(Tag, Name, {answer, Result}),
    {noreply, weir_pubsub_removal:arm(Next)};
handle_cast(Request, Shard) ->
    {_, Next} = asked(Request, Shard),
    {noreply, weir_pubsub_removal:arm(Next)}.

asked({publish, Name, Data, Meta}, Shard) ->
    publish(Name, Data, Meta, fun weir_pubsub_events:published/2, Shard);
asked({subscribe, Name, Kind, Subscriber, Begin}, Shard) ->
    weir_pubsub_subscription:subscribe(Name, Kind, Subscriber, Begin, Shard);
asked({unsubscribe, Name, Who}, Shard) ->
    weir_pubsub_subscription:unsubscribe(Name, Who, Shard);
asked({delete, Name}, Shard) ->
    weir_pubsub_removal:delete(Name, Shard).

-spec handle_info(term(), #shard{}) -> {noreply, #shard{}}.
handle_info({'DOWN', _, process, Pid, _}, Shard) ->
    {noreply, weir_pubsub_removal:arm(weir_pubsub_subscription:left(Pid, Shard))};
handle_info({weir_group, _, Reference, _}, Shard) ->
    {noreply, weir_pubsub_removal:ended(Reference, Shard)};
handle_info(sweep, Shard) ->
    Now = erlang:monotonic_time(millisecond),
    {noreply, weir_pubsub_removal:arm(weir_pubsub_removal:sweep(Now, Shard#shard{timer = none}))};
handle_info(behind, #shard{behind = Behind} = Shard) ->
    {noreply, maps:fold(fun(Name, [], Next) -> catch_up(Name, Next) end, Shard#shard{behind = #{}}, Behind)};
handle_info(_Other, Shard) ->
    {noreply, Shard}.

publish(Name, Data, Meta, Event, #shard{index = Index, messages = Messages} = Shard) ->
    case weir_pubsub_registry:open(Name, Shard) of
        {ok, Channel, #policy{max_message = Most}} when byte_size(Data) > Most ->
            ok = weir_pubsub_registry:abandon(Channel, Shard),
            {refused({too_large, Most}), Shard};
        {ok, Channel, Policy} ->
            Now = erlang:monotonic_time(millisecond),
            case weir_pubsub_history:append(Index, Messages, Channel#channel{used = Now}, Policy, {Now, Data, Meta}) of
                {ok, Appended} ->
                    ok = weir_pubsub_counters:add(published, 1),
                    ok = Event(Policy, Appended),
                    published(Appended, Policy, Data, Meta, Shard);
                {error, Reason} ->
                    ok = weir_pubsub_registry:abandon(Channel, Shard),
                    {refused(Reason), Shard}
            end;
        {error, Reason} ->
            {refused(Reason), Shard}
    end.

refused(Reason) ->
    ok = weir_pubsub_counters:add(refused, 1),
    {error, Reason}.

published(#channel{epoch = Epoch, last = Last} = Channel, Policy, Data, Meta, Shard) ->
    {Delivered, Lagging} = weir_pubsub_delivery:deliver(Channel, {message, {Epoch, Last}, Data, Meta}, Shard),
    Saved = weir_pubsub_registry:save(Delivered, Policy, Shard),
    Next = lists:foldl(fun disconnect/2, note_behind(Saved, Shard), Lagging),
    #channel{first = First, processes = Processes, sockets = Sockets} = Saved,
    {{ok, #{id => {Epoch, Last}, subscribers => Processes + Sockets, messages => Last - First + 1}}, Next}.

disconnect(#subscriber{name = Name, pid = Pid, tag = Tag} = Subscriber, Shard) ->
    {ok, Next} = weir_pubsub_subscription:unsubscribe(Name, {Pid, Tag}, Shard),
    ok = weir_pubsub_counters:add(slow, 1),
    ok = weir_pubsub_delivery:tell(Subscriber, {closed, slow}),
    Next.

catch_up(Name, Shard) ->
    case weir_pubsub_registry:find(Name, Shard) of
        {ok, Channel, Policy} ->
            note_behind(weir_pubsub_registry:save(weir_pubsub_delivery:catch_up(Channel, Shard), Policy, Shard), Shard);
        none ->
            Shard
    end.

%% An audience that is behind is tried again, also if nothing more is published.
note_behind(#channel{audiences = []}, Shard) ->
    Shard;
note_behind(#channel{name = Name, audiences = Audiences}, #shard{behind = Behind} = Shard) ->
    case lists:any(fun weir_pubsub_audience:is_behind/1, Audiences) of
        true ->
            map_size(Behind) =:= 0 andalso erlang:send_after(?BEHIND_MS, self(), behind),
            Shard#shard{behind = Behind#{Name => []}};
        false ->
            Shard
    end.
