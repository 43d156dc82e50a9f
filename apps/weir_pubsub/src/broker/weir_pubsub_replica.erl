%% @private
%% @doc Channels that other nodes have, too: the requests of a shard to the broker, and the news from it.
%%
%% The tables are a copy of what the server of the broker has. News are applied in order, each message once. A message
%% that does not follow the last one of the copy is dropped, and a snapshot is requested. If the snapshot leaves a
%% hole, or is of another life of the channel, subscribers get a gap.
-module(weir_pubsub_replica).

-include("weir_pubsub.hrl").
-include("weir_pubsub_shard.hrl").

-export([start/1]).
-export([asked/3]).
-export([told/2]).
-export([answer/3]).

-export_type([asker/0]).

-type asker() :: {call, gen_server:from()} | {ask | ask_unless_ok | tell, weir_pubsub_requests:key()} | nobody.
%% Who gets the answer; some only if it is an error.

-type work() :: {
    News :: [{weir_pubsub:channel(), [weir_pubsub_publication:news()]}], [{Request :: term(), asker()}], #shard{}
}.
%% News for the shard about channels, and requests that it can handle now with its tables.

%% @doc Announces the start of a shard to the broker. The shard may have taken over channels.
-spec start(#shard{}) -> #shard{}.
start(#shard{index = Index, broker = redis} = Shard) ->
    ok = weir_pubsub_broker:ask(Index, hello),
    Shard#shard{connection = connecting};
start(Shard) ->
    Shard.

%% @doc Handles the part of a request that needs the broker. `local': the tables are enough for the rest.
-spec asked(Request, asker(), #shard{}) -> {local, Request} | {answer, term(), #shard{}} | {later, #shard{}} when
    Request :: term().
asked(Request, _Asker, #shard{broker = Broker}) when Broker =/= redis ->
    {local, Request};
asked({publish, Name, Data, Meta}, Asker, Shard) ->
    {_, #policy{max_message = Most, max_messages = Kept, max_age = Age}} = weir_pubsub_policies:find(Name, none),
    case byte_size(Data) > Most of
        true ->
            ok = weir_pubsub_observation:refused(Name, {too_large, Most}),
            {answer, {error, {too_large, Most}}, Shard};
        false ->
            What = {publish, Name, byte_size(Data)},
            ask(fun(Reference) -> {publish, Reference, Name, Data, Meta, {Kept, Age}} end, What, Asker, Shard)
    end;
asked({delete, Name}, Asker, Shard) ->
    ask(fun(Reference) -> {delete, Reference, Name} end, {delete, Name}, Asker, Shard);
asked({unsubscribe, Name, _} = Request, _Asker, #shard{opening = Opening}) when not is_map_key(Name, Opening) ->
    {local, Request};
asked(Request, Asker, Shard) ->
    opened(element(2, Request), Request, Asker, Shard).

ask(_Request, What, _Asker, #shard{connection = Connection} = Shard) when Connection =/= connected ->
    ok = weir_pubsub_observation:refused(element(2, What), unavailable),
    {answer, {error, unavailable}, Shard};
ask(Request, What, Asker, #shard{index = Index, asked = Asked} = Shard) ->
    Reference = make_ref(),
    ok = weir_pubsub_broker:ask(Index, Request(Reference)),
    {later, Shard#shard{asked = Asked#{Reference => {What, Asker}}}}.

%% Requests about a channel wait for its snapshot, in order. An id with another epoch than the copy may be newer than
%% the copy.
opened(Name, Request, Asker, #shard{opening = Opening} = Shard) when is_map_key(Name, Opening) ->
    #{Name := Waiting} = Opening,
    {later, Shard#shard{opening = Opening#{Name := [{Request, Asker} | Waiting]}}};
opened(Name, Request, Asker, #shard{channels = Channels, connection = Connection} = Shard) ->
    case {ets:lookup(Channels, Name), Request, Connection} of
        {[#channel{epoch = Epoch, last = Last}], {subscribe, _, Kind, Subscriber, {{Other, _}, Head}}, away} when
            is_integer(Other), Other =/= Epoch
        ->
            %% The client may have had the messages of the copy already. Begin after them, with a gap of unknown size.
            {local, {subscribe, Name, Kind, Subscriber, {{Epoch, Last + 1}, Head}}};
        {[#channel{epoch = Epoch}], {subscribe, _, _, _, {{Other, _}, _}}, _} when is_integer(Other), Other =/= Epoch ->
            {later, held(Name, [{Request, Asker}], Shard)};
        {[], _, _} when Connection =/= away ->
            {later, held(Name, [{Request, Asker}], Shard)};
        _ ->
            {local, Request}
    end.

%% The connection is there, or it is soon known that there is none.
held(Name, Waiting, #shard{connection = connected} = Shard) ->
    open(Name, Waiting, Shard);
held(Name, Waiting, #shard{connection = connecting, opening = Opening} = Shard) ->
    Shard#shard{opening = Opening#{Name => Waiting}}.

open(Name, Waiting, #shard{index = Index, channels = Channels, opening = Opening} = Shard) ->
    Known =
        case ets:lookup(Channels, Name) of
            [#channel{epoch = Epoch, last = Last}] -> {Epoch, Last};
            [] -> none
        end,
    ok = weir_pubsub_broker:ask(Index, {open, Name, Known}),
    Shard#shard{opening = Opening#{Name => Waiting}}.

%% @doc Handles news from the broker.
-spec told(weir_pubsub_broker:news(), #shard{}) -> work().
told(connected, #shard{opening = Opening} = Shard) ->
    Names = weir_pubsub_registry:names(Shard),
    Open = fun(Name, Before) -> open(Name, maps:get(Name, Opening, []), Before) end,
    {[], [], lists:foldl(Open, Shard#shard{connection = connected}, lists:usort(Names ++ maps:keys(Opening)))};
told(connecting, Shard) ->
    {[], [], unanswered(Shard#shard{connection = connecting})};
told(away, #shard{opening = Opening} = Shard) ->
    Waiting = lists:append([lists:reverse(Requests) || Requests <- maps:values(Opening)]),
    {[], Waiting, unanswered(Shard#shard{connection = away, opening = #{}})};
told({answer, Reference, Answer}, #shard{asked = Asked} = Shard) ->
    case maps:take(Reference, Asked) of
        {{What, Asker}, Others} ->
            ok = answer(Asker, answered(What, Answer, Shard), Shard),
            {[], [], Shard#shard{asked = Others}};
        error ->
            {[], [], Shard}
    end;
told({message, Name, {Epoch, Number}, Data, Meta}, #shard{channels = Channels, opening = Opening} = Shard) ->
    case ets:lookup(Channels, Name) of
        [#channel{epoch = Epoch, last = Last} = Channel] when Number =:= Last + 1 ->
            {[{Name, arrived(Channel, {erlang:monotonic_time(millisecond), Data, Meta}, Shard)}], [], Shard};
        [#channel{epoch = Epoch, last = Last}] when Number =< Last ->
            {[], [], Shard};
        [_] when not is_map_key(Name, Opening) ->
            {[], [], open(Name, [], Shard)};
        _ ->
            {[], [], Shard}
    end;
told({deleted, Name, Epoch}, #shard{channels = Channels, opening = Opening} = Shard) ->
    case ets:lookup(Channels, Name) of
        [#channel{epoch = Epoch}] when not is_map_key(Name, Opening) ->
            {_, Next} = weir_pubsub_removal:delete(Name, Shard),
            {[], [], Next};
        _ ->
            %% The snapshot that is on its way is of another life.
            {[], [], Shard}
    end;
told({opened, Name, Snapshot}, #shard{opening = Opening} = Shard) ->
    case maps:take(Name, Opening) of
        {Waiting, Others} ->
            {[{Name, taken_over(Name, Snapshot, Shard)}], lists:reverse(Waiting), Shard#shard{opening = Others}};
        error ->
            {[], [], Shard}
    end.

unanswered(#shard{asked = Asked} = Shard) ->
    maps:foreach(fun(_, {_, Asker}) -> answer(Asker, {error, unavailable}, Shard) end, Asked),
    Shard#shard{asked = #{}}.

%% @doc Sends the answer to a request.
-spec answer(asker(), term(), #shard{}) -> ok.
answer(nobody, _Answer, _Shard) ->
    ok;
answer({call, From}, Answer, _Shard) ->
    gen_server:reply(From, Answer);
answer({_How, _Key} = Request, Answer, #shard{requests = Requests}) ->
    weir_pubsub_requests:answer(Requests, Request, Answer).

answered({publish, Name, Bytes}, {ok, Id, Kept}, #shard{channels = Channels}) ->
    ok = weir_pubsub_counters:add(published, 1),
    {Channel, Policy} = weir_pubsub_registry:new(Name),
    ok = weir_pubsub_events:published(Policy, Channel),
    Subscribers =
        case ets:lookup(Channels, Name) of
            [#channel{processes = Processes, sockets = Sockets}] -> Processes + Sockets;
            [] -> 0
        end,
    ok = weir_pubsub_observation:published(Name, Id, Bytes, Subscribers),
    {ok, #{id => Id, subscribers => Subscribers, messages => Kept}};
answered({delete, Name}, {ok, {Epoch, Last}, Kept}, #shard{channels = Channels}) ->
    Channel = case ets:lookup(Channels, Name) of [Known] -> Known; [] -> element(1, weir_pubsub_registry:new(Name)) end,
    Deleted = Channel#channel{epoch = Epoch, first = Last - Kept + 1, last = Last},
    {ok, weir_pubsub_inspection:describe(Deleted, erlang:monotonic_time(millisecond))};
answered(_What, {error, _} = Error, _Shard) ->
    Error.

%% The copy ----------------------------------------------------------------------------

%% The next message.
arrived(#channel{name = Name}, Message, Shard) ->
    {ok, Channel, Policy} = weir_pubsub_registry:find(Name, Shard),
    Longer = kept(Channel, Policy, Message, Shard),
    {_At, Data, Meta} = Message,
    {ok, _, News} = weir_pubsub_publication:give(Longer, Policy, {Data, Meta}, fun(_, _) -> ok end, Shard),
    News.

%% A message that a limit of this node refuses is not kept here. A subscriber that does not get it at once gets a gap.
kept(#channel{last = Last} = Channel, Policy, Message, #shard{index = Index, messages = Messages}) ->
    case weir_pubsub_history:append(Index, Messages, Channel, Policy, Message) of
        {ok, Longer} ->
            Longer;
        {error, _} ->
            Dropped = weir_pubsub_history:drop(Index, Messages, Channel),
            Dropped#channel{first = Last + 2, last = Last + 1}
    end.

taken_over(
    Name, #{epoch := Epoch, last := Last, messages := Messages} = Snapshot, #shard{channels = Channels} = Shard
) ->
    case {ets:lookup(Channels, Name), Messages} of
        {[#channel{epoch = Epoch, last = Known}], _} when Last =< Known ->
            [];
        {[#channel{epoch = Epoch, last = Known} = Channel], [{Number, _, _, _} | _]} when Number =:= Known + 1 ->
            lists:usort(lists:append([arrived(Channel, dated(Message), Shard) || Message <- Messages]));
        {[#channel{epoch = Epoch, last = Known} = Channel], _} ->
            From = first(Last, Messages) - 1,
            begin_again(Channel, Snapshot, {From, From - Known}, Shard);
        {[#channel{origin = broker} = Channel], _} ->
            begin_again(Channel, Snapshot, {first(Last, Messages) - 1, unknown}, Shard);
        {[#channel{origin = node} = Channel], _} ->
            %% Created without the broker, for subscribers who may have had these messages before.
            begin_again(Channel, Snapshot, {Last, unknown}, Shard);
        {[], _} ->
            case weir_pubsub_registry:open(Name, Shard) of
                {ok, Channel, Policy} ->
                    _ = weir_pubsub_registry:save(filled(Channel, Snapshot, Policy, Shard), Policy, Shard),
                    [];
                %% Requests that wait for it fail with that error themselves.
                {error, _} ->
                    ok = weir_pubsub_broker:ask(Shard#shard.index, {leave, Name}),
                    []
            end
    end.

first(Last, []) -> Last + 1;
first(_Last, [{Number, _, _, _} | _]) -> Number.

dated({_Number, Age, Data, Meta}) -> {erlang:monotonic_time(millisecond) - Age, Data, Meta}.

%% Returns the channel with these messages and no others.
filled(Channel, #{epoch := Epoch, last := Last, messages := Messages}, Policy, Shard) ->
    First = first(Last, Messages),
    Empty = Channel#channel{epoch = Epoch, origin = broker, first = First, last = First - 1, bytes = 0},
    lists:foldl(fun(Message, Before) -> kept(Before, Policy, dated(Message), Shard) end, Empty, Messages).

%% Messages between the copy and the snapshot are missing. Subscribers get a gap, and the messages after that number.
begin_again(
    #channel{name = Name}, #{epoch := Epoch} = Snapshot, {From, Missed}, #shard{index = Index, messages = Table} = Shard
) ->
    {ok, #channel{epoch = Before} = Channel, Policy} = weir_pubsub_registry:find(Name, Shard),
    Dropped = weir_pubsub_history:drop(Index, Table, Channel),
    Filled = filled(Dropped, Snapshot, Policy, Shard),
    ok = weir_pubsub_subscribers:move(Shard#shard.subscribers, Before, Epoch),
    Saved = weir_pubsub_registry:save(Filled, Policy, Shard),
    Told = weir_pubsub_delivery:begin_again(Saved, Policy, {From, Missed}, Shard),
    _ = weir_pubsub_registry:save(Told, Policy, Shard),
    [behind || lists:any(fun weir_pubsub_stream_group:is_behind/1, Told#channel.audiences)].
