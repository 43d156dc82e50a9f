%% Long polls that wait together for the next message of a channel: what each gets, and what is counted, whatever happens meanwhile.
-module(weir_pubsub_polls_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../src/weir_pubsub.hrl").
-include("../src/weir_pubsub_subscriber.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_pubsub_nchan, [request/4, request/5]).

-define(PATIENCE, 10000).

%% More than have to wait before there is a group.
-define(MANY, 40).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [
        all_get_the_message,
        a_frame_is_what_one_alone_gets,
        pages_of_many_sites,
        who_has_missed_something_does_not_wait,
        messages_come_while_polls_come_back,
        time_is_over_as_the_message_comes,
        deleted_while_they_wait,
        deleted_behind_a_message,
        clients_that_go_away,
        all_clients_go_away,
        the_last_poll_of_a_connection,
        a_poll_keeps_nothing_of_what_came_with_it,
        a_message_that_is_too_large_for_a_group,
        compressed_for_each,
        who_is_there,
        limits,
        a_shard_is_killed,
        a_shard_is_killed_before_it_hears_that_a_poll_is_over,
        a_reactor_is_killed,
        shards_are_killed_again_and_again
    ].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    start(#{}, #{}),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?MODULE),
    ok = application:stop(weir_pubsub).

start(Listener, Options) ->
    {ok, _} = weir_http:start_listener(
        ?MODULE, Listener#{ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(Options#{publishers => any})
    ).

restart(Listener, Options) ->
    ok = weir_http:stop_listener(?MODULE),
    start(Listener, Options).

port() -> weir:get_port(?MODULE).

publish(Data) -> publish(Data, []).
publish(Data, Fields) ->
    {Status, _, Body} = request(port(), <<"POST">>, "/pub/a", Fields, Data),
    {Status, Body}.

%% Clients that keep their connections ----------------------------------------------------

connect() ->
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}, {nodelay, true}]),
    Client.

poll(Client) -> poll(Client, []).
poll(Client, Fields) -> ok = gen_tcp:send(Client, bytes(<<"GET">>, Fields)).

bytes(Method, Fields) ->
    [Method, " /sub/a HTTP/1.1\r\nHost: localhost\r\n", [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields], "\r\n"].

