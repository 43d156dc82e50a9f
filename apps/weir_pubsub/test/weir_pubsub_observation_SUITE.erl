%% Events of channels: what an attached handler gets.
-module(weir_pubsub_observation_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_test, [policy/1, publish/2, publish_numbered/2, subscribe/1, subscribe/2, kill_shard_of/1]).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [publications, refusals, gaps, slow_ones, a_slow_websocket, a_shard_is_killed, a_handler_that_raises].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    Config.

end_per_testcase(Case, _Config) ->
    _ = weir_http:stop_listener(?MODULE),
    _ = weir_event:detach(Case),
    ok = application:stop(weir_pubsub).

hear_of(Case, Event) ->
    Test = self(),
    ok = weir_event:attach(
        Case, Event, fun(Of, Measurements, Metadata, _) -> Test ! {Of, Measurements, Metadata} end, []
    ).

%% A handler gets an event before the call that causes it returns.
told(Event) ->
    receive
        {Event, Measurements, Metadata} -> {Measurements, Metadata}
    after 0 -> none
    end.

publications(_Config) ->
    Event = [weir, channel, publish],
    ok = hear_of(?FUNCTION_NAME, Event),
    _ = subscribe(<<"a">>),
    Id = publish(<<"a">>, "hello"),
    ?assertEqual({#{count => 1, bytes => 5, subscribers => 1}, #{channel => <<"a">>, id => Id}}, told(Event)),
    ok = weir_event:detach(?FUNCTION_NAME),
    _ = publish(<<"a">>, "again"),
    ?assertEqual(none, told(Event)).

refusals(_Config) ->
    Event = [weir, channel, refuse],
    ok = weir_pubsub:configure(#{
        channels => [{<<"*">>, #{max_message => 3, max_subscribers => 0}}], total => #{channels => 1}
    }),
    ok = hear_of(?FUNCTION_NAME, Event),
    Told = fun(Channel, Reason) ->
        ?assertEqual({#{count => 1}, #{channel => Channel, reason => Reason}}, told(Event))
    end,
    {error, {too_large, 3}} = weir_pubsub:publish(<<"a">>, "1234"),
    Told(<<"a">>, {too_large, 3}),
    {error, Full} = weir_pubsub:subscribe(<<"a">>, #{}),
    Told(<<"a">>, Full),
    _ = publish(<<"a">>, "1"),
    {error, Limit} = weir_pubsub:publish(<<"b">>, "1"),
    Told(<<"b">>, Limit).

gaps(_Config) ->
    Event = [weir, channel, gap],
    policy(#{max_messages => 1}),
    [First | _] = publish_numbered(<<"a">>, [1, 2, 3]),
    ok = hear_of(?FUNCTION_NAME, Event),
    _ = subscribe(<<"a">>, #{from => First}),
    ?assertEqual({#{count => 1}, #{channel => <<"a">>, missed => 1}}, told(Event)),
    _ = subscribe(<<"a">>, #{from => {1, 1}}),
    ?assertEqual({#{count => 1}, #{channel => <<"a">>, missed => unknown}}, told(Event)).

slow_ones(_Config) ->
    Event = [weir, channel, slow],
    policy(#{max_messages => 1, slow => disconnect}),
    ok = hear_of(?FUNCTION_NAME, Event),
    _ = subscribe(<<"a">>, #{window => 1}),
    _ = publish_numbered(<<"a">>, [1, 2, 3]),
    ?assertEqual({#{count => 1}, #{channels => [<<"a">>]}}, told(Event)).

%% A WebSocket that subscribes to several channels is reported and counted once, as with other transports.
a_slow_websocket(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_queue => 1, max_messages => 2, slow => disconnect}}]}),
    Event = [weir, channel, slow],
    ok = hear_of(?FUNCTION_NAME, Event),
    #{slow := Before} = weir_pubsub:counters(),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}, socket_opts => [{sndbuf, 65536}]}, [
        weir_pubsub_ws:route(#{})
    ]),
    {{101, _}, Socket} = weir_pubsub_nchan:websocket(weir:get_port(?MODULE), "/ws", none),
    Frames = [<<"{\"type\":\"subscribe\",\"channel\":\"", Channel, "\"}">> || Channel <- "ab"],
    ok = gen_tcp:send(Socket, [<<16#81, 1:1, (byte_size(Frame)):7, 0:32, Frame/binary>> || Frame <- Frames]),
    Data = binary:copy(<<"x">>, 100000),
    Flood = fun Flood(Number) ->
        _ = publish(<<"a">>, Data),
        case told(Event) of
            none when Number < 10000 -> Flood(Number + 1);
            Told -> Told
        end
    end,
    ?assertEqual({#{count => 1}, #{channels => [<<"a">>, <<"b">>]}}, Flood(1)),
    #{slow := After} = weir_pubsub:counters(),
    ?assertEqual(1, After - Before),
    ok = gen_tcp:close(Socket).

a_shard_is_killed(_Config) ->
    Event = [weir, shard, restart],
    ok = hear_of(?FUNCTION_NAME, Event),
    _ = subscribe(<<"a">>),
    kill_shard_of(<<"a">>),
    receive
        {Event, Measurements, #{shard := Shard}} ->
            ?assertEqual(#{count => 1, subscribers => 1, requests => 0}, Measurements),
            ?assert(is_integer(Shard))
    after weir_test_wait:patience() -> ct:fail(not_told)
    end.

%% A handler that fails costs the channel nothing, and is detached.
a_handler_that_raises(_Config) ->
    ok = weir_event:attach(?FUNCTION_NAME, [weir, channel, publish], fun(_, _, _, _) -> error(on_purpose) end, []),
    _ = subscribe(<<"a">>),
    {Epoch, 1} = publish(<<"a">>, "1"),
    ?assertEqual({Epoch, 2}, publish(<<"a">>, "2")),
    ?assertEqual([], weir_event:list_handlers([weir, channel])).
