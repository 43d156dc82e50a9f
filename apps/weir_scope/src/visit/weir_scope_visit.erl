%% @doc Visits of a node: this node or another one that distribution reaches. The other node needs no part of Weir. A
%% visit loads modules there; they are removed when the last visitor has left or died. A node may have several visitors
%% at once.
-module(weir_scope_visit).

-export([facts/2]).
-export([begin_visit/2]).
-export([end_visit/1]).
-export([call/5]).
-export([sampler/1]).
-export([node_of/1]).
-export([patience/1]).
-export([is_there/1]).
-export([afar/2]).

-export_type([options/0, reason/0, visit/0]).

-type options() :: #{load => boolean(), over => pos_integer(), patience => pos_integer()}.
%% `load' (`true'): whether modules may be loaded on the node. If not, every call is made from this node, which takes
%% longer. `over' (1000): milliseconds to collect facts for. `patience' (15000): milliseconds that the node may take
%% for an answer beyond that.

-type reason() :: {no_connection, node()} | {timeout, node()} | {disturbed, node()} | {cannot_load, module(), term()}.
%% `no_connection': the node does not run, has gone, or has another cookie. `timeout': it does not answer in time.
%% `disturbed': modules of the visit were removed or replaced during it; try again. `cannot_load': the node cannot load
%% a module and has no compiler; try `load => false'.

-record(visit, {node :: node(), guest :: pid() | none, joined :: reference() | none, patience :: pos_integer()}).
%% `joined' identifies the visit to the guest, because a process may have several visits.

-opaque visit() :: #visit{}.

-define(MODULES, [
    weir_scope_facts,
    weir_scope_vm,
    weir_scope_system,
    weir_scope_sockets,
    weir_scope_listeners,
    weir_scope_processes,
    weir_scope_files,
    weir_scope_memory,
    weir_scope_schedulers,
    weir_scope_activity,
    weir_scope_machine,
    weir_scope_engine,
    weir_scope_products,
    weir_scope_latency,
    weir_scope_sample,
    weir_scope_history,
    weir_scope_microstates,
    weir_scope_sampler,
    weir_scope_process,
    weir_scope_look,
    weir_scope_top,
    weir_scope_top_sockets,
    weir_scope_clocks,
    weir_scope_locks,
    weir_scope_long,
    weir_scope_schedules
]).

-define(GUEST, weir_scope_guest).

-define(PATIENCE, 15_000).

%% Attempts to join a guest. A guest may be about to end, and then another has to be started.
-define(TRIES, 10).

