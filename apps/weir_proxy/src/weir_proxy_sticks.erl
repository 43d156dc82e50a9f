%% @private
%% @doc Which server a client had: for backends with `stick'. A table of keys, which are forgotten when no connection has had one for that
%% long. The numbers of a backend stand for it: they outlive its process, and are nobody else's.
-module(weir_proxy_sticks).

-export([init_table/0]).
-export([server/3]).
-export([remember/4]).
-export([forget/2]).

-define(TABLE, ?MODULE).

%% Keys of a backend, about 250 bytes each. Further ones are not remembered until others are forgotten.
-define(MOST, 200_000).

%% @doc Makes the table; the caller owns it.
-spec init_table() -> ok.
init_table() ->
    ?TABLE = ets:new(?TABLE, [named_table, public, set, {write_concurrency, auto}]),
    ok.

%% @doc The server that a key had.
-spec server(atomics:atomics_ref(), Key :: term(), Now :: integer()) -> {ok, binary()} | none.
server(Numbers, Key, Now) ->
    case ets:lookup(?TABLE, {Numbers, Key}) of
        [{_, Server, Until}] when Until > Now -> {ok, Server};
        _ -> none
    end.

%% @doc A key has this server now.
-spec remember(atomics:atomics_ref(), Key :: term(), binary(), Until :: integer()) -> ok.
remember(Numbers, Key, Server, Until) ->
    case ets:update_element(?TABLE, {Numbers, Key}, [{2, Server}, {3, Until}]) of
        true ->
            ok;
        false ->
            _ = weir_proxy_numbers:get(Numbers, sticks) < ?MOST
                andalso ets:insert_new(?TABLE, {{Numbers, Key}, Server, Until})
                andalso weir_proxy_numbers:add(Numbers, sticks, 1),
            ok
    end.

%% @doc Forgets the keys of a backend that are too old, or all.
-spec forget(atomics:atomics_ref(), Now :: integer() | all) -> ok.
forget(Numbers, Now) ->
    %% Any number is less than an atom.
    Forgotten = ets:select_delete(?TABLE, [{{{Numbers, '_'}, '_', '$1'}, [{'<', '$1', Now}], [true]}]),
    _ = weir_proxy_numbers:add(Numbers, sticks, -Forgotten),
    ok.
