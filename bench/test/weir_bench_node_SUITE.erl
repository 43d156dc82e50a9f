%% Monitors a small node: every tool yields figures.
-module(weir_bench_node_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        weir_scope_samples,
        recon_samples,
        observer_cli_draws,
        the_top_of_processes,
        the_top_of_sockets,
        recon_has_its_top,
        traced_by_nobody_natively_and_by_messages,
        a_history_is_filled,
        what_fails_is_told
    ].

init_per_suite(Config) ->
    ok = weir_bench_record:in_tree(),
    %% bin/weir adds the same paths.
    Peers = filelib:wildcard(filename:join(os:getenv("WEIR_ROOT"), "bench/peers/target/erlang/*/ebin")),
    ok = code:add_pathsz(Peers),
    [{peers, Peers} | Config].

end_per_suite(Config) -> lists:foreach(fun code:del_path/1, proplists:get_value(peers, Config)).

weir_scope_samples(_Config) -> samples(weir_scope, []).
recon_samples(_Config) -> samples(recon, [recon]).
observer_cli_draws(_Config) -> samples(observer_cli, [observer_cli]).

samples(Looks, Needs) ->
    if_here(Needs, fun() ->
        #{cpu_ms_per_s := Cpu} = figures(#{load => sampler, looks => Looks, warmup => 100, duration => 1100}),
        ?assert(Cpu >= 0)
    end).

the_top_of_processes(_Config) -> top(weir_scope, #{}).
the_top_of_sockets(_Config) -> top(weir_scope, #{of_sockets => true}).

recon_has_its_top(_Config) ->
    if_here([recon], fun() ->
        ok = top(recon, #{}),
        ok = top(recon, #{of_sockets => true})
    end).

top(Looks, Of) ->
    #{cpu_ms := Cpu, max_us := Longest} = figures(Of#{load => top, looks => Looks}),
    ?assert(Cpu > 0),
    ?assert(Longest > 0).

traced_by_nobody_natively_and_by_messages(_Config) ->
    [
        begin
            #{requests_per_s := Trips} = figures(#{load => tracer, looks => Looks, warmup => 200, duration => 200}),
            ?assert(Trips > 0)
        end
     || Looks <- [nobody, weir_scope, messages]
    ].

a_history_is_filled(_Config) ->
    #{memory_kib := Few} = figures(#{load => history, looks => weir_scope}),
    #{memory_kib := Many} = figures(#{load => history, looks => weir_scope, size => 400}),
    %% 2,040 rows of at least four bytes for each column.
    ?assert(Many > 3000),
    ?assert(Few < Many).

what_fails_is_told(_Config) ->
    {error, Reason} = measure(#{load => nothing, looks => nobody}),
    ?assertMatch(<<"node ended: ", _/binary>>, Reason),
    ?assertNotEqual(nomatch, binary:match(Reason, <<"function_clause">>)).

figures(Settings) ->
    {ok, #{metrics := Metrics, errors := 0}} = measure(Settings),
    Metrics.

measure(Settings) ->
    Run = #{
        name => some,
        title => <<"some">>,
        needs => [],
        backend => weir,
        server => node,
        driver => node,
        processes => 100,
        connections => 10,
        warmup => 0,
        duration => 100
    },
    weir_bench_node:measure(maps:merge(Run, Settings), []).

if_here(Needs, Test) ->
    case weir_bench_peers:missing(Needs) of
        [] -> Test();
        [What | _] -> {skip, atom_to_list(What) ++ " is not here"}
    end.
