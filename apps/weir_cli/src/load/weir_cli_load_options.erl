%% @doc The options that all scenarios of `weir load' have, with the parsers of their values.
-module(weir_cli_load_options).

-export([all/0]).
-export([all/1]).

-define(SECOND, 1_000_000_000).

%% @doc Returns the options of a scenario. A scenario without requests has no options about requests.
-spec all(weir_load_scenario:description()) -> [weir_cli_options:option()].
all(#{arrivals := none}) ->
    OfRequests = [rate, concurrency, arrivals, seed, depth, search],
    [Option || #{name := Name} = Option <- all(), not lists:member(Name, OfRequests)];
all(_Description) ->
    all().

%% @doc Returns all options.
-spec all() -> [weir_cli_options:option()].
all() ->
    load() ++ window() ++ promises() ++ server() ++ output() ++ generator().

load() ->
    [
        #{
            name => rate,
            type => {text, fun rate/1},
            value => "RATE",
            help => "open loop: requests per second, by a fixed schedule (see below)"
        },
        #{
            name => arrivals,
            type => {choice, [even, poisson]},
            value => "A",
            default => even,
            help => "intervals between requests: even, or poisson for random ones (even)"
        },
        #{
            name => seed,
            type => {integer, 0, 1 bsl 32},
            value => "N",
            default => 1,
            help => "seed of random arrivals; the same seed gives the same arrivals (1)"
        },
        #{
            name => concurrency,
            type => {integer, 1, 1_000_000},
            value => "N",
            help =>
                "closed loop: N connections, each sends its next request after the reply (50, if there is no --rate)"
        },
        #{
            name => connections,
            type => {integer, 1, 1_000_000},
            value => "N",
            help => "connections, opened before the load (50)"
        },
        #{
            name => 'connect-rate',
            type => {text, fun connect_rate/1},
            value => "R",
            help => "most connections opened per second (no limit)"
        },
        #{
            name => depth,
            type => {integer, 1, 1000},
            value => "N",
            help => "unanswered requests on a connection at a time (1)"
        }
    ].

%% When is measured, and how often.
window() ->
    [
        #{
            name => duration,
            type => {text, fun positive_time/1},
            value => "TIME",
            default => 10 * ?SECOND,
            help => "the measured window (10s)"
        },
        #{
            name => warmup,
            type => {text, fun weir_load_units:time/1},
            value => "TIME",
            default => 0,
            help => "load before the measured window, at the first rate (0s)"
        },
        #{
            name => timeout,
            type => {text, fun positive_time/1},
            value => "TIME",
            default => 5 * ?SECOND,
            help => "longest wait for a connection, or for a reply from the time its request was due (5s)"
        },
        #{
            name => repeat,
            type => {integer, 1, 100},
            value => "N",
            default => 1,
            help => "number of runs, so that compare knows the noise; with --search number of searches (1)"
        }
    ].

promises() ->
    [
        #{
            name => assert,
            type => {texts, fun weir_load_promise:parse/1},
            value => "PROMISE",
            default => [],
            help => "promise to check, such as p99<10ms or errors=0; may be repeated (see below)"
        },
        #{
            name => search,
            type => {text, fun search/1},
            value => "PROMISE",
            help => "find the highest rate that keeps PROMISE, beginning at --rate (1000)"
        },
        #{
            name => 'max-lag',
            type => {text, fun positive_time/1},
            value => "TIME",
            default => ?SECOND div 100,
            help => "a run is invalid if the p99 of the generator's own lag is more (10ms)"
        }
    ].

%% How the server is reached and observed.
server() ->
    [
        #{name => tls, type => flag, help => "use TLS; a URL that begins with https:// implies it"},
        #{
            name => cacert,
            type => {text, fun(File) -> {ok, File} end},
            value => "FILE",
            help => "trusted certificates in PEM (the system's)"
        },
        #{name => insecure, type => flag, help => "accept any certificate"},
        #{
            name => observe,
            type => {text, fun observed/1},
            value => "PID|NODE",
            help => "also report CPU and memory of the server, a local process or an Erlang node, over the same time"
        },
        #{
            name => cookie,
            type => {text, fun cookie/1},
            value => "COOKIE",
            help => "cookie of the Erlang nodes (cookie of ~/.erlang.cookie)"
        }
    ].

output() ->
    [
        #{
            name => json,
            type => {text, fun weir_cli_options:output_file/1},
            value => "FILE",
            help => "write all results to FILE, as JSON"
        },
        #{
            name => html,
            type => {text, fun weir_cli_options:output_file/1},
            value => "FILE",
            help => "write a report with charts to FILE"
        }
    ].

generator() ->
    [
        #{
            name => drivers,
            type => {integer, 1, 1024},
            value => "N",
            help => "processes that drive connections (as many as schedulers)"
        },
        #{
            name => nodes,
            type => {text, fun node_names/1},
            value => "A@H,...",
            help => "Erlang nodes that generate the load, with Weir in their code path (this node)"
        },
        #{
            name => 'local-nodes',
            type => {integer, 1, 64},
            value => "N",
            help => "start N nodes on this machine to generate the load"
        },
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
        _ -> {error, "connections per second are needed, such as 1000"}
    end.

positive_time(Text) ->
    case weir_load_units:time(Text) of
        {ok, 0} -> {error, "a time longer than 0 is needed"};
        {ok, Time} when Time > 24 * 3600 * ?SECOND -> {error, "at most one day is allowed"};
        Other -> Other
    end.

search(Text) ->
    case weir_load_promise:parse(Text) of
        {ok, Promise} -> {ok, {Text, Promise}};
        {error, _} = Error -> Error
    end.
