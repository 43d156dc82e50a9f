%% @private
%% @doc Remembers which server a client had, for backends with `stick'. An entry expires when no connection has used it
%% for that long. The counters' reference identifies a backend: it is unique and outlives the process.
-module(weir_proxy_sticks).

-export([init_table/0]).
-export([server/3]).
-export([remember/4]).
-export([forget/2]).

-define(TABLE, ?MODULE).

%% Most entries of a backend, of about 250 bytes each. Further clients are not remembered until entries expire.
-define(MOST, 200_000).

%% @doc Makes the table; the caller owns it.
-spec init_table() -> ok.
init_table() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {write_concurrency, auto}]),
    ok.

%% @doc Returns the server of a key, unless the entry has expired.
-spec server(atomics:atomics_ref(), Key :: term(), Now :: integer()) -> {ok, binary()} | none.
server(Numbers, Key, Now) ->
    case ets:lookup(?TABLE, {Numbers, Key}) of
        [{_, Server, Until}] when Until > Now -> {ok, Server};
        _ -> none
    end.

%% @doc Remembers the server of a key until a time of the monotonic clock.
-spec remember(atomics:atomics_ref(), Key :: term(), binary(), Until :: integer()) -> ok.
remember(Numbers, Key, Server, Until) ->
    case ets:update_element(?TABLE, {Numbers, Key}, [{2, Server}, {3, Until}]) of
        true ->
            ok;
        false ->
            _ = weir_proxy_counters:get(Numbers, sticks) < ?MOST
                andalso ets:insert_new(?TABLE, {{Numbers, Key}, Server, Until})
                andalso weir_proxy_counters:add(Numbers, sticks, 1),
            ok
    end.

%% @doc Removes the expired entries of a backend, or all.
-spec forget(atomics:atomics_ref(), Now :: integer() | all) -> ok.
forget(Numbers, Now) ->
    %% With `all': any number is less than an atom.
    Forgotten = ets:select_delete(?TABLE, [{{{Numbers, '_'}, '_', '$1'}, [{'<', '$1', Now}], [true]}]),
    _ = weir_proxy_counters:add(Numbers, sticks, -Forgotten),
    ok.
