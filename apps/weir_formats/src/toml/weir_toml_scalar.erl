%% @private
%% @doc Reads values without quotes or brackets: booleans, numbers, dates and times.
-module(weir_toml_scalar).

-export([split/1]).
-export([value/1]).

%% @doc Splits text into the value at its beginning and the rest.
-spec split(binary()) -> {Value :: binary(), Rest :: binary()}.
split(Text) ->
    Size = size(Text, 0),
    case Text of
        %% A date and a time may have a space between them.
        <<Date:10/binary, $\s, Digit, _/binary>> when Size =:= 10, Digit >= $0, Digit =< $9 ->
            case is_date(Date) of
                true -> split_at(11 + size(binary:part(Text, 11, byte_size(Text) - 11), 0), Text);
                false -> split_at(Size, Text)
            end;
        _ ->
            split_at(Size, Text)
    end.

split_at(Size, Text) ->
    <<Value:Size/binary, Rest/binary>> = Text,
    {Value, Rest}.

%% Stops only where a value may end, so that errors quote the whole of a wrong value.
size(<<Byte, Rest/binary>>, Size) when Byte > $\s, Byte =/= $,, Byte =/= $], Byte =/= $}, Byte =/= $# ->
    size(Rest, Size + 1);
size(_Rest, Size) ->
    Size.

is_date(<<_:4/binary, $-, _:2/binary, $-, _:2/binary>>) -> true;
is_date(_Text) -> false.

%% @doc Reads a value. The error says what is wrong with it.
-spec value(binary()) -> {ok, boolean() | integer() | float() | {moment, binary()}} | {error, string()}.
value(<<"true">>) -> {ok, true};
value(<<"false">>) -> {ok, false};
value(<<_:4/binary, $-, _:2/binary, $-, _/binary>> = Text) -> moment(Text);
value(<<_, _, $:, _/binary>> = Text) -> moment(Text);
value(<<Special:3/binary>>) when Special =:= <<"inf">>; Special =:= <<"nan">> -> not_finite();
value(<<Sign, Special:3/binary>>) when
    Sign =:= $+ orelse Sign =:= $-, Special =:= <<"inf">> orelse Special =:= <<"nan">>
->
    not_finite();
value(<<"0x", Digits/binary>>) -> integer(Digits, 16);
value(<<"0o", Digits/binary>>) -> integer(Digits, 8);
value(<<"0b", Digits/binary>>) -> integer(Digits, 2);
value(<<$+, Number/binary>>) -> number("", Number);
value(<<$-, Number/binary>>) -> number("-", Number);
value(Number) -> number("", Number).

%% Numbers ------------------------------------------------------------------------------

integer(Text, Base) ->
    case digits(Text, Base) of
        {[_ | _] = Digits, <<>>} -> sixty_four_bits("", Digits, Base);
        _ -> {error, "not an integer with digits of base " ++ integer_to_list(Base)}
    end.

%% Converting takes quadratic time: longer numbers are refused first.
sixty_four_bits(Sign, Digits, Base) ->
    case lists:dropwhile(fun(Digit) -> Digit =:= $0 end, Digits) of
        [] ->
            {ok, 0};
        Significant when length(Significant) =< 64 ->
            case list_to_integer(Sign ++ Significant, Base) of
                Integer when Integer >= -(1 bsl 63), Integer < 1 bsl 63 -> {ok, Integer};
                _ -> {error, "integer of more than 64 bits"}
            end;
        _ ->
            {error, "integer of more than 64 bits"}
    end.

number(Sign, Text) ->
    case digits(Text, 10) of
        {[], _} -> {error, "not a value (strings need quotes)"};
        {[$0, _ | _], _} -> {error, "a number must not begin with 0"};
        {Whole, <<>>} -> sixty_four_bits(Sign, Whole, 10);
        {Whole, Rest} -> float(Sign, Whole, Rest)
    end.

float(Sign, Whole, Rest) ->
    case fraction(Rest) of
        {[_ | _] = Fraction, Behind} ->
            case exponent(Behind) of
                {ok, Exponent} -> float(Sign, Whole, Fraction, Exponent);
                error -> not_a_number()
            end;
        _ ->
            not_a_number()
    end.

