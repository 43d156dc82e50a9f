%% @private
%% @doc Starts a process for each connection of one pollset, on the scheduler of that pollset.
%%
%% The pollset accepts. This process gets one message per batch; the connections wait in the listener's queue. The
%% process of a fun takes its connection from there. The process of a module with ranch's `start_link/3' is given its
%% connection, and is linked to this process, its parent.
%%
%% It may be killed at any time and is replaced. Connections of funs are not affected; those of modules end with their
%% parent.
-module(weir_acceptor).

-include("weir_socket.hrl").

-export([start_link/6]).
-export([retire/1]).
-export([init/1]).
-export([loop/2]).

%% Callbacks for sys.
-export([system_continue/3]).
-export([system_terminate/4]).
-export([system_code_change/4]).

%% A process may be killed before it has taken its connection. After this time without a batch the queue is checked.
-define(LEFT_OVER_MS, 1000).

%% A running acceptor answers within this time.
-define(PROMPT_MS, 100).

%% An acceptor may be in a longer start_link/3. All schedulers are online while this time passes.
-define(PATIENCE_MS, 1000).

-record(state, {
    parent :: pid(),
    terms :: weir_connection:terms(),
    listener :: weir_nif:listener(),
    queue :: pos_integer(),
    home :: weir_pollsets:home(),
    start ::
        {spawn, Arguments :: list(), Options :: list()} | {protocol, module(), Args :: term(), weir_ranch:bridge()},
    shutdown :: timeout() | brutal_kill,
    children = #{} :: #{pid() => weir_nif:handle() | none},
    retired = false :: boolean()
}).

%% @doc Starts the acceptor of a pollset, bound to a scheduler or anywhere.
-spec start_link(
    weir_connection:terms(),
    weir_listener_options:normal(),
    weir_ranch:bridge(),
    weir_nif:listener(),
    weir_nif:pollset(),
    weir_pollsets:home()
) -> pid().
start_link(Terms, Options, Ranch, Listener, Pollset, Home) ->
    State = #state{
        parent = self(),
        terms = Terms,
        listener = Listener,
        queue = Pollset,
        home = Home,
        start = start_of(Terms, Options, Ranch, Listener, Pollset, Home),
        shutdown = maps:get(shutdown, Options)
    },
    Acceptor = proc_lib:spawn_opt(?MODULE, init, [State], [link | bind_options(Home)]),
    %% Here and not in its own code: its scheduler may go offline before it runs. It would take the queue from its
    %% successor when it runs at last, and end, and nobody would be notified of the connections that follow.
    Waiting = weir_nif:listener_set_acceptor(Listener, Pollset, Acceptor),
    %% Connections that came while there was no acceptor. After a killed acceptor some are counted twice.
    _ = Waiting > 0 andalso (Acceptor ! {weir_accept, Waiting}),
    Acceptor.

-dialyzer({nowarn_function, start_link/6}).

%% @doc Makes replaced acceptors end as soon as they have no connections. Until then they run on any scheduler. An
%% acceptor that is frozen on an offline scheduler cannot answer, so all schedulers go online until it has unbound
%% itself.
-spec retire([pid()]) -> ok.
retire(Pids) ->
    Requests = [gen_server:send_request(Pid, retire) || Pid <- Pids],
    case unanswered(Requests, ?PROMPT_MS) of
        [] ->
            ok;
        Left ->
            _ = weir_schedulers:with_all_online(fun() -> unanswered(Left, ?PATIENCE_MS) end),
            ok
    end.

unanswered(Requests, Time) ->
    Deadline = {abs, erlang:monotonic_time(millisecond) + Time},
    [Request || Request <- Requests, gen_server:wait_response(Request, Deadline) =:= timeout].

bind_options(anywhere) -> [];
bind_options(Scheduler) -> [{scheduler, Scheduler}].

