%% Runs cases on other virtual machines with this one's code.
-module(weir_test_node).

-export([start_node/2]).
-export([on_node/4]).
-export([on_bare_node/5]).
-export([run_case/2]).
-export([run_function/3]).
-export([start_vm/4]).
-export([ended/2]).

%% Starts such a machine, for cases that could harm the one that runs the tests: a shell command to run first, and
%% arguments. It ends with the caller.
-spec start_node(string(), [string()]) -> pid().
start_node(Command, Arguments) ->
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io,
        wait_boot => weir_test_wait:patience(),
        exec => {"/bin/sh", ["-c", Command ++ " exec \"$0\" \"$@\"", erl()]},
        %% The case decides the number of schedulers, not the environment of the run.
        env => [{"ERL_FLAGS", ""}],
        args => Arguments ++ ["-pa" | paths()]
    }),
    Peer.

%% Runs a case of a suite on such a machine. The suite's timetrap limits its time.
-spec on_node(module(), atom(), string(), [string()]) -> ok.
on_node(Suite, Case, Command, Arguments) ->
    call(Command, Arguments, run_case, [Suite, Case]).

-spec run_case(module(), atom()) -> ok | {fail, term()}.
run_case(Suite, Case) ->
    Config = weir_test_peer:init_case(weir_test_peer:init_group(weir, [])),
    %% The case may use up the descriptors that loading needs.
    ok = code:ensure_modules_loaded([weir_test_wait, weir_test_process]),
    _ = Suite:Case(Config),
    weir_test_peer:end_case(Config).

%% Runs a function of a suite on such a machine, without starting Weir.
-spec on_bare_node(module(), atom(), weir_test_peer:config(), string(), [string()]) -> ok.
on_bare_node(Suite, Function, Config, Command, Arguments) ->
    call(Command, Arguments, run_function, [Suite, Function, Config]).

-spec run_function(module(), atom(), weir_test_peer:config()) -> ok.
run_function(Suite, Function, Config) ->
    _ = Suite:Function(weir_test_peer:init_case([{backend, [{tcp_module, weir_tcp}]} | Config])),
    ok.

call(Command, Arguments, Function, Values) ->
    Node = start_node(Command, Arguments),
    try
        ok = peer:call(Node, ?MODULE, Function, Values, infinity)
    after
        peer:stop(Node)
    end.

%% Starts a VM that calls a function of a suite, and returns its port. The VM ends by itself, or with this one.
-spec start_vm(module(), [string()], atom(), [term()]) -> port().
start_vm(Suite, Arguments, Function, Values) ->
    Call = lists:flatten(io_lib:format("apply(~p, ~p, ~0p).", [Suite, Function, Values])),
    All = ["-noshell", "-pa" | paths()] ++ Arguments ++ ["-eval", Call],
    %% A VM without a shell does not notice the end of its standard input.
    Leashed = ["-c", "exec setpriv --pdeathsig KILL \"$0\" \"$@\"", erl() | All],
    open_port({spawn_executable, "/bin/sh"}, [
        exit_status, stderr_to_stdout, binary, {env, [{"ERL_FLAGS", false}]}, {args, Leashed}
    ]).

%% Waits until the VM ends, and returns its output.
-spec ended(port(), timeout()) -> binary().
ended(Vm, Milliseconds) -> ended(Vm, Milliseconds, []).

ended(Vm, Milliseconds, Said) ->
    receive
        {Vm, {data, Data}} -> ended(Vm, Milliseconds, [Said, Data]);
        {Vm, {exit_status, 0}} -> iolist_to_binary(Said);
        {Vm, {exit_status, Status}} -> ct:fail({exit_status, Status, iolist_to_binary(Said)})
    after Milliseconds ->
        {os_pid, Pid} = erlang:port_info(Vm, os_pid),
        _ = os:cmd("kill -9 " ++ integer_to_list(Pid)),
        ct:fail({does_not_end, iolist_to_binary(Said)})
    end.

erl() ->
    filename:join([code:root_dir(), "bin", "erl"]).

paths() ->
    [filename:absname(Path) || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)].
