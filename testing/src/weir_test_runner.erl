%% @doc Runs the tests of the tree: parts run side by side, each in a virtual machine of its own. Failures are printed
%% at once, the sum at the end. `scripts/test' calls it.
-module(weir_test_runner).

-export([main/0]).

-record(worker, {
    number :: pos_integer(),
    part :: weir_test_plan:part(),
    port :: port(),
    log :: file:io_device(),
    os_pid :: non_neg_integer(),
    connection :: undefined | gen_tcp:socket(),
    %% Number of cases that Common Test has planned, and number of cases with a result.
    planned = 0 :: non_neg_integer(),
    reported = 0 :: non_neg_integer(),
    running :: undefined | {module(), [atom()], atom() | string()},
    finished = false :: boolean(),
    exited :: undefined | integer(),
    heard :: integer(),
    %% Results of the running suite.
    results = [] :: [weir_test_report:result()]
}).

-record(run, {
    id :: string(),
    logs :: file:filename(),
    listen :: gen_tcp:socket(),
    queue :: [{pos_integer(), weir_test_plan:part()}],
    workers = [] :: [#worker{}],
    results = [] :: [weir_test_report:result()]
}).

%% Milliseconds of silence after which a worker counts as hanging: longer than the longest time limit of a case.
-define(SILENCE, 15 * 60_000).
%% Milliseconds between two checks for silence.
-define(LOOK, 5_000).

%% @doc Runs the tests that the command line names and halts, with 0 if all have passed. Arguments: `lib=DIRECTORY'
%% where rebar3 has compiled the applications, `logs=DIRECTORY', `app=NAME', `suite=MODULE', `group=NAME',
%% `case=NAME', `workers=NUMBER', `cargo=CRATE' for each Rust crate, and `chaos=DIRECTORY', the chaos build, to run
%% the scenarios on it too. Returns at once.
-spec main() -> ok.
main() ->
    ok = io:setopts(standard_io, [{encoding, unicode}]),
    _ = spawn(fun() ->
        try
            halt(run([option(Argument) || Argument <- init:get_plain_arguments()]))
        catch
            error:{nothing_to_run, Wanted} ->
                io:format("FAILED scripts/test: no test matches ~0tp~n0 passed, 1 failed~n", [Wanted]),
                halt(1);
            Class:Reason:Stack ->
                io:format("FAILED scripts/test: ~tp~n0 passed, 1 failed~n", [{Class, Reason, Stack}]),
                halt(1)
        end
    end),
    ok.

option(Argument) ->
    [Key, Value] = string:split(Argument, "="),
    {list_to_atom(Key), Value}.

