%% @private
%% @doc Long polls: a request is held until there is a message after the one that the client has. On a busy channel
%% there mostly is one already, and nothing is held. Polls that wait for the same message of a channel wait together
%% if their responses are the same.
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

-type settings() :: {Timeout :: timeout(), weir_pubsub_http_messages:form()}.

%% There are many of these at a time, so it keeps what it needs of the request, and not the request.
-record(poll, {
    channels :: [weir_pubsub:channel()],
    froms :: [weir_pubsub:from()],
    form :: weir_pubsub_http_messages:form(),
    socket :: weir_tcp:socket() | ssl:sslsocket(),
    reference :: reference(),
    %% Fields of every response, and of one without a message.
    origin :: weir_http_direct:fields(),
    no_message :: weir_http_direct:fields(),
    others_wait :: boolean(),
    missed = none :: none | weir_pubsub:missed(),
    %% What the shards have of it: a subscription to a channel, subscriptions to several, or a place in a crowd.
    subscribed = no :: no | one | weir_pubsub_multi_reader:several() | {waiting, weir_pubsub_socket:waiting()}
}).

%% @doc The result for the listener.
-spec new([weir_pubsub:channel()], [weir_pubsub:from()], settings(), weir_http_request:request()) ->
    weir_http_direct:result().
new([Channel], [From], {_Timeout, Form} = Settings, Http) when Form =/= one ->
    Key = {Form, Channel, From, weir_pubsub_http_fields:origin(Http)},
    case not weir_http_request:is_tls(Http) andalso weir_pubsub_http_shared:find(Key) of
        {ok, Reply} -> Reply;
        _ -> at_once([Channel], [From], Settings, Http)
    end;
new(Channels, Froms, Settings, Http) ->
    at_once(Channels, Froms, Settings, Http).

at_once(Channels, Froms, {_Timeout, Form} = Settings, Http) ->
    case
        not weir_http_request:is_tls(Http) andalso
            weir_pubsub_http_next:at_once(Channels, Froms, weir_pubsub_http_messages:most(Form))
    of
        {ok, Messages, Missed} ->
            Origin = weir_pubsub_http_fields:origin(Http),
            Reply = weir_pubsub_http_messages:reply(Form, Messages, Missed, Origin),
            case {Channels, Froms, Messages} of
                {[Channel], [From], [_, _ | _]} when Missed =:= none ->
                    weir_pubsub_http_shared:share({Form, Channel, From, Origin}, Messages, Reply);
                _ ->
                    Reply
            end;
        Others ->
            hold(Channels, Froms, Settings, Others =:= others_wait, Http)
    end.

%% @doc Same as {@link new/4}, but does not look for messages first: for a process that is not a reactor.
-spec later([weir_pubsub:channel()], [weir_pubsub:from()], settings(), weir_http_request:request()) ->
    weir_http_direct:result().
later(Channels, Froms, Settings, Http) -> hold(Channels, Froms, Settings, false, Http).

