%% @private
%% @doc Keeps a poller on every pollset.
%%
%% Each scheduler has a pollset of the same number, and a poller bound to that scheduler. A bound process does not run
%% while its scheduler is offline (`erlang:system_flag(schedulers_online, _)'), and the VM notifies no process of
%% that. So this process, which is not bound, checks, and has pollsets of offline schedulers polled from online ones.
%% The old poller finds its token stale when it runs again.
%%
%% This serves sockets that have to stay. New sockets get pollsets of online schedulers; others move when their
%% scheduler goes offline ({@link weir_nif:evacuate/1}), and listeners are notified.
%%
%% If the VM refuses to bind processes, pollers run unbound: correct, but slower.
-module(weir_pollsets).
-behaviour(gen_server).

-export([start_link/0]).
-export([ensure_started/0]).
-export([all/0]).
-export([online/0]).
-export([substitute/1]).
-export([here/0]).
-export([pollers/0]).

-export_type([home/0]).

-include_lib("kernel/include/logger.hrl").

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).
-export([terminate/2]).

%% Interval between checks of the number of online schedulers. Operators and container limits change it; a pause of
%% 250 ms is no worse than a lost packet. A check takes microseconds.
-define(LOOK_MS, 250).

%% A poller that lived shorter than this is not replaced at once, so that a bug does not cause a storm of restarts.
-define(SHORT_LIFE_MS, 50).

%% A server at its limit runs out of descriptors again and again: at most one report in this time.
-define(TELL_AGAIN_MS, 60_000).

%% Old code that is still in use is renewed again after this time.
-define(RENEW_AGAIN_MS, 1000).

-type home() :: pos_integer() | anywhere.
%% The scheduler that a poller is bound to.

-record(poller, {pid :: pid(), home :: home(), born :: integer()}).

-record(state, {
    binding :: boolean(),
    online :: pos_integer(),
    exhausted = never :: never | {told, integer()},
    %% Replaced pollers of offline schedulers. They die when these schedulers are online for a moment.
    frozen = [] :: [pid()],
    %% The process that renews old code, or when the last one ended.
    renewing = never :: never | integer() | pid(),
    %% Panics of the native part that were logged.
    panics = 0 :: non_neg_integer(),
    pollers = #{} :: #{weir_nif:pollset() => #poller{}}
}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Starts the {@link weir_engine} if it is not running: a socket needs a poller.
-spec ensure_started() -> ok | {error, no_native_part | term()}.
ensure_started() ->
    case whereis(?MODULE) of
        undefined ->
            case weir_nif:available() of
                true -> weir_engine:start();
                false -> {error, no_native_part}
            end;
        _ ->
            ok
    end.

%% @doc Returns the numbers of all pollsets, including those of offline schedulers.
-spec all() -> [weir_nif:pollset()].
all() ->
    lists:seq(1, erlang:system_info(schedulers)).

%% @doc Returns the pollsets of online schedulers, to distribute new sockets over. Listeners get `pollers_moved' when
%% the number changes.
-spec online() -> [weir_nif:pollset()].
online() ->
    Online =
        try
            gen_server:call(?MODULE, online, infinity)
        catch
            %% Not running, or about to end.
            exit:_ -> weir_schedulers:online()
        end,
    lists:seq(1, Online).

%% @doc Returns an online scheduler in place of an offline one; an online one itself.
-spec substitute(Scheduler :: pos_integer()) -> pos_integer().
substitute(Scheduler) -> substitute(Scheduler, erlang:system_info(schedulers_online)).

substitute(Scheduler, Online) -> (Scheduler - 1) rem Online + 1.

%% @doc Returns the pollset of the caller's scheduler. Dirty schedulers have higher numbers and no pollset; no caller
%% should run there.
-spec here() -> weir_nif:pollset().
here() ->
    case {erlang:system_info(scheduler_id), erlang:system_info(schedulers)} of
        {Scheduler, Schedulers} when Scheduler =< Schedulers -> Scheduler;
        _ -> 1
    end.

%% @doc Returns the pollers, and where each runs. Empty if Weir is not running.
-spec pollers() -> #{weir_nif:pollset() => {pid(), home()}}.
pollers() ->
    try
        gen_server:call(?MODULE, pollers, infinity)
    catch
        exit:{Reason, _} when Reason =:= noproc; Reason =:= shutdown; Reason =:= normal -> #{}
    end.

-spec init([]) -> {ok, #state{}} | {stop, term()}.
init([]) ->
    process_flag(trap_exit, true),
    %% Creates all pollsets here: a poller may have to wait for its scheduler.
    case [Error || Pollset <- all(), {error, _} = Error <- [weir_nif:make(Pollset)]] of
        [] ->
            Online = weir_schedulers:online(),
            ok = weir_nif:set_online(Online),
            State = lists:foldl(fun start_poller/2, #state{binding = probe_binding(), online = Online}, all()),
            %% The last process may have died just after the number changed.
            _ = spawn_link(fun() -> evacuate(0) end),
            look_later(),
            {ok, State};
        [{error, Reason} | _] ->
            {stop, Reason}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(pollers, _From, Before) ->
    %% The caller is about to place something next to the pollers, and a reactor stays there. So check first.
    State = #state{pollers = Pollers} = look(Before),
    {reply, maps:map(fun(_, #poller{pid = Pid, home = Home}) -> {Pid, Home} end, Pollers), State};
handle_call(online, _From, Before) ->
    State = #state{online = Online} = look(Before),
    {reply, Online, State};
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, State) ->
    look_later(),
    {noreply, look(renew(tell_of_panics(State)))};
handle_info({'EXIT', Pid, _Reason}, State = #state{renewing = Pid}) ->
    {noreply, State#state{renewing = erlang:monotonic_time(millisecond)}};
handle_info({'EXIT', Pid, Reason}, State = #state{pollers = Pollers}) ->
    case [Entry || Entry = {_, #poller{pid = P}} <- maps:to_list(Pollers), P =:= Pid] of
        [{Pollset, #poller{born = Born}}] ->
            ok = weir_reports:log(warning, #{
                what => "a poller died; another is started", pollset => Pollset, poller => Pid, reason => Reason
            }),
            Lived = erlang:monotonic_time(millisecond) - Born,
            ok = weir_event:execute(
                [weir, poller, stop],
                #{duration => erlang:convert_time_unit(Lived, millisecond, native)},
                #{poller => Pid, pollset => Pollset, reason => Reason}
            ),
            Pause =
                case Lived < ?SHORT_LIFE_MS of
                    true -> ?SHORT_LIFE_MS;
                    false -> 0
                end,
            _ = erlang:send_after(Pause, self(), {start_poller, Pollset}),
            {noreply, State#state{pollers = maps:remove(Pollset, Pollers)}};
        [] ->
            {noreply, State#state{frozen = lists:delete(Pid, State#state.frozen)}}
    end;
handle_info({start_poller, Pollset}, State) when not is_map_key(Pollset, State#state.pollers) ->
    {noreply, start_poller(Pollset, State)};
handle_info({weir_descriptors, exhausted, Reason}, State = #state{exhausted = Last}) ->
    Now = erlang:monotonic_time(millisecond),
    case Last of
        {told, Then} when Now - Then < ?TELL_AGAIN_MS ->
            {noreply, State};
        _ ->
            ok = weir_reports:log(warning, #{
                what => "connections cannot be accepted; they wait in the backlog", reason => Reason
            }),
            {noreply, State#state{exhausted = {told, Now}}}
    end;
handle_info(_Message, State) ->
    {noreply, State}.

%% Ends all pollers: a frozen one would keep the VM from stopping.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{pollers = Pollers, frozen = Frozen}) ->
    weir_shutdown:processes([Pid || #poller{pid = Pid} <- maps:values(Pollers)] ++ Frozen, brutal_kill).

tell_of_panics(State = #state{panics = Told}) ->
    case weir_nif:panics() of
        {Told, _Last} ->
            State;
        {Count, Last} ->
            ok = weir_reports:log(error, #{
                what => "a bug in Weir's native part; the sockets that it was serving are closed. Please report it",
                count => Count - Told,
                last => Last
            }),
            State#state{panics = Count}
    end.

%% In a process of its own, because a purge waits for all processes.
renew(State = #state{renewing = Last}) ->
    Due = is_integer(Last) andalso erlang:monotonic_time(millisecond) - Last >= ?RENEW_AGAIN_MS,
    case (Last =:= never orelse Due) andalso weir_code_change:is_due() of
        true -> State#state{renewing = spawn_link(fun weir_code_change:run/0)};
        false -> State
    end.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.

%% Moves the pollers if the number of online schedulers has changed.
look(State = #state{online = Before}) ->
    case weir_schedulers:online() of
        Before ->
            State;
        Online ->
            %% First, so that no socket goes there any more.
            ok = weir_nif:set_online(Online),
            Rehoused = lists:foldl(fun rehouse/2, State#state{online = Online}, all()),
            %% Listeners then move their sockets and workers.
            ok = weir_listener_names:tell_all(pollers_moved),
            %% In a process of its own, because there may be many sockets.
            _ = Online < Before andalso spawn_link(fun() -> evacuate(0) end),
            %% Not linked: they have to end even if this process is killed.
            _ = spawn(fun() -> end_frozen(Rehoused) end),
            Rehoused
    end.

%% A frozen process answers no signal. `application:stop/1' of any application asks all processes for their group
%% leader, and a code purge asks whether they run the code: both would wait.
end_frozen(#state{frozen = Frozen}) ->
    weir_shutdown:processes(Frozen, brutal_kill).

evacuate(Piece) ->
    case weir_nif:evacuate(Piece) of
        done ->
            ok;
        ok ->
            erlang:yield(),
            evacuate(Piece + 1);
        more ->
            erlang:yield(),
            evacuate(Piece)
    end.

start_poller(Pollset, State = #state{pollers = Pollers}) ->
    Home = home(Pollset, State),
    Born = erlang:monotonic_time(millisecond),
    Pid = weir_poller:spawn_link(Pollset, Home),
    ok = weir_event:execute(
        [weir, poller, start],
        #{system_time => erlang:system_time()},
        #{poller => Pid, pollset => Pollset, scheduler => Home}
    ),
    Poller = #poller{pid = Pid, home = Home, born = Born},
    State#state{pollers = Pollers#{Pollset => Poller}}.

%% Starts another poller for a pollset whose scheduler has changed.
rehouse(Pollset, State = #state{pollers = Pollers, frozen = Frozen}) ->
    Home = home(Pollset, State),
    case Pollers of
        #{Pollset := #poller{home = Home}} ->
            State;
        #{Pollset := #poller{pid = Old}} ->
            %% It may be frozen, and then dies later.
            exit(Old, kill),
            start_poller(Pollset, State#state{frozen = [Old | Frozen]});
        #{} ->
            State
    end.

home(_Pollset, #state{binding = false}) -> anywhere;
home(Pollset, #state{online = Online}) -> substitute(Pollset, Online).

%% `{scheduler, I}' is not documented: tests whether this VM accepts it, and whether the process runs there.
probe_binding() ->
    Probe = fun() -> exit({on, erlang:system_info(scheduler_id)}) end,
    try erlang:spawn_opt(Probe, [monitor, {scheduler, 1}]) of
        {Pid, Ref} ->
            receive
                {'DOWN', Ref, process, Pid, {on, 1}} -> true;
                {'DOWN', Ref, process, Pid, _} -> say_unbound()
            end
    catch
        error:badarg -> say_unbound()
    end.

-dialyzer({nowarn_function, probe_binding/0}).

say_unbound() ->
    ok = weir_reports:log(notice, #{what => "this VM cannot bind processes to schedulers; unbound pollers are slower"}),
    false.
