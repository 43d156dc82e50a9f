%% @private
%% @doc A listener: the process that has the listening sockets, and sees to it that each has an acceptor or a reactor,
%% which are called its workers.
%%
%% Connections need nothing of it. It may die at any time: its sockets close, those of its connections do not, and its
%% successor goes on with the same gate (see {@link weir_listener_names}) on the same port.
-module(weir_listener).
-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start/4]).
-export([child_spec/4]).
-export([start_link/2]).
-export([stop/1]).
-export([suspend/1]).
-export([resume/1]).
-export([drain/2]).
-export([names/0]).
-export([info/1]).
-export([connections/1]).
-export([set_max_connections/2]).
-export([port/1]).
-export([pollers_moved/0]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).
-export([terminate/2]).

-export_type([name/0, connection/0, info/0]).

-type name() :: term().

-type connection() :: weir_tcp:socket() | ssl:sslsocket().
%% What a handler gets.

-type info() :: #{
    name := name(),
    pid := pid(),
    status := running | suspended,
    ip := weir_address:address(),
    port := inet:port_number() | undefined,
    handler := {function, fun((_, _) -> term())} | {protocol | reactor, module()},
    connections := non_neg_integer(),
    waiting := non_neg_integer(),
    max_connections := non_neg_integer() | infinity,
    accepted := non_neg_integer(),
    overload := non_neg_integer(),
    denied := non_neg_integer(),
    crowded := non_neg_integer(),
    full_pauses := non_neg_integer(),
    rate_pauses := non_neg_integer()
}.
%% `connections' are those that are accepted and not closed; `waiting', those among them that no process has yet. Since
%% the start of the listener, `accepted' came in; of those that were reset, `overload' were beyond `max_connections',
%% `denied' were not allowed, and `crowded' had enough connections from their address; `full_pauses' and `rate_pauses' are
%% how often `max_connections' and `max_rate' have stopped accepting.

%% How long to wait when the system gives no descriptor: others have to close some first.
-define(RETRY_MS, 100).

%% A worker that lived shorter than this is not replaced at once, lest a fault becomes a storm.
-define(SHORT_LIFE_MS, 50).

%% How often drain looks.
-define(DRAIN_MS, 20).

-record(worker, {pid :: pid(), home :: weir_pollsets:home(), born :: integer()}).

-record(state, {
    name :: name(),
    options :: weir_listener_options:normal(),
    gate :: weir_nif:gate(),
    sockets = [] :: [weir_tcp:socket()],
    %% That of the sockets, while there are any and after: it is kept for when the listener resumes.
    port :: inet:port_number() | undefined,
    workers = #{} :: #{weir_nif:pollset() => #worker{}},
    %% Acceptors that were replaced, and still have connections.
    retired = [] :: [pid()],
    exhausted = false :: boolean(),
    loads = #{} :: weir_balancer:loads()
}).

%% @doc See `weir:start_listener/4'.
-spec start(name(), weir_listener_options:options(), weir_listener_options:handler(), term()) ->
    {ok, pid()} | {error, term()}.
start(Name, Options, Handler, Args) ->
    case weir_pollsets:ensure_started() of
        ok -> start_native(weir_nif:available(), Name, Options, Handler, Args);
        {error, Reason} -> {error, {weir_not_started, Reason}}
    end.

start_native(false, _Name, _Options, _Handler, _Args) ->
    {error, {no_native_part, weir_nif:load_error()}};
start_native(true, Name, Options, Handler, Args) ->
    case weir_listener_options:new(Options, Handler, Args) of
        {ok, Normal} -> weir_listener_sup:start_listener(spec(Name, Normal));
        {error, _} = Error -> Error
    end.

%% @doc See `weir:child_spec/4'.
-spec child_spec(name(), weir_listener_options:options(), weir_listener_options:handler(), term()) ->
    supervisor:child_spec().
child_spec(Name, Options, Handler, Args) ->
    case weir_listener_options:new(Options, Handler, Args) of
        {ok, Normal} -> spec(Name, Normal);
        {error, Bad} -> error(Bad)
    end.

%% Connections have their own limit of time in terminate/2.
spec(Name, Options) ->
    #{id => {?MODULE, Name}, start => {?MODULE, start_link, [Name, Options]}, shutdown => infinity}.

-spec start_link(name(), weir_listener_options:normal()) -> {ok, pid()} | {error, term()}.
start_link(Name, Options) ->
    gen_server:start_link({via, weir_listener_names, Name}, ?MODULE, {Name, Options}, []).

