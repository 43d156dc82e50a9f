%% @private
%% @doc The process of a proxy. It starts, changes and stops listeners and backends as the configuration says.
-module(weir_proxy_instance).
-behaviour(gen_server).

-include("weir_proxy.hrl").

-export([start_link/2]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).
-export([terminate/2]).

-record(state, {
    name :: term(),
    config :: weir_proxy_config:config() | none,
    %% The frontend of each address that has a listener. `none': the address was removed, and its last connections
    %% still run.
    listeners = #{} :: #{weir_proxy_address:endpoint() => binary() | none},
    %% The timers of removed addresses and frontends. One that a later configuration has again loses its timer.
    leaving = #{} :: #{leaving() => reference()},
    %% Callers that wait for a take-over; `left' after it.
    waiting = [] :: [gen_server:from()] | left
}).

-type leaving() :: {leave, weir_proxy_address:endpoint()} | {withdraw, Frontend :: binary()}.

%% A removed address or frontend is stopped after this time if no connection needs it any more. Otherwise it is checked
%% again after the same time.
-define(LEAVING_MS, 60_000).

%% Interval of attempts to open the access log or the control socket again.
-define(AGAIN_MS, 1000).

%% How long a failed take-over serves the connections that it has accepted.
-define(HAND_BACK_MS, 30_000).

-spec start_link(term(), {start | take_over, weir_proxy_config:config()}) -> {ok, pid()} | {error, term()}.
start_link(Name, Given) -> gen_server:start_link(?MODULE, {Name, Given}, []).

