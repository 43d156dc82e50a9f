%% @doc Checks nested options against a table of names, kinds and defaults. Pure functions.
%%
%% Keys and words may be atoms or text, so that one table checks the map of a program and that of a file. The error
%% names the path to the wrong option.
-module(weir_proxy_schema).

-export([table/3]).
-export([names/3]).
-export([list/3]).
-export([refuse/3]).
-export([integer/2]).
-export([time/1]).
-export([time_or_infinity/1]).
-export([limit/1]).
-export([word/1]).
-export([text/0]).
-export([name/0]).
-export([boolean/0]).
-export([any/0]).

-export_type([path/0, kind/0, field/0, bad_option/0]).

-type path() :: [atom() | binary() | pos_integer()].
%% From the outside in: `[backends, <<"web">>, servers, 2, weight]'. A number is an index in a list and starts at 1.

-type kind() :: fun((path(), term()) -> term()).
%% Returns the checked value, or calls {@link refuse/3}.

-type field() :: {atom(), kind()} | {atom(), kind(), Default :: term()}.
%% A field without a default is required.

-type bad_option() :: {bad_option, path(), Value :: term(), Allowed :: string()}.

%% @doc Ends the check with an error. `Allowed' says what is allowed in place of the value.
-spec refuse(path(), term(), iodata()) -> no_return().
refuse(Path, Value, Allowed) ->
    throw({bad_option, Path, Value, lists:flatten(io_lib:format("~ts", [Allowed]))}).

%% @doc Checks a map with these fields and no others. Defaults are not checked.
-spec table(path(), term(), [field()]) -> #{atom() => term()}.
table(Path, Map, Fields) when is_map(Map) ->
    %% Sorted: of several unknown options, every release of OTP reports the same one.
    Named = maps:from_list([
        {name_of(Path, Key, Value, Fields), Value} || {Key, Value} <- lists:sort(maps:to_list(Map))
    ]),
    maps:from_list([field(Path, Field, Named) || Field <- Fields]);
table(Path, Value, _Fields) ->
    refuse(Path, Value, "a table of options").

name_of(Path, Key, Value, Fields) ->
    case [element(1, Field) || Field <- Fields, is_same(element(1, Field), Key)] of
        [Name] -> Name;
        [] -> refuse(Path ++ [Key], Value, ["unknown option; valid: ", known(Fields)])
    end.

is_same(Name, Key) when is_atom(Key) -> Name =:= Key;
is_same(Name, Key) when is_binary(Key) -> atom_to_binary(Name) =:= Key;
is_same(_Name, _Key) -> false.

known(Fields) -> lists:join(", ", [atom_to_list(element(1, Field)) || Field <- Fields]).

field(Path, {Name, Kind}, Map) ->
    case Map of
        #{Name := Value} -> {Name, Kind(Path ++ [Name], Value)};
        #{} -> refuse(Path ++ [Name], undefined, "needed")
    end;
field(Path, {Name, Kind, Default}, Map) ->
    case Map of
        #{Name := Value} -> {Name, Kind(Path ++ [Name], Value)};
        #{} -> {Name, Default}
    end.

%% @doc Checks a map whose keys are names that the user has chosen. Names become binaries.
-spec names(path(), term(), kind()) -> #{binary() => term()}.
names(Path, Map, Kind) when is_map(Map) ->
    maps:from_list([named(Path, Key, Value, Kind) || {Key, Value} <- maps:to_list(Map)]);
names(Path, Value, _Kind) ->
    refuse(Path, Value, "a table of names").

named(Path, Key, Value, Kind) ->
    Name = (name())(Path, Key),
    {Name, Kind(Path ++ [Name], Value)}.

%% @doc Checks a list whose elements are all of one kind.
-spec list(path(), term(), kind()) -> [term()].
list(Path, List, Kind) ->
    case is_list(List) andalso length_of(List) of
        false -> refuse(Path, List, "a list");
        Length -> [Kind(Path ++ [Place], Value) || {Place, Value} <- lists:zip(lists:seq(1, Length), List)]
    end.

length_of(List) ->
    try
        length(List)
    catch
        error:badarg -> false
    end.

