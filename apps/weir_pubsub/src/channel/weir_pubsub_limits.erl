%% @doc Limits of channels, in a group and in total. Each shard counts its own part; a limit holds for the sum.
-module(weir_pubsub_limits).

-include("weir_pubsub.hrl").

-export([kinds/0]).
-export([allowed/1]).
-export([groups/4]).
-export([take/4]).
-export([admits/3]).
-export([give_back/4]).
-export([change/3]).
-export([move/4]).
-export([clear/1]).
-export([usage/1]).

-export_type([limits/0, groups/0, kind/0, group/0]).

-type kind() :: channels | subscribers | messages | bytes.

-type group() :: binary() | total.

-type limits() :: #{kind() => non_neg_integer() | infinity}.
%% Channels, subscribers, messages that are kept, and their bytes. A kind that is not named has no limit.

-type groups() :: #{group() => {atomics:atomics_ref(), Limits :: tuple()}}.

-define(KINDS, 4).

%% Words for each shard: one cache line.
-define(WORDS, (2 * ?KINDS)).

%% @private
%% @doc Returns the kinds.
-spec kinds() -> [kind()].
kinds() -> [channels, subscribers, messages, bytes].

index(channels) -> 1;
index(subscribers) -> 2;
index(messages) -> 3;
index(bytes) -> 4.

%% @private
%% @doc Whether a term is a limit.
-spec allowed(term()) -> true | string().
allowed(Limit) ->
    Limit =:= infinity orelse (is_integer(Limit) andalso Limit >= 0) orelse "an integer from 0 on, or infinity".

