%% Long polls that wait together for the next message of a channel: what each gets, and what is counted.
-module(weir_pubsub_polls_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pubsub_subscriber.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4]).
-import(weir_test_wait, [wait_until/1]).
-import(weir_pubsub_polls_test, [
    restart/2,
    port/0,
    publish/1, publish/2,
    connect/0,
    poll/1, poll/2,
    bytes/2,
    answer/1,
    silent/1,
    resume/1,
    wait/1, wait/2, wait/3,
    again/2,
    subscribers/0,
    until_subscribers/1,
    together/0,
    crowds/0,
    rows/0,
    nobody/0
]).

-include("polls_suite.hrl").

%% More polls than have to wait before there is a group.
-define(MANY, 40).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        all_get_the_message,
        a_frame_is_what_one_alone_gets,
        pages_of_many_sites,
        who_has_missed_something_does_not_wait,
        messages_come_while_polls_come_back,
        time_is_over_as_the_message_comes,
        a_poll_keeps_nothing_of_what_came_with_it,
        a_message_that_is_too_large_for_a_group,
        compressed_for_each,
        who_is_there,
        limits
    ].

all_get_the_message(_Config) ->
    Clients = wait(?MANY),
    #{delivered := Delivered, subscribed := Subscribed, unsubscribed := Unsubscribed} = weir_pubsub:counters(),
    Together = together(),
    %% The number of subscribers before the message was given to them.
    {201, Body} = publish(<<"hello">>),
    ?assertMatch({_, _}, binary:match(Body, <<"active subscribers: ", (integer_to_binary(?MANY))/binary>>)),
    Answers = [answer(Client) || Client <- Clients],
    [?assertMatch({200, _, <<"hello">>}, Answer) || Answer <- Answers],
    ok = nobody(),
    #{delivered := Now, subscribed := Subscribed, unsubscribed := Over} = weir_pubsub:counters(),
    ?assertEqual(?MANY, Now - Delivered),
    ?assertEqual(?MANY, Over - Unsubscribed),
    %% Once more, in the same group.
    again(lists:zip(lists:seq(1, ?MANY), Clients), fun(_) -> resume(hd(Answers)) end),
    ?assert(together() >= Together),
    {201, _} = publish(<<"again">>),
    [?assertMatch({200, _, <<"again">>}, answer(Client)) || Client <- Clients],
    [silent(Client) || Client <- Clients],
    ok = nobody().

a_frame_is_what_one_alone_gets(_Config) ->
    Site = [{"Origin", "https://example.org"}],
    [Alone | Others] = wait(?MANY, fun(_) -> Site end),
    {201, _} = publish(<<"hello">>, [{"Content-Type", "text/x-foo"}]),
    {200, Fields, <<"hello">>} = answer(Alone),
    Normal = fun(Of) -> lists:sort(proplists:delete(<<"date">>, Of)) end,
    [
        begin
            {200, Of, <<"hello">>} = answer(Client),
            ?assertEqual(Normal(Fields), Normal(Of))
        end
     || Client <- Others
    ].

%% Also with more origins than there are groups for.
pages_of_many_sites(_Config) ->
    Site = fun(Number) -> ["https://", integer_to_list(Number rem 7), ".example.org"] end,
    Clients = wait(70, fun(Number) when Number =< 30 -> []; (Number) -> [{"Origin", Site(Number)}] end, 25),
    {201, _} = publish(<<"hello">>),
    [
        begin
            {200, Fields, <<"hello">>} = answer(Client),
            Expected = case Number > 30 of true -> iolist_to_binary(Site(Number)); false -> undefined end,
            ?assertEqual(Expected, proplists:get_value(<<"access-control-allow-origin">>, Fields))
        end
     || {Number, Client} <- lists:zip(lists:seq(1, 70), Clients)
    ],
    ok = nobody().

%% A message may come between the read of the history and the join of the group.
who_has_missed_something_does_not_wait(_Config) ->
    {202, _} = publish(<<"first">>),
    {200, _, <<"first">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    Clients = wait(?MANY, fun(_) -> resume(First) end),
    {ok, #{last_id := {Epoch, Last}}} = weir_pubsub:info(<<"a">>),
    Framing = {weir_pubsub_http_poll, []},
    Join = fun(_) -> error(joined) end,
    Tag = {weir_reactor, none, make_ref()},
    ?assertEqual(none, weir_pubsub_socket:wait(<<"a">>, {Epoch, Last - 1}, Framing, Tag, Join)),
    ?assertEqual(none, weir_pubsub_socket:wait(<<"a">>, {Epoch + 1, Last}, Framing, Tag, Join)),
    ?assertEqual(none, weir_pubsub_socket:wait(<<"a">>, oldest, Framing, Tag, Join)),
    ?assertEqual(none, weir_pubsub_socket:wait(<<"a">>, {Epoch, Last}, Framing, Tag, fun(_) -> {error, closed} end)),
    ?assertEqual(?MANY, subscribers()),
    {201, _} = publish(<<"second">>),
    [?assertMatch({200, _, <<"second">>}, answer(Client)) || Client <- Clients],
    ok = nobody().

%% Each gets every message, in order and once, whether it waits alone or with others.
messages_come_while_polls_come_back(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1000}}]}),
    Clients = wait(?MANY),
    Count = 150,
    Readers = [
        spawn_monitor(fun() ->
            receive
                go -> ok
            end,
            read(Client, 1, Count)
        end)
     || Client <- Clients
    ],
    [
        begin
            ok = gen_tcp:controlling_process(Client, Pid),
            Pid ! go
        end
     || {Client, {Pid, _}} <- lists:zip(Clients, Readers)
    ],
    [{ok, _} = weir_pubsub:publish(<<"a">>, integer_to_binary(Number)) || Number <- lists:seq(1, Count)],
    [
        receive
            {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason)
        end
     || {_, Monitor} <- Readers
    ],
    ok = nobody().

