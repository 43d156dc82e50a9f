%% A relay is the identity on both streams, for any chunks and pauses on either side and any order in which the
%% streams end.
-module(prop_relay).

-include_lib("proper/include/proper.hrl").

-export([prop_relay/0]).

%% How often a reader pauses: enough for buffers to fill. A reader that always paused would take half a minute to read
%% megabytes in pieces of 1,000 bytes.
-define(PAUSES, 30).

prop_relay() ->
    ?FORALL(Case, {side(), side(), before(), options()}, weir_test_property:holds(fun() -> relayed(Case) end)).

relayed({Client, Server, Before, Options}) ->
    {A, ClientEnd} = pair(Client),
    {B, ServerEnd} = pair(Server),
    #{put_back := PutBack, queued := Queued} = Before,
    Prefix = maps:get(prefix, Options),
    ok = gen_tcp:unrecv(A, PutBack),
    ok = gen_tcp:send(A, Queued),
    {ok, Relay} = weir:relay(A, B, Options),
    Sides = [serve(ClientEnd, Client), serve(ServerEnd, Server)],
    [{SentByClient, GotByClient}, {SentByServer, GotByServer}] = [result(Side, Relay) || Side <- Sides],
    {Ended, Counted} =
        receive
            {weir_relay, Relay, Result, #{a_to_b := #{bytes := There}, b_to_a := #{bytes := Back}}} ->
                {Result, {There, Back}}
        after weir_test_wait:patience() -> {weir:relay_info(Relay), none}
        end,
    [Receiver ! close || {_, Receiver, _} <- Sides],
    FromA = <<Prefix/binary, PutBack/binary, SentByClient/binary>>,
    Expected = {<<Queued/binary, SentByServer/binary>>, FromA},
    ({GotByClient, GotByServer} =:= Expected andalso Ended =:= closed andalso
        Counted =:= {byte_size(FromA), byte_size(SentByServer)}) orelse
        {Ended, {counted, Counted}, {expected, sizes(Expected)}, {got, sizes({GotByClient, GotByServer})}}.

sizes({One, Other}) ->
    {byte_size(One), byte_size(Other)}.

%% The chunks and pauses of the sender, how the data is received, and whether the sender ends before or after it has
%% received everything.
side() ->
    ?LET(
        {Chunks, Read, Slow, Ends, Buffers},
        {
            list({frequency([{5, integer(1, 500)}, {3, integer(500, 20000)}, {1, integer(20000, 700000)}]), pause()}),
            oneof([1000, 70000]),
            pause(),
            oneof([early, late]),
            oneof([default, 16384])
        },
        #{chunks => Chunks, read => Read, slow => Slow, ends => Ends, buffers => Buffers}
    ).

pause() ->
    frequency([{10, 0}, {1, 1}, {1, 3}]).

before() ->
    ?LET(
        {PutBack, Queued},
        {binary(), frequency([{3, <<>>}, {1, binary()}, {1, ?LET(Size, integer(1, 300000), rand:bytes(Size))}])},
        #{put_back => PutBack, queued => Queued}
    ).

options() ->
    ?LET(
        {Prefix, Buffer, Splice},
        {binary(), oneof([100, 5000, 65536, 300000]), oneof([auto, true, false])},
        #{prefix => Prefix, splice => Splice, buffer => Buffer}
    ).

pair(#{buffers := Buffers, read := Read}) ->
    Sizes =
        case Buffers of
            default -> [];
            Size -> [{recbuf, Size}, {sndbuf, Size}]
        end,
    Options = [binary, {active, false}, {nodelay, true} | Sizes],
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, {ip, loopback} | Options]),
    {ok, Port} = inet:port(Listener),
    %% A stock socket drops queued data of a blocked sender at the end of its input, so no sender may block.
    PeerOptions = [{buffer, Read}, {exit_on_close, false}, {high_watermark, 100_000_000} | Options],
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, PeerOptions),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    %% Data that is queued before the relay starts must not wait for its reader.
    ok = inet:setopts(Socket, [{high_watermark, 10_000_000}]),
    {Socket, Peer}.

%% A sender and a receiver for an end of the relay.
serve(Socket, #{chunks := Chunks, slow := Slow, ends := Ends}) ->
    Sent = [{rand:bytes(Size), Pause} || {Size, Pause} <- Chunks],
    Self = self(),
    Reference = make_ref(),
    Receiver = spawn_link(fun() ->
        receive
            go -> ok
        end,
        Got = receive_all(Socket, Slow, ?PAUSES, []),
        Self ! {Reference, Got},
        receive
            close -> gen_tcp:close(Socket)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, Receiver),
    _ = spawn_link(fun() ->
        lists:foreach(
            fun({Chunk, Pause}) ->
                ok = gen_tcp:send(Socket, Chunk),
                wait(Pause)
            end,
            Sent
        ),
        Ends =:= late andalso wait(5),
        ok = gen_tcp:shutdown(Socket, write)
    end),
    Receiver ! go,
    {Reference, Receiver, iolist_to_binary([Chunk || {Chunk, _} <- Sent])}.

result({Reference, Receiver, Sent}, Relay) ->
    receive
        {Reference, Got} -> {Sent, Got}
    after weir_test_wait:patience() ->
        error({no_end, {sent, byte_size(Sent)}, weir:relay_info(Relay), process_info(Receiver, current_stacktrace)})
    end.

receive_all(Socket, Slow, Pauses, Got) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Data} ->
            Pauses > 0 andalso wait(Slow),
            receive_all(Socket, Slow, Pauses - 1, [Data | Got]);
        {error, closed} ->
            iolist_to_binary(lists:reverse(Got))
    end.

wait(0) -> ok;
wait(Milliseconds) -> timer:sleep(Milliseconds).
