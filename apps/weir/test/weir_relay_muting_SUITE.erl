%% If one side of a relay does not read, the sender on the other side is muted in its epoll instance: further data
%% causes no events. Other events of the sender or the relay are still noticed, and the data arrives when it is read.
%%
%% No case depends on a delay. Muting is visible in the kernel's list of what an epoll instance watches. A byte
%% through the relay in the other direction shows that a poller has had its turn.
-module(weir_relay_muting_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/3, reset/1, async/1, await/1, kill/1, pid/1, descriptors/0]).
-import(weir_relay_test, [is_muted/1, watched/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2]).

%% Sizes of the kernel's buffers before a reader, and after a sender, which never blocks.
-define(SMALL, 16384).
-define(LARGE, 1_000_000).
%% More than the buffers of the relay and the reader hold.
-define(FLOOD, 300_000).
%% Number and size of segments.
-define(ROUNDS, 100).
-define(SEGMENT, 100).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, copied}, {group, spliced}].

groups() ->
    Cases = [
        segments_cost_no_events,
        all_arrives_again_and_again,
        sender_half_closes,
        sender_closes,
        reader_half_closes,
        sender_is_reset,
        sender_is_reset_after_its_end,
        reader_is_reset,
        stopped,
        owner_dies
    ],
    [{copied, [], Cases}, {spliced, [], Cases}].

init_per_group(Group, Config) ->
    weir_test_peer:init_group(weir, [{splice, Group =:= spliced} | Config]).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(_Case, Config) ->
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

%% Cost ------------------------------------------------------------------------

%% On another machine, because the counters include everything on a pollset.
segments_cost_no_events(Config) ->
    Case =
        case proplists:get_value(splice, Config) of
            false -> copied_segments_cost_no_events;
            true -> spliced_segments_cost_no_events
        end,
    weir_test_node:on_node(?MODULE, Case, "", []).

copied_segments_cost_no_events(Config) ->
    count_events([{splice, false} | Config]).

spliced_segments_cost_no_events(Config) ->
    count_events([{splice, true} | Config]).

count_events(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, Flood) ->
        Segments = rand:bytes(?SEGMENT),
        Events = events_of_rounds(Relay, Sender, Reader, Segments),
        %% Each byte in the other direction is an event, or fewer if a busy machine joins several. Without muting,
        %% each segment would be one more.
        ?assert(Events < ?ROUNDS + ?ROUNDS div 2, {events, Events}),
        ?assert(taken(Relay) =< byte_size(Flood)),
        All = <<Flood/binary, (binary:copy(Segments, ?ROUNDS))/binary>>,
        ?assertEqual(All, recv_exactly(Reader, byte_size(All))),
        wait_until(fun() -> not is_muted(Relay) end),
        finish(Relay, Sender, Reader)
    end).

events_of_rounds(Relay, Sender, Reader, Segment) ->
    {ok, #{pollset := Pollset}} = weir:relay_info(Relay),
    #{events := Before} = weir_nif:counters(Pollset),
    lists:foreach(
        fun(_) ->
            ok = gen_tcp:send(Sender, Segment),
            assert_polled(Sender, Reader)
        end,
        lists:seq(1, ?ROUNDS)
    ),
    #{events := After} = weir_nif:counters(Pollset),
    After - Before.

%% Bytes ------------------------------------------------------------------------

all_arrives_again_and_again(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, Flood) ->
        ?assertEqual(Flood, recv_exactly(Reader, byte_size(Flood))),
        lists:foreach(
            fun(_) ->
                wait_until(fun() -> not is_muted(Relay) end),
                Data = flood(Sender),
                assert_polled(Sender, Reader),
                %% The reader makes room while the sender sends.
                Half = byte_size(Data) div 2,
                <<First:Half/binary, _/binary>> = Data,
                ?assertEqual(First, recv_exactly(Reader, Half)),
                More = rand:bytes(?SMALL),
                ok = gen_tcp:send(Sender, More),
                Rest = <<(binary:part(Data, Half, byte_size(Data) - Half))/binary, More/binary>>,
                ?assertEqual(Rest, recv_exactly(Reader, byte_size(Rest)))
            end,
            lists:seq(1, 5)
        ),
        finish(Relay, Sender, Reader)
    end).

%% Ends -------------------------------------------------------------------------

%% The end comes after the data.
sender_half_closes(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, Flood) ->
        ok = gen_tcp:shutdown(Sender, write),
        assert_polled(Sender, Reader),
        assert_no_message(),
        ?assertEqual({Flood, closed}, recv_all(Reader)),
        ok = gen_tcp:send(Reader, <<"thanks">>),
        ok = gen_tcp:close(Reader),
        ?assertEqual({<<"thanks">>, closed}, recv_all(Sender)),
        ended(Relay, closed)
    end).

sender_closes(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, Flood) ->
        ok = gen_tcp:close(Sender),
        ?assertEqual({Flood, closed}, recv_all(Reader)),
        ok = gen_tcp:close(Reader),
        ended(Relay, closed)
    end).

