%% @private
%% @doc Supervises the listeners that `weir:start_listener/4' starts. Those in a tree of the user's own are not here.
-module(weir_listener_sup).
-behaviour(supervisor).

-include("../include/weir_step.hrl").

-export([start_link/0]).
-export([start_listener/1]).
-export([stop_listener/1]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts a listener. The error is the listener's own.
-spec start_listener(supervisor:child_spec()) -> {ok, pid()} | {error, term()}.
start_listener(Spec) ->
    case supervisor:start_child(?MODULE, Spec) of
        {ok, Pid} -> {ok, Pid};
        %% It has ended, and who stops it is about to forget it.
        {error, already_present} -> start_listener(Spec);
        {error, {Reason, {child, _, _, _, _, _, _, _}}} -> {error, Reason};
        {error, {Reason, {child, _, _, _, _, _, _, _, _}}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Stops a listener and forgets it. Of those that stop it at once, one is told that it has done so.
-spec stop_listener(weir_listener:name()) -> ok | {error, {no_listener, weir_listener:name()}}.
stop_listener(Name) ->
    Id = {weir_listener, Name},
    %% By a process of its own: the caller may be killed, and what has ended must be forgotten.
    {Caller, Stopped} = {self(), make_ref()},
    {Stopper, Monitor} = spawn_monitor(fun() -> _ = is_there(Name, Id) andalso is_stopped(Id) andalso (Caller ! Stopped), ok end),
    receive
        {'DOWN', Monitor, process, Stopper, _Reason} -> ok
    end,
    %% Sent before the end. Without a supervisor there are no listeners.
    receive
        Stopped -> ok
    after 0 -> {error, {no_listener, Name}}
    end.

%% One that has ended, and that its stopper has not forgotten yet, is not there any more. One that has died is, if its supervisor is
%% about to start it again.
is_there(Name, Id) ->
    is_pid(weir_listener_names:whereis_name(Name)) orelse
        case lists:keyfind(Id, 1, supervisor:which_children(?MODULE)) of
            {_, undefined, _, _} -> false;
            {_, _PidOrRestarting, _, _} -> true;
            false -> false
        end.

%% If another one has been first, there is none of that name now, or the next one.
is_stopped(Id) ->
    case supervisor:terminate_child(?MODULE, Id) of
        ok ->
            ?STEP,
            supervisor:delete_child(?MODULE, Id) =:= ok;
        {error, not_found} ->
            false
    end.

%% A listener that a fault of ours kills is started again at once; more than a few in a second are a fault of all.
-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, []}}.
