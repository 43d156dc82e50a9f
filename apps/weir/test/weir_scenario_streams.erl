%% Random histories of connections with an active owner: numbers arrive on each, and the owner gets them once and in
%% order, whatever happens to it, to the socket and to the engine.
%%
%% Other processes fill the owners' mailboxes, which then have a buffer for each sender; send on the owners' sockets,
%% and so may notice the end of a connection first; move sockets, kill pollers and take schedulers offline.
-module(weir_scenario_streams).

-include_lib("stdlib/include/assert.hrl").

-export([run/2]).

-import(weir_test_wait, [patience/0]).
-import(weir_scenario, [one_of/1, seed/1, start_disturber/2]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(STREAMS, 8).
-define(DEALERS, 3).

%% An owner's state of its stream.
-record(stream, {
    number :: pos_integer(),
    socket :: inet:socket(),
    parent :: pid(),
    packet :: raw | 4,
    %% The peer's plan: send this many numbers, then end like this.
    count :: pos_integer(),
    finish :: close | reset | die,
    %% The next number, and the bytes of it that have arrived.
    next = 0 :: non_neg_integer(),
    rest = <<>> :: binary()
}).

%% Runs rounds of streams with random numbers of this seed, and fails with what violated an invariant.
-spec run(term(), pos_integer()) -> ok.
run(Seed, Rounds) ->
    lists:foreach(fun(Round) -> play({Seed, Round}) end, lists:seq(1, Rounds)).

play(Seed) ->
    ok = seed(Seed),
    {ok, Listener} = gen_tcp:listen(0, [
        {tcp_module, weir_tcp}, binary, {active, false}, {ip, ?LOOPBACK}, {backlog, 64}
    ]),
    {ok, Port} = inet:port(Listener),
    Streams = [start_stream(Listener, Port, {Seed, Number}) || Number <- lists:seq(1, ?STREAMS)],
    Sockets = [Socket || {_, _, Socket} <- Streams],
    Dealers = [
        start_disturber({Seed, dealer, N}, fun() -> deal([Owner || {_, Owner, _} <- Streams]) end)
     || N <- lists:seq(1, ?DEALERS)
    ],
    Others = [
        start_disturber({Seed, talker}, fun() -> talk(Sockets) end),
        start_disturber({Seed, mover}, fun() -> move(Sockets) end)
    ],
    [Owner ! go || {_, Owner, _} <- Streams],
    try
        Outcomes = [{Number, outcome(Number)} || {Number, _, _} <- Streams],
        ?assertEqual({Seed, []}, {Seed, [Wrong || {_, Outcome} = Wrong <- Outcomes, Outcome =/= ok]})
    after
        lists:foreach(fun weir_scenario:stop_disturber/1, Others ++ Dealers),
        ok = gen_tcp:close(Listener)
    end.

outcome(Number) ->
    receive
        {ended, Number, Outcome} -> Outcome
    after patience() -> no_end
    end.

%% Peers --------------------------------------------------------------------------

start_stream(Listener, Port, {_, Number} = Seed) ->
    {Count, Finish, Packet} = {100 + rand:uniform(1000), one_of([close, close, close, reset, die]), one_of([raw, 4])},
    _ = spawn_link(fun() ->
        ok = seed({Seed, peer}),
        {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {packet, Packet}, {active, true}, {nodelay, true}]),
        send_numbers(Peer, 0, Count),
        finish(Peer, Finish)
    end),
    {ok, Socket} = gen_tcp:accept(Listener, patience()),
    ok = inet:setopts(Socket, [{packet, Packet}]),
    Stream = #stream{
        number = Number, socket = Socket, parent = self(), packet = Packet, count = Count, finish = Finish
    },
    Owner = start_owner(Stream, Seed),
    {Number, Owner, Socket}.

send_numbers(_Peer, Count, Count) ->
    ok;
send_numbers(Peer, Number, Count) ->
    Last = min(Count, Number + rand:uniform(20)),
    case lists:usort([gen_tcp:send(Peer, <<N:32>>) || N <- lists:seq(Number, Last - 1)]) of
        [ok] -> send_numbers(Peer, Last, Count);
        _ -> ok
    end.

%% After an orderly end the connection accepts data until the owner closes it.
finish(Peer, close) ->
    _ = gen_tcp:shutdown(Peer, write),
    receive {tcp_closed, Peer} -> ok end;
finish(Peer, _) ->
    _ = inet:setopts(Peer, [{linger, {true, 0}}]),
    gen_tcp:close(Peer).

%% Owners --------------------------------------------------------------------------

