%% @private
%% @doc Supervises the processes that sockets need: pollers, and processes that clean up after reactors, read files
%% for them and handle timeouts of relays.
%%
%% It belongs to the VM, not to the application: a program may use Weir's sockets without starting the application,
%% and applications that stop one after the other need their sockets to the end. So it is a child of kernel_safe_sup.
%% The application or the first socket starts it, and it ends with the kernel. It does not call the application
%% controller, which is blocked while an application starts or stops.
%%
%% It is a temporary child. If it gives up, {@link weir_close_all} closes all sockets and logs it, and the next socket
%% starts it again. So it cannot exhaust the restarts of the kernel's supervisor, which would end the node.
-module(weir_engine).
-behaviour(supervisor).

-export([start/0]).
-export([start_link/0]).
-export([init/1]).

%% @doc Starts the engine, unless it is running.
-spec start() -> ok | {error, term()}.
start() ->
    Spec = #{
        id => ?MODULE,
        start => {?MODULE, start_link, []},
        restart => temporary,
        shutdown => infinity,
        type => supervisor
    },
    try supervisor:start_child(kernel_safe_sup, Spec) of
        {ok, _} -> ok;
        {error, {already_started, _}} -> ok;
        {error, Reason} -> {error, Reason}
    catch
        exit:Reason -> {error, Reason}
    end.

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% The last child stops first: weir_close_all needs the others.
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_reports:let_through(),
    ok = load_all(),
    ok = weir_reactors:new_table(),
    Children = [
        #{id => Module, start => {Module, start_link, []}, shutdown => infinity}
     || Module <- [
            weir_reaper,
            weir_reader,
            weir_succession,
            weir_pollsets,
            weir_relay_timer,
            weir_relay_observer,
            weir_close_all
        ]
    ],
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, Children}}.

%% Loads all modules. Otherwise the first socket would wait for it: the code server and its helpers exchange dozens of
%% messages, each of which waits for a round of the run queue if other processes compute. Also, there may be no
%% descriptor left for loading later. In embedded mode everything is loaded already.
load_all() ->
    File = code:where_is_file(?MODULE_STRING ".beam"),
    case is_list(File) andalso erl_prim_loader:list_dir(filename:dirname(File)) of
        {ok, Files} ->
            Names = [Name || Beam <- Files, [Name, "beam"] <- [string:split(Beam, ".", trailing)]],
            _ = code:ensure_modules_loaded([list_to_atom(Name) || Name <- Names, lists:prefix("weir", Name)]),
            ok;
        _ ->
            ok
    end.
