%% @private
%% @doc Reads channels from the tables of the shards. It needs no shard, and no shard waits for it.
-module(weir_pubsub_inspection).

-include("weir_pubsub.hrl").
-include("weir_pubsub_subscriber.hrl").

-export([describe/2]).
-export([info/1]).
-export([channels/3]).
-export([history/3]).
-export([presence/1]).
-export([latest_at/1]).
-export([groups/2]).

%% @doc Returns the public state of a channel.
-spec describe(#channel{}, Now :: integer()) -> weir_pubsub:info().
describe(#channel{epoch = Epoch, first = First, last = Last, requested = Requested} = Channel, Now) ->
    #channel{name = Name, bytes = Bytes, processes = Processes, sockets = Sockets, group = Group, created = Created} =
        Channel,
    #{
        channel => Name,
        group => Group,
        messages => Last - First + 1,
        bytes => Bytes,
        subscribers => Processes + Sockets,
        last_id => {Epoch, Last},
        age => Now - Created,
        requested =>
            case Requested of
                never -> never;
                At -> Now - At
            end
    }.

%% @doc Returns the state of a channel by its name.
-spec info(weir_pubsub:channel()) -> {ok, weir_pubsub:info()} | {error, no_channel | weir_pubsub:unavailable()}.
info(Name) ->
    case lookup(Name) of
        {ok, Channel, _} -> {ok, describe(Channel, erlang:monotonic_time(millisecond))};
        {error, _} = Error -> Error
    end.

lookup(Name) ->
    case weir_pubsub_shards:tables_of(Name) of
        {ok, {Channels, _, _} = Tables} ->
            try ets:lookup(Channels, Name) of
                [Channel] -> {ok, Channel, Tables};
                [] -> {error, no_channel}
            catch
                error:badarg -> {error, unavailable}
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Returns at most `Limit' channels whose names begin with `Prefix' and are greater than `After', in the order of
%% their names. Scans all names.
-spec channels(Prefix :: binary(), After :: binary(), Limit :: pos_integer()) -> [weir_pubsub:info()].
channels(Prefix, After, Limit) ->
    Names = lists:sort([
        Name
     || {Channels, _, _} <- weir_pubsub_shards:all(), Name <- names(Channels), is_prefix(Prefix, Name), Name > After
    ]),
    [Info || Name <- lists:sublist(Names, Limit), {ok, Info} <- [info(Name)]].

names(Channels) ->
    try
        ets:select(Channels, [{#channel{name = '$1', _ = '_'}, [], ['$1']}])
    catch
        error:badarg -> []
    end.

is_prefix(Prefix, Name) ->
    Size = byte_size(Prefix),
    case Name of
        <<Prefix:Size/binary, _/binary>> -> true;
        _ -> false
    end.

%% @doc Returns when the latest message that is kept was published, in milliseconds of the monotonic clock.
-spec latest_at(weir_pubsub:channel()) -> integer() | none.
latest_at(Name) ->
    case lookup(Name) of
        {ok, Channel, {_, Messages, _}} ->
            try
                weir_pubsub_history:latest_at(Messages, Channel)
            catch
                error:badarg -> none
            end;
        {error, _} ->
            none
    end.

%% @doc Returns the groups that write the messages of these channels in a framing, each with its channel.
-spec groups([weir_pubsub:channel()], weir_pubsub_framing:framing()) -> #{weir_group:group() => weir_pubsub:channel()}.
groups(Names, Framing) ->
    maps:from_list([
        {weir_pubsub_stream_group:group(Audience), Name}
     || Name <- Names,
        {ok, #channel{audiences = Audiences}, _} <- [lookup(Name)],
        Audience <- Audiences,
        weir_pubsub_stream_group:framing(Audience) =:= Framing
    ]).

%% @doc Returns what is kept of a channel from a position on.
-spec history(weir_pubsub:channel(), weir_pubsub:from(), Limit :: pos_integer()) ->
    {ok, weir_pubsub:history()} | {error, no_channel | weir_pubsub:unavailable()}.
history(Name, From, Limit) ->
    case lookup(Name) of
        {ok, #channel{epoch = Epoch, policy = Known} = Channel, {_, Messages, _}} ->
            {Position, Missed} = weir_pubsub_history:position(From, Channel),
            {_, Policy} = weir_pubsub_policies:find(Name, Known),
            Oldest = weir_pubsub_history:oldest_allowed(Policy, erlang:monotonic_time(millisecond)),
            try weir_pubsub_history:read(Messages, Channel, Position, {Limit, Oldest}) of
                {Begin, Read} ->
                    {ok, #{
                        position => {Epoch, Begin},
                        missed => missed(From, Missed, Begin - Position),
                        messages => Read,
                        last_id => {Epoch, Channel#channel.last}
                    }}
            catch
                error:badarg -> {error, unavailable}
            end;
        {error, no_channel} ->
            %% Fetch it from the broker for the next caller. This one does not wait.
            _ = weir_pubsub_broker:kind() =:= redis andalso weir_pubsub_shards:cast(Name, {open, Name}),
            {error, no_channel};
        {error, _} = Error ->
            Error
    end.

%% Only a reader with an id can miss messages: others begin where the history does.
missed({_, Number}, Missed, Gone) when is_integer(Number), is_integer(Missed) -> Missed + Gone;
missed({last, _}, none, _Gone) -> none;
missed({_, _}, none, Gone) when Gone > 0 -> Gone;
missed(_From, Missed, _Gone) -> Missed.

%% @doc Returns the subscribers of a channel.
-spec presence(weir_pubsub:channel()) ->
    {ok, [weir_pubsub:present()]} | {error, no_presence | no_channel | weir_pubsub:unavailable()}.
presence(Name) ->
    case lookup(Name) of
        {ok, #channel{policy = Known} = Channel, {_, _, Subscribers}} ->
            case weir_pubsub_policies:find(Name, Known) of
                {_, #policy{presence = true}} ->
                    {ok, present(Subscribers, Channel, erlang:monotonic_time(millisecond))};
                {_, #policy{}} ->
                    {error, no_presence}
            end;
        {error, _} = Error ->
            Error
    end.

present(Subscribers, #channel{epoch = Epoch, last = Last}, Now) ->
    [
        #{pid => Pid, info => Info, age => Now - Since}
     || Kind <- [process, paced, poll, socket],
        #subscriber{pid = Pid, info = Info, since = Since, position = Position} <-
            weir_pubsub_subscribers:of_channel(Subscribers, Epoch, Kind),
        %% A poll at an earlier position has been answered.
        Kind =/= poll orelse Position =:= Last
    ].
