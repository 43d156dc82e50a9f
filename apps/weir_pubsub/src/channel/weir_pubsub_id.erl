%% @doc The ids of messages.
%%
%% An id is `{Epoch, Number}'. The epoch is the number of a life of a channel: it is new whenever the channel is
%% created, also after a delete or a crash. Within an epoch the messages of a channel have consecutive numbers, from
%% 1. `{Epoch, 0}' is the position before the first. Ids do not depend on a clock.
%%
%% Epochs begin at a random number for each virtual machine and grow by one from there, so that an id from before a
%% restart is not taken for a current one. They stay below 2^31 for a billion channels: the protocol of Nchan shows
%% them as dates, in seconds since 1970.
-module(weir_pubsub_id).

-export([init/0]).
-export([new_epoch/0]).
-export([to_text/1]).
-export([to_tag/1]).
-export([from_text/1]).
-export([from_tag/2]).
-export([several_from_text/2]).

-export_type([id/0, several/0]).

-type id() :: {Epoch :: pos_integer(), Number :: non_neg_integer()}.

-type several() :: {several, Which :: pos_integer(), [id() | none]}.
%% The position of a reader of several channels: an id in each, or none yet. `Which' is the channel of the latest
%% message.

-define(RANDOM, 1 bsl 30).

%% Digits of a number in the text of an id, at most. A number with more is not ours, and is not converted.
-define(DIGITS, 18).

%% @private
%% @doc Chooses the number after which epochs begin, once for each virtual machine.
-spec init() -> ok.
init() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined ->
            Last = atomics:new(1, [{signed, false}]),
            %% The first epoch is one more.
            ok = atomics:put(Last, 1, rand:uniform(?RANDOM)),
            persistent_term:put(?MODULE, Last);
        _ ->
            ok
    end.

%% @private
%% @doc Returns an epoch that no channel of this virtual machine has had.
-spec new_epoch() -> pos_integer().
new_epoch() ->
    atomics:add_get(persistent_term:get(?MODULE), 1, 1).

%% @doc Returns `<<"Epoch:Number">>', or for several channels `<<"Epoch:Tag">>' with the epoch of the latest: an
%% epoch, a colon, and the {@link to_tag/1}. Clients put it together from a date and a tag.
-spec to_text(id() | several()) -> binary().
to_text({Epoch, Number}) ->
    <<(integer_to_binary(Epoch))/binary, $:, (integer_to_binary(Number))/binary>>;
to_text({several, Which, Ids} = Several) ->
    {Epoch, _} = lists:nth(Which, Ids),
    <<(integer_to_binary(Epoch))/binary, $:, (to_tag(Several))/binary>>.

%% @doc Returns an id without its epoch: the number. With several channels it has all ids, because their epochs
%% differ, in the form of Nchan otherwise: separated by commas, the latest in brackets, and `-' for none.
-spec to_tag(id() | several()) -> binary().
to_tag({_Epoch, Number}) ->
    integer_to_binary(Number);
to_tag({several, Which, Ids}) ->
    Places = [place(Id, Number =:= Which) || {Id, Number} <- lists:zip(Ids, lists:seq(1, length(Ids)))],
    iolist_to_binary(lists:join($,, Places)).

%% @doc Returns the id that a text stands for, or `error'.
-spec from_text(binary()) -> {ok, id()} | error.
from_text(Text) ->
    case numbers(Text, <<":">>) of
        {_, _} = Id -> {ok, Id};
        error -> error
    end.

%% @doc Returns the id that an epoch and a tag stand for, or `error'.
-spec from_tag(Epoch :: integer(), binary()) -> {ok, id()} | error.
from_tag(Epoch, Tag) when Epoch > 0 ->
    case number(Tag) of
        error -> error;
        Number -> {ok, {Epoch, Number}}
    end;
from_tag(_Epoch, _Tag) ->
    error.

numbers(Text, Between) ->
    case binary:split(Text, Between) of
        [Epoch, Number] ->
            case {number(Epoch), number(Number)} of
                {E, N} when is_integer(E), E > 0, is_integer(N) -> {E, N};
                _ -> error
            end;
        _ ->
            error
    end.

place(none, _IsLatest) -> <<"-">>;
place(Id, true) -> [$[, place(Id, false), $]];
place({Epoch, Number}, false) -> [integer_to_binary(Epoch), $., integer_to_binary(Number)].

%% @doc Returns the ids of `Count' channels that a text or a tag stands for. `count': it is the id of another number
%% of channels. `none': it is not the id of several channels.
-spec several_from_text(binary(), Count :: pos_integer()) -> {ok, [id() | none]} | {error, count | none}.
several_from_text(Text, Count) ->
    Tag =
        case binary:split(Text, <<":">>) of
            [_Epoch, Behind] -> Behind;
            [Text] -> Text
        end,
    Places = [place_from_text(Place) || Place <- binary:split(Tag, <<",">>, [global])],
    case {length(Places), lists:member(error, Places)} of
        {Count, false} -> {ok, Places};
        {Count, true} -> {error, none};
        {1, _} -> {error, none};
        {_, _} -> {error, count}
    end.

place_from_text(<<"-">>) ->
    none;
place_from_text(Place) ->
    Size = byte_size(Place) - 2,
    case Place of
        <<"[", Text:Size/binary, "]">> when Size > 0 -> numbers(Text, <<".">>);
        _ -> numbers(Place, <<".">>)
    end.

number(Digits) when byte_size(Digits) > 0, byte_size(Digits) =< ?DIGITS -> number(Digits, 0);
number(_Digits) -> error.

number(<<Digit, Digits/binary>>, Number) when Digit >= $0, Digit =< $9 -> number(Digits, Number * 10 + Digit - $0);
number(<<>>, Number) -> Number;
number(_Digits, _Number) -> error.
