%% @private
%% @doc State that outlives processes: that of proxies and backends, for the successors of killed processes (in ETS),
%% and the frontends and backends that connections look up (persistent terms).
-module(weir_proxy_store).

-include("weir_proxy.hrl").

-export([init/0]).
-export([clear/0]).
-export([save/2]).
-export([saved/1]).
-export([forget/1]).
-export([call/2]).
-export([ask/2]).
-export([frontend/2]).
-export([entrance/2]).
-export([frontends/1]).
-export([backend/2]).
-export([backends/1]).
-export([members/1]).
-export([started/1]).
-export([publish/2]).
-export([withdraw/1]).
-export([freed/3]).
-export([unanswered/4]).
-export([proxies/0]).

-define(TABLE, ?MODULE).

%% Interval and number of attempts to find the successor of a process: 10 seconds in all.
-define(SUCCESSOR_MS, 20).
-define(SUCCESSOR_TIMES, 500).

-type key() ::
    {proxy | file | log, Name :: term()}
    | {backend, Proxy :: term(), Name :: binary()}
    | {entrance, Proxy :: term(), weir_proxy_address:endpoint()}.

%% @doc Makes the table; the caller, a supervisor, owns it.
-spec init() -> ok.
init() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {read_concurrency, true}]),
    ok.

%% @doc Erases the frontends and backends that connections look up. Called when the application stops.
-spec clear() -> ok.
clear() ->
    Published = [Key || {Key, _} <- persistent_term:get(), is_tuple(Key), element(1, Key) =:= weir_proxy],
    lists:foreach(fun withdraw/1, Published).

%% @doc Returns the names of a proxy's published frontends. Goes through all persistent terms of the VM.
-spec frontends(term()) -> [binary()].
frontends(Proxy) -> [Name || {?FRONTEND(Of, Name), _} <- persistent_term:get(), Of =:= Proxy].

-spec save(key(), term()) -> ok.
save(Key, State) ->
    true = ets:insert(?TABLE, {Key, State}),
    ok.

-spec saved(key()) -> {ok, term()} | none.
saved(Key) ->
    try ets:lookup(?TABLE, Key) of
        [{_, State}] -> {ok, State};
        [] -> none
    catch
        %% The application is not started.
        error:badarg -> none
    end.

-spec forget(key()) -> ok.
forget(Key) ->
    true = ets:delete(?TABLE, Key),
    ok.

%% @doc Calls the process of a proxy.
-spec call(Proxy :: term(), term()) -> term().
call(Proxy, Request) ->
    Process = fun() ->
        case saved({proxy, Proxy}) of
            {ok, {Pid, _Config, _Listeners}} -> {ok, Pid};
            none -> none
        end
    end,
    case ask(Process, Request) of
        {ok, Answer} -> Answer;
        none -> {error, {no_proxy, Proxy}}
    end.

%% @doc Calls a process, or its successor if it is killed. The request may then be executed twice. Returns `none' if
%% there is no such process or it has stopped.
-spec ask(fun(() -> {ok, pid()} | none), term()) -> {ok, term()} | none.
ask(Process, Request) -> ask(Process, Request, ?SUCCESSOR_TIMES).

ask(Process, Request, Left) ->
    case Process() of
        {ok, Pid} ->
            try
                {ok, gen_server:call(Pid, Request, infinity)}
            catch
                exit:{Reason, _} when Reason =:= normal; Reason =:= shutdown -> none;
                exit:{Reason, _} when Left > 0, Reason =:= noproc orelse Reason =:= killed ->
                    timer:sleep(?SUCCESSOR_MS),
                    ask(Process, Request, Left - 1);
                exit:{noproc, _} -> none
            end;
        none ->
            none
    end.

%% @doc Returns the names of the proxies that were started.
-spec proxies() -> [term()].
proxies() ->
    try ets:select(?TABLE, [{{{proxy, '$1'}, '_'}, [], ['$1']}])
    catch error:badarg -> []
    end.

%% @doc Returns all proxies or all backends with their configurations, for the successor of their supervisor.
-spec started(proxy | backend) ->
    [{Name :: term(), weir_proxy_config:config()} | {Proxy :: term(), Name :: binary(), weir_proxy_config:backend()}].
started(proxy) -> ets:select(?TABLE, [{{{proxy, '$1'}, {'_', '$2', '_'}}, [], [{{'$1', '$2'}}]}]);
started(backend) -> ets:select(?TABLE, [{{{backend, '$1', '$2'}, {'$3', '_', '_'}}, [], [{{'$1', '$2', '$3'}}]}]).

-spec frontend(term(), binary()) -> #frontend{} | undefined.
frontend(Proxy, Name) -> persistent_term:get(?FRONTEND(Proxy, Name), undefined).

%% @doc Returns the frontend of an address, or the last one if the address was removed.
-spec entrance(term(), weir_proxy_address:endpoint()) -> #frontend{} | undefined.
entrance(Proxy, Endpoint) ->
    case saved({entrance, Proxy, Endpoint}) of
        {ok, Name} -> frontend(Proxy, Name);
        none -> undefined
    end.

-spec backend(term(), binary()) -> #backend{} | undefined.
backend(Proxy, Name) -> persistent_term:get(?BACKEND(Proxy, Name), undefined).

%% @doc Returns the names of a proxy's backends.
-spec backends(term()) -> [binary()].
backends(Proxy) -> ets:select(?TABLE, [{{{backend, '$1', '$2'}, '_'}, [{'=:=', '$1', {const, Proxy}}], ['$2']}]).

%% @doc Returns the servers of all backends of a proxy. Calls no process.
-spec members(term()) -> [{Backend :: binary(), [weir_proxy_server:member()]}].
members(Proxy) ->
    try
        ets:select(?TABLE, [
            {{{backend, '$1', '$2'}, {'_', '_', '$3'}}, [{'=:=', '$1', {const, Proxy}}], [{{'$2', '$3'}}]}
        ])
    catch
        %% The application is not started.
        error:badarg -> []
    end.

%% @doc Publishes a frontend or backend for new connections. Others keep the one that they have looked up.
-spec publish(term(), #frontend{} | #backend{}) -> ok.
publish(Proxy, Frontend = #frontend{name = Name}) -> persistent_term:put(?FRONTEND(Proxy, Name), Frontend);
publish(Proxy, Backend = #backend{name = Name}) -> persistent_term:put(?BACKEND(Proxy, Name), Backend).

-spec withdraw(term()) -> ok.
withdraw(Key) ->
    _ = persistent_term:erase(Key),
    ok.

%% @doc Tells the process of a backend that a server has a free place, if connections wait.
-spec freed(term(), binary(), atomics:atomics_ref()) -> ok.
freed(Proxy, Name, Numbers) ->
    case weir_proxy_counters:get(Numbers, queue_current) > 0 andalso backend(Proxy, Name) of
        #backend{process = Process} -> Process ! freed, ok;
        _ -> ok
    end.

%% @doc Tells the process of a backend that a server is failing, if it has not answered `fall' connections in a row.
%% `passive' says which kinds count.
-spec unanswered(term(), binary(), Server :: binary(), #{resets | early_closes => non_neg_integer()}) -> ok.
unanswered(Proxy, Name, Server, InARow) ->
    case backend(Proxy, Name) of
        #backend{process = Process, config = #{passive := Passive = #{fall := Fall}}} ->
            case lists:sum([Count || {Kind, Count} <- maps:to_list(InARow), map_get(Kind, Passive)]) >= Fall of
                true -> Process ! {failing, Server}, ok;
                false -> ok
            end;
        _ ->
            ok
    end.
