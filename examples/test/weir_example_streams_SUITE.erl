%% The examples on event streams, from their clients' side.
-module(weir_example_streams_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        the_clock_strikes,
        a_message_is_the_id_and_the_data_of_an_event,
        all_hear_what_one_says,
        who_comes_back_hears_what_was_said,
        the_page_is_there
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

with_server(Module, Options, Fun) ->
    {ok, #{port := Port, stop := Stop}} = Module:start(maps:merge(#{port => 0, listen => [{ip, ?LOOPBACK}]}, Options)),
    try
        Fun(Port)
    after
        _ = Stop()
    end.

request(Port, Lines) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}], weir_test_wait:patience()),
    ok = gen_tcp:send(Socket, [[[Line, "\r\n"] || Line <- Lines], "Host: localhost\r\n\r\n"]),
    Socket.

%% Reads until the pattern has arrived.
until(Socket, Pattern) -> until(Socket, Pattern, <<>>).

until(Socket, Pattern, Bytes) ->
    case re:run(Bytes, Pattern, [{capture, none}, dotall]) of
        match ->
            Bytes;
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            until(Socket, Pattern, <<Bytes/binary, More/binary>>)
    end.

the_clock_strikes(_Config) ->
    with_server(weir_example_sse_clock, #{rate => 100}, fun(Port) ->
        Client = request(Port, ["GET /any HTTP/1.1"]),
        _ = until(
            Client,
            "text/event-stream.*event: time\ndata: \\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z\n\n.*event: time"
        )
    end).

a_message_is_the_id_and_the_data_of_an_event(_Config) ->
    with_server(weir_example_sse_broadcast, #{rate => 100, size => 12}, fun(Port) ->
        Client = request(Port, ["GET /any HTTP/1.1"]),
        _ = until(Client, "text/event-stream.*id: [0-9a-f]{16}\ndata: \\.{4}\n\n.*id: ")
    end).

say(Port, Text) ->
    Client = request(Port, ["POST /messages HTTP/1.1", ["Content-Length: ", integer_to_list(length(Text))]]),
    ok = gen_tcp:send(Client, Text),
    _ = until(Client, "^HTTP/1.1 204 "),
    ok = gen_tcp:close(Client).

all_hear_what_one_says(_Config) ->
    with_server(weir_example_chat, #{}, fun(Port) ->
        Clients = [request(Port, ["GET /messages HTTP/1.1"]) || _ <- lists:seq(1, 5)],
        ok = say(Port, "Hello"),
        ok = say(Port, "two\nlines"),
        [_ = until(Client, "id: 1\ndata: Hello\n\n.*id: 2\ndata: two\ndata: lines\n\n") || Client <- Clients]
    end).

who_comes_back_hears_what_was_said(_Config) ->
    with_server(weir_example_chat, #{}, fun(Port) ->
        [ok = say(Port, Text) || Text <- ["one", "two", "three"]],
        Client = request(Port, ["GET /messages HTTP/1.1", "Last-Event-ID: 1"]),
        Bytes = until(Client, "id: 2\ndata: two\n\n.*id: 3\ndata: three\n\n"),
        ?assertEqual(nomatch, binary:match(Bytes, <<"one">>)),
        ok = say(Port, "four"),
        _ = until(Client, "id: 4\ndata: four\n\n")
    end).

the_page_is_there(_Config) ->
    with_server(weir_example_chat, #{}, fun(Port) -> _ = until(request(Port, ["GET / HTTP/1.1"]), "EventSource") end).
