%% @private
%% @doc Takes a place for a connection at a server of its backend, at once or after a wait in the queue. Called in the
%% connection's process, which is counted at that server from then on ({@link weir_proxy_admissions}).
-module(weir_proxy_place).

-include("weir_proxy.hrl").

-export([take/4]).

%% Interval and number of attempts to find the successor of a backend's process: 10 seconds in all.
-define(SUCCESSOR_MS, 20).
-define(SUCCESSOR_TIMES, 500).

%% @doc Takes a place at a server for a connection with this key, other than those in `Tried'. The first attempt queues
%% behind connections that already wait. Returns `none' if no server takes connections. The other results say how many
%% milliseconds it waited. `another': the backend was removed during the wait, and there may be a new one of that name.
-spec take(Proxy :: term(), #backend{}, Key :: term(), Tried :: [binary()]) ->
    {ok, #server{}, Waited :: non_neg_integer()}
    | none
    | {another, Waited :: non_neg_integer()}
    | {error, queue_full | queue_timeout | no_backend, Waited :: non_neg_integer()}.
take(Proxy, Backend = #backend{numbers = Numbers}, Key, Tried) ->
    case weir_proxy_counters:get(Numbers, queue_current) > 0 andalso Tried =:= [] of
        false -> take_known(Proxy, Backend, Key, Tried);
        true -> wait(Proxy, Backend, Key)
    end.

%% The server that the client had before, if it has a place.
take_known(Proxy, Backend = #backend{numbers = Numbers, balancer = Balancer, config = #{stick := Expire}}, Key, []) when
    Expire =/= off
->
    Found =
        case weir_proxy_sticks:server(Numbers, Key, now_ms()) of
            {ok, Name} -> weir_proxy_balancer:find(Balancer, Name);
            none -> none
        end,
    case Found of
        {ok, Server = #server{numbers = Places, max_connections = Most}} ->
            case weir_proxy_counters:take(Places, Most) of
                true -> placed(Server);
                false -> take_any(Proxy, Backend, Key, [])
            end;
        none ->
            take_any(Proxy, Backend, Key, [])
    end;
take_known(Proxy, Backend, Key, Tried) ->
    take_any(Proxy, Backend, Key, Tried).

take_any(Proxy, Backend = #backend{balancer = Balancer}, Key, Tried) ->
    case weir_proxy_balancer:take(Balancer, Key, Tried) of
        {ok, Server} -> placed(Server);
        full -> wait(Proxy, Backend, Key);
        none -> none
    end.

placed(Server = #server{numbers = Numbers}) ->
    true = weir_proxy_admissions:placed(self(), Numbers),
    {ok, Server, 0}.

now_ms() -> erlang:monotonic_time(millisecond).

wait(Proxy, Backend, Key) -> wait(Proxy, Backend, Key, now_ms()).

wait(Proxy, Backend = #backend{process = Process}, Key, Since) ->
    case weir_proxy_backend:wait(Process, Key) of
        {ok, Server} -> {ok, Server, now_ms() - Since};
        {error, ended} -> wait_on(Proxy, Backend, Key, Since, ?SUCCESSOR_TIMES);
        {error, Why} -> {error, Why, now_ms() - Since}
    end.

%% The backend's process has died: waits for its successor, then queues there, at the end.
wait_on(Proxy, #backend{name = Name, process = Process, numbers = Numbers} = Before, Key, Since, Left) ->
    case weir_proxy_store:backend(Proxy, Name) of
        #backend{process = Process} when Left =:= 0 ->
            {error, no_backend, now_ms() - Since};
        #backend{process = Process} ->
            timer:sleep(?SUCCESSOR_MS),
            wait_on(Proxy, Before, Key, Since, Left - 1);
        Successor = #backend{numbers = Numbers} ->
            %% The process may have died after it gave a place and before it replied.
            ok = weir_proxy_admissions:displaced(),
            wait(Proxy, Successor, Key, Since);
        %% The backend was removed, and perhaps added again.
        _Another ->
            {another, now_ms() - Since}
    end.
