%% @private
%% @doc The ticks of a reactor: their times, and the connections that each is for.
%%
%% A connection is called at each tick until it sleeps. Sleeping connections are in a ring of slots (a timer wheel),
%% one for each of the next ticks, so they cost nothing until they are due. Entries are never removed: a closed
%% connection has no state, and one that was woken is called once too often and sleeps again. New and woken
%% connections are in the process dictionary, because callbacks can reach it.
-module(weir_reactor_ticks).

-export([start/2]).
-export([soon/1]).
-export([begin_tick/2]).
-export([next/1]).
-export([again/3]).

-export_type([ticks/0]).

%% The ring's size; a connection sleeps one tick less at most.
-define(SLOTS, 64).

-record(ticks, {
    tick :: pos_integer() | infinity,
    %% The monotonic time of the next tick in milliseconds.
    due = 0 :: integer(),
    %% The slot of the current tick, and the connections left to call in it.
    slot = 0 :: 0..?SLOTS - 1,
    ticking = [] :: [weir_nif:handle()],
    %% The connections already called in this tick that do not sleep.
    awake = [] :: [weir_nif:handle()],
    sleeping = erlang:make_tuple(?SLOTS, []) :: tuple()
}).

-opaque ticks() :: #ticks{}.

%% @doc Starts the ticks, if there are any, in a fixed rhythm: the calling reactor gets `{'$weir_reactor', tick}' at
%% each.
-spec start(pos_integer() | infinity, module()) -> ticks().
start(Tick, Module) ->
    case Tick =/= infinity andalso erlang:function_exported(Module, handle_tick, 2) of
        true ->
            _ = put(?MODULE, []),
            wait(#ticks{tick = Tick, due = erlang:monotonic_time(millisecond)});
        false ->
            #ticks{tick = infinity}
    end.

%% Ticks that would be late by a whole interval are skipped.
wait(Ticks = #ticks{tick = Tick, due = Due}) ->
    Now = erlang:monotonic_time(millisecond),
    Next = Due + Tick * max(1, (Now - Due) div Tick + 1),
    _ = erlang:send_after(Next, self(), {'$weir_reactor', tick}, [{abs, true}]),
    Ticks#ticks{due = Next}.

%% @doc Adds a connection to the next tick.
-spec soon(weir_nif:handle()) -> ok.
soon(Handle) ->
    _ =
        case get(?MODULE) of
            %% There are no ticks, or the caller is not a reactor.
            undefined -> ok;
            [Handle | _] -> ok;
            Soon -> put(?MODULE, [Handle | Soon])
        end,
    ok.

%% @doc Begins a tick for all connections, or for those that are due. A tick that comes before the last one is
%% finished is skipped.
-spec begin_tick(all | due, ticks()) -> ticks().
begin_tick(Which, Ticks = #ticks{ticking = [], slot = Before, awake = Awake, sleeping = Sleeping}) ->
    Slot = (Before + 1) rem ?SLOTS,
    Soon = put(?MODULE, []),
    wait(
        case Which of
            all ->
                Ticks#ticks{
                    slot = Slot,
                    ticking = weir_reactor_states:handles(),
                    awake = [],
                    sleeping = erlang:make_tuple(?SLOTS, [])
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
%% Most connections that began since the last tick may be gone: there can be many thousands in a second.
merged(Due, Soon, Awake) -> lists:usort(Due ++ lists:filter(fun weir_reactor_states:is_there/1, Soon) ++ Awake).

%% @doc Returns the next connection of the current tick.
-spec next(ticks()) -> {weir_nif:handle(), ticks()} | none.
next(#ticks{ticking = []}) -> none;
next(Ticks = #ticks{ticking = [Handle | Ticking]}) -> {Handle, Ticks#ticks{ticking = Ticking}}.

%% @doc Schedules the next call of a connection after this many ticks; 0 means never.
-spec again(weir_nif:handle(), non_neg_integer(), ticks()) -> ticks().
again(_Handle, 0, Ticks) ->
    Ticks;
again(Handle, 1, Ticks = #ticks{awake = Awake}) ->
    Ticks#ticks{awake = [Handle | Awake]};
again(Handle, Later, Ticks = #ticks{slot = Slot, sleeping = Sleeping}) ->
    At = (Slot + min(Later, ?SLOTS - 1)) rem ?SLOTS + 1,
    Ticks#ticks{sleeping = setelement(At, Sleeping, [Handle | element(At, Sleeping)])}.
