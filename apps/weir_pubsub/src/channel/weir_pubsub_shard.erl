%% @private
%% @doc A shard: the process that serves some of the channels. It handles the events of a channel one after another,
%% so all subscribers see the same order, and one that joins misses nothing and gets nothing twice.
%%
%% State is in ETS tables, which the garbage collector does not scan: {@link weir_pubsub_history} has the messages,
%% {@link weir_pubsub_subscribers} the subscribers. Readers of a history or of a list of channels read the tables and
%% do not wait here.
%%
%% A shard that is killed loses its channels. Its subscribers outlive it: the next shard creates their channels again,
%% with new epochs, and sends processes a gap. The processes of sockets are notified of the end and close them; their
%% clients reconnect with an id.
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

%% Delay before an audience that is behind is tried again, in milliseconds.
-define(BEHIND_MS, 5).

-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Index) ->
    gen_server:start_link({local, weir_pubsub_shards:name(Index)}, ?MODULE, Index, [
        {spawn_opt, [{message_queue_data, off_heap}]}
    ]).

-spec init(pos_integer()) -> {ok, #shard{}}.
init(Index) ->
    %% Requests from this key on are for this shard.
    Begun = weir_pubsub_requests:next(),
    #shard{claim = Claim, channels = Channels, messages = Messages, subscribers = Subscribers, due = Due} =
        Shard = weir_pubsub_shards:shard(Index),
    %% A reactor that is in the middle of a publication finds the tables gone, and gives up.
    _ = weir_pubsub_shard_lock:take(Claim),
    ok = weir_pubsub_limits:clear(Index),
    %% One process writes at a time, and it also reads: write_concurrency or read_concurrency would make each
    %% operation slower.
    Options = [named_table, public],
    Channels = ets:new(Channels, [{keypos, #channel.name} | Options]),
    Messages = ets:new(Messages, Options),
    Due = ets:new(Due, [named_table, public, ordered_set]),
    ok = weir_pubsub_subscribers:open(Subscribers),
    Ready = weir_pubsub_removal:arm(weir_pubsub_replica:start(weir_pubsub_subscription:take_over(Begun, Shard))),
    ok = weir_pubsub_shard_lock:release(Claim),
    {ok, Ready}.

-spec handle_call({until, integer(), term()}, gen_server:from(), #shard{}) ->
    {reply, term(), #shard{}} | {noreply, #shard{}}.
handle_call({until, Until, Request}, From, Shard) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            ok = claim(Shard),
            case asked(Request, {call, From}, Shard) of
                {answer, Result, Next} -> {reply, Result, done(Next)};
                {later, Next} -> {noreply, done(Next)}
            end;
        false ->
            {noreply, Shard}
    end.

-spec handle_cast(term(), #shard{}) -> {noreply, #shard{}}.
handle_cast(Request, Shard) ->
    ok = claim(Shard),
    {noreply, done(told(Request, Shard))}.

-spec handle_info(term(), #shard{}) -> {noreply, #shard{}}.
handle_info(Message, Shard) ->
    ok = claim(Shard),
    {noreply, done(heard(Message, Shard))}.

%% After `of_dead' the shard crashes and starts over, because the killed reactor may have left its changes incomplete.
claim(#shard{claim = Claim}) ->
    ok = weir_pubsub_shard_lock:take(Claim).

done(#shard{claim = Claim} = Shard) ->
    Next = weir_pubsub_removal:arm(Shard),
    ok = weir_pubsub_shard_lock:release(Claim),
    Next.

told({broker, News}, Shard) ->
    {Channels, Requests, Next} = weir_pubsub_replica:told(News, Shard),
    Noted = lists:foldl(fun({Name, Of}, Before) -> take_note(Name, Of, Before) end, Next, Channels),
    lists:foldl(
        fun({Request, Asker}, Before) ->
            {Result, After} = asked(Request, Before),
            answered({answer, Result, After}, Asker)
        end,
        Noted,
        Requests
    );
told({relayed, _Name, Request}, Shard) ->
    {_, Next} = asked(Request, Shard),
    Next;
told({event, Name, Text}, #shard{broker = redis} = Shard) ->
    answered(asked({publish, Name, Text, #{}}, nobody, Shard), nobody);
told({event, Name, Text}, Shard) ->
    {_, Next} = publish(Name, Text, #{}, fun(_, _) -> ok end, Shard),
    Next;
told({taken, Name, Who, Count}, Shard) ->
    weir_pubsub_subscription:taken(Name, Who, Count, Shard);
told({rejoin, Name, Who, Left}, Shard) ->
    weir_pubsub_subscription:rejoin(Name, Who, Left, Shard);
told({watch, Reactor}, Shard) ->
    weir_pubsub_subscription:watch_reactor(Reactor, Shard);
told({stop_waiting, _Name, Row}, Shard) ->
    ok = weir_pubsub_subscription:stop_waiting(Row, Shard),
    Shard;
told(configured, #shard{renewing = Before} = Shard) ->
    Before =:= [] andalso gen_server:cast(self(), renew),
    Shard#shard{renewing = weir_pubsub_registry:names(Shard)};
told(renew, #shard{renewing = Names} = Shard) ->
    Left = weir_pubsub_registry:renew(Names, Shard),
    Left =:= [] orelse gen_server:cast(self(), renew),
    Shard#shard{renewing = Left};
told({news, Name, News}, Shard) ->
    take_note(Name, News, Shard);
told({How, Request, Key}, #shard{requests = Requests} = Shard) when How =:= ask; How =:= ask_unless_ok; How =:= tell ->
    case weir_pubsub_requests:is_open(Requests, Key) of
        true -> answered(asked(Request, {How, Key}, Shard), {How, Key});
        %% It was answered when this shard started.
        false -> Shard
    end;
told(Request, Shard) ->
    answered(asked(Request, nobody, Shard), nobody).

answered({answer, Result, Shard}, Asker) ->
    ok = weir_pubsub_replica:answer(Asker, Result, Shard),
    Shard;
answered({later, Shard}, _Asker) ->
    Shard.

asked(Request, Asker, Shard) ->
    case weir_pubsub_replica:asked(Request, Asker, Shard) of
        {local, Local} ->
            {Result, Next} = asked(Local, Shard),
            ok = relay(Local, Result, Shard),
            {answer, Result, Next};
        Other ->
            Other
    end.

relay({publish, Name, Data, Meta}, {ok, _}, #shard{broker = pg}) -> weir_pubsub_pg:publish(Name, Data, Meta);
relay({delete, Name}, {ok, _}, #shard{broker = pg}) -> weir_pubsub_pg:delete(Name);
relay(_Request, _Result, _Shard) -> ok.

asked({publish, Name, Data, Meta}, Shard) ->
    publish(Name, Data, Meta, fun weir_pubsub_events:published/2, Shard);
asked({subscribe, Name, Kind, Subscriber, Begin}, Shard) ->
    weir_pubsub_subscription:subscribe(Name, Kind, Subscriber, Begin, Shard);
asked({unsubscribe, Name, Who}, Shard) ->
    weir_pubsub_subscription:unsubscribe(Name, Who, Shard);
%% Whether the channel exists, after its snapshot has come from the broker.
asked({open, Name}, #shard{channels = Channels} = Shard) ->
    {ets:member(Channels, Name), Shard};
asked({delete, Name}, Shard) ->
    weir_pubsub_removal:delete(Name, Shard).

heard({'DOWN', _, process, Pid, _}, Shard) ->
    weir_pubsub_subscription:left(Pid, Shard);
heard({weir_group, _, Reference, _}, Shard) ->
    weir_pubsub_removal:ended(Reference, Shard);
heard({timeout, Timer, sweep}, #shard{timer = {Timer, _}} = Shard) ->
    weir_pubsub_removal:sweep(erlang:monotonic_time(millisecond), Shard#shard{timer = none});
heard(behind, #shard{behind = Behind} = Shard) ->
    maps:fold(fun(Name, [], Next) -> catch_up(Name, Next) end, Shard#shard{behind = #{}}, Behind);
heard(_Other, Shard) ->
    Shard.

publish(Name, Data, Meta, Event, Shard) ->
    case weir_pubsub_publication:publish(Name, Data, Meta, Event, Shard) of
        {ok, Published, News} -> {{ok, Published}, take_note(Name, News, Shard)};
        {error, _} = Error -> {Error, Shard}
    end.

%% An audience that is behind is tried again even if nothing more is published.
take_note(Name, News, Shard) ->
    lists:foldl(
        fun
            (due, Before) -> Before;
            (behind, Before) -> note_behind(Name, Before);
            ({lagging, Subscriber}, Before) -> disconnect(Subscriber, Before)
        end,
        Shard,
        News
    ).

%% It may have unsubscribed already.
disconnect(#subscriber{name = Name, pid = Pid, tag = Tag, framing = Framing} = Subscriber, Shard) ->
    case weir_pubsub_subscription:unsubscribe(Name, {Pid, Tag}, Shard) of
        {ok, Next} ->
            %% A long poll is over, not slow.
            Framing =:= none andalso weir_pubsub_observation:slow([Name]),
            ok = weir_pubsub_delivery:tell(Subscriber, {closed, slow}),
            Next;
        {{error, not_subscribed}, Same} ->
            Same
    end.

note_behind(Name, #shard{behind = Behind} = Shard) ->
    map_size(Behind) =:= 0 andalso erlang:send_after(?BEHIND_MS, self(), behind),
    Shard#shard{behind = Behind#{Name => []}}.

catch_up(Name, Shard) ->
    case weir_pubsub_registry:find(Name, Shard) of
        {ok, Channel, Policy} ->
            #channel{audiences = Audiences} =
                weir_pubsub_registry:save(weir_pubsub_delivery:catch_up(Channel, Shard), Policy, Shard),
            case lists:any(fun weir_pubsub_stream_group:is_behind/1, Audiences) of
                true -> note_behind(Name, Shard);
                false -> Shard
            end;
        none ->
            Shard
    end.
