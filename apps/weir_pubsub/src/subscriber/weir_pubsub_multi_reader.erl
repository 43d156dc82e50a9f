%% @private
%% @doc One reader of several channels. It has a position in each channel, and each of its messages has all of them.
%% With a single channel, ids are those of the messages.
%%
%% Epochs of channels differ, so each message has an id that only this reader has: it is framed for this reader, not
%% once for all. A reader has a window of messages for each channel. Further messages wait in the histories. If a
%% history drops them first, there is a gap, or the end if the policy of the channel is `disconnect'.
%%
%% Messages are held back until the position in every channel is known, because an id says where to continue in all of
%% them.
-module(weir_pubsub_multi_reader).

-export([new/4]).
-export([subscribe/1]).
-export([heard/2]).
-export([taken/1]).
-export([unsubscribe/1]).

-export_type([several/0, item/0]).

-type item() ::
    {message, place(), Data :: binary(), weir_pubsub:meta()}
    | {gap, weir_pubsub:missed(), place()}.

-type place() :: weir_pubsub_id:several() | weir_pubsub_id:id().

-record(several, {
    channels :: [weir_pubsub:channel()],
    froms :: [weir_pubsub:from()],
    socket :: weir_tcp:socket() | ssl:sslsocket(),
    reference :: reference(),
    window :: pos_integer(),
    %% By the number of the channel.
    positions :: tuple(),
    %% Channels whose position is not known yet.
    unknown :: non_neg_integer(),
    %% The latest first.
    held = [] :: [{pos_integer(), tuple()}],
    %% Messages that were handed on since the last `taken/1', by the number of the channel.
    given = #{} :: #{pos_integer() => pos_integer()}
}).

-opaque several() :: #several{}.

%% @doc Makes a reader for a connection of the calling reactor, or TLS process, with a window of `Window' messages for
%% each channel.
-spec new([weir_pubsub:channel()], [weir_pubsub:from()], Window :: pos_integer(), Socket) -> several() when
    Socket :: weir_tcp:socket() | ssl:sslsocket().
new(Channels, Froms, Window, Socket) ->
    Positions = [position(From) || From <- Froms],
    #several{
        channels = Channels,
        froms = Froms,
        socket = Socket,
        reference = make_ref(),
        window = Window,
        positions = list_to_tuple(Positions),
        unknown = length([none || none <- Positions])
    }.

position({Epoch, Number}) when is_integer(Epoch) -> {Epoch, Number};
position(_From) -> none.

%% @doc Subscribes to all channels. Does not wait.
-spec subscribe(several()) -> ok | {error, weir_pubsub:unavailable()}.
subscribe(#several{channels = Channels, froms = Froms, window = Window} = Several) ->
    Asked = [
        weir_pubsub_socket:pace(Channel, tag(Number, Several), #{from => From, window => Window})
     || {Channel, From, Number} <- lists:zip3(Channels, Froms, lists:seq(1, length(Channels)))
    ],
    case [Error || {error, _} = Error <- Asked] of
        [] -> ok;
        [Error | _] -> unsubscribe(Several), Error
    end.

tag(Number, #several{socket = Socket, reference = Reference}) -> {weir_reactor, Socket, {Reference, Number}}.

%% @doc Handles a message of a shard. `over': the subscription to one channel has ended, and the caller has to end
%% those to the others.
-spec heard(term(), several()) -> {ok, [item()], several()} | {over, Reason :: term()}.
heard({_, {Reference, Number}, _Channel, What}, #several{reference = Reference} = Several) ->
    heard(Number, What, Several);
heard(_Earlier, Several) ->
    {ok, [], Several}.

heard(_Number, {answer, {error, Reason}}, _Several) ->
    {over, Reason};
heard(_Number, {closed, Reason}, _Several) ->
    {over, Reason};
heard(Number, {answer, {ok, Position}}, Several) ->
    released(known(Number, Position, Several));
heard(Number, {message, {Epoch, Count}, _, _} = Message, Several) ->
    hold(Number, Message, known(Number, {Epoch, Count - 1}, Several));
heard(Number, {gap, _, Position} = Gap, Several) ->
    hold(Number, Gap, known(Number, Position, Several)).

%% The first message about a channel tells where it begins.
known(Number, Position, #several{positions = Positions, unknown = Unknown} = Several) ->
    case element(Number, Positions) of
        none -> Several#several{positions = setelement(Number, Positions, Position), unknown = Unknown - 1};
        _ -> Several
    end.

hold(Number, What, #several{held = Held} = Several) -> released(Several#several{held = [{Number, What} | Held]}).

released(#several{unknown = 0, held = Held} = Several) ->
    {Items, Released} = lists:mapfoldl(fun release/2, Several#several{held = []}, lists:reverse(Held)),
    {ok, Items, Released};
released(Several) ->
    {ok, [], Several}.

release({Number, {gap, Missed, Position}}, Several) ->
    Moved = move(Number, Position, Several),
    {{gap, Missed, id(Number, Moved)}, Moved};
release({Number, {message, Id, Data, Meta}}, #several{given = Given} = Several) ->
    Moved = move(Number, Id, Several),
    {{message, id(Number, Moved), Data, Meta}, Moved#several{given = Given#{Number => maps:get(Number, Given, 0) + 1}}}.

move(Number, Position, #several{positions = Positions} = Several) ->
    Several#several{positions = setelement(Number, Positions, Position)}.

id(1, #several{positions = {Position}}) -> Position;
id(Number, #several{positions = Positions}) -> {several, Number, tuple_to_list(Positions)}.

%% @doc Confirms the messages that were handed on: the channels send more.
-spec taken(several()) -> several().
taken(#several{channels = Channels, given = Given} = Several) ->
    maps:foreach(
        fun(Number, Count) ->
            Channel = lists:nth(Number, Channels),
            weir_pubsub_socket:taken(Channel, tag(Number, Several), Count)
        end,
        Given
    ),
    Several#several{given = #{}}.

%% @doc Unsubscribes from all channels. Does not wait.
-spec unsubscribe(several()) -> ok.
unsubscribe(#several{channels = Channels} = Several) ->
    lists:foreach(
        fun({Channel, Number}) ->
            Tag = tag(Number, Several),
            weir_pubsub_shards:tell(Channel, {unsubscribe, Channel, {self(), Tag}}, Tag)
        end,
        lists:zip(Channels, lists:seq(1, length(Channels)))
    ).
