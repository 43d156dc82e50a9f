%% @doc How much there may be, in a group of channels and in all: each shard counts its own part, and all see the sum.
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
%% Channels, subscribers, messages that are kept, and their bytes. What is not named has no limit.

-type groups() :: #{group() => {atomics:atomics_ref(), Limits :: tuple()}}.

-define(KINDS, 4).

%% Of each shard: one line of the processor's cache.
-define(WORDS, (2 * ?KINDS)).

%% @private
%% @doc What can be limited.
-spec kinds() -> [kind()].
kinds() -> [channels, subscribers, messages, bytes].

index(channels) -> 1;
index(subscribers) -> 2;
index(messages) -> 3;
index(bytes) -> 4.

%% @private
%% @doc Whether it may be a limit.
-spec allowed(term()) -> true | string().
allowed(Limit) ->
    Limit =:= infinity orelse (is_integer(Limit) andalso Limit >= 0) orelse "an integer from 0 on, or infinity".

%% @private
%% @doc Groups with their limits. The counts of groups that were there before go on, also of those that nobody names any more: channels may
%% be in them.
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
%% @doc Counts more of a kind in a group and in all, if both have room for it. `Shard' is the number of the caller's shard.
-spec take(Shard :: pos_integer(), binary(), kind(), pos_integer()) -> ok | {error, {limit, kind(), group(), non_neg_integer()}}.
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

%% First reserved, then looked at: of two shards that ask at once the later one sees what the other has reserved or counted. Both may be
%% refused, but never both be let in.
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

%% Counted before it is reserved no more, and looked at the other way round: nothing is between the two.
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
%% @doc Counts fewer.
-spec give_back(Shard :: pos_integer(), binary(), kind(), non_neg_integer()) -> ok.
give_back(Shard, Group, Kind, Amount) ->
    All = now_groups(),
    ok = add(Shard, Group, Kind, -Amount, All),
    add(Shard, total, Kind, -Amount, All).

add(Shard, Group, Kind, Amount, All) ->
    #{Group := {Counts, _}} = All,
    atomics:add(Counts, counted(Shard, index(Kind)), Amount).

%% Of each shard what is counted, and what is reserved. Before the first one: how often something was counted more that has a limit.
counted(Shard, Index) -> Shard * ?WORDS + Index.

reserved(Shard, Index) -> Shard * ?WORDS + ?KINDS + Index.

with_reserved(_Counts, _Index, 0, Sum) ->
    Sum;
with_reserved(Counts, Index, Shard, Sum) ->
    Reserved = atomics:get(Counts, reserved(Shard, Index)),
    with_reserved(Counts, Index, Shard - 1, Sum + Reserved + atomics:get(Counts, counted(Shard, Index))).

%% @private
%% @doc Counts more of some kinds and fewer of others, all or none of them.
-spec change(Shard :: pos_integer(), binary(), [{kind(), integer()}]) -> ok | {error, {limit, kind(), group(), non_neg_integer()}}.
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
%% @doc What was counted in one group counts in another.
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
%% @doc A shard begins anew, with nothing.
-spec clear(Shard :: pos_integer()) -> ok.
clear(Shard) ->
    maps:foreach(
        fun(_, {Counts, _}) -> [atomics:put(Counts, Shard * ?WORDS + Word, 0) || Word <- lists:seq(1, ?WORDS)] end, now_groups()
    ).

%% @doc What there is in a group, or in all (`total').
-spec usage(group()) -> {ok, #{kind() => non_neg_integer()}} | {error, {no_group, group()}}.
usage(Group) ->
    case now_groups() of
        #{Group := {Counts, _}} -> {ok, maps:from_list([{Kind, used(Counts, index(Kind))} || Kind <- kinds()])};
        #{} -> {error, {no_group, Group}}
    end.

%% Something may be counted less in one shard when it was looked at, and in its place more in another that was not. Then it is looked at again.
used(Counts, Index) ->
    Times = atomics:get(Counts, Index),
    Sum = lists:sum([atomics:get(Counts, counted(Shard, Index)) || Shard <- lists:seq(1, weir_pubsub_shards:count())]),
    case atomics:get(Counts, Index) of
        Times -> Sum;
        _ -> used(Counts, Index)
    end.
