%% @doc The history of samples: seconds for the last ten minutes, and minutes for the last day.
%%
%% A row is a binary of 32-bit floats, with seven digits each. Rows with the same columns share the list of their
%% names. 200 columns take 1.6 MiB. With more than 424 columns the history is shorter, so that all rows stay below 3.5
%% MiB.
-module(weir_scope_history).

-export([new/0]).
-export([add/3]).
-export([rows/3]).
-export([bytes/1]).
-export([short/1]).

-export_type([history/0, grain/0, series/0]).

-type grain() :: second | minute.

-record(history, {
    table :: ets:table(),
    columns = none :: none | pos_integer(),
    next = 1 :: pos_integer(),
    minute = none :: none | {integer(), pos_integer(), [float()]}
}).

-opaque history() :: #history{}.

-type series() :: #{columns := [weir_scope_sample:name()], rows := [{At :: integer(), [float()]}]}.
%% Rows with the same columns, the oldest first. `At' is milliseconds since 1970.

-define(SECONDS, 600).
-define(MINUTES, 1440).

%% The bytes of all rows together, at most.
-define(BYTES, 3_670_016).

%% Columns change when Weir starts, or when the number of schedulers changes. Rows with columns before the last three
%% sets are dropped.
-define(SETS_OF_COLUMNS, 3).

%% @doc Makes an empty history. It ends with the calling process, and only that process may add to it.
-spec new() -> history().
new() ->
    #history{table = ets:new(?MODULE, [ordered_set, protected])}.

%% @doc Adds a second.
-spec add(At :: integer(), [{weir_scope_sample:name(), float()}], history()) -> history().
add(At, Numbers, History) ->
    {Names, Values} = lists:unzip(Numbers),
    Named = named(Names, History),
    #history{table = Table, columns = Columns} = Named,
    insert(Table, second, At, Columns, Values, kept(?SECONDS, length(Names))),
    minute(At div 60_000, Values, Named).

named(Names, #history{table = Table, columns = Columns, next = Next} = History) ->
    case Columns =/= none andalso ets:lookup_element(Table, {columns, Columns}, 2) of
        Names ->
            History;
        _ ->
            true = ets:insert(Table, {{columns, Next}, Names}),
            true = ets:delete(Table, {columns, Next - ?SETS_OF_COLUMNS}),
            _ = ets:select_delete(Table, [{{{'_', '_'}, '$1', '_'}, [{'=<', '$1', Next - ?SETS_OF_COLUMNS}], [true]}]),
            History#history{columns = Next, next = Next + 1, minute = none}
    end.

%% How many rows of a grain are kept. With many columns these are fewer.
kept(Rows, Columns) ->
    max(10, min(Rows, Rows * ?BYTES div ((?SECONDS + ?MINUTES) * (4 * Columns + 100)))).

insert(Table, Grain, At, Columns, Values, Kept) ->
    Row = << <<(bounded(Value)):32/float>> || Value <- Values >>,
    true = ets:insert(Table, {{Grain, At}, Columns, Row}),
    trim(Table, Grain, ets:select_count(Table, [{{{Grain, '_'}, '_', '_'}, [], [true]}]) - Kept).

trim(_Table, _Grain, Excess) when Excess =< 0 ->
    ok;
trim(Table, Grain, Excess) ->
    {Grain, _} = Oldest = ets:next(Table, {Grain, -1}),
    true = ets:delete(Table, Oldest),
    trim(Table, Grain, Excess - 1).

%% Within the range of 32-bit floats.
bounded(Value) -> max(-3.0e38, min(3.0e38, Value)).

%% Adds the mean of a minute's seconds when the next minute begins.
minute(Minute, Values, #history{minute = none} = History) ->
    History#history{minute = {Minute, 1, Values}};
minute(Minute, Values, #history{minute = {Minute, Count, Sums}} = History) ->
    History#history{minute = {Minute, Count + 1, lists:zipwith(fun(A, B) -> A + B end, Sums, Values)}};
minute(Minute, Values, #history{table = Table, columns = Columns, minute = {Before, Count, Sums}} = History) ->
    insert(Table, minute, Before * 60_000, Columns, [Sum / Count || Sum <- Sums], kept(?MINUTES, length(Sums))),
    History#history{minute = {Minute, 1, Values}}.

%% @doc Returns the rows later than `After', in milliseconds since 1970. Rows with the same columns are together.
-spec rows(grain(), After :: integer(), history()) -> [series()].
rows(Grain, After, #history{table = Table}) ->
    Rows = ets:select(Table, [{{{Grain, '$1'}, '$2', '$3'}, [{'>', '$1', After}], [{{'$2', '$1', '$3'}}]}]),
    Sets = lists:usort([Columns || {Columns, _, _} <- Rows]),
    [
        #{
            columns => ets:lookup_element(Table, {columns, Columns}, 2),
            rows => [{At, unpacked(Row)} || {Same, At, Row} <- Rows, Same =:= Columns]
        }
     || Columns <- Sets
    ].

unpacked(Row) -> [Value || <<Value:32/float>> <= Row].

%% @doc Rounds values to about the digits of 32-bit floats, for JSON.
-spec short([number()]) -> [number()].
short(Values) -> [short_number(Value) || Value <- Values].

short_number(Value) when abs(Value) >= 1.0e6; Value == trunc(Value) -> round(Value);
short_number(Value) -> round(Value * 1.0e5) / 1.0e5.

%% @doc Returns the bytes that a history takes, binaries with their headers included.
-spec bytes(history()) -> non_neg_integer().
bytes(#history{table = Table}) ->
    Words = ets:info(Table, memory),
    Rows = ets:foldl(fun({{_, _}, _, Row}, Sum) -> Sum + byte_size(Row) + 48; (_, Sum) -> Sum end, 0, Table),
    Words * erlang:system_info(wordsize) + Rows.