float(Sign, Whole, Fraction, Exponent) ->
    try
        {ok, list_to_float(lists:append([Sign, Whole, ".", Fraction, Exponent]))}
    catch
        error:badarg -> not_finite()
    end.

%% Erlang requires a fraction.
fraction(<<$., Text/binary>>) -> digits(Text, 10);
fraction(Text) -> {"0", Text}.

exponent(<<>>) -> {ok, ""};
exponent(<<Letter, $+, Text/binary>>) when Letter =:= $e; Letter =:= $E -> exponent("e+", Text);
exponent(<<Letter, $-, Text/binary>>) when Letter =:= $e; Letter =:= $E -> exponent("e-", Text);
exponent(<<Letter, Text/binary>>) when Letter =:= $e; Letter =:= $E -> exponent("e", Text);
exponent(_Text) -> error.

exponent(Letter, Text) ->
    case digits(Text, 10) of
        {[_ | _] = Digits, <<>>} -> {ok, Letter ++ Digits};
        _ -> error
    end.

not_a_number() -> {error, "not a number or date (strings need quotes)"}.

not_finite() -> {error, "number that is not finite"}.

%% Digits with single underscores between them. Returns the digits alone and the rest.
digits(Text, Base) -> digits(Text, Base, []).

digits(<<$_, Digit, Rest/binary>> = Text, Base, [_ | _] = Digits) ->
    case is_digit(Digit, Base) of
        true -> digits(Rest, Base, [Digit | Digits]);
        false -> {lists:reverse(Digits), Text}
    end;
digits(<<Digit, Rest/binary>> = Text, Base, Digits) ->
    case is_digit(Digit, Base) of
        true -> digits(Rest, Base, [Digit | Digits]);
        false -> {lists:reverse(Digits), Text}
    end;
digits(<<>>, _Base, Digits) ->
    {lists:reverse(Digits), <<>>}.

is_digit(Digit, Base) when Base =< 10 -> Digit >= $0 andalso Digit < $0 + Base;
is_digit(Digit, 16) ->
    Digit >= $0 andalso Digit =< $9 orelse Digit >= $a andalso Digit =< $f orelse Digit >= $A andalso Digit =< $F.

%% Dates and times ------------------------------------------------------------------------

-define(DATE, "([0-9]{4})-([0-9]{2})-([0-9]{2})").
-define(TIME, "([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\\.[0-9]+)?)?").
-define(OFFSET, "(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))").

moment(<<_:4/binary, $-, _/binary>> = Text) ->
    case numbers(Text, "^" ?DATE "(?:[Tt ]" ?TIME ?OFFSET "?)?$") of
        [Year, Month, Day | Time] ->
            case calendar:valid_date(Year, Month, Day) andalso is_time(Time) of
                true -> {ok, {moment, with_t(Text)}};
                false -> {error, "no such date or time"}
            end;
        nomatch ->
            not_a_moment()
    end;
moment(Text) ->
    case numbers(Text, "^" ?TIME "$") of
        nomatch ->
            not_a_moment();
        Time ->
            case is_time(Time) of
                true -> {ok, {moment, binary:copy(Text)}};
                false -> {error, "no such time"}
            end
    end.

not_a_moment() -> {error, "not a date or time, such as 1979-05-27, 07:32:00 or 1979-05-27T07:32:00Z"}.

numbers(Text, Expression) ->
    case re:run(Text, Expression, [{capture, all_but_first, binary}, dollar_endonly]) of
        {match, Captured} -> [number_of(Digits) || Digits <- Captured];
        nomatch -> nomatch
    end.

%% The seconds of a time and the numbers of an offset may be missing.
number_of(<<>>) -> 0;
number_of(Digits) -> binary_to_integer(Digits).

%% The sixtieth second is a leap second. An offset has the range of a time.
is_time([Hour, Minute, Second | Offset]) when Hour =< 23, Minute =< 59, Second =< 60 -> is_time(Offset);
is_time([Hour, Minute]) -> Hour =< 23 andalso Minute =< 59;
is_time(Rest) -> Rest =:= [].

with_t(<<Date:10/binary>>) -> binary:copy(Date);
with_t(<<Date:10/binary, _Between, Time/binary>>) -> <<Date/binary, $T, (string:uppercase(Time))/binary>>.
