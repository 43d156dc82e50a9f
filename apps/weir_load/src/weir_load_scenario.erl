%% @doc What a load says and what it expects: the behaviour of scenarios.
%%
%% The engine decides when a request is due and on which connection, takes the times and keeps the counts. A scenario
%% only knows the protocol, one connection at a time, as values: it gets bytes and gives bytes, and never sees a socket
%% or a clock. So it is tested without a network, and runs on any engine.
%%
%%     init      once, before the load: the options become the configuration that all connections share
%%     connect   a connection stands
%%     request   the bytes of the next request on it
%%     response  bytes have come: which requests do they answer?
%%     done      the connection has ended
%%
%% See `docs/load.md' for two examples.
-module(weir_load_scenario).

-export([describe/1]).
-export([describe/2]).

-export_type([description/0, option/0, config/0, connection/0, event/0, error/0]).

-type description() :: #{
    %% What it does, a line.
    summary := string(),
    %% More of it for `--help'.
    help => iodata(),
    %% What is due at the rate: a request on one of the connections (the default); a connection of its own with one
    %% request on it; or nothing, as the server speaks by itself or nobody does.
    arrivals => request | connection | none,
    %% Whether connections that have nothing to wait for ought to be there (`true'), or the server may end them.
    held => boolean(),
    %% What to say in TLS that the protocol is, by its names in the registry for ALPN; nothing by default.
    alpn => [binary()],
    %% The scenario's own options, and other defaults of the general ones, as texts of the command line.
    options => [option()],
    defaults => [{Name :: atom(), Text :: string()}]
}.

%% An option as `weir_cli_options' knows it.
-type option() :: #{name := atom(), type := term(), help := string(), value => string(), default => term()}.

-type config() :: term().
-type connection() :: term().

%% In the words of the report, such as `wrong_reply'. Those of the engine are `refused', `reset', `closed', `timeout',
%% and others of inet.
-type error() :: atom().

%% What came means: the oldest request that has no answer is answered, or failed while the connection goes on; a message
%% came that nobody asked for, with its latency in nanoseconds if it tells one; bytes have to be sent; or the connection
%% is to be closed and opened anew, without that being an error.
-type event() ::
    answered
    | {failed, error()}
    | pushed
    | {pushed, Nanoseconds :: non_neg_integer()}
    | {send, iodata()}
    | close.

%% What `--help' tells and the engine has to know. Optional.
-callback describe() -> description().

%% The same for a scenario that is made of another, by the options that tell which. Optional.
-callback describe(Options :: #{atom() => term()}) -> description().

%% The options are the values of the scenario's own, and `host', `port' and, for a URL, `path' of the target. The error
%% is a line: what is wrong, with which value, and what is needed. Runs in a process that lives as long as the load.
-callback init(Options :: #{atom() => term()}) -> {ok, config()} | {error, iodata()}.

%% Connections are numbered from 1, for good: one that is opened anew keeps its number.
-callback connect(Number :: pos_integer(), config()) -> {ok, connection()} | {send, iodata(), connection()}.

%% Requests are numbered from 1 since the connection stands.
-callback request(Number :: pos_integer(), connection()) -> {ok, iodata(), connection()}.

%% Bytes come as they come, cut anywhere. An error ends the connection and fails all requests that wait for an answer.
-callback response(binary(), connection()) -> {ok, [event()], connection()} | {error, error()}.

-callback done(connection()) -> ok.

-optional_callbacks([describe/0, describe/1]).

%% @doc The description of a scenario, with what it leaves out.
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

%% @doc The description of a scenario that is run with these options.
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
