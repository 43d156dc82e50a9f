%% @private
%% @doc Which process serves a channel: one of the shards, chosen by the channel's name.
%%
%% There is a shard for each scheduler that was online when the application started. Their number does not follow when schedulers
%% come and go, because then most channels, with their messages and subscribers, would belong to another shard. The VM runs the
%% shards, which are bound to no scheduler, where there is room.
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

%% What a channel may be called, as in Nchan.
-define(LONGEST_NAME, 1024).

%% How long a caller waits for a shard, and for one that is being restarted, in milliseconds.
-define(CALL_MS, 5000).
-define(RESTART_MS, 10).

%% @doc Sets how many there are, and where messages of other nodes come from.
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
        claim = weir_pubsub_claim:new(),
        channels = Channels,
        messages = Messages,
        subscribers = {ByChannel, ByProcess, Polls},
        due = Due,
        requests = Requests,
        starts = atomics:new(1, [])
    }}.

%% @doc There are none any more.
-spec clear() -> ok.
clear() ->
    _ = persistent_term:erase(?MODULE),
    ok.

%% @doc How many there are.
-spec count() -> non_neg_integer().
count() -> tuple_size(persistent_term:get(?MODULE, {})).

%% @doc Whether it can be the name of a channel. Those that begin with a zero byte are not for clients.
-spec is_channel(term()) -> boolean().
is_channel(<<First, _/binary>> = Name) -> First =/= 0 andalso byte_size(Name) =< ?LONGEST_NAME;
is_channel(_Name) -> false.

%% @doc The registered name of a shard.
-spec name(Index :: pos_integer()) -> atom().
name(Index) -> element(1, element(Index, persistent_term:get(?MODULE))).

%% @doc What a shard begins with: the names of its tables, and the claim on them.
-spec shard(Index :: pos_integer()) -> #shard{}.
shard(Index) -> element(2, element(Index, persistent_term:get(?MODULE))).

%% @doc The same for the shard of a channel.
-spec of_channel(weir_pubsub:channel()) -> {ok, #shard{}} | {error, weir_pubsub:unavailable()}.
of_channel(Channel) ->
    case find(Channel) of
        {_, #shard{} = Shard} -> {ok, Shard};
        {error, _} = Error -> Error
    end.

%% @doc The names of its tables.
-spec tables(Index :: pos_integer()) -> tables().
tables(Index) -> of_shard(shard(Index)).

of_shard(#shard{channels = Channels, messages = Messages, subscribers = Subscribers}) -> {Channels, Messages, Subscribers}.

%% @doc The tables in which a channel is, if it is.
-spec tables_of(weir_pubsub:channel()) -> {ok, tables()} | {error, weir_pubsub:unavailable()}.
tables_of(Channel) ->
    case of_channel(Channel) of
        {ok, Shard} -> {ok, of_shard(Shard)};
        {error, _} = Error -> Error
    end.

%% @doc The tables of all shards.
-spec all() -> [tables()].
all() -> [of_shard(Shard) || {_, Shard} <- tuple_to_list(persistent_term:get(?MODULE, {}))].

find(Channel) ->
    case persistent_term:get(?MODULE, {}) of
        {} -> {error, {not_started, weir_pubsub}};
        Shards -> element(erlang:phash2(Channel, tuple_size(Shards)) + 1, Shards)
    end.

%% @doc Does something in the tables of a shard, if nobody else has the claim on them just now. Only for reactors. A fun that fails costs
%% the shard its channels: nobody knows what is half done.
-spec claimed(weir_pubsub:channel(), fun((#shard{}) -> Result)) -> Result | busy | {error, weir_pubsub:unavailable()}.
claimed(Channel, Fun) ->
    case find(Channel) of
        {Name, #shard{claim = Claim} = Shard} ->
            case weir_pubsub_claim:try_take(Claim) of
                true ->
                    try
                        Fun(Shard)
                    catch
                        Class:Reason:Stack -> failed({Class, Reason, Stack}, Name, Shard)
                    after
                        weir_pubsub_claim:release(Claim)
                    end;
                false ->
                    busy
            end;
        {error, _} = Error ->
            Error
    end.

%% The shard has died and its tables go, or the next one has not made them yet; or they are not as they should be, and it begins anew.
failed({Class, Reason, Stack}, Name, #shard{channels = Channels}) ->
    Pid = whereis(Name),
    case ets:info(Channels, owner) of
        Pid when is_pid(Pid) ->
            true = exit(Pid, kill),
            erlang:raise(Class, Reason, Stack);
        _ ->
            {error, unavailable}
    end.

%% @doc Asks the shard of a channel. `again' is what a request may be that does no harm when it is made twice: it waits for a
%% shard that is restarted. A shard that comes to a request when its caller has given up leaves it out: who is told `unavailable' and tries
%% again does not add to what a shard is behind by.
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

%% @doc Asks, and has the answer sent to the caller, who does not wait: a message as its subscriptions get, with `{answer, Answer}'. If the
%% shard dies before, Answer is `{error, unavailable}', and nobody knows whether the request has had an effect.
-spec send(weir_pubsub:channel(), Request :: term(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
send(Channel, Request, Tag) ->
    ask(ask, Channel, Request, Tag).

%% @doc The same for a caller who need not know that it is done: only an error is sent to it.
-spec send_unless_ok(weir_pubsub:channel(), Request :: term(), Tag :: term()) -> ok | {error, weir_pubsub:unavailable()}.
send_unless_ok(Channel, Request, Tag) ->
    ask(ask_unless_ok, Channel, Request, Tag).

%% @doc Tells the end of the subscription with that tag, without an answer. If the shard dies before it hears that, or there is none just
%% now, the next one does not take the subscription over.
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
                    %% A shard that has begun meanwhile has answered it.
                    false -> ok
                end
            catch
                %% The application has stopped, and the table is gone.
                error:badarg -> {error, unavailable}
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Tells, without an answer.
-spec cast(weir_pubsub:channel(), Request :: term()) -> ok | {error, weir_pubsub:unavailable()}.
cast(Channel, Request) ->
    case find(Channel) of
        {Shard, #shard{}} -> to(Shard, {'$gen_cast', Request});
        {error, _} = Error -> Error
    end.

%% @doc Tells all shards. One that is being restarted does not hear it.
-spec cast_all(Request :: term()) -> ok.
cast_all(Request) ->
    lists:foreach(fun({Shard, _}) -> to(Shard, {'$gen_cast', Request}) end, tuple_to_list(persistent_term:get(?MODULE, {}))).

to(Shard, Message) ->
    try
        Shard ! Message,
        ok
    catch
        error:badarg -> {error, unavailable}
    end.
