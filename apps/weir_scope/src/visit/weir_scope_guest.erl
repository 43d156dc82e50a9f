%% @private
%% @doc The process for visits on the visited node. It loads the modules that visitors send, starts the sampler for
%% them, and removes both when the last visitor has left or died.
-module(weir_scope_guest).

-export([start/1]).
-export([stay/1]).

%% Milliseconds.
-define(NOBODY_COMES, 10_000).

-record(guest, {
    %% Whether this module was loaded for visits, and is to be removed after them.
    brought :: boolean(),
    %% The monitors of the present visitors.
    visitors = [] :: [reference()],
    modules = [] :: [module()],
    sampler = none :: none | pid()
}).

%% @doc The loop of the process that has registered the name of this module. Visitors send it messages with an alias
%% for the answer: `{join, Visitor, Alias, Modules}' (the answer is the guest's pid, the reference to leave with, and
%% the missing modules), `{bring, Alias, Module, File, Beam}', `{sampler, Alias}' and `{leave, Joined, Alias}'.
-spec start(Brought :: boolean()) -> term().
start(Brought) -> ?MODULE:stay(#guest{brought = Brought}).

-spec stay(#guest{}) -> term().
stay(#guest{visitors = Visitors, modules = Modules} = Guest) ->
    receive
        {join, Visitor, Reference, Wanted} ->
            Monitor = monitor(process, Visitor),
            Reference ! {Reference, {self(), Monitor, [Module || Module <- Wanted, code:is_loaded(Module) =:= false]}},
            ?MODULE:stay(Guest#guest{visitors = [Monitor | Visitors]});
        {bring, Reference, Module, File, Beam} ->
            {Answer, Brought} = bring(Module, File, Beam),
            Reference ! {Reference, Answer},
            ?MODULE:stay(Guest#guest{modules = Brought ++ Modules});
        {sampler, Reference} ->
            {Sampler, Then} = sampler(Guest),
            Reference ! {Reference, Sampler},
            ?MODULE:stay(Then);
        {leave, Monitor, Reference} ->
            case lists:member(Monitor, Visitors) of
                true ->
                    true = demonitor(Monitor, [flush]),
                    left(Monitor, Guest, [Reference]);
                false ->
                    %% The visitor has left already.
                    Reference ! {Reference, left},
                    ?MODULE:stay(Guest)
            end;
        {'DOWN', Monitor, process, _, _} ->
            left(Monitor, Guest, []);
        {'EXIT', Sampler, _} when Sampler =:= Guest#guest.sampler ->
            ?MODULE:stay(Guest#guest{sampler = none});
        _ ->
            ?MODULE:stay(Guest)
    after patience(Visitors) ->
        left(none, Guest, [])
    end.

%% The visitor that has started this process may die before it joins.
patience([]) -> ?NOBODY_COMES;
patience(_) -> infinity.

%% Two visitors may send the same module.
bring(Module, File, Beam) ->
    case code:is_loaded(Module) =:= false andalso code:load_binary(Module, File, Beam) of
        false -> {ok, []};
        {module, Module} -> {ok, [Module]};
        %% The module was compiled for a release of OTP that this one cannot load. Compile it here, if there is a
        %% compiler.
        {error, badfile} -> compiled(Module, File, Beam);
        {error, _} = Error -> {Error, []}
    end.

compiled(Module, File, Beam) ->
    try
        {ok, {Module, [{abstract_code, {raw_abstract_v1, Forms}}]}} = beam_lib:chunks(Beam, [abstract_code]),
        {ok, Module, Own} = erpc:call(node(), compile, noenv_forms, [Forms, []]),
        {module, Module} = code:load_binary(Module, File, Own),
        {ok, [Module]}
    catch
        error:_ -> {{error, badfile}, []}
    end.

sampler(#guest{sampler = Sampler} = Guest) when is_pid(Sampler) ->
    {Sampler, Guest};
sampler(Guest) ->
    case whereis(weir_scope_sampler) of
        undefined ->
            %% The sampler is linked: it ends with this process, even if this one is killed.
            _ = process_flag(trap_exit, true),
            {ok, Sampler} = weir_scope_sampler:start_guest(),
            {Sampler, Guest#guest{sampler = Sampler}};
        Sampler ->
            {Sampler, Guest}
    end.

left(Monitor, #guest{visitors = Visitors, modules = Modules, brought = Brought} = Guest, Tell) ->
    case lists:delete(Monitor, Visitors) of
        [] ->
            stop(Guest),
            take_away(Modules ++ [?MODULE || Brought], Tell);
        Others ->
            _ = [Alias ! {Alias, left} || Alias <- Tell],
            ?MODULE:stay(Guest#guest{visitors = Others})
    end.

%% Removes modules. Another process does it that runs none of them, because a purge kills every process in the module.
%% The guest, whose module is the last, stays until it is killed. A visitor that comes in this time sees the guest end,
%% and starts a new one.
-define(TAKE_AWAY, "
    [begin code:purge(Module), code:delete(Module), code:purge(Module) end || Module <- Modules],
    [Alias ! {Alias, left} || Alias <- Tell].
").

take_away(Modules, Tell) ->
    {ok, Tokens, _} = erl_scan:string(?TAKE_AWAY),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    {_, Monitor} = spawn_monitor(erl_eval, exprs, [Expressions, [{'Modules', Modules}, {'Tell', Tell}]]),
    receive {'DOWN', Monitor, process, _, _} -> ok end.

stop(#guest{sampler = none}) ->
    ok;
stop(#guest{sampler = Sampler}) ->
    exit(Sampler, shutdown),
    receive {'EXIT', Sampler, _} -> ok after 5000 -> exit(Sampler, kill) end.
