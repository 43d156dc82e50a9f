%% @doc Replaces gen_tcp in the copies of OTP's suites that run on Weir (see {@link weir_conformance_transform}).
%%
%% A bare `inet', `inet6' or `local' among the options, or a local address, makes gen_tcp choose OTP's own module
%% instead of the VM's. Here it becomes Weir's module of that family, for example `{tcp_module, weir_tcp6}'. Calls
%% that name no family are unchanged, as in an unmodified program: they use the module of the VM.
%%
%% Every requested socket is counted, by the module that serves it.
-module(weir_conformance_gen_tcp).

-export([start_counting/0]).
-export([counts/0]).

-export([listen/2]).
-export([connect/2]).
-export([connect/3]).
-export([connect/4]).
-export([fdopen/2]).

-export([process_info/2]).
-export([port_info/1]).
-export([port_info/2]).
-export([getfd/1]).
-export([ignorefd/2]).
-export([getstatus/1]).

-define(COUNTERS, {?MODULE, counters}).
-define(ON_WEIR, 1).
-define(ELSEWHERE, 2).
%% Tells the nodes that a suite starts, which inherit the environment, where the counters are.
-define(COUNTING_NODE, "WEIR_CONFORMANCE_NODE").

%% @doc Starts counting the sockets of this node and of the nodes that it starts from now on.
-spec start_counting() -> ok.
start_counting() ->
    Counters = counters:new(2, []),
    persistent_term:put(?COUNTERS, Counters),
    true = register(?MODULE, spawn(fun() -> count_for_others(Counters) end)),
    true = os:putenv(?COUNTING_NODE, atom_to_list(node())),
    ok.

count_for_others(Counters) ->
    receive
        {count, Server} -> counters:add(Counters, Server, 1)
    end,
    count_for_others(Counters).

count(Server) ->
    case {persistent_term:get(?COUNTERS, undefined), os:getenv(?COUNTING_NODE)} of
        {undefined, false} ->
            ok;
        {undefined, Node} ->
            {?MODULE, list_to_atom(Node)} ! {count, Server},
            ok;
        {Counters, _} ->
            counters:add(Counters, Server, 1)
    end.

%% @doc Returns how many sockets were requested since then: Weir's, and all others.
-spec counts() -> {OnWeir :: non_neg_integer(), Elsewhere :: non_neg_integer()}.
counts() ->
    Counters = persistent_term:get(?COUNTERS),
    {counters:get(Counters, ?ON_WEIR), counters:get(Counters, ?ELSEWHERE)}.

%%% gen_tcp.

-spec listen(term(), term()) -> term().
listen(Port, Options) ->
    gen_tcp:listen(Port, on_weir(undefined, Options)).

-spec connect(term(), term()) -> term().
connect(SocketAddress, Options) ->
    gen_tcp:connect(SocketAddress, on_weir(SocketAddress, Options)).

-spec connect(term(), term(), term()) -> term().
connect(SocketAddress, Options, Timeout) when is_map(SocketAddress) ->
    gen_tcp:connect(SocketAddress, on_weir(SocketAddress, Options), Timeout);
connect(Address, Port, Options) ->
    gen_tcp:connect(Address, Port, on_weir(Address, Options)).

-spec connect(term(), term(), term(), term()) -> term().
connect(Address, Port, Options, Timeout) ->
    gen_tcp:connect(Address, Port, on_weir(Address, Options), Timeout).

-spec fdopen(term(), term()) -> term().
fdopen(Descriptor, Options) ->
    gen_tcp:fdopen(Descriptor, on_weir(undefined, Options)).

%% Adds `tcp_module' to the options: Weir's module of the family if gen_tcp, which calls the same functions of inet,
%% would use a TCP module. Options that are not a list stay as they are.
on_weir(Address, Options) ->
    try inet:gen_tcp_module(Options) of
        {gen_tcp, Plain} ->
            {Module, Others} = inet:tcp_module(Plain, Address),
            count(?ON_WEIR),
            [{tcp_module, of_family(Module)} | Others];
        {_Backend, _} ->
            count(?ELSEWHERE),
            Options
    catch
        error:_ -> Options
    end.

of_family(inet_tcp) -> weir_tcp;
of_family(inet6_tcp) -> weir_tcp6;
of_family(local_tcp) -> weir_local;
of_family(Module) -> Module.

%%% Information about ports, translated for sockets that are not ports.

%% A process that waits in accept of Weir is reported as waiting in prim_inet:accept0.
-spec process_info(pid(), atom() | [atom()]) -> term().
process_info(Pid, current_function) ->
    case erlang:process_info(Pid, current_function) of
        {current_function, {weir_operation, await_until, _}} -> {current_function, {prim_inet, accept0, 3}};
        Info -> Info
    end;
process_info(Pid, Items) ->
    erlang:process_info(Pid, Items).

-spec port_info(term()) -> term().
port_info({'$inet', _, _} = Socket) -> maps:to_list(inet:info(Socket));
port_info(Port) -> erlang:port_info(Port).

-spec port_info(term(), term()) -> term().
port_info({'$inet', _, _} = Socket, Item) ->
    case {inet:info(Socket), Item} of
        {#{states := [closed]}, _} -> undefined;
        {#{counters := #{send_pend := Size}}, queue_size} -> {queue_size, Size};
        {#{owner := Owner}, connected} -> {connected, Owner};
        {_, links} -> {links, []}
    end;
port_info(Port, Item) ->
    erlang:port_info(Port, Item).

-spec getfd(term()) -> term().
getfd({'$inet', _, _} = Socket) ->
    case inet:info(Socket) of
        #{fd := Descriptor} -> {ok, Descriptor};
        _ -> {error, einval}
    end;
getfd(Port) ->
    prim_inet:getfd(Port).

%% Weir adds a descriptor to its poller at the first wait, so there is nothing to ignore.
-spec ignorefd(term(), boolean()) -> term().
ignorefd({'$inet', _, _}, _Ignore) -> ok;
ignorefd(Port, Ignore) -> prim_inet:ignorefd(Port, Ignore).

-spec getstatus(term()) -> term().
getstatus({'$inet', _, _} = Socket) ->
    case inet:info(Socket) of
        #{states := [closed]} -> {error, einval};
        #{states := States} -> {ok, States}
    end;
getstatus(Port) ->
    prim_inet:getstatus(Port).
