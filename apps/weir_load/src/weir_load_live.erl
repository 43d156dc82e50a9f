%% @doc A run as it goes: a line for each second with the columns of tcprstat, on standard error, and below them, on a
%% terminal, a bar of how far it is.
-module(weir_load_live).

-export([new/2]).
-export([show/2]).

-export_type([live/0]).

%% `window' are the seconds of a run. A terminal is one on which a line can be rewritten.
-record(live, {terminal :: boolean(), window :: pos_integer()}).
-opaque live() :: #live{}.

-define(BAR, 40).

%% The header again after so many lines.
-define(PAGE, 20).

%% @doc For runs of a duration in nanoseconds. Whether standard error is a terminal is for the caller to know: OTP 25
%% cannot tell.
-spec new(Terminal :: boolean(), Duration :: pos_integer()) -> live().
new(Terminal, Duration) ->
    #live{terminal = Terminal, window = max(1, round(Duration / 1_000_000_000))}.

%% @doc Shows what goes on.
-spec show(weir_load_run:news() | clear, live()) -> ok.
show({opening, 0}, _Live) ->
    ok;
show({opening, Connections}, Live) ->
    print(io_lib:format("opening ~b connections~n", [Connections]), Live);
show(warming_up, Live) ->
    print("warming up\n", Live);
show({second, #{second := Number} = Second}, #live{window = Window} = Live) ->
    Header = [line(header()) || Number rem ?PAGE =:= 0],
    print([Header, line(row(Second)), bar(min(Number + 1, Window), Live)], Live);
show(clear, Live) ->
    print("", Live).

%% Takes away the bar, which is what stands in the last line.
print(Text, #live{terminal = true}) -> io:put_chars(standard_error, ["\r\e[K", Text]);
print(Text, #live{terminal = false}) -> io:put_chars(standard_error, Text).

header() ->
    ["second", "offered", "count", "max", "min", "avg", "med", "stddev", "95", "99", "errors"].

row(#{second := Number, offered := Offered, answered := Answered, pushed := Pushed, error_count := Errors} = Second) ->
    Figures =
        case Second of
            #{response_us := Latency} -> latency(Latency);
            #{push_us := Latency} -> latency(Latency);
            #{} -> lists:duplicate(7, "-")
        end,
    Came = integer_to_list(Answered + Pushed),
    [integer_to_list(Number), offered(Offered), Came] ++ Figures ++ [integer_to_list(Errors)].

offered(null) -> "-";
offered(Offered) -> integer_to_list(Offered).

latency(Latency) ->
    [weir_load_units:show_time(maps:get(Figure, Latency)) || Figure <- [max, min, mean, p50, stdev, p95, p99]].

line([Second | Columns]) ->
    [string:pad(Second, 6, leading), [[" ", string:pad(Column, 9, leading)] || Column <- Columns], "\n"].

bar(_Done, #live{terminal = false}) ->
    "";
bar(Done, #live{window = Window}) ->
    Full = ?BAR * Done div Window,
    io_lib:format("[~s~s] ~b of ~b s", [lists:duplicate(Full, $#), lists:duplicate(?BAR - Full, $.), Done, Window]).