answer(Client) -> answer(Client, <<>>).
answer(Client, Bytes) ->
    case binary:split(Bytes, <<"\r\n\r\n">>) of
        [Head, Begun] ->
            [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
            Fields = [{string:lowercase(Name), string:trim(Value)} || Line <- Lines, [Name, Value] <- [binary:split(Line, <<":">>)]],
            Length = binary_to_integer(proplists:get_value(<<"content-length">>, Fields)),
            {binary_to_integer(Status), Fields, body(Client, Length, Begun)};
        [_] ->
            {ok, More} = gen_tcp:recv(Client, 0, ?PATIENCE),
            answer(Client, <<Bytes/binary, More/binary>>)
    end.

%% There is nothing behind it: one answer to one request.
body(_Client, Length, Begun) when Length =:= byte_size(Begun) ->
    Begun;
body(Client, Length, Begun) when Length > byte_size(Begun) ->
    {ok, More} = gen_tcp:recv(Client, Length - byte_size(Begun), ?PATIENCE),
    <<Begun/binary, More/binary>>.

silent(Client) -> ?assertEqual({error, timeout}, gen_tcp:recv(Client, 0, 0)).

resume({_, Fields, _}) ->
    [{"If-Modified-Since", proplists:get_value(<<"last-modified">>, Fields)}, {"If-None-Match", proplists:get_value(<<"etag">>, Fields)}].

%% So many that wait, most of them together. One after the other: who meets another at work in the shard subscribes by itself.
wait(Count) -> wait(Count, fun(_) -> [] end).
wait(Count, Fields) -> wait(Count, Fields, Count div 2).

wait(Count, Fields, Together) ->
    Clients = [connect() || _ <- lists:seq(1, Count)],
    again(lists:zip(lists:seq(1, Count), Clients), Fields),
    ?assert(together() >= Together),
    Clients.

again(Clients, Fields) ->
    Before = subscribers(),
    lists:foldl(
        fun({Number, Client}, There) ->
            ok = poll(Client, Fields(Number)),
            ok = until_subscribers(There + 1),
            There + 1
        end,
        Before,
        Clients
    ).

subscribers() ->
    case weir_pubsub:info(<<"a">>) of
        {ok, #{subscribers := Count}} -> Count;
        {error, _} -> 0
    end.

until_subscribers(Count) -> until(fun() -> subscribers() =:= Count end).

until(Is) -> until(Is, erlang:monotonic_time(millisecond) + ?PATIENCE).
until(Is, End) ->
    case Is() of
        true ->
            ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < End),
            timer:sleep(1),
            until(Is, End)
    end.

%% Those that are in groups.
together() -> weir_pubsub_crowd:waiting(crowds()).

crowds() ->
    {ok, {Channels, _, _}} = weir_pubsub_shards:tables_of(<<"a">>),
    ets:lookup_element(Channels, <<"a">>, #channel.crowds).

rows() ->
    {ok, {_, _, Subscribers}} = weir_pubsub_shards:tables_of(<<"a">>),
    ets:tab2list(Subscribers).

%% Nobody is left, in no table and in no count.
nobody() ->
    ok = until_subscribers(0),
    ok = until(fun() -> rows() =:= [] end),
    ok = until(fun() -> {ok, #{subscribers := Count}} = weir_pubsub_limits:usage(total), Count =:= 0 end).

shard() ->
    {ok, {Channels, _, _}} = weir_pubsub_shards:tables_of(<<"a">>),
    ets:info(Channels, owner).

kill_shard() ->
    Pid = shard(),
    Monitor = monitor(process, Pid),
    true = exit(Pid, kill),
    receive {'DOWN', Monitor, process, _, _} -> ok end.

%%% --------------------------------------------------------------------------------------

all_get_the_message(_Config) ->
    Clients = wait(?MANY),
    #{delivered := Delivered, subscribed := Subscribed, unsubscribed := Unsubscribed} = weir_pubsub:counters(),
    Together = together(),
    %% As many as there were, and not as there are when it is given.
    {201, Body} = publish(<<"hello">>),
    ?assertMatch({_, _}, binary:match(Body, <<"active subscribers: ", (integer_to_binary(?MANY))/binary>>)),
    Answers = [answer(Client) || Client <- Clients],
    [?assertMatch({200, _, <<"hello">>}, Answer) || Answer <- Answers],
    ok = nobody(),
    #{delivered := Now, subscribed := Subscribed, unsubscribed := Over} = weir_pubsub:counters(),
    ?assertEqual(?MANY, Now - Delivered),
    ?assertEqual(?MANY, Over - Unsubscribed),
    %% And again, by the same group.
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

%% Also of more than there are groups for.
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

%% Between the look at the history and the place in the group a message may come.
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

%% Each gets every message, in order and once, however it waits.
messages_come_while_polls_come_back(_Config) ->
    ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => 1000}}]}),
    Clients = wait(?MANY),
    Count = 150,
    Readers = [
        spawn_monitor(fun() ->
            receive go -> ok end,
            read(Client, 1, Count)
        end)
     || Client <- Clients
    ],
    [begin ok = gen_tcp:controlling_process(Client, Pid), Pid ! go end || {Client, {Pid, _}} <- lists:zip(Clients, Readers)],
    [{ok, _} = weir_pubsub:publish(<<"a">>, integer_to_binary(Number)) || Number <- lists:seq(1, Count)],
    [receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason) end || {_, Monitor} <- Readers],
    ok = nobody().

