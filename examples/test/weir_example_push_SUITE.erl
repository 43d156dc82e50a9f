%% Both push servers give the same answers to the same requests.
-module(weir_example_push_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, processes}, {group, channels}].

groups() ->
    Cases = [who_waits_gets_the_next, who_comes_back_gets_what_was_said, who_has_left_holds_nobody_up],
    [{processes, [], Cases}, {channels, [], Cases}].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    Config.

end_per_suite(_Config) -> application:stop(weir_pubsub).

init_per_group(processes, Config) -> [{module, weir_example_push_processes} | Config];
init_per_group(channels, Config) -> [{module, weir_example_push} | Config].

end_per_group(_Group, _Config) -> ok.

with_server(Config, Fun) ->
    Module = proplists:get_value(module, Config),
    {ok, #{port := Port, stop := Stop}} = Module:start(#{port => 0, listen => [{ip, ?LOOPBACK}]}),
    try
        Fun(Port)
    after
        _ = Stop()
    end.

room(Name) -> iolist_to_binary([Name, integer_to_binary(erlang:unique_integer([positive]))]).

send(Socket, Lines, Body) ->
    ok = gen_tcp:send(Socket, [[[Line, "\r\n"] || Line <- Lines], "Host: localhost\r\n\r\n", Body]).

connect(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], weir_test_wait:patience()),
    Socket.

poll(Socket, Room, Fields) -> send(Socket, [["GET /sub/", Room, " HTTP/1.1"] | Fields], []).

say(Port, Room, Text) ->
    Socket = connect(Port),
    send(Socket, [["POST /pub/", Room, " HTTP/1.1"], ["Content-Length: ", integer_to_list(length(Text))]], Text),
    {Status, _, _} = answer(Socket),
    ok = gen_tcp:close(Socket),
    Status.

answer(Socket) -> answer(Socket, <<>>).

answer(Socket, Bytes) ->
    case binary:split(Bytes, <<"\r\n\r\n">>) of
        [Head, Body] ->
            [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
            Fields = maps:from_list([
                {string:lowercase(Name), Value}
             || Line <- Lines, [Name, Value] <- [binary:split(Line, <<": ">>)]
            ]),
            case binary_to_integer(map_get(<<"content-length">>, Fields)) of
                Length when Length =< byte_size(Body) -> {binary_to_integer(Status), Fields, Body};
                _ -> more(Socket, Bytes)
            end;
        [_] ->
            more(Socket, Bytes)
    end.

more(Socket, Bytes) ->
    {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
    answer(Socket, <<Bytes/binary, More/binary>>).

behind(#{<<"last-modified">> := Modified, <<"etag">> := Tag}) ->
    [["If-Modified-Since: ", Modified], ["If-None-Match: ", Tag]].

%% Cases -------------------------------------------------------------------------------

who_waits_gets_the_next(Config) ->
    with_server(Config, fun(Port) ->
        Room = room("waits"),
        Clients = [connect(Port) || _ <- lists:seq(1, 5)],
        _ = [poll(Client, Room, []) || Client <- Clients],
        _ = say(Port, Room, "Hello"),
        [?assertMatch({200, _, <<"Hello">>}, answer(Client)) || Client <- Clients]
    end).

who_comes_back_gets_what_was_said(Config) ->
    with_server(Config, fun(Port) ->
        Room = room("comes-back"),
        %% The room has no clients yet.
        [202, 202, 202] = [say(Port, Room, Text) || Text <- ["one", "two", "three"]],
        Client = connect(Port),
        poll(Client, Room, []),
        {200, First, <<"one">>} = answer(Client),
        poll(Client, Room, behind(First)),
        {200, Second, <<"two">>} = answer(Client),
        %% On another connection.
        Other = connect(Port),
        poll(Other, Room, behind(Second)),
        {200, Third, <<"three">>} = answer(Other),
        poll(Other, Room, behind(Third)),
        _ = say(Port, Room, "four"),
        ?assertMatch({200, _, <<"four">>}, answer(Other))
    end).

who_has_left_holds_nobody_up(Config) ->
    with_server(Config, fun(Port) ->
        Room = room("left"),
        Clients = [connect(Port) || _ <- lists:seq(1, 20)],
        _ = [poll(Client, Room, []) || Client <- Clients],
        _ = say(Port, Room, "Hello"),
        Answers = [answer(Client) || Client <- Clients],
        _ = [poll(Client, Room, behind(Fields)) || {Client, {200, Fields, <<"Hello">>}} <- lists:zip(Clients, Answers)],
        {Leaving, Staying} = lists:split(10, Clients),
        _ = [gen_tcp:close(Client) || Client <- Leaving],
        _ = say(Port, Room, "Goodbye"),
        [?assertMatch({200, _, <<"Goodbye">>}, answer(Client)) || Client <- Staying]
    end).
