%% @doc Facts of a node, this one or another that distribution reaches. Another needs nothing of ours: modules are loaded there
%% for the time of the visit, and taken away again, also if this process or node dies meanwhile.
-module(weir_scope_visit).

-export([facts/2]).

-export_type([options/0, reason/0]).

-type options() :: #{load => boolean(), over => pos_integer(), patience => pos_integer()}.
%% `load' (`true'): whether modules may be loaded. If not, everything is asked from here, which takes longer, and what needs many
%% questions is left out. `over' (1000): how long is looked, `patience' (15000): how long the node may take for an answer beyond
%% that, milliseconds.

-type reason() :: {no_connection, node()} | {timeout, node()} | {disturbed, node()} | {cannot_load, module(), term()}.

-define(MODULES, [weir_scope_facts, weir_scope_vm, weir_scope_system, weir_scope_sockets, weir_scope_processes]).

-define(PATIENCE, 15_000).

%% @doc The facts of a node. Errors: `no_connection' if it is not reached (it does not run, or has another cookie), `timeout'
%% if it does not answer in time, `disturbed' if another visit has ended meanwhile and taken its modules away: try again;
%% `cannot_load' if the node does not take a module and has no compiler: try `load => false'.
-spec facts(node(), options()) -> {ok, weir_scope_facts:facts()} | {error, reason()}.
facts(Node, Options) ->
    Over = maps:get(over, Options, 1000),
    Patience = maps:get(patience, Options, ?PATIENCE),
    try
        case maps:get(load, Options, true) of
            _ when Node =:= node() -> {ok, collected(Node, Over, Patience)};
            true -> visit(Node, Over, Patience);
            false -> {ok, weir_scope_facts:collect(fun(Module, Function, Arguments) -> erpc:call(Node, Module, Function, Arguments, Patience) end, Over)}
        end
    catch
        error:{erpc, noconnection} -> {error, {no_connection, Node}};
        error:{erpc, timeout} -> {error, {timeout, Node}};
        %% Modules that another visit has loaded go with it.
        error:{exception, undef, _} -> {error, {disturbed, Node}};
        exit:{signal, killed} -> {error, {disturbed, Node}};
        throw:Reason -> {error, Reason}
    end.

%% In a process of its own on this node, too: what it raises for its time, the flag of the schedulers, goes with it.
collected(Node, Over, Patience) ->
    erpc:call(Node, weir_scope_facts, collect, [Over], Over + Patience).

visit(Node, Over, Patience) ->
    Missing = [Module || Module <- ?MODULES, erpc:call(Node, code, is_loaded, [Module], Patience) =:= false],
    Guest = guest(Node, Missing, Patience),
    try
        lists:foreach(fun(Module) -> load(Node, Module, Patience) end, Missing),
        {ok, collected(Node, Over, Patience)}
    after
        leave(Guest, Patience)
    end.

guest(_Node, [], _Patience) ->
    none;
guest(Node, Missing, Patience) ->
    load(Node, weir_scope_guest, Patience),
    erpc:call(Node, weir_scope_guest, start, [self(), Missing], Patience).

load(Node, Module, Patience) ->
    {Module, Beam, File} = code:get_object_code(Module),
    case erpc:call(Node, code, load_binary, [Module, File, Beam], Patience) of
        {module, Module} ->
            ok;
        %% Compiled for an OTP too far from the node's: its own compiler makes it anew, where it has one.
        {error, badfile} ->
            {module, Module} = erpc:call(Node, code, load_binary, [Module, File, compiled(Node, Module, Beam, Patience)], Patience),
            ok;
        {error, Reason} ->
            throw({cannot_load, Module, Reason})
    end.

compiled(Node, Module, Beam, Patience) ->
    try
        {ok, {Module, [{abstract_code, {raw_abstract_v1, Forms}}]}} = beam_lib:chunks(Beam, [abstract_code]),
        {ok, Module, Own} = erpc:call(Node, compile, noenv_forms, [Forms, []], Patience),
        Own
    catch
        error:Reason when Reason =/= {erpc, noconnection}, Reason =/= {erpc, timeout} -> throw({cannot_load, Module, badfile})
    end.

leave(none, _Patience) ->
    ok;
leave(Guest, Patience) ->
    Monitor = monitor(process, Guest),
    Guest ! {leave, self(), Monitor},
    receive
        Monitor -> ok;
        {'DOWN', Monitor, process, _, _} -> ok
    after Patience -> ok
    end,
    _ = demonitor(Monitor, [flush]),
    ok.