%% @doc See `weir:stop_listener/1'.
-spec stop(name()) -> ok | {error, not_found}.
stop(Name) ->
    weir_listener_sup:stop_listener(Name).

%% @doc See `weir:suspend_listener/1'.
-spec suspend(name()) -> ok.
suspend(Name) -> call(Name, suspend).

%% @doc See `weir:resume_listener/1'.
-spec resume(name()) -> ok | {error, term()}.
resume(Name) -> call(Name, resume).

%% @doc See `weir:drain_listener/2'.
-spec drain(name(), timeout()) -> ok | {error, {timeout, Remaining :: pos_integer()}}.
drain(Name, Timeout) ->
    Gate = call(Name, gate),
    ok = suspend(Name),
    Deadline =
        case Timeout of
            infinity -> infinity;
            _ -> erlang:monotonic_time(millisecond) + Timeout
        end,
    drain_until(Gate, Deadline).

drain_until(Gate, Deadline) ->
    case weir_nif:gate_info(Gate) of
        #{connections := 0} ->
            ok;
        #{connections := Remaining} ->
            %% Any number is smaller than an atom.
            case erlang:monotonic_time(millisecond) < Deadline of
                true ->
                    timer:sleep(?DRAIN_MS),
                    drain_until(Gate, Deadline);
                false ->
                    {error, {timeout, Remaining}}
            end
    end.

%% @doc See `weir:listeners/0'.
-spec names() -> [name()].
names() -> [Name || {Name, _} <- weir_listener_names:all()].

%% @doc See `weir:info/1'.
-spec info(name()) -> info().
info(Name) -> call(Name, info).

%% @doc See `weir:connections/1'.
-spec connections(name()) -> [{weir_tcp:socket(), pid()}].
connections(Name) ->
    [{{'$inet', weir_tcp, Handle}, Pid} || {Handle, Pid, _} <- gate_connections(call(Name, gate), 0)].

%% @doc See `weir:set_max_connections/2'.
-spec set_max_connections(name(), non_neg_integer() | infinity) -> ok.
set_max_connections(Name, Max) when Max =:= infinity; is_integer(Max), Max >= 0, Max =< 16#ffffffff ->
    weir_nif:gate_set_max_connections(call(Name, gate), Max).

