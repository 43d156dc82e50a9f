%% @private
%% @doc Event streams: their framing, and the subscription of each.
-module(weir_pubsub_http_stream).
-behaviour(weir_http_events).
-behaviour(weir_pubsub_framing).

-include("weir_pubsub_http.hrl").

-export([new/4]).
-export([open/2]).
-export([info/2]).
-export([written/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-type subscription() :: weir_pubsub_http_subscription:subscription().

-define(FRAMING, {?MODULE, []}).

%% @doc The result for the listener.
-spec new([weir_pubsub:channel()], [weir_pubsub:from()], timeout(), weir_http_request:request()) ->
    weir_http_direct:result().
new(Channels, Froms, Timeout, Http) ->
    {events, ?MODULE, weir_pubsub_http_subscription:new(Channels, Froms, Timeout, Http), #{
        max_pending => ?MOST_PENDING,
        fields => [{<<"content-type">>, <<"text/event-stream; charset=utf-8">>} | weir_pubsub_http_fields:origin(Http)]
    }}.

%% The head of the response is written: the shard writes after it.
-spec open(weir_http_events:stream(), subscription()) -> weir_http_events:result().
open(Stream, Subscription) ->
    Head = weir_http_events:frame(#{comment => <<"hi">>}),
    result(weir_pubsub_http_subscription:open(Stream, ?FRAMING, Head, Subscription), Subscription).

-spec info(term(), subscription()) -> weir_http_events:result().
info(Message, Subscription) ->
    result(weir_pubsub_http_subscription:info(Message, ?FRAMING, Subscription), Subscription).

result({ok, Next}, _Before) -> {ok, Next};
result({send, Bytes, Next}, _Before) -> {send, {framed, Bytes}, Next};
result({over, deleted}, Before) -> over(<<"410 Gone">>, Before);
result({over, timeout}, Before) -> over(<<"408 Request Timeout">>, Before);
result({over, {limit, _, _, _}}, Before) -> over(<<"403 Forbidden">>, Before);
result({over, _Unavailable}, Before) -> over(<<"503 Service Unavailable">>, Before).

%% As with Nchan, the comment has the code twice.
over(<<Code:3/binary, _/binary>> = Status, Subscription) -> {close, #{comment => [Code, ": ", Status]}, Subscription}.

-spec written(weir_http_events:stream(), subscription()) -> weir_http_events:result().
written(_Stream, Subscription) -> {ok, weir_pubsub_http_subscription:written(Subscription)}.

-spec closed(weir_http_events:reason(), subscription()) -> term().
closed(Reason, Subscription) -> weir_pubsub_http_subscription:closed(Reason, Subscription).

%% Framing -----------------------------------------------------------------------------

%% @doc Returns an event. Nothing in it has to be escaped: an id has digits only, and the name of the event came in
%% one line of a request.
-spec message(term(), weir_pubsub:channel(), weir_pubsub_framing:message()) -> binary().
message(_Argument, _Channel, {message, Id, Data, Meta}) ->
    Event = #{id => weir_pubsub_id:to_text(Id), data => Data},
    weir_http_events:frame(
        case Meta of
            #{event := Name} -> Event#{event => Name};
            #{} -> Event
        end
    ).

%% @doc Returns an event with the name `gap'. Its data is the number of messages that are missing, or `unknown'.
-spec gap(term(), weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_framing:place()) -> binary().
gap(_Argument, _Channel, Missed, Position) ->
    Count = case Missed of unknown -> <<"unknown">>; _ -> integer_to_binary(Missed) end,
    weir_http_events:frame(#{event => <<"gap">>, id => weir_pubsub_id:to_text(Position), data => Count}).
