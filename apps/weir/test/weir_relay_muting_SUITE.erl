%% A sender whose bytes the other side of a relay does not take is muted in its
%% epoll instance: what it sends on costs nothing. What else happens to it, or
%% to the relay, is noticed all the same, and its bytes arrive when they are
%% read.
%%
%% Nothing is decided by a delay. That somebody is muted is seen in the list
%% which the kernel keeps of what an epoll instance watches; that a poller has
%% had its turn, by a byte that goes through the relay the other way.
-module(weir_relay_muting_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [socket_pair/3, reset/1, async/1, await/1, kill/1, pid/1, descriptors/0]).
-import(weir_relay_test, [is_muted/1, watched/1]).
-import(weir_test_wait, [wait_until/1, next_message/0, assert_no_message/0, recv_all/1, recv_exactly/2]).

%% The buffers of the kernel before a reader, and behind a sender, which never waits.
-define(SMALL, 16384).
-define(LARGE, 1_000_000).
%% More than a relay and a reader's buffers take.
-define(FLOOD, 300_000).
%% So often a segment of so many bytes.
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

%% On a machine of its own: the counters are of all that is on a pollset.
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
        %% Each byte the other way is an event, or fewer where a busy machine lets several come together. Each segment would be one more.
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

%% The end comes behind the bytes, and not before them.
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

%% Who does not read has nothing more to say either; the sender is told, and stays muted.
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

%% The bytes that wait are lost, and whoever would have got them is told.
assert_given_back(Relay, Sender, Reader) ->
    ?assertEqual(econnreset, end_of(Reader)),
    %% It is reset, too, where the kernel held something that was not read.
    _ = end_of(Sender),
    wait_until(fun() -> weir:relay_info(Relay) =:= {error, closed} end),
    wait_until(fun() -> watched(Relay) =:= [] end).

%% Relays -----------------------------------------------------------------------

%% A relay with a muted sender on its one side, then on the other; afterwards all descriptors are given back.
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

%% Sends more than is taken, and waits until nobody listens any more. Returns what was sent.
mute(Relay, Sender) ->
    Flood = flood(Sender),
    wait_until(fun() -> is_muted(Relay) end),
    Flood.

flood(Sender) ->
    Flood = rand:bytes(?FLOOD),
    ok = gen_tcp:send(Sender, Flood),
    Flood.

%% What has been sent until now was seen by whoever polls: this came after it.
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

%% How a connection ended, where a reset is told apart; what comes before is thrown away.
end_of(Socket) ->
    ok = inet:setopts(Socket, [{show_econnreset, true}]),
    {_, Reason} = recv_all(Socket),
    Reason.
