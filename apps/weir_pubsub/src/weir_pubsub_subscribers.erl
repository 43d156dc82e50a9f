%% @private
%% @doc The subscribers of a shard's channels, as rows of tables.
%%
%% A subscriber is known by its process and a tag, and is of one of four kinds. A `process' gets every message at once. A `paced' process
%% gets as many as it has said, and the others when it has taken those: what waits for it is the history of the channel and a position in
%% it. A `socket' gets nothing from here: its audience writes to it, and its process is told of the end. A `poll' waits in a crowd for one
%% message; its reactor may put it in and take it out.
%%
%% One table has all kinds but polls, by channel, and one the polls; both outlive the shard. A third has the keys by process, of a process
%% that dies. Connections of a reactor are not in it: there are many of them, and a reactor that dies is worth a walk over all.
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

%% What stands in the key of a row stands nowhere else in it: a table copies a term as often as it is there.
-define(IN_KEY, in_key).

%% @doc The tables that outlive shards, owned by the caller.
-spec new(subscribers()) -> ok.
new({ByChannel, _ByProcess, Polls}) ->
    Options = [named_table, public, {keypos, #subscriber.key}],
    %% Written under the claim.
    ByChannel = ets:new(ByChannel, [ordered_set | Options]),
    %% No order: thousands come and go with each message, and each costs the same. All reactors take theirs out at the same time.
    Polls = ets:new(Polls, [set, {write_concurrency, auto} | Options]),
    ok.

%% @doc Makes the table of a shard. What the others hold is of an earlier shard.
-spec open(subscribers()) -> ok.
open({_ByChannel, ByProcess, _Polls}) ->
    ByProcess = ets:new(ByProcess, [named_table, ordered_set, protected]),
    ok.

%% @doc Whether that is the tag of a connection in a reactor. One of TLS has a process of its own.
-spec is_of_reactor(Tag :: term()) -> boolean().
is_of_reactor({weir_reactor, Socket, _Reference}) -> is_tuple(Socket) andalso element(1, Socket) =:= '$inet';
is_of_reactor(_Tag) -> false.

%% @doc Adds one, or puts another in its place.
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

%% @doc Adds a poll, also from its reactor. It is found by its row alone, so a number does for its tag.
-spec wait(subscribers(), pos_integer(), subscriber()) -> subscriber().
wait({_, _, Polls}, Epoch, #subscriber{pid = Pid} = Subscriber) ->
    Row = Subscriber#subscriber{key = ?KEY(Epoch, poll, Pid, erlang:unique_integer())},
    true = ets:insert(Polls, Row),
    Row.

%% @doc A subscriber of any kind but a poll.
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

%% @doc Says how far a paced one is.
-spec update(subscribers(), subscriber(), Position :: non_neg_integer(), Credit :: integer()) -> ok.
update({ByChannel, _, _}, #subscriber{key = Key}, Position, Credit) ->
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
remove({ByChannel, ByProcess, _}, Epoch, Kind, {Pid, Tag}) ->
    true = ets:delete(ByChannel, ?KEY(Epoch, Kind, Pid, Tag)),
    _ = is_of_reactor(Tag) orelse ets:delete(ByProcess, {Pid, Epoch, Kind, Tag}),
    ok.

%% @doc Those of one kind of a channel. For polls it goes through all there are.
-spec of_channel(subscribers(), pos_integer(), kind()) -> [subscriber()].
of_channel({_, _, Polls}, Epoch, poll) ->
    select(Polls, ?KEY(Epoch, poll, '_', '_'));
of_channel({ByChannel, _, _}, Epoch, Kind) ->
    %% Mostly there are none of a kind, and a selection costs more than a look.
    case ets:next(ByChannel, ?KEY(Epoch, Kind, 0, 0)) of
        ?KEY(Epoch, Kind, _, _) -> [whole(Row) || Row <- select(ByChannel, ?KEY(Epoch, Kind, '_', '_'))];
        _ -> []
    end.

select(Table, Key) ->
    ets:select(Table, [{#subscriber{key = Key, _ = '_'}, [], ['$_']}]).

%% @doc What a process subscribes to, but as a reactor.
-spec of_process(subscribers(), pid()) -> [{kind(), subscriber()}].
of_process({ByChannel, ByProcess, _}, Pid) ->
    Keys = ets:select(ByProcess, [{{{Pid, '$1', '$2', '$3'}}, [], [{{'$1', '$2', '$3'}}]}]),
    [{Kind, whole(Row)} || {Epoch, Kind, Tag} <- Keys, Row <- ets:lookup(ByChannel, ?KEY(Epoch, Kind, Pid, Tag))].

%% @doc What connections of a reactor subscribe to, but polls. Goes through the whole table.
-spec of_reactor(subscribers(), pid()) -> [{kind(), subscriber()}].
of_reactor({ByChannel, _, _}, Pid) ->
    [
        {Kind, whole(Row)}
     || #subscriber{key = ?KEY(_, Kind, _, Tag)} = Row <- select(ByChannel, ?KEY('_', '_', Pid, '_')), is_of_reactor(Tag)
    ].

%% @doc The polls of a reactor. Goes through the whole table.
-spec polls_of(subscribers(), pid()) -> [subscriber()].
polls_of({_, _, Polls}, Pid) ->
    select(Polls, ?KEY('_', poll, Pid, '_')).

%% @doc Sends something to all of kind `process' of a channel. A walk over keys alone copies less than a selection.
-spec tell(subscribers(), pos_integer(), weir_pubsub:channel(), term()) -> ok.
tell({ByChannel, _, _}, Epoch, Name, What) ->
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
all({ByChannel, _, Polls}) ->
    [{Kind, whole(Row)} || #subscriber{key = ?KEY(_, Kind, _, _)} = Row <- ets:tab2list(ByChannel)] ++
        [{poll, Row} || Row <- ets:tab2list(Polls)].

%% @doc Takes out a poll, or one that was found in the table of an earlier shard.
-spec forget(subscribers(), subscriber()) -> ok.
forget({_, _, Polls}, #subscriber{key = ?KEY(_, poll, _, _) = Key}) ->
    true = ets:delete(Polls, Key),
    ok;
forget({ByChannel, _, _}, #subscriber{key = Key}) ->
    true = ets:delete(ByChannel, Key),
    ok.
