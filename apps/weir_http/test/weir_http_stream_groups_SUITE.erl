%% Event streams in groups and with processes, and the end of reactors and listeners.
-module(weir_http_stream_groups_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_http_client, [connect/1, close/1, recv_all/1, get/2, chunk/1, rest/1]).
-import(weir_http_event_client, [open/1, open/2, events/1]).
-import(weir_http_funs, [closed/0]).
-import(weir_http_serving, [watch/1, watched/0]).
-import(weir_test_wait, [wait_until/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, groups}, {group, processes}, {group, misfortune}].

groups() ->
    [
        {groups, [], [
            a_broadcast_to_all,
            members_of_both_versions,
            nothing_is_missed_or_sent_twice
        ]},
        {processes, [], [
            a_process_goes_on,
            a_process_goes_on_for_an_old_client,
            a_process_whose_client_is_gone,
            a_process_that_fails
        ]},
        {misfortune, [], [
            reactors_killed_while_broadcasts_fly,
            the_listener_stops
        ]}
    ].

start(Funs) -> weir_http_funs:start(?LISTENER, events, Funs).

start(Funs, Options) -> weir_http_funs:start(?LISTENER, events, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Groups.

a_broadcast_to_all(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Port = start(#{
        open => fun(Stream, State) ->
            ok = weir_group:join(Group, Stream),
            {send, #{data => "welcome"}, State}
        end
    }),
    Clients = [element(2, open(Port)) || _ <- lists:seq(1, 50)],
    [
        {ok, 50} = weir_group:broadcast(Group, weir_http_events:frame(#{data => integer_to_list(N)}))
     || N <- lists:seq(1, 20)
    ],
    Expected = [
        <<"data: welcome\n\n">> | [<<"data: ", (integer_to_binary(N))/binary, "\n\n">> || N <- lists:seq(1, 20)]
    ],
    [?assertEqual(Expected, [chunk(Client) || _ <- Expected]) || Client <- Clients],
    [ok = close(Client) || Client <- Clients],
    ?waitEqual(0, weir_group:size(Group)).

members_of_both_versions(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Port = start(#{
        open => fun(Stream, State) ->
            ok = weir_group:join(Group, Stream),
            {ok, State}
        end,
        info => fun(stop, State) -> {close, #{data => "own"}, State} end
    }),
    {New, NewClient, _} = open(Port),
    {Old, OldClient, _} = open(connect(Port), "GET /go HTTP/1.0\r\n\r\n"),
    {ok, 2} = weir_group:broadcast(Group, weir_http_events:frame([#{data => "a", id => "1"}, #{data => "b\nc"}])),
    %% After this notification, earlier broadcasts have been delivered.
    Reference = make_ref(),
    {ok, 2} = weir_group:broadcast(Group, <<>>, #{notify => Reference}),
    receive
        {weir_group, Group, Reference, _} -> ok
    end,
    [ok = weir_http_events:tell(Stream, stop) || Stream <- [New, Old]],
    Expected = [
        {<<"message">>, <<"a">>, <<"1">>}, {<<"message">>, <<"b\nc">>, <<"1">>}, {<<"message">>, <<"own">>, <<"1">>}
    ],
    ?assertEqual(Expected, events(NewClient)),
    ?assertEqual(Expected, weir_http_event_reader:read(rest(OldClient))).

%% The pattern of the documentation: a process keeps the events, sends those that a client missed, and then joins it.
nothing_is_missed_or_sent_twice(_Config) ->
    Room = spawn_link(fun() ->
        {ok, Group} = weir_group:new(#{max_messages => 10000, backlog => 10000}),
        room(Group, 0)
    end),
    Port = start(#{
        handle => fun(Request, State) ->
            Last = binary_to_integer(weir_http_request:field(<<"last-event-id">>, Request, <<"0">>)),
            {events, weir_http_funs, State#{last => Last}}
        end,
        open => fun(Stream, State = #{last := Last}) -> Room ! {subscribe, Stream, Last}, {ok, State} end
    }),
    Publisher = spawn_link(fun Publish() -> Room ! publish, timer:sleep(rand:uniform(3)), Publish() end),
    Last = reconnect(Port, 0, 40),
    true = unlink(Publisher),
    exit(Publisher, kill),
    ?assert(Last > 40).

room(Group, Count) ->
    receive
        publish ->
            {ok, _} = weir_group:broadcast(Group, numbered(Count + 1)),
            room(Group, Count + 1);
        {subscribe, Stream, Last} ->
            _ = gen_tcp:send(Stream, [numbered(N) || N <- lists:seq(Last + 1, Count)]),
            _ = weir_group:join(Group, Stream),
            room(Group, Count)
    end.

numbered(N) -> weir_http_events:frame(#{data => integer_to_list(N), id => integer_to_list(N)}).

reconnect(_Port, Last, 0) ->
    Last;
reconnect(Port, Last, Times) ->
    {_, Client, _} = open(connect(Port), get("/go", ["Last-Event-ID: ", integer_to_list(Last), "\r\n"])),
    Count = rand:uniform(20),
    [
        begin
            Id = integer_to_binary(N),
            ?assertEqual(<<"id: ", Id/binary, "\ndata: ", Id/binary, "\n\n">>, chunk(Client))
        end
     || N <- lists:seq(Last + 1, Last + Count)
    ],
    ok = close(Client),
    reconnect(Port, Last + Count, Times - 1).

%%% Processes.

counting(Self) ->
    #{
        open => fun(_, State) -> {send, #{data => "first"}, State} end,
        info => fun(go_on, _) ->
            {process, fun() ->
                [
                    ok = weir_http_process:send(weir_http_events:event(#{data => integer_to_list(N)}))
                 || N <- lists:seq(1, 3)
                ],
                Self ! {process, self()},
                receive
                    stop -> ok;
                    fail -> error(failed)
                end
            end}
        end
    }.

process() -> receive {process, Pid} -> Pid after weir_test_wait:patience() -> error(no_process) end.

a_process_goes_on(_Config) ->
    Port = start(counting(self())),
    {Stream, Client, _} = open(Port),
    ok = weir_http_events:tell(Stream, go_on),
    process() ! stop,
    ?assertEqual([<<"first">>, <<"1">>, <<"2">>, <<"3">>], [Data || {_, Data, _} <- events(Client)]),
    receive {closed, Reason} -> error(Reason) after 0 -> ok end.

a_process_goes_on_for_an_old_client(_Config) ->
    Port = start(counting(self())),
    {Stream, Client, _} = open(connect(Port), "GET /go HTTP/1.0\r\n\r\n"),
    ok = weir_http_events:tell(Stream, go_on),
    process() ! stop,
    ?assertEqual(
        <<"data: first\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n">>, rest(Client)
    ).

a_process_whose_client_is_gone(_Config) ->
    Self = self(),
    Port = start(#{
        info => fun(go_on, _) ->
            {process, fun() ->
                Self ! {process, self()},
                watched(),
                receive
                    stop -> ok
                end
            end}
        end
    }),
    {Stream, Client, _} = open(Port),
    ok = weir_http_events:tell(Stream, go_on),
    Monitor = watch(process()),
    ok = close(Client),
    receive
        {'DOWN', Monitor, process, _, {shutdown, client_gone}} -> ok
    after weir_test_wait:patience() -> error(lives)
    end.

%% The client sees that the stream is incomplete.
a_process_that_fails(_Config) ->
    Port = start(counting(self())),
    {Stream, Client, _} = open(Port),
    ok = weir_http_events:tell(Stream, go_on),
    process() ! fail,
    Bytes = rest(Client),
    ?assertMatch({_, _}, binary:match(Bytes, <<"data: 3">>)),
    ?assertEqual(nomatch, binary:match(Bytes, <<"\r\n0\r\n">>)),
    ?waitEqual(1, counter(crashes)).

%%% Misfortune.

%% Clients of the other reactors get all events, in order; those of the killed one see the end of their connection.
reactors_killed_while_broadcasts_fly(_Config) ->
    {ok, Group} = weir_group:new(#{max_messages => 10000, backlog => 10000, max_bytes => 100000000}),
    Port = start(#{
        open => fun(Stream, State) ->
            ok = weir_group:join(Group, Stream),
            {ok, State}
        end
    }),
    Opened = [open(Port) || _ <- lists:seq(1, 30)],
    Owner = reactor_of(element(1, hd(Opened))),
    [
        begin
            {ok, _} = weir_group:broadcast(Group, numbered(N)),
            N =:= 100 andalso exit(Owner, kill)
        end
     || N <- lists:seq(1, 200)
    ],
    ok = wait_until(fun() ->
        {ok, #{pending := Pending}} = weir_group:info(Group),
        Pending =:= 0
    end),
    [
        %% Its sockets are closed some time after the kill.
        case lists:member(reactor_of(Stream), [none, Owner]) of
            true ->
                ?assert(is_prefix(recv_all(Client), 200));
            false ->
                [
                    ?assertEqual(<<"id: ", (integer_to_binary(N))/binary>>, hd(binary:split(chunk(Client), <<"\n">>)))
                 || N <- lists:seq(1, 200)
                ]
        end
     || {Stream, Client, _} <- Opened
    ],
    %% There is a new reactor.
    ok = wait_until(fun() ->
        try
            {_, _, _} = open(Port),
            true
        catch
            error:_ -> false
        end
    end).

reactor_of({_, _, Handle}) ->
    case weir_nif:reactor_of(Handle) of
        {ok, Pid} -> Pid;
        {error, _} -> none
    end.

is_prefix(Bytes, Most) ->
    All = iolist_to_binary([numbered(N) || N <- lists:seq(1, Most)]),
    binary:longest_common_prefix([Bytes, All]) =:= byte_size(Bytes).

the_listener_stops(_Config) ->
    Port = start(#{}),
    {_, Client, _} = open(Port),
    ok = weir_http:stop_listener(?LISTENER),
    ?assertMatch({lost, _}, closed()),
    ?assertEqual(<<>>, recv_all(Client)).
