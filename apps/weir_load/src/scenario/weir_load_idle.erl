%% @doc Scenario `idle': connections that stay open and send nothing. `--observe' shows what they cost.
-module(weir_load_idle).
-behaviour(weir_load_scenario).

-export([describe/0]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-spec describe() -> weir_load_scenario:description().
describe() ->
    #{
        summary => "connections that stay open and send nothing; --observe shows what they cost",
        arrivals => none,
        defaults => [{connections, "1000"}]
    }.

-spec init(#{atom() => term()}) -> {ok, idle}.
init(_Options) -> {ok, idle}.

-spec connect(pos_integer(), idle) -> {ok, idle}.
connect(_Number, idle) -> {ok, idle}.

-spec request(pos_integer(), idle) -> {ok, iodata(), idle}.
request(_Sequence, idle) -> {ok, <<>>, idle}.

%% Ignores a greeting of the server.
-spec response(binary(), idle) -> {ok, [weir_load_scenario:event()], idle}.
response(_Data, idle) -> {ok, [], idle}.

-spec done(idle) -> ok.
done(idle) -> ok.
