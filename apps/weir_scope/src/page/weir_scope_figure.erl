%% @private
%% @doc Formats figures for people.
-module(weir_scope_figure).

-export([percent/1]).
-export([count/1]).
-export([bytes/1]).
-export([seconds/1]).
-export([bar/2]).
-export([spark/1]).
-export([address/1]).
-export([part/2]).
-export([counted/2]).

%% @doc Formats a fraction, 0 to 1, as percent.
-spec percent(number()) -> unicode:chardata().
percent(Part) -> io_lib:format("~.1f%", [Part * 100.0]).

-spec count(number()) -> unicode:chardata().
count(Number) when Number < 100_000 -> integer_to_list(round(Number));
count(Number) when Number < 10_000_000 -> io_lib:format("~.1fk", [Number / 1000]);
count(Number) -> io_lib:format("~.1fM", [Number / 1_000_000]).

-spec bytes(number()) -> unicode:chardata().
bytes(Bytes) when Bytes < 0 -> [$-, bytes(-Bytes)];
bytes(Bytes) when Bytes < 10_000 -> [integer_to_list(round(Bytes)), "B"];
bytes(Bytes) when Bytes < 10_000 * 1024 -> [integer_to_list(round(Bytes / 1024)), "K"];
bytes(Bytes) when Bytes < 10_000 * 1_048_576 -> [integer_to_list(round(Bytes / 1_048_576)), "M"];
bytes(Bytes) -> [integer_to_list(round(Bytes / 1_073_741_824)), "G"].

%% @doc Formats a duration.
-spec seconds(number()) -> unicode:chardata().
seconds(Seconds) when Seconds < 100 -> io_lib:format("~.1fs", [float(Seconds)]);
seconds(Seconds) when Seconds < 6000 -> [integer_to_list(round(Seconds / 60)), "m"];
seconds(Seconds) when Seconds < 360_000 -> [integer_to_list(round(Seconds / 3600)), "h"];
seconds(Seconds) -> [integer_to_list(round(Seconds / 86_400)), "d"].

-spec bar(number(), Width :: pos_integer()) -> unicode:chardata().
bar(Part, Width) ->
    Full = max(0, min(Width, round(Part * Width))),
    [lists:duplicate(Full, $|), lists:duplicate(Width - Full, $.)].

%% @doc Draws each number, 0 to 1, as a bar of one of nine heights.
-spec spark([number()]) -> unicode:chardata().
spark(Past) ->
    [
        lists:nth(1 + max(0, min(8, round(Part * 8))), [
            $\s, 16#2581, 16#2582, 16#2583, 16#2584, 16#2585, 16#2586, 16#2587, 16#2588
        ])
     || Part <- Past
    ].

%% @doc Formats the address of a socket; `-' if it is not known.
-spec address(term()) -> unicode:chardata().
address({{_, _, _, _} = Ip, Port}) -> [inet:ntoa(Ip), $:, integer_to_list(Port)];
address({Ip, Port}) when tuple_size(Ip) =:= 8 -> [$[, inet:ntoa(Ip), "]:", integer_to_list(Port)];
address(None) when None =:= none; None =:= undefined -> "-";
address(Other) -> io_lib:format("~0tp", [Other]).

%% @doc Returns a table cell for a fraction: its sort key and its text. The text is empty if the map has no such key.
-spec part(atom(), map()) -> {number(), unicode:chardata()}.
part(Key, Map) -> cell(Key, Map, fun percent/1).

%% @doc Returns a table cell for a number, in the same way.
-spec counted(atom(), map()) -> {number(), unicode:chardata()}.
counted(Key, Map) -> cell(Key, Map, fun count/1).

cell(Key, Map, Write) ->
    case Map of
        #{Key := Value} -> {Value, Write(Value)};
        _ -> {-1, ""}
    end.
