%% @private
%% @doc The process of a visit, on the node that is visited: takes away the modules of the visit when it ends, by whatever way.
-module(weir_scope_guest).

-export([start/2]).
-export([stay/2]).

%% @doc Starts it. The visit lasts as long as Visitor, a process of another node, or until `leave' is sent.
-spec start(Visitor :: pid(), [module()]) -> pid().
start(Visitor, Modules) ->
    spawn(?MODULE, stay, [Visitor, Modules]).

-spec stay(pid(), [module()]) -> boolean().
stay(Visitor, Modules) ->
    Monitor = monitor(process, Visitor),
    receive
        {leave, From, Reference} ->
            ok = take_away(Modules),
            From ! Reference;
        {'DOWN', Monitor, process, _, _} ->
            ok = take_away(Modules)
    end,
    true = code:delete(?MODULE),
    %% The last call: nothing of this module is on the stack, so that the purge does not end this process.
    code:purge(?MODULE).

take_away(Modules) ->
    lists:foreach(
        fun(Module) ->
            _ = code:purge(Module),
            _ = code:delete(Module),
            code:purge(Module)
        end,
        Modules
    ).
