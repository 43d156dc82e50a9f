%% @private
%% @doc Moves waiting processes out of old code.
%%
%% The VM keeps two versions of a module. When a third is loaded, it kills processes that still run the first. A
%% process that waits for data, in `gen_tcp:recv/2' for example, may wait in Weir's code for days. So when there is
%% old code, waiting processes, pollers, reactors and acceptors are notified to continue in the current code. Then the
%% old code is purged; if a process still needs it, this is tried again later.
-module(weir_code_change).

-export([is_due/0]).
-export([run/0]).

%% The modules in which processes wait.
-define(MODULES, [weir_operation, weir_poller, weir_acceptor, weir_reactor_process]).

%% @doc Whether there is old code of these modules. Cheap.
-spec is_due() -> boolean().
is_due() ->
    lists:any(fun erlang:check_old_code/1, ?MODULES).

%% @doc Renews all waiting processes, and purges the old code.
-spec run() -> ok.
run() ->
    Old = lists:filter(fun erlang:check_old_code/1, ?MODULES),
    ok = renew(0),
    lists:foreach(fun(Poller) -> Poller ! weir_wake end, weir_nif:pollers()),
    ok = weir_listener_names:tell_all(renew_workers),
    lists:foreach(fun code:soft_purge/1, Old).

renew(Piece) ->
    case weir_nif:renew(Piece) of
        ok -> renew(Piece + 1);
        done -> ok
    end.
