%% @private
%% @doc The ticks of a reactor: when they come, and which connections each is for.
%%
%% A connection is called with each tick until it says that it sleeps. Sleepers stand in a ring of slots, one for each of the
%% next ticks, so that a tick costs nothing for those that are not due. Nothing is taken out of the ring: a connection that
%% is gone has no state any more, and one that was woken is called once more than it needs, and sleeps on. Those that are new or
%% were woken are in the process dictionary, where callbacks reach it.
-module(weir_reactor_ticks).

-export([start/2]).
-export([soon/1]).
-export([begin_tick/2]).
-export([next/1]).
-export([again/3]).

-export_type([ticks/0]).

%% So many ticks, but one, a connection can sleep.
-define(SLOTS, 64).

-record(ticks, {
    tick :: pos_integer() | infinity,
    %% When the next one comes: milliseconds of the monotonic time.
    due = 0 :: integer(),
    %% The slot of the current one, and the connections that it has not come to yet.
    slot = 0 :: 0..?SLOTS - 1,
    ticking = [] :: [weir_nif:handle()],
    %% Those that it has come to and that do not sleep.
    awake = [] :: [weir_nif:handle()],
    sleeping = erlang:make_tuple(?SLOTS, []) :: tuple()
}).

-opaque ticks() :: #ticks{}.

%% @doc Begins them, if there are any. The calling reactor is sent `{'$weir_reactor', tick}' at each. They keep their rhythm.
-spec start(pos_integer() | infinity, module()) -> ticks().
start(Tick, Module) ->
    case Tick =/= infinity andalso erlang:function_exported(Module, handle_tick, 2) of
        true ->
            _ = put(?MODULE, []),
            wait(#ticks{tick = Tick, due = erlang:monotonic_time(millisecond)});
        false ->
            #ticks{tick = infinity}
    end.

%% One that would be late by more than itself is left out.
wait(Ticks = #ticks{tick = Tick, due = Due}) ->
    Now = erlang:monotonic_time(millisecond),
    Next = Due + Tick * max(1, (Now - Due) div Tick + 1),
    _ = erlang:send_after(Next, self(), {'$weir_reactor', tick}, [{abs, true}]),
    Ticks#ticks{due = Next}.

%% @doc The next tick is for that connection, too.
-spec soon(weir_nif:handle()) -> ok.
soon(Handle) ->
    _ =
        case get(?MODULE) of
            %% There are no ticks, or this is no reactor.
            undefined -> ok;
            [Handle | _] -> ok;
            Soon -> put(?MODULE, [Handle | Soon])
        end,
    ok.

%% @doc The time has come, for all connections or for those that are due. A tick that comes while the last is not through is
%% left out.
-spec begin_tick(all | due, ticks()) -> ticks().
begin_tick(Which, Ticks = #ticks{ticking = [], slot = Before, awake = Awake, sleeping = Sleeping}) ->
    Slot = (Before + 1) rem ?SLOTS,
    Soon = put(?MODULE, []),
    wait(
        case Which of
            all ->
                Ticks#ticks{
                    slot = Slot, ticking = weir_reactor_states:handles(), awake = [], sleeping = erlang:make_tuple(?SLOTS, [])
                };
            due ->
                Ticks#ticks{
                    slot = Slot,
                    ticking = merged(element(Slot + 1, Sleeping), Soon, Awake),
                    awake = [],
                    sleeping = setelement(Slot + 1, Sleeping, [])
                }
        end
    );
begin_tick(_Which, Ticks) ->
    wait(Ticks).

merged([], [], Awake) -> Awake;
%% Most of those that have begun since the last one may be gone: there can be many thousands in a second.
merged(Due, Soon, Awake) -> lists:usort(Due ++ lists:filter(fun weir_reactor_states:is_there/1, Soon) ++ Awake).

%% @doc The next connection of the current tick.
-spec next(ticks()) -> {weir_nif:handle(), ticks()} | none.
next(#ticks{ticking = []}) -> none;
next(Ticks = #ticks{ticking = [Handle | Ticking]}) -> {Handle, Ticks#ticks{ticking = Ticking}}.

%% @doc A connection wants to be called again after so many ticks: 0 is never.
-spec again(weir_nif:handle(), non_neg_integer(), ticks()) -> ticks().
again(_Handle, 0, Ticks) ->
    Ticks;
again(Handle, 1, Ticks = #ticks{awake = Awake}) ->
    Ticks#ticks{awake = [Handle | Awake]};
again(Handle, Later, Ticks = #ticks{slot = Slot, sleeping = Sleeping}) ->
    At = (Slot + min(Later, ?SLOTS - 1)) rem ?SLOTS + 1,
    Ticks#ticks{sleeping = setelement(At, Sleeping, [Handle | element(At, Sleeping)])}.
