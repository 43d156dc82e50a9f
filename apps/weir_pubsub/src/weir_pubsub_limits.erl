%% @doc How much there may be, in a group of channels and in all: each shard counts its own part, and all see the sum.
-module(weir_pubsub_limits).

-export([kinds/0]).
-export([allowed/1]).
-export([configure/3]).
-export([take/4]).
-export([give_back/4]).
-export([change/3]).
-export([move/4]).
-export([clear/1]).
-export([usage/1]).

-export_type([limits/0, kind/0, group/0]).

-type kind() :: channels | subscribers | messages | bytes.

-type group() :: binary() | total.

-type limits() :: #{kind() => non_neg_integer() | infinity}.
%% Channels, subscribers, messages that are kept, and their bytes. What is not named has no limit.

-define(KINDS, 4).

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
%% @doc Sets limits. The counts of groups that were there before go on, also of those that nobody names any more: channels may be in them.
-spec configure(limits(), #{binary() => limits()}, Used :: [binary()]) -> ok.
configure(Total, Groups, Used) ->
    Before = persistent_term:get(?MODULE, #{}),
    Names = lists:usort([total | maps:keys(Groups) ++ Used ++ maps:keys(Before)]),
    Limits = Groups#{total => Total},
    persistent_term:put(?MODULE, maps:from_list([{Name, entry(Name, Before, Limits)} || Name <- Names])).

entry(Name, Before, Limits) ->
    Counts =
        case Before of
            #{Name := {Kept, _}} -> Kept;
            #{} -> atomics:new(?KINDS * (erlang:system_info(schedulers) + 1), [])
        end,
    Given = maps:get(Name, Limits, #{}),
    {Counts, list_to_tuple([maps:get(Kind, Given, infinity) || Kind <- kinds()])}.

%% @private
%% @doc Counts more of a kind in a group and in all, if both have room for it. `Shard' is the number of the caller's shard.
-spec take(Shard :: pos_integer(), binary(), kind(), non_neg_integer()) -> ok | {error, {limit, kind(), group(), non_neg_integer()}}.
take(Shard, Group, Kind, Amount) ->
    All = persistent_term:get(?MODULE),
    case take(Shard, Group, Kind, Amount, All) of
        ok ->
            case take(Shard, total, Kind, Amount, All) of
                ok ->
                    ok;
                {error, _} = Error ->
                    add(Shard, Group, Kind, -Amount, All),
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

%% First counted, then looked at: two shards that ask at once may both be refused, but never both be let in.
take(Shard, Group, Kind, Amount, All) ->
    #{Group := {Counts, Limits}} = All,
    Index = index(Kind),
    ok = atomics:add(Counts, slot(Shard, Index), Amount),
    case element(Index, Limits) of
        infinity ->
            ok;
        Limit ->
            case sum(Counts, Index) > Limit of
                true when Amount > 0 ->
                    ok = atomics:sub(Counts, slot(Shard, Index), Amount),
                    {error, {limit, Kind, Group, Limit}};
                _ ->
                    ok
            end
    end.

%% @private
%% @doc Counts fewer.
-spec give_back(Shard :: pos_integer(), binary(), kind(), non_neg_integer()) -> ok.
give_back(Shard, Group, Kind, Amount) ->
    All = persistent_term:get(?MODULE),
    ok = add(Shard, Group, Kind, -Amount, All),
    add(Shard, total, Kind, -Amount, All).

add(Shard, Group, Kind, Amount, All) ->
    #{Group := {Counts, _}} = All,
    atomics:add(Counts, slot(Shard, index(Kind)), Amount).

slot(Shard, Index) -> Shard * ?KINDS + Index.

sum(Counts, Index) ->
    Shards = maps:get(size, atomics:info(Counts)) div ?KINDS - 1,
    lists:sum([atomics:get(Counts, slot(Shard, Index)) || Shard <- lists:seq(1, Shards)]).

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
    All = persistent_term:get(?MODULE),
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
        fun(_, {Counts, _}) -> [atomics:put(Counts, slot(Shard, Index), 0) || Index <- lists:seq(1, ?KINDS)] end,
        persistent_term:get(?MODULE)
    ).

%% @doc What there is in a group, or in all (`total').
-spec usage(group()) -> {ok, #{kind() => non_neg_integer()}} | {error, {no_group, group()}}.
usage(Group) ->
    case persistent_term:get(?MODULE, #{}) of
        #{Group := {Counts, _}} -> {ok, maps:from_list([{Kind, sum(Counts, index(Kind))} || Kind <- kinds()])};
        #{} -> {error, {no_group, Group}}
    end.
