%% @private
%% @doc Publishing and deleting. What is published is published by the reactor itself if nobody is at work in the shard of the channel;
%% otherwise the shard answers, and the request is held meanwhile: no reactor waits.
-module(weir_pubsub_http_ask).
-behaviour(weir_http_held).

-export([publish/2]).
-export([delete/2]).
-export([open/2]).
-export([info/2]).

%% How long a request waits for the shard, in milliseconds.
-define(PATIENCE_MS, 5000).

-record(ask, {
    channel :: weir_pubsub:channel(),
    request :: term(),
    http :: weir_http_request:request(),
    reference :: reference()
}).

-spec publish(weir_pubsub:channel(), weir_http_request:request()) -> weir_http_direct:result().
publish(Channel, Http) ->
    Type = type(weir_http_request:field(<<"content-type">>, Http), #{}),
    Meta = event(weir_http_request:field(<<"x-eventsource-event">>, Http), Type),
    Data = weir_http_request:body(Http),
    case weir_pubsub_publication:in_reactor(Channel, Data, Meta) of
        busy -> ask(Channel, {publish, Channel, Data, Meta}, Http);
        Answer -> answer(Answer, Http)
    end.

type(undefined, Meta) -> Meta;
type(Type, Meta) -> Meta#{type => binary:copy(Type)}.

event(undefined, Meta) -> Meta;
event(Event, Meta) -> Meta#{event => binary:copy(Event)}.

-spec delete(weir_pubsub:channel(), weir_http_request:request()) -> weir_http_direct:result().
delete(Channel, Http) -> ask(Channel, {delete, Channel}, Http).

ask(Channel, Request, Http) ->
    Ask = #ask{channel = Channel, request = Request, http = Http, reference = make_ref()},
    Unavailable = weir_pubsub_http_fields:refusal(unavailable, Http),
    {hold, ?MODULE, Ask, #{timeout => ?PATIENCE_MS, otherwise => Unavailable}}.

-spec open(weir_http_held:held(), #ask{}) -> weir_http_held:result().
open(_Held, #ask{channel = Channel, request = Request, http = Http, reference = Reference} = Ask) ->
    Tag = {weir_reactor, weir_http_request:socket(Http), Reference},
    case weir_pubsub_shards:send(Channel, Request, Tag) of
        ok -> {ok, Ask#ask{request = asked}};
        {error, Reason} -> weir_pubsub_http_fields:refusal(Reason, Http)
    end.

-spec info(term(), #ask{}) -> weir_http_held:result().
info({_, Reference, _Channel, {answer, Answer}}, #ask{reference = Reference, http = Http}) ->
    answer(Answer, Http);
info(_Earlier, Ask) ->
    {ok, Ask}.

answer({ok, #{subscribers := Subscribers, id := Id} = Published}, Http) ->
    {Fields, Body} = weir_pubsub_http_report:channel(Published#{last_id => Id}, Http),
    Status = case Subscribers of 0 -> 202; _ -> 201 end,
    {reply, Status, Fields ++ weir_pubsub_http_fields:origin(Http), Body};
answer({ok, #{last_id := _} = Deleted}, Http) ->
    {Fields, Body} = weir_pubsub_http_report:channel(Deleted, Http),
    {reply, 200, Fields ++ weir_pubsub_http_fields:origin(Http), Body};
answer({error, Reason}, Http) ->
    weir_pubsub_http_fields:refusal(Reason, Http).
