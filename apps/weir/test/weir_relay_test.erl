%% What the suites of relays share. After each case there are as many relays as before it.
-module(weir_relay_test).

-export([init_case/1]).
-export([end_case/1]).
-export([relay/1]).
-export([relay/2]).
-export([pair/1]).
-export([ended/2]).
-export([carried/3]).
-export([is_closed/1]).
-export([end_of/1]).
-export([sender/2]).
-export([drain/1]).
-export([fill/1]).
-export([fill/3]).
-export([owned_relay/2]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/2, socket_pair/3, async/1, await/1, pid/1]).
-import(weir_test_wait, [next_message/0, recv_exactly/2]).

-define(PATIENCE, 10000).

init_case(Config) ->
    [{relays, length(weir:relays())} | weir_test_peer:init_case(Config)].

end_case(Config) ->
    case weir_test_peer:end_case(Config) of
        ok ->
            case weir_test_wait:becomes_true(fun() -> length(weir:relays()) =< proplists:get_value(relays, Config) end, ?PATIENCE) of
                true -> ok;
                false -> {fail, {relays_left, weir:relays()}}
            end;
        Fail ->
            Fail
    end.

%% Two stock peers with a relay of the caller's between them.
relay(Config) ->
    relay(Config, #{}).

relay(Config, Options) ->
    {A, Client} = pair(Config),
    {B, Server} = pair(Config),
    {ok, Relay} = weir:relay(A, B, Options),
    {Relay, Client, Server}.

%% A peer that has heard the end may still have something to say.
pair(Config) ->
    socket_pair(Config, [binary, {active, false}, {nodelay, true}], [{exit_on_close, false}]).

ended(Relay, Result) ->
    {weir_relay, Relay, Result, Statistics} = next_message(),
    ?assertEqual({error, closed}, weir:relay_info(Relay)),
    Statistics.

carried(From, To, Data) ->
    ok = gen_tcp:send(From, Data),
    ?assertEqual(Data, recv_exactly(To, byte_size(Data))).

is_closed(Socket) ->
    {error, Reason} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    Reason.

%% How a connection ended, where a reset is told apart.
end_of(Socket) ->
    ok = inet:setopts(Socket, [{show_econnreset, true}]),
    is_closed(Socket).

sender(Socket, Data) ->
    async(fun() ->
        ok = gen_tcp:send(Socket, Data),
        gen_tcp:shutdown(Socket, write)
    end).

drain(Socket) ->
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, _} -> drain(Socket);
        {error, Reason} -> Reason
    end.

%% Sends until nothing is taken any more; returns how much was.
fill(Socket) ->
    ok = inet:setopts(Socket, [{send_timeout, 1000}, {high_watermark, 1}, {low_watermark, 1}]),
    fill(Socket, binary:copy(<<"x">>, 65536), 0).

fill(Socket, Data, Sent) ->
    case gen_tcp:send(Socket, Data) of
        ok -> fill(Socket, Data, Sent + byte_size(Data));
        {error, timeout} -> Sent
    end.

owned_relay(Config, Options) ->
    Owner = async(fun() ->
        receive
            {relay, A, B} ->
                {ok, Relay} = weir:relay(A, B, Options),
                Relay
        end
    end),
    {A, Client} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
    {B, Server} = socket_pair(Config, [binary, {active, false}, {nodelay, true}]),
    ok = gen_tcp:controlling_process(A, pid(Owner)),
    ok = gen_tcp:controlling_process(B, pid(Owner)),
    pid(Owner) ! {relay, A, B},
    {Owner, await(Owner), Client, Server}.
