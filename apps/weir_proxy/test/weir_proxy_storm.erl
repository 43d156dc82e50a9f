%% Connections that verify every byte while servers die and restart and the configuration changes.
-module(weir_proxy_storm).

-include_lib("stdlib/include/assert.hrl").

-export([run/2]).

-define(SERVER, weir_proxy_backend_double).

%% Two servers stay, and one is killed and started again with each change. `Connections' clients connect, exchange
%% bytes and connect again, until there were `Changes' changes. Fails if a connection to a server that stayed was lost,
%% got a wrong byte, or was not opened.
run(Connections, Changes) ->
    Patience = weir_test_wait:patience(),
    Steady = [?SERVER:start(Name) || Name <- ["s", "t"]],
    Mortal = ?SERVER:start("m"),
    Config = fun(Number, Port) ->
        Servers = [
            #{name => <<"m">>, address => ?SERVER:address(Mortal)}
            | [
                #{name => integer_to_binary(N), address => ?SERVER:address(Each), weight => 1 + (N + Number) rem 3}
             || {N, Each} <- lists:zip([1, 2], Steady)
            ]
        ],
        Balance = lists:nth(1 + Number rem 4, [round_robin, least_connections, random, hash]),
        #{
            frontends => #{
                front => #{
                    listen => iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]),
                    backend => integer_to_binary(Number rem 3)
                }
            },
            backends => #{integer_to_binary(Number rem 3) => #{servers => Servers, balance => Balance, retries => 10}}
        }
    end,
    ok = weir_proxy:start(storm, Config(0, 0)),
    {ok, #{frontends := #{<<"front">> := #{listen := [<<"127.0.0.1:", Port/binary>>]}}}} = weir_proxy:info(storm),
    Stop = counters:new(1, []),
    Clients = [
        spawn_monitor(fun() -> exit({done, client({binary_to_integer(Port), Patience}, Stop, 0)}) end)
     || _ <- lists:seq(1, Connections)
    ],
    Last = lists:foldl(
        fun(Number, Server) ->
            ok = ?SERVER:stop(Server),
            ok = weir_proxy:change(storm, Config(Number, 0)),
            timer:sleep(20),
            ?SERVER:start("m", [{port, ?SERVER:port(Mortal)}])
        end,
        Mortal,
        lists:seq(1, Changes)
    ),
    ok = counters:add(Stop, 1, 1),
    Results = [
        receive
            {'DOWN', Monitor, process, Pid, Reason} -> Reason
        after Patience -> timeout
        end
     || {Pid, Monitor} <- Clients
    ],
    [ok = ?SERVER:stop(Server) || Server <- [Last | Steady]],
    ?assertEqual([], [Result || Result <- Results, not is_tuple(Result) orelse element(1, Result) =/= done]),
    Exchanged = lists:sum([Count || {done, Count} <- Results]),
    ?assert(Exchanged >= Connections),
    ok = weir_proxy:stop(storm).

%% Opens one connection after the other, each with a few exchanges.
client(To = {Port, Patience}, Stop, Count) ->
    case counters:get(Stop, 1) of
        1 when Count > 0 -> Count;
        _ ->
            client(
                To,
                Stop,
                Count + connection(gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], Patience), Patience)
            )
    end.

%% A killed server may reset a connection before connect returns.
connection({error, econnreset}, _Patience) ->
    0;
connection({ok, Socket}, Patience) ->
    Exchanged =
        case gen_tcp:recv(Socket, 2, Patience) of
            {ok, <<Name:1/binary, "\n">>} -> exchange(Socket, Name, Patience, 5);
            %% The server was killed after accept and before its greeting.
            {error, Ended} when Ended =:= closed; Ended =:= econnreset -> 0
        end,
    ok = gen_tcp:close(Socket),
    Exchanged.

exchange(_Socket, _Name, _Patience, 0) ->
    1;
exchange(Socket, Name, Patience, Left) ->
    Data = rand:bytes(rand:uniform(20_000)),
    Result =
        case gen_tcp:send(Socket, Data) of
            ok -> gen_tcp:recv(Socket, byte_size(Data), Patience);
            {error, _} = Error -> Error
        end,
    case {Result, Name} of
        {{ok, Data}, _} -> exchange(Socket, Name, Patience, Left - 1);
        {{ok, _Wrong}, _} -> exit(wrong_bytes);
        {{error, Reason}, <<"m">>} when Reason =/= timeout -> 0;
        {{error, Reason}, _} -> exit({lost, Name, Reason})
    end.
