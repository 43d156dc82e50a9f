%% @private
%% @doc The processes that serve channels: one of the shards, chosen by a hash of the channel's name.
%%
%% There is a shard for each scheduler that was online when the application started. The number stays the same when
%% schedulers go on or off line, because otherwise most channels, with their messages and subscribers, would belong to
%% another shard. Shards are not bound to schedulers.
-module(weir_pubsub_shards).

-include("weir_pubsub_shard.hrl").

-export([make/2]).
-export([clear/0]).
-export([count/0]).
-export([is_channel/1]).
-export([name/1]).
-export([tables/1]).
-export([tables_of/1]).
-export([of_channel/1]).
-export([shard/1]).
-export([claimed/2]).
-export([all/0]).
-export([call/2]).
-export([send/3]).
-export([send_unless_ok/3]).
-export([tell/3]).
-export([cast/2]).
-export([cast_all/1]).

-export_type([tables/0]).

-type tables() :: {Channels :: atom(), Messages :: atom(), weir_pubsub_subscribers:subscribers()}.

%% Bytes in the name of a channel at most, as in Nchan.
-define(LONGEST_NAME, 1024).

%% Timeout of a call to a shard, and the pause between tries while the shard restarts, in milliseconds.
-define(CALL_MS, 5000).
-define(RESTART_MS, 10).

%% @doc Sets the number of shards, and the source of other nodes' messages.
-spec make(pos_integer(), weir_pubsub_broker:kind()) -> ok.
make(Count, Broker) ->
    persistent_term:put(?MODULE, list_to_tuple([numbered(Index, Broker) || Index <- lists:seq(1, Count)])).

numbered(Index, Broker) ->
    [Name, Channels, Messages, ByChannel, ByProcess, Polls, Due, Requests] = [
        list_to_atom("weir_pubsub_" ++ What ++ "_" ++ integer_to_list(Index))
     || What <- ["shard", "channels", "messages", "subscribers", "processes", "polls", "due", "requests"]
    ],
    {Name, #shard{
        index = Index,
        broker = Broker,
        claim = weir_pubsub_shard_lock:new(),
        channels = Channels,
        messages = Messages,
        subscribers = {ByChannel, ByProcess, Polls},
        due = Due,
        requests = Requests,
        starts = atomics:new(1, [])
    }}.

%% @doc Removes all shards.
-spec clear() -> ok.
clear() ->
    _ = persistent_term:erase(?MODULE),
    ok.

%% @doc Returns the number of shards, 0 if there are none.
-spec count() -> non_neg_integer().
count() -> tuple_size(persistent_term:get(?MODULE, {})).

%% @doc Whether it can be the name of a channel. Names that begin with a zero byte are not for clients.
-spec is_channel(term()) -> boolean().
is_channel(<<First, _/binary>> = Name) -> First =/= 0 andalso byte_size(Name) =< ?LONGEST_NAME;
is_channel(_Name) -> false.

%% @doc The registered name of a shard.
-spec name(Index :: pos_integer()) -> atom().
name(Index) -> element(1, element(Index, persistent_term:get(?MODULE))).

%% @doc Returns the initial state of a shard: the names of its tables, and the claim on them.
-spec shard(Index :: pos_integer()) -> #shard{}.
shard(Index) -> element(2, element(Index, persistent_term:get(?MODULE))).

