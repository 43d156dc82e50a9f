%% A virtual machine that several cases use in turn. It ends with the VM of the tests, unless it is stopped before. A
%% case that may leave it in another state uses its own (weir_test_node:on_node/4).
-module(weir_test_machine).

-export([start/2]).
-export([stop/1]).
-export([on_machine/3]).

-type machine() :: {Holder :: pid(), Node :: pid()}.

-export_type([machine/0]).

%% For init_per_suite/1 or init_per_group/2, whose process ends. The arguments are a shell command to run first, and
%% arguments of the emulator.
-spec start(string(), [string()]) -> machine().
start(Command, Arguments) ->
    Self = self(),
    Holder = spawn(fun() ->
        Self ! {self(), weir_test_node:start_node(Command, Arguments)},
        receive stop -> ok end
    end),
    Monitor = monitor(process, Holder),
    receive
        {Holder, Node} ->
            true = demonitor(Monitor, [flush]),
            {Holder, Node};
        {'DOWN', Monitor, process, Holder, Reason} ->
            error({not_started, Reason})
    end.

-spec stop(machine()) -> ok.
stop({Holder, Node}) ->
    ok = peer:stop(Node),
    Holder ! stop,
    ok.

%% Runs a function of a suite as a case there. The configuration is that of the caller's group or suite.
-spec on_machine(module(), atom(), weir_test_peer:config()) -> ok.
on_machine(Suite, Case, Config) ->
    {_Holder, Node} = proplists:get_value(machine, Config),
    ok = peer:call(Node, weir_test_node, run_case, [Suite, Case], infinity).
