%% @private
%% @doc Which process serves a channel: a shard for each scheduler, chosen by the channel's name.
-module(weir_pubsub_shards).

-export([make/1]).
-export([clear/0]).
-export([is_channel/1]).
-export([name/1]).
-export([tables/1]).
-export([tables_of/1]).
-export([all/0]).
-export([call/2]).
-export([send/3]).
-export([cast/2]).

-export_type([tables/0]).

-type tables() :: {Channels :: atom(), Messages :: atom(), Subscribers :: atom()}.

%% What a channel may be called, as in Nchan.
-define(LONGEST_NAME, 1024).

%% How long a caller waits for a shard, and for one that is being restarted, in milliseconds.
-define(CALL_MS, 5000).
-define(RESTART_MS, 10).

%% @doc Sets how many there are.
-spec make(pos_integer()) -> ok.
make(Count) ->
    persistent_term:put(?MODULE, list_to_tuple([numbered(Index) || Index <- lists:seq(1, Count)])).

numbered(Index) ->
    [Name, Channels, Messages, Subscribers] = [
        list_to_atom("weir_pubsub_" ++ What ++ "_" ++ integer_to_list(Index))
     || What <- ["shard", "channels", "messages", "subscribers"]
    ],
    {shard, Name, {Channels, Messages, Subscribers}}.

%% @doc There are none any more.
-spec clear() -> ok.
clear() ->
    _ = persistent_term:erase(?MODULE),
    ok.

%% @doc Whether it can be the name of a channel.
-spec is_channel(term()) -> boolean().
is_channel(Name) -> is_binary(Name) andalso Name =/= <<>> andalso byte_size(Name) =< ?LONGEST_NAME.

%% @doc The registered name of a shard.
-spec name(Index :: pos_integer()) -> atom().
name(Index) -> element(2, element(Index, persistent_term:get(?MODULE))).

%% @doc The names of its tables.
-spec tables(Index :: pos_integer()) -> tables().
tables(Index) -> element(3, element(Index, persistent_term:get(?MODULE))).

%% @doc The tables in which a channel is, if it is.
-spec tables_of(weir_pubsub:channel()) -> {ok, tables()} | {error, weir_pubsub:unavailable()}.
tables_of(Channel) ->
    case of_channel(Channel) of
        {shard, _, Tables} -> {ok, Tables};
        {error, _} = Error -> Error
    end.

%% @doc The tables of all shards.
-spec all() -> [tables()].
all() -> [Tables || {shard, _, Tables} <- tuple_to_list(persistent_term:get(?MODULE, {}))].

of_channel(Channel) ->
    case persistent_term:get(?MODULE, {}) of
        {} -> {error, {not_started, weir_pubsub}};
        Shards -> element(erlang:phash2(Channel, tuple_size(Shards)) + 1, Shards)
    end.

%% @doc Asks the shard of a channel. `again' is what a request may be that does no harm when it is made twice: it waits for a
%% shard that is restarted.
-spec call(weir_pubsub:channel(), {once | again, Request :: term()}) -> term() | {error, weir_pubsub:unavailable()}.
call(Channel, Request) ->
    call(Channel, Request, erlang:monotonic_time(millisecond) + ?CALL_MS).

call(Channel, {Mode, Request}, Until) ->
    case of_channel(Channel) of
        {shard, Shard, _} ->
            try
                gen_server:call(Shard, Request, ?CALL_MS)
            catch
                exit:{timeout, _} ->
                    {error, unavailable};
                exit:_ ->
                    case Mode =:= again andalso erlang:monotonic_time(millisecond) < Until of
                        true ->
                            timer:sleep(?RESTART_MS),
                            call(Channel, {Mode, Request}, Until);
                        false ->
                            {error, unavailable}
                    end
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Asks, and has the answer sent to the caller, who does not wait: a message as its subscriptions get, with `{answer, Answer}'. There
%% is none if the shard dies before.
-spec send(weir_pubsub:channel(), Request :: term(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
send(Channel, Request, Tag) ->
    cast(Channel, {ask, Channel, Request, {self(), Tag}}).

%% @doc Tells, without an answer.
-spec cast(weir_pubsub:channel(), Request :: term()) -> ok | {error, weir_pubsub:unavailable()}.
cast(Channel, Request) ->
    to(Channel, {'$gen_cast', Request}).

to(Channel, Message) ->
    case of_channel(Channel) of
        {shard, Shard, _} ->
            try
                Shard ! Message,
                ok
            catch
                error:badarg -> {error, unavailable}
            end;
        {error, _} = Error ->
            Error
    end.
