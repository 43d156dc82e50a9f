%% @private
%% @doc Tables of the configuration file of a push server: their valid keys, and the checks of their values, see
%% {@link weir_pubsub_file_value}.
-module(weir_pubsub_file_table).

-export([section/3]).
-export([several/3]).
-export([table/3]).
-export([unknown/1]).

-export_type([keys/0, faults/0]).

-type keys() :: #{Key :: binary() => {Name :: atom(), check()}}.

-type check() :: fun((weir_toml:value()) -> {ok, term()} | {error, Allowed :: iodata()} | {faults, faults()}).
%% `faults': of a value that is itself a table.

-type faults() :: [{weir_toml:path(), iodata()}].

%% @doc Reads a table of the file. An absent one is empty.
-spec section(binary(), weir_toml:table(), keys()) -> {#{atom() => term()}, faults()}.
section(Name, Table, Keys) -> table(maps:get(Name, Table, #{}), [Name], Keys).

%% @doc Reads an array of tables of the file.
-spec several(binary(), weir_toml:table(), keys()) -> {[#{atom() => term()}], faults()}.
several(Name, Table, Keys) ->
    case maps:get(Name, Table, []) of
        List when is_list(List) ->
            {Values, Faults} = lists:unzip([
                table(Entry, [Name, Index], Keys)
             || {Index, Entry} <- lists:zip(lists:seq(1, length(List)), List)
            ]),
            {Values, lists:append(Faults)};
        _ ->
            {[], [{[Name], ["tables: [[", Name, "]]"]}]}
    end.

%% @doc Reads the table at a path of the file.
-spec table(term(), weir_toml:path(), keys()) -> {#{atom() => term()}, faults()}.
table(Table, Path, Keys) when is_map(Table) ->
    Missing = [
        {Path, [Key, " is missing"]}
     || {Key, {Name, _}} <- maps:to_list(Keys), Name =:= pattern, not is_map_key(Key, Table)
    ],
    maps:fold(
        fun(Key, Value, {Values, Faults}) ->
            case Keys of
                #{Key := {Name, Check}} ->
                    case Check(Value) of
                        {ok, Checked} -> {Values#{Name => Checked}, Faults};
                        {error, Allowed} -> {Values, [{Path ++ [Key], Allowed} | Faults]};
                        {faults, Inner} -> {Values, [{Path ++ [Key | Rest], What} || {Rest, What} <- Inner] ++ Faults}
                    end;
                #{} ->
                    {Values, [{Path ++ [Key], unknown(lists:sort(maps:keys(Keys)))} | Faults]}
            end
        end,
        {#{}, Missing},
        Table
    );
table(_Other, Path, _Keys) ->
    {#{}, [{Path, "a table"}]}.

%% @doc The message about an unknown key.
-spec unknown([binary()]) -> iodata().
unknown(Keys) -> ["unknown key; valid: ", lists:join(", ", Keys)].
