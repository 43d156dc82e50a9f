%% @private
%% @doc The sockets of a channel that have the same framing: a group of weir's, to which each message is written natively.
%%
%% A group takes a bounded number of broadcasts that are on their way. An audience for which it takes no more is behind: it has a position
%% in the history, and catches up from there.
-module(weir_pubsub_audience).

-include("weir_pubsub.hrl").

-export([new/2]).
-export([join/3]).
-export([leave/2]).
-export([send/3]).
-export([catch_up/3]).
-export([is_behind/1]).
-export([position/2]).
-export([framing/1]).
-export([finish/1]).
-export([delete/1]).

-export_type([audience/0]).

-opaque audience() :: {weir_pubsub_framing:framing(), weir_group:group(), Behind :: non_neg_integer() | no}.
%% If it is behind: the number of the last message that was broadcast.

-define(BACKLOG, 256).

%% @doc An audience without members, of the calling process. A socket for which more waits than may is closed: its client comes back, and
%% is told what it has missed.
-spec new(weir_pubsub_framing:framing(), #policy{}) -> {ok, audience()} | {error, emfile | no_native_part}.
new(Framing, #policy{max_queue = Messages, max_queue_bytes = Bytes}) ->
    Options = #{policy => disconnect, max_messages => Messages, max_bytes => Bytes, backlog => ?BACKLOG},
    case weir_group:new(Options) of
        {ok, Group} -> {ok, {Framing, Group, no}};
        {error, _} = Error -> Error
    end.

%% @doc The framing.
-spec framing(audience()) -> weir_pubsub_framing:framing().
framing({Framing, _, _}) -> Framing.

%% @doc The number of the last message that it has got.
-spec position(audience(), #channel{}) -> non_neg_integer().
position({_, _, no}, #channel{last = Last}) -> Last;
position({_, _, Position}, _Channel) -> Position.

%% @doc Makes a socket a member. It gets `First' before all messages to come.
-spec join(audience(), weir_tcp:socket(), First :: iodata()) -> ok | {error, closed | enotconn | emsgsize}.
join({_, Group, _}, Socket, First) -> weir_group:join(Group, Socket, #{first => First}).

%% @doc Ends a membership.
-spec leave(audience(), weir_tcp:socket()) -> ok.
leave({_, Group, _}, Socket) ->
    _ = weir_group:leave(Group, Socket),
    ok.

%% @doc Sends the latest message of a channel to all members, unless it is behind.
-spec send(audience(), #channel{}, weir_pubsub:message()) -> audience().
send({Framing, Group, no} = Audience, #channel{name = Name}, {message, {_, Number} = Id, _, _} = Message) ->
    case weir_group:broadcast(Group, weir_pubsub_framing:message(Framing, Name, Message)) of
        {error, busy} -> {Framing, Group, Number - 1};
        {error, emsgsize} -> gap(Audience, Name, 1, Id);
        _ -> Audience
    end;
send(Behind, _Channel, _Message) ->
    Behind.

%% @doc Sends what it is behind by, as far as the group takes it.
-spec catch_up(audience(), #channel{}, ets:tab()) -> audience().
catch_up({_, _, no} = Audience, _Channel, _Messages) ->
    Audience;
catch_up({Framing, Group, Position}, #channel{name = Name, epoch = Epoch} = Channel, Messages) ->
    case weir_pubsub_history:position({Epoch, Position}, Channel) of
        {Position, none} ->
            each(weir_pubsub_history:after_position(Messages, Channel, Position), {Framing, Group, no}, Channel);
        {Later, Missed} ->
            case gap({Framing, Group, Position}, Name, Missed, {Epoch, Later}) of
                {_, _, Position} = Behind -> Behind;
                {_, _, Later} = Told -> catch_up(Told, Channel, Messages)
            end
    end.

each([Message | Messages], {_, _, no} = Audience, Channel) ->
    each(Messages, send(Audience, Channel, Message), Channel);
each(_Messages, Audience, _Channel) ->
    Audience.

gap({Framing, Group, Behind}, Name, Missed, {_, Number} = Position) ->
    case {weir_group:broadcast(Group, weir_pubsub_framing:gap(Framing, Name, Missed, Position)), Behind} of
        {{error, busy}, no} -> {Framing, Group, Number - 1};
        {{error, busy}, _} -> {Framing, Group, Behind};
        {_, no} -> {Framing, Group, no};
        {_, _} -> {Framing, Group, Number}
    end.

%% @doc Whether it is to catch up.
-spec is_behind(audience()) -> boolean().
is_behind({_, _, Behind}) -> Behind =/= no.

%% @doc Has the caller told by `{weir_group, Group, Reference, _}' when all messages have been written, or wait for their sockets.
-spec finish(audience()) -> {ok, reference()} | {error, busy | closed}.
finish({_, Group, _}) ->
    Reference = make_ref(),
    case weir_group:broadcast(Group, [], #{notify => Reference}) of
        {ok, _} -> {ok, Reference};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Deletes it. Its sockets stay open.
-spec delete(audience()) -> ok.
delete({_, Group, _}) -> weir_group:delete(Group).
