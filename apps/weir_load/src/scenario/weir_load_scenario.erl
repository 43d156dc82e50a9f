%% @doc The behaviour of scenarios: what a load sends and which answers it expects.
%%
%% The engine decides when a request is due and on which connection, measures times and counts. A scenario knows only
%% the protocol of one connection. It takes and returns bytes and never sees a socket or a clock, so it can be tested
%% without a network and runs on any engine.
%%
%%     init      once, before the load: turns the options into the configuration that all connections share
%%     connect   a connection is open
%%     request   returns the bytes of the next request
%%     response  bytes have come: returns which requests they answer
%%     done      the connection has ended
%%
%% See `docs/load.md' for two examples.
-module(weir_load_scenario).

-export([describe/1]).
-export([describe/2]).

-export_type([description/0, option/0, config/0, connection/0, event/0, error/0]).

-type description() :: #{
    %% What it does, in one line.
    summary := string(),
    %% More for `--help'.
    help => iodata(),
    %% What the rate counts: requests on connections that stay (the default), connections with one request each, or
    %% nothing, because the client sends no requests of its own.
    arrivals => request | connection | none,
    %% Whether it is an error if the server closes an idle connection.
    held => boolean(),
    %% The protocol names to offer by ALPN in TLS; none by default.
    alpn => [binary()],
    %% The scenario's own options, and its defaults for general options, in the form of the command line.
    options => [option()],
    defaults => [{Name :: atom(), Text :: string()}]
}.

%% An option of `weir_cli_options'.
-type option() :: #{name := atom(), type := term(), help := string(), value => string(), default => term()}.

-type config() :: term().
-type connection() :: term().

%% The name in the report, such as `wrong_reply'. The engine's own are `refused', `reset', `closed', `timeout', and the
%% POSIX errors of inet.
-type error() :: atom().

%% What the bytes mean. `answered': the oldest request without an answer has its answer. `failed': it has failed, and
%% the connection goes on. `pushed': the server sent a message unasked; if the message has a timestamp, with its
%% latency in nanoseconds. `send': send these bytes. `close': close the connection and open it again, which is not an
%% error.
-type event() ::
    answered
    | {failed, error()}
    | pushed
    | {pushed, Nanoseconds :: non_neg_integer()}
    | {send, iodata()}
    | close.

%% Describes the scenario for `--help' and the engine. Optional.
-callback describe() -> description().

%% Describes a scenario that wraps another one, which the options name. Optional.
-callback describe(Options :: #{atom() => term()}) -> description().

%% The options are the scenario's own, and `host', `port' and, for a URL, `path' of the target. The error is one line:
%% what is wrong, with which value, and what is needed. Runs in a process that lives as long as the load.
-callback init(Options :: #{atom() => term()}) -> {ok, config()} | {error, iodata()}.

%% Connections are numbered from 1. A connection that is opened again keeps its number.
-callback connect(Number :: pos_integer(), config()) -> {ok, connection()} | {send, iodata(), connection()}.

%% Requests are numbered from 1 on each new connection.
-callback request(Number :: pos_integer(), connection()) -> {ok, iodata(), connection()}.

%% Bytes may be cut anywhere. An error ends the connection and fails all requests that wait for an answer.
-callback response(binary(), connection()) -> {ok, [event()], connection()} | {error, error()}.

-callback done(connection()) -> ok.

-optional_callbacks([describe/0, describe/1]).

%% @doc Returns the description of a scenario, with defaults filled in.
-spec describe(module()) -> #{
    summary := string(),
    help := iodata(),
    arrivals := request | connection | none,
    held := boolean(),
    alpn := [binary()],
    options := [option()],
    defaults := [{atom(), string()}]
}.
describe(Module) ->
    complete(
        Module,
        case erlang:function_exported(Module, describe, 0) of
            true -> Module:describe();
            false -> #{}
        end
    ).

%% @doc Returns the description of a scenario with these options.
-spec describe(module(), Options :: #{atom() => term()}) -> #{
    arrivals := request | connection | none, held := boolean(), alpn := [binary()], atom() => term()
}.
describe(Module, Options) ->
    case erlang:function_exported(Module, describe, 1) of
        true -> complete(Module, Module:describe(Options));
        false -> describe(Module)
    end.

complete(Module, Own) ->
    Defaults = #{
        summary => atom_to_list(Module),
        help => "",
        arrivals => request,
        held => true,
        alpn => [],
        options => [],
        defaults => []
    },
    maps:merge(Defaults, Own).
