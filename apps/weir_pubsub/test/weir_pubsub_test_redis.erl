%% A Redis for a test, on a free port, without a file; and nodes that use it.
-module(weir_pubsub_test_redis).

-export([is_there/0]).
-export([start/1]).
-export([start/2]).
-export([kill/1]).
-export([ask/2]).
-export([node/1]).
-export([node/2]).
-export([on/4]).

is_there() -> program() =/= false.

program() ->
    case os:find_executable("redis-server") of
        false -> os:find_executable("valkey-server");
        Found -> Found
    end.

%% It ends with the process that started it: `cat' sees the end of its input then.
start(Port) -> start(Port, []).

start(Port, Others) ->
    Arguments = [
        "--port",
        integer_to_list(Port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        "/tmp"
        | Others
    ],
    Script = "\"$@\" >/dev/null 2>&1 & echo $!; cat >/dev/null; kill -9 $!",
    Run = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", Script, "sh", program() | Arguments]}, {line, 100}, binary
    ]),
    receive
        {Run, {data, {eol, Pid}}} ->
            ok = weir_test_wait:wait_until(fun() -> answers(Port) end),
            {Run, binary_to_list(Pid)}
    after weir_test_wait:patience() -> error(no_redis)
    end.

answers(Port) ->
    %% It may need a password.
    try ask(Port, ["PING"]) of
        _ -> true
    catch
        error:Reason -> Reason
    end.

%% Kills it without a warning. It is dead when this returns: until then it would answer on the port of the next one.
kill({Run, Pid}) ->
    true = port_close(Run),
    weir_test_wait:wait_until(fun() -> is_dead(Pid) end).

%% It may be dead and not reaped yet.
is_dead(Pid) ->
    case file:read_file("/proc/" ++ Pid ++ "/stat") of
        {ok, Stat} -> hd(string:lexemes(lists:last(string:split(Stat, ")", all)), " ")) =:= <<"Z">>;
        {error, _} -> true
    end.

%% Sends a command over its own connection.
ask(Port, Words) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], weir_test_wait:patience()),
    ok = gen_tcp:send(Socket, weir_pubsub_resp:command(Words)),
    Reply = reply(Socket, <<>>),
    ok = gen_tcp:close(Socket),
    Reply.

reply(Socket, Bytes) ->
    {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    case weir_pubsub_resp:decode(<<Bytes/binary, More/binary>>) of
        {ok, Value, <<>>} -> Value;
        {more, _} -> reply(Socket, <<Bytes/binary, More/binary>>)
    end.

%% Starts a virtual machine whose channels are in that Redis. It ends with the caller.
node(Broker) -> node(Broker, []).

node(Broker, Arguments) ->
    Paths = lists:append([["-pa", Path] || Path <- code:get_path(), string:find(Path, "_build") =/= nomatch]),
    {ok, Peer, _} = peer:start_link(#{
        connection => standard_io,
        %% Two shards, whatever the flags of this virtual machine.
        env => [{Flags, ""} || Flags <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"]],
        args => ["+S", "2", "+sbwt", "none"] ++ Paths ++ Arguments,
        wait_boot => weir_test_wait:patience()
    }),
    ok = on(Peer, application, load, [weir_pubsub]),
    ok = on(Peer, application, set_env, [weir_pubsub, broker, Broker]),
    {ok, _} = on(Peer, application, ensure_all_started, [weir_pubsub]),
    Peer.

%% Calls a function in a node.
on(Node, Module, Function, Arguments) -> peer:call(Node, Module, Function, Arguments, weir_test_wait:patience()).
