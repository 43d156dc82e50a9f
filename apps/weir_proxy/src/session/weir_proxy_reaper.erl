%% @private
%% @doc Looks every second for connection processes that were killed, and uncounts their connections. They count as
%% `connection_errors'. One message in the log of the node reports them together, without addresses, which are lost.
-module(weir_proxy_reaper).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-define(LOOK_MS, 1000).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, []}.
init([]) ->
    look_later(),
    {ok, []}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, {error, unknown}, []}.
handle_call(_Request, _From, State) -> {reply, {error, unknown}, State}.

-spec handle_cast(term(), []) -> {noreply, []}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), []) -> {noreply, []}.
handle_info(look, State) ->
    ok = report([Pid || Killed = {Pid, _} <- weir_proxy_admissions:killed(), is_lost(Killed)]),
    look_later(),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.

report([]) ->
    ok;
report(Lost) ->
    weir_reports:log(warning, #{
        what => "connection processes were killed, and their clients got no server", connections => length(Lost)
    }).

%% False if its session goes on, or the connection was uncounted already.
is_lost({Pid, unplaced}) ->
    weir_proxy_admissions:lost(Pid);
is_lost({Pid, placed}) ->
    case weir_proxy_sessions:is_of(Pid) of
        %% It was killed after its session had begun. The session is counted instead.
        true ->
            ok = weir_proxy_admissions:relayed(Pid),
            false;
        %% It has no session: the end of one would have removed its row, too. A relay without a session would not be
        %% counted: stop it.
        false ->
            ok = weir_proxy_listeners:stop_relays(Pid),
            weir_proxy_admissions:lost(Pid)
    end.
