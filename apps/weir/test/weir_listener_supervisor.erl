%% A supervisor of a user.
-module(weir_listener_supervisor).
-behaviour(supervisor).

-export([start_link/1, init/1]).

start_link(Specs) -> supervisor:start_link(?MODULE, Specs).

init(Specs) -> {ok, {#{}, Specs}}.
