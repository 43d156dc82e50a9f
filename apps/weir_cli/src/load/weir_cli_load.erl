%% @doc `weir load': puts load on a server and reports the results; compares two reports.
%%
%% Exit codes: 0 all promises kept; 1 a promise broken, or no load possible; 2 wrong argument; 3 the generator itself
%% could not offer the load, so that promises were not judged.
-module(weir_cli_load).

-export([run/1]).

-spec run([string()]) -> weir_cli:outcome().
run([]) ->
    {usage, "a scenario is missing (weir load --help lists them)"};
run([Help | _]) when Help =:= "--help"; Help =:= "-h" -> {help, help()};
run(["compare" | Arguments]) ->
    weir_cli_load_compare:run(Arguments);
run(["-" ++ _ = Option | _]) ->
    {usage, ["the scenario must come before ", Option, " (weir load --help)"]};
run([Name | Arguments]) ->
    case scenario(Name) of
        {ok, Scenario} ->
            #{options := Own} = Description = weir_load_scenario:describe(Scenario),
            Taken = [
                Option
             || #{name := Option} <- Own, #{name := General} <- weir_cli_load_options:all(), Option =:= General
            ],
            case Taken of
                [] ->
                    run(Name, Scenario, Description, Arguments);
                [Option | _] ->
                    {failed, [Name, " defines --", atom_to_list(Option), ", which is an option of all scenarios"]}
            end;
        {error, Message} ->
            {usage, Message}
    end.

%% Any other name is a module of the user.
scenario(Name) ->
    case lists:keyfind(Name, 1, scenarios()) of
        {Name, Module} ->
            loaded(Module);
        false ->
            Module = list_to_atom(Name),
            case loaded(Module) of
                {ok, Module} ->
                    Missing = [
                        io_lib:format("~s/~b", [Function, Arity])
                     || {Function, Arity} <- [{init, 1}, {connect, 2}, {request, 2}, {response, 2}, {done, 1}],
                        not erlang:function_exported(Module, Function, Arity)
                    ],
                    case Missing of
                        [] ->
                            {ok, Module};
                        _ ->
                            {error, [
                                "the module ",
                                Name,
                                " is not a scenario, it does not export ",
                                lists:join(", ", Missing)
                            ]}
                    end;
                error ->
                    {error, ["unknown scenario ", Name, ": one of ", names(), " or a module of your own is needed"]}
            end
    end.

loaded(Module) ->
    case code:ensure_loaded(Module) of
        {module, Module} -> {ok, Module};
        {error, _} -> error
    end.

scenarios() ->
    [
        {"echo", weir_load_echo},
        {"http", weir_load_http},
        {"fast_connect", weir_load_fast_connect},
        {"fast_receive", weir_load_fast_receive},
        {"proxy", weir_load_proxy},
        {"fanout", weir_load_fanout},
        {"game", weir_load_game},
        {"idle", weir_load_idle}
    ].

names() -> lists:join(", ", [Name || {Name, _} <- scenarios()]).

run(Name, Scenario, #{options := Own, defaults := Defaults} = Description, Arguments) ->
    Options = Own ++ weir_cli_load_options:all(Description),
    Bare = [maps:remove(default, Option) || Option <- Options],
    case weir_cli_options:parse(Bare, Arguments) of
        {ok, #{help := true}, _} ->
            {help, help(Name, Description)};
        {ok, Given, [Target]} ->
            %% The scenario's defaults are texts, as arguments are. They come first, so that the user's arguments win.
            Texts = [
                lists:flatten(["--", atom_to_list(Option), "=", Text])
             || {Option, Text} <- Defaults, default_applies(Option, Given)
            ],
            {ok, Values, _} = weir_cli_options:parse(Options, Texts ++ Arguments),
            case weir_cli_load_plan:new(Name, Scenario, Description, Target, Values) of
                {ok, Plan, About, Outputs} -> offer(Plan, About, Outputs);
                {error, Message} -> {usage, [Message, " (weir load ", Name, " --help)"]}
            end;
        {ok, _, []} ->
            {usage, ["a target is missing: HOST:PORT is needed (weir load ", Name, " --help)"]};
        {ok, _, [_, Extra | _]} ->
            {usage, ["only one target is possible, unexpected argument: ", Extra, " (weir load ", Name, " --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir load ", Name, " --help)"]}
    end.

%% A closed loop has no rate, and its number of connections is its concurrency. A search begins at a constant rate.
default_applies(rate, #{concurrency := _}) -> false;
default_applies(rate, #{search := _}) -> false;
default_applies(connections, #{concurrency := _}) -> false;
default_applies(_Option, _Given) -> true.

%% Running

offer(Plan, About, Outputs) ->
    case nodes_of(Outputs) of
        {ok, Nodes} -> measure(Plan#{nodes => Nodes}, About#{nodes => Nodes}, Outputs);
        {error, Message} -> {failed, Message}
    end.

%% Returns the nodes that generate the load, and connects them and an observed node. Names must be all short or all
%% long.
nodes_of(Outputs) ->
    Observed = [Node || #{observe := Node} <- [Outputs], is_atom(Node)],
    Cookie = maps:get(cookie, Outputs, none),
    case Outputs of
        #{nodes := Nodes} ->
            joined(Nodes ++ Observed, Cookie, Nodes);
        #{'local-nodes' := Count} ->
            case weir_load_nodes:start_local(Count) of
                {ok, Nodes} -> joined(Observed, Cookie, Nodes);
                {error, _} = Error -> Error
            end;
        #{} ->
            joined(Observed, Cookie, [node()])
    end.

joined(Others, Cookie, Nodes) ->
    case weir_load_nodes:join(Others, Cookie) of
        ok when Nodes =:= [nonode@nohost] -> {ok, [node()]};
        ok -> {ok, Nodes};
        {error, _} = Error -> Error
    end.

measure(#{load := {open, [{constant, Start, _}], Pattern}} = Plan, About, #{search := {Text, Promise}} = Outputs) ->
    Search = (maps:with([json, repeat], Outputs))#{start => Start, pattern => Pattern, text => Text},
    weir_cli_load_search:run(Plan, About, Search, Promise);
measure(_Plan, _About, #{search := _}) ->
    {usage, "--search needs a constant --rate to begin with"};
measure(#{duration := Duration} = Plan, About, #{repeat := Repeat} = Outputs) ->
    Live = weir_load_live:new(os:getenv("WEIR_PROGRESS") =:= "rewrite", Duration),
    case weir_cli_load_job:runs(Repeat, Plan, fun(News) -> weir_load_live:show(News, Live) end) of
        {ok, Outcomes} ->
            weir_load_live:show(clear, Live),
            report(weir_load_document:new(About, Outcomes), Outputs);
        {error, Message} ->
            weir_load_live:show(clear, Live),
            {failed, Message};
        {unoffered, Message} ->
            weir_load_live:show(clear, Live),
            {unoffered, Message}
    end.

report(Document, Outputs) ->
    io:put_chars(weir_load_document:text(Document)),
    Written = [write(Kind, File, Document) || {Kind, File} <- maps:to_list(maps:with([json, html], Outputs))],
    case [Message || {error, Message} <- Written] of
        [Message | _] -> {failed, Message};
        [] -> verdict(Document)
    end.

write(json, File, Document) -> written(File, file:write_file(File, weir_json:encode(Document)));
write(html, File, Document) ->
    case weir_load_report:page(Document) of
        {ok, Page} -> written(File, file:write_file(File, Page));
        {error, Message} -> {error, Message}
    end.

written(_File, ok) -> ok;
written(File, {error, Reason}) -> {error, ["cannot write ", File, ": ", file:format_error(Reason)]}.

verdict(#{valid := false, invalid := [Reason | _]}) ->
    {unoffered, Reason};
verdict(#{promises := Promises, total := Total}) ->
    case {[Promise || #{promise := Promise, kept := false} <- Promises], Total} of
        {[_ | _] = Broken, _} -> {failed, ["promise broken: ", lists:join(", ", Broken)]};
        {[], #{connected := 0}} -> {failed, "no connection could be opened"};
        {[], #{answered := 0, offered := Offered}} when is_integer(Offered), Offered > 0 ->
            {failed, "no request was answered"};
        %% A closed loop has no schedule and thus no `offered'. Pushed messages come without requests.
        {[], #{answered := 0, pushed := 0, error_count := Errors}} when Errors > 0 ->
            {failed, ["no request was answered, errors: ", integer_to_list(Errors)]};
        {[], _} -> ok
    end.

%% Help

help() ->
    Width = lists:max([length(Name) || {Name, _} <- scenarios()]),
    [
        "usage: weir load SCENARIO HOST:PORT [OPTION...]\n"
        "       weir load compare A.json B.json\n"
        "\n"
        "Puts load on a TCP server and reports the results. In an open loop (--rate) requests are due by a\n"
        "schedule that does not depend on the server, and response times count from the due time.\n"
        "\n",
        [
            ["  ", string:pad(Name, Width), "   ", maps:get(summary, weir_load_scenario:describe(Module)), "\n"]
         || {Name, Module} <- scenarios(), {ok, _} <- [loaded(Module)]
        ],
        "\n"
        "Any other name is the name of your own weir_load_scenario module (set its directory with\n"
        "ERL_FLAGS=\"-pa DIR\").\n"
        "\n"
        "Exit code: 0 all promises kept, 1 a promise broken or no load possible, 2 wrong argument, 3 the\n"
        "generator itself could not offer the load. Ctrl-C ends a run early and reports what was measured.\n"
        "\n"
        "Options: weir load SCENARIO --help\n"
    ].

help(Name, #{summary := Summary, help := Help, options := Own, defaults := Defaults} = Description) ->
    [
        "usage: weir load ",
        Name,
        " HOST:PORT [OPTION...]\n\n",
        string:titlecase(Summary),
        ".\n",
        Help,
        [
            ["Defaults:", [[" --", atom_to_list(Option), " ", Text] || {Option, Text} <- Defaults], "\n"]
         || Defaults =/= []
        ],
        "\n",
        weir_cli_options:help(Own ++ weir_cli_load_options:all(Description)),
        "\n"
        "RATE is per second: 2000 (constant), 100..5000 (ramp), 100,200,400 (steps), 44.4t (44.4 more each second),\n"
        "pow:5000:2 (up to 5000 by the square of time).\n"
        "PROMISE is a figure, then < <= > >= or =, then a value. Figures: p50 p75 p90 p95 p99 p999 p9999\n"
        "p99999 min max mean stdev of the response time, or of service, connect, first_byte, lag or push, as\n"
        "in service.p99; errors, errors.KIND, achieved_rate, pushed_rate, answered, pushed, connected.\n"
    ].
