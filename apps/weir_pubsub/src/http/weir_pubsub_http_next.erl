%% @private
%% @doc The next messages of channels, for a client that gets one response: one message, or as many as the response
%% may have.
-module(weir_pubsub_http_next).

-export([at_once/3]).
-export([of_now/3]).
-export([behind/3]).

-export_type([most/0]).

-type most() :: {Count :: pos_integer(), Bytes :: pos_integer()}.
%% The last message may have any size: the bytes limit those before it.

-type found() :: {ok, [weir_pubsub_framing:message(), ...], none | weir_pubsub:missed()}.
%% The gap, if there is one, is before the first message.

%% @doc Returns the messages that can be had without waiting, see {@link weir_pubsub_socket:next_at_once/3}.
%% `others_wait': the client has the latest one, and the poll can wait in a crowd. Only for reactors.
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
    %% A client that begins with `new' or with the latest messages needs its position in all channels, which only
    %% subscriptions return.
    case [From || From <- Froms, From =:= new orelse element(1, From) =:= last] of
        [] -> of_several(fun weir_pubsub_socket:next_at_once/3, Channels, Froms, Most);
        _ -> none
    end.

%% @doc Returns the messages that the histories have now.
-spec of_now([weir_pubsub:channel()], [weir_pubsub:from()], most()) ->
    found() | none | {error, no_channel | weir_pubsub:unavailable()}.
of_now([Channel], [From], Most) -> read(Channel, From, Most);
of_now(Channels, Froms, Most) -> of_several(fun read/3, Channels, Froms, Most).

%% @doc Returns the messages that the histories have after one that has come, as many as fit into the response with
%% it.
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
        %% The next response reports the gap.
        _ ->
            []
    end.

%% The id of a message of several channels has the position in all of them.
positions({several, _Number, Ids}) -> Ids;
positions(Id) -> [Id].

read(Channel, From, {Count, Bytes}) ->
    case weir_pubsub_inspection:history(Channel, From, Count) of
        {ok, #{messages := []}} -> none;
        {ok, #{messages := Messages, missed := Missed}} -> {ok, weir_pubsub_history:of_bytes(Messages, Bytes), Missed};
        {error, _} = Error -> Error
    end.

%% Begin with a random channel, so that a busy one does not starve the others.
of_several(Next, Channels, Froms, Most) ->
    {Earlier, Later} = lists:split(
        rand:uniform(length(Channels)) - 1, lists:zip(lists:seq(1, length(Channels)), Channels)
    ),
    case each(Next, Later ++ Earlier, list_to_tuple(Froms), Most, {[], none}) of
        {[], _} -> none;
        {Messages, Missed} -> {ok, lists:append(lists:reverse(Messages)), Missed}
    end.

each(Next, [{Number, Channel} | Others], Froms, {Count, Bytes} = Most, {Before, MissedBefore} = Found) ->
    case Next(Channel, element(Number, Froms), Most) of
        {ok, Messages, Missed} ->
            {Named, Moved} = lists:mapfoldl(
                fun(Message, Positions) -> named(Number, Message, Positions) end, Froms, Messages
            ),
            All = {[Named | Before], weir_pubsub_history:missed(MissedBefore, Missed)},
            case
                {Count - length(Messages), Bytes - lists:sum([byte_size(Data) || {message, _, Data, _} <- Messages])}
            of
                {CountLeft, BytesLeft} when CountLeft > 0, BytesLeft > 0 ->
                    each(Next, Others, Moved, {CountLeft, BytesLeft}, All);
                _ ->
                    All
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
