%% @private
%% @doc Has all schedulers online while somebody waits for processes that are bound to one that may be offline.
%%
%% There may be several who wait at once, so one process of the VM counts them: it sets all schedulers online for the first, and
%% sets the number that was before when the last has ended, by itself or killed. The process begins with the first wish and ends
%% with the last. It is bound to no scheduler, and belongs to no application, because applications wait here while they are stopped.
%%
%% If somebody else sets another number meanwhile, that is the one to go back to. Nobody can compare the flag and set it in one step,
%% and a process that sets it may wait for one that does the same. But setting it tells what it was in the same step, and so whether
%% somebody has set it since. Only the number of all schedulers cannot be told from the one that is set here: it is lost.
-module(weir_schedulers).
-behaviour(gen_server).

-export([online/0]).
-export([with_all_online/1]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% How often it is looked whether somebody has set another number: those who wait would wait for as long.
-define(LOOK_MS, 50).

%% In how many turns a process that ends is at its end. One was enough, as far as was seen.
-define(TURNS, 4).

-record(state, {
    %% How many are online when nobody waits.
    online :: pos_integer(),
    waiting = #{} :: #{reference() => []}
}).

%% @doc How many schedulers are online, or will be again when nobody waits any more: nothing is spread over the others for that time.
-spec online() -> pos_integer().
online() ->
    %% In this order: a keeper that begins sets the number when it can be found, and one that ends while it can be found.
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

%% @doc Calls a fun while all schedulers are online, and returns what it returns. The fun waits, and does nothing else: it has a
%% high priority, so that the time is short.
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
        %% It has just ended, with the last wish before.
        exit:_ -> wish()
    end.

%% If the keeper was killed, nobody knows the number.
take_back(Keeper, Wish) ->
    try
        gen_server:call(Keeper, {take_back, Wish}, infinity)
    catch
        exit:_ -> ok
    end.

-spec init([]) -> {ok, #state{}}.
init([]) ->
    %% The processes of an application's group are killed with it.
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

%% To set it once more to the same number may have fewer dirty schedulers online.
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

%% A process that ends has told its monitors before it answers what else was sent to it, and it may do that in a turn of its own. A
%% scheduler that went offline in between would keep these answers back. So each gives all others their turns before.
let_end(State = #state{online = Online}) ->
    await([turns(Scheduler) || Scheduler <- lists:seq(Online + 1, erlang:system_info(schedulers))], State).

turns(Scheduler) ->
    Turns = fun() -> lists:foreach(fun(_) -> erlang:yield() end, lists:seq(1, ?TURNS)) end,
    try
        element(2, erlang:spawn_opt(Turns, [monitor, {scheduler, Scheduler}]))
    catch
        %% This VM binds no processes.
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
        %% They were online before, and nothing has been set.
        Online -> ok;
        All -> set_back(Online, All)
    end.

%% Sets the number where this process had set that other one. What somebody has set since is set again.
set_back(Online, Ours) ->
    case erlang:system_flag(schedulers_online, Online) of
        Before when Before =:= Ours; Before =:= Online -> ok;
        Theirs -> set_back(Theirs, Online)
    end.
