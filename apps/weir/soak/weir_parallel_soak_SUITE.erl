%% The models of weir_parallel_SUITE for as long as one likes. WEIR_SOAK_SECONDS in the environment makes it shorter or
%% longer. More schedulers than processors find more: `ERL_FLAGS="+S 4:4"'.
-module(weir_parallel_soak_SUITE).

-compile([export_all, nowarn_export_all]).

-define(SECONDS, 120).

suite() -> [{timetrap, {seconds, seconds() + 600}}].

all() -> [models].

seconds() -> list_to_integer(os:getenv("WEIR_SOAK_SECONDS", integer_to_list(?SECONDS))).

init_per_suite(Config) -> weir_parallel_SUITE:init_per_suite(Config).

end_per_suite(Config) -> weir_parallel_SUITE:end_per_suite(Config).

models(_Config) -> check_until(erlang:monotonic_time(second) + seconds()).

check_until(Deadline) ->
    ok = weir_parallel:check(prop_parallel_groups, 1000),
    ok = weir_parallel:check(prop_parallel_listeners, 100),
    ok = weir_parallel:check(prop_parallel_sockets, 1000),
    case erlang:monotonic_time(second) < Deadline of
        true -> check_until(Deadline);
        false -> ok
    end.
