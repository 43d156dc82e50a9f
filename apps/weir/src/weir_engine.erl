%% @private
%% @doc What sockets need of processes as long as there are any: pollers, and those who clear up behind reactors, read
%% files for them and look after relays.
%%
%% It belongs to the VM and not to the application: a program may use sockets of Weir without starting that, and
%% applications that stop one after the other want their sockets to the last. So it is a child of the kernel's supervisor
%% for what others need, started by the application or by the first socket, whichever comes first, and ends with the
%% kernel. No application controller is asked, since that is busy when an application starts or stops.
%%
%% It is temporary there. If it gives up, {@link weir_ending} closes all sockets, says so, and the next socket starts
%% it anew; the kernel, whose supervisor would end the node after a few restarts, is not drawn into it.
-module(weir_engine).
-behaviour(supervisor).

-export([start/0]).
-export([start_link/0]).
-export([init/1]).

%% @doc Starts it, unless it runs.
-spec start() -> ok | {error, term()}.
start() ->
    Spec = #{
        id => ?MODULE, start => {?MODULE, start_link, []}, restart => temporary, shutdown => infinity, type => supervisor
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

%% The last one is asked to end first, when the others are still there.
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = weir_reports:let_through(),
    ok = load_all(),
    ok = weir_reactors:new_table(),
    Children = [
        #{id => Module, start => {Module, start_link, []}, shutdown => infinity}
     || Module <- [weir_reaper, weir_reader, weir_succession, weir_pollsets, weir_relay_timer, weir_relay_observer, weir_ending]
    ],
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, Children}}.

%% Loads every module. Otherwise the first socket that needs one waits for it: the code server and its helpers exchange dozens
%% of messages, and beside processes that compute each of them waits for a round of the run queue. Later there may be no
%% descriptor left to load with, too. A release in embedded mode has loaded all.
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