start_owner(#stream{socket = Socket} = Stream, Seed) ->
    Owner = spawn(fun() ->
        ok = seed({Seed, owner}),
        ok = mailbox(one_of([on_heap, off_heap, off_heap])),
        receive go -> own(Stream) end
    end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner.

%% With messages off the heap, a mailbox gets a buffer for each sender under contention; here at once.
mailbox(on_heap) ->
    ok;
mailbox(off_heap) ->
    _ = process_flag(message_queue_data, off_heap),
    _ = erts_debug:set_internal_state(available_internal_state, true),
    _ = erts_debug:set_internal_state(proc_sig_buffers, true),
    ok.

own(#stream{number = Number, parent = Parent} = Stream) ->
    try
        live(Stream)
    catch
        throw:ended -> Parent ! {ended, Number, ok};
        throw:passed_on -> ok;
        _:Reason:Stack -> Parent ! {ended, Number, {Reason, hd(Stack)}}
    end.

live(#stream{finish = die, next = Next, count = Count}) when Next > Count div 2 ->
    throw(ended);
live(#stream{socket = Socket} = Stream) ->
    live(case rand:uniform(16) of
        1 -> pass_on(deactivate(Stream));
        N when N < 4 -> ask(deactivate(Stream));
        N when N < 7 -> listen(deactivate(Stream), {active, true});
        N when N < 9 -> (inet:setopts(Socket, [{active, false}])), listen(Stream, {active, true});
        N when N < 11 -> listen(Stream, {active, rand:uniform(5)});
        N when N < 13 -> listen(Stream, {active, true});
        _ -> listen(Stream, {active, once})
    end).

listen(#stream{socket = Socket} = Stream, Option) ->
    _ = inet:setopts(Socket, [Option]),
    take_messages(Stream, rand:uniform(20)).

%% Messages that arrive until it returns are in the mailbox.
deactivate(#stream{socket = Socket} = Stream) ->
    _ = inet:setopts(Socket, [{active, false}]),
    take_what_is_there(Stream).

take_messages(Stream, 0) ->
    Stream;
take_messages(#stream{socket = Socket} = Stream, N) ->
    receive
        {tcp, Socket, Data} -> take_messages(take(Data, Stream), N - 1);
        {tcp_passive, Socket} -> Stream;
        {tcp_closed, Socket} -> closed(Stream);
        {tcp_error, Socket, _} -> take_messages(Stream, N);
        {dealt, _} -> take_messages(Stream, N)
    after one_of([0, 0, 0, 1]) -> Stream
    end.

take_what_is_there(#stream{socket = Socket} = Stream) ->
    receive
        {tcp, Socket, Data} -> take_what_is_there(take(Data, Stream));
        {tcp_passive, Socket} -> take_what_is_there(Stream);
        {tcp_closed, Socket} -> closed(Stream);
        {tcp_error, Socket, _} -> take_what_is_there(Stream);
        {dealt, _} -> take_what_is_there(Stream)
    after 0 -> Stream
    end.

ask(#stream{socket = Socket} = Stream) ->
    case gen_tcp:recv(Socket, 0, one_of([0, 1, 5])) of
        {ok, Data} -> take(Data, Stream);
        {error, timeout} -> Stream;
        {error, _} -> closed(take_what_is_there(Stream))
    end.

pass_on(#stream{socket = Socket} = Stream) ->
    Next = start_heir(Stream, rand:uniform(1 bsl 30)),
    case gen_tcp:controlling_process(Socket, Next) of
        ok ->
            Next ! {go, Stream},
            throw(passed_on);
        {error, _} ->
            Next ! stop,
            Stream
    end.

start_heir(_, Seed) ->
    spawn(fun() ->
        ok = seed(Seed),
        ok = mailbox(one_of([on_heap, off_heap])),
        receive
            {go, Stream} -> own(Stream);
            stop -> ok
        end
    end).

take(<<Number:32>>, #stream{packet = 4, next = Next} = Stream) ->
    ?assertEqual(Next, Number),
    Stream#stream{next = Next + 1};
take(Data, #stream{packet = raw, rest = Rest} = Stream) ->
    numbers(<<Rest/binary, Data/binary>>, Stream).

numbers(<<Number:32, Rest/binary>>, #stream{next = Next} = Stream) ->
    ?assertEqual(Next, Number),
    numbers(Rest, Stream#stream{next = Next + 1});
numbers(Rest, Stream) ->
    Stream#stream{rest = Rest}.

%% No message follows the end. Reading the mailbox with process_info empties the buffers of all senders.
closed(#stream{socket = Socket, finish = Finish, count = Count, next = Next}) ->
    {messages, Messages} = process_info(self(), messages),
    ?assertEqual([], [Message || Message <- Messages, element(1, Message) =:= tcp, element(2, Message) =:= Socket]),
    Finish =:= close andalso ?assertEqual({all, Count}, {all, Next}),
    _ = gen_tcp:close(Socket),
    throw(ended).

%% Disturbances --------------------------------------------------------------------

deal(Owners) ->
    Owner = one_of(Owners),
    _ = [Owner ! {dealt, N} || N <- lists:seq(1, 20)],
    ok.

talk(Sockets) ->
    _ = gen_tcp:send(one_of(Sockets), <<"word">>),
    ok.

move(Sockets) ->
    _ = weir:migrate(one_of(Sockets), rand:uniform(erlang:system_info(schedulers))),
    ok.