%% A side that does not read can still end its own direction: the sender sees that, and stays muted.
reader_half_closes(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, Flood) ->
        ok = gen_tcp:send(Reader, <<"all I say">>),
        ok = gen_tcp:shutdown(Reader, write),
        ?assertEqual({<<"all I say">>, closed}, recv_all(Sender)),
        assert_no_message(),
        ok = gen_tcp:send(Sender, <<"and more">>),
        ok = gen_tcp:shutdown(Sender, write),
        ?assertEqual({<<Flood/binary, "and more">>, closed}, recv_all(Reader)),
        ended(Relay, closed)
    end).

sender_is_reset(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, _Flood) ->
        reset(Sender),
        ended(Relay, {error, econnreset}),
        ?assertEqual(econnreset, end_of(Reader))
    end).

sender_is_reset_after_its_end(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, _Flood) ->
        ok = gen_tcp:shutdown(Sender, write),
        assert_polled(Sender, Reader),
        reset(Sender),
        ended(Relay, {error, econnreset}),
        ?assertEqual(econnreset, end_of(Reader))
    end).

reader_is_reset(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, _Flood) ->
        reset(Reader),
        ended(Relay, {error, econnreset}),
        ?assertEqual(econnreset, end_of(Sender))
    end).

stopped(Config) ->
    both_ways(Config, fun(Relay, Sender, Reader, _Flood) ->
        ok = weir:stop_relay(Relay),
        ended(Relay, closed),
        assert_given_back(Relay, Sender, Reader)
    end).

owner_dies(Config) ->
    [
        begin
            {A, Sender} = sending_pair(Config),
            {B, Reader} = reading_pair(Config),
            Owner = async(fun() ->
                receive
                    start -> start(Way, A, B, Config)
                end
            end),
            [ok = gen_tcp:controlling_process(Socket, pid(Owner)) || Socket <- [A, B]],
            pid(Owner) ! start,
            Relay = await(Owner),
            _ = mute(Relay, Sender),
            kill(Owner),
            assert_given_back(Relay, Sender, Reader)
        end
     || Way <- [there, back]
    ].

%% Pending data is lost, and its receiver gets a reset.
assert_given_back(Relay, Sender, Reader) ->
    ?assertEqual(econnreset, end_of(Reader)),
    %% The sender also gets a reset if the kernel held unread data.
    _ = end_of(Sender),
    wait_until(fun() -> weir:relay_info(Relay) =:= {error, closed} end),
    wait_until(fun() -> watched(Relay) =:= [] end).

%% Relays -----------------------------------------------------------------------

%% Tests a relay with a muted sender on either side. Afterwards all descriptors are closed.
both_ways(Config, Fun) ->
    [
        begin
            Before = descriptors(),
            {A, Sender} = sending_pair(Config),
            {B, Reader} = reading_pair(Config),
            Relay = start(Way, A, B, Config),
            Flood = mute(Relay, Sender),
            _ = Fun(Relay, Sender, Reader, Flood),
            [gen_tcp:close(Peer) || Peer <- [Sender, Reader]],
            wait_until(fun() -> descriptors() =< Before end)
        end
     || Way <- [there, back]
    ].

start(Way, A, B, Config) ->
    {One, Other} =
        case Way of
            there -> {A, B};
            back -> {B, A}
        end,
    {ok, Relay} = weir:relay(One, Other, #{splice => proplists:get_value(splice, Config)}),
    Relay.

sending_pair(Config) ->
    socket_pair(Config, [binary, {active, false}, {nodelay, true}, {recbuf, ?LARGE}], [
        {sndbuf, ?LARGE}, {high_watermark, ?LARGE}, {exit_on_close, false}
    ]).

reading_pair(Config) ->
    socket_pair(Config, [binary, {active, false}, {nodelay, true}, {sndbuf, ?SMALL}], [
        {recbuf, ?SMALL}, {exit_on_close, false}
    ]).

%% Sends more than the buffers hold, and waits until the sender is muted. Returns the data.
mute(Relay, Sender) ->
    Flood = flood(Sender),
    wait_until(fun() -> is_muted(Relay) end),
    Flood.

flood(Sender) ->
    Flood = rand:bytes(?FLOOD),
    ok = gen_tcp:send(Sender, Flood),
    Flood.

%% The poller has seen everything sent so far, because this byte came later.
assert_polled(Sender, Reader) ->
    ok = gen_tcp:send(Reader, <<"!">>),
    ?assertEqual(<<"!">>, recv_exactly(Sender, 1)).

taken(Relay) ->
    {ok, #{a_to_b := #{bytes := There}, b_to_a := #{bytes := Back}}} = weir:relay_info(Relay),
    max(There, Back).

finish(Relay, Sender, Reader) ->
    ok = gen_tcp:close(Sender),
    ?assertEqual({error, closed}, gen_tcp:recv(Reader, 0)),
    ok = gen_tcp:close(Reader),
    ended(Relay, closed).

ended(Relay, Result) ->
    ?assertMatch({weir_relay, Relay, Result, _}, next_message()),
    ?assertEqual({error, closed}, weir:relay_info(Relay)).

%% Returns how a connection ended and shows resets; data before the end is dropped.
end_of(Socket) ->
    ok = inet:setopts(Socket, [{show_econnreset, true}]),
    {_, Reason} = recv_all(Socket),
    Reason.
