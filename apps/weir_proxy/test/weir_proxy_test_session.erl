%% A session for tests of the log.
-module(weir_proxy_test_session).

-include("../src/weir_proxy_session.hrl").

-export([new/1]).

new(Fields) ->
    Field = fun(Name, Default) -> maps:get(Name, Fields, Default) end,
    Numbers = weir_proxy_counters:new(),
    #session{
        proxy = test,
        frontend = Field(frontend, <<"f">>),
        backend = Field(backend, <<"b">>),
        server = Field(server, <<"s">>),
        client = Field(client, {{127, 0, 0, 1}, 1}),
        address = Field(address, {{127, 0, 0, 1}, 2}),
        accepted = Field(accepted, 0),
        queued = Field(queued, 0),
        connected = Field(connected, 0),
        retries = Field(retries, 0),
        numbers = {Numbers, Numbers, Numbers},
        timer = none
    }.
