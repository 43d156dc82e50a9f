%% Several messages in the response to a long poll: in order and once, as many as fit, however the poll has come to
%% them.
-module(weir_pubsub_poll_answers_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4]).
-import(weir_pubsub_polls_test, [
    restart/2, port/0, connect/0, answer/1, until_subscribers/1, together/0, nobody/0, kill_shard/0
]).

-include("polls_suite.hrl").
-include("../src/weir_pubsub_subscriber.hrl").

%% More polls than have to wait before there is a group.
-define(MANY, 20).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        as_the_query_asks,
        as_many_as_an_answer_may_have,
        bytes_that_an_answer_may_have,
        a_gap_before_them,
        of_several_channels,
        gaps_in_several_channels,
        what_came_while_it_waited,
        what_came_in_several_channels,
        waiting_together_in_two_forms,
        a_message_that_looks_like_several,
        a_client_that_is_always_late,
        an_answer_for_all_with_the_same_position,
        a_shard_is_killed
    ].

as_the_query_asks(_Config) ->
    publish(["1", "2"]),
    ?assertMatch({[<<"1">>, <<"2">>], _}, poll("/sub/a?poll_answer=multipart")),
    ?assertMatch({[<<"1">>], _}, poll("/sub/a")),
    restart(#{}, #{poll_answer => raw}),
    ?assertMatch({[<<"1\n2\n">>], _}, poll("/sub/a")),
    ?assertMatch({[<<"1">>, <<"2">>], _}, poll("/sub/a?poll_answer=multipart")),
    ?assertError({bad_option, poll_answer, many, _}, weir_pubsub_http:routes(#{poll_answer => many})).

as_many_as_an_answer_may_have(_Config) ->
    ok = keep(1000),
    All = [integer_to_binary(Number) || Number <- lists:seq(1, 600)],
    publish(All),
    {First, Fields} = parts("a", []),
    {Second, More} = parts("a", resume(Fields)),
    {Third, _} = parts("a", resume(More)),
    ?assertEqual({256, 256, 88}, {length(First), length(Second), length(Third)}),
    ?assertEqual(All, First ++ Second ++ Third).

bytes_that_an_answer_may_have(_Config) ->
    publish([binary:copy(<<"x">>, Size) || Size <- [20000, 20000, 20000, 20000, 100000, 1]]),
    ?assertEqual([[20000, 20000, 20000], [20000], [100000], [1]], sizes([])).

sizes(Fields) ->
    case parts("a", Fields) of
        {Parts, _} when hd(Parts) =:= <<"x">> -> [[1]];
        {Parts, Next} -> [[byte_size(Part) || Part <- Parts] | sizes(resume(Next))]
    end.

a_gap_before_them(_Config) ->
    ok = keep(3),
    [First | _] = publish(["1", "2", "3", "4", "5", "6"]),
    {Parts, Fields} = parts("a", [{"If-None-Match", weir_pubsub_id:to_text(First)}]),
    ?assertEqual([<<"4">>, <<"5">>, <<"6">>], Parts),
    ?assertEqual(<<"2">>, proplists:get_value(<<"weir-missed">>, Fields)).

%% The messages of a channel are in order, and the id says for both channels where the next response begins.
of_several_channels(_Config) ->
    publish(["a1", "a2"]),
    publish("b", ["b1", "b2"]),
    {Parts, Fields} = parts("a,b", []),
    ?assertEqual(
        {[<<"a1">>, <<"a2">>], [<<"b1">>, <<"b2">>]}, lists:partition(fun(<<Channel, _>>) -> Channel =:= $a end, Parts)
    ),
    publish("b", ["b3"]),
    publish(["a3"]),
    {Next, _} = parts("a,b", resume(Fields)),
    ?assertEqual([<<"a3">>, <<"b3">>], lists:sort(Next)).

gaps_in_several_channels(_Config) ->
    ok = keep(1),
    publish(["a1"]),
    publish("b", ["b1"]),
    {_, Fields} = parts("a,b", []),
    publish(["a2", "a3"]),
    publish("b", ["b2", "b3", "b4"]),
    {Next, Told} = parts("a,b", resume(Fields)),
    ?assertEqual([<<"a3">>, <<"b4">>], lists:sort(Next)),
    ?assertEqual(<<"3">>, proplists:get_value(<<"weir-missed">>, Told)).

%% Its reactor is busy when the messages come.
what_came_while_it_waited(_Config) -> waits("a", ["1", "2", "3"], []).

what_came_in_several_channels(_Config) -> waits("a,b", ["1", "2"], ["3", "4"]).

waits(Channels, InA, InB) ->
    Poll = connect(),
    ok = gen_tcp:send(Poll, request_for(Channels, [])),
    ok = until_subscribers(1),
    %% Wait until the shard of the other channel has the poll, too.
    ok = weir_test_wait:wait_until(fun() -> InB =:= [] orelse element(1, weir_pubsub:info(<<"b">>)) =:= ok end),
    Reactor = reactor(),
    true = erlang:suspend_process(Reactor),
    publish(InA),
    publish("b", InB),
    true = erlang:resume_process(Reactor),
    {200, Fields, Body} = answer(Poll),
    ?assertEqual([iolist_to_binary(Data) || Data <- InA ++ InB], lists:sort(contents(Fields, Body))),
    ok = nobody().

reactor() ->
    {ok, {_, _, Subscribers}} = weir_pubsub_shards:tables_of(<<"a">>),
    [{_, #subscriber{pid = Reactor}} | _] = weir_pubsub_subscribers:all(Subscribers),
    Reactor.

%% One message is sent as it is to all polls.
waiting_together_in_two_forms(_Config) ->
    Clients = wait_together(),
    publish(["hello"]),
    [?assertMatch({200, _, <<"hello">>}, answer(Client)) || {_, Client} <- Clients],
    ok = nobody().

%% Its type is that of several messages, but it is one, also for polls that wait together.
a_message_that_looks_like_several(_Config) ->
    Fake = <<"--B\r\n\r\none\r\n--B\r\n\r\ntwo\r\n--B--\r\n">>,
    Type = <<"Multipart/Mixed; boundary=B">>,
    Clients = wait_together(),
    {ok, _} = weir_pubsub:publish(<<"a">>, Fake, #{type => Type}),
    [
        begin
            {200, Fields, Body} = answer(Client),
            case Form of
                one -> ?assertEqual({Type, Fake}, {proplists:get_value(<<"content-type">>, Fields), Body});
                multipart -> ?assertEqual([Fake], contents(Fields, Body))
            end
        end
     || {Form, Client} <- Clients
    ],
    ?assertMatch({[Fake], _}, parts("a", [])),
    %% Clients do not see white space before it.
    {ok, #{id := {Epoch, Number}}} = weir_pubsub:publish(<<"a">>, Fake, #{type => <<" multipart/mixed; boundary=B">>}),
    Before = weir_pubsub_id:to_text({Epoch, Number - 1}),
    ?assertMatch({[Fake], _}, parts("a", [{"Last-Event-ID", Before}])).

wait_together() ->
    Clients = [
        begin
            Client = connect(),
            ok = weir_pubsub_test:idle(<<"a">>),
            ok = gen_tcp:send(
                Client,
                case Form of
                    multipart -> request_for("a", []);
                    one -> "GET /sub/a HTTP/1.1\r\nHost: x\r\n\r\n"
                end
            ),
            ok = until_subscribers(Number),
            {Form, Client}
        end
     || {Number, Form} <- lists:zip(lists:seq(1, 2 * ?MANY), lists:append(lists:duplicate(?MANY, [one, multipart])))
    ],
    %% The first few wait alone.
    ?assert(together() > ?MANY),
    Clients.

%% Each response has more than one message, and together they are all, in order.
a_client_that_is_always_late(_Config) ->
    ok = keep(1000),
    Client = connect(),
    All = lists:append([
        begin
            Some = [integer_to_list(Round * 10 + Number) || Number <- lists:seq(1, 7)],
            publish(Some),
            ok = gen_tcp:send(Client, request_for("a", case get(last) of undefined -> []; Last -> Last end)),
            {200, Fields, Body} = answer(Client),
            _ = put(last, resume(Fields)),
            Parts = contents(Fields, Body),
            ?assertEqual([list_to_binary(Data) || Data <- Some], Parts),
            Parts
        end
     || Round <- lists:seq(1, 50)
    ]),
    ?assertEqual(350, length(All)).

%% The response is made once, until a message comes. A poll from another position, in another form or of another page
%% gets another response.
an_answer_for_all_with_the_same_position(_Config) ->
    [First | _] = publish(["1", "2", "3"]),
    Id = weir_pubsub_id:to_text(First),
    Client = connect(),
    Ask = fun(Query, From, Fields) ->
        ok = gen_tcp:send(Client, [
            "GET /sub/a", Query, " HTTP/1.1\r\nHost: x\r\nIf-None-Match: ", From, "\r\n", Fields, "\r\n"
        ]),
        {200, Told, Body} = answer(Client),
        {
            contents(Told, Body),
            proplists:get_value(<<"etag">>, Told),
            proplists:get_value(<<"access-control-allow-origin">>, Told)
        }
    end,
    Several = "?poll_answer=multipart",
    [
        begin
            ?assertEqual({[<<"2">>, <<"3">>], <<"3">>, undefined}, Ask(Several, Id, [])),
            ?assertEqual({[<<"2">>], <<"2">>, undefined}, Ask("", Id, [])),
            ?assertEqual({[<<"2">>, <<"3">>], <<"3">>, <<"http://a">>}, Ask(Several, Id, "Origin: http://a\r\n")),
            ?assertMatch({[<<"1">>, <<"2">>, <<"3">>], _, _}, Ask(Several, "", []))
        end
     || _ <- lists:seq(1, 20)
    ],
    #{delivered := Before} = weir_pubsub:counters(),
    Asked = [Ask(Several, Id, []) || _ <- lists:seq(1, 100)],
    ?assertEqual([{[<<"2">>, <<"3">>], <<"3">>, undefined}], lists:usort(Asked)),
    #{delivered := After} = weir_pubsub:counters(),
    ?assertEqual(200, After - Before),
    publish(["4"]),
    ?assertMatch({[<<"2">>, <<"3">>, <<"4">>], <<"4">>, _}, Ask(Several, Id, [])),
    %% A channel of the same name, with as many messages.
    {ok, _} = weir_pubsub:delete(<<"a">>),
    publish(["5", "6", "7", "8"]),
    ?assertMatch({[<<"5">>, <<"6">>, <<"7">>, <<"8">>], <<"4">>, _}, Ask(Several, Id, [])).

a_shard_is_killed(_Config) ->
    publish(["1", "2"]),
    {[<<"1">>, <<"2">>], Fields} = parts("a", []),
    ok = kill_shard(),
    ?waitMatch({ok, _}, weir_pubsub:publish(<<"a">>, "3")),
    publish(["4"]),
    {Parts, Next} = parts("a", resume(Fields)),
    ?assertEqual([<<"3">>, <<"4">>], Parts),
    ?assertEqual(<<"unknown">>, proplists:get_value(<<"weir-missed">>, Next)).

%% Clients -------------------------------------------------------------------------------

keep(Messages) -> weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => Messages}}]}).

publish(Messages) -> publish("a", Messages).

publish(Channel, Messages) ->
    [begin {ok, #{id := Id}} = weir_pubsub:publish(list_to_binary(Channel), Data), Id end || Data <- Messages].

request_for(Channels, Fields) ->
    [
        "GET /sub/",
        Channels,
        "?poll_answer=multipart HTTP/1.1\r\nHost: x\r\n",
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields],
        "\r\n"
    ].

parts(Channels, Fields) -> poll(["/sub/", Channels, "?poll_answer=multipart"], Fields).

poll(Path) -> poll(Path, []).

poll(Path, Fields) ->
    {200, Told, Body} = request(port(), <<"GET">>, Path, Fields),
    {contents(Told, Body), Told}.

contents(Fields, Body) ->
    case proplists:get_value(<<"content-type">>, Fields) of
        <<"multipart/mixed; boundary=", Boundary/binary>> ->
            [<<>> | Parts] = binary:split(<<"\r\n", Body/binary>>, <<"\r\n--", Boundary/binary>>, [global]),
            ?assertEqual(<<"--\r\n">>, lists:last(Parts)),
            [lists:last(binary:split(Part, <<"\r\n\r\n">>)) || Part <- lists:droplast(Parts)];
        _ ->
            [Body]
    end.

resume(Fields) ->
    [
        {"If-Modified-Since", proplists:get_value(<<"last-modified">>, Fields)},
        {"If-None-Match", proplists:get_value(<<"etag">>, Fields)}
    ].
