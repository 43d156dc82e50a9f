%% @private
%% @doc Closes the connections of reactors that have died.
%%
%% Nobody watches a reactor's connections one by one: that would cost each of them as much memory as the rest of it. Their
%% pollset is watched, and what is found there when the reactor is dead is closed here, in slices, since thousands of
%% closes take longer than a call into native code may. Until that is done nobody else gets the pollset.
-module(weir_reaper).
-behaviour(gen_server).

-export([start_link/0]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-type state() :: no_state.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Some reactor may have died while there was no reaper.
-spec init([]) -> {ok, state()} | ignore.
init([]) ->
    case weir_nif:available() of
        true ->
            _ = [self() ! {weir_abandoned, Pollset} || Pollset <- weir_nif:abandoned()],
            {ok, no_state};
        false ->
            ignore
    end.

-spec handle_call(term(), gen_server:from(), state()) -> {reply, term(), state()}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), state()) -> {noreply, state()}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), state()) -> {noreply, state()}.
handle_info({weir_abandoned, Pollset}, State) ->
    %% One that was found when this process began may be somebody else's by now.
    _ = lists:member(Pollset, weir_nif:abandoned()) andalso reap(Pollset, 0),
    {noreply, State};
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
