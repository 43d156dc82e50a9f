%% The client for browsers, in Node and in Chromium, by each transport: it continues after a break behind the last
%% message, gets gaps, and uses the next transport if one does not get through.
-module(weir_pubsub_script_SUITE).
-behaviour(weir_http_direct).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).

suite() -> [{timetrap, {minutes, 10}}].

all() -> [{group, node}, {group, node_through_tls}, {group, chromium}].

groups() ->
    Cases = [
        websocket, stream, poll, several_in_an_answer, no_websocket_on_the_way, nothing_but_polls, deleted, forbidden
    ],
    [
        {node, [], [node_without_websockets, waits_longer_each_time | Cases]},
        {node_through_tls, [], [websocket, stream, poll, several_in_an_answer, deleted]},
        {chromium, [], Cases}
    ].

init_per_group(node, Config) ->
    case os:find_executable("node") of
        false -> {skip, "node is missing (scripts/setup test)"};
        _ -> [{program, {node, flags()}} | Config]
    end;
init_per_group(node_through_tls, Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    #{server := Certificate} = weir_compatibility_certificates:make(),
    init_per_group(node, [{tls, Certificate} | Config]);
%% One browser for all cases, with a page for each.
init_per_group(chromium, Config) ->
    case weir_compatibility_chromium:find() of
        {ok, Program} ->
            {ok, Browser} = weir_compatibility_chromium:start(
                Program, filename:join(proplists:get_value(priv_dir, Config), "browser")
            ),
            [{program, {chromium, Browser}} | Config];
        error ->
            {skip, "chromium is missing (scripts/setup test)"}
    end.

flags() ->
    case binary:match(list_to_binary(os:cmd("node --help")), <<"--experimental-websocket">>) of
        nomatch -> [];
        _ -> ["--experimental-websocket"]
    end.

end_per_group(_Group, Config) ->
    case proplists:get_value(program, Config) of
        {chromium, Browser} -> weir_compatibility_chromium:stop(Browser);
        _ -> ok
    end.

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{channels => [{<<"room">>, #{max_messages => 3, presence => true}}]}),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = [
        weir_http:stop_listener(Name)
     || Name <- [script_server, script_said], lists:member(Name, weir_listener:names())
    ],
    ok = application:stop(weir_pubsub).

websocket(Config) ->
    Client = start(Config, #{transports => [websocket]}, #{}),
    comes_back(Client, <<"websocket">>),
    order(<<"presence">>),
    #{<<"present">> := [#{<<"name">> := <<"Ann">>}]} = said(),
    order(<<"history">>),
    #{<<"history">> := [<<"9">>]} = said(),
    stop(Client).

stream(Config) ->
    Client = start(Config, #{transports => [stream]}, #{}),
    comes_back(Client, <<"stream">>),
    order(<<"history">>),
    #{<<"failed">> := <<"unsupported">>} = said(),
    stop(Client).

poll(Config) ->
    Client = start(Config, #{transports => [poll]}, #{}),
    comes_back(Client, <<"poll">>),
    stop(Client).

%% All kept messages come with one poll, each as it was published and with its own id.
several_in_an_answer(Config) ->
    Fake = <<"--B\r\n\r\nfake\r\n--B--\r\n">>,
    Published = [
        weir_pubsub:publish(<<"room">>, Data, Options)
     || {Data, Options} <- [
            {<<"one">>, #{}}, {<<0, 255, "\r\n\r\n">>, #{}}, {Fake, #{type => <<"multipart/mixed; boundary=B">>}}
        ]
    ],
    Client = start(Config, #{transports => [poll]}, #{}),
    Ids = [weir_pubsub_id:to_text(Id) || {ok, #{id := Id}} <- Published],
    ?assertEqual(
        [
            #{<<"message">> => Data, <<"id">> => Id}
         || {Data, Id} <- lists:zip([<<"one">>, [0, 255, 13, 10, 13, 10], Fake], Ids)
        ],
        messages(3)
    ),
    %% The second poll waits for the next message.
    ?assert(polls(0) =< 2),
    ok = wait_for_a_subscriber(),
    {ok, #{id := Id}} = weir_pubsub:publish(<<"room">>, Fake, #{type => <<"multipart/mixed; boundary=B">>}),
    ?assertEqual([#{<<"message">> => Fake, <<"id">> => weir_pubsub_id:to_text(Id)}], messages(1)),
    stop(Client).

polls(Count) -> receive {asked, <<"room">>} -> polls(Count + 1) after 0 -> Count end.

node_without_websockets(Config) ->
    Client = start(Config, #{}, #{websocket => false}),
    #{<<"open">> := <<"stream">>} = said(),
    stop(Client).

%% A server that is away is tried less and less often; after a response the delay begins again. A response of another
%% server is not a message.
waits_longer_each_time(Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), "waits"),
    ok = filelib:ensure_path(Directory),
    {ok, _} = file:copy(
        filename:join(code:priv_dir(weir_pubsub), "weir-push.js"), filename:join(Directory, "weir-push.mjs")
    ),
    {ok, _} = file:copy(
        filename:join(proplists:get_value(data_dir, Config), "waits.mjs"), filename:join(Directory, "waits.mjs")
    ),
    Waits = fun(Server) -> os:cmd("cd '" ++ Directory ++ "' && timeout 120 node waits.mjs " ++ Server) end,
    ?assertEqual("[500,1000,2000,4000,500,1000,2000,4000]\n", Waits("away")),
    ?assertEqual("[500,1000,2000,4000,4000,4000,4000,4000]\n", Waits("page")).

no_websocket_on_the_way(Config) ->
    Client = start(Config, #{}, #{routes => [script, nchan]}),
    #{<<"open">> := <<"stream">>} = said(),
    hears([<<"1">>]),
    stop(Client).

nothing_but_polls(Config) ->
    Client = start(Config, #{}, #{routes => [script, {nchan, [poll]}]}),
    #{<<"open">> := <<"poll">>} = said(),
    hears([<<"1">>]),
    stop(Client).

deleted(Config) ->
    [
        begin
            Client = start(Config, #{transports => [Transport]}, #{}),
            #{<<"open">> := _} = said(),
            hears([<<"1">>]),
            %% A poll comes back after each message.
            ok = wait_for_a_subscriber(),
            {ok, _} = weir_pubsub:delete(<<"room">>),
            ?assertEqual(#{<<"closed">> => <<"deleted">>}, said()),
            stop(Client)
        end
     || Transport <- [websocket, stream, poll]
    ].

forbidden(Config) ->
    [
        begin
            Client = start(Config, #{transports => [Transport]}, #{refused => <<"room">>}),
            Both = [said(), said()],
            ?assertEqual(
                [#{<<"error">> => <<"forbidden">>}, #{<<"open">> => atom_to_binary(Transport)}], lists:sort(Both)
            ),
            stop(Client)
        end
     || Transport <- [websocket, poll]
    ].

%% What is published while it is away comes once and in order; messages that have left the history are a gap.
comes_back(#{proxy := Proxy}, Transport) ->
    ?assertEqual(#{<<"open">> => Transport}, said()),
    hears([<<"1">>, <<"2">>]),
    ok = call(Proxy, cut),
    [publish(Data) || Data <- [<<"3">>, <<"4">>]],
    ok = call(Proxy, mend),
    ?assertMatch([#{<<"message">> := <<"3">>}, #{<<"message">> := <<"4">>}], messages(2)),
    hears([<<"5">>]),
    ok = call(Proxy, cut),
    [publish(Data) || Data <- [<<"6">>, <<"7">>, <<"8">>, <<"9">>]],
    ok = call(Proxy, mend),
    ?assertMatch(
        [#{<<"gap">> := 1}, #{<<"message">> := <<"7">>}, #{<<"message">> := <<"8">>}, #{<<"message">> := <<"9">>}],
        messages(4)
    ),
    order(<<"publish">>),
    ?assertEqual([#{<<"published">> => <<"answers">>}], messages(1)),
    {ok, #{messages := [{message, _, <<"from the client">>, _}]}} = weir_pubsub:history(<<"answers">>, #{}).

wait_for_a_subscriber() ->
    ?waitMatch({ok, #{subscribers := 1}}, weir_pubsub:info(<<"room">>)),
    ok.

publish(Data) -> {ok, _} = weir_pubsub:publish(<<"room">>, Data).

order(What) -> {ok, _} = weir_pubsub:publish(<<"orders">>, What).

hears(All) ->
    [publish(Data) || Data <- All],
    ?assertEqual(All, [Data || #{<<"message">> := Data} <- messages(length(All))]).

%% Without the reports that it is open.
messages(0) -> [];
messages(Count) ->
    case said() of
        #{<<"open">> := _} -> messages(Count);
        What -> [What | messages(Count - 1)]
    end.

said() ->
    receive {said, What} -> What after weir_test_wait:patience() -> ct:fail(nothing_said) end.

%% Servers, and a client of them -----------------------------------------------------------

start(Config, Options, Test) ->
    {ok, _} = weir_http:start_listener(script_said, #{ip => {127, 0, 0, 1}}, [{"/said", ?MODULE, {said, self()}}]),
    Data = proplists:get_value(data_dir, Config),
    Served = maps:get(routes, Test, [script, ws, nchan]),
    Case = self(),
    May = fun(Channel) ->
        Case ! {asked, binary:copy(Channel)},
        Channel =/= maps:get(refused, Test, none)
    end,
    Routes = lists:append([
        [{"/client.mjs", ?MODULE, {file, filename:join(Data, "client.mjs")}}],
        weir_pubsub_script:routes(),
        [weir_pubsub_ws:route(#{may => fun(_, _, Channel) -> May(Channel) end}) || lists:member(ws, Served)],
        nchan(Served, May)
    ]),
    {Scheme, Transport} =
        case proplists:get_value(tls, Config) of
            undefined -> {"http", #{}};
            Certificate -> {"https", #{tls => Certificate}}
        end,
    {ok, _} = weir_http:start_listener(script_server, Transport#{ip => {127, 0, 0, 1}}, Routes),
    {Proxy, Port} = proxy(weir:get_port(script_server)),
    Url = Scheme ++ "://127.0.0.1:" ++ integer_to_list(Port),
    Said = "http://127.0.0.1:" ++ integer_to_list(weir:get_port(script_said)) ++ "/said",
    Given = iolist_to_binary(
        weir_json:compact(Options#{
            server => list_to_binary(Url), said => list_to_binary(Said), webSocket => maps:get(websocket, Test, true)
        })
    ),
    Run = [
        "const push = await import('",
        Url,
        "/weir-push.js'); const { run } = await import('",
        Url,
        "/client.mjs'); await run(push, ",
        Given,
        ");"
    ],
    Page = ["<!DOCTYPE html><script type=module>", Run, "</script>"],
    ok = weir_http:set_routes(script_server, [{"/page", ?MODULE, {page, Page}} | Routes]),
    #{proxy => Proxy, program => program(proplists:get_value(program, Config), Run, Url, Config)}.

nchan(Served, May) ->
    Transports =
        case lists:keyfind(nchan, 1, [Entry || Entry <- Served, is_tuple(Entry)]) of
            {nchan, Some} -> Some;
            false -> weir_pubsub_http:transports()
        end,
    Subscribers = fun(Request, Channel) ->
        lists:member(weir_pubsub_http:transport(Request), Transports) andalso May(Channel)
    end,
    weir_pubsub_http:routes(#{publishers => any, subscribers => Subscribers, poll_timeout => 3600000}).

handle(Request, {said, Test}) ->
    {ok, What} = weir_json:decode(iolist_to_binary(weir_http_request:body(Request))),
    Test ! {said, What},
    {reply, 204, [], <<>>};
handle(_Request, {file, File}) ->
    {file, File, [{<<"content-type">>, <<"text/javascript">>}]};
handle(_Request, {page, Page}) ->
    {reply, 200, [{<<"content-type">>, <<"text/html">>}], Page}.

%% Node imports no module from a server, so it has the files. It ends with its input: with the case, however that
%% ends.
program({node, Flags}, Run, Url, Config) ->
    Directory = filename:join(
        proplists:get_value(priv_dir, Config), "node" ++ integer_to_list(erlang:unique_integer([positive]))
    ),
    ok = filelib:ensure_path(Directory),
    {ok, _} = file:copy(
        filename:join(code:priv_dir(weir_pubsub), "weir-push.js"), filename:join(Directory, "weir-push.mjs")
    ),
    {ok, _} = file:copy(
        filename:join(proplists:get_value(data_dir, Config), "client.mjs"), filename:join(Directory, "client.mjs")
    ),
    Local = string:replace(
        string:replace(iolist_to_binary(Run), [Url, "/weir-push.js"], "./weir-push.mjs"),
        [Url, "/client.mjs"],
        "./client.mjs"
    ),
    ok = file:write_file(filename:join(Directory, "main.mjs"), [
        "process.stdin.on('end', () => process.exit()).resume();", Local
    ]),
    open_port({spawn_executable, os:find_executable("node")}, [
        {args, Flags ++ ["main.mjs"]},
        {cd, Directory},
        {env, [{"NODE_TLS_REJECT_UNAUTHORIZED", "0"}]},
        stderr_to_stdout,
        binary
    ]);
program({chromium, Browser}, _Run, Url, _Config) ->
    weir_compatibility_chromium:open(Browser, [Url, "/page"], #{}).

stop(#{proxy := Proxy, program := Program}) ->
    _ = case Program of
        Port when is_port(Port) -> port_close(Port);
        Page -> weir_compatibility_chromium:close(Page)
    end,
    exit(Proxy, kill),
    [ok = weir_http:stop_listener(Name) || Name <- [script_server, script_said]],
    forget().

forget() -> receive {said, _} -> forget(); {asked, _} -> forget() after 0 -> ok end.

%% A proxy to the server that can be cut: then all connections end, and new ones end at once.
proxy(To) ->
    Test = self(),
    Proxy = spawn(fun() ->
        _ = monitor(process, Test),
        {ok, Listen} = gen_tcp:listen(0, [
            binary, {ip, {127, 0, 0, 1}}, {active, false}, {reuseaddr, true}, {backlog, 100}
        ]),
        {ok, Port} = inet:port(Listen),
        Test ! {port, self(), Port},
        Own = self(),
        spawn_link(fun() -> accept(Listen, Own) end),
        proxy_loop(To, whole, [])
    end),
    receive
        {port, Proxy, Port} -> {Proxy, Port}
    end.

accept(Listen, Proxy) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    ok = gen_tcp:controlling_process(Socket, Proxy),
    Proxy ! {accepted, Socket},
    accept(Listen, Proxy).

proxy_loop(To, State, Pairs) ->
    receive
        {accepted, Socket} when State =:= cut ->
            gen_tcp:close(Socket),
            proxy_loop(To, State, Pairs);
        {accepted, Socket} ->
            case gen_tcp:connect({127, 0, 0, 1}, To, [binary, {active, true}]) of
                {ok, Server} ->
                    _ = inet:setopts(Socket, [{active, true}]),
                    proxy_loop(To, State, [{Socket, Server}, {Server, Socket} | Pairs]);
                {error, _} ->
                    gen_tcp:close(Socket),
                    proxy_loop(To, State, Pairs)
            end;
        {tcp, From, Data} ->
            case lists:keyfind(From, 1, Pairs) of
                {_, Other} -> gen_tcp:send(Other, Data);
                false -> ok
            end,
            proxy_loop(To, State, Pairs);
        {tcp_closed, From} ->
            case lists:keyfind(From, 1, Pairs) of
                {_, Other} -> gen_tcp:close(Other);
                false -> ok
            end,
            proxy_loop(To, State, [Pair || {A, B} = Pair <- Pairs, A =/= From, B =/= From]);
        {{cut, Pid}, Ref} ->
            [gen_tcp:close(Socket) || {Socket, _} <- Pairs],
            Pid ! Ref,
            proxy_loop(To, cut, []);
        {{mend, Pid}, Ref} ->
            Pid ! Ref,
            proxy_loop(To, whole, Pairs);
        {'DOWN', _, process, _, _} ->
            exit(shutdown);
        _ ->
            proxy_loop(To, State, Pairs)
    end.

call(Proxy, What) ->
    Ref = make_ref(),
    Proxy ! {{What, self()}, Ref},
    receive Ref -> ok after weir_test_wait:patience() -> ct:fail(no_proxy) end.
