%% @private
%% @doc Keeps a poller on every pollset.
%%
%% There is a pollset for each scheduler, numbered like it, and a poller bound to that scheduler. A bound process does
%% not run while its scheduler is offline (`erlang:system_flag(schedulers_online, _)'), and nobody is told of that. So
%% this process, which is not bound, looks; and has the pollset of an offline scheduler polled from an online one. The
%% poller left behind finds its token stale when it runs again.
%%
%% That is for what has to stay there. New sockets get pollsets of schedulers that are online, those that are elsewhere move
%% when their scheduler goes offline ({@link weir_nif:evacuate/1}), and listeners are told.
%%
%% Where the VM refuses to bind processes, pollers run anywhere: correct, and slower.
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

%% How often the number of schedulers online is looked at: what changes it is an operator or a container's limits, and
%% a quarter of a second of silence is what a lost packet costs as well. Looking takes microseconds.
-define(LOOK_MS, 250).

%% A poller that lived shorter than this is not replaced at once: a fault must not become a storm.
-define(SHORT_LIFE_MS, 50).

%% A server at the limit runs out of descriptors whenever one comes back: it is told once in this time.
-define(TELL_AGAIN_MS, 60_000).

%% Old code that somebody needs is tried again after this time.
-define(RENEW_AGAIN_MS, 1000).

-type home() :: pos_integer() | anywhere.
%% The scheduler that a poller is bound to.

-record(poller, {pid :: pid(), home :: home(), born :: integer()}).

-record(state, {
    binding :: boolean(),
    online :: pos_integer(),
    exhausted = never :: never | {told, integer()},
    %% Pollers that were replaced, and die when their schedulers are online for a moment.
    frozen = [] :: [pid()],
    %% Who renews processes, or when that was done.
    renewing = never :: never | integer() | pid(),
    %% Panics of the native part that the log has been told of.
    panics = 0 :: non_neg_integer(),
    pollers = #{} :: #{weir_nif:pollset() => #poller{}}
}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Starts the {@link weir_engine} if nobody has: a socket needs somebody who polls it.
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

%% @doc The numbers of the pollsets, also of those of schedulers that are offline.
-spec all() -> [weir_nif:pollset()].
all() ->
    lists:seq(1, erlang:system_info(schedulers)).

%% @doc The pollsets of schedulers that are online: over these something new is spread. A listener that has asked is told when it
%% is time to ask again.
-spec online() -> [weir_nif:pollset()].
online() ->
    Online =
        try
            gen_server:call(?MODULE, online)
        catch
            %% It does not run, or is about to end.
            exit:_ -> weir_schedulers:online()
        end,
    lists:seq(1, Online).

%% @doc A scheduler that is online in the place of another, or that one if it is online.
-spec substitute(Scheduler :: pos_integer()) -> pos_integer().
substitute(Scheduler) -> substitute(Scheduler, erlang:system_info(schedulers_online)).

substitute(Scheduler, Online) -> (Scheduler - 1) rem Online + 1.

%% @doc The pollset of the scheduler that the caller runs on. Dirty schedulers, where no caller of ours should be, have
%% numbers beyond those of the others, and no pollset.
-spec here() -> weir_nif:pollset().
here() ->
    case {erlang:system_info(scheduler_id), erlang:system_info(schedulers)} of
        {Scheduler, Schedulers} when Scheduler =< Schedulers -> Scheduler;
        _ -> 1
    end.

%% @doc The pollers, and where each runs. None if Weir does not run.
-spec pollers() -> #{weir_nif:pollset() => {pid(), home()}}.
pollers() ->
    try
        gen_server:call(?MODULE, pollers)
    catch
        exit:{Reason, _} when Reason =:= noproc; Reason =:= shutdown; Reason =:= normal -> #{}
    end.

-spec init([]) -> {ok, #state{}} | {stop, term()}.
init([]) ->
    process_flag(trap_exit, true),
    %% When this process is there, all pollsets are: a poller may have to wait for its scheduler.
    case [Error || Pollset <- all(), {error, _} = Error <- [weir_nif:make(Pollset)]] of
        [] ->
            Online = weir_schedulers:online(),
            ok = weir_nif:set_online(Online),
            State = lists:foldl(fun start_poller/2, #state{binding = probe_binding(), online = Online}, all()),
            %% The process before this one may have died when the number had just changed.
            _ = spawn_link(fun() -> evacuate(0) end),
            look_later(),
            {ok, State};
        [{error, Reason} | _] ->
            {stop, Reason}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(pollers, _From, Before) ->
    %% Who asks puts something where the pollers are. A reactor stays there.
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
                what => "a poller died, and another is started", pollset => Pollset, poller => Pid, reason => Reason
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
                what => "connections cannot be accepted, and wait in the backlog", reason => Reason
            }),
            {noreply, State#state{exhausted = {told, Now}}}
    end;
handle_info(_Message, State) ->
    {noreply, State}.

%% All pollers are gone after this: a frozen one would keep the VM from stopping.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{pollers = Pollers, frozen = Frozen}) ->
    weir_shutdown:processes([Pid || #poller{pid = Pid} <- maps:values(Pollers)] ++ Frozen, brutal_kill).

tell_of_panics(State = #state{panics = Told}) ->
    case weir_nif:panics() of
        {Told, _Last} ->
            State;
        {Count, Last} ->
            ok = weir_reports:log(error, #{
                what => "Weir's native part has failed, and has closed what it was serving: please report this fault",
                count => Count - Told,
                last => Last
            }),
            State#state{panics = Count}
    end.

%% A process of its own does it: a purge waits for all processes.
renew(State = #state{renewing = Last}) ->
    Due = is_integer(Last) andalso erlang:monotonic_time(millisecond) - Last >= ?RENEW_AGAIN_MS,
    case (Last =:= never orelse Due) andalso weir_renewal:is_due() of
        true -> State#state{renewing = spawn_link(fun weir_renewal:run/0)};
        false -> State
    end.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.

%% Moves the pollers if the number of schedulers online has changed.
look(State = #state{online = Before}) ->
    case weir_schedulers:online() of
        Before ->
            State;
        Online ->
            %% Before sockets are looked for: none comes there any more.
            ok = weir_nif:set_online(Online),
            Rehoused = lists:foldl(fun rehouse/2, State#state{online = Online}, all()),
            %% They look where their sockets and workers belong.
            ok = weir_listener_names:tell_all(pollers_moved),
            %% A process of its own does it: there may be many sockets.
            _ = Online < Before andalso spawn_link(fun() -> evacuate(0) end),
            %% Not linked: they have to end also if this process is killed.
            _ = spawn(fun() -> end_frozen(Rehoused) end),
            Rehoused
    end.

%% A process that stands still answers nobody. `application:stop/1', of any application, asks all processes who their group leader
%% is, and a purge of code whether they run it: they would wait.
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

%% Gives a pollset another poller if its home has changed.
rehouse(Pollset, State = #state{pollers = Pollers, frozen = Frozen}) ->
    Home = home(Pollset, State),
    case Pollers of
        #{Pollset := #poller{home = Home}} ->
            State;
        #{Pollset := #poller{pid = Old}} ->
            %% It may be frozen, and then does not die yet.
            exit(Old, kill),
            start_poller(Pollset, State#state{frozen = [Old | Frozen]});
        #{} ->
            State
    end.

home(_Pollset, #state{binding = false}) -> anywhere;
home(Pollset, #state{online = Online}) -> substitute(Pollset, Online).

%% `{scheduler, I}' is not documented: see whether this VM takes it, and whether the process runs where it should.
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
    ok = weir_reports:log(notice, #{what => "this VM binds no processes to schedulers: pollers run unbound, slower"}),
    false.
