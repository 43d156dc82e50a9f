%% Held requests: who answers them, when, and with what.
-module(weir_http_held_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, response/2, is_closed/1, get/1, get/2]).
-import(weir_http_funs, [closed/0, hold/1, hold/2, reply/1, direct/1]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() -> [{group, answers}].

groups() ->
    [
        {answers, [], [
            any_process_answers,
            the_first_answer_counts,
            an_answer_to_an_earlier_request_is_nothing,
            messages_become_answers,
            answered_before_it_is_held,
            a_file_is_an_answer,
            a_process_answers,
            its_time_ends,
            another_answer_at_the_end_of_its_time,
            head_is_answered_at_once,
            a_client_that_wants_a_close,
            an_old_client,
            the_last_request_of_a_connection,
            with_a_body,
            what_cannot_be_held_is_a_500,
            what_cannot_be_sent_is_a_500,
            a_callback_that_fails_is_a_500
        ]}
    ].

start(Funs) -> weir_http_funs:start(?LISTENER, hold, Funs).

start(Funs, Options) -> weir_http_funs:start(?LISTENER, hold, Funs, Options).

counter(Name) -> map_get(Name, weir_http:info(?LISTENER)).

%%% Answers.

any_process_answers(_Config) ->
    Client = connect(start(#{})),
    [
        begin
            Held = hold(Client),
            spawn_link(fun() -> ok = weir_http_held:reply(Held, {reply, 200, [{<<"x-n">>, N}], <<N/binary, "!">>}) end),
            ?assertMatch({200, #{<<"x-n">> := N}, <<N:1/binary, "!">>}, response(Client)),
            ?assertEqual(answered, closed())
        end
     || N <- [<<"1">>, <<"2">>, <<"3">>]
    ],
    ok = direct(Client),
    ?waitEqual(3, counter(held)).

the_first_answer_counts(_Config) ->
    Client = connect(start(#{})),
    Held = hold(Client),
    [ok = weir_http_held:reply(Held, reply(Text)) || Text <- ["first", "second"]],
    ?assertMatch({200, _, <<"first">>}, response(Client)),
    ok = direct(Client),
    receive {closed, answered} -> receive {closed, Twice} -> error(Twice) after 0 -> ok end end.

an_answer_to_an_earlier_request_is_nothing(_Config) ->
    Client = connect(start(#{info => fun(Message, _) -> reply(Message) end})),
    Earlier = hold(Client),
    ok = weir_http_held:reply(Earlier, reply("earlier")),
    {200, _, <<"earlier">>} = response(Client),
    Held = hold(Client),
    ok = weir_http_held:reply(Earlier, reply("wrong")),
    ok = weir_http_held:tell(Earlier, "wrong"),
    ok = weir_http_held:tell(Held, "right"),
    ?assertMatch({200, _, <<"right">>}, response(Client)).

messages_become_answers(_Config) ->
    Client = connect(start(#{
        info => fun
            (What, State = #{seen := Seen}) when length(Seen) < 2 -> {ok, State#{seen => [What | Seen]}};
            (What, #{seen := Seen}) -> reply(io_lib:format("~w", [lists:reverse(Seen, [What])]))
        end,
        seen => []
    })),
    Held = hold(Client),
    [ok = weir_http_held:tell(Held, N) || N <- [1, 2, 3]],
    ?assertMatch({200, _, <<"[1,2,3]">>}, response(Client)),
    ?assertEqual(answered, closed()).

answered_before_it_is_held(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Client = connect(start(#{open => fun(Held, _) ->
        ok = weir_http_held:join(Group, Held),
        reply("at once")
    end})),
    ok = send(Client, [get("/go"), get("/go")]),
    ?assertMatch([{200, _, <<"at once">>}, {200, _, <<"at once">>}], [response(Client), response(Client)]),
    ?assertEqual(0, weir_group:size(Group)),
    ?assertEqual(0, counter(held)).

a_file_is_an_answer(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "answer.txt"),
    ok = file:write_file(File, <<"from a file">>),
    Client = connect(start(#{})),
    Held = hold(Client),
    ok = send(Client, get("/direct")),
    ok = weir_http_held:reply(Held, {file, File}),
    ?assertMatch({200, #{<<"content-type">> := <<"text/plain", _/binary>>}, <<"from a file">>}, response(Client)),
    ?assertMatch({200, _, <<"direct">>}, response(Client)).

a_process_answers(_Config) ->
    Client = connect(
        start(#{
            info => fun(Prefix, _) ->
                {process, fun(Request) ->
                    ok = weir_http_process:stream(Request, 200, []),
                    ok = weir_http_process:send([
                        Prefix, weir_http_request:query(Request), weir_http_request:field(<<"x-a">>, Request)
                    ]),
                    streamed
                end}
            end
        })
    ),
    Held = hold(Client, get("/go?query", "X-A: b\r\n")),
    ok = weir_http_held:tell(Held, "it was: "),
    ok = until_text(Client, <<>>, <<"it was: queryb\r\n0\r\n\r\n">>),
    ok = direct(Client).

until_text(Client, Bytes, Text) ->
    case binary:match(Bytes, Text) of
        nomatch ->
            {ok, More} = weir_http_client:recv(Client, weir_test_wait:patience()),
            until_text(Client, <<Bytes/binary, More/binary>>, Text);
        _ ->
            ok
    end.

its_time_ends(_Config) ->
    Client = connect(start(#{options => #{timeout => 50}}, #{idle_timeout => 1000})),
    _ = hold(Client),
    ?assertMatch({204, _, <<>>}, response(Client)),
    ?assertEqual(timeout, closed()),
    ?waitEqual(1, counter(held_timeouts)),
    ok = direct(Client).

another_answer_at_the_end_of_its_time(_Config) ->
    Client = connect(
        start(#{options => #{timeout => 50, otherwise => {reply, 304, [{<<"etag">>, <<"\"1\"">>}], <<>>}}}, #{
            idle_timeout => 1000
        })
    ),
    _ = hold(Client),
    ?assertMatch({304, #{<<"etag">> := <<"\"1\"">>}, <<>>}, response(Client)).

head_is_answered_at_once(_Config) ->
    Client = connect(start(#{options => #{otherwise => reply("nothing")}})),
    ok = send(Client, "HEAD /go HTTP/1.1\r\nHost: a\r\n\r\n"),
    ?assertMatch({200, #{<<"content-length">> := <<"7">>}, <<>>}, response(Client, #{is_head => true})),
    ok = direct(Client).

a_client_that_wants_a_close(_Config) ->
    Client = connect(start(#{})),
    Held = hold(Client, get("/go", "Connection: close\r\n")),
    ok = weir_http_held:reply(Held, reply("bye")),
    ?assertMatch({200, #{<<"connection">> := <<"close">>}, <<"bye">>}, response(Client)),
    true = is_closed(Client).

an_old_client(_Config) ->
    Port = start(#{}),
    Client = connect(Port),
    Held = hold(Client, "GET /go HTTP/1.0\r\n\r\n"),
    ok = weir_http_held:reply(Held, reply("old")),
    ?assertMatch({200, _, <<"old">>}, response(Client)),
    true = is_closed(Client),
    Keeping = connect(Port),
    Other = hold(Keeping, "GET /go HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    ok = weir_http_held:reply(Other, reply("kept")),
    ?assertMatch({200, #{<<"connection">> := <<"keep-alive">>}, <<"kept">>}, response(Keeping)),
    ok = direct(Keeping).

the_last_request_of_a_connection(_Config) ->
    Client = connect(start(#{}, #{max_requests => 2})),
    ok = weir_http_held:reply(hold(Client), reply("one")),
    {200, Fields, <<"one">>} = response(Client),
    ?assertNot(is_map_key(<<"connection">>, Fields)),
    ok = weir_http_held:reply(hold(Client), reply("two")),
    ?assertMatch({200, #{<<"connection">> := <<"close">>}, <<"two">>}, response(Client)),
    true = is_closed(Client).

with_a_body(_Config) ->
    Client = connect(start(#{info => fun(_, #{request := Request}) -> reply(weir_http_request:body(Request)) end,
        handle => fun(Request, State) -> {hold, weir_http_funs, State#{request => Request}} end})),
    Held = hold(Client, "POST /go HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"),
    ok = weir_http_held:tell(Held, go),
    ?assertMatch({200, _, <<"body">>}, response(Client)).

what_cannot_be_held_is_a_500(_Config) ->
    {ok, Group} = weir_group:new(#{}),
    Client = connect(start(#{})),
    Funs = #{tell => self()},
    Wrong = [
        {hold, no_such_module, x},
        {hold, lists, x},
        {hold, weir_http_funs, Funs, #{timeout => 0}},
        {hold, weir_http_funs, Funs, #{otherwise => nothing}},
        {hold, weir_http_funs, Funs, #{other => 1}},
        {hold, weir_http_funs},
        {hold, weir_http_funs, Funs#{open => fun(Held, _) -> ok = weir_http_held:join(Group, Held), error(failed) end}},
        {hold, weir_http_funs, Funs#{open => fun(_, _) -> nonsense end}}
    ],
    [
        begin
            ok = weir_http:set_routes(?LISTENER, [{"/wrong", weir_http_echo, {call, fun(_) -> Result end}}]),
            ok = send(Client, get("/wrong")),
            ?assertMatch({Result, {500, _, _}}, {Result, response(Client)})
        end
     || Result <- Wrong
    ],
    ?waitEqual(length(Wrong), counter(crashes)),
    ?assertEqual(0, counter(held)),
    ?assertEqual(0, weir_group:size(Group)).

what_cannot_be_sent_is_a_500(_Config) ->
    Client = connect(start(#{})),
    [
        begin
            ok = weir_http_held:reply(hold(Client), Response),
            ?assertMatch({Response, {500, _, _}}, {Response, response(Client)}),
            ?assertEqual(answered, closed())
        end
     || Response <- [
            nonsense,
            {reply, 99, [], <<>>},
            {reply, 200, [{<<"x">>, <<"a\nb">>}], <<>>},
            {hold, weir_http_funs, x},
            {reply, 200, [], x}
        ]
    ],
    ?waitEqual(5, counter(crashes)),
    [
        ?assertError(_, weir_http_held:frame(Response))
     || Response <- [
            nonsense,
            {reply, 99, [], <<>>},
            {reply, 200, [{<<"x">>, <<"a\nb">>}], <<>>},
            {file, "x"},
            {reply, 200, [{<<"connection">>, <<"close">>}], <<>>}
        ]
    ].

a_callback_that_fails_is_a_500(_Config) ->
    Client = connect(start(#{info => fun(What, _) -> error(What) end, closed => fun(_, _) -> error(also) end})),
    ok = weir_http_held:tell(hold(Client), why),
    ?assertMatch({500, _, _}, response(Client)),
    ?assertEqual({crashed, {error, why}}, closed()),
    ?waitEqual(2, counter(crashes)),
    ok = direct(Client).