%% @doc Returns the initial state of the shard that serves a channel.
-spec of_channel(weir_pubsub:channel()) -> {ok, #shard{}} | {error, weir_pubsub:unavailable()}.
of_channel(Channel) ->
    case find(Channel) of
        {_, #shard{} = Shard} -> {ok, Shard};
        {error, _} = Error -> Error
    end.

%% @doc Returns the names of a shard's tables.
-spec tables(Index :: pos_integer()) -> tables().
tables(Index) -> of_shard(shard(Index)).

of_shard(#shard{channels = Channels, messages = Messages, subscribers = Subscribers}) ->
    {Channels, Messages, Subscribers}.

%% @doc Returns the tables of the shard that serves a channel.
-spec tables_of(weir_pubsub:channel()) -> {ok, tables()} | {error, weir_pubsub:unavailable()}.
tables_of(Channel) ->
    case of_channel(Channel) of
        {ok, Shard} -> {ok, of_shard(Shard)};
        {error, _} = Error -> Error
    end.

%% @doc Returns the tables of all shards.
-spec all() -> [tables()].
all() -> [of_shard(Shard) || {_, Shard} <- tuple_to_list(persistent_term:get(?MODULE, {}))].

find(Channel) ->
    case persistent_term:get(?MODULE, {}) of
        {} -> {error, {not_started, weir_pubsub}};
        Shards -> element(erlang:phash2(Channel, tuple_size(Shards)) + 1, Shards)
    end.

%% @doc Calls a function with the tables of a shard if the claim on them is free; returns `busy' if it is not. Only
%% for reactors. If the function fails, the shard is killed and loses its channels, because their tables may be
%% inconsistent.
-spec claimed(weir_pubsub:channel(), fun((#shard{}) -> Result)) -> Result | busy | {error, weir_pubsub:unavailable()}.
claimed(Channel, Fun) ->
    case find(Channel) of
        {Name, #shard{claim = Claim} = Shard} ->
            case weir_pubsub_shard_lock:try_take(Claim) of
                true ->
                    try
                        Fun(Shard)
                    catch
                        Class:Reason:Stack -> failed({Class, Reason, Stack}, Name, Shard)
                    after
                        weir_pubsub_shard_lock:release(Claim)
                    end;
                false ->
                    busy
            end;
        {error, _} = Error ->
            Error
    end.

%% Either the shard has died and its tables with it, or the next one has not made them yet; or the tables are
%% inconsistent, and the shard has to start over.
failed({Class, Reason, Stack}, Name, #shard{channels = Channels}) ->
    Pid = whereis(Name),
    case ets:info(Channels, owner) of
        Pid when is_pid(Pid) ->
            true = exit(Pid, kill),
            erlang:raise(Class, Reason, Stack);
        _ ->
            {error, unavailable}
    end.

%% @doc Calls the shard of a channel. With `again', for requests that may be made twice, it tries again while the
%% shard restarts. A shard drops a request whose caller has given up, so that callers who try again do not add to its
%% backlog.
-spec call(weir_pubsub:channel(), {once | again, Request :: term()}) -> term() | {error, weir_pubsub:unavailable()}.
call(Channel, Request) ->
    call(Channel, Request, ?CALL_MS, erlang:monotonic_time(millisecond) + ?CALL_MS).

call(Channel, {Mode, Request}, Left, Until) ->
    case find(Channel) of
        {Shard, #shard{}} ->
            try
                gen_server:call(Shard, {until, Until, Request}, Left)
            catch
                exit:{timeout, _} ->
                    {error, unavailable};
                exit:_ ->
                    case Until - ?RESTART_MS - erlang:monotonic_time(millisecond) of
                        Less when Mode =:= again, Less > 0 ->
                            timer:sleep(?RESTART_MS),
                            call(Channel, {Mode, Request}, Less, Until);
                        _ ->
                            {error, unavailable}
                    end
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Sends a request without waiting. The answer comes to the caller as a message like those of its subscriptions,
%% with `{answer, Answer}'. If the shard dies first, Answer is `{error, unavailable}', and it is unknown whether the
%% request took effect.
-spec send(weir_pubsub:channel(), Request :: term(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
send(Channel, Request, Tag) ->
    ask(ask, Channel, Request, Tag).

%% @doc Same as {@link send/3}, but only an error is sent to the caller.
-spec send_unless_ok(weir_pubsub:channel(), Request :: term(), Tag :: term()) ->
    ok | {error, weir_pubsub:unavailable()}.
send_unless_ok(Channel, Request, Tag) ->
    ask(ask_unless_ok, Channel, Request, Tag).

%% @doc Announces the end of the subscription with that tag, without an answer. If the shard dies first, or there is
%% none at the moment, the next one does not take the subscription over.
-spec tell(weir_pubsub:channel(), Request :: term(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
tell(Channel, Request, Tag) ->
    ask(tell, Channel, Request, Tag).

ask(How, Channel, Request, Tag) ->
    case find(Channel) of
        {Shard, #shard{requests = Requests}} ->
            try
                Key = weir_pubsub_requests:add(Requests, Channel, Tag),
                Sent = to(Shard, {'$gen_cast', {How, Request, Key}}),
                case Sent =:= ok orelse How =:= tell orelse weir_pubsub_requests:withdraw(Requests, Key) of
                    true -> Sent;
                    %% A shard that has started since then has answered it.
                    false -> ok
                end
            catch
                %% The application has stopped, and the table is gone.
                error:badarg -> {error, unavailable}
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Sends a request that has no answer.
-spec cast(weir_pubsub:channel(), Request :: term()) -> ok | {error, weir_pubsub:unavailable()}.
cast(Channel, Request) ->
    case find(Channel) of
        {Shard, #shard{}} -> to(Shard, {'$gen_cast', Request});
        {error, _} = Error -> Error
    end.

%% @doc Sends a request to all shards. A shard that is restarting does not get it.
-spec cast_all(Request :: term()) -> ok.
cast_all(Request) ->
    lists:foreach(
        fun({Shard, _}) -> to(Shard, {'$gen_cast', Request}) end, tuple_to_list(persistent_term:get(?MODULE, {}))
    ).

to(Shard, Message) ->
    try
        Shard ! Message,
        ok
    catch
        error:badarg -> {error, unavailable}
    end.
