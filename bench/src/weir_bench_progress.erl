%% @doc Shows progress on standard error: one line that is rewritten on a terminal, a new line each time elsewhere.
-module(weir_bench_progress).

-export([show/2]).
-export([clear/0]).

%% @doc Shows the current step.
-spec show(io:format(), [term()]) -> ok.
show(Format, Arguments) ->
    case rewrites() of
        %% Carriage return, and erase to the end of the line.
        true -> io:format(standard_error, "\r\e[K" ++ Format, Arguments);
        false -> io:format(standard_error, Format ++ "\n", Arguments)
    end.

%% @doc Removes the line.
-spec clear() -> ok.
clear() ->
    case rewrites() of
        true -> io:put_chars(standard_error, "\r\e[K");
        false -> ok
    end.

rewrites() ->
    os:getenv("WEIR_PROGRESS") =:= "rewrite".
