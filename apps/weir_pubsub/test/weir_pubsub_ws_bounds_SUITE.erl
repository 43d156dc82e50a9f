%% What one client of `/ws' can make a server keep: processes, requests that wait, and bytes.
-module(weir_pubsub_ws_bounds_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_ws_test, [start/1, connect/0, say/2, hear/1, ask/2]).

-define(ERROR(Code), #{<<"type">> := <<"error">>, <<"code">> := Code, <<"text">> := _}).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [few_wait_at_a_time, too_many_wait, too_many_bytes_wait, a_long_history, long_answers_wait_for_the_client].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Config.

end_per_testcase(_Case, _Config) ->
    ok = weir_pubsub_ws_test:stop(),
    ok = application:stop(weir_pubsub).

%% Each fun tells the test that it waits, and waits until the test says what to return.
start_waiting() ->
    Test = self(),
    start(#{
        may => fun(Right, _, Channel) ->
            {wait, fun() ->
                Test ! {waits, self(), Right, Channel},
                receive
                    {say, IsAllowed} -> IsAllowed
                after weir_test_wait:patience() -> false
                end
            end}
        end
    }).

waits() ->
    receive
        {waits, Pid, Right, Channel} -> {Pid, Right, Channel}
    after weir_test_wait:patience() -> ct:fail(nobody_waits)
    end.

nobody_waits() -> receive {waits, _, _, _} = More -> ct:fail(More) after 0 -> ok end.

channel(Number) -> <<"c", (integer_to_binary(Number))/binary>>.

%% The answer to a ping shows that everything before it has been read.
until_read(Socket) -> #{<<"type">> := <<"pong">>} = ask(Socket, #{type => ping}).

%% Each request gets its own verdict, whatever the order of the verdicts.
few_wait_at_a_time(_Config) ->
    start_waiting(),
    Socket = connect(),
    Numbers = lists:seq(1, 100),
    [say(Socket, #{type => presence, channel => channel(Number), ref => Number}) || Number <- Numbers],
    until_read(Socket),
    First = [waits() || _ <- lists:seq(1, 16)],
    nobody_waits(),
    ?assertEqual(
        [channel(Number) || Number <- lists:seq(1, 16)],
        lists:sort(fun in_order/2, [Channel || {_, presence, Channel} <- First])
    ),
    [{Last, _, LastChannel} | Others] = lists:reverse(First),
    %% There is room for one more only.
    Answers = answered(Socket, Others, length(Numbers) - 1),
    nobody_waits(),
    Last ! {say, false},
    LastAnswer = hear(Socket),
    ?assertMatch(?ERROR(<<"forbidden">>), LastAnswer),
    ?assertEqual(LastChannel, channel(maps:get(<<"ref">>, LastAnswer))),
    ?assertEqual(Numbers, lists:sort([Ref || #{<<"ref">> := Ref} <- [LastAnswer | Answers]])).

in_order(A, B) -> {byte_size(A), A} =< {byte_size(B), B}.

answered(_Socket, [], 0) ->
    [];
answered(Socket, [{Pid, presence, Channel} | Waiting], Left) ->
    Pid ! {say, false},
    #{<<"ref">> := Ref} = Answer = hear(Socket),
    ?assertEqual(Channel, channel(Ref)),
    ?assertMatch(?ERROR(<<"forbidden">>), Answer),
    More = case Left > length(Waiting) + 1 of true -> [waits()]; false -> [] end,
    [Answer | answered(Socket, Waiting ++ More, Left - 1)].

too_many_wait(_Config) ->
    start_waiting(),
    Socket = connect(),
    [say(Socket, #{type => presence, channel => <<"a">>}) || _ <- lists:seq(1, 1000)],
    ?assertMatch(?ERROR(<<"too_many">>), ask(Socket, #{type => presence, channel => <<"a">>})),
    [{Pid, _, _} | _] = [waits() || _ <- lists:seq(1, 16)],
    nobody_waits(),
    %% As soon as one has its answer there is room.
    Pid ! {say, false},
    ?assertMatch(?ERROR(<<"forbidden">>), hear(Socket)),
    say(Socket, #{type => presence, channel => <<"a">>}),
    until_read(Socket).

%% A message to publish may be large, and a single one may have any size.
too_many_bytes_wait(_Config) ->
    start_waiting(),
    Socket = connect(),
    Publish = #{type => publish, channel => <<"a">>, data => binary:copy(<<"x">>, 1000000)},
    [say(Socket, Publish) || _ <- lists:seq(1, 4)],
    ?assertMatch(?ERROR(<<"too_many">>), ask(Socket, Publish)),
    say(Socket, #{type => presence, channel => <<"a">>}),
    until_read(Socket),
    Waiting = [waits() || _ <- lists:seq(1, 5)],
    [Pid ! {say, true} || {Pid, publish, _} <- Waiting],
    [?assertMatch(#{<<"type">> := <<"published">>}, hear(Socket)) || _ <- lists:seq(1, 4)],
    say(Socket, Publish),
    {_, publish, <<"a">>} = waits().

%% An answer is one frame: messages that do not fit have to be requested again.
a_long_history(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_bytes => 10000000}}]}),
    start(#{}),
    Socket = connect(),
    Texts =
        [binary:copy(Byte, 400000) || Byte <- [<<"1">>, <<"2">>, <<"3">>]] ++ [binary:copy(<<"4">>, 1000000), <<"5">>],
    Ids = [
        begin
            {ok, #{id := Id}} = weir_pubsub:publish(<<"a">>, Text),
            weir_pubsub_id:to_text(Id)
        end
     || Text <- Texts
    ],
    ?assertEqual([[1, 2], [3], [4, 5]], pages(Socket, oldest, lists:zip(Ids, lists:seq(1, 5)), Texts)).

pages(Socket, From, Numbers, Texts) ->
    #{<<"messages">> := Messages, <<"last_id">> := Last, <<"missed">> := 0} = ask(Socket, #{
        type => history, channel => <<"a">>, from => From
    }),
    Page = [
        begin
            Number = proplists:get_value(Id, Numbers),
            true = lists:nth(Number, Texts) =:= Data,
            Number
        end
     || #{<<"id">> := Id, <<"data">> := Data} <- Messages
    ],
    case maps:get(<<"id">>, lists:last(Messages)) of
        Last -> [Page];
        Id -> [Page | pages(Socket, Id, Numbers, Texts)]
    end.

%% A client that takes nothing has one of them in its queue; and no client is closed for its requests.
long_answers_wait_for_the_client(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_bytes => 10000000}}]}),
    {ok, _} = weir_pubsub:publish(<<"a">>, binary:copy(<<"x">>, 1000000)),
    start_waiting(),
    Socket = connect(),
    Numbers = lists:seq(1, 32),
    [say(Socket, #{type => history, channel => <<"a">>, from => oldest, ref => Number}) || Number <- Numbers],
    [
        begin
            {Pid, history, <<"a">>} = waits(),
            Monitor = monitor(process, Pid),
            Pid ! {say, true},
            receive
                {'DOWN', Monitor, _, _, normal} -> ok
            after weir_test_wait:patience() -> ct:fail(is_waiting)
            end
        end
     || _ <- Numbers
    ],
    %% The reactors have handled all messages, and have sent after that.
    [_ = sys:get_state(Reactor, weir_test_wait:patience()) || _ <- [1, 2], #{reactor := Reactor} <- weir:reactors()],
    [
        ?assert(Bytes < 2000000)
     || Each <- weir:sockets(), {ok, [{send_pend, Bytes}]} <- [inet:getstat(Each, [send_pend])]
    ],
    Answers = [hear(Socket) || _ <- Numbers],
    [?assertMatch(#{<<"messages">> := [#{<<"data">> := <<"xxx", _/binary>>}]}, Answer) || Answer <- Answers],
    ?assertEqual(Numbers, lists:sort([Ref || #{<<"ref">> := Ref} <- Answers])),
    %% There is room for others.
    say(Socket, #{type => presence, channel => <<"a">>}),
    {Last, presence, <<"a">>} = waits(),
    Last ! {say, false},
    ?assertMatch(?ERROR(<<"forbidden">>), hear(Socket)).
