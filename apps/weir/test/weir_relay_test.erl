%% Shared by the suites of relays. After each case there are as many relays as before.
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

%% Bytes of each send that fills the buffers.
-define(CHUNK, 1_000_000).
%% epoll_ctl(2).
-define(EPOLLIN, 16#1).
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

%% Two stock peers with a relay of the caller between them.
relay(Config) ->
    relay(Config, #{}).

relay(Config, Options) ->
    {A, Client} = pair(Config),
    {B, Server} = pair(Config),
    {ok, Relay} = weir:relay(A, B, Options),
    {Relay, Client, Server}.

%% A peer that has seen the end can still send.
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

%% Returns how a connection ended, and shows resets.
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

%% Sends from a stock socket until the relay no longer reads it and bytes stay in its queue: then all buffers in
%% between are full. Returns how much was sent.
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

%% Whether a connection of the relay is not watched for input.
is_muted(Relay) ->
    [Events || Events <- watched(Relay), Events band ?EPOLLIN =:= 0] =/= [].

%% The events for which the connections of a relay are watched, in any epoll instance. proc(5) has a line for each
%% descriptor, "tfd: 5 events: 8000201d data: 100000000000017 ...". The data is the relay's number, with the side in
%% the bits above it.
watched({weir_relay, Number}) ->
    Options = [global, multiline, {capture, all_but_first, binary}],
    {ok, Names} = file:list_dir("/proc/self/fdinfo"),
    [
        binary_to_integer(Events, 16)
     || Name <- Names,
        %% Other descriptors may be closed meanwhile.
        {ok, Info} <- [file:read_file(filename:join("/proc/self/fdinfo", Name))],
        {match, Lines} <- [re:run(Info, "^tfd:.* events: *(\\S+) data: *(\\S+)", Options)],
        [Events, Data] <- Lines,
        names_relay(binary_to_integer(Data, 16), Number)
    ].

names_relay(Data, Number) ->
    Data band (1 bsl ?NUMBER_BITS - 1) =:= Number andalso lists:member(Data bsr ?NUMBER_BITS, [1, 2]).

%% Whether bytes have passed through the relay from its first side to its second.
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
