%% @private
%% @doc The messages of channels, in a table of their shard, kept by count, bytes and age.
%%
%% Messages are found by id: those of a channel have consecutive numbers, and the oldest are dropped first.
-module(weir_pubsub_history).

-include("weir_pubsub.hrl").

-export([append/5]).
-export([expire/4]).
-export([drop/3]).
-export([position/2]).
-export([missed/2]).
-export([read/4]).
-export([of_bytes/2]).
-export([after_position/3]).
-export([oldest_at/2]).
-export([latest_at/2]).
-export([oldest_allowed/2]).

%% The size is stored so that it can be read without the data, which would have to be reference-counted.
-define(ROW(Epoch, Number, At, Data, Meta, Size), {{Epoch, Number}, At, Data, Meta, Size}).
-define(AT, 2).
-define(SIZE, 5).

%% A binary that is part of one more than this many times larger is copied, so that the larger one is freed.
-define(SPARE, 2).

%% @doc Adds a message, if limits allow, and drops the oldest. The number is used even if no message is kept.
-spec append(Shard :: pos_integer(), ets:tab(), #channel{}, #policy{}, {integer(), binary(), weir_pubsub:meta()}) ->
    {ok, #channel{}} | {error, weir_pubsub:limit()}.
append(_Shard, _Messages, #channel{last = Last} = Channel, #policy{max_messages = 0}, _Message) ->
    {ok, Channel#channel{first = Last + 2, last = Last + 1}};
append(Shard, Messages, #channel{epoch = Epoch, last = Last, bytes = Bytes} = Channel, Policy, {At, Data, Meta}) ->
    Size = size(Data, Meta),
    Longer = Channel#channel{last = Last + 1, bytes = Bytes + Size},
    Trimmed = trimmed(Messages, Longer, Policy),
    case count(Shard, Channel, Trimmed) of
        ok ->
            true = ets:insert(Messages, ?ROW(Epoch, Last + 1, At, own(Data), Meta, Size)),
            ok = forget(Messages, Channel, Trimmed),
            {ok, Trimmed};
        {error, _} = Error ->
            Error
    end.

%% Metadata uses memory, too: a type, an event name, and up to a hundred topics of Mercure.
size(Data, Meta) when map_size(Meta) =:= 0 -> byte_size(Data);
size(Data, Meta) -> byte_size(Data) + lists:sum([bytes(Value) || Value <- maps:values(Meta)]).

bytes(Text) when is_binary(Text) -> byte_size(Text);
bytes({Topics, _IsPrivate, _Retry}) -> iolist_size(Topics).

%% In a full history one message replaces another, and the counts mostly stay the same.
count(Shard, #channel{group = Group} = Before, After) ->
    weir_pubsub_limits:change(Shard, Group, [
        {messages, kept(After) - kept(Before)}, {bytes, After#channel.bytes - Before#channel.bytes}
    ]).

kept(#channel{first = First, last = Last}) -> Last - First + 1.

own(Data) ->
    case binary:referenced_byte_size(Data) > ?SPARE * byte_size(Data) of
        true -> binary:copy(Data);
        false -> Data
    end.

%% The channel without the messages that are too many. They are still in the table.
trimmed(Messages, #channel{first = First, last = Last, bytes = Bytes} = Channel, Policy) ->
    #policy{max_messages = MaxMessages, max_bytes = MaxBytes} = Policy,
    case Last - First + 1 > MaxMessages orelse (Bytes > MaxBytes andalso First < Last) of
        true -> trimmed(Messages, without_oldest(Messages, Channel), Policy);
        false -> Channel
    end.

without_oldest(Messages, #channel{epoch = Epoch, first = First, bytes = Bytes} = Channel) ->
    Channel#channel{first = First + 1, bytes = Bytes - ets:lookup_element(Messages, {Epoch, First}, ?SIZE)}.

forget(Messages, #channel{epoch = Epoch, first = Before}, #channel{first = First}) ->
    lists:foreach(fun(Number) -> ets:delete(Messages, {Epoch, Number}) end, lists:seq(Before, First - 1)).

%% @doc Drops messages that are too old, or too many by the current policy.
-spec expire(Shard :: pos_integer(), ets:tab(), #channel{}, {#policy{}, Now :: integer()}) -> #channel{}.
expire(Shard, Messages, Channel, {Policy, Now}) ->
    let_go(
        Shard, Messages, Channel, without_old(Messages, trimmed(Messages, Channel, Policy), oldest_allowed(Policy, Now))
    ).

let_go(_Shard, _Messages, Same, Same) ->
    Same;
let_go(Shard, Messages, Channel, Shorter) ->
    ok = count(Shard, Channel, Shorter),
    ok = forget(Messages, Channel, Shorter),
    Shorter.

without_old(_Messages, Channel, none) ->
    Channel;
without_old(Messages, Channel, Oldest) ->
    case oldest_at(Messages, Channel) of
        At when is_integer(At), At =< Oldest -> without_old(Messages, without_oldest(Messages, Channel), Oldest);
        _ -> Channel
    end.

%% @doc Returns the time at or before which messages are too old.
-spec oldest_allowed(#policy{}, Now :: integer()) -> integer() | none.
oldest_allowed(#policy{max_age = infinity}, _Now) -> none;
oldest_allowed(#policy{max_age = Age}, Now) -> Now - Age.

%% @doc Returns when the oldest message was published.
-spec oldest_at(ets:tab(), #channel{}) -> integer() | none.
oldest_at(_Messages, #channel{first = First, last = Last}) when First > Last -> none;
oldest_at(Messages, #channel{epoch = Epoch, first = First}) -> ets:lookup_element(Messages, {Epoch, First}, ?AT).

%% @doc Returns when the latest message was published.
-spec latest_at(ets:tab(), #channel{}) -> integer() | none.
latest_at(_Messages, #channel{first = First, last = Last}) when First > Last -> none;
latest_at(Messages, #channel{epoch = Epoch, last = Last}) -> ets:lookup_element(Messages, {Epoch, Last}, ?AT).

%% @doc Drops all messages.
-spec drop(Shard :: pos_integer(), ets:tab(), #channel{}) -> #channel{}.
drop(Shard, Messages, #channel{last = Last} = Channel) ->
    let_go(Shard, Messages, Channel, Channel#channel{first = max(Channel#channel.first, Last + 1), bytes = 0}).

%% @doc Returns the number after which a reader begins, and how many messages it misses.
-spec position(weir_pubsub:from(), #channel{}) -> {non_neg_integer(), none | weir_pubsub:missed()}.
position(new, #channel{last = Last}) ->
    {Last, none};
position(oldest, #channel{first = First}) ->
    {First - 1, none};
position({last, Count}, #channel{first = First, last = Last}) ->
    {max(First - 1, Last - Count), none};
position({Epoch, Number}, #channel{epoch = Epoch, first = First, last = Last}) when Number =< Last ->
    case First - 1 - Number of
        Missed when Missed > 0 -> {First - 1, Missed};
        _ -> {Number, none}
    end;
position({Epoch, _Number}, #channel{epoch = Epoch, last = Last}) ->
    {Last, unknown};
position({_Epoch, _Number}, #channel{first = First}) ->
    {First - 1, unknown}.

%% @doc Adds two gaps that follow each other.
-spec missed(none | weir_pubsub:missed(), none | weir_pubsub:missed()) -> none | weir_pubsub:missed().
missed(none, Missed) -> Missed;
missed(Missed, none) -> Missed;
missed(Missed, More) when is_integer(Missed), is_integer(More) -> Missed + More;
missed(_Missed, _More) -> unknown.

%% @doc Returns the messages after a number.
-spec after_position(ets:tab(), #channel{}, non_neg_integer()) -> [weir_pubsub:message()].
after_position(Messages, #channel{epoch = Epoch, last = Last}, Position) ->
    [message(Messages, {Epoch, Number}) || Number <- lists:seq(Position + 1, Last)].

message(Messages, Id) ->
    [?ROW(_, _, _At, Data, Meta, _Size)] = ets:lookup(Messages, Id),
    {message, Id, Data, Meta}.

%% @doc Returns at most `Count' messages after a number, and the number after which they begin. For readers outside
%% the shard, which may drop messages at the same time, always the oldest first: if one is missing, those that were
%% read before it are discarded.
-spec read(ets:tab(), #channel{}, Position :: non_neg_integer(), {
    Count :: non_neg_integer(), Oldest :: integer() | none
}) ->
    {non_neg_integer(), [weir_pubsub:message()]}.
read(Messages, #channel{epoch = Epoch, last = Last}, Position, {Count, Oldest}) ->
    read(Messages, Epoch, Position + 1, min(Last, Position + Count), Oldest, {Position, []}).

read(Messages, Epoch, Number, Last, Oldest, {Position, Read}) when Number =< Last ->
    case ets:lookup(Messages, {Epoch, Number}) of
        [?ROW(_, _, At, Data, Meta, _Size)] when Oldest =:= none; At > Oldest ->
            Message = {message, {Epoch, Number}, Data, Meta},
            read(Messages, Epoch, Number + 1, Last, Oldest, {Position, [Message | Read]});
        _ ->
            read(Messages, Epoch, Number + 1, Last, Oldest, {Number, []})
    end;
read(_Messages, _Epoch, _Number, _Last, _Oldest, {Position, Read}) ->
    {Position, lists:reverse(Read)}.

%% @doc Returns the first messages, up to `Bytes' bytes of data, and at least one.
-spec of_bytes([weir_pubsub:message()], Bytes :: pos_integer()) -> [weir_pubsub:message()].
of_bytes([_] = One, _Bytes) -> One;
of_bytes([{message, _, Data, _} = First | Others], Bytes) -> [First | within(Others, Bytes - byte_size(Data))];
of_bytes([], _Bytes) -> [].

within([{message, _, Data, _} = Message | Others], Bytes) when byte_size(Data) =< Bytes ->
    [Message | within(Others, Bytes - byte_size(Data))];
within(_TooMany, _Bytes) ->
    [].
