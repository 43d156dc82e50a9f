%% 10,000 event streams of a channel, of which 1,000 never read. The others miss no message. The 1,000 get a gap when
%% they read at last, or are closed, as the policy of the channel says, and are counted. `push-slow' of the bench
%% measures the latency of messages in the meantime; it is not checked here.
-module(weir_pubsub_readers_soak_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-define(COLLECTORS, 10).
-define(READERS_EACH, 900).
-define(SLOW, 1000).

%% What is in flight to a slow client at most is a fraction of them: its buffers, and the 64 in its queue.
-define(MESSAGES, 200).
-define(AT_A_TIME, 10).

suite() -> [{timetrap, {minutes, 30}}].

all() -> [slow_clients_are_told_of_the_gap, slow_clients_are_closed].

init_per_testcase(_Case, Config) ->
    Paths = ["-pa" | [Path || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)]],
    {ok, Server, _} = peer:start(#{connection => standard_io, args => Paths}),
    {ok, _} = on(Server, application, ensure_all_started, [weir_pubsub]),
    [{server, Server} | Config].

end_per_testcase(_Case, Config) -> peer:stop(proplists:get_value(server, Config)).

slow_clients_are_told_of_the_gap(Config) ->
    Server = proplists:get_value(server, Config),
    Slow = nobody_else_misses_anything(Server, #{slow => drop_oldest, max_messages => 10}),
    ?assertMatch(#{slow := 0}, counters(Server)),
    Missed = [missed_by(Client) || Client <- Slow],
    ?assert(lists:all(fun(Count) -> Count > 0 end, Missed)),
    #{gaps := Gaps, lagged := Lagged, slow := 0} = counters(Server),
    ?assert(Gaps >= ?SLOW andalso Lagged >= ?SLOW),
    {comment, io_lib:format("~b clients were told of ~b missing messages each", [?SLOW, lists:sum(Missed) div ?SLOW])}.

slow_clients_are_closed(Config) ->
    Server = proplists:get_value(server, Config),
    Slow = nobody_else_misses_anything(Server, #{slow => disconnect, max_messages => 10}),
    Taken = [taken_until_closed(Client, 0, <<>>) || Client <- Slow],
    ?assert(lists:all(fun(Count) -> Count < ?MESSAGES end, Taken)),
    ?assertMatch(#{slow := ?SLOW, gaps := 0}, counters(Server)),
    {ok, #{subscribers := ?COLLECTORS * ?READERS_EACH}} = on(Server, weir_pubsub, info, [<<"a">>]),
    {comment,
        io_lib:format("~b clients were closed, with ~b of ~b messages each", [
            ?SLOW, lists:sum(Taken) div ?SLOW, ?MESSAGES
        ])}.

counters(Server) -> on(Server, weir_pubsub, counters, []).

on(Server, Module, Function, Arguments) -> peer:call(Server, Module, Function, Arguments, weir_test_wait:patience()).

%% Returns the clients that have read nothing.
nobody_else_misses_anything(Server, Policy) ->
    ok = on(Server, weir_pubsub, configure, [#{channels => [{<<"*">>, Policy}]}]),
    %% By default the listener would close clients that read nothing for a minute, whatever the policy says.
    Listener = #{
        ip => {127, 0, 0, 1}, max_connections => infinity, socket_opts => [{sndbuf, 4096}], idle_timeout => infinity
    },
    {ok, _} = on(Server, weir_http, start_listener, [readers, Listener, weir_pubsub_http:routes(#{})]),
    Port = on(Server, weir, get_port, [readers]),
    Test = self(),
    Collectors = [spawn_link(fun() -> collect(Port, Test) end) || _ <- lists:seq(1, ?COLLECTORS)],
    Slow = [connect(Port, [{recbuf, 1024}]) || _ <- lists:seq(1, ?SLOW)],
    ok = subscribed(Server, ?COLLECTORS * ?READERS_EACH + ?SLOW),
    ok = say(Server, 1),
    %% They continue to listen, and end with the case.
    ?assert(lists:all(fun is_process_alive/1, Collectors)),
    Slow.

connect(Port, Options) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false} | Options]),
    ok = gen_tcp:send(Socket, "GET /sub/a?from=new HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"),
    Socket.

%% Each tenth of them may take the whole patience.
subscribed(Server, Count) ->
    [?waitMatch(true, subscribers(Server) >= Count * Tenth div 10) || Tenth <- lists:seq(1, 10)],
    Count = subscribers(Server),
    ok.

subscribers(Server) ->
    case on(Server, weir_pubsub, info, [<<"a">>]) of
        {ok, #{subscribers := Count}} -> Count;
        {error, no_channel} -> 0
    end.

%% The next few are sent as soon as all readers have those before, so no reader is late.
say(_Server, Number) when Number > ?MESSAGES ->
    ok;
say(Server, Number) ->
    Last = Number + ?AT_A_TIME - 1,
    [
        {ok, _} = on(Server, weir_pubsub, publish, [
            <<"a">>, [io_lib:format("~8..0b", [N]), binary:copy(<<"x">>, 1016)]
        ])
     || N <- lists:seq(Number, Last)
    ],
    [
        receive
            {all_have, Last} -> ok
        after 10 * weir_test_wait:patience() -> ct:fail({not_heard_by_all, Last})
        end
     || _ <- lists:seq(1, ?COLLECTORS)
    ],
    say(Server, Last + 1).

%% Readers -------------------------------------------------------------------------------

collect(Port, Test) ->
    Sockets = [connect(Port, []) || _ <- lists:seq(1, ?READERS_EACH)],
    lists:foreach(fun(Socket) -> ok = inet:setopts(Socket, [{active, true}]) end, Sockets),
    hear(maps:from_list([{Socket, {0, <<>>}} || Socket <- Sockets]), ?AT_A_TIME, ?READERS_EACH, Test).

%% `Left' readers have not got the message with that number.
hear(Readers, Last, 0, Test) ->
    Test ! {all_have, Last},
    hear(Readers, Last + ?AT_A_TIME, ?READERS_EACH, Test);
