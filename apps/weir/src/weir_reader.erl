%% @private
%% @doc Reads what is to be sent and is not in memory, for the connections of reactors.
%%
%% A reactor sends files from memory. Where a part has to come from a disk, the engine names the connection here, and a process
%% has the part read on a dirty scheduler. The VM has as many of those as the disk is asked things at a time; the others wait
%% their turn.
-module(weir_reader).
-behaviour(gen_server).

-export([start_link/0]).
-export([fetch/1]).

-export([init/1]).
-export([handle_continue/2]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, none, {continue, look}}.
init([]) ->
    {ok, none, {continue, look}}.

%% Some connection may have been named while there was no reader.
-spec handle_continue(look, none) -> {noreply, none}.
handle_continue(look, State) ->
    ok = fetch_all(0),
    {noreply, State}.

-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), none) -> {noreply, none}.
handle_info({weir_read, Handle}, State) ->
    ok = begin_fetch(Handle),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

fetch_all(Piece) ->
    case weir_nif:file_waiting(Piece) of
        {ok, Handles} ->
            lists:foreach(fun begin_fetch/1, Handles),
            fetch_all(Piece + 1);
        done ->
            ok
    end.

begin_fetch(Handle) ->
    _ = spawn(?MODULE, fetch, [Handle]),
    ok.

%% @doc Has the part read that a connection waits for, and the connection go on.
-spec fetch(weir_nif:handle()) -> ok.
fetch(Handle) ->
    ok = weir_nif:file_fetch(Handle),
    ok = weir_nif:file_resume(Handle).
