%% @doc What a server in the foreground tells while it runs. It goes on when nobody reads that any more, as behind `| head'.
-module(weir_cli_notice).

-export([say/2]).
-export([complain/2]).

%% @doc A line on standard output.
-spec say(io:format(), [term()]) -> ok.
say(Format, Arguments) -> put_line(standard_io, Format, Arguments).

%% @doc A line on standard error.
-spec complain(io:format(), [term()]) -> ok.
complain(Format, Arguments) -> put_line(standard_error, ["weir: ", Format], Arguments).

put_line(Device, Format, Arguments) ->
    try
        io:format(Device, lists:flatten([Format, "~n"]), Arguments)
    catch
        error:_ -> ok
    end.
