%% A user's supervisor.
-module(weir_http_supervisor).
-behaviour(supervisor).

-export([start_link/1, init/1]).

start_link(Specs) -> supervisor:start_link(?MODULE, Specs).

init(Specs) -> {ok, {#{intensity => 5, period => 1}, Specs}}.
