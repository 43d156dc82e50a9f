%% @private
%% @doc The registry of listeners, which also keeps the state that outlives a listener's process.
%%
%% A name is any term, for use in `{via, weir_listener_names, Name}'. Names are unique.
%%
%% When a listener's process dies, its native part is kept here. It counts the remaining connections; the next
%% listener of that name inherits it, with the port and the connections that wait for a process. It is dropped when
%% the listener is stopped, or has no successor within 5 seconds.
%%
%% This process may be killed: the supervisor owns the table, and the next process finds the listeners in it.
-module(weir_listener_names).
-behaviour(gen_server).

-export([new_table/0]).
-export([start_link/0]).
-export([all/0]).
-export([call/2]).
-export([tell_all/1]).
-export([keep/2]).
-export([kept/1]).
-export([forget/1]).

%% Callbacks for `via'.
-export([register_name/2]).
-export([unregister_name/1]).
-export([whereis_name/1]).
-export([send/2]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% Rows: {{pid, Name}, Pid} and {{kept, Name}, Term}.
-define(TABLE, ?MODULE).

%% Milliseconds to wait for the successor of a listener that died: a supervisor starts it at once.
-define(SUCCESSOR_MS, 5000).

%% @doc Creates the table of names, owned by the caller.
-spec new_table() -> ok.
new_table() ->
    _ = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    ok.

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Returns the running listeners' names and processes.
-spec all() -> [{term(), pid()}].
all() ->
    case ets:whereis(?TABLE) of
        undefined -> [];
        Table -> [{Name, Pid} || [Name, Pid] <- ets:match(Table, {{pid, '$1'}, '$2'}), is_process_alive(Pid)]
    end.

%% @doc Calls a listener by its name.
-spec call(Name, Request :: term()) -> Reply :: term() | {error, {no_listener, Name}}.
call(Name, Request) ->
    case whereis_name(Name) of
        undefined ->
            {error, {no_listener, Name}};
        Pid ->
            try
                gen_server:call(Pid, Request, infinity)
            catch
                %% It has ended since.
                exit:{_, {gen_server, call, _}} -> {error, {no_listener, Name}}
            end
    end.

%% @doc Sends a message to all running listeners.
-spec tell_all(Message :: term()) -> ok.
tell_all(Message) ->
    lists:foreach(fun({_Name, Pid}) -> Pid ! Message end, all()).

%% @doc Keeps the native part, and other state, for the next listener of this name. Does nothing if Weir is stopped.
-spec keep(term(), #{listener := weir_nif:listener(), _ => _}) -> ok.
keep(Name, Term) ->
    _ = ets:whereis(?TABLE) =/= undefined andalso ets:insert(?TABLE, {{kept, Name}, Term}),
    ok.

%% @doc Returns what is kept for a listener of this name.
-spec kept(term()) -> {ok, #{listener := weir_nif:listener(), _ => _}} | error.
kept(Name) ->
    case ets:lookup(?TABLE, {kept, Name}) of
        [{_, Term}] -> {ok, Term};
        [] -> error
    end.

%% @doc Drops what is kept.
-spec forget(term()) -> ok.
forget(Name) ->
    _ = ets:whereis(?TABLE) =/= undefined andalso ets:delete(?TABLE, {kept, Name}),
    ok.

-spec register_name(term(), pid()) -> yes | no.
register_name(Name, Pid) ->
    gen_server:call(?MODULE, {register, Name, Pid}, infinity).

-spec unregister_name(term()) -> ok.
unregister_name(Name) ->
    gen_server:call(?MODULE, {unregister, Name}, infinity).

-spec whereis_name(term()) -> pid() | undefined.
whereis_name(Name) ->
    case ets:whereis(?TABLE) =/= undefined andalso ets:lookup(?TABLE, {pid, Name}) of
        [{_, Pid}] ->
            %% A supervisor may see its death first, and starts the next listener at once.
            case is_process_alive(Pid) of
                true -> Pid;
                false -> undefined
            end;
        _ ->
            undefined
    end.

-spec send(term(), term()) -> pid().
send(Name, Message) ->
    case whereis_name(Name) of
        undefined ->
            exit({badarg, {Name, Message}});
        Pid ->
            Pid ! Message,
            Pid
    end.

%% The state maps monitors to entries.
-spec init([]) -> {ok, #{reference() => {term(), pid()}}}.
init([]) ->
    %% Monitoring a dead process gives a `DOWN' at once.
    Running = [{Name, Pid} || [Name, Pid] <- ets:match(?TABLE, {{pid, '$1'}, '$2'})],
    {ok, maps:from_list([{monitor(process, Pid), Entry} || Entry = {_, Pid} <- Running])}.

-spec handle_call(term(), gen_server:from(), Names) -> {reply, term(), Names} when Names :: #{}.
handle_call({register, Name, Pid}, _From, Names) ->
    case whereis_name(Name) of
        Old when is_pid(Old), Old =/= Pid -> {reply, no, Names};
        _ -> {reply, yes, insert(Name, Pid, Names)}
    end;
handle_call({unregister, Name}, _From, Names) ->
    true = ets:delete(?TABLE, {pid, Name}),
    {reply, ok, Names};
handle_call(_Request, _From, Names) ->
    {reply, {error, badarg}, Names}.

insert(Name, Pid, Names) ->
    true = ets:insert(?TABLE, {{pid, Name}, Pid}),
    Names#{monitor(process, Pid) => {Name, Pid}}.

-spec handle_cast(term(), Names) -> {noreply, Names} when Names :: #{}.
handle_cast(_Request, Names) ->
    {noreply, Names}.

-spec handle_info(term(), Names) -> {noreply, Names} when Names :: #{}.
handle_info({'DOWN', Reference, process, _, _}, Names) ->
    case maps:take(Reference, Names) of
        {{Name, Pid}, Rest} ->
            %% The row may already be its successor's.
            true = ets:delete_object(?TABLE, {{pid, Name}, Pid}),
            _ = erlang:send_after(?SUCCESSOR_MS, self(), {expire, Name}),
            {noreply, Rest};
        error ->
            {noreply, Names}
    end;
handle_info({expire, Name}, Names) ->
    case {whereis_name(Name), kept(Name)} of
        {undefined, {ok, #{listener := Listener}}} ->
            ok = weir_nif:listener_clear(Listener),
            ok = forget(Name);
        _ ->
            ok
    end,
    {noreply, Names};
handle_info(_Message, Names) ->
    {noreply, Names}.
