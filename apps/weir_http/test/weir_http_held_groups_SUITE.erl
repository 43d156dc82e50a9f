%% Held requests: pipelined requests behind them, groups, and the end of reactors and listeners.
-module(weir_http_held_groups_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, close/1, response/1, is_closed/1, get/1, get/2]).
-import(weir_http_funs, [opened/0, closed/0, hold/1, hold/2, reply/1, direct/1]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, order}, {group, groups}, {group, misfortune}].

groups() ->
    [
        {order, [], [
            requests_behind_it_wait,
            many_requests_behind_it,
            a_client_that_sends_far_ahead_is_not_read
        ]},
        {groups, [], [
            one_answer_for_all,
            one_of_several_groups,
            a_group_or_a_process,
            clients_of_all_kinds,
            joined_by_nobody_else,
            only_members_are_withdrawn,
            who_takes_a_frame,
            nothing_is_missed
        ]},
        {misfortune, [], [
            a_client_that_is_gone_is_noticed_at_once,
            a_drain_answers_all,
            reactors_killed_while_requests_are_held,
            the_listener_stops
        ]}
    ].

start(Funs) -> weir_http_funs:start(?LISTENER, hold, Funs).

start(Funs, Options) -> weir_http_funs:start(?LISTENER, hold, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Order.

requests_behind_it_wait(_Config) ->
    Client = connect(start(#{})),
    ok = send(Client, [get("/direct"), get("/go"), get("/direct"), get("/go")]),
    {200, _, <<"direct">>} = response(Client),
    First = opened(),
    ok = send(Client, get("/direct")),
    ok = weir_http_held:reply(First, reply("first")),
    {200, _, <<"first">>} = response(Client),
    {200, _, <<"direct">>} = response(Client),
    Second = opened(),
    ok = weir_http_held:reply(Second, reply("second")),
    {200, _, <<"second">>} = response(Client),
    {200, _, <<"direct">>} = response(Client).

many_requests_behind_it(_Config) ->
    Client = connect(start(#{})),
    Held = hold(Client, [get("/go") | lists:duplicate(500, get("/direct"))]),
    ok = weir_http_held:reply(Held, reply("held")),
    {200, _, <<"held">>} = response(Client),
    [{200, _, <<"direct">>} = response(Client) || _ <- lists:seq(1, 500)].

a_client_that_sends_far_ahead_is_not_read(_Config) ->
    Client = connect(start(#{})),
    Held = hold(Client),
    Sender = spawn_link(fun() ->
        receive
            go ->
                ok = send(Client, lists:duplicate(40_000, get("/direct"))),
                receive
                    stop -> ok
                end
        end
    end),
    Sender ! go,
    {weir_http_held, Socket, _} = Held,
    ?waitEqual({ok, [{active, false}]}, inet:getopts(Socket, [active])),
    {ok, [{recv_oct, Read}]} = inet:getstat(Socket, [recv_oct]),
    ?assert(Read < 1000000),
    ok = weir_http_held:reply(Held, reply("held")),
    {200, _, <<"held">>} = response(Client),
    [{200, _, <<"direct">>} = response(Client) || _ <- lists:seq(1, 40_000)],
    Sender ! stop.

%%% Groups.

joining(Group) -> #{open => fun(Held, State) -> ok = weir_http_held:join(Group, Held), {ok, State} end}.

one_answer_for_all(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Port = start(joining(Group)),
    Clients = [connect(Port) || _ <- lists:seq(1, 50)],
    [
        begin
            [ok = send(Client, get("/go")) || Client <- Clients],
            [_ = opened() || _ <- Clients],
            Text = integer_to_binary(N),
            ?assertEqual(
                {ok, 50}, weir_group:broadcast(Group, weir_http_held:frame({reply, 200, [{<<"x-n">>, Text}], Text}))
            ),
            [
                ?assertMatch(
                    {200, #{<<"x-n">> := Text, <<"content-length">> := _, <<"date">> := _}, Text}, response(Client)
                )
             || Client <- Clients
            ],
            [?assertEqual(answered, closed()) || _ <- Clients],
            ?assertEqual(0, weir_group:size(Group))
        end
     || N <- lists:seq(1, 10)
    ],
    [ok = direct(Client) || Client <- Clients],
    ?assertEqual(0, counter(crashes)).

one_of_several_groups(_Config) ->
    Groups = [element(2, {ok, _} = weir_group:new(#{})) || _ <- lists:seq(1, 3)],
    Client = connect(start(#{open => fun(Held, State) ->
        [ok = weir_http_held:join(Group, Held) || Group <- Groups],
        {ok, State}
    end})),
    [
        begin
            _ = hold(Client),
            {ok, 1} = weir_group:broadcast(Group, weir_http_held:frame(reply("news"))),
            {200, _, <<"news">>} = response(Client),
            %% It leaves the groups shortly after the write.
            ?assertEqual(answered, closed()),
            ?assertEqual([0, 0, 0], [weir_group:size(Each) || Each <- Groups])
        end
     || Group <- Groups
    ],
    ok = direct(Client).

%% Each gets exactly one answer, whichever comes first.
a_group_or_a_process(_Config) ->
    {ok, Group} = weir_group:new(#{backlog => 10000}),
    Client = connect(start(joining(Group))),
    Frame = weir_http_held:frame(reply("g")),
    Got = [
        begin
            Held = hold(Client),
            Caster = spawn_link(fun() -> {ok, _} = weir_group:broadcast(Group, Frame) end),
            ok = weir_http_held:reply(Held, reply("p")),
            {200, _, Text} = response(Client),
            ?assertEqual(answered, closed()),
            ok = wait_until(fun() -> not is_process_alive(Caster) end),
            Text
        end
     || _ <- lists:seq(1, 300)
    ],
    ok = direct(Client),
    ?assertEqual([], lists:usort(Got) -- [<<"g">>, <<"p">>]).

clients_of_all_kinds(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Port = start(joining(Group)),
    [New, Closing, Old, Keeping] = Clients = [connect(Port) || _ <- lists:seq(1, 4)],
    _ = hold(New),
    _ = hold(Closing, get("/go", "Connection: close\r\n")),
    _ = hold(Old, "GET /go HTTP/1.0\r\n\r\n"),
    _ = hold(Keeping, "GET /go HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    {ok, 4} = weir_group:broadcast(Group, weir_http_held:frame(reply("all"))),
    [?assertMatch({200, _, <<"all">>}, response(Client)) || Client <- Clients],
    ok = direct(New),
    %% The response did not say that the connection stays open.
    [true = is_closed(Client) || Client <- [Closing, Old, Keeping]].

joined_by_nobody_else(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Client = connect(start(#{info => fun
        ({join, Other}, State) -> catch weir_http_held:join(Group, Other), {ok, State};
        (join, State = #{tell := Pid}) -> Pid ! {size, weir_group:size(Group)}, {ok, State}
    end})),
    Earlier = hold(Client),
    ?assertError(not_held, weir_http_held:join(Group, Earlier)),
    ok = weir_http_held:reply(Earlier, reply("earlier")),
    {200, _, <<"earlier">>} = response(Client),
    Held = hold(Client),
    ok = weir_http_held:tell(Held, {join, Earlier}),
    ok = weir_http_held:tell(Held, join),
    receive {size, Size} -> ?assertEqual(0, Size) end,
    ok = weir_http_held:tell(Held, {join, Held}),
    ok = weir_http_held:tell(Held, join),
    receive {size, NewSize} -> ?assertEqual(1, NewSize) end.

%% A withdrawal is a call of the engine, and most requests join no group.
only_members_are_withdrawn(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Client = connect(
        start(#{
            info => fun({join, Held}, State) ->
                ok = weir_http_held:join(Group, Held),
                {ok, State}
            end
        })
    ),
    Withdraw = {weir_group, withdraw, 1},
    1 = erlang:trace_pattern(Withdraw, true, [call_count]),
    try
        Alone = hold(Client),
        ok = weir_http_held:reply(Alone, reply("alone")),
        {200, _, <<"alone">>} = response(Client),
        ?assertEqual({call_count, 0}, erlang:trace_info(Withdraw, call_count)),
        Member = hold(Client),
        ok = weir_http_held:tell(Member, {join, Member}),
        ok = weir_http_held:reply(Member, reply("member")),
        {200, _, <<"member">>} = response(Client),
        ?assertEqual({call_count, 1}, erlang:trace_info(Withdraw, call_count)),
        ?assertEqual(0, weir_group:size(Group))
    after
        erlang:trace_pattern(Withdraw, false, [call_count])
    end.

who_takes_a_frame(_Config) ->
    Tell = #{open => fun(Held, _State) -> {reply, 200, [], atom_to_binary(weir_http_held:takes_frame(Held))} end},
    Ask = fun(Client, Version, Fields) ->
        _ = hold(Client, ["GET /go HTTP/", Version, "\r\nHost: x\r\n", Fields, "\r\n"]),
        {200, _, Says} = response(Client),
        Says
    end,
    Takes = fun(Port, Version, Fields) ->
        Client = connect(Port),
        Says = Ask(Client, Version, Fields),
        ok = close(Client),
        Says
    end,
    Port = start(Tell),
    ?assertEqual(<<"true">>, Takes(Port, "1.1", [])),
    ?assertEqual(<<"false">>, Takes(Port, "1.1", "Connection: close\r\n")),
    ?assertEqual(<<"false">>, Takes(Port, "1.0", "Connection: keep-alive\r\n")),
    ok = weir_http:stop_listener(?LISTENER),
    Compressing = start(Tell, #{gzip => #{}}),
    ?assertEqual(<<"false">>, Takes(Compressing, "1.1", [])),
    ok = weir_http:stop_listener(?LISTENER),
    Naming = start(Tell, #{request_ids => make}),
    ?assertEqual(<<"false">>, Takes(Naming, "1.1", [])),
    ok = weir_http:stop_listener(?LISTENER),
    Client = connect(start(Tell, #{max_requests => 2})),
    ?assertEqual(<<"true">>, Ask(Client, "1.1", [])),
    ?assertEqual(<<"false">>, Ask(Client, "1.1", [])),
    ?assert(is_closed(Client)).

%% The handler follows the pattern of the documentation: join first, then check. Clients ask for what follows their
%% last item.
nothing_is_missed(_Config) ->
    Table = ets:new(?MODULE, [public, ordered_set]),
    {ok, Group} = weir_group:new(#{backlog => 10000}),
    Port = start(#{
        handle => fun(Request, State) ->
            {hold, weir_http_funs, State#{last => binary_to_integer(weir_http_request:query(Request))}, #{
                timeout => infinity
            }}
        end,
        open => fun(Held, State = #{last := Last}) ->
            ok = weir_http_held:join(Group, Held),
            case ets:next(Table, Last) of
                '$end_of_table' -> {ok, State};
                Next -> reply(integer_to_binary(Next))
            end
        end
    }),
    Most = 400,
    Readers = [spawn_monitor(fun() -> poll(connect(Port), 0, Most) end) || _ <- lists:seq(1, 5)],
    _ = [
        begin
            true = ets:insert(Table, {N}),
            {ok, _} = weir_group:broadcast(Group, weir_http_held:frame(reply("look"))),
            N rem 3 =:= 0 andalso timer:sleep(1)
        end
     || N <- lists:seq(1, Most)
    ],
    [
        receive
            {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason)
        end
     || {_, Monitor} <- Readers
    ].

poll(_Client, Most, Most) ->
    ok;
poll(Client, Last, Most) ->
    ok = send(Client, get(["/go?", integer_to_list(Last)])),
    case response(Client) of
        {200, _, <<"look">>} -> poll(Client, Last, Most);
        {200, _, Number} -> Next = Last + 1, Next = binary_to_integer(Number), poll(Client, Next, Most)
    end.

%%% Misfortune.

a_client_that_is_gone_is_noticed_at_once(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Client = connect(start(joining(Group))),
    Held = hold(Client),
    ok = close(Client),
    ?assertEqual({lost, closed}, closed()),
    ?waitEqual(1, counter(held_lost)),
    ?waitEqual({error, closed}, weir_http_held:reply(Held, reply("late"))),
    ?waitEqual(0, weir_group:size(Group)).

a_drain_answers_all(_Config) ->
    Port = start(#{options => #{otherwise => reply("nothing")}}, #{idle_timeout => 200}),
    Clients = [connect(Port) || _ <- lists:seq(1, 20)],
    [_ = hold(Client) || Client <- Clients],
    ok = weir_http:drain_listener(?LISTENER, weir_test_wait:patience()),
    [?assertMatch({200, #{<<"connection">> := <<"close">>}, <<"nothing">>}, response(Client)) || Client <- Clients],
    [?assertEqual(drained, closed()) || _ <- Clients],
    [true = is_closed(Client) || Client <- Clients].

reactors_killed_while_requests_are_held(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Port = start(joining(Group)),
    Clients = [{hold(Client), Client} || Client <- [connect(Port) || _ <- lists:seq(1, 20)]],
    {{weir_http_held, {_, _, Handle}, _}, _} = hd(Clients),
    {ok, Victim} = weir_nif:reactor_of(Handle),
    Monitor = monitor(process, Victim),
    Dead = [Client || {{_, {_, _, Of}, _}, Client} <- Clients, weir_nif:reactor_of(Of) =:= {ok, Victim}],
    exit(Victim, kill),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    [true = is_closed(Client) || Client <- Dead],
    Left = length(Clients) - length(Dead),
    ?waitEqual(Left, weir_group:size(Group)),
    {ok, Left} = weir_group:broadcast(Group, weir_http_held:frame(reply("left"))),
    [?assertMatch({200, _, <<"left">>}, response(Client)) || {_, Client} <- Clients, not lists:member(Client, Dead)],
    ok = wait_until(fun() -> try direct(connect(Port)) of ok -> true catch error:_ -> false end end).

the_listener_stops(_Config) ->
    Client = connect(start(#{})),
    _ = hold(Client),
    ok = weir_http:stop_listener(?LISTENER),
    ?assertMatch({lost, _}, closed()),
    true = is_closed(Client).
