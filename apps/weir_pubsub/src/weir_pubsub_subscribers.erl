%% @private
%% @doc The subscribers of a shard's channels, as rows of two tables: by channel, which outlives the shard, and by process.
%%
%% A subscriber is known by its process and a tag, and is of one of four kinds. A `process' gets every message at once. A `paced' process
%% gets as many as it has said, and the others when it has taken those: what waits for it is the history of the channel and a position in
%% it. A `socket' gets nothing from here: its audience writes to it, and its process is told of the end. A `poll' waits in a crowd for one
%% message; it is in the first table only, which its reactor may change.
-module(weir_pubsub_subscribers).

-export([new/1]).
-export([open/1]).
-export([add/4]).
-export([wait/3]).
-export([find/4]).
-export([update/4]).
-export([move/3]).
-export([remove/4]).
-export([of_channel/3]).
-export([of_process/2]).
-export([polls_of/2]).
-export([tell/4]).
-export([message/3]).
-export([all/1]).
-export([forget/2]).

-export_type([subscribers/0, kind/0, subscriber/0]).

-include("weir_pubsub_subscriber.hrl").

-type kind() :: process | paced | poll | socket.

-type subscriber() :: #subscriber{}.

-type subscribers() :: {ByChannel :: ets:tab(), ByProcess :: ets:tab()}.

-define(KEY(Epoch, Kind, Pid, Tag), {Epoch, Kind, Pid, Tag}).

