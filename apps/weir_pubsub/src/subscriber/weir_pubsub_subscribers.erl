%% @private
%% @doc The subscribers of a shard's channels, as rows of tables.
%%
%% A subscriber is identified by its process and a tag, and is of one of four kinds. A `process' gets every message at
%% once. A `paced' process gets as many as its window allows, and more when it has confirmed those; its queue is the
%% history of the channel and a position in it. A `socket' gets messages from its audience; its process is notified of
%% the end. A `poll' waits in a crowd for one message; its reactor may insert it and delete it.
%%
%% One table has all kinds but polls, by channel, and one has the polls; both outlive the shard. A third has the keys
%% by process, for processes that die. Connections of a reactor are not in it: there are many of them, and when a
%% reactor dies, the whole table is scanned.
-module(weir_pubsub_subscribers).

-export([new/1]).
-export([open/1]).
-export([is_of_reactor/1]).
-export([add/4]).
-export([wait/3]).
-export([find/4]).
-export([update/4]).
-export([move/3]).
-export([remove/4]).
-export([of_channel/3]).
-export([of_process/2]).
-export([of_reactor/2]).
-export([polls_of/2]).
-export([tell/4]).
-export([message/3]).
-export([all/1]).
-export([forget/2]).

-export_type([subscribers/0, kind/0, subscriber/0]).

-include("weir_pubsub_subscriber.hrl").

-type kind() :: process | paced | poll | socket.

-type subscriber() :: #subscriber{}.

-type subscribers() :: {ByChannel :: ets:tab(), ByProcess :: ets:tab(), Polls :: ets:tab()}.

-define(KEY(Epoch, Kind, Pid, Tag), {Epoch, Kind, Pid, Tag}).

%% A row does not repeat what is in its key: ETS copies a term once for each place where it occurs.
-define(IN_KEY, in_key).

