%% @private
%% @doc The process of a listener: owns the listening sockets, and keeps a worker for each of them.
%%
%% Connections do not depend on it. It may die at any time: its sockets close, but not its connections. Its successor
%% continues with the same native part (see {@link weir_listener_names}), the same port, and the options that the
%% listener had last.
%%
%% In a user's own supervisor it may outlive Weir. When Weir is stopped it closes its sockets, and opens them again
%% when {@link weir_listener_names} is back.
-module(weir_listener_process).
-behaviour(gen_server).

-export([start_link/2]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).
-export([terminate/2]).

%% Pause after the system has run out of descriptors: others have to close some first.
-define(RETRY_MS, 100).

%% Pause before another try to use all online schedulers; the listener serves in the meantime.
-define(FOLLOW_AGAIN_MS, 1000).

%% Interval between checks whether Weir is running again.
-define(AWAIT_WEIR_MS, 100).

-record(state, {
    name :: weir_listener:name(),
    options :: weir_listener_options:normal(),
    started_with :: weir_listener_options:given(),
    listener :: weir_nif:listener(),
    terms :: weir_connection:terms(),
    workers :: weir_listener_workers:workers(),
    sockets = [] :: [weir_tcp:socket()],
    %% How many pollsets share the sockets.
    online = 1 :: pos_integer(),
    %% The port of the sockets, also kept while the listener is suspended.
    port :: inet:port_number() | undefined,
    %% A monitor of weir_listener_names, which lives as long as Weir. While Weir is stopped: what to do when it is
    %% back.
    names :: reference() | resume | go_on,
    ranch = none :: weir_ranch:bridge(),
    exhausted = false :: boolean(),
    loads = #{} :: weir_balancer:loads()
}).

%% @doc Starts the process of a listener. A failure to listen is returned as an error, without a crash report.
-spec start_link(weir_listener:name(), weir_listener_options:normal()) -> {ok, pid()} | {error, term()}.
start_link(Name, Options) ->
    try gen_server:start_link({via, weir_listener_names, Name}, ?MODULE, {Name, Options}, []) of
        {error, {shutdown, Reason}} -> {error, Reason};
        Result -> Result
    catch
        exit:{noproc, _} -> {error, {not_started, weir}}
    end.

