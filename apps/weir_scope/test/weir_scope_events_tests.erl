%% A sample as an event. The library `telemetry' is not a dependency, so the tests compile a substitute.
-module(weir_scope_events_tests).

-include_lib("eunit/include/eunit.hrl").

events_test_() ->
    {foreach, fun start/0, fun stop/1, [
        {timeout, 180, fun an_event_a_second/0}, {timeout, 180, fun none_without_the_library/0}
    ]}.

start() ->
    {ok, Sampler} = weir_scope_sampler:start_link(),
    {ok, Events} = weir_scope_events:start_link(),
    [Events, Sampler].

stop(Processes) ->
    [
        begin
            unlink(Pid),
            exit(Pid, kill),
            Monitor = monitor(process, Pid),
            receive {'DOWN', Monitor, process, _, _} -> ok end
        end
     || Pid <- Processes
    ].

an_event_a_second() ->
    ok = load(),
    true = register(telemetry_sup, self()),
    [{First, Metadata}, {Second, _}] = [
        receive
            {[weir, scope, sample], Measurements, Told} -> {Measurements, Told}
        after weir_test_wait:patience() -> error(no_event)
        end
     || _ <- [1, 2]
    ],
    true = unregister(telemetry_sup),
    _ = [code:purge(telemetry), code:delete(telemetry)],
    [
        ?assertMatch({Key, true}, {Key, is_number(maps:get(Key, Measurements))})
     || Measurements <- [First, Second],
        Key <- [
            utilisation,
            run_queue,
            processes,
            ports,
            reductions,
            context_switches,
            collections,
            memory,
            carriers,
            blocks
        ]
    ],
    ?assert(maps:get(processes, First) > 10),
    ?assertMatch(#{node := Node, sample := #{at := _}} when Node =:= node(), Metadata).

none_without_the_library() ->
    #{at := _} = weir_scope_sampler:latest(weir_scope_sampler),
    timer:sleep(600),
    ?assert(is_pid(whereis(weir_scope_events))),
    ?assertEqual(false, code:is_loaded(telemetry)).

%% The substitute sends events to the process with the name of the library's supervisor.
load() ->
    Forms = [
        begin
            {ok, Tokens, _} = erl_scan:string(Text),
            {ok, Form} = erl_parse:parse_form(Tokens),
            Form
        end
     || Text <- [
            "-module(telemetry).", "-export([execute/3]).",
            "execute(Event, Measurements, Metadata) -> catch telemetry_sup ! {Event, Measurements, Metadata}, ok."
        ]
    ],
    {ok, Module, Beam} = compile:forms(Forms, []),
    {module, Module} = code:load_binary(Module, "telemetry.erl", Beam),
    ok.
