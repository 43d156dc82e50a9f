%% @private
%% @doc Long polls: a request is held until there is a message behind the one that the client has. Mostly, where much is said, there is
%% one already: then nothing is held. Polls that wait for the same message of a channel wait together, as far as their responses are the same.
-module(weir_pubsub_http_poll).
-behaviour(weir_http_held).
-behaviour(weir_pubsub_framing).

-export([new/4]).
-export([later/4]).
-export([now/3]).
-export([open/2]).
-export([info/2]).
-export([closed/2]).

-export([message/3]).

%% There are many of these at a time. So it has what it needs of the request, and not the request.
-record(poll, {
    channels :: [weir_pubsub:channel()],
    froms :: [weir_pubsub:from()],
    socket :: weir_tcp:socket() | ssl:sslsocket(),
    reference :: reference(),
    %% Fields of the response: of any, and of one without a message.
    origin :: weir_http_direct:fields(),
    no_message :: weir_http_direct:fields(),
    others_wait :: boolean(),
    missed = none :: none | weir_pubsub:missed(),
    %% What the shards still know: a subscription to a channel, or to several, or one that waits with others.
    subscribed = no :: no | one | weir_pubsub_several:several() | {waiting, weir_pubsub_socket:waiting()}
}).

%% @doc The result for the listener.
-spec new([weir_pubsub:channel()], [weir_pubsub:from()], timeout(), weir_http_request:request()) -> weir_http_direct:result().
new(Channels, Froms, Timeout, Http) ->
    case not weir_http_request:is_tls(Http) andalso at_once(Channels, Froms) of
        {ok, Message, Missed} ->
            reply(Message, Missed, weir_pubsub_http_fields:origin(Http));
        Others ->
            hold(Channels, Froms, Timeout, Others =:= others_wait, Http)
    end.

%% @doc The same without a look at what is there already, for a process that is no reactor.
-spec later([weir_pubsub:channel()], [weir_pubsub:from()], timeout(), weir_http_request:request()) -> weir_http_direct:result().
later(Channels, Froms, Timeout, Http) -> hold(Channels, Froms, Timeout, false, Http).

