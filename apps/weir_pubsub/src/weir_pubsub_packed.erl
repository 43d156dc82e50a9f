%% @private
%% @doc A message as bytes, for brokers.
-module(weir_pubsub_packed).

-export([pack/2]).
-export([unpack/1]).

-spec pack(binary(), weir_pubsub:meta()) -> binary().
pack(Data, Meta) ->
    <<(field(type, Meta))/binary, (field(event, Meta))/binary, Data/binary>>.

field(Name, Meta) ->
    case Meta of
        #{Name := Value} -> <<1, (byte_size(Value)):32, Value/binary>>;
        #{} -> <<0>>
    end.

-spec unpack(binary()) -> {ok, binary(), weir_pubsub:meta()} | error.
unpack(Packed) -> unpack([type, event], Packed, #{}).

unpack([Name | Names], <<1, Size:32, Value:Size/binary, Rest/binary>>, Meta) ->
    unpack(Names, Rest, Meta#{Name => binary:copy(Value)});
unpack([_ | Names], <<0, Rest/binary>>, Meta) ->
    unpack(Names, Rest, Meta);
unpack([], Data, Meta) ->
    {ok, Data, Meta};
unpack(_Names, _Packed, _Meta) ->
    error.
