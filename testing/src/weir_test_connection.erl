%% @doc The connection over which a worker reports its tests to the runner. When the runner closes it, the worker
%% ends, and with it everything that its cases have started.
-module(weir_test_connection).

-export([open/2]).
-export([tell/1]).

-export_type([event/0, outcome/0]).

-type outcome() :: passed | {skipped, Reason :: term()} | {failed, Reason :: term()}.
%% `planned' is the number of cases that Common Test will run. Times are in milliseconds.
-type event() ::
    {hello, Number :: pos_integer()}
    | {planned, non_neg_integer()}
    | {started, Suite :: module(), Groups :: [atom()], Case :: atom() | string()}
    | {result, Suite :: module(), Groups :: [atom()], Case :: atom() | string(), Time :: non_neg_integer(), outcome()}
    | {broken, Reason :: term()}
    | finished.

%% @doc Connects to the runner on a port of 127.0.0.1 as the worker with this number, and returns the runner's order.
%% The virtual machine halts when the runner closes the connection.
-spec open(inet:port_number(), pos_integer()) -> term().
open(Port, Number) ->
    Caller = self(),
    true = register(?MODULE, spawn(fun() -> connect(Port, Number, Caller) end)),
    receive
        {?MODULE, Wanted} -> Wanted
    end.

%% @doc Reports an event to the runner. It has been sent when this returns: the case that begins may end the virtual
%% machine. The process is registered because Common Test keeps the arguments of its event handlers in a file, which can
%% hold neither a fun nor a pid.
-spec tell(event()) -> ok.
tell(Event) ->
    Monitor = monitor(process, ?MODULE),
    ?MODULE ! {tell, {self(), Monitor}, Event},
    receive
        {Monitor, sent} -> true = demonitor(Monitor, [flush]);
        {'DOWN', Monitor, process, _, _} -> true
    end,
    ok.

connect(Port, Number, Caller) ->
    {ok, Runner} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {packet, 4}, {active, true}, {nodelay, true}]),
    ok = send(Runner, {hello, Number}),
    loop(Runner, Caller).

loop(Runner, Caller) ->
    receive
        {tell, {Pid, Monitor}, Event} ->
            _ = send(Runner, Event),
            Pid ! {Monitor, sent},
            Event =:= finished andalso receive {tcp_closed, Runner} -> halt(0, [{flush, false}]) end,
            loop(Runner, Caller);
        {tcp, Runner, Wanted} ->
            Caller ! {?MODULE, binary_to_term(Wanted)},
            loop(Runner, Caller);
        {tcp_closed, Runner} ->
            _ = weir_test_processes:kill_marked(os:getenv("WEIR_TEST_RUN")),
            halt(1, [{flush, false}])
    end.

send(Runner, Event) -> gen_tcp:send(Runner, term_to_binary(Event)).
