%% @private
%% @doc Reads parts of files that reactors send and that are not in the page cache.
%%
%% A reactor sends files from the page cache only. If a part is not there, the native side notifies this process of
%% the connection, and a process for it reads the part on a dirty I/O scheduler. The number of these schedulers limits
%% the concurrent reads of the disk; other reads wait.
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

%% A connection may have begun to wait while there was no reader.
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

%% @doc Reads the part that a connection waits for, and continues the connection.
-spec fetch(weir_nif:handle()) -> ok.
fetch(Handle) ->
    ok = weir_nif:file_fetch(Handle),
    ok = weir_nif:file_resume(Handle).
