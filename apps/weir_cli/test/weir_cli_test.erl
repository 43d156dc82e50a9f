%% What the suites of the command line share: example servers as programs, and their clients.
-module(weir_cli_test).

-export([closed/1]).
-export([exchange/2]).
-export([connect/1]).
-export([backend/1]).
-export([serve/3]).
-export([in_every_mode/4]).
-export([pid/1]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_cli_program, [start/2, stop/1, line/1]).

-define(TIMEOUT, 60000).

%% It may have an alert to send first.
closed(Socket) ->
    case gen_tcp:recv(Socket, 0, ?TIMEOUT) of
        {ok, _} -> closed(Socket);
        {error, Reason} -> ?assertEqual(closed, Reason)
    end.

exchange(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    ?assertEqual({ok, Data}, gen_tcp:recv(Socket, byte_size(Data), ?TIMEOUT)).

connect(Port) ->
    gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], ?TIMEOUT).

backend(Config) ->
    case ?config(backend, Config) of
        undefined -> [];
        Backend -> ["--backend", atom_to_list(Backend)]
    end.

serve(Config, Example, Options) ->
    Program = start(Config, ["run", atom_to_list(Example)] ++ backend(Config) ++ Options),
    <<"ready ", Port/binary>> = line(Program),
    <<"pid ", Pid/binary>> = line(Program),
    Program#{port => binary_to_integer(Port), pid => Pid}.

%% A client for two connections of an example in each mode of `active': a server for each, all of them at the same time.
in_every_mode(Config, Example, Options, Client) ->
    Serve = fun(Mode) ->
        #{port := Port} = Program = serve(Config, Example, ["--active", Mode | Options]),
        Sockets = [Socket || _ <- [1, 2], {ok, Socket} <- [connect(Port)]],
        [_, _] = [Client(Socket) || Socket <- Sockets],
        0 = stop(Program),
        exit({shutdown, served})
    end,
    Modes = [{Mode, spawn_monitor(fun() -> Serve(Mode) end)} || Mode <- ["once", "true", "2", "false"]],
    [
        receive {'DOWN', Monitor, process, Pid, Reason} -> ?assertEqual({Mode, {shutdown, served}}, {Mode, Reason}) end
     || {Mode, {Pid, Monitor}} <- Modes
    ].

pid(#{pid := Pid}) ->
    Pid.