%% @doc Integers from `Least' to `Most'.
-spec integer(integer(), integer()) -> kind().
integer(Least, Most) ->
    fun
        (_Path, Value) when is_integer(Value), Value >= Least, Value =< Most -> Value;
        (Path, Value) -> refuse(Path, Value, io_lib:format("a number from ~b to ~b", [Least, Most]))
    end.

%% The longest timeout of the VM, in milliseconds.
-define(TIME_MAX, 16#ffffffff).

%% @doc A time of at least `Least' milliseconds: a number of milliseconds, or text with a unit: `"1500ms"', `"30s"',
%% `"5m"', `"1h"', `"7d"'. Returns milliseconds.
-spec time(Least :: non_neg_integer()) -> kind().
time(Least) -> fun(Path, Value) -> time(Path, Value, Least, "") end.

%% @doc A time as for {@link time/1}, or `infinity'.
-spec time_or_infinity(Least :: non_neg_integer()) -> kind().
time_or_infinity(Least) ->
    fun
        (_Path, Infinity) when Infinity =:= infinity; Infinity =:= <<"infinity">> -> infinity;
        (Path, Value) -> time(Path, Value, Least, ", or infinity")
    end.

time(_Path, Value, Least, _Or) when is_integer(Value), Value >= Least, Value =< ?TIME_MAX ->
    Value;
time(Path, Value, Least, Or) ->
    case weir_units:duration(Value) of
        {ok, Time} when Time >= Least, Time =< ?TIME_MAX -> Time;
        _ -> refuse_time(Path, Value, Least, Or)
    end.

-spec refuse_time(path(), term(), integer(), string()) -> no_return().
refuse_time(Path, Value, Least, Or) ->
    refuse(
        Path,
        Value,
        io_lib:format("milliseconds from ~b to ~b, or text such as \"5s\", \"2m\"~ts", [Least, ?TIME_MAX, Or])
    ).

%% @doc An integer from `Least' to 4294967295, or `infinity'.
-spec limit(Least :: non_neg_integer()) -> kind().
limit(Least) ->
    fun
        (_Path, Infinity) when Infinity =:= infinity; Infinity =:= <<"infinity">> -> infinity;
        (_Path, Value) when is_integer(Value), Value >= Least, Value =< 16#ffffffff -> Value;
        (Path, Value) -> refuse(Path, Value, io_lib:format("a number from ~b to 4294967295, or infinity", [Least]))
    end.

%% @doc One of these words.
-spec word([atom(), ...]) -> kind().
word(Words) ->
    fun(Path, Value) ->
        case [Word || Word <- Words, is_same(Word, Value)] of
            [Word] -> Word;
            [] -> refuse(Path, Value, lists:join(", ", [atom_to_list(Word) || Word <- Words]))
        end
    end.

%% @doc Text that is not empty. Returns a binary. An atom stands for its name.
-spec text() -> kind().
text() ->
    fun
        (_Path, Value) when is_binary(Value), Value =/= <<>> -> Value;
        (_Path, Value) when is_atom(Value), Value =/= '' -> atom_to_binary(Value);
        (Path, Value) ->
            case as_text(Value) of
                Text when is_binary(Text), Text =/= <<>> -> Text;
                _ -> refuse(Path, Value, "text that is not empty")
            end
    end.

as_text(Value) ->
    try
        unicode:characters_to_binary(Value)
    catch
        error:_ -> none
    end.

%% @doc A name for lines of logs and metrics: text without control characters.
-spec name() -> kind().
name() ->
    fun(Path, Value) ->
        Name = (text())(Path, Value),
        case re:run(Name, "[\\x00-\\x1f\\x7f]", [{capture, none}]) of
            nomatch -> Name;
            match -> refuse(Path, Value, "text without control characters")
        end
    end.

-spec boolean() -> kind().
boolean() ->
    fun
        (_Path, Value) when is_boolean(Value) -> Value;
        (Path, Value) -> refuse(Path, Value, "true or false")
    end.

%% @doc Any term.
-spec any() -> kind().
any() -> fun(_Path, Value) -> Value end.
