%% @doc `weir load': offers load to a server and reports what came of it; compares two such reports.
%%
%% Exit codes: 0 if all promises were kept, 1 if one was broken or the load was not possible, 2 for a wrong argument, 3
%% if the generator itself could not offer the load, which makes promises void.
-module(weir_cli_load).

-export([run/1]).

-define(SECOND, 1_000_000_000).

-spec run([string()]) -> weir_cli:outcome().
run([]) -> {usage, "a scenario is missing (weir load --help lists them)"};
run([Help | _]) when Help =:= "--help"; Help =:= "-h" -> {help, help()};
run(["compare" | Arguments]) -> weir_cli_load_compare:run(Arguments);
run(["-" ++ _ = Option | _]) -> {usage, ["a scenario comes first, and ", Option, " is none (weir load --help)"]};
run([Name | Arguments]) ->
    case scenario(Name) of
        {ok, Scenario} ->
            #{options := Own} = Description = weir_load_scenario:describe(Scenario),
            Taken = [Option || #{name := Option} <- Own, #{name := General} <- options(), Option =:= General],
            case Taken of
                [] -> run(Name, Scenario, Description, Arguments);
                [Option | _] -> {failed, [Name, " has an option --", atom_to_list(Option), ", which all have"]}
            end;
        {error, Message} -> {usage, Message}
    end.

%% Another name is that of the user's own module.
scenario(Name) ->
    case lists:keyfind(Name, 1, scenarios()) of
        {Name, Module} -> loaded(Module);
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
                        [] -> {ok, Module};
                        _ -> {error, ["the module ", Name, " is no scenario, it lacks ", lists:join(", ", Missing)]}
                    end;
                error ->
                    {error, ["no scenario ", Name, ": one of ", names(), " or a module of yours is needed"]}
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
    Options = Own ++ options(Description),
    Bare = [maps:remove(default, Option) || Option <- Options],
    case weir_cli_options:parse(Bare, Arguments) of
        {ok, #{help := true}, _} ->
            {help, help(Name, Description)};
        {ok, Given, [Target]} ->
            %% Defaults of the scenario are texts like those of the user, which come after them.
            Texts = [
                lists:flatten(["--", atom_to_list(Option), "=", Text])
             || {Option, Text} <- Defaults, default_applies(Option, Given)
            ],
            {ok, Values, _} = weir_cli_options:parse(Options, Texts ++ Arguments),
            case plan(Name, Scenario, Description, Target, Values) of
                {ok, Plan, About, Outputs} -> offer(Plan, About, Outputs);
                {error, Message} -> {usage, [Message, " (weir load ", Name, " --help)"]}
            end;
        {ok, _, []} ->
            {usage, ["a target is missing: HOST:PORT is needed (weir load ", Name, " --help)"]};
        {ok, _, [_, Extra | _]} ->
            {usage, ["one target at a time, and what is ", Extra, "? (weir load ", Name, " --help)"]};
        {error, Message} ->
            {usage, [Message, " (weir load ", Name, " --help)"]}
    end.

%% A closed loop needs no rate, and a search begins with a constant one.
default_applies(rate, #{concurrency := _}) -> false;
default_applies(rate, #{search := _}) -> false;
default_applies(connections, #{concurrency := _}) -> false;
default_applies(_Option, _Given) -> true.

%% From values to a plan

plan(Name, Scenario, #{arrivals := Arrivals}, Target, Values) ->
    case {target(Target), load(Name, Arrivals, Values)} of
        {{error, Needed}, _} ->
            {error, [Target, ": ", Needed]};
        {_, {error, Message}} ->
            {error, Message};
        {{ok, Url, Host, Port, Paths}, {ok, Load, Connections}} ->
            case {address(Host), transport(Url, Scenario, Values)} of
                {_, {error, Message}} ->
                    {error, Message};
                {{ok, Address}, {ok, Outer, OfTransport}} ->
                    #{duration := Duration, warmup := Warmup, timeout := Timeout, 'max-lag' := MaxLag} = Values,
                    OfUrl = maps:from_list([{path, Path} || Path <- Paths]),
                    Given = maps:merge((maps:merge(OfUrl, Values))#{host => Host, address => Address, port => Port}, OfTransport),
                    Plan = #{
                        scenario => Outer,
                        options => Given,
                        address => Address,
                        port => Port,
                        load => Load,
                        connections => Connections,
                        connect_rate => maps:get('connect-rate', Values, unlimited),
                        depth => maps:get(depth, Values, 1),
                        duration => Duration,
                        warmup => Warmup,
                        timeout => Timeout,
                        drivers => maps:get(drivers, Values, drivers(Values)),
                        nodes => [node()],
                        observe => maps:get(observe, Values, none)
                    },
                    About = about(Name, Target, Plan, Values, MaxLag),
                    {ok, Plan, About, maps:with([json, html, search, repeat, nodes, 'local-nodes', observe, cookie], Values)};
                {{error, Reason}, _} ->
                    {error, ["the host ", Host, " is not known: ", inet:format_error(Reason)]}
            end
    end.

%% The scenario as it is, or within TLS.
transport("http", _Scenario, #{tls := true}) ->
    {error, "--tls and http:// exclude each other: https:// is needed"};
transport(Url, Scenario, Values) when Url =:= "https"; is_map_key(tls, Values) ->
    Trust =
        case Values of
            #{insecure := true, cacert := _} -> {error, "--insecure and --cacert exclude each other"};
            #{insecure := true} -> anybody;
            #{cacert := File} -> {file, File};
            #{} -> system
        end,
    case Trust of
        {error, _} = Error -> Error;
        _ -> {ok, weir_load_tls, #{tls => true, within_tls => Scenario, trust => Trust}}
    end;
transport(_Url, Scenario, Values) ->
    case [Option || Option <- [cacert, insecure], is_map_key(Option, Values)] of
        [Option | _] -> {error, ["--", atom_to_list(Option), " is for TLS: --tls or a URL with https:// is needed"]};
        [] -> {ok, Scenario, #{}}
    end.

%% Nodes of this machine share its cores.
drivers(#{'local-nodes' := Count}) -> max(1, erlang:system_info(schedulers_online) div Count);
drivers(_Values) -> erlang:system_info(schedulers_online).

about(Name, Target, #{load := Load} = Plan, Values, MaxLag) ->
    {Loop, Rate, Pattern, Seed, Concurrency} =
        case Load of
            {open, _, even} -> {open, rate_text(Values), even, null, null};
            {open, _, {poisson, Given}} -> {open, rate_text(Values), poisson, Given, null};
            {closed, Count} -> {closed, null, null, null, Count};
            none -> {none, null, null, null, null}
        end,
    (maps:with([connections, depth], Plan))#{
        scenario => list_to_binary(Name),
        tls => maps:get(scenario, Plan) =:= weir_load_tls,
        observe => maps:get(observe, Values, null),
        target => unicode:characters_to_binary(Target),
        loop => Loop,
        rate => Rate,
        arrivals => Pattern,
        seed => Seed,
        concurrency => Concurrency,
        duration_ns => maps:get(duration, Plan),
        warmup_ns => maps:get(warmup, Plan),
        timeout_ns => maps:get(timeout, Plan),
        max_lag_ns => MaxLag,
        started => list_to_binary(calendar:system_time_to_rfc3339(erlang:system_time(second), [{offset, "Z"}])),
        promises => maps:get(assert, Values)
    }.

rate_text(#{rate := {Text, _}}) -> list_to_binary(Text).

load(_Name, _Arrivals, #{nodes := _, 'local-nodes' := _}) ->
    {error, "--nodes and --local-nodes exclude each other"};
load(Name, none, Values) ->
    case [Option || Option <- [rate, concurrency, search, depth], is_map_key(Option, Values)] of
        [Option | _] -> {error, ["--", atom_to_list(Option), " is not for ", Name, ", where nothing is asked for"]};
        [] -> {ok, none, maps:get(connections, Values, 50)}
    end;
load(Name, connection, #{connections := _}) ->
    {error, ["--connections is not for ", Name, ", where every arrival is a connection: --rate or --concurrency"]};
load(_Name, _Arrivals, #{rate := _, concurrency := _}) ->
    {error, "--rate and --concurrency exclude each other: a load is an open or a closed loop"};
load(_Name, _Arrivals, #{connections := _, concurrency := _}) ->
    {error, "--connections and --concurrency exclude each other: a closed loop has a connection for each"};
load(_Name, _Arrivals, #{search := _, html := _}) ->
    {error, "--html draws a run, and --search has many: --json"};
load(_Name, _Arrivals, #{search := _, concurrency := _}) ->
    {error, "--search looks for a rate, and --concurrency excludes one"};
load(_Name, Arrivals, #{rate := {_, Rate}, duration := Duration, arrivals := Pattern, seed := Seed} = Values) ->
    Spread = case Pattern of even -> even; poisson -> {poisson, Seed} end,
    {ok, {open, weir_load_units:segments(Rate, Duration), Spread}, pool(Arrivals, maps:get(connections, Values, 50))};
load(Name, Arrivals, #{search := _} = Values) ->
    load(Name, Arrivals, Values#{rate => {"1000", {constant, 1000}}});
load(_Name, Arrivals, Values) ->
    Count = maps:get(concurrency, Values, maps:get(connections, Values, 50)),
    {ok, {closed, Count}, pool(Arrivals, Count)}.

pool(connection, _Connections) -> 0;
pool(_Arrivals, Connections) -> Connections.

target("http://" ++ Url) -> url("http", 80, Url);
target("https://" ++ Url) -> url("https", 443, Url);
target(Text) ->
    case host_and_port(Text) of
        {ok, Host, Port} -> {ok, none, Host, Port, []};
        error -> {error, needed_target()}
    end.

url(Scheme, DefaultPort, Url) ->
    {Authority, Path} =
        case string:split(Url, "/") of
            [Before, After] -> {Before, ["/" ++ After]};
            [Before] -> {Before, ["/"]}
        end,
    case {host_and_port(Authority), re:run(Authority, "^([^:\\[\\]]+|\\[.+\\])$")} of
        {{ok, Host, Port}, nomatch} -> {ok, Scheme, Host, Port, Path};
        {_, {match, _}} -> {ok, Scheme, string:trim(Authority, both, "[]"), DefaultPort, Path};
        {error, nomatch} -> {error, needed_target()}
    end.

host_and_port(Text) ->
    case string:split(Text, ":", trailing) of
        [[_ | _] = Host, PortText] ->
            case string:to_integer(PortText) of
                {Port, ""} when Port >= 1, Port =< 65535 -> {ok, string:trim(Host, both, "[]"), Port};
                _ -> error
            end;
        _ ->
            error
    end.

needed_target() -> "HOST:PORT is needed, such as 127.0.0.1:8080".

address(Host) ->
    case inet:getaddr(Host, inet) of
        {ok, Address} -> {ok, Address};
        {error, Reason} ->
            case inet:getaddr(Host, inet6) of
                {ok, Address} -> {ok, Address};
                {error, _} -> {error, Reason}
            end
    end.

%% Running

offer(Plan, About, Outputs) ->
    case nodes_of(Outputs) of
        {ok, Nodes} -> measure(Plan#{nodes => Nodes}, About#{nodes => Nodes}, Outputs);
        {error, Message} -> {failed, Message}
    end.

%% The nodes that the load comes from. One that is observed is joined with them, as names are all short or all long.
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
    {usage, "--search begins with a --rate that is constant"};
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

write(json, File, Document) -> written(File, file:write_file(File, weir_load_json:encode(Document)));
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
            {failed, "nothing was answered"};
        %% A closed loop offers nothing by a schedule, and pushed messages are not asked for.
        {[], #{answered := 0, pushed := 0, error_count := Errors}} when Errors > 0 ->
            {failed, ["nothing was answered, errors: ", integer_to_list(Errors)]};
        {[], _} -> ok
    end.

%% Options

%% Where nothing is asked for, there is no rate of it.
options(#{arrivals := none}) ->
    OfRequests = [rate, concurrency, arrivals, seed, depth, search],
    [Option || #{name := Name} = Option <- options(), not lists:member(Name, OfRequests)];
options(_Description) ->
    options().

options() ->
    File = {text, fun(File) -> {ok, File} end},
    Output = {text, fun weir_cli_options:output_file/1},
    [
        #{name => rate, type => {text, fun rate/1}, value => "RATE",
            help => "open loop: so many a second, whatever comes of them (see below)"},
        #{name => arrivals, type => {choice, [even, poisson]}, value => "A", default => even,
            help => "at even distances or at random (even)"},
        #{name => seed, type => {integer, 0, 1 bsl 32}, value => "N", default => 1,
            help => "of random arrivals, which are the same with the same seed (1)"},
        #{name => concurrency, type => {integer, 1, 1_000_000}, value => "N",
            help => "closed loop: N connections, each asks when it has its answer (without --rate: 50)"},
        #{name => connections, type => {integer, 1, 1_000_000}, value => "N",
            help => "connections, opened before the load (50)"},
        #{name => 'connect-rate', type => {text, fun connect_rate/1}, value => "R",
            help => "of these, at most so many opened a second (no limit)"},
        #{name => depth, type => {integer, 1, 1000}, value => "N",
            help => "requests on their way on a connection at the same time (1)"},
        #{name => duration, type => {text, fun positive_time/1}, value => "TIME", default => 10 * ?SECOND,
            help => "the measured window (10s)"},
        #{name => warmup, type => {text, fun weir_load_units:time/1}, value => "TIME", default => 0,
            help => "load before it that is not measured, at the first rate (0s)"},
        #{name => timeout, type => {text, fun positive_time/1}, value => "TIME", default => 5 * ?SECOND,
            help => "longest wait for an answer, from when it was due, or for a connection (5s)"},
        #{name => repeat, type => {integer, 1, 100}, value => "N", default => 1,
            help => "the same again, for compare to know the noise; searches, with --search (1)"},
        #{name => assert, type => {texts, fun weir_load_promise:parse/1}, value => "PROMISE", default => [],
            help => "such as p99<10ms or errors=0; may be given several times"},
        #{name => search, type => {text, fun search/1}, value => "PROMISE",
            help => "find the highest rate that keeps it, from --rate on (1000)"},
        #{name => 'max-lag', type => {text, fun positive_time/1}, value => "TIME", default => ?SECOND div 100,
            help => "a run is invalid if the p99 of the generator's own lag is more (10ms)"},
        #{name => tls, type => flag, help => "within TLS; so is a URL that begins with https://"},
        #{name => cacert, type => File, value => "FILE",
            help => "certificates in PEM of those who may sign for the server (the system's)"},
        #{name => insecure, type => flag, help => "take any certificate"},
        #{name => observe, type => {text, fun observed/1}, value => "PID|NODE",
            help => "CPU and memory of the server, a process here or an Erlang node, on the same time axis"},
        #{name => cookie, type => {text, fun cookie/1}, value => "COOKIE",
            help => "of the Erlang nodes (that in ~/.erlang.cookie)"},
        #{name => json, type => Output, value => "FILE", help => "write everything to FILE, as JSON"},
        #{name => html, type => Output, value => "FILE", help => "write a report with charts to FILE"},
        #{name => drivers, type => {integer, 1, 1024}, value => "N",
            help => "processes that drive connections (as many as schedulers)"},
        #{name => nodes, type => {text, fun node_names/1}, value => "A@H,...",
            help => "Erlang nodes that the load comes from, with Weir in their code path (this one)"},
        #{name => 'local-nodes', type => {integer, 1, 64}, value => "N",
            help => "start N nodes on this machine, and take those"},
        #{name => help, type => flag, help => "this text"}
    ].

node_names(Text) ->
    Names = string:lexemes(Text, ","),
    case Names =/= [] andalso lists:all(fun(Name) -> re:run(Name, "^[^@ ]+@[^@ ]+$") =/= nomatch end, Names) of
        true -> {ok, [list_to_atom(Name) || Name <- Names]};
        false -> {error, "names of nodes are needed, such as a@host1,b@host2"}
    end.

observed(Text) ->
    case {string:to_integer(Text), node_names(Text)} of
        {{Pid, ""}, _} when Pid >= 1, Pid =< 1 bsl 22 -> {ok, Pid};
        {_, {ok, [Node]}} -> {ok, Node};
        _ -> {error, "a process id or the name of an Erlang node, such as server@host1, is needed"}
    end.

cookie("") -> {error, "a cookie is needed"};
cookie(Text) when length(Text) > 255 -> {error, "a cookie of at most 255 characters is needed"};
cookie(Text) -> {ok, list_to_atom(Text)}.

rate(Text) ->
    case weir_load_units:rate(Text) of
        {ok, Rate} -> {ok, {Text, Rate}};
        {error, _} = Error -> Error
    end.

connect_rate(Text) ->
    case weir_load_units:number(Text) of
        {ok, Rate} when Rate > 0 -> {ok, Rate};
        _ -> {error, "connections a second are needed, such as 1000"}
    end.

positive_time(Text) ->
    case weir_load_units:time(Text) of
        {ok, 0} -> {error, "a time longer than 0 is needed"};
        {ok, Time} when Time > 24 * 3600 * ?SECOND -> {error, "a day at most is needed"};
        Other -> Other
    end.

search(Text) ->
    case weir_load_promise:parse(Text) of
        {ok, Promise} -> {ok, {Text, Promise}};
        {error, _} = Error -> Error
    end.

%% Help

help() ->
    Width = lists:max([length(Name) || {Name, _} <- scenarios()]),
    [
        "usage: weir load SCENARIO HOST:PORT [OPTION...]\n"
        "       weir load compare A.json B.json\n"
        "\n"
        "Offers load to a TCP server and reports what came of it. Requests of an open loop (--rate) are due by a\n"
        "schedule, and response times count from then, whatever the server does meanwhile.\n"
        "\n",
        [
            ["  ", string:pad(Name, Width), "   ", maps:get(summary, weir_load_scenario:describe(Module)), "\n"]
         || {Name, Module} <- scenarios(), {ok, _} <- [loaded(Module)]
        ],
        "\n"
        "Any other name is that of a module of yours, a weir_load_scenario (ERL_FLAGS=\"-pa DIR\" says where it is).\n"
        "\n"
        "Exit codes: 0 all promises kept, 1 one broken or no load possible, 2 a wrong argument, 3 the generator itself\n"
        "could not offer the load. Ctrl-C ends a run with the report of what was measured.\n"
        "\n"
        "Options: weir load SCENARIO --help\n"
    ].

help(Name, #{summary := Summary, help := Help, options := Own, defaults := Defaults} = Description) ->
    [
        "usage: weir load ", Name, " HOST:PORT [OPTION...]\n\n",
        string:titlecase(Summary), ".\n", Help,
        [["Unless told otherwise:", [[" --", atom_to_list(Option), " ", Text] || {Option, Text} <- Defaults], "\n"]
         || Defaults =/= []],
        "\n",
        weir_cli_options:help(Own ++ options(Description)),
        "\n"
        "RATE is a second: 2000 (constant), 100..5000 (ramp), 100,200,400 (steps), 44.4t (44.4 more each second),\n"
        "pow:5000:2 (to 5000 by the square of time). A PROMISE is one of p50 p75 p90 p95 p99 p999 p9999 p99999 min max\n"
        "mean stdev, of the response time or, as in service.p99, of service, connect, first_byte, lag, push; or errors,\n"
        "errors.KIND, achieved_rate, pushed_rate, answered, pushed, connected; then < <= > >= or = and a value.\n"
    ].
