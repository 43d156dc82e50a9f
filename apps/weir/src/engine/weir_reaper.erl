%% @private
%% @doc Closes sockets that have lost their process: connections of dead reactors, and lingering Unix sockets whose
%% peer does not read.
%%
%% A monitor for each connection of a reactor would take as much memory as the rest of the connection. So the pollset
%% is watched instead. When its reactor is dead this process closes its sockets, in slices, because thousands of
%% closes exceed the time limit of a native call. No other reactor gets the pollset before that is done.
%%
%% A socket whose owner dies with bytes queued lingers: it sends them first. The kernel gives up on a TCP peer that
%% takes nothing for 30 s (TCP_USER_TIMEOUT). Unix sockets have no such timeout, so this process enforces it: they
%% register here when they begin to linger, and are checked every 5 s.
-module(weir_reaper).
-behaviour(gen_server).

-export([start_link/0]).

-export([init/1]).
-export([handle_continue/2]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% How long a peer may take nothing, and the interval between checks, in milliseconds.
-define(PATIENCE, 30000).
-define(INTERVAL, 5000).

-type state() :: #{weir_nif:handle() => {LeftBehind :: non_neg_integer() | done, Since :: integer()}}.
%% Lingering sockets: the bytes that the peer has not taken, and since when that has not changed, in milliseconds of
%% the monotonic clock.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, state(), {continue, look}}.
init([]) ->
    {ok, #{}, {continue, look}}.

%% A reactor may have died, or a socket begun to linger, while there was no reaper.
-spec handle_continue(look, state()) -> {noreply, state()}.
handle_continue(look, State) ->
    _ = [self() ! {weir_abandoned, Pollset} || Pollset <- weir_nif:abandoned()],
    {noreply, watch_all(0, State)}.

-spec handle_call(term(), gen_server:from(), state()) -> {reply, term(), state()}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), state()) -> {noreply, state()}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), state()) -> {noreply, state()}.
handle_info({weir_abandoned, Pollset}, State) ->
    %% A pollset found at the start may have been cleared and have another reactor by now.
    _ = lists:member(Pollset, weir_nif:abandoned()) andalso reap(Pollset, 0),
    {noreply, State};
handle_info({weir_lingers, Handle}, State) ->
    {noreply, watch(Handle, State)};
handle_info(look, State) ->
    Now = erlang:monotonic_time(millisecond),
    Left = maps:filtermap(fun(Handle, Seen) -> look(Handle, Seen, Now) end, State),
    look_again(Left),
    {noreply, Left};
handle_info(_Message, State) ->
    {noreply, State}.

reap(Pollset, Piece) ->
    case weir_nif:reap(Pollset, Piece) of
        done ->
            ok;
        ok ->
            erlang:yield(),
            reap(Pollset, Piece + 1);
        more ->
            erlang:yield(),
            reap(Pollset, Piece)
    end.

watch_all(Piece, State) ->
    case weir_nif:lingering(Piece) of
        {ok, Handles} -> watch_all(Piece + 1, lists:foldl(fun watch/2, State, Handles));
        done -> State
    end.

watch(Handle, State) ->
    _ = map_size(State) =:= 0 andalso erlang:send_after(?INTERVAL, self(), look),
    State#{Handle => {weir_nif:left_behind(Handle), erlang:monotonic_time(millisecond)}}.

look(Handle, {Before, Since}, Now) ->
    case weir_nif:left_behind(Handle) of
        done ->
            false;
        Before when Now - Since >= ?PATIENCE ->
            ok = weir_nif:give_up(Handle),
            false;
        Before ->
            true;
        Less ->
            {true, {Less, Now}}
    end.

look_again(State) when map_size(State) =:= 0 ->
    ok;
look_again(_State) ->
    _ = erlang:send_after(?INTERVAL, self(), look),
    ok.
