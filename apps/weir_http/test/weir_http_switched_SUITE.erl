%% Connections that leave the cycle of requests and responses: what their module is called with, and what it may do.
-module(weir_http_switched_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, close/1, response/1, is_closed/1, recv_all/1, get/1]).

-define(LISTENER, ?MODULE).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [
        bytes_go_both_ways,
        what_came_behind_the_request_is_its_own,
        what_is_sent_comes_behind_earlier_responses,
        it_is_writable_when_all_is_written,
        messages_come,
        ticks_come,
        a_close_with_last_words,
        a_close_that_lets_the_client_read,
        back_to_requests,
        back_with_a_request_that_waits,
        back_and_closed,
        it_hears_of_the_end,
        a_failure_at_the_beginning_is_a_500,
        a_failure_later_ends_it
    ].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) -> Config.

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?LISTENER),
    ok.

switch(Funs) -> switch(Funs, #{}).

switch(Funs, Options) ->
    {ok, _} = weir_http:start_listener(?LISTENER, Options#{ip => {127, 0, 0, 1}}, [
        {"/switch", weir_http_switching, Funs},
        {"/direct", weir_http_echo, {reply, 200, [], <<"direct">>}}
    ]),
    connect(weir:get_port(?LISTENER)).

switched(Client) ->
    ok = send(Client, get("/switch")),
    {101, _, <<>>} = response(Client).

expect(Bytes, Client) -> {ok, Bytes} = gen_tcp:recv(Client, byte_size(Bytes), 10000), ok.

told() -> receive {told, What} -> What after 10000 -> error(not_told) end.

echo(_Socket, Bytes, Funs) -> {send, [$<, Bytes, $>], Funs}.

