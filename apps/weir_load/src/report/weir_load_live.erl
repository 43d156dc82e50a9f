%% @doc Shows the progress of a run on standard error: a line for each second with the columns of tcprstat, and on a
%% terminal a progress bar below.
-module(weir_load_live).

-export([new/2]).
-export([show/2]).

-export_type([live/0]).

%% `window': the seconds of the run. `terminal': the last line can be rewritten.
-record(live, {terminal :: boolean(), window :: pos_integer()}).
-opaque live() :: #live{}.

-define(BAR, 40).

%% Lines until the header is repeated.
-define(PAGE, 20).

%% @doc Returns the display for a run of `Duration' nanoseconds. `Terminal': standard error is a terminal, which OTP 25
%% cannot find out.
-spec new(Terminal :: boolean(), Duration :: pos_integer()) -> live().
new(Terminal, Duration) ->
    #live{terminal = Terminal, window = max(1, round(Duration / 1_000_000_000))}.

%% @doc Shows an event of a run; `clear' removes the bar.
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

%% Removes the bar first, which is the last line.
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
