%% @doc Parses and formats durations and sizes with units, as configuration files and command lines have them.
%%
%% ```
%% {ok, 30_000} = weir_units:duration(<<"30s">>),
%% {ok, 65_536} = weir_units:size("64KiB"),
%% <<"90m">> = weir_units:format_duration(5_400_000),
%% {error, "a duration with a unit, ms, s, m, h or d, such as \"30s\""} = weir_units:duration("30").
%% '''
%%
%% There are no signs, fractions or spaces. Units are case-sensitive, because `m' and `M' are different units.
-module(weir_units).

-export([duration/1]).
-export([duration_or_infinity/1]).
-export([size/1]).
-export([size_or_infinity/1]).
-export([format_duration/1]).
-export([format_size/1]).

-compile({no_auto_import, [size/1]}).

-define(DURATIONS, [{<<"ms">>, 1}, {<<"s">>, 1000}, {<<"m">>, 60_000}, {<<"h">>, 3_600_000}, {<<"d">>, 86_400_000}]).

%% Of two forms of the same length, the first is the format.
-define(SIZES, [
    {<<"B">>, 1},
    {<<"KiB">>, 1 bsl 10},
    {<<"MiB">>, 1 bsl 20},
    {<<"GiB">>, 1 bsl 30},
    {<<"kB">>, 1000},
    {<<"MB">>, 1000_000},
    {<<"GB">>, 1000_000_000}
]).

%% The limit of digits: converting long numbers takes quadratic time.
-define(DIGITS, 15).

%% @doc Parses a duration such as `"250ms"', `"30s"', `"5m"', `"2h"' or `"1d"'. Returns milliseconds. The error says
%% what is allowed; a number without a unit, as text or as an integer, is an error too.
-spec duration(term()) -> {ok, Milliseconds :: non_neg_integer()} | {error, Allowed :: string()}.
duration(Text) -> parse(Text, ?DURATIONS, "a duration with a unit, ms, s, m, h or d, such as \"30s\"").

%% @doc Parses a duration as {@link duration/1} does, or `"infinity"'. The atom is allowed as well.
-spec duration_or_infinity(term()) -> {ok, Milliseconds :: timeout()} | {error, Allowed :: string()}.
duration_or_infinity(Text) -> or_infinity(Text, fun duration/1).

%% @doc Parses a size such as `"512B"', `"64KiB"', `"10MiB"' or `"1GiB"', or with units that are powers of 1000:
%% `"64kB"', `"10MB"' or `"1GB"'. Returns bytes. The error says what is allowed; a number without a unit is an error
%% too.
-spec size(term()) -> {ok, Bytes :: non_neg_integer()} | {error, Allowed :: string()}.
size(Text) -> parse(Text, ?SIZES, "a size with a unit, B, KiB, MiB, GiB, kB, MB or GB, such as \"64KiB\"").

%% @doc Parses a size as {@link size/1} does, or `"infinity"'. The atom is allowed as well.
-spec size_or_infinity(term()) -> {ok, Bytes :: non_neg_integer() | infinity} | {error, Allowed :: string()}.
size_or_infinity(Text) -> or_infinity(Text, fun size/1).

or_infinity(infinity, _Parse) -> {ok, infinity};
or_infinity(Text, Parse) ->
    case {text(Text), Parse(Text)} of
        {<<"infinity">>, _} -> {ok, infinity};
        {_, {ok, _} = Parsed} -> Parsed;
        {_, {error, Allowed}} -> {error, Allowed ++ ", or \"infinity\""}
    end.

parse(Value, Units, Allowed) ->
    Text = text(Value),
    Digits = digits(Text, 0),
    <<Number:Digits/binary, Unit/binary>> = Text,
    case lists:keyfind(Unit, 1, Units) of
        {_, Factor} when Digits > 0, Digits =< ?DIGITS -> {ok, binary_to_integer(Number) * Factor};
        _ -> {error, Allowed}
    end.

digits(Text, Count) ->
    case Text of
        <<_:Count/binary, Digit, _/binary>> when Digit >= $0, Digit =< $9 -> digits(Text, Count + 1);
        _ -> Count
    end.

%% Other terms are as wrong as an empty text.
text(Text) when is_binary(Text) -> Text;
text(List) when is_list(List) ->
    try unicode:characters_to_binary(List) of
        Text when is_binary(Text) -> Text;
        _ -> <<>>
    catch
        error:badarg -> <<>>
    end;
text(_Other) -> <<>>.

%% @doc Formats milliseconds in the shortest form that {@link duration_or_infinity/1} reads as the same duration.
-spec format_duration(timeout()) -> binary().
format_duration(infinity) -> <<"infinity">>;
format_duration(Milliseconds) -> shortest(Milliseconds, ?DURATIONS).

%% @doc Formats bytes in the shortest form that {@link size_or_infinity/1} reads as the same size.
-spec format_size(non_neg_integer() | infinity) -> binary().
format_size(infinity) -> <<"infinity">>;
format_size(Bytes) -> shortest(Bytes, ?SIZES).

shortest(Number, Units) when is_integer(Number), Number >= 0 ->
    Exact = [{Unit, Number div Factor} || {Unit, Factor} <- Units, Number rem Factor =:= 0],
    Forms = [<<(integer_to_binary(Count))/binary, Unit/binary>> || {Unit, Count} <- Exact],
    [{_, Form} | _] = lists:keysort(1, [{byte_size(Form), Form} || Form <- Forms]),
    Form.
