%% @doc Prints messages of a server in the foreground. The server keeps running when its output is closed, for example
%% by `head'.
-module(weir_cli_notice).

-export([say/2]).
-export([complain/2]).

%% @doc Prints a line on standard output.
-spec say(io:format(), [term()]) -> ok.
say(Format, Arguments) -> put_line(standard_io, Format, Arguments).

%% @doc Prints a line on standard error.
-spec complain(io:format(), [term()]) -> ok.
complain(Format, Arguments) -> put_line(standard_error, ["weir: ", Format], Arguments).

put_line(Device, Format, Arguments) ->
    try
        io:format(Device, lists:flatten([Format, "~n"]), Arguments)
    catch
        error:_ -> ok
    end.
