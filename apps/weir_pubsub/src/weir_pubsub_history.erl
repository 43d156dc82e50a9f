%% @private
%% @doc The messages of channels, in a table of their shard, kept by count, bytes and age.
%%
%% A message is found by its id: those of a channel have consecutive numbers, and only the oldest goes.
-module(weir_pubsub_history).

-include("weir_pubsub.hrl").

-export([append/5]).
-export([expire/4]).
-export([drop/3]).
-export([position/2]).
-export([read/4]).
-export([after_position/3]).
-export([oldest_at/2]).
-export([oldest_allowed/2]).

-define(ROW(Epoch, Number, At, Data, Meta), {{Epoch, Number}, At, Data, Meta}).

%% A binary that is part of one that is so many times larger is copied, so as not to keep the whole.
-define(SPARE, 2).

%% @doc Adds a message, as far as limits allow, and lets the oldest go. Also where nothing is kept the number counts.
-spec append(Shard :: pos_integer(), ets:tab(), #channel{}, #policy{}, {integer(), binary(), weir_pubsub:meta()}) ->
    {ok, #channel{}} | {error, weir_pubsub:limit()}.
append(_Shard, _Messages, #channel{last = Last} = Channel, #policy{max_messages = 0}, _Message) ->
    {ok, Channel#channel{first = Last + 2, last = Last + 1}};
append(Shard, Messages, #channel{group = Group} = Channel, Policy, {At, Data, Meta}) ->
    case weir_pubsub_limits:take(Shard, Group, bytes, byte_size(Data)) of
        ok ->
            case weir_pubsub_limits:take(Shard, Group, messages, 1) of
                ok ->
                    #channel{epoch = Epoch, last = Last, bytes = Bytes} = Channel,
                    true = ets:insert(Messages, ?ROW(Epoch, Last + 1, At, own(Data), Meta)),
                    More = Channel#channel{last = Last + 1, bytes = Bytes + byte_size(Data)},
                    {ok, trim(Shard, Messages, More, Policy)};
                {error, _} = Error ->
                    ok = weir_pubsub_limits:give_back(Shard, Group, bytes, byte_size(Data)),
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

own(Data) ->
    case binary:referenced_byte_size(Data) > ?SPARE * byte_size(Data) of
        true -> binary:copy(Data);
        false -> Data
    end.

trim(Shard, Messages, #channel{first = First, last = Last, bytes = Bytes} = Channel, Policy) ->
    #policy{max_messages = MaxMessages, max_bytes = MaxBytes} = Policy,
    case Last - First + 1 > MaxMessages orelse (Bytes > MaxBytes andalso First < Last) of
        true -> trim(Shard, Messages, forget(Shard, Messages, Channel), Policy);
        false -> Channel
    end.

forget(Shard, Messages, #channel{epoch = Epoch, first = First, bytes = Bytes, group = Group} = Channel) ->
    [?ROW(_, _, _, Data, _)] = ets:take(Messages, {Epoch, First}),
    ok = weir_pubsub_limits:give_back(Shard, Group, bytes, byte_size(Data)),
    ok = weir_pubsub_limits:give_back(Shard, Group, messages, 1),
    Channel#channel{first = First + 1, bytes = Bytes - byte_size(Data)}.

%% @doc Lets messages go that are too old, or too many by the policy of now.
-spec expire(Shard :: pos_integer(), ets:tab(), #channel{}, {#policy{}, Now :: integer()}) -> #channel{}.
expire(Shard, Messages, Channel, {Policy, Now}) ->
    expire_old(Shard, Messages, trim(Shard, Messages, Channel, Policy), oldest_allowed(Policy, Now)).

expire_old(_Shard, _Messages, Channel, none) ->
    Channel;
expire_old(Shard, Messages, Channel, Oldest) ->
    case oldest_at(Messages, Channel) of
        At when is_integer(At), At =< Oldest ->
            expire_old(Shard, Messages, forget(Shard, Messages, Channel), Oldest);
        _ ->
            Channel
    end.

%% @doc Messages that came then, or before, are too old.
-spec oldest_allowed(#policy{}, Now :: integer()) -> integer() | none.
oldest_allowed(#policy{max_age = infinity}, _Now) -> none;
oldest_allowed(#policy{max_age = Age}, Now) -> Now - Age.

%% @doc When the oldest message came.
-spec oldest_at(ets:tab(), #channel{}) -> integer() | none.
oldest_at(_Messages, #channel{first = First, last = Last}) when First > Last -> none;
oldest_at(Messages, #channel{epoch = Epoch, first = First}) -> ets:lookup_element(Messages, {Epoch, First}, 2).

%% @doc Lets all messages go.
-spec drop(Shard :: pos_integer(), ets:tab(), #channel{}) -> #channel{}.
drop(_Shard, _Messages, #channel{first = First, last = Last} = Channel) when First > Last -> Channel;
drop(Shard, Messages, Channel) -> drop(Shard, Messages, forget(Shard, Messages, Channel)).

%% @doc Where somebody begins who wants messages from there on: behind which number, and what he misses.
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

%% @doc The messages behind a number.
-spec after_position(ets:tab(), #channel{}, non_neg_integer()) -> [weir_pubsub:message()].
after_position(Messages, #channel{epoch = Epoch, last = Last}, Position) ->
    [message(Messages, {Epoch, Number}) || Number <- lists:seq(Position + 1, Last)].

message(Messages, Id) ->
    [{Id, _At, Data, Meta}] = ets:lookup(Messages, Id),
    {message, Id, Data, Meta}.

%% @doc At most `Count' messages behind a number, for a reader beside whom the shard goes on: it may let messages go meanwhile, always the
%% oldest, so what was read before one that is missing is put away. Returns the number behind which the messages are.
-spec read(ets:tab(), #channel{}, Position :: non_neg_integer(), {Count :: non_neg_integer(), Oldest :: integer() | none}) ->
    {non_neg_integer(), [weir_pubsub:message()]}.
read(Messages, #channel{epoch = Epoch, last = Last}, Position, {Count, Oldest}) ->
    read(Messages, Epoch, Position + 1, min(Last, Position + Count), Oldest, {Position, []}).

read(Messages, Epoch, Number, Last, Oldest, {Position, Read}) when Number =< Last ->
    case ets:lookup(Messages, {Epoch, Number}) of
        [?ROW(_, _, At, Data, Meta)] when Oldest =:= none; At > Oldest ->
            Message = {message, {Epoch, Number}, Data, Meta},
            read(Messages, Epoch, Number + 1, Last, Oldest, {Position, [Message | Read]});
        _ ->
            read(Messages, Epoch, Number + 1, Last, Oldest, {Number, []})
    end;
read(_Messages, _Epoch, _Number, _Last, _Oldest, {Position, Read}) ->
    {Position, lists:reverse(Read)}.
