%% @private
%% @doc Has processes leave old code in which they wait.
%%
%% The VM keeps two versions of a module: when a third is loaded, it kills processes that are still in the first. A process that
%% waits for data, in `gen_tcp:recv/2' for example, may wait in our code for days. So when there is old code, those who wait
%% are told to wait on in the current one, and so are pollers, reactors and acceptors. After that nobody needs the old code,
%% and it is purged; where somebody does, this is tried again.
-module(weir_renewal).

-export([is_due/0]).
-export([run/0]).

%% Where processes wait.
-define(MODULES, [weir_operation, weir_poller, weir_acceptor, weir_reactor_process]).

%% @doc Whether there is old code of a module in which processes wait. Cheap.
-spec is_due() -> boolean().
is_due() ->
    lists:any(fun erlang:check_old_code/1, ?MODULES).

%% @doc Renews all.
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
