%% @private
%% @doc The reactors of the node, in a table. Each adds itself, and readers do not call them.
%%
%% A killed reactor leaves its row until another reactor gets its pollset. Rows of dead reactors are not returned.
-module(weir_reactors).

-export([new_table/0]).
-export([enter/2]).
-export([leave/1]).
-export([all/0]).

-define(TABLE, ?MODULE).

%% @doc Creates the table, owned by the caller.
-spec new_table() -> ok.
new_table() ->
    _ = ets:new(?TABLE, [named_table, public]),
    ok.

%% @doc Adds the calling reactor of a pollset.
-spec enter(
    #{pollset := weir_nif:pollset(), module := module(), scheduler := pos_integer()}, weir_reactor_times:times()
) -> ok.
enter(About = #{pollset := Pollset}, Times) ->
    _ = is_there() andalso ets:insert(?TABLE, {Pollset, About#{reactor => self()}, Times}),
    ok.

%% @doc Removes the reactor of a pollset.
-spec leave(weir_nif:pollset()) -> ok.
leave(Pollset) ->
    _ = is_there() andalso ets:delete(?TABLE, Pollset),
    ok.

%% The engine may have ended.
is_there() -> ets:whereis(?TABLE) =/= undefined.

%% @doc See {@link weir:reactors/0}.
-spec all() -> [weir_reactor:summary()].
all() ->
    Rows = case is_there() of true -> lists:sort(ets:tab2list(?TABLE)); false -> [] end,
    [
        maps:merge(About, maps:merge(weir_reactor_times:totals(Times), weir_reactor_times:seen(Times)))
     || {_, About = #{reactor := Reactor}, Times} <- Rows, is_process_alive(Reactor)
    ].