%% @doc The table that outlives shards, owned by the caller.
-spec new(atom()) -> ets:tab().
new(Name) ->
    ets:new(Name, [named_table, ordered_set, public, {keypos, #subscriber.key}]).

%% @doc Makes the second table, for a shard. What the first one holds is of an earlier shard.
-spec open(subscribers()) -> ok.
open({_ByChannel, ByProcess}) ->
    ByProcess = ets:new(ByProcess, [named_table, ordered_set, protected]),
    ok.

%% @doc Adds one, or puts another in its place.
-spec add(subscribers(), pos_integer(), kind(), subscriber()) -> ok.
add({ByChannel, ByProcess}, Epoch, Kind, #subscriber{pid = Pid, tag = Tag} = Subscriber) ->
    true = ets:insert(ByChannel, Subscriber#subscriber{key = ?KEY(Epoch, Kind, Pid, Tag)}),
    true = ets:insert(ByProcess, {{Pid, Epoch, Kind, Tag}, Subscriber#subscriber.name}),
    ok.

%% @doc Adds a poll, also from its reactor. It is found by its row alone, so a number does for its tag: thousands are compared in the
%% table each time that one comes or goes, and those that come later are beside each other.
-spec wait(subscribers(), pos_integer(), subscriber()) -> subscriber().
wait({ByChannel, _}, Epoch, #subscriber{pid = Pid} = Subscriber) ->
    Row = Subscriber#subscriber{key = ?KEY(Epoch, poll, Pid, erlang:unique_integer())},
    true = ets:insert(ByChannel, Row),
    Row.

%% @doc A subscriber of any kind but a poll.
-spec find(subscribers(), pos_integer(), pid(), Tag :: term()) -> {kind(), subscriber()} | none.
find({ByChannel, _}, Epoch, Pid, Tag) ->
    find(ByChannel, Epoch, Pid, Tag, [process, paced, socket]).

find(ByChannel, Epoch, Pid, Tag, [Kind | Kinds]) ->
    case ets:lookup(ByChannel, ?KEY(Epoch, Kind, Pid, Tag)) of
        [Subscriber] -> {Kind, Subscriber};
        [] -> find(ByChannel, Epoch, Pid, Tag, Kinds)
    end;
find(_ByChannel, _Epoch, _Pid, _Tag, []) ->
    none.

%% @doc Says how far a paced one is.
-spec update(subscribers(), subscriber(), Position :: non_neg_integer(), Credit :: integer()) -> ok.
update({ByChannel, _}, #subscriber{key = Key}, Position, Credit) ->
    true = ets:update_element(ByChannel, Key, [{#subscriber.position, Position}, {#subscriber.credit, Credit}]),
    ok.

%% @doc Those of a channel that has another epoch now.
-spec move(subscribers(), Before :: pos_integer(), Now :: pos_integer()) -> ok.
move(_Subscribers, Same, Same) ->
    ok;
move(Subscribers, Before, Now) ->
    lists:foreach(
        fun(Kind) ->
            lists:foreach(
                fun(#subscriber{pid = Pid, tag = Tag} = Subscriber) ->
                    ok = add(Subscribers, Now, Kind, Subscriber),
                    remove(Subscribers, Before, Kind, {Pid, Tag})
                end,
                of_channel(Subscribers, Before, Kind)
            )
        end,
        [process, paced, socket]
    ).

%% @doc Takes one out.
-spec remove(subscribers(), pos_integer(), kind(), {pid(), Tag :: term()}) -> ok.
remove({ByChannel, ByProcess}, Epoch, Kind, {Pid, Tag}) ->
    true = ets:delete(ByChannel, ?KEY(Epoch, Kind, Pid, Tag)),
    true = ets:delete(ByProcess, {Pid, Epoch, Kind, Tag}),
    ok.

%% @doc Those of one kind of a channel.
-spec of_channel(subscribers() | ets:tab(), pos_integer(), kind()) -> [subscriber()].
of_channel({ByChannel, _}, Epoch, Kind) ->
    of_channel(ByChannel, Epoch, Kind);
of_channel(ByChannel, Epoch, Kind) ->
    %% Mostly there are none of a kind, and a selection costs more than a look.
    case ets:next(ByChannel, ?KEY(Epoch, Kind, 0, 0)) of
        ?KEY(Epoch, Kind, _, _) -> select(ByChannel, Epoch, Kind);
        _ -> []
    end.

select(ByChannel, Epoch, Kind) ->
    ets:select(ByChannel, [{#subscriber{key = ?KEY(Epoch, Kind, '_', '_'), _ = '_'}, [], ['$_']}]).

%% @doc What a process subscribes to.
-spec of_process(subscribers(), pid()) -> [{pos_integer(), kind(), Tag :: term(), weir_pubsub:channel()}].
of_process({_, ByProcess}, Pid) ->
    ets:select(ByProcess, [{{{Pid, '$1', '$2', '$3'}, '$4'}, [], [{{'$1', '$2', '$3', '$4'}}]}]).

%% @doc The polls of a reactor. Goes through the whole table.
-spec polls_of(subscribers(), pid()) -> [subscriber()].
polls_of({ByChannel, _}, Pid) ->
    ets:select(ByChannel, [{#subscriber{key = ?KEY('_', poll, Pid, '_'), _ = '_'}, [], ['$_']}]).

%% @doc Sends something to all of kind `process' of a channel. A walk over keys alone copies less than a selection.
-spec tell(subscribers(), pos_integer(), weir_pubsub:channel(), term()) -> ok.
tell({ByChannel, _}, Epoch, Name, What) ->
    tell_after(ets:next(ByChannel, ?KEY(Epoch, process, 0, 0)), ByChannel, Epoch, Name, What).

tell_after(?KEY(Epoch, process, Pid, Tag) = Key, ByChannel, Epoch, Name, What) ->
    Pid ! message(Tag, Name, What),
    tell_after(ets:next(ByChannel, Key), ByChannel, Epoch, Name, What);
tell_after(_Other, _ByChannel, _Epoch, _Name, _What) ->
    ok.

%% @doc What a process gets. A connection of a reactor is found by the first element, and has a reference behind it, since it may have had
%% another subscription before.
-spec message(Tag :: term(), weir_pubsub:channel(), What :: term()) -> tuple().
message({weir_reactor, Socket, Reference}, Name, What) -> {{weir_reactor, Socket}, Reference, Name, What};
message(Tag, Name, What) -> {Tag, Name, What}.

%% @doc All that there are, of any channel and kind.
-spec all(subscribers()) -> [{kind(), subscriber()}].
all({ByChannel, _}) ->
    [{Kind, Row} || #subscriber{key = ?KEY(_, Kind, _, _)} = Row <- ets:tab2list(ByChannel)].

%% @doc Takes out a poll, or one that was found in the table of an earlier shard.
-spec forget(subscribers(), subscriber()) -> ok.
forget({ByChannel, _}, #subscriber{key = Key}) ->
    true = ets:delete(ByChannel, Key),
    ok.
