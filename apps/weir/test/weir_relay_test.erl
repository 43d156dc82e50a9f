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
-export([fill/2]).
-export([is_muted/1]).
-export([watched/1]).
-export([is_flowing/1]).
-export([owned_relay/2]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/2, socket_pair/3, async/1, await/1, pid/1]).
-import(weir_test_wait, [next_message/0, recv_exactly/2, wait_until/1, patience/0]).

%% Bytes that are sent at once to fill the buffers.
-define(CHUNK, 1_000_000).
%% epoll_ctl(2).
-define(EPOLLIN, 16#1).
%% Bits of the number of a relay.
-define(NUMBER_BITS, 56).


init_case(Config) ->
    [{relays, length(weir:relays())} | weir_test_peer:init_case(Config)].

end_case(Config) ->
    case weir_test_peer:end_case(Config) of
        ok ->
            Ended = fun() -> length(weir:relays()) =< proplists:get_value(relays, Config) end,
            case weir_test_wait:becomes_true(Ended, patience()) of
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
    {error, Reason} = gen_tcp:recv(Socket, 0, patience()),
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
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, _} -> drain(Socket);
        {error, Reason} -> Reason
    end.

%% Sends from a stock socket until the relay does not read it any more and bytes wait in its queue: all buffers between
%% are full then. Returns how much was sent.
fill(Relay, Socket) ->
    ok = inet:setopts(Socket, [{high_watermark, 100_000_000}]),
    Sent = counters:new(1, []),
    wait_until(fun() ->
        Queued = queued(Socket),
        _ = [send_more(Socket, Sent) || Queued =:= 0],
        (Queued > 0 andalso is_muted(Relay)) orelse {sent, counters:get(Sent, 1), queued, Queued}
    end),
    counters:get(Sent, 1).

queued(Socket) ->
    {ok, [{send_pend, Queued}]} = inet:getstat(Socket, [send_pend]),
    Queued.

send_more(Socket, Sent) ->
    ok = gen_tcp:send(Socket, binary:copy(<<"x">>, ?CHUNK)),
    counters:add(Sent, 1, ?CHUNK).

%% A connection of the relay's is not watched for input.
is_muted(Relay) ->
    [Events || Events <- watched(Relay), Events band ?EPOLLIN =:= 0] =/= [].

%% What the connections of a relay are watched for, in whichever epoll instance. proc(5) has a line for each of its
%% descriptors, "tfd: 5 events: 8000201d data: 100000000000017 ...". The data are the relay's number, and above its bits
%% which of the two it is.
watched({weir_relay, Number}) ->
    Options = [global, multiline, {capture, all_but_first, binary}],
    {ok, Names} = file:list_dir("/proc/self/fdinfo"),
    [
        binary_to_integer(Events, 16)
     || Name <- Names,
        %% Others are closed meanwhile.
        {ok, Info} <- [file:read_file(filename:join("/proc/self/fdinfo", Name))],
        {match, Lines} <- [re:run(Info, "^tfd:.* events: *(\\S+) data: *(\\S+)", Options)],
        [Events, Data] <- Lines,
        names_relay(binary_to_integer(Data, 16), Number)
    ].

names_relay(Data, Number) ->
    Data band (1 bsl ?NUMBER_BITS - 1) =:= Number andalso lists:member(Data bsr ?NUMBER_BITS, [1, 2]).

%% Bytes have gone through the relay, from its first side to its second.
is_flowing(Relay) ->
    {ok, #{a_to_b := #{bytes := Bytes}}} = weir:relay_info(Relay),
    Bytes > 0.

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