hear(Readers, Last, Left, Test) ->
    receive
        {tcp, Socket, Bytes} ->
            #{Socket := {Before, Rest}} = Readers,
            {Numbers, Tail} = events(<<Rest/binary, Bytes/binary>>),
            Now = lists:foldl(fun(Number, Previous) -> Number = Previous + 1 end, Before, Numbers),
            Have = case Now =:= Last andalso Before < Last of true -> 1; false -> 0 end,
            hear(Readers#{Socket := {Now, Tail}}, Last, Left - Have, Test)
    end.

%% The numbers of messages, and the incomplete rest. Nothing else here has data.
events(Bytes) ->
    case binary:split(Bytes, <<"data: ">>) of
        [_, <<Number:8/binary, Rest/binary>>] ->
            {Numbers, Tail} = events(Rest),
            {[binary_to_integer(Number) | Numbers], Tail};
        [_, Cut] ->
            {[], <<"data: ", Cut/binary>>};
        [Other] ->
            Size = min(5, byte_size(Other)),
            {[], binary:part(Other, byte_size(Other), -Size)}
    end.

%% Those who never read ------------------------------------------------------------------

%% Returns how many messages its gaps report as missing when it reads at last. All others have come, in order and
%% once.
missed_by(Client) -> missed_by(Client, 0, 0, <<>>).

missed_by(Client, ?MESSAGES, Missed, _Bytes) ->
    ok = gen_tcp:close(Client),
    Missed;
missed_by(Client, Before, Missed, Bytes) ->
    case binary:split(Bytes, <<"\n\n">>) of
        [Event, Rest] ->
            case
                {
                    re:run(Event, "data: ([0-9]+)", [{capture, all_but_first, list}]),
                    binary:match(Event, <<"event: gap">>)
                }
            of
                {{match, [Number]}, nomatch} ->
                    ?assertEqual(Before + 1, list_to_integer(Number)),
                    missed_by(Client, Before + 1, Missed, Rest);
                {{match, [Count]}, _} ->
                    More = list_to_integer(Count),
                    missed_by(Client, Before + More, Missed + More, Rest);
                {nomatch, _} ->
                    missed_by(Client, Before, Missed, Rest)
            end;
        [_] ->
            {ok, More} = gen_tcp:recv(Client, 0, weir_test_wait:patience()),
            missed_by(Client, Before, Missed, <<Bytes/binary, More/binary>>)
    end.

%% Returns how many it has got, in order and once, before the server closed the connection.
taken_until_closed(Client, Before, Bytes) ->
    case gen_tcp:recv(Client, 0, weir_test_wait:patience()) of
        {ok, More} ->
            {Numbers, Tail} = events(<<Bytes/binary, More/binary>>),
            taken_until_closed(
                Client, lists:foldl(fun(Number, Previous) -> Number = Previous + 1 end, Before, Numbers), Tail
            );
        {error, Reason} when Reason =:= closed; Reason =:= econnreset ->
            Before
    end.