hold(Channels, Froms, {Timeout, Form}, OthersWait, Http) ->
    Origin = weir_pubsub_http_fields:origin(Http),
    NoMessage = weir_pubsub_http_fields:no_message_from(Origin, Http),
    Poll = #poll{
        %% Copied, because they are parts of the request.
        channels = [binary:copy(Channel) || Channel <- Channels],
        froms = Froms,
        form = Form,
        socket = weir_http_request:socket(Http),
        reference = make_ref(),
        origin = Origin,
        no_message = NoMessage,
        others_wait = OthersWait
    },
    {hold, ?MODULE, Poll, #{timeout => Timeout, otherwise => {reply, 408, NoMessage, <<>>}}}.

%% @doc Returns the next message if it is there, without waiting: an interval poll.
-spec now([weir_pubsub:channel()], [weir_pubsub:from()], weir_http_request:request()) -> weir_http_direct:response().
now(Channels, Froms, Http) ->
    case {weir_pubsub_http_next:of_now(Channels, Froms, weir_pubsub_http_messages:most(one)), Froms} of
        {{ok, Messages, Missed}, _} ->
            weir_pubsub_http_messages:reply(one, Messages, Missed, weir_pubsub_http_fields:origin(Http));
        {none, [From]} ->
            {reply, 304, weir_pubsub_http_fields:id(From, weir_pubsub_http_fields:poll(Http)), <<>>};
        {none, _} ->
            {reply, 304, weir_pubsub_http_fields:no_message(Http), <<>>};
        {{error, no_channel}, _} ->
            {reply, 304, weir_pubsub_http_fields:no_message(Http), <<>>};
        {{error, Reason}, _} ->
            weir_pubsub_http_fields:refusal(Reason, Http)
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
    Several = weir_pubsub_multi_reader:new(Channels, Froms, 1, Socket),
    case weir_pubsub_multi_reader:subscribe(Several) of
        ok -> {ok, Poll#poll{subscribed = Several}};
        {error, Reason} -> weir_pubsub_http_fields:refusal_from(Reason, Origin)
    end.

%% The framing of the response, if it can be the same for other polls.
framing(Held, #poll{form = Form, origin = Origin}) ->
    case weir_http_held:takes_frame(Held) of
        true -> {?MODULE, {Form, Origin}};
        false -> none
    end.

tag(#poll{socket = Socket, reference = Reference}) -> {weir_reactor, Socket, Reference}.

-spec info(term(), #poll{}) -> weir_http_held:result().
info({_, Reference, _Channel, What}, #poll{channels = [_], reference = Reference} = Poll) ->
    heard(What, Poll);
info(_Earlier, #poll{channels = [_]} = Poll) ->
    {ok, Poll};
info(Message, #poll{subscribed = Several} = Poll) ->
    heard_of_several(weir_pubsub_multi_reader:heard(Message, Several), Poll).

%% Further messages are read from the histories. Those that were already sent here come again with the next poll,
%% because the id of this response does not include them.
heard_of_several({ok, Items, Several}, Poll) -> each(Items, Poll#poll{subscribed = Several});
heard_of_several({over, Reason}, Poll) -> over(Reason, Poll).

each([{gap, Missed, _} | Items], #poll{missed = Before} = Poll) ->
    each(Items, Poll#poll{missed = weir_pubsub_history:missed(Before, Missed)});
each([{message, _, _, _} = Message | _], Poll) ->
    answer(Message, Poll);
each([], Poll) ->
    {ok, Poll}.

heard({message, _, _, _} = Message, Poll) -> answer(Message, Poll);
heard({gap, Missed, _Position}, Poll) -> {ok, Poll#poll{missed = Missed}};
heard({answer, {error, Reason}}, Poll) -> over(Reason, Poll);
heard({closed, Reason}, Poll) -> over(Reason, Poll).

answer(Message, #poll{channels = Channels, form = Form, missed = Missed, origin = Origin}) ->
    Behind = weir_pubsub_http_next:behind(Message, Channels, weir_pubsub_http_messages:most(Form)),
    weir_pubsub_http_messages:reply(Form, [Message | Behind], Missed, Origin).

over(deleted, #poll{no_message = Fields}) -> {reply, 410, Fields, <<>>};
over(Reason, #poll{origin = Origin}) -> weir_pubsub_http_fields:refusal_from(Reason, Origin).

-spec closed(weir_http_held:reason(), #poll{}) -> term().
closed(_Reason, #poll{subscribed = one, channels = [Channel]} = Poll) ->
    weir_pubsub_socket:unsubscribe(Channel, tag(Poll));
closed(answered, #poll{subscribed = {waiting, Waiting}}) ->
    weir_pubsub_socket:stop_waiting(answered, Waiting);
closed(_Reason, #poll{subscribed = {waiting, Waiting}}) ->
    weir_pubsub_socket:stop_waiting(unanswered, Waiting);
closed(_Reason, #poll{subscribed = Several}) ->
    weir_pubsub_multi_reader:unsubscribe(Several).

%% Framing -----------------------------------------------------------------------------

%% @doc Returns the response to all polls that wait for a message, in the same form and for pages of the same origin.
-spec message(
    {weir_pubsub_http_messages:form(), Origin :: weir_http_direct:fields()},
    weir_pubsub:channel(),
    weir_pubsub_framing:message()
) ->
    binary().
message({Form, Origin}, _Channel, Message) ->
    weir_http_held:frame(weir_pubsub_http_messages:reply(Form, [Message], none, Origin)).
