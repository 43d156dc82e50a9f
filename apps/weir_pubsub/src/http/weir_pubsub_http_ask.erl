%% @private
%% @doc Publishing and deleting. The reactor itself publishes if the claim on the shard of the channel is free.
%% Otherwise the request is held until the shard answers, so that the reactor does not wait.
-module(weir_pubsub_http_ask).
-behaviour(weir_http_held).

-export([publish/2]).
-export([publish_later/2]).
-export([delete/2]).
-export([open/2]).
-export([info/2]).
-export([answer/2]).

-export_type([answer/0]).

%% How long a request waits for the shard, in milliseconds.
-define(PATIENCE_MS, 5000).

-record(ask, {
    %% The requests to shards, by channel; `asked' after they were sent.
    requests :: [{weir_pubsub:channel(), Request :: term()}] | asked,
    http :: weir_http_request:request(),
    reference :: reference(),
    %% How many answers are missing, and those that have come.
    missing :: non_neg_integer(),
    answers :: [answer()]
}).

-type answer() :: {ok, map()} | {error, term()}.

-spec publish([weir_pubsub:channel()], weir_http_request:request()) -> weir_http_direct:result().
publish(Channels, Http) ->
    case weir_http_request:is_tls(Http) of
        false -> publish_at_once(Channels, Http);
        true -> publish_later(Channels, Http)
    end.

publish_at_once(Channels, Http) ->
    {Data, Meta} = message(Http),
    Tried = [{Channel, weir_pubsub_publication:in_reactor(Channel, Data, Meta)} || Channel <- Channels],
    case [{Channel, {publish, Channel, Data, Meta}} || {Channel, busy} <- Tried] of
        [] -> answer([Answer || {_, Answer} <- Tried], Http);
        Requests -> ask(Requests, [Answer || {_, Answer} <- Tried, Answer =/= busy], Http)
    end.

%% @doc Same as {@link publish/2}, but always by the shards: for a process that is not a reactor.
-spec publish_later([weir_pubsub:channel()], weir_http_request:request()) -> weir_http_direct:result().
publish_later(Channels, Http) ->
    {Data, Meta} = message(Http),
    ask([{Channel, {publish, Channel, Data, Meta}} || Channel <- Channels], [], Http).

message(Http) ->
    Type = type(weir_http_request:field(<<"content-type">>, Http), #{}),
    {weir_http_request:body(Http), event(weir_http_request:field(<<"x-eventsource-event">>, Http), Type)}.

type(undefined, Meta) -> Meta;
type(Type, Meta) -> Meta#{type => binary:copy(Type)}.

event(undefined, Meta) -> Meta;
event(Event, Meta) -> Meta#{event => binary:copy(Event)}.

-spec delete([weir_pubsub:channel()], weir_http_request:request()) -> weir_http_direct:result().
delete(Channels, Http) -> ask([{Channel, {delete, Channel}} || Channel <- Channels], [], Http).

ask(Requests, Answers, Http) ->
    Ask = #ask{requests = Requests, http = Http, reference = make_ref(), missing = length(Requests), answers = Answers},
    Unavailable = weir_pubsub_http_fields:refusal(unavailable, Http),
    {hold, ?MODULE, Ask, #{timeout => ?PATIENCE_MS, otherwise => Unavailable}}.

-spec open(weir_http_held:held(), #ask{}) -> weir_http_held:result().
open(_Held, #ask{requests = Requests, http = Http, reference = Reference} = Ask) ->
    Tag = {weir_reactor, weir_http_request:socket(Http), Reference},
    case
        [Reason || {Channel, Request} <- Requests, {error, Reason} <- [weir_pubsub_shards:send(Channel, Request, Tag)]]
    of
        [] -> {ok, Ask#ask{requests = asked}};
        [Reason | _] -> weir_pubsub_http_fields:refusal(Reason, Http)
    end.

-spec info(term(), #ask{}) -> weir_http_held:result().
info({_, Reference, _Channel, {answer, Answer}}, #ask{
    reference = Reference, missing = 1, answers = Answers, http = Http
}) ->
    answer([Answer | Answers], Http);
info(
    {_, Reference, _Channel, {answer, Answer}}, #ask{reference = Reference, missing = Missing, answers = Answers} = Ask
) ->
    {ok, Ask#ask{missing = Missing - 1, answers = [Answer | Answers]}};
info(_Earlier, Ask) ->
    {ok, Ask}.

%% @doc Returns the response. For several channels: the first error other than `no_channel'; if there is none, the sum
%% of those that exist.
-spec answer([answer()], weir_http_request:request()) -> weir_http_direct:response().
answer([Answer], Http) ->
    one_answer(Answer, Http);
answer(Answers, Http) ->
    Failed = [Reason || {error, Reason} <- Answers],
    Done = [Info || {ok, Info} <- Answers],
    case {[Reason || Reason <- Failed, Reason =/= no_channel], Done} of
        {[Reason | _], _} -> weir_pubsub_http_fields:refusal(Reason, Http);
        {[], []} -> weir_pubsub_http_fields:refusal(no_channel, Http);
        {[], _} -> one_answer({ok, together(Done)}, Http)
    end.

%% As with Nchan, the count of messages is that of the channel that has most, and there is no id.
together(Infos) ->
    Together = #{
        messages => lists:max([Messages || #{messages := Messages} <- Infos]),
        subscribers => lists:sum([Subscribers || #{subscribers := Subscribers} <- Infos])
    },
    case Infos of
        [#{id := _} | _] -> Together#{id => none};
        _ -> Together#{last_id => none}
    end.

one_answer({ok, #{subscribers := Subscribers, id := Id} = Published}, Http) ->
    {Fields, Body} = weir_pubsub_http_report:channel(Published#{last_id => Id}, Http),
    Status = case Subscribers of 0 -> 202; _ -> 201 end,
    {reply, Status, Fields ++ weir_pubsub_http_fields:origin(Http), Body};
one_answer({ok, #{last_id := _} = Deleted}, Http) ->
    {Fields, Body} = weir_pubsub_http_report:channel(Deleted, Http),
    {reply, 200, Fields ++ weir_pubsub_http_fields:origin(Http), Body};
one_answer({error, Reason}, Http) ->
    weir_pubsub_http_fields:refusal(Reason, Http).