read(Client, Number, Count) ->
    {200, Fields, Data} = Answer = answer(Client),
    {Number, undefined} = {binary_to_integer(Data), proplists:get_value(<<"weir-missed">>, Fields)},
    case Number of
        Count -> ok;
        _ -> ok = poll(Client, resume(Answer)), read(Client, Number + 1, Count)
    end.

%% One answer each: the message, or that there is none.
time_is_over_as_the_message_comes(_Config) ->
    restart(#{}, #{poll_timeout => 3000}),
    [
        begin
            Clients = wait(?MANY),
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

deleted_while_they_wait(_Config) ->
    Clients = wait(?MANY),
    {200, _, _} = request(port(), <<"DELETE">>, "/pub/a", []),
    [?assertMatch({410, _, <<>>}, answer(Client)) || Client <- Clients],
    ok = nobody(),
    %% The connections go on.
    again(lists:zip(lists:seq(1, ?MANY), Clients), fun(_) -> [] end),
    {201, _} = publish(<<"hello">>),
    [?assertMatch({200, _, <<"hello">>}, answer(Client)) || Client <- Clients].

%% What was published before is not lost, also where it is on its way.
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
    ok = until(fun() -> length(rows()) =:= length(Stay) end),
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
    %% It begins anew.
    {202, _} = publish(<<"hello">>),
    {200, _, <<"hello">>} = First = request(port(), <<"GET">>, "/sub/a", []),
    _ = wait(?MANY, fun(_) -> resume(First) end),
    ?assertMatch([_], crowds()).

%% What a group sends does not say that the connection is closed.
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
            ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?PATIENCE))
        end
     || Client <- Clients
    ].

%% Such as the requests before it.
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
    ok = until(fun() -> Kept() < ?MANY * 2048 end).

a_message_that_is_too_large_for_a_group(_Config) ->
    Data = binary:copy(<<"0123456789">>, 100000),
    Clients = wait(?MANY),
    %% The data alone has less than a mebibyte.
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
    ?assertEqual({ok, []}, begin [{200, _, _} = answer(Client) || Client <- Clients], ok = nobody(), weir_pubsub:presence(<<"a">>) end).

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

%% They wait on, and are told of the gap.
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

%% The next one has that poll wait again, until a message comes: its connection then says that it is over.
a_shard_is_killed_before_it_hears_that_a_poll_is_over(_Config) ->
    Client = connect(),
    ok = poll(Client),
    ok = until_subscribers(1),
    true = erlang:suspend_process(shard()),
    {201, _} = publish(<<"first">>),
    {200, _, <<"first">>} = First = answer(Client),
    ok = kill_shard(),
    ok = until_subscribers(1),
    ok = poll(Client, resume(First)),
    ok = until_subscribers(2),
    {201, _} = publish(<<"second">>),
    {200, _, <<"second">>} = answer(Client),
    silent(Client),
    ok = nobody().

%% Its connections are closed, and its polls are counted no more.
a_reactor_is_killed(_Config) ->
    Clients = wait(?MANY),
    Reactors = lists:usort([element(3, element(2, Row)) || Row <- rows()]),
    [exit(Reactor, kill) || Reactor <- Reactors],
    [?assertMatch({error, _}, gen_tcp:recv(Client, 0, ?PATIENCE)) || Client <- Clients],
    ok = nobody().

%% With messages on their way. Each request has one answer, and at the end nobody is left over.
shards_are_killed_again_and_again(_Config) ->
    lists:foreach(
        fun(_) ->
            Clients = wait(?MANY),
            Publisher = spawn_monitor(fun() -> [weir_pubsub:publish(<<"a">>, integer_to_binary(N)) || N <- lists:seq(1, 20)] end),
            ok = kill_shard(),
            receive {'DOWN', Monitor, process, _, _} when Monitor =:= element(2, Publisher) -> ok end,
            ok = until(fun() -> {Status, _} = publish(<<"end">>), Status =:= 201 orelse Status =:= 202 end),
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