%% Prepared once, so that a connection costs one spawn and one native call.
start_of(Terms, Options = #{handler := {function, Handler}, args := Args}, _Ranch, Listener, Queue, Home) ->
    Bind =
        case Options of
            #{affinity := bound} -> bind_options(Home);
            #{affinity := soft} -> []
        end,
    %% Not a fun: it would keep this version of the module in use.
    {spawn, [Listener, Queue, Terms, Handler, Args], Bind};
start_of(_Terms, #{handler := {protocol, Module}, args := Args}, Ranch, _Listener, _Queue, _Home) ->
    {protocol, Module, Args, Ranch}.

%% @doc The entry point of an acceptor.
-spec init(#state{}) -> ok.
init(State) ->
    process_flag(trap_exit, true),
    ?MODULE:loop(State, infinity).

left_over_timeout(0) -> infinity;
left_over_timeout(_) -> ?LEFT_OVER_MS.

%% @doc One round, in the current code.
-spec loop(#state{}, timeout()) -> ok.
loop(State = #state{parent = Parent, children = Children}, Timeout) ->
    receive
        {weir_accept, Count} ->
            event(Count, State),
            ?MODULE:loop(start(Count, State), ?LEFT_OVER_MS);
        {'EXIT', Parent, Reason} ->
            terminate(Reason, State);
        {'EXIT', Pid, Reason} ->
            Left = State#state{children = maps:remove(Pid, Children)},
            _ = is_map_key(Pid, Children) andalso report(Pid, Reason, State),
            loop_or_end(Left, Timeout);
        {'$gen_call', From, retire} ->
            ok = let_go(State),
            gen:reply(From, ok),
            loop_or_end(State#state{retired = true}, infinity);
        {change, Terms, Options, Ranch} ->
            ?MODULE:loop(change(Terms, Options, Ranch, State), Timeout);
        %% ranch:remove_connection/1 by the process of a connection; see weir_ranch.
        {remove_connection, _Name, Pid} ->
            _ = [weir_nif:listener_exempt(Handle) || #{Pid := Handle} <- [Children], Handle =/= none],
            ?MODULE:loop(State, Timeout);
        %% The request of supervisor:which_children/1.
        {'$gen_call', From, which_children} ->
            gen:reply(From, [{undefined, Pid, worker, []} || Pid <- maps:keys(Children)]),
            ?MODULE:loop(State, Timeout);
        {system, From, Request} ->
            sys:handle_system_msg(Request, From, Parent, ?MODULE, [], {State, Timeout});
        _ ->
            ?MODULE:loop(State, Timeout)
    after Timeout ->
        Waiting = weir_nif:listener_waiting(State#state.listener, State#state.queue),
        ?MODULE:loop(start(Waiting, State), left_over_timeout(Waiting))
    end.

%% A replaced acceptor stays as the parent of its connections.
loop_or_end(#state{retired = true, children = Children}, _Timeout) when map_size(Children) =:= 0 -> ok;
loop_or_end(State, Timeout) -> ?MODULE:loop(State, Timeout).

let_go(#state{home = anywhere}) ->
    ok;
let_go(#state{}) ->
    _ = process_flag(scheduler, 0),
    ok.

-dialyzer({nowarn_function, let_go/1}).

%% Applies to connections that have not begun. The native listener refuses to begin one with another version of the
%% options.
change(Terms, Options, Ranch, State = #state{listener = Listener, queue = Queue, home = Home}) ->
    Start = start_of(Terms, Options, Ranch, Listener, Queue, Home),
    State#state{terms = Terms, start = Start, shutdown = maps:get(shutdown, Options)}.

event(Count, #state{terms = Terms, queue = Pollset}) ->
    Metadata = #{name => weir_connection:listener(Terms), pollset => Pollset},
    weir_event:execute([weir, listener, accept], #{count => Count}, Metadata).

start(0, State) ->
    State;
start(Count, State = #state{start = {spawn, Arguments, Options}}) ->
    _ = erlang:spawn_opt(weir_connection, serve, Arguments, Options),
    start(Count - 1, State);
start(
    Count, State = #state{start = {protocol, Module, Args, Ranch}, listener = Listener, queue = Queue, terms = Terms}
) ->
    %% Only this process takes connections from the queue. So the arguments are read when the connection is there.
    case weir_nif:listener_waiting(Listener, Queue) of
        0 ->
            State;
        _ ->
            Current = weir_ranch:arguments(weir_connection:listener(Terms), Ranch, Args),
            start(Count - 1, start_protocol(Module, Current, State))
    end.

start_protocol(Module, Args, State = #state{terms = Terms}) ->
    try Module:start_link(weir_connection:listener(Terms), weir_connection:transport(Terms), Args) of
        {ok, Pid} -> give(Pid, Pid, State);
        {ok, Supervisor, Pid} -> give(Supervisor, Pid, State);
        Other -> not_started(Module, #{reason => {bad_return_value, Other}}, State)
    catch
        Class:Reason:Stack -> not_started(Module, #{reason => {Class, Reason}, stacktrace => Stack}, State)
    end.

not_started(Module, Why, State = #state{terms = Terms, listener = Listener, queue = Queue}) ->
    ok = weir_reports:log(error, Why#{
        what => "start_link/3 of a listener's module failed; the connection is closed",
        listener => weir_connection:listener(Terms),
        module => Module
    }),
    ok = weir_nif:listener_discard(Listener, Queue),
    State.

give(Child, Pid, State = #state{terms = Terms, listener = Listener, queue = Queue, children = Children}) ->
    case weir_nif:listener_accept_for(Listener, Queue, Pid, weir_connection:version(Terms)) of
        {ok, Handle} ->
            Pid ! weir_connection:handshake_message(?SOCKET(Handle), Terms),
            State#state{children = Children#{Child => Handle}};
        %% This process was replaced, or the options have changed: it will be notified of the connection again.
        None when None =:= empty; None =:= outdated ->
            exit(Child, shutdown),
            State#state{children = Children#{Child => none}};
        {error, _} ->
            ok = weir_nif:listener_discard(Listener, Queue),
            State#state{children = Children#{Child => none}}
    end.

%% Normal exits are not logged, as in ranch_conns_sup.
report(_Pid, Reason, _State) when Reason =:= normal; Reason =:= shutdown -> ok;
report(_Pid, {shutdown, _}, _State) -> ok;
report(Pid, Reason, #state{terms = Terms}) ->
    weir_reports:log(error, #{
        what => "the process of a connection died",
        listener => weir_connection:listener(Terms),
        pid => Pid,
        reason => Reason
    }).

-spec terminate(term(), #state{}) -> no_return().
terminate(Reason, #state{children = Children, shutdown = Shutdown}) ->
    ok = weir_shutdown:processes(maps:keys(Children), Shutdown),
    exit(Reason).

-spec system_continue(pid(), [sys:dbg_opt()], {#state{}, timeout()}) -> ok.
system_continue(_Parent, _Debug, {State, Timeout}) -> ?MODULE:loop(State, Timeout).

-spec system_terminate(term(), pid(), [sys:dbg_opt()], {#state{}, timeout()}) -> no_return().
system_terminate(Reason, _Parent, _Debug, {State, _Timeout}) -> terminate(Reason, State).

-spec system_code_change(State, module(), term(), term()) -> {ok, State} when State :: {#state{}, timeout()}.
system_code_change(State, _Module, _OldVersion, _Extra) -> {ok, State}.
