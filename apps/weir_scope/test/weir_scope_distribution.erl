%% Starts Erlang's distribution for a suite if the node of the tests has none, and nodes to look at.
-module(weir_scope_distribution).

-include_lib("weir_testing/include/weir_test.hrl").

-compile({no_auto_import, [node/1]}).

-export([start/1, stop/1, node/1, node/2, bring/2, add_code/2, application/2, load/3, call/4, view/1, view/2, next/1]).

%% Returns whether distribution was started now. epmd may not listen yet when the command that starts it ends.
start(Name) ->
    not is_alive() andalso
        begin
            _ = os:cmd("epmd -daemon"),
            {ok, _} = ?waitMatch({ok, _}, erl_epmd:names({127, 0, 0, 1})),
            {ok, _} = net_kernel:start(list_to_atom(Name ++ "_" ++ os:getpid() ++ "@127.0.0.1"), #{
                name_domain => longnames
            }),
            true
        end.

stop(true) -> net_kernel:stop();
stop(false) -> ok.

%% Starts a node with these arguments.
node(Arguments) -> node(Arguments, #{}).

node(Arguments, Options) ->
    {ok, Peer, Node} = peer:start(
        maps:merge(
            #{
                name => peer:random_name(),
                wait_boot => weir_test_wait:patience(),
                host => "127.0.0.1",
                longnames => true,
                connection => standard_io,
                %% The flags of the tests do not apply to the node.
                env => [{Flags, ""} || Flags <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"]],
                args => ["-setcookie", atom_to_list(erlang:get_cookie()) | Arguments]
            },
            Options
        )
    ),
    {Peer, Node}.

%% Like peer:call/4, which only waits for five seconds.
call(Peer, Module, Function, Arguments) -> peer:call(Peer, Module, Function, Arguments, weir_test_wait:patience()).

%% Loads a module of the tests there.
bring(Peer, Module) ->
    {Module, Beam, File} = code:get_object_code(Module),
    {module, Module} = call(Peer, code, load_binary, [Module, File, Beam]).

%% Adds the code of an application there, and that of weir_formats, which weir_scope needs.
add_code(Peer, Application) ->
    Paths = [filename:dirname(code:which(Module)) || Module <- [Application, weir_json]],
    ok = call(Peer, code, add_pathsa, [Paths]).

%% Starts an application there.
application(Peer, Application) ->
    ok = add_code(Peer, Application),
    {ok, _} = call(Peer, application, ensure_all_started, [Application]).

%% Starts a process of weir_scope_load there, and waits until it is ready.
load(Node, Function, Arguments) ->
    Pid = erlang:spawn(Node, weir_scope_load, Function, [self() | Arguments]),
    receive {Pid, ready} -> Pid after weir_test_wait:patience() -> ct:fail({not_ready, Function}) end.

view(Node) -> view(Node, true).

%% Opens a view of a node that may be slow.
view(Node, Load) ->
    {ok, View} = weir_scope:open(Node, #{load => Load, patience => weir_test_wait:patience()}),
    View.

%% Waits for the sample after the present one.
next(View) ->
    {ok, #{at := At}} = weir_scope:sample(View),
    Later = fun
        ({ok, #{at := Now}}) -> Now =/= At;
        (Failure) -> error(Failure)
    end,
    %% Asking more often would change the figures.
    {ok, Sample} = weir_test_wait:wait_match(
        fun() ->
            timer:sleep(30),
            weir_scope:sample(View)
        end,
        Later,
        #{expected => {sample, later, At}}
    ),
    Sample.
