%% @doc Command-line options: parses them and prints their help, both from one list.
-module(weir_cli_options).

-export([parse/2]).
-export([help/1]).
-export([output_file/1]).
-export([ip/1]).

-export_type([option/0, values/0]).

%% `value' names the value in the help and is absent for a flag. The value of a given flag is `true'.
-type option() :: #{
    name := atom(),
    type :=
        flag
        | {integer, Min :: integer(), Max :: integer()}
        | {choice, [atom()]}
        | {text, parser()}
        | {texts, parser()},
    value => string(),
    default => term(),
    help := string()
}.

%% An option of type `texts' may be repeated. Its value is the list of all its values, so its `default' should be `[]'.

%% Parses a value. An error says what is needed, as in "HOST:PORT is needed".
-type parser() :: fun((string()) -> {ok, term()} | {error, Needed :: iodata()}).

-type values() :: #{atom() => term()}.

%% @doc Parses arguments: `--name VALUE', `--name=VALUE' and `--flag'. Returns the arguments that do not begin with
%% `-', and all that follow `--', as operands in their order. An option that is not given has its default, or is absent
%% without one. If an option is repeated, the last value wins. An error is one line: the option, its value and what is
%% needed.
-spec parse([option()], [string()]) -> {ok, values(), Operands :: [string()]} | {error, iodata()}.
parse(Options, Arguments) ->
    parse(Options, Arguments, maps:from_list([{Name, Default} || #{name := Name, default := Default} <- Options]), []).

parse(_Options, [], Values, Operands) ->
    {ok, Values, lists:reverse(Operands)};
parse(_Options, ["--" | Rest], Values, Operands) ->
    {ok, Values, lists:reverse(Operands, Rest)};
parse(Options, ["-h" | Rest], Values, Operands) ->
    parse(Options, ["--help" | Rest], Values, Operands);
parse(Options, ["--" ++ Argument | Rest], Values, Operands) ->
    {Name, Inline} =
        case string:split(Argument, "=") of
            [Before, After] -> {Before, [After]};
            [Before] -> {Before, []}
        end,
    case [Option || #{name := Known} = Option <- Options, atom_to_list(Known) =:= Name] of
        [] ->
            {error, ["unknown option --", Name]};
        [#{type := flag, name := Key}] when Inline =:= [] ->
            parse(Options, Rest, Values#{Key => true}, Operands);
        [#{type := flag}] ->
            {error, ["--", Name, " takes no value"]};
        [Option] ->
            take(Options, Option, Inline ++ Rest, Values, Operands)
    end;
parse(_Options, ["-" ++ [_ | _] = Argument | _], _Values, _Operands) ->
    {error, ["unknown option ", Argument]};
parse(Options, [Operand | Rest], Values, Operands) ->
    parse(Options, Rest, Values, [Operand | Operands]).

take(_Options, #{name := Name, value := Value}, [], _Values, _Operands) ->
    {error, ["--", atom_to_list(Name), " needs a value: ", Value]};
take(Options, #{name := Name, type := Type}, [Text | Rest], Values, Operands) ->
    case value(Type, Text) of
        {ok, Value} -> parse(Options, Rest, with(Type, Name, Value, Values), Operands);
        {error, Needed} -> {error, ["--", atom_to_list(Name), " ", Text, ": ", Needed]}
    end.

with({texts, _}, Name, Value, Values) -> Values#{Name => maps:get(Name, Values, []) ++ [Value]};
with(_Type, Name, Value, Values) -> Values#{Name => Value}.

value({integer, Min, Max}, Text) ->
    try list_to_integer(Text) of
        Value when Value >= Min, Value =< Max -> {ok, Value};
        _ -> {error, integer_needed(Min, Max)}
    catch
        error:badarg -> {error, integer_needed(Min, Max)}
    end;
value({choice, Choices}, Text) ->
    case [Choice || Choice <- Choices, atom_to_list(Choice) =:= Text] of
        [Choice] -> {ok, Choice};
        [] -> {error, ["one of ", lists:join(", ", [atom_to_list(Choice) || Choice <- Choices]), " is needed"]}
    end;
value({Kind, Parser}, Text) when Kind =:= text; Kind =:= texts ->
    Parser(Text).

integer_needed(Min, Max) ->
    io_lib:format("a whole number from ~b to ~b is needed", [Min, Max]).

%% @doc Parser for an option that names an output file. Returns an error if the file cannot be written, so that a long
%% measurement does not fail at its end. Does not change an existing file, and leaves no new file behind.
-spec output_file(string()) -> {ok, file:filename()} | {error, Needed :: iodata()}.
output_file(File) ->
    Existed = filelib:is_file(File),
    case file:write_file(File, <<>>, [append]) of
        ok ->
            _ = Existed orelse file:delete(File),
            {ok, File};
        {error, Reason} ->
            {error, ["cannot be written: ", file:format_error(Reason)]}
    end.

%% @doc Parser for an option that is an IPv4 address.
-spec ip(string()) -> {ok, inet:ip4_address()} | {error, Needed :: string()}.
ip(Text) ->
    case inet:parse_ipv4strict_address(Text) of
        {ok, Ip} -> {ok, Ip};
        {error, einval} -> {error, "an IPv4 address is needed, such as 127.0.0.1"}
    end.

%% @doc Returns the part of a help text that lists the options, one on each line.
-spec help([option()]) -> iodata().
help(Options) ->
    Lines = [{["--", atom_to_list(Name), argument(Option)], Help} || #{name := Name, help := Help} = Option <- Options],
    Width = lists:max([iolist_size(Left) || {Left, _} <- Lines]),
    [["  ", string:pad(Left, Width), "   ", Help, "\n"] || {Left, Help} <- Lines].

argument(#{value := Value}) -> [" ", Value];
argument(_Flag) -> "".
