%% @private
%% @doc The process of visits on the node that is visited. It loads what visitors bring, starts the sampler for them, and takes all of
%% that away when the last of them has left or died.
-module(weir_scope_guest).

-export([start/1]).
-export([stay/1]).

%% Milliseconds.
-define(NOBODY_COMES, 10_000).

-record(guest, {
    %% Whether this module is here for the visits only.
    brought :: boolean(),
    %% The monitors of those that are here.
    visitors = [] :: [reference()],
    modules = [] :: [module()],
    sampler = none :: none | pid()
}).

%% @doc What the process does that has registered the name of this module. Visitors talk to it by messages, each with an alias for the
%% answer: `{join, Visitor, Alias, Modules}' (the answer: its own process, what the visitor leaves with, and the modules that are missing), `{bring,
%% Alias, Module, File, Beam}', `{sampler, Alias}', `{leave, Joined, Alias}'.
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
                    %% Somebody leaves twice.
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

%% A visitor that has begun it may be gone before it comes.
patience([]) -> ?NOBODY_COMES;
patience(_) -> infinity.

%% Two visitors may bring the same.
bring(Module, File, Beam) ->
    case code:is_loaded(Module) =:= false andalso code:load_binary(Module, File, Beam) of
        false -> {ok, []};
        {module, Module} -> {ok, [Module]};
        %% Compiled for an OTP too far from this one: this one's compiler makes it anew, where there is one.
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
            %% It ends with this process, also if this one is killed.
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

%% By a process that runs none of them, since a purge ends every process in the module. This one, whose module is the last, stays until then:
%% a visitor that comes meanwhile learns from its end that it has to begin anew.
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