%% @doc Collects the facts of a node for the doctor.
-spec facts(node(), options()) -> {ok, weir_scope_facts:facts()} | {error, reason()}.
facts(Node, Options) ->
    Over = maps:get(over, Options, 1000),
    case begin_visit(Node, Options) of
        {ok, Visit} ->
            try
                case is_there(Visit) of
                    false ->
                        afar(Visit, fun(Ask) -> weir_scope_facts:collect(Ask, Over) end);
                    true ->
                        %% Also on this node in a separate process: the flag `scheduler_wall_time' is reset when it
                        %% ends.
                        call(Visit, weir_scope_facts, collect, [Over], Over)
                end
            after
                end_visit(Visit)
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Begins a visit. It ends with the calling process.
-spec begin_visit(node(), options()) -> {ok, visit()} | {error, reason()}.
begin_visit(Node, Options) ->
    Patience = maps:get(patience, Options, ?PATIENCE),
    guarded(Node, fun() ->
        case maps:get(load, Options, true) of
            true ->
                {Guest, Joined} = guest(Node, Patience, ?TRIES),
                #visit{node = Node, guest = Guest, joined = Joined, patience = Patience};
            false ->
                #visit{node = Node, guest = none, joined = none, patience = Patience}
        end
    end).

guarded(Node, Fun) ->
    try
        {ok, Fun()}
    catch
        error:{erpc, noconnection} -> {error, {no_connection, Node}};
        error:{erpc, timeout} -> {error, {timeout, Node}};
        error:{exception, undef, _} -> {error, {disturbed, Node}};
        exit:{signal, killed} -> {error, {disturbed, Node}};
        exit:{exception, {noproc, _}} -> {error, {disturbed, Node}};
        throw:{visit, Reason} -> {error, Reason}
    end.

guest(Node, _Patience, 0) ->
    throw({visit, {disturbed, Node}});
guest(Node, Patience, Tries) ->
    %% No module is loaded on this node.
    Modules = [Module || Module <- ?MODULES, Node =/= node()],
    case told({?GUEST, Node}, fun(Reference) -> {join, self(), Reference, Modules} end, Patience) of
        {Guest, Joined, Missing} ->
            try lists:foreach(fun(Module) -> bring(Node, Guest, Module, Patience) end, Missing) of
                ok -> {Guest, Joined}
            catch
                Class:Reason ->
                    %% Leave without waiting for an answer: the guest may hang, and this process may live long.
                    Guest ! {leave, Joined, make_ref()},
                    erlang:Class(Reason)
            end;
        gone ->
            start(Node, Patience),
            guest(Node, Patience, Tries - 1)
    end.

%% Starts the guest, whose module is the only one that it cannot load itself. Several visitors may do this at the same
%% time: the process that gets the name loads the module and becomes the guest. If all loaded it, the first guest would
%% run old code, and a third load would kill it.
-define(BEGIN, "
    try register(weir_scope_guest, self()) of
        true ->
            Brought = Bring andalso code:is_loaded(weir_scope_guest) =:= false,
            case Brought andalso code:load_binary(weir_scope_guest, File, Beam) of
                {error, _} = Error -> Alias ! {Alias, Error};
                _ -> Alias ! {Alias, started}, weir_scope_guest:start(Brought)
            end
    catch
        error:badarg -> Alias ! {Alias, started}
    end.
").

start(Node, Patience) ->
    {_, Beam, File} = code:get_object_code(?GUEST),
    case started(Node, File, Beam, Patience) of
        started -> ok;
        {error, badfile} -> started = started(Node, File, compiled(Node, Beam, Patience), Patience);
        {error, Reason} -> throw({visit, {cannot_load, ?GUEST, Reason}})
    end.

started(Node, File, Beam, Patience) ->
    {ok, Tokens, _} = erl_scan:string(?BEGIN),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    Alias = alias([reply]),
    Bindings = [{'Alias', Alias}, {'Bring', Node =/= node()}, {'File', File}, {'Beam', Beam}],
    _ = erpc:call(Node, erlang, spawn, [erl_eval, exprs, [Expressions, Bindings]], Patience),
    receive
        {Alias, Answer} -> Answer
    after Patience ->
        _ = unalias(Alias),
        error({erpc, timeout})
    end.

compiled(Node, Beam, Patience) ->
    try
        {ok, {_, [{abstract_code, {raw_abstract_v1, Forms}}]}} = beam_lib:chunks(Beam, [abstract_code]),
        {ok, _, Own} = erpc:call(Node, compile, noenv_forms, [Forms, []], Patience),
        Own
    catch
        error:Reason when Reason =/= {erpc, noconnection}, Reason =/= {erpc, timeout} ->
            throw({visit, {cannot_load, ?GUEST, badfile}})
    end.

bring(Node, Guest, Module, Patience) ->
    {Module, Beam, File} = code:get_object_code(Module),
    case told(Guest, fun(Reference) -> {bring, Reference, Module, File, Beam} end, Patience) of
        ok -> ok;
        {error, Reason} -> throw({visit, {cannot_load, Module, Reason}});
        gone -> throw({visit, {disturbed, Node}})
    end.

%% Sends a request to the guest and returns its answer. An answer that comes too late is dropped.
told(Guest, Question, Patience) ->
    Reference = monitor(process, Guest, [{alias, reply_demonitor}]),
    Guest ! Question(Reference),
    receive
        {Reference, Answer} ->
            Answer;
        {'DOWN', Reference, process, _, noconnection} ->
            error({erpc, noconnection});
        {'DOWN', Reference, process, _, _} ->
            gone
    after Patience ->
        _ = demonitor(Reference, [flush]),
        error({erpc, timeout})
    end.

%% @doc Ends a visit; any process may call it. The modules are gone when this returns, unless the node has other
%% visitors. Does nothing if the visit has ended already.
-spec end_visit(visit()) -> ok.
end_visit(#visit{guest = none}) ->
    ok;
end_visit(#visit{guest = Guest, joined = Joined, patience = Patience}) ->
    try told(Guest, fun(Reference) -> {leave, Joined, Reference} end, Patience) of
        _ -> ok
    catch
        error:{erpc, _} -> ok
    end.

%% @doc Calls a function of a visiting module on the node. The function takes about `Milliseconds'.
-spec call(visit(), module(), atom(), [term()], Milliseconds :: non_neg_integer()) -> {ok, term()} | {error, reason()}.
call(#visit{node = Node, patience = Patience}, Module, Function, Arguments, Milliseconds) ->
    guarded(Node, fun() -> erpc:call(Node, Module, Function, Arguments, Milliseconds + Patience) end).

%% @doc Returns the visited node.
-spec node_of(visit()) -> node().
node_of(#visit{node = Node}) -> Node.

%% @doc Returns how many milliseconds the node may take for an answer.
-spec patience(visit()) -> pos_integer().
patience(#visit{patience = Patience}) -> Patience.

%% @doc Returns whether the modules are on the node. If not, use {@link afar/2}.
-spec is_there(visit()) -> boolean().
is_there(#visit{node = Node, guest = Guest}) -> Guest =/= none orelse Node =:= node().

%% @doc Calls `Fun' on this node. Its argument is a fun like `erlang:apply/3' that calls the visited node.
-spec afar(visit(), fun((weir_scope_facts:ask()) -> Result)) -> {ok, Result} | {error, reason()}.
afar(#visit{node = Node, patience = Patience}, Fun) ->
    guarded(Node, fun() -> weir_scope_remote:run({Node, Patience}, Fun) end).

%% @doc Returns the sampler of the node: its own if `weir_scope' runs there, otherwise one that ends with the last
%% visit. With `load => false' the sampler runs on this node.
-spec sampler(visit()) -> {ok, pid()} | {error, reason()}.
sampler(#visit{node = Node, guest = none, patience = Patience}) ->
    guarded(Node, fun() -> weir_scope_sampler:from_afar(weir_scope_remote, {Node, Patience}) end);
sampler(#visit{node = Node, guest = Guest, patience = Patience}) ->
    guarded(Node, fun() ->
        case told(Guest, fun(Reference) -> {sampler, Reference} end, Patience) of
            Sampler when is_pid(Sampler) -> Sampler;
            gone -> throw({visit, {disturbed, Node}})
        end
    end).