bytes_go_both_ways(_Config) ->
    Client = switch(#{data => fun echo/3}),
    switched(Client),
    ok = send(Client, <<"one">>),
    expect(<<"<one>">>, Client),
    ok = send(Client, <<"two">>),
    expect(<<"<two>">>, Client).

what_came_behind_the_request_is_its_own(_Config) ->
    Client = switch(#{data => fun echo/3}),
    ok = send(Client, [get("/switch"), "behind"]),
    expect(<<"HTTP/1.1 101 Other\r\n\r\n<behind>">>, Client).

what_is_sent_comes_behind_earlier_responses(_Config) ->
    Client = switch(#{data => fun echo/3}),
    ok = send(Client, [get("/direct"), get("/switch"), "behind"]),
    {200, _, <<"direct">>} = response(Client),
    {101, _, <<>>} = response(Client),
    <<"<behind>">> = erlang:get({rest, Client}).

%% Sent by somebody else as soon as the module hears that it may: behind what the callback before has returned.
it_is_writable_when_all_is_written(_Config) ->
    Client = switch(#{
        enter => fun(Request) ->
            ok = weir:notify_writable(weir_http_request:socket(Request)),
            <<"first">>
        end,
        writable => fun(Socket, Funs) ->
            ok = gen_tcp:send(Socket, <<" second">>),
            {ok, Funs}
        end
    }),
    ok = send(Client, get("/switch")),
    expect(<<"first second">>, Client).

messages_come(_Config) ->
    Self = self(),
    Client = switch(#{
        enter => fun(Request) ->
            Self ! {told, weir_http_request:socket(Request)},
            <<>>
        end,
        info => fun
            (Socket, {{weir_reactor, Socket}, What}, Funs) -> {send, What, Funs};
            (_Socket, What, Funs) -> {send, What, Funs}
        end
    }),
    ok = send(Client, get("/switch")),
    Socket = told(),
    ok = weir_http_switched:send(Socket, <<"message">>),
    expect(<<"message">>, Client),
    ok = weir_reactor:send(Socket, {{weir_reactor, Socket}, <<"tagged">>}),
    expect(<<"tagged">>, Client),
    ok = close(Client),
    weir_http_serving:until(fun() -> weir_http_switched:send(Socket, late) =:= {error, closed} end).

ticks_come(_Config) ->
    Client = switch(#{tick => fun(_Socket, Funs) -> {send, <<"tick">>, Funs} end}, #{idle_timeout => 200}),
    switched(Client),
    expect(<<"ticktick">>, Client).

%% The state says that it has begun: what is gone by its own word is not told so.
a_close_with_last_words(_Config) ->
    Self = self(),
    Client = switch(#{
        data => fun(_Socket, _Bytes, _Funs) -> {close, <<"bye">>} end,
        gone => fun(Reason, _Funs) -> Self ! {told, Reason} end
    }),
    switched(Client),
    ok = send(Client, <<"stop">>),
    <<"bye">> = recv_all(Client),
    weir_http_serving:until(fun() -> map_get(connections, weir_http:info(?LISTENER)) =:= 0 end),
    receive {told, What} -> error(What) after 0 -> ok end.

a_close_that_lets_the_client_read(_Config) ->
    Client = switch(#{data => fun(_Socket, _Bytes, _Funs) -> {close_later, <<"bye">>} end}),
    switched(Client),
    ok = send(Client, <<"stop">>),
    expect(<<"bye">>, Client),
    %% A connection that was closed already would be reset by this.
    _ = send(Client, <<"still sending">>),
    true = is_closed(Client).

back_to_requests(_Config) ->
    Client = switch(#{data => fun(_Socket, _Bytes, _Funs) -> {finished, keep, <<"HTTP/1.1 204 Done\r\n\r\n">>, <<>>, true} end}),
    switched(Client),
    ok = send(Client, <<"go on">>),
    {204, _, <<>>} = response(Client),
    ok = send(Client, get("/direct")),
    {200, _, <<"direct">>} = response(Client).

back_with_a_request_that_waits(_Config) ->
    Client = switch(#{
        data => fun(Socket, Bytes, Funs) ->
            ok = inet:setopts(Socket, [{active, false}]),
            {ok, Funs#{rest => Bytes}}
        end,
        tick => fun
            (_Socket, #{rest := Rest}) -> {finished, keep, <<"HTTP/1.1 204 Done\r\n\r\n">>, Rest, false};
            (_Socket, Funs) -> {ok, Funs}
        end
    }, #{idle_timeout => 200}),
    ok = send(Client, [get("/switch"), get("/direct"), get("/direct")]),
    {101, _, <<>>} = response(Client),
    {204, _, <<>>} = response(Client),
    {200, _, <<"direct">>} = response(Client),
    {200, _, <<"direct">>} = response(Client),
    ok = send(Client, get("/direct")),
    {200, _, <<"direct">>} = response(Client).

back_and_closed(_Config) ->
    Client = switch(#{data => fun(_Socket, _Bytes, _Funs) -> {finished, close, <<"HTTP/1.1 204 Done\r\n\r\n">>, <<>>, true} end}),
    switched(Client),
    ok = send(Client, <<"end">>),
    {204, _, <<>>} = response(Client),
    true = is_closed(Client).

it_hears_of_the_end(_Config) ->
    Self = self(),
    Client = switch(#{gone => fun(Reason, _Funs) -> Self ! {told, Reason} end}),
    switched(Client),
    ok = close(Client),
    closed = told(),
    Other = connect(weir:get_port(?LISTENER)),
    switched(Other),
    ok = weir_http:stop_listener(?LISTENER),
    shutdown = told().

a_failure_at_the_beginning_is_a_500(_Config) ->
    Client = switch(#{enter => fun(_Request) -> error(not_so) end}),
    ok = send(Client, get("/switch")),
    {500, _, _} = response(Client),
    #{crashes := 1} = weir_http:info(?LISTENER),
    ok = send(Client, get("/direct")),
    {200, _, <<"direct">>} = response(Client).

a_failure_later_ends_it(_Config) ->
    Self = self(),
    Client = switch(#{
        data => fun(_Socket, _Bytes, _Funs) -> error(not_so) end,
        gone => fun(Reason, _Funs) -> Self ! {told, Reason} end
    }),
    switched(Client),
    ok = send(Client, <<"fail">>),
    true = is_closed(Client),
    {error, {error, not_so, _}} = told().
