%% @private
%% @doc Starts a process for each connection of one pollset, on the scheduler of that.
%%
%% Accepting is done by the pollset. What comes here is one message for a batch of connections, which wait in the intake
%% of the gate. The process of a fun takes its own from there. That of a module with ranch's `start_link/3' is given it, and
%% is linked to this process, its parent.
%%
%% It may be killed at any time, and then has a successor. Connections of funs notice nothing; those of modules end with
%% their parent.
-module(weir_acceptor).

-include_lib("kernel/include/logger.hrl").

-export([start_link/5]).

%% As sys wants it.
-export([system_continue/3]).
-export([system_terminate/4]).
-export([system_code_change/4]).

%% A process may be killed before it has taken its connection. That is looked for when nothing has come for so long.
-define(LEFT_OVER_MS, 1000).

-record(state, {
    parent :: pid(),
    name :: weir_listener:name(),
    gate :: weir_nif:gate(),
    intake :: pos_integer(),
    start :: {spawn, fun(() -> term()), list()} | {protocol, module(), term(), weir_connection:terms()},
    shutdown :: timeout() | brutal_kill,
    children = #{} :: #{pid() => []},
    retired = false :: boolean()
}).

%% @doc Starts the acceptor of a pollset, on a scheduler or wherever the VM likes.
-spec start_link(
    weir_listener:name(), weir_listener_options:normal(), weir_nif:gate(), weir_nif:pollset(), weir_pollsets:home()
) -> pid().
start_link(Name, Options, Gate, Pollset, Home) ->
    State = #state{
        parent = self(),
        name = Name,
        gate = Gate,
        intake = Pollset,
        start = start_of(Name, Options, Gate, Pollset, Home),
        shutdown = maps:get(shutdown, Options)
    },
    proc_lib:spawn_opt(fun() -> init(State) end, [link | bind_options(Home)]).

-dialyzer({nowarn_function, start_link/5}).

bind_options(anywhere) -> [];
bind_options(Scheduler) -> [{scheduler, Scheduler}].

%% Made once: what a connection costs is a spawn and one native call.
start_of(Name, Options = #{handler := {function, Handler}, args := Args}, Gate, Intake, Home) ->
    Terms = weir_connection:terms(Name, Options),
    Bind =
        case Options of
            #{affinity := bound} -> bind_options(Home);
            #{affinity := soft} -> []
        end,
    {spawn, fun() -> weir_connection:serve(Gate, Intake, Terms, Handler, Args) end, Bind};
start_of(Name, Options = #{handler := {protocol, Module}, args := Args}, _Gate, _Intake, _Home) ->
    {protocol, Module, Args, weir_connection:terms(Name, Options)}.

init(State = #state{gate = Gate, intake = Intake}) ->
    process_flag(trap_exit, true),
    Waiting = weir_nif:gate_attend(Gate, Intake),
    %% They came when nobody was there to be told. Behind one that was killed some are told of twice.
    _ = Waiting > 0 andalso event(Waiting, State),
    loop(start(Waiting, State), left_over_timeout(Waiting)).

left_over_timeout(0) -> infinity;
left_over_timeout(_) -> ?LEFT_OVER_MS.

loop(State = #state{parent = Parent, children = Children}, Timeout) ->
    receive
        {weir_accept, Count} ->
            event(Count, State),
            loop(start(Count, State), ?LEFT_OVER_MS);
        {'EXIT', Parent, Reason} ->
            terminate(Reason, State);
        {'EXIT', Pid, Reason} ->
            Left = State#state{children = maps:remove(Pid, Children)},
            _ = is_map_key(Pid, Children) andalso report(Pid, Reason, State),
            loop_or_end(Left, Timeout);
        retire ->
            loop_or_end(State#state{retired = true}, infinity);
        {system, From, Request} ->
            sys:handle_system_msg(Request, From, Parent, ?MODULE, [], {State, Timeout});
        _ ->
            loop(State, Timeout)
    after Timeout ->
        Waiting = weir_nif:gate_waiting(State#state.gate, State#state.intake),
        loop(start(Waiting, State), left_over_timeout(Waiting))
    end.

%% Whoever was replaced stays as the parent of its connections.
loop_or_end(#state{retired = true, children = Children}, _Timeout) when map_size(Children) =:= 0 -> ok;
loop_or_end(State, Timeout) -> loop(State, Timeout).

event(Count, #state{name = Name, intake = Pollset}) ->
    weir_event:execute([weir, listener, accept], #{count => Count}, #{name => Name, pollset => Pollset}).

start(0, State) ->
    State;
start(Count, State = #state{start = {spawn, Serve, Options}}) ->
    _ = erlang:spawn_opt(Serve, Options),
    start(Count - 1, State);
start(Count, State = #state{start = {protocol, Module, Args, Terms}}) ->
    start(Count - 1, start_protocol(Module, Args, Terms, State)).

start_protocol(Module, Args, Terms, State = #state{name = Name}) ->
    try Module:start_link(Name, weir_connection:transport(Terms), Args) of
        {ok, Pid} -> give(Pid, Pid, Terms, State);
        {ok, Supervisor, Pid} -> give(Supervisor, Pid, Terms, State);
        Other -> not_started(Module, Other, State)
    catch
        Class:Reason:Stack -> not_started(Module, {Class, Reason, Stack}, State)
    end.

not_started(Module, Result, State = #state{name = Name, gate = Gate, intake = Intake}) ->
    ?LOG_ERROR("weir: ~p:start_link/3 of listener ~0p gave ~0p; the connection is closed", [Module, Name, Result]),
    ok = weir_nif:gate_discard(Gate, Intake),
    State.

give(Child, Pid, Terms, State = #state{name = Name, gate = Gate, intake = Intake, children = Children}) ->
    case weir_nif:gate_give(Gate, Intake, Pid) of
        {ok, Handle} ->
            Pid ! weir_connection:handshake_message(Name, {'$inet', weir_tcp, Handle}, Terms),
            ok;
        empty ->
            exit(Child, shutdown);
        {error, _} ->
            ok = weir_nif:gate_discard(Gate, Intake)
    end,
    State#state{children = Children#{Child => []}}.

%% Those that end as they should are no news; see ranch_conns_sup.
report(_Pid, Reason, _State) when Reason =:= normal; Reason =:= shutdown -> ok;
report(_Pid, {shutdown, _}, _State) -> ok;
report(Pid, Reason, #state{name = Name, start = {protocol, Module, _, _}}) ->
    ?LOG_ERROR("weir: connection ~p of listener ~0p, started with ~p:start_link/3, died (~0p)", [
        Pid, Name, Module, Reason
    ]).

-spec terminate(term(), #state{}) -> no_return().
terminate(Reason, #state{children = Children, shutdown = Shutdown}) ->
    ok = weir_shutdown:processes(maps:keys(Children), Shutdown),
    exit(Reason).

-spec system_continue(pid(), [sys:dbg_opt()], {#state{}, timeout()}) -> ok.
system_continue(_Parent, _Debug, {State, Timeout}) -> loop(State, Timeout).

-spec system_terminate(term(), pid(), [sys:dbg_opt()], {#state{}, timeout()}) -> no_return().
system_terminate(Reason, _Parent, _Debug, {State, _Timeout}) -> terminate(Reason, State).

-spec system_code_change(State, module(), term(), term()) -> {ok, State} when State :: {#state{}, timeout()}.
system_code_change(State, _Module, _OldVersion, _Extra) -> {ok, State}.
