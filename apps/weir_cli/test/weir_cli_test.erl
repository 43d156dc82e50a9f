%% Shared by the suites of the command line: clients, and an example server as a program.
-module(weir_cli_test).

-export([closed/1]).
-export([exchange/2]).
-export([connect/1]).
-export([serve/3]).
-export([pid/1]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_cli_program, [start/2, line/1]).

%% TLS may send an alert before the close.
closed(Socket) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, _} -> closed(Socket);
        {error, Reason} -> ?assertEqual(closed, Reason)
    end.

exchange(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    ?assertEqual({ok, Data}, gen_tcp:recv(Socket, byte_size(Data), weir_test_wait:patience())).

connect(Port) ->
    gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], weir_test_wait:patience()).

serve(Config, Example, Options) ->
    Program = start(Config, ["run", atom_to_list(Example) | Options]),
    <<"ready ", Port/binary>> = line(Program),
    <<"pid ", Pid/binary>> = line(Program),
    Program#{port => binary_to_integer(Port), pid => Pid}.

pid(#{pid := Pid}) ->
    Pid.
