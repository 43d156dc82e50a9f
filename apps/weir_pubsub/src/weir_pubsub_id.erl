%% @doc The ids of messages.
%%
%% An id is `{Epoch, Number}'. The epoch is the number of a life of a channel: it is new whenever the channel is made, also after
%% a delete or a crash. Within an epoch the messages of a channel have the numbers 1, 2, 3 and so on, without a hole. `{Epoch, 0}' is the
%% position before the first. No clock has a part in this.
%%
%% Epochs begin at a random number for each virtual machine and grow by one from there, so an id from before a restart does
%% not pass for one of today. They stay below 2^31 for a billion channels: as seconds since 1970, which Nchan's protocol
%% shows them as, they are dates of the past.
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
%% Where somebody is who reads several channels: behind an id in each, or nowhere yet. Which says whose message is the latest.

-define(RANDOM, 1 bsl 30).

%% The most digits of a number in the text of an id: what has more is no id of ours, and costs no conversion.
-define(DIGITS, 18).

%% @private
%% @doc Chooses where epochs begin, once for each virtual machine.
-spec init() -> ok.
init() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined ->
            Last = atomics:new(1, [{signed, false}]),
            %% The first one is nobody's.
            ok = atomics:put(Last, 1, rand:uniform(?RANDOM)),
            persistent_term:put(?MODULE, Last);
        _ ->
            ok
    end.

%% @private
%% @doc An epoch that no channel of this virtual machine has had.
-spec new_epoch() -> pos_integer().
new_epoch() ->
    atomics:add_get(persistent_term:get(?MODULE), 1, 1).

%% @doc `<<"Epoch:Number">>', or of several channels `<<"Epoch:Tag">>' with the epoch of the latest: both are an epoch and the {@link
%% to_tag/1} behind a colon, which is how clients put them together out of a date and a tag.
-spec to_text(id() | several()) -> binary().
to_text({Epoch, Number}) ->
    <<(integer_to_binary(Epoch))/binary, $:, (integer_to_binary(Number))/binary>>;
to_text({several, Which, Ids} = Several) ->
    {Epoch, _} = lists:nth(Which, Ids),
    <<(integer_to_binary(Epoch))/binary, $:, (to_tag(Several))/binary>>.

%% @doc An id without its epoch: the number. Of several channels it has all ids, because their epochs differ, and otherwise the form that
%% it has with Nchan: separated by commas, the latest in brackets, and `-' for none.
-spec to_tag(id() | several()) -> binary().
to_tag({_Epoch, Number}) ->
    integer_to_binary(Number);
to_tag({several, Which, Ids}) ->
    Places = [place(Id, Number =:= Which) || {Id, Number} <- lists:zip(Ids, lists:seq(1, length(Ids)))],
    iolist_to_binary(lists:join($,, Places)).

%% @doc The id that a text means; `error' if it means none.
-spec from_text(binary()) -> {ok, id()} | error.
from_text(Text) ->
    case numbers(Text, <<":">>) of
        {_, _} = Id -> {ok, Id};
        error -> error
    end.

%% @doc The id that an epoch and a tag mean, as {@link from_text/1} has them with a colon between.
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

%% @doc The ids of so many channels that a text or a tag means. `count': it is of another number of channels; `none': it is no such id.
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