run(Options) ->
    Start = erlang:monotonic_time(second),
    Lib = filename:absname(proplists:get_value(lib, Options)),
    Logs = filename:absname(proplists:get_value(logs, Options)),
    Wanted = wanted(Options),
    Chaos = [Part || {chaos, Directory} <- Options, Part <- weir_test_plan:chaos(Lib, filename:absname(Directory))],
    Parts = crates(Options) ++ weir_test_plan:parts(Lib, Wanted) ++ Chaos,
    {ok, Listen} = gen_tcp:listen(0, [binary, {packet, 4}, {ip, {127, 0, 0, 1}}, {active, true}, {nodelay, true}]),
    Run = #run{
        id = lists:concat([os:getpid(), "-", erlang:system_time()]),
        logs = Logs,
        listen = Listen,
        queue = lists:zip(lists:seq(1, length(Parts)), Parts)
    },
    accept(Listen),
    start_epmd(),
    {ok, _} = timer:send_interval(?LOOK, look),
    Ended = loop(fill(list_to_integer(proplists:get_value(workers, Options)), Run)),
    Results = lists:reverse(Ended#run.results) ++ absent(Parts, Ended#run.results),
    io:put_chars(weir_test_report:sum(Results, erlang:monotonic_time(second) - Start)),
    io:format("logs: ~ts~n", [Logs]),
    case weir_test_report:has_failed(Results) of
        true -> 1;
        false -> 0
    end.

wanted(Options) ->
    maps:from_list(
        [{application, Name} || {app, Name} <- Options] ++
            [{suite, Name} || {suite, Name} <- Options] ++
            [{group, list_to_atom(Name)} || {group, Name} <- Options] ++
            [{testcase, list_to_atom(Name)} || {'case', Name} <- Options]
    ).

crates(Options) -> [#{kind => cargo, name => Crate, crate => Crate} || {cargo, Crate} <- Options].

%% Every module of the tree that had no result is a failure.
absent(Parts, Results) ->
    Seen = [Suite || #{suite := Suite} <- Results],
    [
        #{part => "tree", name => Module, time => 0, outcome => {failed, "none of its tests ran"}}
     || Module <- weir_test_plan:modules(Parts), not lists:member(Module, Seen)
    ].

%% Nodes of all tests share epmd. Started here, it belongs to no test and stays for other runs.
start_epmd() ->
    _ = os:cmd(filename:join([code:root_dir(), "erts-" ++ erlang:system_info(version), "bin", "epmd"]) ++ " -daemon"),
    ok.

%% Accepts workers. The process of the run owns their connections.
accept(Listen) ->
    Run = self(),
    _ = spawn_link(fun() -> accept(Listen, Run) end),
    ok.

accept(Listen, Run) ->
    {ok, Connection} = gen_tcp:accept(Listen),
    ok = gen_tcp:controlling_process(Connection, Run),
    accept(Listen, Run).

%% Workers ----------------------------------------------------------------------

fill(Most, #run{queue = [Next | Queue], workers = Workers} = Run) when length(Workers) < Most ->
    fill(Most, Run#run{queue = Queue, workers = [start(Next, Run) | Workers]});
fill(_Most, Run) ->
    Run.

start({Number, #{name := Name} = Part}, #run{id = Id, logs = Logs, listen = Listen}) ->
    File = filename:join(Logs, lists:flatten(string:replace(Name, "/", "-", all)) ++ ".log"),
    ok = filelib:ensure_dir(File),
    {ok, Log} = file:open(File, [write, raw, delayed_write]),
    Port = open_port({spawn_executable, filename:join([code:root_dir(), "bin", "erl"])}, [
        {args, arguments(Number, Part, Listen)}, {env, [{"WEIR_TEST_RUN", mark(Id, Number)} | environment(Part)]},
        stderr_to_stdout, exit_status, binary
    ]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    #worker{number = Number, part = Part, port = Port, log = Log, os_pid = OsPid, heard = now_ms()}.

arguments(Number, Part, Listen) ->
    {ok, Port} = inet:port(Listen),
    Paths = [filename:absname(Path) || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)],
    flags(Part) ++
        ["-noinput", "-pa" | paths(Paths, Part)] ++
        ["-s", "weir_test_worker", "main", "-extra", integer_to_list(Port), integer_to_list(Number)].

%% More schedulers than processors: while the chaos build delays some threads, others run.
flags(#{chaos := _}) -> ["+S", "8:8"];
flags(_Part) -> [].

%% The chaos build of `weir' replaces the ordinary one.
paths(Paths, #{chaos := {Directory, _Seed}}) ->
    [filename:join([Directory, "weir", "ebin"]) | [Path || Path <- Paths, not lists:suffix("/lib/weir/ebin", Path)]];
paths(Paths, _Part) ->
    Paths.

environment(#{chaos := {_Directory, Seed}}) -> [{"WEIR_CHAOS", integer_to_list(Seed)}];
environment(_Part) -> [].

mark(Id, Number) -> lists:concat([Id, "-", Number]).

now_ms() -> erlang:monotonic_time(millisecond).

%% The run ----------------------------------------------------------------------

loop(#run{queue = [], workers = []} = Run) ->
    Run;
loop(#run{workers = Workers} = Run) ->
    receive
        {tcp, Connection, Data} ->
            loop(heard(Connection, binary_to_term(Data), Run));
        {tcp_closed, Connection} ->
            loop(disconnected(lists:keyfind(Connection, #worker.connection, Workers), Run));
        {Port, {data, Data}} ->
            Worker = lists:keyfind(Port, #worker.port, Workers),
            ok = file:write(Worker#worker.log, Data),
            loop(Run);
        {Port, {exit_status, Status}} ->
            Worker = lists:keyfind(Port, #worker.port, Workers),
            loop(end_when_read(Worker#worker{exited = Status}, Run));
        look ->
            [
                kill(Worker)
             || #worker{heard = Heard} = Worker <- Workers, now_ms() - Heard > ?SILENCE * weir_test_wait:stretch()
            ],
            loop(Run)
    end.

kill(#worker{os_pid = OsPid}) -> os:cmd("kill -KILL " ++ integer_to_list(OsPid)).

heard(Connection, {hello, Number}, #run{workers = Workers, logs = Logs} = Run) ->
    case lists:keyfind(Number, #worker.number, Workers) of
        #worker{part = #{name := Name} = Part} = Worker ->
            Directory = filename:join(Logs, Name),
            ok = filelib:ensure_dir(filename:join(Directory, "x")),
            _ = gen_tcp:send(Connection, term_to_binary({Part, Directory})),
            put_worker(Worker#worker{connection = Connection, heard = now_ms()}, Run);
        false ->
            %% It ended before it was heard.
            ok = gen_tcp:close(Connection),
            Run
    end;
heard(Connection, Event, #run{workers = Workers} = Run) ->
    Worker = lists:keyfind(Connection, #worker.connection, Workers),
    event(Event, Worker#worker{heard = now_ms()}, Run).

event({planned, Count}, #worker{planned = Planned} = Worker, Run) ->
    put_worker(Worker#worker{planned = Planned + Count}, Run);
event({started, Suite, Groups, Name}, Worker, Run) ->
    put_worker(Worker#worker{running = {Suite, Groups, Name}}, Run);
event({result, Suite, Groups, Case, Time, Outcome}, #worker{part = #{name := Name} = Part} = Worker0, Run) ->
    Result = #{
        part => Name, suite => Suite, groups => Groups, name => Case, time => Time, outcome => outcome(Outcome, Part)
    },
    Worker = next_suite(Suite, Worker0),
    put_worker(
        Worker#worker{
            reported = Worker#worker.reported + counted(Case),
            results = [Result | Worker#worker.results]
        },
        add(Result, Run)
    );
event({broken, Reason}, Worker, Run) ->
    put_worker(Worker, add(fault(Worker, "the run", Reason), Run));
event(finished, #worker{connection = Connection} = Worker0, Run) ->
    Worker = next_suite(none, Worker0),
    ok = gen_tcp:close(Connection),
    put_worker(Worker#worker{finished = true, connection = undefined}, Run).

%% Names the seed: what failed on the chaos build may pass on another.
outcome({failed, Reason}, #{chaos := {_Directory, Seed}}) -> {failed, {{'WEIR_CHAOS', Seed}, Reason}};
outcome(Outcome, _Part) -> Outcome.

%% Common Test does not count configuration functions among the planned cases.
counted(Name) when Name =:= init_per_suite; Name =:= end_per_suite; Name =:= init_per_group; Name =:= end_per_group ->
    0;
counted(_) ->
    1.

%% Prints the line of the suite that has ended.
next_suite(Suite, #worker{results = [#{suite := Suite} | _]} = Worker) ->
    Worker;
next_suite(_Suite, #worker{results = []} = Worker) ->
    Worker;
next_suite(_Suite, #worker{results = [#{suite := Ended} | _] = Results} = Worker) ->
    io:put_chars(weir_test_report:suite(Ended, Results)),
    Worker#worker{results = []}.

add(#{outcome := {failed, _}} = Result, #run{results = Results} = Run) ->
    io:put_chars(weir_test_report:failure(Result)),
    Run#run{results = [Result | Results]};
add(Result, #run{results = Results} = Run) ->
    Run#run{results = [Result | Results]}.

fault(#worker{part = #{name := Name}}, What, Reason) ->
    #{part => Name, name => What, time => 0, outcome => {failed, Reason}}.

put_worker(#worker{number = Number} = Worker, #run{workers = Workers} = Run) ->
    Run#run{workers = lists:keystore(Number, #worker.number, Workers, Worker)}.

%% Ends -------------------------------------------------------------------------

disconnected(#worker{} = Worker, Run) -> end_when_read(Worker#worker{connection = undefined}, Run);
disconnected(false, Run) -> Run.

%% The exit status may come before the last events of the connection.
end_when_read(#worker{exited = Status, connection = undefined} = Worker, Run) when is_integer(Status) ->
    ended(Worker, Status, Run);
end_when_read(Worker, Run) ->
    put_worker(Worker, Run).

ended(#worker{number = Number, log = Log} = Worker, Status, #run{workers = Workers, id = Id} = Run) ->
    ok = file:close(Log),
    Faults = how_it_ended(Worker, Status) ++ left_behind(Worker, mark(Id, Number)),
    Others = lists:keydelete(Number, #worker.number, Workers),
    fill(length(Workers), lists:foldl(fun add/2, Run#run{workers = Others}, Faults)).

how_it_ended(#worker{finished = true, planned = Planned, reported = Reported} = Worker, _Status) ->
    [
        fault(Worker, "the run", {Planned - Reported, "planned cases had no result"})
     || Planned > Reported
    ];
how_it_ended(#worker{running = Running} = Worker, Status) ->
    [fault(Worker, "the run", {"its virtual machine ended", {status, Status}, {in, Running}})].

%% Cases must end what they start. What they left is killed here, and is a failure.
left_behind(Worker, Mark) ->
    [fault(Worker, "left behind", Command) || Command <- weir_test_processes:end_marked(Mark)].
