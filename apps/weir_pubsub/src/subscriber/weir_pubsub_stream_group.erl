%% @private
%% @doc The sockets of a channel that have the same framing: a {@link weir_group}, to whose members the engine writes
%% each message.
%%
%% A group accepts a bounded number of broadcasts that are not finished. An audience whose group accepts no more is
%% behind: it has a position in the history, and catches up from there.
-module(weir_pubsub_stream_group).

-include("weir_pubsub.hrl").

-export([new/2]).
-export([join/4]).
-export([come_back/4]).
-export([leave/2]).
-export([group/1]).
-export([left_at/2]).
-export([send/3]).
-export([catch_up/3]).
-export([begin_again/4]).
-export([is_behind/1]).
-export([framing/1]).
-export([finish/1]).
-export([delete/1]).
-export([delete_empty/1]).

-export_type([audience/0]).

-record(audience, {
    framing :: weir_pubsub_framing:framing(),
    group :: weir_group:group(),
    %% Includes those that have left for a while because they were slow.
    members = 0 :: non_neg_integer(),
    %% If it is behind: the number after which it continues, and the gap to announce before that.
    behind = no :: no | {non_neg_integer(), none | weir_pubsub:missed()}
}).

-opaque audience() :: #audience{}.

-define(BACKLOG, 256).

%% A socket gets its first bytes in one write of a group: at most 1 MiB, with some room left for a gap.
-define(FIRST_BYTES, 1000 * 1024).

