%% @doc `weir doctor': finds wrong settings and present faults of a node.
-module(weir_cli_doctor).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} ->
            {help, help()};
        {ok, Values, [Name]} ->
            examine(Name, Values);
        {ok, _, []} ->
            {usage, "a node is missing (weir doctor --help)"};
        {ok, _, [_, Extra | _]} ->
            {usage, ["only one node can be examined, unexpected argument: ", Extra, " (weir doctor --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir doctor --help)"]}
    end.

examine(Name, Values) ->
    case weir_cli_node:connect(Name, Values) of
        {ok, Node} ->
            Options = #{load => not maps:get('no-load', Values, false), over => maps:get(seconds, Values) * 1000},
            case weir_scope_doctor:examine(Node, Options) of
                {ok, Report} -> tell(Report, Values);
                {error, Reason} -> {failed, weir_cli_node:explain(Reason)}
            end;
        Failure ->
            Failure
    end.

tell(Report, Values) ->
    io:put_chars(
        case Values of
            #{json := true} -> weir_json:encode(document(Report));
            _ -> weir_scope_doctor:text(Report)
        end
    ),
    {found, weir_scope_doctor:worst(Report)}.

document(#{unknown := Unknown} = Report) ->
    Report#{unknown => [#{rule => Rule, missing => [missing(Need) || Need <- Missing]} || {Rule, Missing} <- Unknown]}.

missing({over, Fact}) -> Fact;
missing(Fact) -> Fact.

options() ->
    weir_cli_node:options() ++
        [
            #{name => seconds, type => {integer, 1, 60}, value => "S", default => 1,
                help => "seconds to watch counters (1)"},
            #{name => json, type => flag,
                help => "print JSON instead of text"},
            #{name => help, type => flag,
                help => "this text"}
        ].

help() ->
    [
        "weir doctor: find wrong settings and present faults of a node\n"
        "\n"
        "usage: weir doctor NODE [OPTION...]\n"
        "\n"
        "NODE is any node of OTP 25 or later that Erlang's distribution reaches, such as app@127.0.0.1. It\n"
        "needs no part of Weir. The doctor changes nothing there. Exit code: 0 nothing found or only notes, 4\n"
        "warnings, 5 something critical.\n"
        "\n",
        weir_cli_options:help(options())
    ].
