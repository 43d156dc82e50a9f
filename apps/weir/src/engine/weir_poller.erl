%% @private
%% @doc The process that owns a pollset and only polls it: one native call reads, delivers and writes for all ready
%% sockets, then {@link weir_wait_strategy} decides how to wait.
%%
%% It may be killed at any time. The pollset outlives it, and {@link weir_pollsets} starts another poller.
-module(weir_poller).

-export([spawn_link/2]).
-export([start/1]).
-export([loop/3]).

%% Messages are built on the poller's heap and copied to the owners. This heap holds some hundreds of them between
%% collections, which are cheap because no data survives.
-define(HEAP_WORDS, 16384).

%% @doc Starts a poller, bound to a scheduler or anywhere. Fails with `badarg' if the VM lacks the undocumented option.
-spec spawn_link(weir_nif:pollset(), Scheduler :: pos_integer() | anywhere) -> pid().
spawn_link(Pollset, Scheduler) ->
    Options = [link, {min_heap_size, ?HEAP_WORDS} | bind_options(Scheduler)],
    erlang:spawn_opt(?MODULE, start, [Pollset], Options).

-dialyzer({nowarn_function, spawn_link/2}).

bind_options(anywhere) -> [];
bind_options(Scheduler) -> [{scheduler, Scheduler}].

%% @doc The entry point of a poller.
-spec start(weir_nif:pollset()) -> ok.
start(Pollset) ->
    {ok, Token} = weir_nif:claim(Pollset),
    ?MODULE:loop(Pollset, Token, weir_wait_strategy:new()).

%% @doc One round, in the current code.
-spec loop(weir_nif:pollset(), Token :: non_neg_integer(), weir_wait_strategy:strategy()) -> ok.
loop(Pollset, Token, Strategy) ->
    case weir_nif:poll(Pollset, Token) of
        {Events, RoundNs} ->
            {Action, NewStrategy} = weir_wait_strategy:next(Events, RoundNs, Strategy),
            change_priority(weir_wait_strategy:priority(Strategy), weir_wait_strategy:priority(NewStrategy)),
            act(Action, Pollset, Token, NewStrategy);
        stale ->
            ok
    end.

act(yield, Pollset, Token, Strategy) ->
    erlang:yield(),
    ?MODULE:loop(Pollset, Token, Strategy);
act({sleep, Bulk}, Pollset, Token, Strategy) ->
    case weir_nif:sleep(Pollset, Token, Bulk) of
        asleep -> wait(Pollset, Token, Strategy);
        busy -> let_others_run(Pollset, Token, Strategy);
        stale -> ok
    end.

wait(Pollset, Token, Strategy) ->
    receive
        weir_wake -> ?MODULE:loop(Pollset, Token, Strategy);
        _ -> wait(Pollset, Token, Strategy)
    end.

%% There is more work than one call may do. Other processes run in between, whatever the poller's priority.
let_others_run(Pollset, Token, Strategy) ->
    Priority = process_flag(priority, normal),
    erlang:yield(),
    _ = process_flag(priority, Priority),
    ?MODULE:loop(Pollset, Token, Strategy).

change_priority(Same, Same) ->
    ok;
change_priority(_Old, New) ->
    _ = process_flag(priority, New),
    ok.
