%% @private
%% @doc The reactors of the node. Each enters itself; who wants to know of them disturbs none.
%%
%% A reactor that is killed leaves its row behind, until another has its pollset: rows of the dead are not told.
-module(weir_reactors).

-export([new_table/0]).
-export([enter/2]).
-export([leave/1]).
-export([all/0]).

-define(TABLE, ?MODULE).

%% @doc Makes the table, which lives as long as the caller.
-spec new_table() -> ok.
new_table() ->
    _ = ets:new(?TABLE, [named_table, public]),
    ok.

%% @doc The calling process is the reactor of a pollset.
-spec enter(#{pollset := weir_nif:pollset(), module := module(), scheduler := pos_integer()}, weir_reactor_times:times()) -> ok.
enter(About = #{pollset := Pollset}, Times) ->
    _ = is_there() andalso ets:insert(?TABLE, {Pollset, About#{reactor => self()}, Times}),
    ok.

%% @doc It ends.
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
