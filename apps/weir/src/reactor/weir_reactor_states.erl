%% @private
%% @doc The states of a reactor's connections, in its process dictionary.
%%
%% The keys are the sockets' handles: small integers that differ in their lowest bits. So a look-up is one access to
%% the hash table, and an update copies nothing. Other entries of the dictionary have other keys.
-module(weir_reactor_states).

-include("weir_reactor_state.hrl").

-export([state/1]).
-export([is_there/1]).
-export([take/1]).
-export([keep/2]).
-export([handles/0]).
-export([all/0]).
-export([replace/1]).

-type state() ::
    {state, term()} | {pending, {connecting, Args :: term()} | {header, weir_reactor_header:header()}} | none.

%% @doc Returns the state of a connection.
-spec state(weir_nif:handle()) -> state().
state(Handle) -> said(get(Handle)).

said(undefined) -> none;
said(?UNDEFINED) -> {state, undefined};
said(#pending{what = What}) -> {pending, What};
said(State) -> {state, State}.

%% @doc Whether a connection exists, or is being opened.
-spec is_there(weir_nif:handle()) -> boolean().
is_there(Handle) -> get(Handle) =/= undefined.

%% @doc Removes a connection and returns its state.
-spec take(weir_nif:handle()) -> state().
take(Handle) -> said(erase(Handle)).

%% @doc Sets the state of a connection.
-spec keep(weir_nif:handle(), State :: term()) -> term().
keep(Handle, undefined) -> put(Handle, ?UNDEFINED);
keep(Handle, State) -> put(Handle, State).

%% @doc Returns all connections of the calling reactor, including those that have not begun.
-spec handles() -> [weir_nif:handle()].
handles() -> [Handle || Handle <- get_keys(), is_integer(Handle)].

%% @doc Returns the connections of the calling reactor with their states.
-spec all() -> [{weir_nif:handle(), State :: term()}].
all() -> [{Handle, State} || Handle <- handles(), {state, State} <- [state(Handle)]].

%% @doc Replaces the state of each connection of the calling reactor.
-spec replace(fun((State) -> State)) -> ok.
replace(Replace) ->
    %% Computes all before it sets any: the fun may raise.
    New = [{Handle, Replace(State)} || {Handle, State} <- all()],
    lists:foreach(fun({Handle, State}) -> keep(Handle, State) end, New).
