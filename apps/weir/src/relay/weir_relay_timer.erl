%% @private
%% @doc Enforces the timeouts of relays.
%%
%% A relay whose timeout may pass in the next 10 seconds has a timer. It is set once, not at every byte: when it
%% fires, the native side returns the remaining time, and the timer is set to that. So a timeout is exact and costs
%% the traffic nothing. Longer timeouts have no timer, because a timer outlives its relay. Instead all relays are
%% checked often enough to set a timer in time.
%%
%% This process may be killed: the next one checks all relays.
-module(weir_relay_timer).
-behaviour(gen_server).

-export([start_link/0]).

-export([init/1]).
-export([handle_continue/2]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% Less than half of the native side's 10 seconds, so that a late check is still in time.
-define(LOOK_MS, 4000).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, [], {continue, look}}.
init([]) ->
    {ok, [], {continue, look}}.

-spec handle_continue(look, []) -> {noreply, []}.
handle_continue(look, State) ->
    look_at_all(0),
    look_later(),
    {noreply, State}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, term(), []}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), []) -> {noreply, []}.
handle_info({weir_relay, Relay, Milliseconds}, State) ->
    look_after(Milliseconds, Relay),
    {noreply, State};
handle_info({look, Relay}, State) ->
    look(Relay),
    {noreply, State};
handle_info(look, State) ->
    look_for_due(0),
    look_later(),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

look_at_all(Piece) ->
    case weir_nif:relays(Piece) of
        {ok, Relays} ->
            lists:foreach(fun look/1, Relays),
            look_at_all(Piece + 1);
        done ->
            ok
    end.

look_for_due(Piece) ->
    case weir_nif:relays_due(Piece) of
        {ok, Due} ->
            lists:foreach(fun({Relay, Milliseconds}) -> look_after(Milliseconds, Relay) end, Due),
            look_for_due(Piece + 1);
        done ->
            ok
    end.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.

look(Relay) ->
    case weir_nif:relay_expire(Relay) of
        done -> ok;
        Milliseconds -> look_after(Milliseconds, Relay)
    end.

look_after(Milliseconds, Relay) ->
    _ = erlang:send_after(Milliseconds, self(), {look, Relay}),
    ok.
