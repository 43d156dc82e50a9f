%% @doc What all connections of a load share: the scenario, its limits, and the measurement window.
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
%% `depth': most requests on their way on one connection. Times are nanoseconds.

-type profile() :: #profile{}.

%% @doc Returns the profile of a load whose window is not known yet.
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

%% @doc Sets the measurement window, in monotonic nanoseconds of the driver's node.
-spec window({From :: integer(), To :: integer()}, profile()) -> profile().
window({From, To}, Profile) -> Profile#profile{from = From, to = To}.

%% @doc Sets whether connections send as soon as they have room, as in a closed loop.
-spec asking(boolean(), profile()) -> profile().
asking(Asks, Profile) -> Profile#profile{asks = Asks}.

%% @doc Returns the timeout of a request in nanoseconds.
-spec timeout(profile()) -> pos_integer().
timeout(#profile{timeout = Timeout}) -> Timeout.

%% @doc Returns whether a time is in the window. A window that is not known yet is later than any time, because atoms
%% are greater than numbers.
-spec is_inside(Time :: integer(), profile()) -> boolean().
is_inside(Time, #profile{from = From, to = To}) -> Time >= From andalso Time < To.
