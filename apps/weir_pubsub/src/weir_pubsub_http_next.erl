%% @private
%% @doc The next messages of channels, for a client that is answered once: one, or as many as an answer may have.
-module(weir_pubsub_http_next).

-export([at_once/3]).
-export([of_now/3]).
-export([behind/3]).

-export_type([most/0]).

-type most() :: {Count :: pos_integer(), Bytes :: pos_integer()}.
%% One message may have any size: the bytes are those of all but the last.

-type found() :: {ok, [weir_pubsub_framing:message(), ...], none | weir_pubsub:missed()}.
%% What is missing is missing before the first of them.

%% @doc What is there already and can be told without waiting, as of {@link weir_pubsub_socket:next_at_once/3}. Only for reactors.
-spec at_once([weir_pubsub:channel()], [weir_pubsub:from()], most()) -> found() | others_wait | none.
at_once([Channel], [From], Most) ->
    case weir_pubsub_socket:seems_latest(Channel, From) of
        true ->
            others_wait;
        false ->
            case weir_pubsub_socket:next_at_once(Channel, From, Most) of
                {error, _} -> none;
                Found -> Found
            end
    end;
at_once(Channels, Froms, Most) ->
    %% Who begins with the messages to come, or with the latest, is told where that is in all channels: only subscriptions know.
    case [From || From <- Froms, From =:= new orelse element(1, From) =:= last] of
        [] -> of_several(fun weir_pubsub_socket:next_at_once/3, Channels, Froms, Most);
        _ -> none
    end.

%% @doc What histories have now.
-spec of_now([weir_pubsub:channel()], [weir_pubsub:from()], most()) -> found() | none | {error, no_channel | weir_pubsub:unavailable()}.
of_now([Channel], [From], Most) -> read(Channel, From, Most);
of_now(Channels, Froms, Most) -> of_several(fun read/3, Channels, Froms, Most).

%% @doc What histories have now behind a message that has come, as far as an answer may have it beside that.
-spec behind(weir_pubsub_framing:message(), [weir_pubsub:channel()], most()) -> [weir_pubsub_framing:message()].
behind(_Message, _Channels, {1, _Bytes}) ->
    [];
behind({message, _, Data, _}, _Channels, {_Count, Bytes}) when byte_size(Data) >= Bytes ->
    [];
behind({message, Id, Data, _}, Channels, {Count, Bytes}) ->
    case of_now(Channels, positions(Id), {Count - 1, Bytes - byte_size(Data)}) of
        {ok, Messages, none} ->
            ok = weir_pubsub_counters:add(delivered, length(Messages)),
            Messages;
        %% A gap is told by the next answer.
        _ ->
            []
    end.

%% Who gets a message of one of several channels knows where it is in all of them.
positions({several, _Number, Ids}) -> Ids;
positions(Id) -> [Id].

read(Channel, From, {Count, Bytes}) ->
    case weir_pubsub_inspection:history(Channel, From, Count) of
        {ok, #{messages := []}} -> none;
        {ok, #{messages := Messages, missed := Missed}} -> {ok, weir_pubsub_history:of_bytes(Messages, Bytes), Missed};
        {error, _} = Error -> Error
    end.

%% One channel that has much to say does not keep the others from being heard.
of_several(Next, Channels, Froms, Most) ->
    {Earlier, Later} = lists:split(rand:uniform(length(Channels)) - 1, lists:zip(lists:seq(1, length(Channels)), Channels)),
    case each(Next, Later ++ Earlier, list_to_tuple(Froms), Most, {[], none}) of
        {[], _} -> none;
        {Messages, Missed} -> {ok, lists:append(lists:reverse(Messages)), Missed}
    end.

each(Next, [{Number, Channel} | Others], Froms, {Count, Bytes} = Most, {Before, MissedBefore} = Found) ->
    case Next(Channel, element(Number, Froms), Most) of
        {ok, Messages, Missed} ->
            {Named, Moved} = lists:mapfoldl(fun(Message, Positions) -> named(Number, Message, Positions) end, Froms, Messages),
            All = {[Named | Before], weir_pubsub_history:missed(MissedBefore, Missed)},
            case {Count - length(Messages), Bytes - lists:sum([byte_size(Data) || {message, _, Data, _} <- Messages])} of
                {CountLeft, BytesLeft} when CountLeft > 0, BytesLeft > 0 -> each(Next, Others, Moved, {CountLeft, BytesLeft}, All);
                _ -> All
            end;
        _ ->
            each(Next, Others, Froms, Most, Found)
    end;
each(_Next, [], _Froms, _Most, Found) ->
    Found.

named(Number, {message, Id, Data, Meta}, Froms) ->
    Moved = setelement(Number, Froms, Id),
    {{message, {several, Number, known(tuple_to_list(Moved))}, Data, Meta}, Moved}.

known(Froms) -> [case From of {Epoch, _} when is_integer(Epoch) -> From; _ -> none end || From <- Froms].