%% The mark of a gap of unknown size.
-define(UNKNOWN, 16#FFFFFFFFFFFFFFFF).

%% A mark is the low bits of an epoch, and a number. A channel of a broker may have a new epoch when a member comes
%% back.
-define(EPOCH_BITS, 24).
-define(NUMBER_BITS, 40).

%% @doc Creates an audience without members, which belongs to the calling process. A socket with more in its queue
%% than the policy allows leaves, and comes back when the queue is written (`drop_oldest'); or it is closed, and its
%% client reconnects (`disconnect').
-spec new(weir_pubsub_framing:framing(), #policy{}) -> {ok, audience()} | {error, emfile | no_native_part}.
new(Framing, #policy{slow = Slow, max_queue = Messages, max_queue_bytes = Bytes}) ->
    Policy = case Slow of drop_oldest -> leave; disconnect -> disconnect end,
    Options = #{policy => Policy, max_messages => Messages, max_bytes => Bytes, backlog => ?BACKLOG},
    case weir_group:new(Options) of
        {ok, Group} -> {ok, #audience{framing = Framing, group = Group}};
        {error, _} = Error -> Error
    end.

%% @doc The framing.
-spec framing(audience()) -> weir_pubsub_framing:framing().
framing(#audience{framing = Framing}) -> Framing.

%% @doc Makes a socket a member, and returns the number after which its messages begin. It first gets the head, a gap
%% if there is one, and the messages that it missed: if they exceed one write, only the latest that fit.
-spec join(audience(), weir_tcp:socket(), Begin, {#channel{}, ets:tab()}) ->
    {ok, non_neg_integer(), audience()} | {error, closed | enotconn | emsgsize | full}
when
    Begin :: {Position :: non_neg_integer(), none | weir_pubsub:missed(), Head :: iodata()}.
join(#audience{members = Members} = Audience, Socket, Begin, Channel) ->
    case come_back(Audience, Socket, Begin, Channel) of
        {ok, Position} -> {ok, Position, Audience#audience{members = Members + 1}};
        {error, _} = Error -> Error
    end.

%% @doc Same as {@link join/4}, for a member that left because it was slow. `full': its queue is not all written yet.
-spec come_back(audience(), weir_tcp:socket(), Begin, {#channel{}, ets:tab()}) ->
    {ok, non_neg_integer()} | {error, closed | enotconn | emsgsize | full}
when
    Begin :: {Position :: non_neg_integer(), none | weir_pubsub:missed(), Head :: iodata()}.
come_back(
    #audience{framing = Framing, group = Group} = Audience, Socket, {Position, Missed, Head}, {Channel, Messages}
) ->
    #channel{name = Name, epoch = Epoch} = Channel,
    Read = [
        Message
     || {message, {_, Number}, _, _} = Message <- weir_pubsub_history:after_position(Messages, Channel, Position),
        Number =< position(Audience, Channel)
    ],
    Frames = latest(Framing, Name, lists:reverse(Read), ?FIRST_BYTES - iolist_size(Head), []),
    Skipped = length(Read) - length(Frames),
    Begins = Position + Skipped,
    Count = weir_pubsub_history:missed(
        Missed,
        case Skipped of
            0 -> none;
            _ -> Skipped
        end
    ),
    Gap =
        case Count of
            none -> [];
            _ -> weir_pubsub_framing:gap(Framing, Name, Count, {Epoch, Begins})
        end,
    case weir_group:join(Group, Socket, #{first => [Head, Gap | Frames]}) of
        ok ->
            _ = Count =:= none orelse weir_pubsub_observation:gap(Name, Count),
            {ok, Begins};
        {error, _} = Error ->
            Error
    end.

%% The number of the last message that it got.
position(#audience{behind = no}, #channel{last = Last}) -> Last;
position(#audience{behind = {Position, _}}, _Channel) -> Position.

latest(Framing, Name, [Message | Earlier], Left, Frames) ->
    Frame = weir_pubsub_framing:message(Framing, Name, Message),
    case Left - iolist_size(Frame) of
        Rest when Rest >= 0 -> latest(Framing, Name, Earlier, Rest, [Frame | Frames]);
        _ -> Frames
    end;
latest(_Framing, _Name, [], _Left, Frames) ->
    Frames.

%% @doc Ends a membership. Returns `none' if that was the last member: the audience is then deleted. Each message is
%% framed once for each audience, and clients can choose any number of framings.
-spec leave(audience(), weir_tcp:socket()) -> {ok, audience()} | none.
leave(#audience{members = 1} = Audience, _Socket) ->
    ok = delete(Audience),
    none;
leave(#audience{group = Group, members = Members} = Audience, Socket) ->
    _ = weir_group:leave(Group, Socket),
    {ok, Audience#audience{members = Members - 1}}.

%% @doc Returns its group, which identifies the audience when a socket leaves.
-spec group(audience()) -> weir_group:group().
group(#audience{group = Group}) -> Group.

%% @doc Returns the position of a socket that left, from the mark of the first message that it did not get, and how
%% many it has missed.
-spec left_at(Mark :: non_neg_integer(), #channel{}) -> {non_neg_integer(), none | weir_pubsub:missed()}.
left_at(Mark, #channel{epoch = Epoch, first = First} = Channel) ->
    Number = Mark band (1 bsl ?NUMBER_BITS - 1),
    case mark(Epoch, Number) of
        Mark when Mark =/= ?UNKNOWN -> weir_pubsub_history:position({Epoch, Number}, Channel);
        _ -> {First - 1, unknown}
    end.

mark(Epoch, Number) when Number < 1 bsl ?NUMBER_BITS ->
    (Epoch band (1 bsl ?EPOCH_BITS - 1)) bsl ?NUMBER_BITS bor Number;
mark(_Epoch, _Number) ->
    ?UNKNOWN.

%% @doc Sends the latest message of a channel to all members, unless the audience is behind. Its mark is the position
%% before it, where a member that leaves continues.
-spec send(audience(), #channel{}, weir_pubsub:message()) -> audience().
send(#audience{framing = Framing, group = Group, behind = no} = Audience, #channel{name = Name}, Message) ->
    {message, {Epoch, Number} = Id, _, _} = Message,
    case
        weir_group:broadcast(Group, weir_pubsub_framing:message(Framing, Name, Message), #{
            mark => mark(Epoch, Number - 1)
        })
    of
        {error, busy} -> Audience#audience{behind = {Number - 1, none}};
        {error, emsgsize} -> gap(Audience, Name, 1, Id);
        _ -> Audience
    end;
send(Behind, _Channel, _Message) ->
    Behind.

%% @doc Sends the messages by which it is behind, as far as the group accepts them.
-spec catch_up(audience(), #channel{}, ets:tab()) -> audience().
catch_up(#audience{behind = no} = Audience, _Channel, _Messages) ->
    Audience;
catch_up(#audience{behind = {Position, Untold}} = Audience, #channel{name = Name, epoch = Epoch} = Channel, Messages) ->
    {Later, Gone} = weir_pubsub_history:position({Epoch, Position}, Channel),
    Next = Audience#audience{behind = no},
    Told =
        case weir_pubsub_history:missed(Untold, Gone) of
            none -> Next;
            Missed -> gap(Next, Name, Missed, {Epoch, Later})
        end,
    each(weir_pubsub_history:after_position(Messages, Channel, Later), Told, Channel).

%% @doc Announces a gap to all members, and sends them the messages after it.
-spec begin_again(audience(), #channel{}, {weir_pubsub:missed(), weir_pubsub_id:id()}, [weir_pubsub:message()]) ->
    audience().
begin_again(
    #audience{behind = Behind} = Audience, #channel{name = Name} = Channel, {Missed, {_, Number} = Position}, Messages
) ->
    All =
        case {Behind, Missed} of
            {{At, Untold}, _} when is_integer(Missed) -> weir_pubsub_history:missed(Untold, Number - At);
            _ -> Missed
        end,
    each(Messages, gap(Audience#audience{behind = no}, Name, All, Position), Channel).

each([Message | Messages], #audience{behind = no} = Audience, Channel) ->
    each(Messages, send(Audience, Channel, Message), Channel);
each(_Messages, Audience, _Channel) ->
    Audience.

%% If the group is too busy for a gap, it is announced later.
gap(#audience{framing = Framing, group = Group} = Audience, Name, Missed, {Epoch, Number} = Position) ->
    Mark = case Missed of unknown -> ?UNKNOWN; _ -> mark(Epoch, max(0, Number - Missed)) end,
    case weir_group:broadcast(Group, weir_pubsub_framing:gap(Framing, Name, Missed, Position), #{mark => Mark}) of
        {error, busy} ->
            Audience#audience{behind = {Number, Missed}};
        _ ->
            ok = weir_pubsub_observation:gap(Name, Missed),
            Audience
    end.

%% @doc Whether it has to catch up.
-spec is_behind(audience()) -> boolean().
is_behind(#audience{behind = Behind}) -> Behind =/= no.

%% @doc Requests `{weir_group, Group, Reference, _}' for the caller when all messages are written or queued at their
%% sockets.
-spec finish(audience()) -> {ok, reference()} | {error, busy | closed}.
finish(#audience{group = Group}) ->
    Reference = make_ref(),
    case weir_group:broadcast(Group, [], #{notify => Reference}) of
        {ok, _} -> {ok, Reference};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Deletes it. Its sockets stay open.
-spec delete(audience()) -> ok.
delete(#audience{group = Group}) -> weir_group:delete(Group).

%% @doc Deletes it if no socket has joined yet.
-spec delete_empty(audience()) -> ok.
delete_empty(#audience{members = 0} = Audience) -> delete(Audience);
delete_empty(_Audience) -> ok.
