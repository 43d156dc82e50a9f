%% The scenarios in `docs/load.md' as printed there: compiled, and run against servers of their protocols.
-module(weir_load_examples_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([a_redis_server_is_pinged/1, lines_are_said_in_a_chat/1]).

-define(SECOND, 1_000_000_000).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [a_redis_server_is_pinged, lines_are_said_in_a_chat].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    {ok, Text} = file:read_file(docs(filename:dirname(code:which(?MODULE)))),
    {match, Examples} = re:run(Text, "```erlang\n-module\\((\\w+)\\)(.*?)```", [
        global, dotall, {capture, [1, 2], list}
    ]),
    Modules = [compile(Name, Rest, ?config(priv_dir, Config)) || [Name, Rest] <- Examples],
    ?assertEqual([redis_ping, chat_line], Modules),
    Config.

end_per_suite(_Config) ->
    ok.

%% Looks for the source tree above rebar3's build folder.
docs(Directory) ->
    File = filename:join([Directory, "docs", "load.md"]),
    case filelib:is_regular(File) of
        true -> File;
        false -> docs(filename:dirname(Directory))
    end.

compile(Name, Rest, Directory) ->
    File = filename:join(Directory, Name ++ ".erl"),
    ok = file:write_file(File, ["-module(", Name, ")", Rest]),
    {ok, Module, Binary, []} = compile:file(File, [binary, return, warn_unused_import, warn_export_vars]),
    {module, Module} = code:load_binary(Module, File, Binary),
    Module.

a_redis_server_is_pinged(_Config) ->
    Server = serve(fun(Socket, _Others) -> redis(Socket) end),
    Total = load(redis_ping, #{}, Server),
    ?assertMatch(#{offered := 200, answered := 200, error_count := 0, connected := 5}, Total).

redis(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"PING\r\n">>} -> ok = gen_tcp:send(Socket, "+PONG\r\n"), redis(Socket);
        {error, _} -> ok
    end.

lines_are_said_in_a_chat(_Config) ->
    Server = serve(fun chat/2),
    #{options := [#{name := room, default := Room}]} = weir_load_scenario:describe(chat_line),
    Total = load(chat_line, #{room => Room}, Server),
    ?assertMatch(#{offered := 200, answered := 200, error_count := 0, connected := 5}, Total),
    %% Clients that joined late have missed some messages.
    #{pushed := Pushed} = Total,
    ?assert(Pushed > 0 andalso Pushed =< 4 * 200).

%% Sends each line to all clients.
chat(Socket, Chat) ->
    ok = inet:setopts(Socket, [{packet, line}]),
    case gen_tcp:recv(Socket, 0) of
        {ok, <<"JOIN lobby load", _/binary>>} -> Chat ! {joined, Socket}, said(Socket, Chat);
        {error, _} -> ok
    end.

said(Socket, Chat) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Line} -> Chat ! {said, Line}, said(Socket, Chat);
        {error, _} -> ok
    end.

tell(Sockets) ->
    receive
        {joined, Socket} -> tell([Socket | Sockets]);
        {said, Line} -> _ = [gen_tcp:send(Socket, Line) || Socket <- Sockets], tell(Sockets)
    end.

%% Helpers

serve(Serve) ->
    {ok, Listener} = gen_tcp:listen(0, [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {backlog, 128}
    ]),
    Chat = spawn_link(fun() -> tell([]) end),
    _ = spawn_link(fun() -> accept(Listener, Serve, Chat) end),
    {ok, Port} = inet:port(Listener),
    Port.

accept(Listener, Serve, Chat) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            Pid = spawn_link(fun() -> receive go -> Serve(Socket, Chat) end end),
            ok = gen_tcp:controlling_process(Socket, Pid),
            Pid ! go,
            accept(Listener, Serve, Chat);
        {error, closed} ->
            ok
    end.

load(Scenario, Options, Port) ->
    Plan = #{
        scenario => Scenario,
        options => Options,
        address => {127, 0, 0, 1},
        port => Port,
        sockets => weir,
        load => {open, [{constant, 200, ?SECOND}], even},
        connections => 5,
        connect_rate => unlimited,
        depth => 1,
        duration => ?SECOND,
        warmup => 0,
        timeout => weir_test_wait:patience() * 1_000_000,
        drivers => 2,
        nodes => [node()],
        observe => none
    },
    {ok, Outcome} = weir_load_run:run(Plan, fun(_News) -> ok end),
    About = #{
        scenario => atom_to_binary(Scenario),
        target => <<>>,
        loop => open,
        rate => <<"200">>,
        arrivals => even,
        seed => null,
        concurrency => null,
        connections => 5,
        depth => 1,
        sockets => weir,
        tls => false,
        observe => null,
        nodes => [node()],
        duration_ns => ?SECOND,
        warmup_ns => 0,
        timeout_ns => weir_test_wait:patience() * 1_000_000,
        max_lag_ns => ?SECOND,
        started => <<>>,
        promises => []
    },
    #{total := Total} = weir_load_document:new(About, [Outcome]),
    Total.
