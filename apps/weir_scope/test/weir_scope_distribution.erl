%% Erlang's distribution for a suite, where the node of the tests has none.
-module(weir_scope_distribution).

-export([start/1, stop/1]).

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
