%% @doc Scenario `fast_receive': opens connections at a rate and keeps them, then sends requests over all of them at a
%% growing rate. Request and reply are those of {@link weir_load_fast_connect}.
-module(weir_load_fast_receive).
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
        summary => "requests of 26 bytes over many connections that stay, at a growing rate",
        options => [weir_load_fast_connect:reply_option()],
        defaults => [{connections, "1000"}, {'connect-rate', "1000"}, {rate, "0..10000"}]
    }.

-spec init(#{atom() => term()}) -> {ok, weir_load_scenario:config()}.
init(Options) -> weir_load_fast_connect:init(Options).

-spec connect(pos_integer(), weir_load_scenario:config()) -> {ok, weir_load_scenario:connection()}.
connect(Number, Config) -> weir_load_fast_connect:connect(Number, Config).

-spec request(pos_integer(), weir_load_scenario:connection()) -> {ok, iodata(), weir_load_scenario:connection()}.
request(Sequence, Connection) -> weir_load_fast_connect:request(Sequence, Connection).

-spec response(binary(), weir_load_scenario:connection()) ->
    {ok, [weir_load_scenario:event()], weir_load_scenario:connection()}.
response(Data, Connection) -> weir_load_fast_connect:response(Data, Connection).

-spec done(weir_load_scenario:connection()) -> ok.
done(Connection) -> weir_load_fast_connect:done(Connection).
