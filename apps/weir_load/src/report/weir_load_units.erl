%% @doc Parses times, numbers and rates of the command line, and formats times.
-module(weir_load_units).

-export([time/1]).
-export([number/1]).
-export([rate/1]).
-export([segments/2]).
-export([show_time/1]).

-export_type([rate/0]).

%% A rate without its duration. Numbers are per second.
-type rate() ::
    {constant, number()}
    | {steps, [number(), ...]}
    | {ramp, From :: number(), To :: number()}
    | {slope, number()}
    | {power, number(), Exponent :: number()}.

-define(SECOND, 1_000_000_000).

%% @doc Parses a time such as `500us', `10ms', `8s', `5m' or `1h'. Returns nanoseconds.
-spec time(string()) -> {ok, non_neg_integer()} | {error, iodata()}.
time(Text) ->
    {Digits, Unit} = lists:splitwith(fun(C) -> C >= $0 andalso C =< $9 orelse C =:= $. end, Text),
    case {number(Digits), unit(Unit)} of
        {{ok, Number}, {ok, Nanoseconds}} -> {ok, round(Number * Nanoseconds)};
        _ -> {error, "a time is needed, such as 500us, 10ms, 8s or 5m"}
    end.

unit("ns") -> {ok, 1};
unit("us") -> {ok, 1_000};
unit("ms") -> {ok, 1_000_000};
unit("s") -> {ok, ?SECOND};
unit("m") -> {ok, 60 * ?SECOND};
unit("h") -> {ok, 3600 * ?SECOND};
unit(_) -> error.

%% @doc Parses a number that is not negative.
-spec number(string()) -> {ok, number()} | error.
number([First | _] = Text) when First >= $0, First =< $9 ->
    case {string:to_integer(Text), string:to_float(Text)} of
        {{Integer, ""}, _} -> {ok, Integer};
        {_, {Float, ""}} when is_float(Float) -> {ok, Float};
        _ -> error
    end;
number(_) ->
    error.

%% @doc Parses a rate: `2000', `100..5000' (a ramp), `100,200,400' (steps of the same length), `44.4t' (a ramp that
%% begins at 0 and grows by 44.4 per second every second) or `pow:5000:2' (grows as the square of time, to 5000 at the
%% end).
-spec rate(string()) -> {ok, rate()} | {error, iodata()}.
rate(Text) ->
    case rate_of(Text) of
        {ok, Rate} ->
            case peak(Rate) of
                Peak when Peak > 0, Peak =< 10_000_000 -> {ok, Rate};
                _ -> {error, "a rate above 0 and of at most 10000000 per second is needed"}
            end;
        error ->
            {error, "a rate per second is needed, such as 2000, 100..5000, 100,200,400, 44.4t or pow:5000:2"}
    end.

rate_of("pow:" ++ Text) ->
    case [number(Part) || Part <- string:split(Text, ":")] of
        [{ok, Rate}, {ok, Exponent}] when Exponent > 0, Exponent =< 16 -> {ok, {power, Rate, Exponent}};
        _ -> error
    end;
rate_of(Text) ->
    case {string:split(Text, ".."), lists:reverse(Text), string:split(Text, ",", all)} of
        {[From, To], _, _} -> all(fun([A, B]) -> {ramp, A, B} end, [From, To]);
        {_, "t" ++ Slope, _} -> all(fun([A]) -> {slope, A} end, [lists:reverse(Slope)]);
        {_, _, [_]} -> all(fun([A]) -> {constant, A} end, [Text]);
        {_, _, Steps} -> all(fun(Rates) -> {steps, Rates} end, Steps)
    end.

all(Make, Texts) ->
    Numbers = [number(Text) || Text <- Texts],
    case lists:member(error, Numbers) of
        true -> error;
        false -> {ok, Make([Number || {ok, Number} <- Numbers])}
    end.

peak({constant, Rate}) -> Rate;
peak({steps, Rates}) -> lists:max(Rates);
peak({ramp, From, To}) -> max(From, To);
peak({slope, Slope}) -> Slope;
peak({power, Rate, _}) -> Rate.

%% @doc Returns the segments of a rate over a duration in nanoseconds.
-spec segments(rate(), pos_integer()) -> [weir_load_schedule:segment()].
segments({constant, Rate}, Duration) -> [{constant, Rate, Duration}];
segments({ramp, From, To}, Duration) -> [{ramp, From, To, Duration}];
segments({slope, Slope}, Duration) -> [{ramp, 0, Slope * Duration / ?SECOND, Duration}];
segments({power, Rate, Exponent}, Duration) -> [{power, Rate, Exponent, Duration}];
segments({steps, Rates}, Duration) ->
    Count = length(Rates),
    [
        {constant, Rate, Duration * Step div Count - Duration * (Step - 1) div Count}
     || {Step, Rate} <- lists:zip(lists:seq(1, Count), Rates)
    ].

%% @doc Formats microseconds with a suitable unit.
-spec show_time(number()) -> iodata().
show_time(Microseconds) when Microseconds < 1_000 -> io_lib:format("~.1fus", [float(Microseconds)]);
show_time(Microseconds) when Microseconds < 1_000_000 -> io_lib:format("~.2fms", [Microseconds / 1_000]);
show_time(Microseconds) -> io_lib:format("~.2fs", [Microseconds / 1_000_000]).
