%% @private
%% @doc The process that owns a pollset and does nothing but poll it: one native call that reads, delivers and writes
%% for all sockets that are ready, then whatever {@link weir_gait} says.
%%
%% It may be killed at any time. The pollset outlives it, and {@link weir_pollsets} starts another.
-module(weir_poller).

-export([spawn_link/2]).
-export([start/1]).
-export([loop/4]).

%% Messages are built on the poller's heap and copied to their owners. This heap takes some hundreds of them before it
%% has to be collected, which is cheap, as nothing on it is alive.
-define(HEAP_WORDS, 16384).

%% @doc Starts a poller, on a scheduler or wherever the VM likes. Fails with `badarg' where the VM does not know the
%% option, which it does not document.
-spec spawn_link(weir_nif:pollset(), Scheduler :: pos_integer() | anywhere) -> pid().
spawn_link(Pollset, Scheduler) ->
    Options = [link, {min_heap_size, ?HEAP_WORDS} | bind_options(Scheduler)],
    erlang:spawn_opt(?MODULE, start, [Pollset], Options).

-dialyzer({nowarn_function, spawn_link/2}).

bind_options(anywhere) -> [];
bind_options(Scheduler) -> [{scheduler, Scheduler}].

%% @doc The first call of a poller.
-spec start(weir_nif:pollset()) -> ok.
start(Pollset) ->
    {ok, Token} = weir_nif:claim(Pollset),
    ?MODULE:loop(Pollset, Token, false, weir_gait:new()).

%% @doc A round. Each begins with the code that is current.
%%
%% Armed: the VM will tell us about the descriptor, for a sleep that something else has ended.
-spec loop(weir_nif:pollset(), Token :: non_neg_integer(), Armed :: boolean(), weir_gait:gait()) -> ok.
loop(Pollset, Token, Armed, Gait) ->
    polled(weir_nif:poll(Pollset, Token), Pollset, Token, Armed, Gait).

polled({Events, RoundNs}, Pollset, Token, Armed, Gait) ->
    {Action, NewGait} = weir_gait:next(Events, RoundNs, Gait),
    change_priority(weir_gait:priority(Gait), weir_gait:priority(NewGait)),
    act(Action, Pollset, Token, Armed, NewGait);
polled(stale, _Pollset, _Token, _Armed, _Gait) ->
    ok.

act(yield, Pollset, Token, Armed, Gait) ->
    erlang:yield(),
    ?MODULE:loop(Pollset, Token, Armed, Gait);
act(stream, Pollset, Token, Armed, Gait) ->
    %% Half of the threads that may wait are left to files. Whoever finds none free sleeps: to wait for a thread would keep
    %% all other sockets of the pollset waiting, too.
    case weir_nif:streaming() < erlang:system_info(dirty_io_schedulers) div 2 of
        true -> polled(weir_nif:stream(Pollset, Token), Pollset, Token, Armed, Gait);
        false -> act(sleep, Pollset, Token, Armed, Gait)
    end;
act(sleep, Pollset, Token, Armed, Gait) ->
    case weir_nif:sleep(Pollset, Token, Armed) of
        armed -> wait(Pollset, Token, Gait);
        busy -> let_others_run(Pollset, Token, Armed, Gait);
        stale -> ok
    end.

wait(Pollset, Token, Gait) ->
    receive
        {select, _Object, _Reference, _Ready} -> ?MODULE:loop(Pollset, Token, false, Gait);
        weir_wake -> ?MODULE:loop(Pollset, Token, true, Gait);
        _ -> wait(Pollset, Token, Gait)
    end.

%% More work than one call may do: the others get their turn in between, at whatever priority we go.
let_others_run(Pollset, Token, Armed, Gait) ->
    Priority = process_flag(priority, normal),
    erlang:yield(),
    _ = process_flag(priority, Priority),
    ?MODULE:loop(Pollset, Token, Armed, Gait).

change_priority(Same, Same) ->
    ok;
change_priority(_Old, New) ->
    _ = process_flag(priority, New),
    ok.
