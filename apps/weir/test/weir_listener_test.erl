%% Shared by the suites of listeners: echo handlers and their clients.
-module(weir_listener_test).

-export([init_case/2]).
-export([end_case/1]).
-export([handler/1]).
-export([echo/2]).
-export([echo_loop/2]).
-export([is_port_of_tls/1]).
-export([recv/1]).
-export([send/2]).
-export([start/2]).
-export([connect/1]).
-export([ask/2]).
-export([is_served/1]).
-export([is_waiting/1]).
-export([count/1]).
-export([still_serves/1]).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

init_case(Case, Config) ->
    ok = weir_test_peer:silence_pollers(),
    [{name, Case} | weir_test_peer:init_case(Config)].

end_case(Config) ->
    [weir:stop_listener(Name) || Name <- weir:listeners()],
    _ = weir_test_peer:unsilence_pollers(),
    weir_test_peer:end_case(Config).

%% Echo handlers.

handler(function) -> fun ?MODULE:echo/2;
handler(Kind) when Kind =:= protocol; Kind =:= reactor -> list_to_atom("weir_listener_" ++ atom_to_list(Kind)).

echo(Socket, Args) ->
    case {is_port_of_tls(Socket), weir:proxy_header()} of
        {_, {ok, #{src_address := Address}}} -> send(Socket, inet:ntoa(Address));
        _ -> ok
    end,
    echo_loop(Socket, Args).

echo_loop(Socket, Args) ->
    case recv(Socket) of
        {ok, <<"pid">>} -> send(Socket, term_to_binary(self())), echo_loop(Socket, Args);
        {ok, Data} -> send(Socket, Data), echo_loop(Socket, Args);
        {error, _} -> ok
    end.

is_port_of_tls({'$inet', _, _}) -> false;
is_port_of_tls(_) -> true.

recv(Socket = {'$inet', _, _}) -> gen_tcp:recv(Socket, 0);
recv(Socket) -> ssl:recv(Socket, 0).

send(Socket = {'$inet', _, _}, Data) -> gen_tcp:send(Socket, Data);
send(Socket, Data) -> ssl:send(Socket, Data).

start(Config, Options) ->
    Name = ?config(name, Config),
    Address =
        case Options of
            #{fd := _} -> #{};
            _ -> #{ip => ?LOOPBACK}
        end,
    {ok, _} = weir:start_listener(Name, maps:merge(Address, Options), handler(?config(handler, Config)), args),
    weir:get_port(Name).

connect(Port) -> weir_test_peer:connect_raw(Port).

ask(Socket, Data) ->
    ok = gen_tcp:send(Socket, Data),
    gen_tcp:recv(Socket, iolist_size(Data), patience()).

is_served(Socket) ->
    ?assertEqual({ok, <<"hello">>}, ask(Socket, <<"hello">>)),
    Socket.

is_waiting(Socket) ->
    ok = gen_tcp:send(Socket, <<"hello">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 40)).

count(Config) -> maps:get(connections, weir:info(?config(name, Config))).

still_serves(Port) ->
    wait_until(fun() ->
        case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], 1000) of
            {ok, Socket} ->
                _ = gen_tcp:send(Socket, <<"hello">>),
                Answer = gen_tcp:recv(Socket, 5, 2000),
                ok = gen_tcp:close(Socket),
                Answer =:= {ok, <<"hello">>};
            {error, _} ->
                false
        end
    end).
