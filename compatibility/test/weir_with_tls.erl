%% Pairs of TLS connections on the sockets under test, and processes that serve them.
-module(weir_with_tls).

-export([tls/2]).
-export([anonymous/1]).
-export([listen/2]).
-export([async/1]).
-export([async/2]).
-export([await/1]).
-export([close/1]).
-export([receive_bytes/3]).
-export([certificate/2]).

-include_lib("common_test/include/ct.hrl").

-define(LOCALHOST, {127, 0, 0, 1}).

tls(Side, Config) ->
    Certificates = maps:get(Side, ?config(certificates, Config)),
    Verify = [{verify, verify_none} || Side =:= client],
    Verify ++ [{versions, [?config(version, Config)]}, binary, {active, false} | Certificates].

anonymous(Config) ->
    [{verify, verify_none}, {versions, [?config(version, Config)]}, binary, {active, false} | ?config(backend, Config)].

listen(Config, Options) ->
    {ok, Listener} = ssl:listen(0, ?config(backend, Config) ++ [{ip, ?LOCALHOST} | Options ++ tls(server, Config)]),
    {ok, {_, Port}} = ssl:sockname(Listener),
    {Listener, Port}.

%% Runs a function in a new process, which lives until its result is fetched.
async(Fun) ->
    async(Fun, fun(_) -> ok end).

async(Fun, Before) ->
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        receive go -> ok end,
        Result = Fun(),
        hand_back(Result, Self),
        Self ! {self(), Result}
    end),
    ok = Before(Pid),
    Pid ! go,
    {Pid, Monitor}.

hand_back({ok, Socket}, To) when element(1, Socket) =:= sslsocket -> _ = ssl:controlling_process(Socket, To);
hand_back(_Result, _To) -> ok.

await({Pid, Monitor}) ->
    receive
        {Pid, Result} -> demonitor(Monitor, [flush]), Result;
        {'DOWN', Monitor, process, Pid, Reason} -> ct:fail(Reason)
    after 2 * weir_test_wait:patience() -> ct:fail({no_result, process_info(Pid, current_stacktrace)})
    end.

close(Sockets) ->
    [_ = ssl:close(Socket) || Socket <- Sockets],
    ok.

receive_bytes(Socket, false, Size) ->
    {ok, Data} = ssl:recv(Socket, Size, weir_test_wait:patience()),
    Data;
receive_bytes(Socket, Mode, Size) ->
    receive_bytes(Socket, Mode, Size, []).

receive_bytes(_Socket, _Mode, 0, Data) ->
    iolist_to_binary(Data);
receive_bytes(Socket, Mode, Size, Data) ->
    receive
        {ssl, Socket, Part} ->
            [ok = ssl:setopts(Socket, [{active, once}]) || Mode =:= once],
            receive_bytes(Socket, Mode, Size - byte_size(Part), [Data | Part]);
        {ssl_passive, Socket} ->
            ok = ssl:setopts(Socket, [{active, Mode}]),
            receive_bytes(Socket, Mode, Size, Data)
    after weir_test_wait:patience() -> ct:fail({missing, Size})
    end.

certificate(Side, Config) ->
    proplists:get_value(cert, maps:get(Side, ?config(certificates, Config))).
