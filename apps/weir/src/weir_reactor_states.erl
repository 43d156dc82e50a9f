%% @private
%% @doc The states of a reactor's connections, in its process dictionary.
%%
%% Their keys are the handles of the sockets: small integers that differ in their lowest bits, so that finding a state costs
%% one look into the table, and changing it no copy of anything. What else is in the dictionary has other keys.
-module(weir_reactor_states).

-include("weir_reactor_state.hrl").

-export([state/1]).
-export([is_there/1]).
-export([take/1]).
-export([keep/2]).
-export([handles/0]).
-export([all/0]).
-export([replace/1]).

-type state() :: {state, term()} | {pending, {connecting, Args :: term()} | {header, weir_reactor_header:header()}} | none.

%% @doc The state of a connection.
-spec state(weir_nif:handle()) -> state().
state(Handle) -> said(get(Handle)).

said(undefined) -> none;
said(?UNDEFINED) -> {state, undefined};
said(#pending{what = What}) -> {pending, What};
said(State) -> {state, State}.

%% @doc Whether the reactor has a connection, or is about to.
-spec is_there(weir_nif:handle()) -> boolean().
is_there(Handle) -> get(Handle) =/= undefined.

%% @doc The state of a connection that the reactor forgets.
-spec take(weir_nif:handle()) -> state().
take(Handle) -> said(erase(Handle)).

%% @doc Gives a connection a state.
-spec keep(weir_nif:handle(), State :: term()) -> term().
keep(Handle, undefined) -> put(Handle, ?UNDEFINED);
keep(Handle, State) -> put(Handle, State).

%% @doc All connections of the calling reactor, and those that are not begun.
-spec handles() -> [weir_nif:handle()].
handles() -> [Handle || Handle <- get_keys(), is_integer(Handle)].

%% @doc The connections of the calling reactor with their states.
-spec all() -> [{weir_nif:handle(), State :: term()}].
all() -> [{Handle, State} || Handle <- handles(), {state, State} <- [state(Handle)]].

%% @doc Gives each connection of the calling reactor another state.
-spec replace(fun((State) -> State)) -> ok.
replace(Replace) ->
    %% All are there before any is kept: the fun may raise.
    New = [{Handle, Replace(State)} || {Handle, State} <- all()],
    lists:foreach(fun({Handle, State}) -> keep(Handle, State) end, New).