hold(Channels, Froms, Timeout, OthersWait, Http) ->
    Origin = weir_pubsub_http_fields:origin(Http),
    NoMessage = weir_pubsub_http_fields:no_message_from(Origin, Http),
    Poll = #poll{
        %% They are parts of the request.
        channels = [binary:copy(Channel) || Channel <- Channels],
        froms = Froms,
        socket = weir_http_request:socket(Http),
        reference = make_ref(),
        origin = Origin,
        no_message = NoMessage,
        others_wait = OthersWait
    },
    {hold, ?MODULE, Poll, #{timeout => Timeout, otherwise => {reply, 408, NoMessage, <<>>}}}.

at_once([Channel], [From]) ->
    case weir_pubsub_socket:seems_latest(Channel, From) of
        true -> others_wait;
        false -> message_at_once(weir_pubsub_socket:next_at_once(Channel, From))
    end;
at_once(Channels, Froms) ->
    %% Who begins with the messages to come, or with the latest, is told where that is in all channels: only subscriptions know.
    case [From || From <- Froms, From =:= new orelse element(1, From) =:= last] of
        [] -> one_of_several(fun weir_pubsub_socket:next_at_once/2, Channels, Froms);
        _ -> none
    end.

message_at_once({ok, Message, Missed}) -> {ok, Message, Missed};
message_at_once(others_wait) -> others_wait;
message_at_once(_None) -> none.

%% The next message of any channel: one that has much to say does not keep the others from being heard.
one_of_several(Next, Channels, Froms) ->
    {Earlier, Later} = lists:split(rand:uniform(length(Channels)) - 1, lists:zip3(Channels, Froms, lists:seq(1, length(Channels)))),
    first(Next, Later ++ Earlier, Froms).

first(Next, [{Channel, From, Number} | Others], Froms) ->
    case Next(Channel, From) of
        {ok, {message, Id, Data, Meta}, Missed} ->
            {Before, [_ | After]} = lists:split(Number - 1, Froms),
            {ok, {message, {several, Number, known(Before) ++ [Id | known(After)]}, Data, Meta}, Missed};
        _ ->
            first(Next, Others, Froms)
    end;
first(_Next, [], _Froms) ->
    none.

known(Froms) -> [case From of {Epoch, _} when is_integer(Epoch) -> From; _ -> none end || From <- Froms].

%% @doc The next message of now, without waiting: an interval poll.
-spec now([weir_pubsub:channel()], [weir_pubsub:from()], weir_http_request:request()) -> weir_http_direct:response().
now([Channel], [From], Http) ->
    case next_of_now(Channel, From) of
        {ok, Message, Missed} -> reply(Message, Missed, weir_pubsub_http_fields:origin(Http));
        none -> {reply, 304, weir_pubsub_http_fields:id(From, weir_pubsub_http_fields:poll(Http)), <<>>};
        {error, no_channel} -> {reply, 304, weir_pubsub_http_fields:no_message(Http), <<>>};
        {error, Reason} -> weir_pubsub_http_fields:refusal(Reason, Http)
    end;
now(Channels, Froms, Http) ->
    case one_of_several(fun next_of_now/2, Channels, Froms) of
        {ok, Message, Missed} -> reply(Message, Missed, weir_pubsub_http_fields:origin(Http));
        none -> {reply, 304, weir_pubsub_http_fields:no_message(Http), <<>>}
    end.

next_of_now(Channel, From) ->
    case weir_pubsub_inspection:history(Channel, From, 1) of
        {ok, #{messages := [Message], missed := Missed}} -> {ok, Message, Missed};
        {ok, _} -> none;
        {error, _} = Error -> Error
    end.

-spec open(weir_http_held:held(), #poll{}) -> weir_http_held:result().
open(Held, #poll{channels = [Channel], froms = [From], others_wait = true} = Poll) ->
    Join = fun(Group) -> weir_http_held:join(Group, Held) end,
    Framing = framing(Held, Poll),
    case Framing =/= none andalso weir_pubsub_socket:wait(Channel, From, Framing, tag(Poll), Join) of
        {ok, Waiting} -> {ok, Poll#poll{subscribed = {waiting, Waiting}}};
        _ -> open(Held, Poll#poll{others_wait = false})
    end;
open(Held, #poll{channels = [Channel], froms = [From], origin = Origin} = Poll) ->
    case weir_pubsub_socket:next(Channel, From, framing(Held, Poll), tag(Poll)) of
        ok -> {ok, Poll#poll{subscribed = one}};
        {error, Reason} -> weir_pubsub_http_fields:refusal_from(Reason, Origin)
    end;
open(_Held, #poll{channels = Channels, froms = Froms, socket = Socket, origin = Origin} = Poll) ->
    Several = weir_pubsub_several:new(Channels, Froms, 1, Socket),
    case weir_pubsub_several:subscribe(Several) of
        ok -> {ok, Poll#poll{subscribed = Several}};
        {error, Reason} -> weir_pubsub_http_fields:refusal_from(Reason, Origin)
    end.

%% What makes the response, if that is the same for others.
framing(Held, #poll{origin = Origin}) ->
    case weir_http_held:takes_frame(Held) of
        true -> {?MODULE, Origin};
        false -> none
    end.

tag(#poll{socket = Socket, reference = Reference}) -> {weir_reactor, Socket, Reference}.

-spec info(term(), #poll{}) -> weir_http_held:result().
info({_, Reference, _Channel, What}, #poll{channels = [_], reference = Reference} = Poll) ->
    heard(What, Poll);
info(_Earlier, #poll{channels = [_]} = Poll) ->
    {ok, Poll};
info(Message, #poll{subscribed = Several} = Poll) ->
    heard_of_several(weir_pubsub_several:heard(Message, Several), Poll).

%% The others come with the next poll: the id of the first says nothing of them.
heard_of_several({ok, Items, Several}, Poll) -> each(Items, Poll#poll{subscribed = Several});
heard_of_several({over, Reason}, Poll) -> over(Reason, Poll).

each([{gap, Missed, _} | Items], #poll{missed = Before} = Poll) -> each(Items, Poll#poll{missed = weir_pubsub_history:missed(Before, Missed)});
each([{message, _, _, _} = Message | _], #poll{origin = Origin, missed = Missed}) -> reply(Message, Missed, Origin);
each([], Poll) -> {ok, Poll}.

heard({message, _, _, _} = Message, #poll{origin = Origin, missed = Missed}) -> reply(Message, Missed, Origin);
heard({gap, Missed, _Position}, Poll) -> {ok, Poll#poll{missed = Missed}};
heard({answer, {error, Reason}}, Poll) -> over(Reason, Poll);
heard({closed, Reason}, Poll) -> over(Reason, Poll).

over(deleted, #poll{no_message = Fields}) -> {reply, 410, Fields, <<>>};
over(Reason, #poll{origin = Origin}) -> weir_pubsub_http_fields:refusal_from(Reason, Origin).

reply({message, _, Data, _} = Message, Missed, Origin) ->
    {reply, 200, gap(Missed, weir_pubsub_http_fields:message(Message, weir_pubsub_http_fields:poll_from(Origin))), Data}.

%% How many messages are missing before this one.
gap(none, Fields) -> Fields;
gap(unknown, Fields) -> [{<<"weir-missed">>, <<"unknown">>} | Fields];
gap(Missed, Fields) -> [{<<"weir-missed">>, integer_to_binary(Missed)} | Fields].

-spec closed(weir_http_held:reason(), #poll{}) -> term().
closed(_Reason, #poll{subscribed = one, channels = [Channel]} = Poll) -> weir_pubsub_socket:unsubscribe(Channel, tag(Poll));
closed(answered, #poll{subscribed = {waiting, Waiting}}) -> weir_pubsub_socket:stop_waiting(answered, Waiting);
closed(_Reason, #poll{subscribed = {waiting, Waiting}}) -> weir_pubsub_socket:stop_waiting(unanswered, Waiting);
closed(_Reason, #poll{subscribed = Several}) -> weir_pubsub_several:unsubscribe(Several).

%% Framing -----------------------------------------------------------------------------

%% @doc The response to all who wait for a message, and whose pages are of the same site.
-spec message(Origin :: weir_http_direct:fields(), weir_pubsub:channel(), weir_pubsub_framing:message()) -> binary().
message(Origin, _Channel, Message) -> weir_http_held:frame(reply(Message, none, Origin)).
