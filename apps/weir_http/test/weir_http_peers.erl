%% Servers of others for comparison: nginx, Node's http and Python's h11. Each
%% answers a request with what it understood, `METHOD TARGET LENGTH', on its own unix socket.
-module(weir_http_peers).

-export([start/0, stop/1, file/1]).

-include_lib("weir_testing/include/weir_test.hrl").

-define(NAMES, [nginx, node, h11]).

%% Starts the peers. Returns their sockets, or the names of those that are not installed. They run until stop/1, even
%% if the caller ends.
start() ->
    Found = [{Name, program(Name)} || Name <- ?NAMES],
    case [Name || {Name, none} <- Found] of
        [] ->
            Directory = directory(),
            ok = filelib:ensure_path(Directory),
            Self = self(),
            Owner = spawn(fun() -> own(Self, Found, Directory) end),
            receive
                {Owner, Sockets} -> {ok, #{owner => Owner, sockets => Sockets}}
            after 2 * weir_test_wait:patience() -> error(peers_do_not_start)
            end;
        Missing ->
            {skip, lists:flatten(io_lib:format("not here: ~0p (scripts/setup test)", [Missing]))}
    end.

stop(#{owner := Owner}) ->
    Monitor = monitor(process, Owner),
    Owner ! stop,
    receive {'DOWN', Monitor, process, Owner, _} -> ok end.

%% The peers end when their standard input is closed.
own(Starter, Found, Directory) ->
    Started = [begin_with(Name, Program, Directory) || {Name, Program} <- Found],
    Starter ! {self(), [{Name, ready(Socket)} || {Name, _, Socket} <- Started]},
    receive stop -> ok end,
    _ = [port_close(Port) || {_, Port, _} <- Started],
    _ = file:del_dir_r(Directory).

%% The path of a unix socket has at most 107 bytes.
directory() ->
    filename:join("/tmp", "weir-peers-" ++ os:getpid() ++ "-" ++ integer_to_list(erlang:unique_integer([positive]))).

%% Debian installs nginx in a directory for root, and Python modules for its own Python.
program(nginx) ->
    found(os:find_executable("nginx", os:getenv("PATH") ++ ":/usr/sbin"));
program(node) ->
    found(os:find_executable("node"));
program(h11) ->
    Pythons = [Python || Python <- [os:find_executable("python3"), "/usr/bin/python3"], is_list(Python)],
    case [Python || Python <- Pythons, os:cmd(Python ++ " -c 'import h11; print(11)' 2>/dev/null") =:= "11\n"] of
        [Python | _] -> Python;
        [] -> none
    end.

found(false) -> none;
found(Program) -> Program.

begin_with(nginx, Nginx, Directory) ->
    {ok, _} = file:copy(peer("nginx.conf"), filename:join(Directory, "nginx.conf")),
    Command = "\"$0\" -p . -c nginx.conf & read -r _; kill $!",
    {nginx, run("/bin/sh", ["-c", Command, Nginx], Directory), filename:join(Directory, "nginx.sock")};
begin_with(Name, Program, Directory) ->
    Socket = filename:join(Directory, atom_to_list(Name) ++ ".sock"),
    {Name, run(Program, [peer(script(Name)), Socket], Directory), Socket}.

script(node) -> "node_peer.js";
script(h11) -> "h11_peer.py".

run(Program, Arguments, Directory) ->
    open_port({spawn_executable, Program}, [{args, Arguments}, {cd, Directory}, binary]).

ready(Socket) ->
    {ok, Connection} = ?waitMatch({ok, _}, gen_tcp:connect({local, Socket}, 0, [])),
    ok = gen_tcp:close(Connection),
    Socket.

peer(Name) -> file(filename:join("apps/weir_http/test/peers", Name)).

%% Returns the path of a file in the source tree.
file(Name) -> filename:join(tree(filename:dirname(code:which(?MODULE))), Name).

tree(Directory) ->
    case filelib:is_regular(filename:join([Directory, "bin", "weir"])) of
        true -> Directory;
        false -> tree(filename:dirname(Directory))
    end.
