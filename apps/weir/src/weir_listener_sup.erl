%% @private
%% @doc Supervises the listeners that `weir:start_listener/4' starts. Those in a tree of the user's own are not here.
-module(weir_listener_sup).
-behaviour(supervisor).

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
        %% Who has stopped it was killed before it was forgotten.
        {error, already_present} ->
            #{id := Id} = Spec,
            _ = supervisor:delete_child(?MODULE, Id),
            start_listener(Spec);
        {error, {Reason, {child, _, _, _, _, _, _, _}}} -> {error, Reason};
        {error, {Reason, {child, _, _, _, _, _, _, _, _}}} -> {error, Reason};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Stops a listener and forgets it.
-spec stop_listener(weir_listener:name()) -> ok | {error, {no_listener, weir_listener:name()}}.
stop_listener(Name) ->
    case whereis(?MODULE) =/= undefined andalso supervisor:terminate_child(?MODULE, {weir_listener, Name}) of
        ok -> forgotten(Name, supervisor:delete_child(?MODULE, {weir_listener, Name}));
        _ -> {error, {no_listener, Name}}
    end.

%% Of those that stop it at once, another one may have been first; and it may have been started again since.
forgotten(_Name, ok) -> ok;
forgotten(_Name, {error, running}) -> ok;
forgotten(Name, {error, not_found}) -> {error, {no_listener, Name}}.

%% A listener that a fault of ours kills is started again at once; more than a few in a second are a fault of all.
-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, []}}.
