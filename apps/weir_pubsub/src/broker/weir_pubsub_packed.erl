%% @private
%% @doc Converts messages to bytes and back, for brokers.
-module(weir_pubsub_packed).

-export([pack/2]).
-export([unpack/1]).

-spec pack(binary(), weir_pubsub:meta()) -> binary().
pack(Data, Meta) ->
    <<(field(type, Meta))/binary, (field(event, Meta))/binary, (field(mercure, Meta))/binary, Data/binary>>.

field(Name, Meta) ->
    case Meta of
        #{Name := Value} ->
            Bytes = bytes(Value),
            <<1, (byte_size(Bytes)):32, Bytes/binary>>;
        #{} ->
            <<0>>
    end.

bytes(Value) when is_binary(Value) -> Value;
bytes({Topics, IsPrivate, none}) -> json([Topics, IsPrivate]);
bytes({Topics, IsPrivate, Retry}) -> json([Topics, IsPrivate, Retry]).

json(List) -> iolist_to_binary(weir_json:compact(List)).

-spec unpack(binary()) -> {ok, binary(), weir_pubsub:meta()} | error.
unpack(Packed) -> unpack([type, event, mercure], Packed, #{}).

unpack([mercure | Names], <<1, Size:32, Value:Size/binary, Rest/binary>>, Meta) ->
    case weir_json:decode(Value) of
        {ok, [Topics, IsPrivate | Retry]} when is_list(Topics), is_boolean(IsPrivate), length(Retry) < 2 ->
            case lists:all(fun is_binary/1, Topics) of
                true ->
                    unpack(Names, Rest, Meta#{
                        mercure =>
                            {Topics, IsPrivate,
                                case Retry of
                                    [] -> none;
                                    [Time] -> Time
                                end}
                    });
                false ->
                    error
            end;
        _ ->
            error
    end;
unpack([Name | Names], <<1, Size:32, Value:Size/binary, Rest/binary>>, Meta) ->
    unpack(Names, Rest, Meta#{Name => binary:copy(Value)});
unpack([_ | Names], <<0, Rest/binary>>, Meta) ->
    unpack(Names, Rest, Meta);
unpack([], Data, Meta) ->
    {ok, Data, Meta};
unpack(_Names, _Packed, _Meta) ->
    error.
