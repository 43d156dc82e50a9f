%% @doc What was sampled: the last ten minutes by the second, and the last day by the minute.
%%
%% A row is a binary of 32-bit floats, seven digits each. The names of its columns stand beside, once for all rows that have the
%% same. So 200 columns take 1.6 MiB, and more than 450 have shorter histories: {@link new/0} says how it is bounded.
-module(weir_scope_history).

-export([new/0]).
-export([add/3]).
-export([rows/3]).
-export([bytes/1]).
-export([short/1]).

-export_type([history/0, grain/0, series/0]).

-type grain() :: second | minute.

-record(history, {table :: ets:table(), columns = none :: none | pos_integer(), next = 1 :: pos_integer(), minute = none :: none | {integer(), pos_integer(), [float()]}}).

-opaque history() :: #history{}.

-type series() :: #{columns := [weir_scope_sample:name()], rows := [{At :: integer(), [float()]}]}.
%% Rows that have the same columns, the oldest first. `At' is milliseconds since 1970.

-define(SECONDS, 600).
-define(MINUTES, 1440).

%% All rows together.
-define(BYTES, 3_670_016).

%% Columns change when Weir starts or the number of schedulers does. Rows of columns before the last three are dropped.
-define(SETS_OF_COLUMNS, 3).

%% @doc An empty one. It ends with the process that has made it, and only that may add to it.
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

%% How many rows of a grain are kept: with many columns fewer.
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

%% What 32 bits can hold.
bounded(Value) -> max(-3.0e38, min(3.0e38, Value)).

%% The mean of the seconds of a minute, when the next one begins.
minute(Minute, Values, #history{minute = none} = History) ->
    History#history{minute = {Minute, 1, Values}};
minute(Minute, Values, #history{minute = {Minute, Count, Sums}} = History) ->
    History#history{minute = {Minute, Count + 1, lists:zipwith(fun(A, B) -> A + B end, Sums, Values)}};
minute(Minute, Values, #history{table = Table, columns = Columns, minute = {Before, Count, Sums}} = History) ->
    insert(Table, minute, Before * 60_000, Columns, [Sum / Count || Sum <- Sums], kept(?MINUTES, length(Sums))),
    History#history{minute = {Minute, 1, Values}}.

%% @doc The rows after a moment, in milliseconds since 1970; those that have the same columns together.
-spec rows(grain(), After :: integer(), history()) -> [series()].
rows(Grain, After, #history{table = Table}) ->
    Rows = ets:select(Table, [{{{Grain, '$1'}, '$2', '$3'}, [{'>', '$1', After}], [{{'$2', '$1', '$3'}}]}]),
    Sets = lists:usort([Columns || {Columns, _, _} <- Rows]),
    [
        #{columns => ets:lookup_element(Table, {columns, Columns}, 2), rows => [{At, unpacked(Row)} || {Same, At, Row} <- Rows, Same =:= Columns]}
     || Columns <- Sets
    ].

unpacked(Row) -> [Value || <<Value:32/float>> <= Row].

%% @doc Values with as many digits as 32 bits have, about: for JSON.
-spec short([number()]) -> [number()].
short(Values) -> [short_number(Value) || Value <- Values].

short_number(Value) when abs(Value) >= 1.0e6; Value == trunc(Value) -> round(Value);
short_number(Value) -> round(Value * 1.0e5) / 1.0e5.

%% @doc What it takes. Binaries are counted as they are, with what holds them.
-spec bytes(history()) -> non_neg_integer().
bytes(#history{table = Table}) ->
    Words = ets:info(Table, memory),
    Rows = ets:foldl(fun({{_, _}, _, Row}, Sum) -> Sum + byte_size(Row) + 48; (_, Sum) -> Sum end, 0, Table),
    Words * erlang:system_info(wordsize) + Rows.
