%% An HTTP listener has a reactor for each online scheduler, and follows changes of their number.
-module(weir_http_online_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-compile([export_all, nowarn_export_all]).
-compile({no_auto_import, [get/1]}).

-import(weir_http_client, [connect/1, send/2, response/1, get/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() -> [{timetrap, {minutes, 3}}].

all() -> [reactors_follow].

%% In a VM with eight schedulers, two of them online.
reactors_follow(_Config) ->
    Paths = ["-pa" | [Path || Path <- code:get_path(), not lists:prefix(code:lib_dir(), Path)]],
    {ok, Server, _} = peer:start(#{
        connection => standard_io,
        wait_boot => weir_test_wait:patience(),
        env => [{"ERL_FLAGS", ""}],
        args => ["+S", "8:2" | Paths]
    }),
    try
        ok = peer:call(Server, ?MODULE, follow, [], infinity)
    after
        peer:stop(Server)
    end.

follow() ->
    {ok, _} = application:ensure_all_started(weir_http),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => ?LOOPBACK}, [
        {"/", weir_http_echo, {reply, 200, [], <<"hello">>}}
    ]),
    Port = weir:get_port(?MODULE),
    ?assertEqual([1, 2], schedulers()),
    Old = [is_served(connect(Port)) || _ <- lists:seq(1, 20)],
    lists:foreach(
        fun({Online, Schedulers}) ->
            _ = erlang:system_flag(schedulers_online, Online),
            ?waitEqual(Schedulers, schedulers()),
            [is_served(Socket) || Socket <- Old],
            [is_served(connect(Port)) || _ <- lists:seq(1, 20)]
        end,
        %% Reactors of offline schedulers keep their connections.
        [{4, [1, 2, 3, 4]}, {1, [1, 2, 3, 4]}, {3, [1, 2, 3, 4]}]
    ),
    weir_http:stop_listener(?MODULE).

schedulers() -> lists:sort([Scheduler || #{scheduler := Scheduler} <- weir:reactors()]).

is_served(Socket) ->
    ok = send(Socket, get("/")),
    {200, _, <<"hello">>} = response(Socket),
    Socket.
