%% @private
%% @doc Long polls: a request is held until there is a message behind the one that the client has. Mostly, where much is said, there is
%% one already: then nothing is held.
-module(weir_pubsub_http_poll).
-behaviour(weir_http_held).

-export([new/4]).
-export([now/3]).
-export([open/2]).
-export([info/2]).
-export([closed/2]).

-record(poll, {
    channel :: weir_pubsub:channel(),
    from :: weir_pubsub:from(),
    http :: weir_http_request:request(),
    reference :: reference(),
    missed = none :: none | weir_pubsub:missed(),
    %% Whether the shard still knows the subscription.
    is_subscribed = false :: boolean()
}).

%% @doc The result for the listener.
-spec new(weir_pubsub:channel(), weir_pubsub:from(), timeout(), weir_http_request:request()) -> weir_http_direct:result().
new(Channel, From, Timeout, Http) ->
    case weir_pubsub_socket:next_at_once(Channel, From) of
        {ok, Message, Missed} ->
            reply(Message, Missed, Http);
        _ ->
            Poll = #poll{channel = Channel, from = From, http = Http, reference = make_ref()},
            {hold, ?MODULE, Poll, #{timeout => Timeout, otherwise => {reply, 408, weir_pubsub_http_fields:poll(Http), <<>>}}}
    end.

%% @doc The next message of now, without waiting: an interval poll.
-spec now(weir_pubsub:channel(), weir_pubsub:from(), weir_http_request:request()) -> weir_http_direct:response().
now(Channel, From, Http) ->
    case weir_pubsub_inspection:history(Channel, From, 1) of
        {ok, #{messages := [Message], missed := Missed}} -> reply(Message, Missed, Http);
        {ok, _} -> {reply, 304, weir_pubsub_http_fields:id(From, weir_pubsub_http_fields:poll(Http)), <<>>};
        {error, no_channel} -> {reply, 304, weir_pubsub_http_fields:poll(Http), <<>>};
        {error, Reason} -> weir_pubsub_http_fields:refusal(Reason, Http)
    end.

-spec open(weir_http_held:held(), #poll{}) -> weir_http_held:result().
open(_Held, #poll{channel = Channel, from = From, http = Http} = Poll) ->
    case weir_pubsub_socket:next(Channel, From, tag(Poll)) of
        ok -> {ok, Poll#poll{is_subscribed = true}};
        {error, Reason} -> weir_pubsub_http_fields:refusal(Reason, Http)
    end.

tag(#poll{http = Http, reference = Reference}) -> {weir_reactor, weir_http_request:socket(Http), Reference}.

-spec info(term(), #poll{}) -> weir_http_held:result().
info({_, Reference, _Channel, What}, #poll{reference = Reference} = Poll) -> heard(What, Poll);
info(_Earlier, Poll) -> {ok, Poll}.

heard({message, _, _, _} = Message, #poll{http = Http, missed = Missed}) ->
    reply(Message, Missed, Http);
heard({gap, Missed, _Position}, Poll) ->
    {ok, Poll#poll{missed = Missed}};
heard({answer, {ok, _}}, Poll) ->
    {ok, Poll};
heard({answer, {error, Reason}}, #poll{http = Http}) ->
    weir_pubsub_http_fields:refusal(Reason, Http);
heard({closed, deleted}, #poll{http = Http}) ->
    {reply, 410, weir_pubsub_http_fields:poll(Http), <<>>};
heard({closed, _Unavailable}, #poll{http = Http}) ->
    weir_pubsub_http_fields:refusal(unavailable, Http).

reply({message, _, Data, _} = Message, Missed, Http) ->
    {reply, 200, gap(Missed, weir_pubsub_http_fields:message(Message, weir_pubsub_http_fields:poll(Http))), Data}.

%% How many messages are missing before this one.
gap(none, Fields) -> Fields;
gap(unknown, Fields) -> [{<<"weir-missed">>, <<"unknown">>} | Fields];
gap(Missed, Fields) -> [{<<"weir-missed">>, integer_to_binary(Missed)} | Fields].

-spec closed(weir_http_held:reason(), #poll{}) -> term().
closed(_Reason, #poll{channel = Channel, is_subscribed = true} = Poll) -> weir_pubsub_socket:unsubscribe(Channel, tag(Poll));
closed(_Reason, _Poll) -> ok.
