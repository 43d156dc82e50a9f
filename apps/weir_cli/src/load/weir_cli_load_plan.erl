%% @doc Turns the command line of `weir load' into a plan for the generator and a description of it for reports.
-module(weir_cli_load_plan).

-export([new/5]).

%% @doc Returns the plan of a run, its description for the report, and the options that are not part of the plan
%% (output files, search, repeats, nodes). An error is one line: options that exclude each other, a wrong target, or an
%% unknown host.
-spec new(
    Name :: string(), module(), weir_load_scenario:description(), Target :: string(), weir_cli_options:values()
) ->
    {ok, weir_load_run:plan(), weir_load_document:about(), Outputs :: weir_cli_options:values()} | {error, iodata()}.
new(Name, Scenario, #{arrivals := Arrivals}, Target, Values) ->
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
                    Given = maps:merge(
                        (maps:merge(OfUrl, Values))#{host => Host, address => Address, port => Port}, OfTransport
                    ),
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
                    {ok, Plan, About,
                        maps:with([json, html, search, repeat, nodes, 'local-nodes', observe, cookie], Values)};
                {{error, Reason}, _} ->
                    {error, ["unknown host ", Host, ": ", inet:format_error(Reason)]}
            end
    end.

%% Returns the scenario as it is, or wrapped in TLS.
transport("http", _Scenario, #{tls := true}) ->
    {error, "--tls and http:// exclude each other: use https://"};
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
        [Option | _] -> {error, ["--", atom_to_list(Option), " needs TLS: --tls or a URL with https://"]};
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
        [Option | _] -> {error, ["--", atom_to_list(Option), " is not for ", Name, ", which sends no requests"]};
        [] -> {ok, none, maps:get(connections, Values, 50)}
    end;
load(Name, connection, #{connections := _}) ->
    {error, [
        "--connections is not for ", Name, ", which opens a connection for each request: use --rate or --concurrency"
    ]};
load(_Name, _Arrivals, #{rate := _, concurrency := _}) ->
    {error, "--rate and --concurrency exclude each other: a load is an open or a closed loop"};
load(_Name, _Arrivals, #{connections := _, concurrency := _}) ->
    {error, "--connections and --concurrency exclude each other: --concurrency is the number of connections"};
load(_Name, _Arrivals, #{search := _, html := _}) ->
    {error, "--html and --search exclude each other: a report shows one run, use --json"};
load(_Name, _Arrivals, #{search := _, concurrency := _}) ->
    {error, "--search and --concurrency exclude each other: a closed loop has no rate"};
load(_Name, Arrivals, #{rate := {_, Rate}, duration := Duration, arrivals := Pattern, seed := Seed} = Values) ->
    Spread =
        case Pattern of
            even -> even;
            poisson -> {poisson, Seed}
        end,
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
