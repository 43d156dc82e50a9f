%% @private
%% @doc Closes all sockets and relays when the application stops, or when the {@link weir_engine} gives up.
%%
%% A connection ends like a port that is closed: queued output still goes out, for 30 seconds at most if the peer
%% takes nothing; the owner of an active socket gets `tcp_closed', and a process waiting at a socket gets `{error,
%% closed}'. Each socket takes a few short calls, so ten thousand of them block nothing.
-module(weir_close_all).
-behaviour(gen_server).

-export([start_link/0]).
-export([all/0]).
-export([vm_stops/0]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([terminate/2]).

-include("weir_socket.hrl").

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, []}.
init([]) ->
    process_flag(trap_exit, true),
    {ok, []}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, term(), []}.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Request, State) ->
    {noreply, State}.

%% The engine ends. Without pollers a socket would stay open and silent.
-spec terminate(term(), []) -> ok.
terminate(_Reason, _State) ->
    case vm_stops() of
        %% The library sends the queues when the VM halts.
        true ->
            ok;
        false ->
            Sockets = all(),
            weir_reports:log(error, #{
                what =>
                    "the engine's processes restarted too often and are not restarted; all sockets were closed,"
                    " and the next socket starts the engine again",
                sockets => Sockets
            })
    end.

%% @doc Whether `init:stop/0' is stopping the VM. Applications then stop one after the other, and the remaining ones
%% may use sockets. The process `init' answers no request in this time, but its stack shows what it does.
-spec vm_stops() -> boolean().
vm_stops() ->
    case process_info(whereis(init), current_stacktrace) of
        {current_stacktrace, Stack} -> lists:keymember(clear_system, 2, Stack);
        undefined -> true
    end.

%% @doc Closes all sockets and ends all relays. Returns the number of sockets.
-spec all() -> non_neg_integer().
all() ->
    case weir_nif:available() of
        true ->
            %% Listening sockets first, so that no connection comes in.
            Listening = each(fun weir_nif:sockets/1, fun close_listening/1),
            Others = each(fun weir_nif:sockets/1, fun close/1),
            %% Sockets may have become relays since.
            _ = each(fun weir_nif:relays/1, fun(Relay) -> weir_nif:relay_stop(Relay) =:= ok end),
            Listening + Others;
        false ->
            0
    end.

%% Calls a fun with the entries of a table, piece by piece. Returns how often it returned `true'.
each(Piece, Do) -> each(Piece, Do, 0, 0).

each(Piece, Do, Number, Count) ->
    case Piece(Number) of
        {ok, Entries} -> each(Piece, Do, Number + 1, Count + length(lists:filter(Do, Entries)));
        done -> Count
    end.

close_listening(Handle) ->
    case weir_nif:info(Handle) of
        {ok, #{state := listening}} -> weir_nif:close(Handle, now) =:= ok;
        _ -> false
    end.

close(Handle) ->
    Told = told(Handle),
    ok = weir_nif:close(Handle, background),
    lists:foreach(fun(Owner) -> Owner ! {tcp_closed, ?SOCKET(Handle)} end, Told),
    true.

%% The owners to notify of a close by a message. A reactor gets an event.
told(Handle) ->
    case {weir_nif:info(Handle), weir_nif:reactor_of(Handle)} of
        {{ok, #{state := connected, owner := Owner}}, {error, not_reactor}} when is_pid(Owner) ->
            case weir_nif:getopts(Handle, [active]) of
                {ok, [{active, false}]} -> [];
                {ok, [_]} -> [Owner];
                {error, _} -> []
            end;
        _ ->
            []
    end.