read(Client, Number, Count) ->
    {200, Fields, Data} = Answer = answer(Client),
    {Number, undefined} = {binary_to_integer(Data), proplists:get_value(<<"weir-missed">>, Fields)},
    case Number of
        Count -> ok;
        _ -> ok = poll(Client, resume(Answer)), read(Client, Number + 1, Count)
    end.

%% One response each: the message, or that there is none.
time_is_over_as_the_message_comes(_Config) ->
    [
        begin
            Clients = wait_for_the_time(500),
            {408, _, <<>>} = answer(hd(Clients)),
            {_, _} = publish(<<"late">>),
            [
                case answer(Client) of
                    {408, _, <<>>} -> ok;
                    {200, _, <<"late">>} -> ok
                end
             || Client <- tl(Clients)
            ],
            [silent(Client) || Client <- Clients],
            ok = nobody(),
            [ok = gen_tcp:close(Client) || Client <- Clients],
            {200, _, _} = request(port(), <<"DELETE">>, "/pub/a", [])
        end
     || _ <- lists:seq(1, 2)
    ].

%% Polls that wait together until their timeout. If starting them took half of it, the machine gets more time.
wait_for_the_time(Timeout) ->
    restart(#{}, #{poll_timeout => Timeout}),
    Clients = [connect() || _ <- lists:seq(1, ?MANY)],
    Until = erlang:monotonic_time(millisecond) + Timeout div 2,
    case wait_until_then(lists:zip(lists:seq(1, ?MANY), Clients), Until) of
        true ->
            Clients;
        false ->
            [ok = gen_tcp:close(Client) || Client <- Clients],
            ok = nobody(),
            wait_for_the_time(2 * Timeout)
    end.

wait_until_then([], _Until) ->
    true;
wait_until_then([{Number, Client} | Others], Until) ->
    ok = weir_pubsub_test:idle(<<"a">>),
    ok = poll(Client),
    weir_test_wait:becomes_true(
        fun() -> subscribers() =:= Number end, max(0, Until - erlang:monotonic_time(millisecond))
    ) andalso
        wait_until_then(Others, Until).

%% For example the requests before it.
a_poll_keeps_nothing_of_what_came_with_it(_Config) ->
    Clients = wait(?MANY),
    {201, _} = publish(<<"first">>),
    Answer = lists:last([answer(Client) || Client <- Clients]),
    ok = nobody(),
    Refused = lists:duplicate(300, bytes(<<"PATCH">>, [{"X-Filler", lists:duplicate(50, $f)}])),
    lists:foldl(
        fun(Client, There) ->
            ok = gen_tcp:send(Client, [Refused, bytes(<<"GET">>, resume(Answer))]),
            ok = until_subscribers(There),
            There + 1
        end,
        1,
        Clients
    ),
    Reactors = lists:usort([Pid || #subscriber{pid = Pid} <- rows()]),
    Kept = fun() ->
        lists:sum([
            begin
                true = erlang:garbage_collect(Reactor),
                {binary, Binaries} = process_info(Reactor, binary),
                lists:sum([Size || {_, Size, _} <- lists:usort(Binaries)])
            end
         || Reactor <- Reactors
        ])
    end,
    ok = wait_until(fun() -> Kept() < ?MANY * 2048 end).

a_message_that_is_too_large_for_a_group(_Config) ->
    Data = binary:copy(<<"0123456789">>, 100000),
    Clients = wait(?MANY),
    %% The data alone has less than 1 MiB.
    {ok, _} = weir_pubsub:publish(<<"a">>, Data, #{type => binary:copy(<<"x">>, 60000)}),
    ?assertEqual([], crowds()),
    [?assertMatch({200, _, Data}, answer(Client)) || Client <- Clients],
    ok = nobody().

compressed_for_each(_Config) ->
    restart(#{gzip => #{min_size => 1}}, #{}),
    Clients = [connect() || _ <- lists:seq(1, ?MANY)],
    again(lists:zip(lists:seq(1, ?MANY), Clients), fun(_) -> [{"Accept-Encoding", "gzip"}] end),
    Data = binary:copy(<<"hello ">>, 1000),
    {201, _} = publish(Data, [{"Content-Type", "text/plain"}]),
    [
        begin
            {200, Fields, Body} = answer(Client),
            ?assertEqual(<<"gzip">>, proplists:get_value(<<"content-encoding">>, Fields)),
            ?assertEqual(Data, zlib:gunzip(Body))
        end
     || Client <- Clients
    ].

who_is_there(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{presence => true}}]}),
    Clients = wait(?MANY),
    {ok, Present} = weir_pubsub:presence(<<"a">>),
    ?assertEqual(?MANY, length(Present)),
    {201, _} = publish(<<"x">>),
    ?assertEqual({ok, []}, begin
        [{200, _, _} = answer(Client) || Client <- Clients],
        ok = nobody(),
        weir_pubsub:presence(<<"a">>)
    end).

limits(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_subscribers => ?MANY}}]}),
    Clients = wait(?MANY),
    One = connect(),
    ok = poll(One),
    ?assertMatch({403, _, _}, answer(One)),
    ?assertEqual(?MANY, subscribers()),
    {201, _} = publish(<<"x">>),
    [{200, _, _} = answer(Client) || Client <- Clients],
    ok = nobody().
