%% @doc Collects the facts about a node for the doctor: its virtual machine, its operating system and its sockets, at
%% one moment and over some milliseconds.
%%
%% The functions call the node through a fun like `erlang:apply/3'. So they run on the node itself or, slower, on
%% another node with nothing loaded there. A fact that cannot be found out is absent from the map. They change nothing
%% but the flag `scheduler_wall_time', which the VM resets when the calling process ends.
-module(weir_scope_facts).

-export([collect/1]).
-export([collect/2]).

-export_type([ask/0, facts/0]).

-type ask() :: fun((module(), atom(), [term()]) -> term()).

-type facts() :: #{atom() => term()}.
%% The maps of {@link weir_scope_vm:facts/1}, {@link weir_scope_clocks:settings/1}, {@link weir_scope_system:facts/1},
%% {@link weir_scope_sockets:facts/1} and {@link weir_scope_processes:facts/1} merged, and `over': how much counters
%% have changed in the time. `long_turns': the long turns of the time, each a {@link weir_scope_long:turn()}. They need
%% a system monitor of their own, so they are absent before OTP 28, and from another node.

%% @doc Collects the facts about this node over `Milliseconds'.
-spec collect(pos_integer()) -> facts().
collect(Milliseconds) ->
    collect(fun erlang:apply/3, Milliseconds).

%% @doc Collects the facts about a node through a fun.
-spec collect(ask(), pos_integer()) -> facts().
collect(Ask, Milliseconds) ->
    Before = counted(Ask),
    Long = long_turns(Ask, Milliseconds),
    After = counted(Ask),
    Facts = [
        weir_scope_vm:facts(Ask),
        weir_scope_clocks:settings(Ask),
        weir_scope_system:facts(Ask),
        weir_scope_sockets:facts(Ask),
        weir_scope_processes:facts(Ask)
    ],
    lists:foldl(fun maps:merge/2, Long#{over => over(Before, After)}, Facts).

long_turns(Ask, Milliseconds) ->
    case Ask =:= fun erlang:apply/3 andalso weir_scope_long:has_sessions() of
        true ->
            Self = self(),
            Watch = spawn_link(fun() -> Self ! {self(), weir_scope_long:watch(fun() -> ok end)} end),
            ok = timer:sleep(Milliseconds),
            Watch ! enough,
            receive {Watch, {ok, Turns}} -> #{long_turns => Turns} end;
        false ->
            ok = timer:sleep(Milliseconds),
            #{}
    end.

counted(Ask) ->
    maps:merge(weir_scope_system:counters(Ask), weir_scope_sockets:counters(Ask)).

%% The differences of counters that both have. `ns' is the time between them.
over(Before, After) ->
    maps:from_list([
        {Key, difference(Earlier, maps:get(Key, After))}
     || {Key, Earlier} <- maps:to_list(Before), is_map_key(Key, After)
    ]).

difference(Before, After) when is_integer(Before) ->
    After - Before;
difference(Before, After) when is_map(Before) ->
    over(Before, After).
