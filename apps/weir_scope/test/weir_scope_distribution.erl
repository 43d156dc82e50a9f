%% Erlang's distribution for a suite, where the node of the tests has none, and nodes to be looked at.
-module(weir_scope_distribution).

-compile({no_auto_import, [node/1]}).

-export([start/1, stop/1, node/1, node/2, bring/2, application/2, load/3, next/1]).

%% Whether it was started now. The daemon may not listen yet when the command that starts it ends.
start(Name) ->
    not is_alive() andalso begin
        _ = os:cmd("epmd -daemon"),
        ok = listens(200),
        {ok, _} = net_kernel:start(list_to_atom(Name ++ "_" ++ os:getpid() ++ "@127.0.0.1"), #{name_domain => longnames}),
        true
    end.

stop(true) -> net_kernel:stop();
stop(false) -> ok.

listens(0) ->
    {error, no_epmd};
listens(Times) ->
    case erl_epmd:names({127, 0, 0, 1}) of
        {ok, _} -> ok;
        {error, _} -> timer:sleep(50), listens(Times - 1)
    end.

%% A node as somebody starts it, with these arguments.
node(Arguments) -> node(Arguments, #{}).

node(Arguments, Options) ->
    {ok, Peer, Node} = peer:start(maps:merge(
        #{
            name => peer:random_name(), host => "127.0.0.1", longnames => true, connection => standard_io,
            args => ["-setcookie", atom_to_list(erlang:get_cookie()) | Arguments]
        },
        Options
    )),
    {Peer, Node}.

%% A module of the tests there.
bring(Peer, Module) ->
    {Module, Beam, File} = code:get_object_code(Module),
    {module, Module} = peer:call(Peer, code, load_binary, [Module, File, Beam]).

%% The application there, started.
application(Peer, Application) ->
    true = peer:call(Peer, code, add_patha, [filename:dirname(code:which(Application))]),
    {ok, _} = peer:call(Peer, application, ensure_all_started, [Application]).

%% A process there of weir_scope_load that says when it is ready.
load(Node, Function, Arguments) ->
    Pid = erlang:spawn(Node, weir_scope_load, Function, [self() | Arguments]),
    receive {Pid, ready} -> Pid after 30_000 -> ct:fail({not_ready, Function}) end.

%% The sample after the present one.
next(View) ->
    {ok, #{at := At}} = weir_scope:sample(View),
    next(View, At).

next(View, At) ->
    case weir_scope:sample(View) of
        {ok, #{at := At}} -> timer:sleep(20), next(View, At);
        {ok, Sample} -> Sample
    end.
