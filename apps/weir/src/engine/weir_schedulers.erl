%% @private
%% @doc Puts all schedulers online while a process waits for processes that may be bound to offline ones.
%%
%% One process per VM counts the callers: it puts all schedulers online for the first, and restores the number after
%% the last, also if callers are killed. It lives from the first request to the last. It is bound to no scheduler and
%% belongs to no application, because applications wait here while they are stopped.
%%
%% If another process sets a different number in the meantime, that one is restored. There is no compare-and-set for
%% the flag, and setting it may wait for a concurrent change. But setting it returns the old value in the same step,
%% which shows whether it was changed. Only a change to the number of all schedulers cannot be distinguished from this
%% process's own, and is lost.
-module(weir_schedulers).
-behaviour(gen_server).

-export([online/0]).
-export([with_all_online/1]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% Interval between checks whether another process has set a different number; callers may wait that much longer.
-define(LOOK_MS, 50).

%% The number of turns in which a dying process is finished. One was enough in all observations.
-define(TURNS, 4).

-record(state, {
    %% The number online without requests.
    online :: pos_integer(),
    waiting = #{} :: #{reference() => []}
}).

%% @doc Returns the number of online schedulers, or the number to be restored, so that nothing is distributed over
%% schedulers that are only online temporarily.
-spec online() -> pos_integer().
online() ->
    %% The order matters: a keeper changes the number only while it is registered.
    Online = erlang:system_info(schedulers_online),
    case whereis(?MODULE) of
        undefined ->
            case erlang:system_info(schedulers_online) of
                Online -> Online;
                _ -> online()
            end;
        Keeper ->
            try
                gen_server:call(Keeper, online, infinity)
            catch
                %% It has just ended.
                exit:_ -> online()
            end
    end.

%% @doc Calls a fun while all schedulers are online, and returns its result. The fun must only wait: it runs at high
%% priority, to keep that time short.
-spec with_all_online(fun(() -> Result)) -> Result.
with_all_online(Do) ->
    Priority = process_flag(priority, high),
    {Keeper, Wish} = wish(),
    try
        Do()
    after
        take_back(Keeper, Wish),
        process_flag(priority, Priority)
    end.

wish() ->
    Keeper =
        case gen_server:start({local, ?MODULE}, ?MODULE, [], []) of
            {ok, Started} -> Started;
            {error, {already_started, Running}} -> Running
        end,
    try
        {Keeper, gen_server:call(Keeper, wish, infinity)}
    catch
        %% It has just ended, with the last request before.
        exit:_ -> wish()
    end.

%% If the keeper was killed, the number is lost.
take_back(Keeper, Wish) ->
    try
        gen_server:call(Keeper, {take_back, Wish}, infinity)
    catch
        exit:_ -> ok
    end.

-spec init([]) -> {ok, #state{}}.
init([]) ->
    %% Processes in an application's group are killed with it.
    true = group_leader(whereis(init), self()),
    _ = process_flag(priority, high),
    look_later(),
    {ok, #state{online = erlang:system_info(schedulers_online)}}.

-spec handle_call(online | wish | {take_back, reference()} | term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {stop, normal, ok, #state{}}.
handle_call(online, _From, State = #state{online = Online}) ->
    {reply, Online, State};
handle_call(wish, {Pid, _}, State = #state{waiting = Waiting}) ->
    Wish = monitor(process, Pid),
    {reply, Wish, all_online(State#state{waiting = Waiting#{Wish => []}})};
handle_call({take_back, Wish}, _From, State) ->
    _ = demonitor(Wish, [flush]),
    case without(Wish, State) of
        {noreply, Others} -> {reply, ok, Others};
        {stop, normal, None} -> {stop, normal, ok, None}
    end;
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({'DOWN', Wish, process, _, _}, State) ->
    without(Wish, State);
handle_info(look, State) ->
    look_later(),
    {noreply, all_online(State)};
handle_info(_Message, State) ->
    {noreply, State}.

look_later() ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    ok.

%% Setting the same number again could put fewer dirty schedulers online.
all_online(State) ->
    All = erlang:system_info(schedulers),
    case erlang:system_info(schedulers_online) =:= All orelse erlang:system_flag(schedulers_online, All) of
        Same when Same =:= true; Same =:= All -> State;
        Online -> State#state{online = Online}
    end.

without(Wish, State = #state{waiting = Waiting}) ->
    case maps:remove(Wish, Waiting) of
        None when map_size(None) =:= 0 ->
            set_back(let_end(State)),
            {stop, normal, State#state{waiting = None}};
        Others ->
            {noreply, State#state{waiting = Others}}
    end.

%% A dying process sends its `DOWN's before it answers other signals, perhaps in another turn. If its scheduler went
%% offline in between, these answers would be stuck. So wait until each scheduler has given its processes some turns.
let_end(State = #state{online = Online}) ->
    await([turns(Scheduler) || Scheduler <- lists:seq(Online + 1, erlang:system_info(schedulers))], State).

turns(Scheduler) ->
    Turns = fun() -> lists:foreach(fun(_) -> erlang:yield() end, lists:seq(1, ?TURNS)) end,
    try
        element(2, erlang:spawn_opt(Turns, [monitor, {scheduler, Scheduler}]))
    catch
        %% This VM cannot bind processes.
        error:badarg -> none
    end.

-dialyzer({nowarn_function, [turns/1, await/2]}).

await([], State) ->
    State;
await([none | Monitors], State) ->
    await(Monitors, State);
await([Monitor | Others] = Monitors, State) ->
    receive
        {'DOWN', Monitor, process, _, _} -> await(Others, State)
    after ?LOOK_MS -> await(Monitors, all_online(State))
    end.

set_back(#state{online = Online}) ->
    case erlang:system_info(schedulers) of
        %% All were online before, so nothing was changed.
        Online -> ok;
        All -> set_back(Online, All)
    end.

%% Sets the number, and compares the old one. A change by another process is set again.
set_back(Online, Ours) ->
    case erlang:system_flag(schedulers_online, Online) of
        Before when Before =:= Ours; Before =:= Online -> ok;
        Theirs -> set_back(Theirs, Online)
    end.
