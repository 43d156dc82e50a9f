%% A scenario: each request is an echo of 64 bytes on its own connection.
-module(weir_load_short).
-behaviour(weir_load_scenario).

-export([describe/0, init/1, connect/2, request/2, response/2, done/1]).

describe() -> #{summary => "one message for each connection", arrivals => connection}.
init(Options) -> weir_load_echo:init(Options).
connect(Number, Config) -> weir_load_echo:connect(Number, Config).
request(Sequence, Connection) -> weir_load_echo:request(Sequence, Connection).
response(Data, Connection) -> weir_load_echo:response(Data, Connection).
done(Connection) -> weir_load_echo:done(Connection).
