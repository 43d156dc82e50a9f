%% @private
%% @doc Supervises the listeners of `weir:start_listener/4'. Those in users' own supervisors are not here.
-module(weir_listener_sup).
-behaviour(supervisor).

-include("weir_step.hrl").

-export([start_link/0]).
-export([start_listener/1]).
-export([stop_listener/1]).
-export([init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts a listener. Errors are the listener's own.
-spec start_listener(supervisor:child_spec()) -> {ok, pid()} | {error, term()}.
start_listener(Spec) ->
    case supervisor:start_child(?MODULE, Spec) of
        {ok, Pid} -> {ok, Pid};
        %% It has ended, and stop_listener/1 is about to delete its specification.
        {error, already_present} -> start_listener(Spec);
        {error, {Reason, {child, _, _, _, _, _, _, _}}} -> {error, Reason};
        {error, {Reason, {child, _, _, _, _, _, _, _, _}}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Stops a listener and deletes it. Of several concurrent calls one returns `ok'.
-spec stop_listener(weir_listener:name()) -> ok | {error, {no_listener, weir_listener:name()}}.
stop_listener(Name) ->
    Id = {weir_listener, Name},
    %% In a process of its own: the caller may be killed, but an ended listener must be deleted.
    {Caller, Stopped} = {self(), make_ref()},
    {Stopper, Monitor} = spawn_monitor(fun() ->
        _ = is_there(Name, Id) andalso is_stopped(Id) andalso (Caller ! Stopped),
        ok
    end),
    receive
        {'DOWN', Monitor, process, Stopper, _Reason} -> ok
    end,
    %% `Stopped' was sent before the `DOWN'. Without the supervisor there are no listeners.
    receive
        Stopped -> ok
    after 0 -> {error, {no_listener, Name}}
    end.

%% A listener that has ended but is not deleted yet does not exist any more. One that its supervisor is about to
%% restart does.
is_there(Name, Id) ->
    is_pid(weir_listener_names:whereis_name(Name)) orelse
        case lists:keyfind(Id, 1, supervisor:which_children(?MODULE)) of
            {_, undefined, _, _} -> false;
            {_, _PidOrRestarting, _, _} -> true;
            false -> false
        end.

%% Another call may have been first: then the child is gone, or is a later listener of that name.
is_stopped(Id) ->
    case supervisor:terminate_child(?MODULE, Id) of
        ok ->
            ?STEP,
            supervisor:delete_child(?MODULE, Id) =:= ok;
        {error, not_found} ->
            false
    end.

%% A listener killed by a bug is restarted at once. More than 10 restarts in a second mean that no listener can run.
-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, []}}.