%% @private
%% @doc Returns groups with their limits. The counts of groups that existed before are kept, also of groups that are
%% no longer named, because channels may be counted in them.
-spec groups(limits(), #{binary() => limits()}, Used :: [binary()], Before :: groups()) -> groups().
groups(Total, Groups, Used, Before) ->
    Names = lists:usort([total | maps:keys(Groups) ++ Used ++ maps:keys(Before)]),
    Limits = Groups#{total => Total},
    maps:from_list([{Name, entry(Name, Before, Limits)} || Name <- Names]).

entry(Name, Before, Limits) ->
    Counts =
        case Before of
            #{Name := {Kept, _}} -> Kept;
            %% There may be more shards when the application is started again.
            #{} -> atomics:new(?WORDS * (erlang:system_info(schedulers) + 1), [])
        end,
    Given = maps:get(Name, Limits, #{}),
    {Counts, list_to_tuple([maps:get(Kind, Given, infinity) || Kind <- kinds()])}.

now_groups() ->
    #configuration{groups = Groups} = weir_pubsub_configuration:current(),
    Groups.

%% @private
%% @doc Adds to the count of a kind in a group and in total, if both have room. `Shard' is the number of the caller's
%% shard.
-spec take(Shard :: pos_integer(), binary(), kind(), pos_integer()) ->
    ok | {error, {limit, kind(), group(), non_neg_integer()}}.
take(Shard, Group, Kind, Amount) -> take(Shard, Group, Kind, Amount, fun commit/4).

%% @private
%% @doc Whether there is room for one more.
-spec admits(Shard :: pos_integer(), binary(), kind()) -> boolean().
admits(Shard, Group, Kind) -> take(Shard, Group, Kind, 1, fun cancel/4) =:= ok.

take(Shard, Group, Kind, Amount, End) ->
    #{Group := Own, total := Total} = now_groups(),
    Index = index(Kind),
    case reserve(Shard, Index, Amount, Own) of
        ok ->
            case reserve(Shard, Index, Amount, Total) of
                ok ->
                    ok = End(Shard, Index, Amount, Own),
                    End(Shard, Index, Amount, Total);
                {full, Limit} ->
                    ok = cancel(Shard, Index, Amount, Own),
                    {error, {limit, Kind, total, Limit}}
            end;
        {full, Limit} ->
            {error, {limit, Kind, Group, Limit}}
    end.

%% Reserve first, then compare: of two shards that do so at the same time, the later one sees what the other has
%% reserved or counted. Both may be refused, but they cannot exceed the limit together.
reserve(Shard, Index, Amount, {Counts, Limits}) ->
    case element(Index, Limits) of
        infinity ->
            ok;
        Limit ->
            ok = atomics:add(Counts, reserved(Shard, Index), Amount),
            case with_reserved(Counts, Index, weir_pubsub_shards:count(), 0) > Limit of
                true ->
                    ok = atomics:sub(Counts, reserved(Shard, Index), Amount),
                    {full, Limit};
                false ->
                    ok
            end
    end.

%% Add to the count before the reservation is removed. Readers read them in the opposite order, so they never miss the
%% amount.
commit(Shard, Index, Amount, {Counts, Limits}) ->
    case element(Index, Limits) of
        infinity ->
            atomics:add(Counts, counted(Shard, Index), Amount);
        _ ->
            ok = atomics:add(Counts, Index, 1),
            ok = atomics:add(Counts, counted(Shard, Index), Amount),
            atomics:sub(Counts, reserved(Shard, Index), Amount)
    end.

cancel(Shard, Index, Amount, {Counts, Limits}) ->
    case element(Index, Limits) of
        infinity -> ok;
        _ -> atomics:sub(Counts, reserved(Shard, Index), Amount)
    end.

%% @private
%% @doc Subtracts from the count of a kind.
-spec give_back(Shard :: pos_integer(), binary(), kind(), non_neg_integer()) -> ok.
give_back(Shard, Group, Kind, Amount) ->
    All = now_groups(),
    ok = add(Shard, Group, Kind, -Amount, All),
    add(Shard, total, Kind, -Amount, All).

add(Shard, Group, Kind, Amount, All) ->
    #{Group := {Counts, _}} = All,
    atomics:add(Counts, counted(Shard, index(Kind)), Amount).

%% Words of a shard: its counts, then its reservations. Words 1 to 4 come before those of shard 1: how often a limited
%% kind was increased.
counted(Shard, Index) -> Shard * ?WORDS + Index.

reserved(Shard, Index) -> Shard * ?WORDS + ?KINDS + Index.

with_reserved(_Counts, _Index, 0, Sum) ->
    Sum;
with_reserved(Counts, Index, Shard, Sum) ->
    Reserved = atomics:get(Counts, reserved(Shard, Index)),
    with_reserved(Counts, Index, Shard - 1, Sum + Reserved + atomics:get(Counts, counted(Shard, Index))).

%% @private
%% @doc Changes the counts of several kinds, all or none.
-spec change(Shard :: pos_integer(), binary(), [{kind(), integer()}]) ->
    ok | {error, {limit, kind(), group(), non_neg_integer()}}.
change(Shard, Group, [{Kind, Amount} | Others]) when Amount > 0 ->
    case take(Shard, Group, Kind, Amount) of
        ok ->
            case change(Shard, Group, Others) of
                ok ->
                    ok;
                {error, _} = Error ->
                    ok = give_back(Shard, Group, Kind, Amount),
                    Error
            end;
        {error, _} = Error ->
            Error
    end;
change(Shard, Group, [{Kind, Amount} | Others]) ->
    case change(Shard, Group, Others) of
        ok when Amount < 0 -> give_back(Shard, Group, Kind, -Amount);
        Result -> Result
    end;
change(_Shard, _Group, []) ->
    ok.

%% @private
%% @doc Moves counts from one group to another.
-spec move(Shard :: pos_integer(), Before :: binary(), Now :: binary(), [{kind(), non_neg_integer()}]) -> ok.
move(_Shard, Same, Same, _Usage) ->
    ok;
move(Shard, Before, Now, Usage) ->
    All = now_groups(),
    lists:foreach(
        fun({Kind, Amount}) ->
            ok = add(Shard, Before, Kind, -Amount, All),
            ok = add(Shard, Now, Kind, Amount, All)
        end,
        Usage
    ).

%% @private
%% @doc Resets the counts of a shard that starts.
-spec clear(Shard :: pos_integer()) -> ok.
clear(Shard) ->
    maps:foreach(
        fun(_, {Counts, _}) -> [atomics:put(Counts, Shard * ?WORDS + Word, 0) || Word <- lists:seq(1, ?WORDS)] end,
        now_groups()
    ).

%% @doc Returns how much a group uses, or all channels (`total').
-spec usage(group()) -> {ok, #{kind() => non_neg_integer()}} | {error, {no_group, group()}}.
usage(Group) ->
    case now_groups() of
        #{Group := {Counts, _}} -> {ok, maps:from_list([{Kind, used(Counts, index(Kind))} || Kind <- kinds()])};
        #{} -> {error, {no_group, Group}}
    end.

%% Between the reads of two shards, the first may have given back what the second then took, and the sum would be too
%% large. If anything was added in between, read again.
used(Counts, Index) ->
    Times = atomics:get(Counts, Index),
    Sum = lists:sum([atomics:get(Counts, counted(Shard, Index)) || Shard <- lists:seq(1, weir_pubsub_shards:count())]),
    case atomics:get(Counts, Index) of
        Times -> Sum;
        _ -> used(Counts, Index)
    end.
