%% Long polls that wait together while clients go away, their channel is deleted, and shards and reactors are killed.
-module(weir_pubsub_polls_misfortune_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4]).
-import(weir_test_wait, [wait_until/1]).
-import(weir_pubsub_polls_test, [
    restart/2, port/0, publish/1, connect/0, poll/1, poll/2, answer/1, silent/1, resume/1, wait/1, wait/2, again/2,
    until_subscribers/1, crowds/0, rows/0, nobody/0, shard/0, kill_shard/0
]).

-include("polls_suite.hrl").

%% More polls than have to wait before there is a group.
-define(MANY, 40).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        deleted_while_they_wait,
        deleted_behind_a_message,
        clients_that_go_away,
        all_clients_go_away,
        the_last_poll_of_a_connection,
        a_shard_is_killed,
        a_shard_is_killed_before_it_hears_that_a_poll_is_over,
        a_reactor_is_killed,
        shards_are_killed_again_and_again
    ].

deleted_while_they_wait(_Config) ->
    Clients = wait(?MANY),
    {200, _, _} = request(port(), <<"DELETE">>, "/pub/a", []),
    [?assertMatch({410, _, <<>>}, answer(Client)) || Client <- Clients],
    ok = nobody(),
    %% The connections stay in use.
    again(lists:zip(lists:seq(1, ?MANY), Clients), fun(_) -> [] end),
    {201, _} = publish(<<"hello">>),
    [?assertMatch({200, _, <<"hello">>}, answer(Client)) || Client <- Clients].

%% A message that was published before is not lost, even if it is on its way.
deleted_behind_a_message(_Config) ->
    Clients = wait(?MANY),
    {ok, _} = weir_pubsub:publish(<<"a">>, <<"last">>),
    {ok, _} = weir_pubsub:delete(<<"a">>),
    [?assertMatch({200, _, <<"last">>}, answer(Client)) || Client <- Clients],
    [silent(Client) || Client <- Clients],
    ok = nobody().

clients_that_go_away(_Config) ->
    Clients = wait(?MANY),
    {Gone, Stay} = lists:split(?MANY div 2, lists:reverse(Clients)),
    [ok = gen_tcp:close(Client) || Client <- Gone],
    ok = until_subscribers(length(Stay)),
    ?waitEqual(length(Stay), length(rows())),
    {201, _} = publish(<<"hello">>),
    [?assertMatch({200, _, <<"hello">>}, answer(Client)) || Client <- Stay],
    ok = nobody().

%% The engine has a bounded number of groups.
all_clients_go_away(_Config) ->
    Clients = wait(?MANY),
    ?assertMatch([_], crowds()),
    [ok = gen_tcp:close(Client) || Client <- Clients],
    ok = nobody(),
    ?assertEqual([], crowds()),
    %% Waiting alone works after that.
    {202, _} = publish(<<"hello">>),
    {200, _, <<"hello">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    _ = wait(?MANY, fun(_) -> resume(First) end),
    ?assertMatch([_], crowds()).

%% A message that a group sends does not say that the connection is closed.
the_last_poll_of_a_connection(_Config) ->
    restart(#{max_requests => 2}, #{}),
    Clients = wait(?MANY),
    {201, _} = publish(<<"first">>),
    Answers = [{200, _, <<"first">>} = answer(Client) || Client <- Clients],
    [?assertEqual(undefined, proplists:get_value(<<"connection">>, Fields)) || {200, Fields, _} <- Answers],
    again(lists:zip(lists:seq(1, ?MANY), Clients), fun(_) -> resume(hd(Answers)) end),
    {201, _} = publish(<<"second">>),
    [
        begin
            {200, Fields, <<"second">>} = answer(Client),
            ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Fields)),
            ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, weir_test_wait:patience()))
        end
     || Client <- Clients
    ].

%% They continue to wait, and get the gap.
a_shard_is_killed(_Config) ->
    Clients = wait(?MANY),
    ok = kill_shard(),
    ok = until_subscribers(?MANY),
    {201, _} = publish(<<"x">>),
    [
        begin
            {200, Fields, <<"x">>} = answer(Client),
            ?assertEqual(<<"unknown">>, proplists:get_value(<<"weir-missed">>, Fields))
        end
     || Client <- Clients
    ],
    ok = nobody().

%% The next shard lets that poll wait again, and ends it some messages later: it has credit for one message, and the
%% history keeps three.
a_shard_is_killed_before_it_hears_that_a_poll_is_over(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 3}}]}),
    Client = connect(),
    ok = poll(Client),
    ok = until_subscribers(1),
    Shard = shard(),
    ok = weir_pubsub_test:suspend(Shard),
    {201, _} = publish(<<"first">>),
    {200, _, <<"first">>} = First = answer(Client),
    %% The message is in the mailbox of the shard, which has not handled it.
    ?waitMatch([_], [told || {'$gen_cast', {unsubscribe, <<"a">>, _}} <- element(2, process_info(Shard, messages))]),
    ok = kill_shard(),
    ok = until_subscribers(1),
    #{slow := Slow} = weir_pubsub:counters(),
    [{201, _} = publish(<<"again">>) || _ <- lists:seq(1, 5)],
    ok = nobody(),
    ?assertMatch(#{slow := Slow}, weir_pubsub:counters()),
    ok = poll(Client, resume(First)),
    {200, _, <<"again">>} = answer(Client),
    silent(Client).

%% Its connections are closed, and its polls no longer count.
a_reactor_is_killed(_Config) ->
    Clients = wait(?MANY),
    Reactors = lists:usort([element(3, element(2, Row)) || Row <- rows()]),
    [exit(Reactor, kill) || Reactor <- Reactors],
    [?assertMatch({error, _}, gen_tcp:recv(Client, 0, weir_test_wait:patience())) || Client <- Clients],
    ok = nobody().

%% With messages on their way. Each request has one response, and at the end no poll is left.
shards_are_killed_again_and_again(_Config) ->
    lists:foreach(
        fun(_) ->
            Clients = wait(?MANY),
            Publisher = spawn_monitor(fun() ->
                [weir_pubsub:publish(<<"a">>, integer_to_binary(N)) || N <- lists:seq(1, 20)]
            end),
            ok = kill_shard(),
            normal = weir_pubsub_test:ended(Publisher),
            ok = wait_until(fun() ->
                {Status, _} = publish(<<"end">>),
                Status =:= 201 orelse Status =:= 202
            end),
            [
                case answer(Client) of
                    {200, _, _} -> ok;
                    {503, _, _} -> ok
                end
             || Client <- Clients
            ],
            [silent(Client) || Client <- Clients],
            ok = nobody(),
            [ok = gen_tcp:close(Client) || Client <- Clients],
            {_, _, _} = request(port(), <<"DELETE">>, "/pub/a", [])
        end,
        lists:seq(1, 3)
    ).