-spec init({weir_listener:name(), weir_listener_options:normal()}) -> {ok, #state{}} | {stop, term()}.
init({Name, Given}) ->
    process_flag(trap_exit, true),
    {Listener, Options, Terms, Where} = begin_with(Name, Given),
    ok = weir_nif:listener_set_version(Listener, weir_connection:version(Terms)),
    State = #state{
        name = Name,
        options = Options,
        started_with = maps:get(given, Given),
        listener = Listener,
        terms = Terms,
        workers = weir_listener_workers:new(Terms, Options, none, Listener),
        port = element(2, Where),
        names = monitor(process, weir_listener_names)
    },
    case listen(Where, State) of
        {ok, Listening} ->
            ok = weir_nif:listener_own(Listener),
            _ = monitor(process, weir_engine),
            event(start, Listening),
            balance_later(Options),
            Known = #state{ranch = Bridge} = join_ranch(Listening),
            {ok, start_workers(Known#state{workers = weir_listener_workers:new(Terms, Options, Bridge, Listener)})};
        {error, Reason} ->
            {stop, {shutdown, Reason}}
    end.

%% A listener that died and is started with the same arguments continues with its native part and its last options.
%% With other arguments it continues with the native part and the new options.
begin_with(Name, Given = #{given := How, port := Port}) ->
    case weir_listener_names:kept(Name) of
        {ok, #{listener := Listener, port := Kept, started_with := How, options := Changed, terms := Terms}} ->
            {Listener, Changed, Terms, {share, Kept}};
        {ok, #{listener := Listener, port := Kept, terms := Terms}} ->
            ok = weir_nif:listener_set_limits(Listener, limits(Given)),
            {Listener, Given, weir_connection:change(Given, Terms), {share, Kept}};
        error ->
            Listener = weir_nif:listener_new(length(weir_pollsets:all()), limits(Given)),
            {Listener, Given, weir_connection:terms(Name, Given), {how(Given), Port}}
    end.

how(#{shared := true}) -> share;
how(#{shared := false}) -> claim.

limits(Options) ->
    maps:with([max_connections, overload, max_rate, per_address, allow, deny, placement, affinity, measure], Options).

listen(Where, State = #state{options = Options, listener = Listener, workers = Workers}) ->
    Online = length(weir_pollsets:online()),
    case weir_listener_sockets:open(Options, Where, Online) of
        {ok, Sockets} ->
            case weir_listener_sockets:attach(Sockets, Listener, Options, Online) of
                ok ->
                    Listening = State#state{
                        sockets = Sockets, online = Online, port = weir_listener_sockets:port(Sockets)
                    },
                    ok = keep(Listening),
                    ok = weir_listener_workers:listen(Online, Sockets, Workers),
                    {ok, Listening};
                {error, _} = Error ->
                    ok = weir_listener_sockets:close(Sockets),
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

keep(#state{name = Name, options = Options, started_with = How, listener = Listener, terms = Terms, port = Port}) ->
    weir_listener_names:keep(Name, #{
        listener => Listener, port => Port, started_with => How, options => Options, terms => Terms
    }).

start_workers(State = #state{workers = Workers, sockets = Sockets, online = Online}) ->
    State#state{workers = weir_listener_workers:start(Online, Sockets, Workers)}.

%% Protocols written for ranch may call ranch about their listener.
join_ranch(
    State = #state{ranch = none, name = Name, options = Options = #{handler := {protocol, _}}, sockets = Sockets}
) ->
    State#state{ranch = weir_ranch:join(Name, Options, Sockets)};
join_ranch(State = #state{ranch = Bridge, name = Name, options = #{handler := {Kind, _}}}) when Kind =/= protocol ->
    ok = weir_ranch:leave(Name, Bridge),
    State#state{ranch = none};
join_ranch(State) ->
    State.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(listener, _From, State = #state{listener = Listener}) ->
    {reply, {ok, Listener}, State};
handle_call(port, _From, State = #state{port = Port}) ->
    {reply, Port, State};
handle_call(
    info, _From, State = #state{name = Name, options = Options, listener = Listener, port = Port, terms = Terms}
) ->
    Known = maps:with([ip, handler], Options),
    About = Known#{
        name => Name,
        pid => self(),
        port => Port,
        status => status(State),
        failed_handshakes => weir_handshake:failed(weir_connection:handshakes(Terms))
    },
    {reply, maps:merge(weir_nif:listener_info(Listener), About), State};
handle_call({set_options, Changes}, _From, State = #state{name = Name, options = Old}) ->
    case change(Changes, State) of
        {ok, Changed = #state{options = New, ranch = Bridge}} ->
            ok = weir_ranch:changed(Name, Old, New, Bridge),
            {reply, ok, Changed};
        {error, _} = Error ->
            {reply, Error, State}
    end;
handle_call({set_options_of_ranch, Changes}, _From, State) ->
    case change(Changes, State) of
        {ok, Changed} -> {reply, ok, Changed};
        {error, _} = Error -> {reply, Error, State}
    end;
handle_call(options, _From, State = #state{options = Options}) ->
    {reply, Options, State};
handle_call(which_children, _From, State = #state{workers = Workers}) ->
    {reply, weir_listener_workers:children(Workers), State};
handle_call(close_backlog, _From, State = #state{sockets = Sockets, options = Options}) ->
    {reply, weir_listener_sockets:close_backlog(Options, Sockets), State};
handle_call(has_backlog, _From, State = #state{sockets = Sockets}) ->
    {reply, weir_listener_sockets:has_backlog(Sockets), State};
handle_call(suspend, _From, State = #state{sockets = []}) ->
    {reply, ok, State};
handle_call(suspend, _From, State) ->
    Suspended = close(State),
    event(suspend, Suspended),
    {reply, ok, Suspended};
handle_call(resume, _From, State = #state{sockets = []}) ->
    case resume(State) of
        {ok, Listening} -> {reply, ok, Listening};
        {error, _} = Error -> {reply, Error, State}
    end;
handle_call(resume, _From, State) ->
    {reply, ok, State};
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

close(State = #state{sockets = Sockets}) ->
    ok = weir_listener_sockets:close(Sockets),
    State#state{sockets = []}.

resume(State = #state{port = Port, options = Options}) ->
    case listen({how(Options), Port}, State) of
        {ok, Listening} ->
            event(resume, Listening),
            {ok, Listening};
        {error, _} = Error ->
            Error
    end.

status(#state{sockets = []}) -> suspended;
status(_) -> running.

%% Only the sockets can refuse checked options.
change(Changes, State = #state{options = Old, sockets = Sockets}) ->
    case weir_listener_options:change(Changes, Old) of
        {ok, Old} ->
            {ok, State};
        {ok, Options} ->
            case weir_listener_sockets:change(Old, Options, Sockets) of
                ok -> {ok, changed(Options, State)};
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

changed(
    Options, State = #state{options = Old, listener = Listener, sockets = Sockets, workers = Workers, terms = Terms}
) ->
    #state{online = Online} = State,
    ok = weir_listener_sockets:attach(Sockets, Listener, Options, Online),
    ok = weir_nif:listener_set_limits(Listener, limits(Options)),
    NewTerms = weir_connection:change(Options, Terms),
    Known = #state{ranch = Bridge} = join_ranch(State#state{options = Options, terms = NewTerms}),
    Changed = Known#state{workers = weir_listener_workers:change(NewTerms, Options, Bridge, Workers)},
    ok = keep(Changed),
    %% All acceptors were sent the new options. From here on no connection begins with the old ones, not even one
    %% whose process was started with them.
    ok = weir_nif:listener_set_version(Listener, weir_connection:version(NewTerms)),
    balance_anew(Old, Options),
    Changed.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({weir_listener, throttled, Milliseconds}, State) ->
    _ = erlang:send_after(Milliseconds, self(), retry),
    {noreply, State};
handle_info({weir_listener, exhausted, Reason}, State) ->
    _ = erlang:send_after(?RETRY_MS, self(), retry),
    {noreply, exhausted(Reason, State)};
handle_info({weir_listener, recovered}, State) ->
    event(recover, State),
    {noreply, State#state{exhausted = false}};
handle_info(retry, State = #state{listener = Listener}) ->
    ok = weir_nif:listener_retry(Listener),
    {noreply, State};
handle_info(balance, State = #state{options = Options}) ->
    balance_later(Options),
    {noreply, balance(State)};
%% The engine's end closes all sockets. A successor starts the listener again.
handle_info({'DOWN', _, process, {weir_engine, _}, _}, State) ->
    {stop, {shutdown, engine_ended}, State};
handle_info(renew_workers, State = #state{workers = Workers, options = #{handler := {Kind, _}}}) ->
    %% An unknown message makes an acceptor loop in the current code.
    _ = [Pid ! renew || Kind =/= reactor, Pid <- weir_listener_workers:acceptors(Workers)],
    {noreply, State};
handle_info(pollers_moved, State) ->
    {noreply, follow(State)};
handle_info({start_worker, Pollset}, State = #state{names = Names, workers = Workers, sockets = Sockets}) when
    is_reference(Names)
->
    {noreply, State#state{workers = weir_listener_workers:restart(Pollset, Sockets, Workers)}};
handle_info({'EXIT', Bridge, _Reason}, State = #state{ranch = Bridge}) ->
    {noreply, State#state{ranch = none}};
handle_info({'EXIT', Pid, Reason}, State = #state{workers = Workers}) ->
    {noreply, State#state{workers = weir_listener_workers:died(Pid, Reason, Workers)}};
handle_info({'DOWN', Names, process, _, _}, State = #state{names = Names, sockets = Sockets}) ->
    %% If Weir is stopped nothing polls the sockets. If only the registry died, it is enough to find the next one.
    await_weir(),
    case weir_listener_names:whereis_name(State#state.name) of
        undefined when Sockets =/= [] -> {noreply, (close(State))#state{names = resume}};
        _ -> {noreply, State#state{names = go_on}}
    end;
handle_info(look_for_weir, State) ->
    come_back(whereis(weir_listener_names), State);
handle_info(_Message, State) ->
    {noreply, State}.

%% The number of online schedulers has changed. New ones get a socket and a worker. The backlogs of those gone are
%% served by others.
follow(State = #state{sockets = []}) ->
    start_workers(State#state{online = length(weir_pollsets:online())});
follow(State = #state{options = Options, sockets = Before, listener = Listener}) ->
    Online = length(weir_pollsets:online()),
    {Result, Sockets} = weir_listener_sockets:follow(Before, Listener, Options, Online),
    ok = follow_again(Result, State),
    Following = #state{workers = Workers} = start_workers(State#state{sockets = Sockets, online = Online}),
    ok = weir_listener_workers:listen(Online, Sockets, Workers),
    Following.

follow_again(ok, _State) ->
    ok;
follow_again({error, Reason}, #state{name = Name}) ->
    _ = erlang:send_after(?FOLLOW_AGAIN_MS, self(), pollers_moved),
    weir_reports:log(warning, #{
        what => "a listener cannot use all online schedulers; it will try again", listener => Name, reason => Reason
    }).

exhausted(_Reason, State = #state{exhausted = true}) ->
    State;
exhausted(Reason, State = #state{name = Name}) ->
    ok = weir_reports:log(warning, #{
        what => "a listener cannot accept connections; they wait in the backlog", listener => Name, reason => Reason
    }),
    weir_event:execute([weir, listener, exhausted], #{count => 1}, #{name => Name, reason => Reason}),
    State#state{exhausted = true}.

%%% Weir is stopped and started again.

await_weir() ->
    _ = erlang:send_after(?AWAIT_WEIR_MS, self(), look_for_weir),
    ok.

come_back(undefined, State) ->
    await_weir(),
    {noreply, State};
come_back(Names, State = #state{name = Name, names = Before}) ->
    Known = State#state{names = monitor(process, Names)},
    case weir_listener_names:register_name(Name, self()) of
        no ->
            {stop, {shutdown, {already_started, weir_listener_names:whereis_name(Name)}}, Known};
        yes ->
            come_back_as(Before, is_open(Known), Known)
    end.

come_back_as(go_on, true, State) ->
    ok = keep(State),
    {noreply, start_workers(State)};
come_back_as(_Before, _IsOpen, State) ->
    case resume(State) of
        {ok, Listening} -> {noreply, start_workers(Listening)};
        {error, Reason} -> {stop, {shutdown, Reason}, State}
    end.

%% Stopping Weir closes the sockets of a running listener; a suspended one has none.
is_open(#state{sockets = []}) -> true;
is_open(#state{sockets = [{_, _, Handle} | _]}) -> weir_nif:info(Handle) =/= {error, closed}.

%%% Termination.

%% Ends the connections within their time limit; the supervisor waits for it.
-spec terminate(term(), #state{}) -> ok.
terminate(
    _Reason, State = #state{name = Name, options = Options, listener = Listener, workers = Workers, ranch = Bridge}
) ->
    Closed = close(State),
    ok = weir_ranch:leave(Name, Bridge),
    ok = weir_shutdown:processes(weir_listener_workers:acceptors(Workers), worker_shutdown(Options)),
    ok = weir_nif:listener_clear(Listener),
    ok = weir_listener_connections:stop(Listener, maps:get(shutdown, Options)),
    ok = weir_listener_names:forget(Name),
    event(stop, Closed).

%% A reactor's end is that of its connections, and its callback may not return.
worker_shutdown(#{handler := {reactor, _}, shutdown := Shutdown}) -> Shutdown;
worker_shutdown(_Options) -> infinity.

event(What, State = #state{name = Name, port = Port, listener = Listener}) ->
    Event = [weir, listener, What],
    case weir_event:is_attached(Event) of
        true ->
            Measurements = maps:with([connections, accepted], weir_nif:listener_info(Listener)),
            weir_event:execute(Event, Measurements, #{name => Name, port => Port, status => status(State)});
        false ->
            ok
    end.

%%% Balancing.

%% A running timer takes the new interval with its next round.
balance_anew(#{balance := off}, Options) -> balance_later(Options);
balance_anew(_Old, _Options) -> ok.

balance_later(#{balance := off}) ->
    ok;
balance_later(#{balance := #{interval := Interval}}) ->
    _ = erlang:send_after(Interval, self(), balance),
    ok.

balance(State = #state{options = #{balance := off}}) ->
    State;
balance(
    State = #state{
        options = #{balance := #{threshold := Threshold}}, listener = Listener, online = Online, loads = Before
    }
) ->
    Now = maps:from_list([{Pollset, maps:get(events, weir_nif:counters(Pollset))} || Pollset <- lists:seq(1, Online)]),
    Connections = [{Pollset, Handle} || {Handle, _, Pollset} <- weir_listener_connections:all(Listener)],
    Moves = weir_balancer:moves(weir_balancer:since(Before, Now), Threshold, Connections),
    lists:foreach(fun({Handle, To}) -> weir_nif:move(Handle, To) end, Moves),
    State#state{loads = Now}.
