%% @private
%% @doc The process of a backend. It has the state of the servers, their checks, and the queue of connections that wait
%% for a place. It publishes a balancer after each change, so that connections choose a server without calling it.
-module(weir_proxy_backend).
-behaviour(gen_server).

-include("weir_proxy.hrl").

-export([start_link/2]).
-export([change/3]).
-export([wait/2]).
-export([failing/2]).
-export([set/4]).
-export([servers/2]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-record(state, {
    proxy :: term(),
    name :: binary(),
    config :: weir_proxy_config:backend(),
    numbers :: atomics:atomics_ref(),
    members :: [weir_proxy_server:member()],
    balancer :: weir_proxy_balancer:balancer() | none,
    %% The states that were last reported as events.
    states = #{} :: #{binary() => up | down | drain | maint | failing | unresolved},
    %% The queue: waiting connections in order, with the timers of `queue_timeout'.
    waiting = gb_trees:empty() :: gb_trees:tree(Turn :: integer(), {gen_server:from(), Key :: term(), reference()}),
    %% The timer of the next DNS lookup. Messages of earlier timers are ignored.
    resolving = none :: reference() | none,
    %% The timer of the next step of slow starts. Only one at a time, even if other changes are published in between.
    growing = none :: reference() | none,
    checks = #{} :: #{weir_proxy_check:name() => weir_proxy_check:check()}
}).

%% Interval at which weights grow during a slow start.
-define(GROW_MS, 200).

%% Interval at which expired entries of `stick' are removed.
-define(FORGET_MS, 30_000).

%%% Called by connections and by the proxy's process.

-spec start_link(Proxy :: term(), {binary(), weir_proxy_config:backend()}) -> {ok, pid()} | {error, term()}.
start_link(Proxy, Backend) -> gen_server:start_link(?MODULE, {Proxy, Backend}, []).

%% @doc Changes the configuration.
-spec change(Proxy :: term(), binary(), weir_proxy_config:backend()) -> ok | {error, {no_backend, binary()}}.
change(Proxy, Name, Config) -> ask(Proxy, Name, {change, Config}).

%% @doc Waits in the queue until a place at a server was taken for the caller, at most for `queue_timeout'. `ended':
%% the process was killed, or the backend was removed.
-spec wait(pid(), Key :: term()) -> {ok, #server{}} | {error, queue_full | queue_timeout | ended}.
wait(Pid, Key) ->
    try
        gen_server:call(Pid, {wait, Key}, infinity)
    catch
        exit:_ -> {error, ended}
    end.

%% @doc Reports that a server has reached the `fall' of `passive': it is failing.
-spec failing(pid(), binary()) -> ok.
failing(Pid, Server) ->
    Pid ! {failing, Server},
    ok.

%% @doc Applies an operator's command to a server.
-spec set(Proxy :: term(), binary(), binary(), {admin, weir_proxy_server:admin()} | {weight, 0..256}) ->
    ok | {error, {no_backend | no_server, binary()}}.
set(Proxy, Name, Server, What) -> ask(Proxy, Name, {set, Server, What}).

%% @doc Returns the servers with their states and counters.
-spec servers(Proxy :: term(), binary()) -> [map()] | {error, {no_backend, binary()}}.
servers(Proxy, Name) -> ask(Proxy, Name, servers).

ask(Proxy, Name, Request) ->
    Process = fun() ->
        case weir_proxy_store:backend(Proxy, Name) of
            #backend{process = Pid} -> {ok, Pid};
            undefined -> none
        end
    end,
    case weir_proxy_store:ask(Process, Request) of
        {ok, Answer} -> Answer;
        none -> {error, {no_backend, Name}}
    end.

%%% The process.

-spec init({term(), {binary(), weir_proxy_config:backend()}}) -> {ok, #state{}}.
init({Proxy, {Name, Given}}) ->
    process_flag(trap_exit, true),
    State =
        case weir_proxy_store:saved({backend, Proxy, Name}) of
            {ok, {Config, Numbers, Members}} ->
                %% The queue is empty: its calls failed when the process before died.
                _ = weir_proxy_counters:add(Numbers, queue_current, -weir_proxy_counters:get(Numbers, queue_current)),
                #state{
                    proxy = Proxy, name = Name, config = Config, numbers = Numbers, members = Members, balancer = none
                };
            none ->
                Members = [weir_proxy_server:new(Server, Given) || Server <- maps:get(servers, Given)],
                Numbers = weir_proxy_counters:new(),
                #state{
                    proxy = Proxy, name = Name, config = Given, numbers = Numbers, members = Members, balancer = none
                }
        end,
    _ = erlang:send_after(?FORGET_MS, self(), forget),
    %% Start the timers of failing servers again: they ended with the process before.
    Now = now_ms(),
    _ = [
        erlang:send_after(Left, self(), publish)
     || Member <- State#state.members, Left <- [weir_proxy_server:fails_for(Now, Member)], Left > 0
    ],
    {ok, publish(check_all(resolve(State)))}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call({wait, Key}, From, State) ->
    {noreply, serve(enqueue(From, Key, State))};
handle_call({change, Config = #{servers := Servers}}, _From, State = #state{members = Before}) ->
    Members = [member(Server, Config, Before) || Server <- Servers],
    {reply, ok, serve(publish(check_all(resolve(State#state{config = Config, members = Members}))))};
handle_call({set, Name, What}, _From, State = #state{members = Members}) ->
    case [Member || Member <- Members, weir_proxy_server:name(Member) =:= Name] of
        [] -> {reply, {error, {no_server, Name}}, State};
        [Member] -> {reply, ok, serve(publish(check_all(put_member(set(What, Member), State))))}
    end;
handle_call(servers, _From, State = #state{members = Members}) ->
    Now = now_ms(),
    {reply, [weir_proxy_server:to_map(Now, Member) || Member <- Members], State}.

set({admin, Admin}, Member) -> weir_proxy_server:set_admin(Admin, Member);
set({weight, Weight}, Member) -> weir_proxy_server:set_weight(Weight, Member).

member(Server = #{name := Name}, Config, Before) ->
    case [Member || Member <- Before, weir_proxy_server:name(Member) =:= Name] of
        [Member] -> weir_proxy_server:change(Server, Config, Member);
        [] -> weir_proxy_server:new(Server, Config)
    end.

-spec handle_cast(term(), State) -> {noreply, State}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({failing, Name}, State = #state{members = Members, config = #{passive := #{back_off := BackOff}}}) ->
    Now = now_ms(),
    %% Skip a server that is failing already: connections that were on their way to it are no new evidence.
    case
        [
            Member
         || Member <- Members, weir_proxy_server:name(Member) =:= Name, weir_proxy_server:state(Now, Member) =/= failing
        ]
    of
        [Member] ->
            _ = erlang:send_after(BackOff, self(), publish),
            {noreply, publish(put_member(weir_proxy_server:failing(Now + BackOff, Member), State))};
        [] ->
            {noreply, State}
    end;
handle_info(freed, State) ->
    {noreply, serve(State)};
handle_info({timeout, _Timer, {impatient, Turn}}, State = #state{waiting = Waiting}) ->
    case gb_trees:take_any(Turn, Waiting) of
        {{From, _, _}, Others} ->
            gen_server:reply(From, {error, queue_timeout}),
            {noreply, waiting(Others, State)};
        error ->
            {noreply, State}
    end;
handle_info({weir_proxy_check, Name, Result, Took}, State) ->
    {noreply, checked(Name, Result, Took, State)};
handle_info(publish, State) ->
    {noreply, serve(publish(State))};
handle_info({timeout, Timer, grow}, State = #state{growing = Timer}) ->
    {noreply, serve(publish(State#state{growing = none}))};
handle_info({timeout, Timer, resolve}, State = #state{resolving = Timer}) ->
    {noreply, resolve(State)};
handle_info(forget, State = #state{numbers = Numbers}) ->
    %% Even if `stick' was turned off: otherwise old entries would stay for ever.
    _ = weir_proxy_counters:get(Numbers, sticks) > 0 andalso weir_proxy_sticks:forget(Numbers, now_ms()),
    _ = erlang:send_after(?FORGET_MS, self(), forget),
    {noreply, State};
handle_info({weir_proxy_resolved, Host, Addresses}, State = #state{members = Members}) ->
    case [resolved(Host, Addresses, Member) || Member <- Members] of
        %% No change. Publishing would be expensive: replacing a persistent term makes the VM scan all processes.
        Members -> {noreply, State};
        Resolved -> {noreply, serve(publish(check_all(State#state{members = Resolved})))}
    end;
%% Restart a check that has crashed: otherwise its server would keep its state for ever.
handle_info({'EXIT', Pid, Reason}, State = #state{proxy = Proxy, name = Name, checks = Checks}) ->
    case [Check || {Check, {Of, _}} <- maps:to_list(Checks), Of =:= Pid] of
        [] ->
            {noreply, State};
        [Check] ->
            About = #{proxy => Proxy, backend => Name, check => Check, reason => Reason},
            ok = weir_reports:say(fun() ->
                weir_reports:log(error, About#{what => "the check of a server has crashed and was restarted"})
            end),
            {noreply, check_all(State)}
    end;
handle_info(_Message, State) ->
    {noreply, State}.

%% Resolves the names of servers now and starts the timer of the next lookup. It replaces any earlier timer.
resolve(State = #state{config = #{resolve_interval := Interval}, members = Members}) ->
    Names = lists:usort([Host || Member <- Members, {name, Host, _} <- [weir_proxy_server:endpoint(Member)]]),
    _ = [weir_proxy_resolver:resolve(Host) || Host <- Names],
    State#state{resolving = case Names of [] -> none; _ -> erlang:start_timer(Interval, self(), resolve) end}.

resolved(Host, Addresses, Member) ->
    case weir_proxy_server:endpoint(Member) of
        {name, Host, Port} -> weir_proxy_server:resolved([{Address, Port} || Address <- Addresses], Member);
        _ -> Member
    end.

now_ms() -> erlang:monotonic_time(millisecond).

put_member(Member, State = #state{members = Members}) ->
    Name = weir_proxy_server:name(Member),
    State#state{members = [case weir_proxy_server:name(Each) of Name -> Member; _ -> Each end || Each <- Members]}.

%%% Publishing.

publish(
    State = #state{proxy = Proxy, name = Name, config = Config, numbers = Numbers, members = Members, balancer = Before}
) ->
    #{balance := Balance, hash_load := Load} = Config,
    Now = now_ms(),
    Balancer = weir_proxy_balancer:renew(Balance, first_priority(eligible(Now, Members)), Load, Before),
    Backend = #backend{name = Name, process = self(), numbers = Numbers, balancer = Balancer, config = Config},
    ok = weir_proxy_store:publish(Proxy, Backend),
    ok = weir_proxy_store:save({backend, Proxy, Name}, {Config, Numbers, Members}),
    State#state{balancer = Balancer, states = tell(Now, State), growing = growing(Now, State)}.

growing(Now, #state{growing = none, members = Members}) ->
    case lists:any(fun(Member) -> weir_proxy_server:slow_starting(Now, Member) end, Members) of
        true -> erlang:start_timer(?GROW_MS, self(), grow);
        false -> none
    end;
growing(_Now, #state{growing = Timer}) ->
    Timer.

%% Reports changed states as events. A new server is not a change.
tell(Now, #state{proxy = Proxy, name = Name, members = Members, states = Before}) ->
    States = maps:from_list([
        {weir_proxy_server:name(Member), weir_proxy_server:state(Now, Member)}
     || Member <- Members
    ]),
    _ = [
        ok = weir_proxy_event:server(Proxy, Name, Server, Was, Is)
     || {Server, Is} <- maps:to_list(States), #{Server := Was} <- [Before], Was =/= Is
    ],
    States.

eligible(Now, Members) ->
    [Eligible || Member <- Members, Eligible = {_, _} <- [weir_proxy_server:eligible(Now, Member)]].

first_priority([]) -> [];
first_priority(Eligible) ->
    First = lists:min([Priority || {Priority, _} <- Eligible]),
    [Server || {Priority, Server} <- Eligible, Priority =:= First].

%%% The queue.

enqueue(From, Key, State = #state{waiting = Waiting, config = #{queue_timeout := Timeout, max_queue := Most}}) ->
    case gb_trees:size(Waiting) < Most of
        true ->
            Turn = erlang:unique_integer([monotonic]),
            Timer = erlang:start_timer(Timeout, self(), {impatient, Turn}),
            _ = weir_proxy_counters:add(State#state.numbers, queue_total, 1),
            waiting(gb_trees:insert(Turn, {From, Key, Timer}, Waiting), State);
        false ->
            gen_server:reply(From, {error, queue_full}),
            State
    end.

waiting(Waiting, State = #state{numbers = Numbers, waiting = Before}) ->
    _ = weir_proxy_counters:add(Numbers, queue_current, gb_trees:size(Waiting) - gb_trees:size(Before)),
    State#state{waiting = Waiting}.

%% Gives free places to waiting connections. A place that becomes free later is announced by a `freed' message.
serve(State = #state{waiting = Waiting, balancer = Balancer}) ->
    case gb_trees:is_empty(Waiting) of
        true ->
            State;
        false ->
            {_Turn, {From = {Pid, _}, Key, Timer}, Others} = gb_trees:take_smallest(Waiting),
            case not is_process_alive(Pid) orelse weir_proxy_balancer:take(Balancer, Key, []) of
                true ->
                    _ = erlang:cancel_timer(Timer),
                    serve(waiting(Others, State));
                {ok, Server} ->
                    _ = erlang:cancel_timer(Timer),
                    ok = give(Server, From),
                    serve(waiting(Others, State));
                _ ->
                    State
            end
    end.

give(Server = #server{numbers = Numbers}, From = {Pid, _}) ->
    case weir_proxy_admissions:placed(Pid, Numbers) of
        true -> gen_server:reply(From, {ok, Server});
        false -> weir_proxy_counters:ended(Numbers, 0, 0)
    end.

%%% Checks.

check_all(State = #state{checks = Checks, members = Members, config = #{health := Health, agent := Agent}}) ->
    Places = [
        {weir_proxy_server:name(Member), Address}
     || Member <- Members, Address <- [weir_proxy_server:checked_at(Member)], Address =/= none
    ],
    Wanted =
        [{Name, {Address, Health}} || Health =/= off, {Name, Address} <- Places] ++
            %% Unix sockets have no port for an agent.
            [{{agent, Name}, {Address, Agent}} || Agent =/= off, {Name, Address = {Host, _}} <- Places, Host =/= local],
    State#state{checks = weir_proxy_check:adjust(Checks, maps:from_list(Wanted))}.

%% An agent that does not answer, or not in a known way, changes nothing.
checked({agent, _Name}, {error, _}, _Took, State) ->
    State;
checked({agent, Name}, {ok, Answer}, _Took, State) ->
    changed(Name, fun(Member) -> weir_proxy_server:advised(Answer, now_ms(), Member) end, State);
checked(Name, Result, Took, State) ->
    changed(Name, fun(Member) -> weir_proxy_server:checked(Result, Took, now_ms(), Member) end, State).

changed(Name, Change, State = #state{members = Members, config = #{on_down := OnDown}}) ->
    case [Member || Member <- Members, weir_proxy_server:name(Member) =:= Name] of
        [] ->
            State;
        [Member] ->
            {What, Changed} = Change(Member),
            Noted = put_member(Changed, State),
            case What of
                same ->
                    Noted;
                up ->
                    serve(publish(Noted));
                down ->
                    Published = publish(Noted),
                    _ =
                        OnDown =:= close andalso
                            weir_proxy_sessions:close(State#state.proxy, {server, State#state.name, Name}, down),
                    Published
            end
    end.