%% @doc Creates the tables that outlive shards. The caller owns them.
-spec new(subscribers()) -> ok.
new({ByChannel, _ByProcess, Polls}) ->
    Options = [named_table, public, {keypos, #subscriber.key}],
    %% Written only under the claim: no write_concurrency.
    ByChannel = ets:new(ByChannel, [ordered_set | Options]),
    %% A set: thousands of polls come and go with each message, and each costs the same. All reactors delete theirs at
    %% the same time.
    Polls = ets:new(Polls, [set, {write_concurrency, auto} | Options]),
    ok.

%% @doc Creates the table of a shard. The other tables may have rows of an earlier shard.
-spec open(subscribers()) -> ok.
open({_ByChannel, ByProcess, _Polls}) ->
    ByProcess = ets:new(ByProcess, [named_table, ordered_set, protected]),
    ok.

%% @doc Whether it is the tag of a connection in a reactor. A TLS connection has its own process.
-spec is_of_reactor(Tag :: term()) -> boolean().
is_of_reactor({weir_reactor, Socket, _Reference}) -> is_tuple(Socket) andalso element(1, Socket) =:= '$inet';
is_of_reactor(_Tag) -> false.

%% @doc Adds a subscriber, or replaces it.
-spec add(subscribers(), pos_integer(), kind(), subscriber()) -> ok.
add({ByChannel, ByProcess, _}, Epoch, Kind, #subscriber{pid = Pid, tag = Tag} = Subscriber) ->
    true = ets:insert(ByChannel, row(Subscriber#subscriber{key = ?KEY(Epoch, Kind, Pid, Tag)})),
    _ = is_of_reactor(Tag) orelse ets:insert(ByProcess, {{Pid, Epoch, Kind, Tag}}),
    ok.

row(#subscriber{tag = {weir_reactor, Socket, _}, socket = Socket} = Subscriber) ->
    Subscriber#subscriber{tag = ?IN_KEY, socket = ?IN_KEY};
row(Subscriber) ->
    Subscriber#subscriber{tag = ?IN_KEY}.

whole(#subscriber{key = ?KEY(_, _, _, {weir_reactor, Socket, _} = Tag), socket = ?IN_KEY} = Row) ->
    Row#subscriber{tag = Tag, socket = Socket};
whole(#subscriber{key = ?KEY(_, _, _, Tag)} = Row) ->
    Row#subscriber{tag = Tag}.

%% @doc Adds a poll, also from its reactor. It is found only by its row, so its key has a unique integer in place of
%% the tag.
-spec wait(subscribers(), pos_integer(), subscriber()) -> subscriber().
wait({_, _, Polls}, Epoch, #subscriber{pid = Pid} = Subscriber) ->
    Row = Subscriber#subscriber{key = ?KEY(Epoch, poll, Pid, erlang:unique_integer())},
    true = ets:insert(Polls, Row),
    Row.

%% @doc Returns a subscriber of any kind but a poll.
-spec find(subscribers(), pos_integer(), pid(), Tag :: term()) -> {kind(), subscriber()} | none.
find({ByChannel, _, _}, Epoch, Pid, Tag) ->
    find(ByChannel, Epoch, Pid, Tag, [process, paced, socket]).

find(ByChannel, Epoch, Pid, Tag, [Kind | Kinds]) ->
    case ets:lookup(ByChannel, ?KEY(Epoch, Kind, Pid, Tag)) of
        [Row] -> {Kind, whole(Row)};
        [] -> find(ByChannel, Epoch, Pid, Tag, Kinds)
    end;
find(_ByChannel, _Epoch, _Pid, _Tag, []) ->
    none.

%% @doc Sets the position and the credit of a paced subscriber.
-spec update(subscribers(), subscriber(), Position :: non_neg_integer(), Credit :: integer()) -> ok.
update({ByChannel, _, _}, #subscriber{key = Key}, Position, Credit) ->
    true = ets:update_element(ByChannel, Key, [{#subscriber.position, Position}, {#subscriber.credit, Credit}]),
    ok.

%% @doc Moves the subscribers of a channel to its new epoch.
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

%% @doc Removes a subscriber.
-spec remove(subscribers(), pos_integer(), kind(), {pid(), Tag :: term()}) -> ok.
remove({ByChannel, ByProcess, _}, Epoch, Kind, {Pid, Tag}) ->
    true = ets:delete(ByChannel, ?KEY(Epoch, Kind, Pid, Tag)),
    _ = is_of_reactor(Tag) orelse ets:delete(ByProcess, {Pid, Epoch, Kind, Tag}),
    ok.

%% @doc Returns the subscribers of one kind of a channel. For polls it scans the table of all polls.
-spec of_channel(subscribers(), pos_integer(), kind()) -> [subscriber()].
of_channel({_, _, Polls}, Epoch, poll) ->
    select(Polls, ?KEY(Epoch, poll, '_', '_'));
of_channel({ByChannel, _, _}, Epoch, Kind) ->
    %% Mostly there are none of a kind, and ets:next/2 costs less than a selection.
    case ets:next(ByChannel, ?KEY(Epoch, Kind, 0, 0)) of
        ?KEY(Epoch, Kind, _, _) -> [whole(Row) || Row <- select(ByChannel, ?KEY(Epoch, Kind, '_', '_'))];
        _ -> []
    end.

select(Table, Key) ->
    ets:select(Table, [{#subscriber{key = Key, _ = '_'}, [], ['$_']}]).

%% @doc Returns the subscriptions of a process, but not those of its connections if it is a reactor.
-spec of_process(subscribers(), pid()) -> [{kind(), subscriber()}].
of_process({ByChannel, ByProcess, _}, Pid) ->
    Keys = ets:select(ByProcess, [{{{Pid, '$1', '$2', '$3'}}, [], [{{'$1', '$2', '$3'}}]}]),
    [{Kind, whole(Row)} || {Epoch, Kind, Tag} <- Keys, Row <- ets:lookup(ByChannel, ?KEY(Epoch, Kind, Pid, Tag))].

%% @doc Returns the subscriptions of a reactor's connections, but not polls. Scans the whole table.
-spec of_reactor(subscribers(), pid()) -> [{kind(), subscriber()}].
of_reactor({ByChannel, _, _}, Pid) ->
    [
        {Kind, whole(Row)}
     || #subscriber{key = ?KEY(_, Kind, _, Tag)} = Row <- select(ByChannel, ?KEY('_', '_', Pid, '_')),
        is_of_reactor(Tag)
    ].

%% @doc Returns the polls of a reactor. Scans the whole table.
-spec polls_of(subscribers(), pid()) -> [subscriber()].
polls_of({_, _, Polls}, Pid) ->
    select(Polls, ?KEY('_', poll, Pid, '_')).

%% @doc Sends a message to all subscribers of kind `process' of a channel. Walking the keys copies less than a
%% selection.
-spec tell(subscribers(), pos_integer(), weir_pubsub:channel(), term()) -> ok.
tell({ByChannel, _, _}, Epoch, Name, What) ->
    tell_after(ets:next(ByChannel, ?KEY(Epoch, process, 0, 0)), ByChannel, Epoch, Name, What).

tell_after(?KEY(Epoch, process, Pid, Tag) = Key, ByChannel, Epoch, Name, What) ->
    Pid ! message(Tag, Name, What),
    tell_after(ets:next(ByChannel, Key), ByChannel, Epoch, Name, What);
tell_after(_Other, _ByChannel, _Epoch, _Name, _What) ->
    ok.

%% @doc Returns the message for a process. In a reactor the first element identifies the connection, and the reference
%% after it the subscription, because the connection may have had another one before.
-spec message(Tag :: term(), weir_pubsub:channel(), What :: term()) -> tuple().
message({weir_reactor, Socket, Reference}, Name, What) -> {{weir_reactor, Socket}, Reference, Name, What};
message(Tag, Name, What) -> {Tag, Name, What}.

%% @doc Returns all subscribers, of any channel and kind.
-spec all(subscribers()) -> [{kind(), subscriber()}].
all({ByChannel, _, Polls}) ->
    [{Kind, whole(Row)} || #subscriber{key = ?KEY(_, Kind, _, _)} = Row <- ets:tab2list(ByChannel)] ++
        [{poll, Row} || Row <- ets:tab2list(Polls)].

%% @doc Deletes a poll, or a row of an earlier shard.
-spec forget(subscribers(), subscriber()) -> ok.
forget({_, _, Polls}, #subscriber{key = ?KEY(_, poll, _, _) = Key}) ->
    true = ets:delete(Polls, Key),
    ok;
forget({ByChannel, _, _}, #subscriber{key = Key}) ->
    true = ets:delete(ByChannel, Key),
    ok.
