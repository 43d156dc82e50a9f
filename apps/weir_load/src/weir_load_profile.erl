%% @doc What the connections of a load have in common: the scenario, its limits, and the window of measurement.
-module(weir_load_profile).

-include("weir_load_profile.hrl").

-export([new/1]).
-export([window/2]).
-export([asking/2]).
-export([timeout/1]).
-export([is_inside/2]).

-export_type([profile/0, settings/0]).

-type settings() :: #{
    scenario := module(),
    config := weir_load_scenario:config(),
    arrivals := request | connection | none,
    held := boolean(),
    depth := pos_integer(),
    timeout := pos_integer()
}.
%% `depth' is how many requests may be on their way on a connection. Times are nanoseconds.

-type profile() :: #profile{}.

%% @doc The settings of a load, whose window is not known yet.
-spec new(settings()) -> profile().
new(#{scenario := Scenario, config := Config, arrivals := Arrivals} = Settings) ->
    #profile{
        scenario = Scenario,
        request = fun Scenario:request/2,
        response = fun Scenario:response/2,
        config = Config,
        arrivals = Arrivals,
        held = maps:get(held, Settings),
        depth = maps:get(depth, Settings),
        timeout = maps:get(timeout, Settings)
    }.

%% @doc The same with the window of measurement, in monotonic nanoseconds of the driver's node.
-spec window({From :: integer(), To :: integer()}, profile()) -> profile().
window({From, To}, Profile) -> Profile#profile{from = From, to = To}.

%% @doc The same for connections that ask as soon as they have room, a closed loop, or do so no longer.
-spec asking(boolean(), profile()) -> profile().
asking(Asks, Profile) -> Profile#profile{asks = Asks}.

%% @doc How long an answer is waited for.
-spec timeout(profile()) -> pos_integer().
timeout(#profile{timeout = Timeout}) -> Timeout.

%% @doc Whether a time is in the window. One that is not known yet is later than any time: atoms are more than numbers.
-spec is_inside(Time :: integer(), profile()) -> boolean().
is_inside(Time, #profile{from = From, to = To}) -> Time >= From andalso Time < To.
