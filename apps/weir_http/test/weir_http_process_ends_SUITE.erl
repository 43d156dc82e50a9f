%% Request processes that end early: their clients disconnect, they fail, or they are killed.
-module(weir_http_process_ends_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, connect/2, send/2, close/1, response/1, is_closed/1, get/1, get/2]).
-import(weir_http_serving, [told/0, watch/1, watched/0]).

-include("http_suite.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [
        a_process_whose_client_is_gone_ends,
        a_process_that_traps_exits_is_told,
        a_process_that_sends_to_a_client_that_is_gone,
        a_client_that_takes_nothing_is_gone,
        a_failure_is_a_500,
        a_failure_in_a_stream_closes_the_connection,
        a_process_that_is_killed_is_a_500,
        a_process_that_is_killed_in_a_stream_is_counted
    ].

serve(Fun) -> serve(Fun, #{}, #{}).

serve(Fun, RouteOptions, Options) -> weir_http_serving:start(?LISTENER, Fun, RouteOptions, Options).

%%% Clients that disconnect.

a_process_whose_client_is_gone_ends(_Config) ->
    Self = self(),
    Port = serve(fun(_) -> Self ! {told, self()}, watched(), receive never -> ok end end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    Monitor = watch(told()),
    ok = close(Socket),
    receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual({shutdown, client_gone}, Reason) end,
    ?assertMatch(#{crashes := 0}, weir_http:info(?LISTENER)).

a_process_that_traps_exits_is_told(_Config) ->
    Self = self(),
    Port = serve(fun(Request) ->
        process_flag(trap_exit, true),
        ok = weir_http_process:stream(Request, 200, []),
        Self ! {told, self()},
        watched(),
        receive {'EXIT', _, Reason} -> Self ! {told, {Reason, weir_http_process:send(<<"x">>)}} end,
        streamed
    end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    Monitor = watch(told()),
    ok = close(Socket),
    ?assertEqual({{shutdown, client_gone}, {error, closed}}, told()),
    receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual(normal, Reason) end.

a_process_that_sends_to_a_client_that_is_gone(_Config) ->
    Self = self(),
    Port = serve(fun(Request) ->
        process_flag(trap_exit, true),
        ok = weir_http_process:stream(Request, 200, []),
        Self ! {told, self()},
        Self ! {told, until_error(binary:copy(<<"x">>, 100000))},
        Self ! {told, weir_http_process:read_body()},
        streamed
    end),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, get("/serve")),
    Pid = told(),
    %% The process waits for the client, or for the connection to accept a piece.
    ?waitEqual({status, waiting}, process_info(Pid, status)),
    ok = close(Socket),
    ?assertEqual({error, closed}, told()),
    %% The request had no body.
    ?assertEqual({done, <<>>, []}, told()).

until_error(Piece) ->
    case weir_http_process:send(Piece) of
        ok -> until_error(Piece);
        Error -> Error
    end.

a_client_that_takes_nothing_is_gone(_Config) ->
    Self = self(),
    Port = serve(
        fun(Request) ->
            Self ! {told, self()},
            watched(),
            ok = weir_http_process:stream(Request, 200, []),
            until_error(binary:copy(<<"x">>, 100000)),
            streamed
        end,
        #{},
        #{idle_timeout => 400}
    ),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = send(Socket, get("/serve")),
    Monitor = watch(told()),
    %% Either the exit signal comes first, or the error of the send, after which the handler returns.
    receive
        {'DOWN', Monitor, process, _, Reason} -> ?assert(lists:member(Reason, [{shutdown, client_gone}, normal]))
    end,
    ok = close(Socket).

%%% Failures.

a_failure_is_a_500(_Config) ->
    Port = serve(fun(Request) ->
        case weir_http_request:query(Request) of
            <<"error">> -> error(on_purpose);
            <<"throw">> -> throw(on_purpose);
            <<"exit">> -> exit(on_purpose);
            <<"result">> -> nothing;
            <<"streamed">> -> streamed;
            <<"field">> -> {reply, 200, [{<<"a">>, <<"b\r\nc: d">>}], <<>>};
            <<"stream">> -> weir_http_process:stream(Request, 200, [{<<"a">>, <<"b\r\nc: d">>}]);
            <<"send">> -> weir_http_process:send(<<"a">>);
            <<"204">> -> weir_http_process:stream(Request, 204, [])
        end
    end),
    Socket = connect(Port),
    Failures = ["error", "throw", "exit", "result", "streamed", "field", "stream", "send", "204"],
    ok = send(Socket, [[get(["/serve?", Failure]) || Failure <- Failures], get("/direct")]),
    [?assertMatch({500, _, <<>>}, response(Socket), Failure) || Failure <- Failures],
    {200, _, <<"direct">>} = response(Socket),
    Count = length(Failures),
    ?assertMatch(#{crashes := Count}, weir_http:info(?LISTENER)).

a_failure_in_a_stream_closes_the_connection(_Config) ->
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        ok = weir_http_process:send(<<"hello">>),
        error(on_purpose)
    end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    Text = weir_http_client:recv_all(Socket),
    %% The last chunk is missing.
    ?assertMatch({match, _}, re:run(Text, "\r\n\r\n5\r\nhello\r\n$")),
    ?waitMatch(#{crashes := 1}, weir_http:info(?LISTENER)).

%% A killed process cannot report itself: for example, a linked process failed.
a_process_that_is_killed_is_a_500(_Config) ->
    Cors = #{origins => [<<"http://a">>]},
    Port = serve(fun(_) -> exit(self(), kill) end, #{cors => Cors}, #{request_ids => take}),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => #{pid => self()}}),
    Socket = connect(Port),
    ok = send(Socket, get("/serve", "Origin: http://a\r\nX-Request-Id: one\r\n")),
    {500, Fields = #{<<"connection">> := <<"close">>}, <<>>} = response(Socket),
    %% The page may read the response, which has the request id.
    ?assertMatch(#{<<"access-control-allow-origin">> := <<"http://a">>, <<"x-request-id">> := <<"one">>}, Fields),
    ?assert(is_closed(Socket)),
    Report = receive {report, First} -> First after weir_test_wait:patience() -> error(no_report) end,
    ok = logger:remove_handler(?MODULE),
    ?assertMatch(#{path := <<"/serve">>, request_id := <<"one">>, reason := {exit, killed}}, Report),
    ?waitMatch(#{crashes := 1}, weir_http:info(?LISTENER)).

log(#{msg := {report, Report = #{listener := ?LISTENER}}}, #{config := #{pid := Pid}}) -> Pid ! {report, Report};
log(_Event, _Config) -> ok.

a_process_that_is_killed_in_a_stream_is_counted(_Config) ->
    Self = self(),
    Port = serve(fun(Request) ->
        ok = weir_http_process:stream(Request, 200, []),
        ok = weir_http_process:send(<<"begun">>),
        Self ! {told, self()},
        receive after infinity -> ok end
    end),
    Socket = connect(Port),
    ok = send(Socket, get("/serve")),
    Pid = told(),
    exit(Pid, kill),
    Text = weir_http_client:recv_all(Socket),
    ?assertEqual(<<"5\r\nbegun\r\n">>, binary:part(Text, byte_size(Text), -10)),
    ?waitMatch(#{crashes := 1}, weir_http:info(?LISTENER)).