-spec init({term(), {start | take_over, weir_proxy_config:config()}}) -> {ok, #state{}} | {stop, term()}.
init({Name, {Given, Wanted}}) ->
    process_flag(trap_exit, true),
    {How, Config, Begin} =
        case weir_proxy_store:saved({proxy, Name}) of
            %% The process before was killed. If that was in the middle of a change, there may be more listeners than
            %% it had saved.
            {ok, {_Pid, Saved = #{frontends := Frontends}, Known}} ->
                Opened = maps:from_list([{Endpoint, none} || Endpoint <- weir_proxy_listeners:all(Name)]),
                ok = weir_proxy_listeners:suspend(Name, maps:keys(maps:without(maps:keys(Known), Opened))),
                There = maps:merge(Opened, Known),
                Left =
                    [{leave, Endpoint} || {Endpoint, none} <- maps:to_list(There)] ++
                        [
                            {withdraw, Frontend}
                         || Frontend <- weir_proxy_store:frontends(Name), not is_map_key(Frontend, Frontends)
                        ],
                {start, Saved, #state{name = Name, config = none, listeners = There, leaving = leave_later(Left)}};
            none ->
                %% Clean up after a start that was cut short.
                ok = clear(Name),
                {Given, Wanted, #state{name = Name, config = none}}
        end,
    case apply_config(How, Config, Begin) of
        {ok, State} -> {ok, State};
        {error, Reason} -> {stop, {shutdown, Reason}}
    end.

-spec handle_call(term(), gen_server:from(), #state{}) ->
    {reply, term(), #state{}} | {noreply, #state{}} | {stop, normal, ok, #state{}}.
handle_call({change, Read}, _From, State) ->
    case change(Read(), State) of
        {ok, Changed} -> {reply, ok, Changed};
        {error, _} = Error -> {reply, Error, State}
    end;
handle_call(info, _From, State) ->
    {reply, {ok, info(State)}, State};
handle_call(suspend, _From, State) ->
    ok = weir_proxy_listeners:suspend(State#state.name, maps:keys(State#state.listeners)),
    {reply, ok, State};
handle_call(
    leave, _From, State = #state{name = Name, config = #{control := Control, statistics := Page}, waiting = Waiting}
) ->
    _ = weir_proxy_page:adjust(Name, Page, off, false),
    ok = weir_proxy_control:leave(Name, Control),
    ok = weir_proxy_listeners:suspend(Name, maps:keys(State#state.listeners)),
    _ = Waiting =/= left andalso [gen_server:reply(From, ok) || From <- Waiting],
    {reply, ok, State#state{waiting = left}};
handle_call(await_successor, _From, State = #state{waiting = left}) ->
    {reply, ok, State};
handle_call(await_successor, From, State = #state{waiting = Waiting}) ->
    {noreply, State#state{waiting = [From | Waiting]}};
handle_call(stop, _From, State) ->
    ok = close(State),
    {stop, normal, ok, State#state{config = none, listeners = #{}}}.

-spec handle_cast(term(), State) -> {noreply, State}.
handle_cast(_Message, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({timeout, Timer, What}, State = #state{leaving = Leaving}) ->
    case Leaving of
        #{What := Timer} -> {noreply, left(What, State#state{leaving = maps:remove(What, Leaving)})};
        %% The timer was cancelled when its message was already sent.
        #{} -> {noreply, State}
    end;
handle_info({'EXIT', Pid, Reason}, State = #state{name = Name}) ->
    case weir_proxy_store:saved({log, Name}) of
        {ok, {Pid, _, _}} ->
            ok = report(#{
                what => "the process of the access log has ended and is restarted", proxy => Name, reason => Reason
            }),
            handle_info(log_again, State);
        _ ->
            {noreply, State}
    end;
handle_info(log_again, State = #state{name = Name, config = #{log := Log}}) ->
    case weir_proxy_log:adjust(Name, Log) of
        ok ->
            ok;
        {error, Reason} ->
            _ = erlang:send_after(?AGAIN_MS, self(), log_again),
            report(#{what => "cannot write the access log; trying again in 1 second", proxy => Name, reason => Reason})
    end,
    {noreply, State};
%% Another program has taken over the path.
handle_info(control_again, State = #state{waiting = left}) ->
    {noreply, State};
handle_info(control_again, State = #state{name = Name, config = #{control := Control}}) ->
    ok = open_control(Name, Control),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

left(What = {leave, Endpoint}, State = #state{name = Name, listeners = Listeners, leaving = Leaving}) ->
    case weir_proxy_listeners:connections(Name, Endpoint) of
        0 ->
            ok = weir_proxy_listeners:stop(Name, [Endpoint]),
            save(State#state{listeners = maps:remove(Endpoint, Listeners)});
        %% Stopping the listener would close its connections.
        _ ->
            State#state{leaving = maps:merge(Leaving, leave_later([What]))}
    end;
left(What = {withdraw, Frontend}, State = #state{name = Name, leaving = Leaving}) ->
    case weir_proxy_store:frontend(Name, Frontend) of
        #frontend{numbers = Numbers} ->
            case weir_proxy_admissions:is_used(Numbers) of
                true ->
                    State#state{leaving = maps:merge(Leaving, leave_later([What]))};
                false ->
                    ok = weir_proxy_store:withdraw(?FRONTEND(Name, Frontend)),
                    ok = stop_others(Name, State#state.listeners, State#state.config),
                    State
            end;
        undefined ->
            State
    end.

report(Report) -> weir_reports:say(fun() -> weir_reports:log(error, Report) end).

-spec terminate(term(), #state{}) -> ok.
terminate(shutdown, State) -> close(State);
%% Listeners and backends stay for the successor.
terminate(_Reason, _State) -> ok.

close(#state{config = none}) ->
    ok;
close(State = #state{name = Name}) ->
    ok = clear(Name),
    _ = weir_proxy_sessions:close(Name, all, operator),
    #{control := Control, statistics := Page} = State#state.config,
    _ = weir_proxy_control:adjust(Name, Control, off),
    _ = weir_proxy_page:adjust(Name, Page, off, false),
    _ = weir_proxy_log:adjust(Name, off),
    ok = weir_proxy_store:forget({file, Name}),
    weir_proxy_store:forget({proxy, Name}).

clear(Name) ->
    ok = weir_proxy_listeners:stop(Name, weir_proxy_listeners:all(Name)),
    lists:foreach(
        fun(Frontend) -> weir_proxy_store:withdraw(?FRONTEND(Name, Frontend)) end, weir_proxy_store:frontends(Name)
    ),
    lists:foreach(fun(Backend) -> stop_backend(Name, Backend) end, weir_proxy_store:backends(Name)).

%%% From one configuration to the next. The steps that may fail come first, and are undone if one fails.

change({ok, Config}, State) -> apply_config(start, Config, State);
change({error, _} = Error, _State) -> Error.

apply_config(How, Config, State = #state{name = Name, config = Before}) ->
    #{backends := Backends, frontends := Frontends, log := Log, control := Control, statistics := Page} = Config,
    #{log := OldLog, control := OldControl, statistics := OldPage} = served(Before),
    IsShared = How =:= take_over,
    Old = configured(backends, Before),
    OldFrontends = configured(frontends, Before),
    New = [Backend || Backend <- maps:keys(Backends), weir_proxy_store:backend(Name, Backend) =:= undefined],
    lists:foreach(
        fun(Backend) -> {ok, _} = weir_proxy_sup:start_backend(Name, {Backend, maps:get(Backend, Backends)}) end, New
    ),
    NewFrontends = maps:keys(maps:without(maps:keys(OldFrontends), Frontends)),
    ok = publish(Name, maps:with(NewFrontends, Frontends)),
    Wanted = maps:from_list([
        {Endpoint, Frontend}
     || {Frontend, #{listen := Listen}} <- maps:to_list(Frontends), Endpoint <- Listen
    ]),
    Opening = maps:to_list(maps:without(maps:keys(State#state.listeners), Wanted)),
    Paths = [Path || IsShared, {{local, Path}, _} <- Opening],
    Resuming = [
        {Endpoint, Frontend}
     || {Endpoint, none} <- maps:to_list(State#state.listeners), #{Endpoint := Frontend} <- [Wanted]
    ],
    Entrances = entrances(Name, Resuming),
    case
        in_turn([
            fun() -> weir_proxy_log:adjust(Name, Log) end,
            fun() -> weir_proxy_page:adjust(Name, OldPage, Page, IsShared) end,
            fun() -> weir_proxy_paths:keep(Paths) end,
            %% From here on the listeners accept clients.
            fun() -> weir_proxy_listeners:open(Name, Opening, IsShared, Frontends) end,
            fun() -> weir_proxy_listeners:resume(Name, Resuming, Frontends) end,
            fun() -> take_over(How, Name, OldControl, Control) end
        ])
    of
        {error, _} = Error ->
            %% Restore what was there before.
            ok = weir_proxy_paths:give_back(Paths),
            ok = hand_back(How, Name, [Endpoint || {Endpoint, _} <- Opening]),
            _ = weir_proxy_log:adjust(Name, OldLog),
            _ = weir_proxy_page:adjust(Name, Page, OldPage, IsShared),
            ok = weir_proxy_listeners:stop(Name, [Endpoint || {Endpoint, _} <- Opening]),
            ok = weir_proxy_listeners:suspend(Name, [Endpoint || {Endpoint, _} <- Resuming]),
            lists:foreach(fun({Entrance, Was}) -> weir_proxy_store:save(Entrance, Was) end, Entrances),
            lists:foreach(fun(Frontend) -> weir_proxy_store:withdraw(?FRONTEND(Name, Frontend)) end, NewFrontends),
            lists:foreach(fun(Backend) -> stop_backend(Name, Backend) end, New),
            Error;
        ok ->
            ok = weir_proxy_paths:forget(Paths),
            %% If this process is killed from here on, its successor does the rest.
            _ = save(State#state{config = Config, listeners = maps:merge(Wanted, State#state.listeners)}),
            ok = change_backends(Name, maps:without(New, other(Backends, Old))),
            ok = publish(Name, other(Frontends, OldFrontends)),
            Kept = adjust(Wanted, Config, State),
            Listeners = maps:merge(Kept, Wanted),
            ok = stop_others(Name, Listeners, Config),
            {ok,
                save(State#state{
                    config = Config, listeners = Listeners, leaving = leaving(Listeners, Config, OldFrontends, State)
                })}
    end.

configured(_Kind, none) -> #{};
configured(Kind, Config) -> maps:get(Kind, Config).

entrances(Name, Resuming) ->
    [
        {Entrance, Was}
     || {Endpoint, _} <- Resuming,
        Entrance <- [{entrance, Name, Endpoint}],
        {ok, Was} <- [weir_proxy_store:saved(Entrance)]
    ].

change_backends(Name, Changed) ->
    lists:foreach(
        fun({Backend, Config}) -> ok = weir_proxy_backend:change(Name, Backend, Config) end, maps:to_list(Changed)
    ).

%% The timers of what this configuration has removed. Frontends stay published for a while, because connections that
%% were just accepted look them up by name.
leaving(Listeners, #{frontends := Frontends}, OldFrontends, #state{leaving = Before}) ->
    Wanted = [{leave, Endpoint} || {Endpoint, none} <- maps:to_list(Listeners)] ++
        [{withdraw, Frontend} || Frontend <- maps:keys(OldFrontends), not is_map_key(Frontend, Frontends)],
    %% Frontends that an earlier change removed are not in OldFrontends.
    Back = [What || What <- maps:keys(Before), is_back(What, Listeners, Frontends)],
    _ = [erlang:cancel_timer(Timer) || Timer <- maps:values(maps:with(Back, Before))],
    Still = maps:without(Back, Before),
    maps:merge(Still, leave_later([What || What <- Wanted, not is_map_key(What, Still)])).

is_back({leave, Endpoint}, Listeners, _Frontends) -> maps:get(Endpoint, Listeners) =/= none;
is_back({withdraw, Frontend}, _Listeners, Frontends) -> is_map_key(Frontend, Frontends).

-spec leave_later([leaving()]) -> #{leaving() => reference()}.
leave_later(Left) -> maps:from_list([{What, erlang:start_timer(?LEAVING_MS, self(), What)} || What <- Left]).

take_over(start, Name, Before, Control) ->
    weir_proxy_control:adjust(Name, Before, Control);
take_over(take_over, Name, off, Control) ->
    case weir_proxy_control:take_over(Control) of
        %% The other program accepts no more connections: from here on nothing may fail.
        ok -> open_control(Name, Control);
        {error, _} = Error -> Error
    end.

open_control(Name, Control) ->
    case weir_proxy_control:adjust(Name, off, Control) of
        ok ->
            ok;
        {error, Reason} ->
            _ = erlang:send_after(?AGAIN_MS, self(), control_again),
            report(#{
                what => "cannot open the control socket; trying again in 1 second", proxy => Name, reason => Reason
            })
    end.

%% The other program goes on. Connections that were accepted here are served for at most ?HAND_BACK_MS.
hand_back(start, _Name, _Endpoints) ->
    ok;
hand_back(take_over, Name, Endpoints) ->
    %% Only open listeners: otherwise the drain would hit the next listener of that name.
    ok = weir_proxy_listeners:suspend(Name, [
        Endpoint
     || Endpoint <- Endpoints, weir_proxy_listeners:is_there(Name, Endpoint)
    ]),
    _ = weir_proxy_listeners:await_end(Name, erlang:monotonic_time(millisecond) + ?HAND_BACK_MS),
    ok.

in_turn([]) -> ok;
in_turn([Step | Steps]) ->
    case Step() of
        ok -> in_turn(Steps);
        {error, _} = Error -> Error
    end.

served(none) -> #{log => off, control => off, statistics => off};
served(Config) -> Config.

save(State = #state{name = Name, config = Config, listeners = Listeners}) ->
    ok = weir_proxy_store:save({proxy, Name}, {self(), Config, Listeners}),
    State.

publish(Name, Frontends) ->
    lists:foreach(
        fun({Frontend, Config = #{rules := Rules, backend := Backend}}) ->
            Route = case Rules of [] -> {backend, Backend}; _ -> {rules, weir_proxy_rules:new(Rules, Backend)} end,
            Numbers =
                case weir_proxy_store:frontend(Name, Frontend) of
                    undefined -> weir_proxy_counters:new();
                    #frontend{numbers = Known} -> Known
                end,
            Version = erlang:unique_integer(),
            weir_proxy_store:publish(Name, #frontend{
                proxy = Name, name = Frontend, numbers = Numbers, route = Route, config = Config, version = Version
            })
        end,
        maps:to_list(Frontends)
    ).

%% Stops the backends that nothing needs. Removed frontends whose addresses still have connections need theirs.
stop_others(Name, Listeners, #{frontends := Frontends, backends := Backends}) ->
    Left = [
        Frontend
     || {Endpoint, none} <- maps:to_list(Listeners),
        Frontend <- [weir_proxy_store:entrance(Name, Endpoint)],
        Frontend =/= undefined,
        not is_map_key(Frontend#frontend.name, Frontends)
    ],
    Needed = lists:append([needed(Name, Config) || #frontend{config = Config} <- Left]),
    lists:foreach(
        fun(Backend) -> stop_backend(Name, Backend) end,
        weir_proxy_store:backends(Name) -- (Needed ++ maps:keys(Backends))
    ).

%% A module may choose any backend.
needed(Name, #{rules := Rules, backend := Backend}) ->
    case lists:any(fun weir_proxy_rules:has_module/1, Rules) of
        true -> weir_proxy_store:backends(Name);
        false -> [Backend | lists:append([weir_proxy_rules:backends(Rule) || Rule <- Rules])]
    end.

stop_backend(Proxy, Backend) ->
    case weir_proxy_store:backend(Proxy, Backend) of
        #backend{process = Pid, numbers = Numbers} ->
            ok = weir_proxy_sup:stop_child(weir_proxy_backends, Pid),
            ok = weir_proxy_store:withdraw(?BACKEND(Proxy, Backend)),
            %% The connections in its queue have gone elsewhere. With 0, sessions that end later do not notify a
            %% process that is gone.
            ok = weir_proxy_counters:clear(Numbers, queue_current),
            weir_proxy_sticks:forget(Numbers, all);
        undefined ->
            ok
    end,
    weir_proxy_store:forget({backend, Proxy, Backend}).

%% The entries that have changed. The others are left alone, so that a change costs only what it changes.
other(Configured, Before) -> maps:filter(fun(Name, Config) -> not is_same(Config, Name, Before) end, Configured).

is_same(Config, Name, Before) ->
    case Before of
        #{Name := Config} -> true;
        #{} -> false
    end.

%% Adjusts existing listeners: changes their options, or suspends them if they were removed.
adjust(Wanted, #{frontends := Frontends}, #state{name = Name, listeners = Listeners, config = Before}) ->
    Leaving = [Endpoint || {Endpoint, Was} <- maps:to_list(Listeners), Was =/= none, not is_map_key(Endpoint, Wanted)],
    ok = weir_proxy_listeners:suspend(Name, Leaving),
    maps:map(
        fun(Endpoint, Was) ->
            case Wanted of
                #{Endpoint := Frontend} ->
                    Config = maps:get(Frontend, Frontends),
                    %% A successor (Before is `none') does not know the listener's options, and sets them.
                    _ =
                        Before =/= none andalso Was =:= Frontend andalso
                            is_same(Config, Frontend, maps:get(frontends, Before)) orelse
                            weir_proxy_listeners:change(Name, Endpoint, Frontend, Config),
                    Frontend;
                #{} ->
                    none
            end
        end,
        Listeners
    ).

%%% Inspection.

info(#state{name = Name, config = #{frontends := Frontends, backends := Backends}, listeners = Listeners}) ->
    #{
        frontends => maps:map(fun(Frontend, _) -> frontend_info(Name, Frontend, Listeners) end, Frontends),
        backends => maps:map(fun(Backend, _) -> backend_info(Name, Backend) end, Backends),
        sessions => weir_proxy_sessions:count(Name),
        log_dropped => weir_proxy_log:dropped(Name)
    }.

frontend_info(Name, Frontend, Listeners) ->
    #frontend{numbers = Numbers} = weir_proxy_store:frontend(Name, Frontend),
    Endpoints = [Endpoint || {Endpoint, Of} <- maps:to_list(Listeners), Of =:= Frontend],
    Counted = maps:merge(weir_proxy_counters:to_map(Numbers), weir_proxy_listeners:refused(Name, Endpoints)),
    Counted#{listen => lists:sort([weir_proxy_listeners:bound(Name, Endpoint) || Endpoint <- Endpoints])}.

backend_info(Name, Backend) ->
    #backend{numbers = Numbers} = weir_proxy_store:backend(Name, Backend),
    (weir_proxy_counters:to_map(Numbers))#{servers => weir_proxy_backend:servers(Name, Backend)}.
