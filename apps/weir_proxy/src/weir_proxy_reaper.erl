%% @private
%% @doc Gives back what killed processes of connections counted for, by a look every second. Their clients are counted among
%% `connection_errors', and told in the log of the node together: who they were is not known any more.
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
    ok = report([Pid || Killed = {Pid, _} <- weir_proxy_pending:killed(), is_lost(Killed)]),
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
    weir_reports:log(warning, #{what => "processes of connections were killed, and their clients have had no server", connections => length(Lost)}).

%% False where its session goes on, or another process has given back what it counted for.
is_lost({Pid, unplaced}) ->
    weir_proxy_pending:lost(Pid);
is_lost({Pid, placed}) ->
    case weir_proxy_sessions:is_of(Pid) of
        %% It was killed when its session had begun, which counts from there on.
        true ->
            ok = weir_proxy_pending:relayed(Pid),
            false;
        %% One that had begun has ended, and its row is gone, too. A relay that is left is no session, and would count for nothing.
        false ->
            ok = weir_proxy_listeners:stop_relays(Pid),
            weir_proxy_pending:lost(Pid)
    end.
