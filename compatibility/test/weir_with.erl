%% Shared by the suites of this application: the sockets under test, the check that they are Weir's, and the check
%% that none is left.
-module(weir_with).

-include_lib("common_test/include/ct.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-export([init_group/2]).
-export([needs/2]).
-export([start_node/0, hold/3, release/0]).
-export([on_weir/1, on_weir/2]).
-export([call/4]).
-export([nothing_left/0, nothing_left/1]).
-export([program/2, program/3]).
-export([bytes/1]).

-type config() :: [{atom(), term()}].

%% Groups `stock' and `weir' run the same cases. Adds the socket options that make the difference to the
%% configuration.
-spec init_group(stock | weir, config()) -> config().
init_group(stock, Config) ->
    [{on, stock}, {backend, []} | Config];
init_group(weir, Config) ->
    {ok, _} = application:ensure_all_started(weir),
    [{on, weir}, {backend, [{tcp_module, weir_tcp}]} | Config].

%% Returns the configuration, or the reason to skip: modules are looked up in the code path, programs in PATH.
-spec needs([module() | string()], config()) -> config() | {skip, string()}.
needs(Wanted, Config) ->
    case [Name || Name <- Wanted, not found(Name)] of
        [] -> Config;
        Missing -> {skip, lists:flatten(io_lib:format("not here: ~0p", [Missing]))}
    end.

found(yaws) ->
    %% Debian installs it outside of OTP's lib directory.
    _ = code:add_pathz("/usr/lib/yaws/ebin"),
    code:which(yaws) =/= non_existing;
found(elixir) ->
    _ = code:add_pathsz(filelib:wildcard("/usr/lib/elixir/lib/{elixir,logger}/ebin")),
    code:which(elixir) =/= non_existing;
found(Module) when is_atom(Module) ->
    code:which(Module) =/= non_existing;
found(Program) -> os:find_executable(Program) =/= false.

%% Starts a virtual machine with this one's code, for a server that changes the whole VM. It ends with the caller.
-spec start_node() -> pid().
start_node() ->
    Paths = [filename:absname(Path) || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)],
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io, wait_boot => weir_test_wait:patience(), args => ["-pa" | Paths]
    }),
    Peer.

%% Calls a function there. The default limit of peer:call is five seconds.
-spec call(pid(), module(), atom(), [term()]) -> term().
call(Node, Module, Function, Arguments) -> peer:call(Node, Module, Function, Arguments, weir_test_wait:patience()).

%% Calls a function in a process that lives until release/0, for resources that are lost with their creator.
-spec hold(module(), atom(), [term()]) -> term().
hold(Module, Function, Arguments) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        true = register(?MODULE, self()),
        Self ! {self(), apply(Module, Function, Arguments)},
        receive release -> ok end
    end),
    receive
        {Pid, Result} -> demonitor(Monitor, [flush]), Result;
        {'DOWN', Monitor, process, Pid, Reason} -> exit(Reason)
    end.

-spec release() -> ok.
release() ->
    Monitor = monitor(process, ?MODULE),
    ?MODULE ! release,
    receive {'DOWN', Monitor, process, _, _} -> ok end.

%% Whether a socket of Weir's listens on this port.
-spec on_weir(inet:port_number()) -> boolean().
on_weir(Port) ->
    lists:any(
        fun(Socket) ->
            case {inet:sockname(Socket), inet:peername(Socket)} of
                {{ok, {_, Port}}, {error, enotconn}} -> true;
                _ -> false
            end
        end,
        weir:sockets()
    ).

-spec on_weir(pid(), inet:port_number()) -> boolean().
on_weir(Node, Port) ->
    call(Node, ?MODULE, on_weir, [Port]).

%% Waits until no socket of Weir's is open: servers close theirs in their own processes.
-spec nothing_left() -> ok.
nothing_left() ->
    [] = ?waitEqual([], [{Socket, inet:info(Socket)} || Socket <- weir:sockets()]),
    ok.

-spec nothing_left(pid()) -> ok.
nothing_left(Node) ->
    [] = ?waitEqual([], call(Node, weir, sockets, [])),
    ok.

%% Runs a program and returns its exit status and its combined output.
-spec program(string(), [string()]) -> {Status :: non_neg_integer(), Output :: binary()}.
program(Name, Arguments) ->
    program(Name, Arguments, []).

-spec program(string(), [string()], [term()]) -> {Status :: non_neg_integer(), Output :: binary()}.
program(Name, Arguments, Options) ->
    {Executable, All} = weir_program:with_us(os:find_executable(Name), Arguments),
    Port = open_port({spawn_executable, Executable}, [
        {args, All}, exit_status, binary, stderr_to_stdout, hide | Options
    ]),
    output(Port, []).

output(Port, Output) ->
    receive
        {Port, {data, Data}} -> output(Port, [Output | Data]);
        {Port, {exit_status, Status}} -> {Status, iolist_to_binary(Output)}
    after 2 * weir_test_wait:patience() ->
        ct:fail({still_running, iolist_to_binary(Output)})
    end.

%% This many bytes in which no two places look alike.
-spec bytes(non_neg_integer()) -> binary().
bytes(Size) ->
    rand:bytes(Size).
