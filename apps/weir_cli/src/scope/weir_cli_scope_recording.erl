%% @doc `weir scope record', `replay' and `compare': recordings of a node.
-module(weir_cli_scope_recording).

-export([record/1]).
-export([replay/1]).
-export([compare/1]).

%% @doc Records a node for the given time, or until SIGTERM or SIGINT.
-spec record([string()]) -> weir_cli:outcome().
record(Arguments) ->
    case parsed(record, weir_cli_node:options() ++ options(record), 2, Arguments) of
        {ok, Values, [Name, File]} ->
            case weir_cli_options:output_file(File) of
                {ok, _} -> visited(Name, File, Values);
                {error, Needed} -> {failed, [File, ": ", Needed]}
            end;
        Outcome ->
            Outcome
    end.

visited(Name, File, Values) ->
    case weir_cli_node:connect(Name, Values) of
        {ok, Node} ->
            Load = not maps:get('no-load', Values, false),
            case weir_scope:open(Node, #{load => Load}) of
                {ok, View} ->
                    weir_cli_signal:report_to(self()),
                    Options = (maps:with([seconds, every], Values))#{
                        load => Load,
                        until => fun() ->
                            receive
                                stop -> true
                            after 0 -> false
                            end
                        end
                    },
                    Outcome = recorded(weir_scope_recording:record({Node, View}, File, Options), File),
                    ok = weir_scope:close(View),
                    Outcome;
                {error, Reason} ->
                    {failed, weir_cli_node:explain(Reason)}
            end;
        Failure ->
            Failure
    end.

recorded({ok, Seconds}, File) -> io:format("~b seconds recorded in ~ts~n", [Seconds, File]);
recorded({error, Reason}, File) -> {failed, explain(Reason, File)}.

%% @doc Shows a recording in the terminal, as text, or as a page.
-spec replay([string()]) -> weir_cli:outcome().
replay(Arguments) ->
    case parsed(replay, options(replay), 1, Arguments) of
        {ok, Values, [File]} ->
            case weir_scope_recording:read(File) of
                {ok, Recording} -> replayed(Values, File, Recording);
                {error, Reason} -> {failed, explain(Reason, File)}
            end;
        Outcome ->
            Outcome
    end.

replayed(#{http := _, once := true}, _File, _Recording) ->
    {usage, "--http and --once exclude each other (weir scope replay --help)"};
replayed(#{http := _} = Values, File, _Recording) ->
    weir_cli_scope_page:serve({weir_scope_replay, File}, Values);
replayed(Values, File, Recording) ->
    Node = binary_to_atom(weir_scope_recording:node(Recording)),
    case {weir_scope_recording:span(Recording), Values, os:getenv("WEIR_TERMINAL")} of
        {none, _, _} ->
            {failed, [File, ": the recording has no samples"]};
        {{_, Last}, #{once := true}, _} ->
            io:put_chars([
                ["== ", atom_to_list(Page), $\n, weir_cli_scope_screen:plain(Page, Data, Node), $\n]
             || Page <- weir_scope_page:names(), {ok, Data} <- [shown(Recording, Page, Last)]
            ]);
        {_, _, false} ->
            {usage, "no terminal: use --once or --http (weir scope replay --help)"};
        {{First, Last}, #{speed := Speed}, _} ->
            Began = erlang:monotonic_time(millisecond),
            weir_cli_scope_terminal:run(Node, fun(Page, _Sort) ->
                shown(Recording, Page, min(Last, First + Speed * (erlang:monotonic_time(millisecond) - Began)))
            end)
    end.

shown(Recording, Page, At) ->
    case weir_scope_recording:look(Recording, atom_to_binary(Page), At) of
        {ok, Then, Blocks} -> {ok, {recorded, Then, weir_scope_tabs:from_json(Blocks)}};
        {error, {not_recorded, _}} -> {error, "this page was not recorded"}
    end.

%% @doc Compares the medians of two recordings.
-spec compare([string()]) -> weir_cli:outcome().
compare(Arguments) ->
    case parsed(compare, options(compare), 2, Arguments) of
        {ok, #{least := Least}, [Before, Later]} ->
            case {weir_scope_recording:read(Before), weir_scope_recording:read(Later)} of
                {{ok, First}, {ok, Second}} ->
                    io:put_chars(
                        weir_scope_compare:text(weir_scope_compare:medians(First, Second), {Before, Later}, Least / 100)
                    );
                {{error, Reason}, _} ->
                    {failed, explain(Reason, Before)};
                {_, {error, Reason}} ->
                    {failed, explain(Reason, Later)}
            end;
        Outcome ->
            Outcome
    end.

parsed(Command, Options, Count, Arguments) ->
    Help = io_lib:format(" (weir scope ~s --help)", [Command]),
    case weir_cli_options:parse(Options, Arguments) of
        {ok, #{help := true}, _} ->
            {help, help(Command, Options)};
        {ok, Values, Operands} when length(Operands) =:= Count -> {ok, Values, Operands};
        {ok, _, Operands} ->
            {usage, [io_lib:format("~b arguments are needed, not ~b", [Count, length(Operands)]), Help]};
        {error, Message} ->
            {usage, [Message, Help]}
    end.

explain({file, Reason}, File) -> [File, ": ", file:format_error(Reason)];
explain({no_recording, _}, File) -> [File, ": not a recording of weir scope"];
explain({too_large, Bytes}, File) -> io_lib:format("~ts: larger than ~b bytes", [File, Bytes]);
explain(Reason, _File) -> weir_cli_node:explain(Reason).

options(Command) ->
    of_command(Command) ++ [#{name => help, type => flag, help => "this text"}].

of_command(record) ->
    [
        #{name => seconds, type => {integer, 1, 86400}, value => "S", default => 60,
            help => "seconds to record (60)"},
        #{name => every, type => {integer, 1, 3600}, value => "S", default => 10,
            help => "seconds between records of all tables (10); numbers are recorded each second"}
    ];
of_command(replay) ->
    [
        #{name => http, type => {integer, 0, 65535}, value => "PORT",
            help => "serve it as a page on 127.0.0.1, 0 takes a free port, until SIGTERM or SIGINT"},
        #{name => 'no-token', type => flag,
            help => "with --http: need no token, so that every user of this machine has access"},
        #{name => once, type => flag,
            help => "print all pages at the end of the recording, as text"},
        #{name => speed, type => {integer, 1, 1000}, value => "N", default => 1,
            help => "replay N times as fast in the terminal (1)"}
    ];
of_command(compare) ->
    [
        #{name => least, type => {integer, 0, 1000}, value => "P", default => 5,
            help => "leave out figures that differ by less than P percent (5)"}
    ].

help(record, Options) ->
    [
        "weir scope record: record a node into a file\n\n"
        "usage: weir scope record NODE FILE [OPTION...]\n\n"
        "Each line of the file is a JSON object; docs/guide/scope.md describes them. A file whose name ends\n"
        "in .gz is compressed. Ctrl+C ends the recording early and keeps what was recorded.\n\n",
        weir_cli_options:help(Options)
    ];
help(replay, Options) ->
    [
        "weir scope replay: show a recording\n\nusage: weir scope replay FILE [OPTION...]\n\n",
        weir_cli_options:help(Options)
    ];
help(compare, Options) ->
    [
        "weir scope compare: compare the medians of two recordings\n\n"
        "usage: weir scope compare FILE FILE [OPTION...]\n\n",
        weir_cli_options:help(Options)
    ].
