%% Shared by scenarios: random numbers from a seed, and processes that repeat an action beside them.
-module(weir_scenario).

-export([seed/1]).
-export([one_of/1]).
-export([start_disturber/2]).
-export([stop_disturber/1]).
-export([disturbed/2]).

%% Milliseconds between two actions of a process.
-define(PAUSE, 2).

%% Seeds the caller's random numbers.
-spec seed(term()) -> ok.
seed(Seed) ->
    _ = rand:seed(exsss, erlang:phash2(Seed)),
    ok.

-spec one_of([Thing, ...]) -> Thing.
one_of(Things) -> lists:nth(rand:uniform(length(Things)), Things).

%% Repeats an action until it is stopped. If it fails, so does the caller.
-spec start_disturber(term(), fun(() -> ok)) -> pid().
start_disturber(Seed, Disturb) ->
    spawn_link(fun() ->
        ok = seed(Seed),
        disturb(Disturb)
    end).

disturb(Disturb) ->
    ok = Disturb(),
    receive
        {stop, From} -> From ! {stopped, self()}
    after rand:uniform(?PAUSE + 1) - 1 -> disturb(Disturb)
    end.

-spec stop_disturber(pid()) -> ok.
stop_disturber(Disturber) ->
    Disturber ! {stop, self()},
    receive {stopped, Disturber} -> ok end.

%% Runs a function while pollers are killed and schedulers go offline and come back.
-spec disturbed(term(), fun(() -> ok)) -> ok.
disturbed(Seed, Run) ->
    Online = erlang:system_info(schedulers_online),
    Disturbers = [
        start_disturber({Seed, killer}, fun kill_poller/0), start_disturber({Seed, changer}, fun change_schedulers/0)
    ],
    try
        Run()
    after
        lists:foreach(fun stop_disturber/1, Disturbers),
        ok = weir_test_schedulers:set_online(Online)
    end.

kill_poller() ->
    case [Poller || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)] of
        [] -> true;
        Pollers -> exit(one_of(Pollers), kill)
    end,
    timer:sleep(rand:uniform(50)).

change_schedulers() ->
    _ = erlang:system_flag(schedulers_online, rand:uniform(erlang:system_info(schedulers))),
    timer:sleep(rand:uniform(50)).