%% @doc See `weir:get_port/1'.
-spec port(name()) -> inet:port_number() | undefined.
port(Name) -> call(Name, port).

%% @doc Has all listeners look where their workers belong.
-spec pollers_moved() -> ok.
pollers_moved() ->
    lists:foreach(fun({_Name, Pid}) -> Pid ! pollers_moved end, weir_listener_names:all()).

call(Name, Request) ->
    case weir_listener_names:whereis_name(Name) of
        undefined -> error({no_listener, Name});
        Pid -> gen_server:call(Pid, Request, infinity)
    end.

-spec init({name(), weir_listener_options:normal()}) -> {ok, #state{}} | {stop, term()}.
init({Name, Options = #{port := Port}}) ->
    process_flag(trap_exit, true),
    {Gate, Where} =
        case weir_listener_names:kept(Name) of
            {ok, #{gate := Kept, port := KeptPort}} -> {Kept, {share, KeptPort}};
            error -> {weir_nif:gate_new(length(weir_pollsets:all()), limits(Options)), {claim, Port}}
        end,
    case listen(Where, #state{name = Name, options = Options, gate = Gate, port = Port}) of
        {ok, State} ->
            ok = weir_nif:gate_keep(Gate),
            event(start, State),
            balance_later(Options),
            {ok, start_workers(State)};
        {error, Reason} ->
            {stop, Reason}
    end.

limits(Options) ->
    maps:with([max_connections, overload, max_rate, per_address, allow, deny, placement], Options).

listen(Where, State = #state{name = Name, options = Options, gate = Gate}) ->
    Pollsets = weir_pollsets:all(),
    case weir_listener_sockets:open(Options, Where, length(Pollsets)) of
        {ok, Sockets} ->
            Port = weir_listener_sockets:port(Sockets),
            ok = weir_listener_names:keep(Name, #{gate => Gate, port => Port}),
            Listening = State#state{sockets = Sockets, port = Port},
            lists:foreach(
                fun({Pollset, {_, _, Handle}}) -> ok = weir_nif:gate_listen(Gate, intake(Pollset, Options), Handle) end,
                lists:zip(Pollsets, Sockets)
            ),
            ok = reactors_listen(Listening),
            {ok, Listening};
        {error, _} = Error ->
            Error
    end.

%% Reactors take their connections from the listening socket, without an intake.
intake(_Pollset, #{handler := {reactor, _}}) -> reactor;
intake(Pollset, _Options) -> Pollset.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(gate, _From, State = #state{gate = Gate}) ->
    {reply, Gate, State};
handle_call(port, _From, State = #state{port = Port}) ->
    {reply, Port, State};
handle_call(info, _From, State = #state{name = Name, options = Options, gate = Gate, port = Port}) ->
    Known = maps:with([ip, handler], Options),
    About = Known#{name => Name, pid => self(), port => Port, status => status(State)},
    {reply, maps:merge(weir_nif:gate_info(Gate), About), State};
handle_call(suspend, _From, State = #state{sockets = []}) ->
    {reply, ok, State};
handle_call(suspend, _From, State = #state{sockets = Sockets}) ->
    ok = weir_listener_sockets:close(Sockets),
    event(suspend, State),
    {reply, ok, State#state{sockets = []}};
handle_call(resume, _From, State = #state{sockets = [], port = Port}) ->
    case listen({claim, Port}, State) of
        {ok, Listening} ->
            event(resume, Listening),
            {reply, ok, Listening};
        {error, _} = Error ->
            {reply, Error, State}
    end;
handle_call(resume, _From, State) ->
    {reply, ok, State};
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

status(#state{sockets = []}) -> suspended;
status(_) -> running.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({weir_gate, throttled, Milliseconds}, State) ->
    _ = erlang:send_after(Milliseconds, self(), retry),
    {noreply, State};
handle_info({weir_gate, exhausted, Reason}, State) ->
    _ = erlang:send_after(?RETRY_MS, self(), retry),
    {noreply, exhausted(Reason, State)};
handle_info({weir_gate, recovered}, State) ->
    event(recover, State),
    {noreply, State#state{exhausted = false}};
handle_info(retry, State = #state{gate = Gate}) ->
    ok = weir_nif:gate_retry(Gate),
    {noreply, State};
handle_info(balance, State = #state{options = Options}) ->
    balance_later(Options),
    {noreply, balance(State)};
handle_info(pollers_moved, State) ->
    {noreply, start_workers(State)};
handle_info({start_worker, Pollset}, State) when not is_map_key(Pollset, State#state.workers) ->
    {noreply, start_workers(State)};
handle_info({'EXIT', Pid, Reason}, State) ->
    {noreply, worker_died(Pid, Reason, State)};
handle_info(_Message, State) ->
    {noreply, State}.

exhausted(_Reason, State = #state{exhausted = true}) ->
    State;
exhausted(Reason, State = #state{name = Name}) ->
    ?LOG_WARNING("weir: listener ~0p cannot accept (~p); connections wait in the backlog", [Name, Reason]),
    weir_event:execute([weir, listener, exhausted], #{count => 1}, #{name => Name, reason => Reason}),
    State#state{exhausted = true}.

%% Connections end, within the time that they have. The supervisor waits for that.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, State = #state{name = Name, options = Options, gate = Gate, sockets = Sockets}) ->
    ok = weir_listener_sockets:close(Sockets),
    Acceptors = [Pid || #worker{pid = Pid} <- maps:values(State#state.workers)] ++ State#state.retired,
    ok = weir_shutdown:processes(Acceptors, worker_shutdown(Options)),
    ok = weir_nif:gate_clear(Gate),
    Connections = gate_connections(Gate, 0),
    ok = weir_shutdown:processes([Pid || {_, Pid, _} <- Connections], maps:get(shutdown, Options)),
    %% What is left was given to processes that are none of ours.
    lists:foreach(fun({Handle, _, _}) -> weir_nif:close(Handle, now) end, gate_connections(Gate, 0)),
    ok = weir_listener_names:forget(Name),
    event(stop, State).

%% A reactor is all of its connections, and may be in a callback that does not return.
worker_shutdown(#{handler := {reactor, _}, shutdown := Shutdown}) -> Shutdown;
worker_shutdown(_Options) -> infinity.

gate_connections(Gate, Piece) ->
    case weir_nif:gate_connections(Gate, Piece) of
        {ok, Connections} -> Connections ++ gate_connections(Gate, Piece + 1);
        done -> []
    end.

event(What, State = #state{name = Name, port = Port, gate = Gate}) ->
    Event = [weir, listener, What],
    case weir_event:is_attached(Event) of
        true ->
            Measurements = maps:with([connections, accepted], weir_nif:gate_info(Gate)),
            weir_event:execute(Event, Measurements, #{name => Name, port => Port, status => status(State)});
        false ->
            ok
    end.

%%% Workers.

%% Gives each pollset a worker where its poller is; one whose poller has just died, when that has a successor.
start_workers(State) ->
    Pollers = weir_pollsets:pollers(),
    Start = fun(Pollset, Now) ->
        case Pollers of
            #{Pollset := {_, Home}} -> start_worker(Pollset, Home, Now);
            #{} -> start_worker_later(Pollset, ?SHORT_LIFE_MS, Now)
        end
    end,
    lists:foldl(Start, State, weir_pollsets:all()).

start_worker_later(Pollset, Pause, State) ->
    _ = erlang:send_after(Pause, self(), {start_worker, Pollset}),
    State.

start_worker(Pollset, Home, State = #state{workers = Workers, retired = Retired, options = #{handler := {Kind, _}}}) ->
    case Workers of
        #{Pollset := #worker{home = Home}} ->
            State;
        %% A reactor has its connections with it; it is not bound unless its options say so.
        #{Pollset := _} when Kind =:= reactor ->
            State;
        #{Pollset := #worker{pid = Old}} ->
            %% It may be frozen on a scheduler that is offline. Its connections stay with it.
            Old ! retire,
            new_worker(Pollset, Home, State#state{retired = [Old | Retired]});
        #{} ->
            new_worker(Pollset, Home, State)
    end.

new_worker(Pollset, Home, State) ->
    #state{name = Name, options = Options, gate = Gate, workers = Workers, sockets = Sockets} = State,
    Born = erlang:monotonic_time(millisecond),
    case start_link_worker(Name, Options, Gate, Pollset, Home, Sockets) of
        {ok, Pid} ->
            State#state{workers = Workers#{Pollset => #worker{pid = Pid, home = Home, born = Born}}};
        {error, Reason} ->
            ?LOG_WARNING("weir: worker ~b of listener ~0p did not start (~0p), trying again", [Pollset, Name, Reason]),
            start_worker_later(Pollset, ?SHORT_LIFE_MS, State)
    end.

start_link_worker(_Name, Options = #{handler := {reactor, Module}, args := Args}, _Gate, Pollset, Home, Sockets) ->
    Scheduler =
        case Home of
            anywhere -> Pollset;
            _ -> Home
        end,
    Given = maps:merge(maps:get(reactor, Options), maps:with([proxy_protocol, handshake_timeout], Options)),
    weir_reactor:start_link(Given#{
        module => Module, args => Args, scheduler => Scheduler, listen => listening(Pollset, Sockets)
    });
start_link_worker(Name, Options, Gate, Pollset, Home, _Sockets) ->
    {ok, weir_acceptor:start_link(Name, Options, Gate, Pollset, Home)}.

%% The reactors that are there get the sockets of a listener that resumes.
reactors_listen(#state{options = #{handler := {reactor, _}}, workers = Workers, sockets = Sockets}) ->
    Listen = fun({Pollset, #worker{pid = Pid}}) -> weir_reactor:listen(Pid, lists:nth(Pollset, Sockets)) end,
    lists:foreach(Listen, maps:to_list(Workers));
reactors_listen(_State) ->
    ok.

listening(_Pollset, []) -> none;
listening(Pollset, Sockets) -> lists:nth(Pollset, Sockets).

worker_died(Pid, Reason, State = #state{name = Name, workers = Workers, retired = Retired}) ->
    case [Entry || Entry = {_, #worker{pid = P}} <- maps:to_list(Workers), P =:= Pid] of
        [{Pollset, #worker{born = Born}}] ->
            ?LOG_WARNING("weir: worker ~b of listener ~0p died (~0p), starting another", [Pollset, Name, Reason]),
            Pause =
                case erlang:monotonic_time(millisecond) - Born < ?SHORT_LIFE_MS of
                    true -> ?SHORT_LIFE_MS;
                    false -> 0
                end,
            start_worker_later(Pollset, Pause, State#state{workers = maps:remove(Pollset, Workers)});
        [] ->
            State#state{retired = lists:delete(Pid, Retired)}
    end.

%%% Balance.

balance_later(#{balance := off}) ->
    ok;
balance_later(#{balance := #{interval := Interval}}) ->
    _ = erlang:send_after(Interval, self(), balance),
    ok.

balance(State = #state{options = #{balance := #{threshold := Threshold}}, gate = Gate, loads = Before}) ->
    Now = maps:from_list([{Pollset, maps:get(events, weir_nif:counters(Pollset))} || Pollset <- weir_pollsets:all()]),
    Connections = gate_connections(Gate, 0),
    Moves = weir_balancer:moves(weir_balancer:since(Before, Now), Threshold, [{P, H} || {H, _, P} <- Connections]),
    lists:foreach(fun({Handle, To}) -> weir_nif:move(Handle, To) end, Moves),
    State#state{loads = Now}.
