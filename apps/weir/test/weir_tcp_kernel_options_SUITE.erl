%% Options that the kernel stores: given at open, inherited from a listener, set later, read back, and refused.
-module(weir_tcp_kernel_options_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [listen/2, listen/3, connect/4, connect_raw/1, socket_pair/2, keep/1]).
-import(weir_test_wait, [patience/0, recv_exactly/2]).

-define(LOOPBACK, {127, 0, 0, 1}).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [{group, inet}, {group, weir}].

groups() ->
    weir_test_peer:by_backend_and_role(cases()).

init_per_group(Group, Config) ->
    weir_test_peer:init_group(Group, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(Case, Config) ->
    case reason_to_skip(Case, Config) of
        none -> weir_test_peer:init_case(Config);
        Reason -> {skip, Reason}
    end.

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

cases() ->
    [
        defaults, given_at_open, set_later, wrong_values, refused_by_the_kernel, refused_at_open, later_only,
        those_before_a_refused_one_are_set, type_of_service_keeps_priority, packet_options, inherited, late_on_listener,
        bound_to_device, raw_in_two_shapes, from_the_end_at_open, debug, closed_socket, namespace_that_is_ours,
        namespace_that_is_none, another_namespace, shared_port, newer_keepalive, user_timeout, exclusive, read_ahead
    ].

%% Stock OTP has got some options after 25; Weir has them on all releases.
reason_to_skip(Case, Config) ->
    Needed = #{
        shared_port => {reuseport, true},
        exclusive => {exclusiveaddruse, true},
        read_ahead => {read_ahead, true},
        newer_keepalive => {keepidle, 1},
        user_timeout => {user_timeout, 1}
    },
    case {Needed, proplists:get_value(backend, Config)} of
        {#{Case := Option}, []} ->
            try gen_tcp:listen(0, [Option]) of
                {ok, Listener} ->
                    ok = gen_tcp:close(Listener),
                    none
            catch
                exit:badarg -> "this release of OTP does not know the option"
            end;
        _ when Case =:= another_namespace -> no_namespaces();
        _ -> none
    end.

no_namespaces() ->
    case string:trim(os:cmd("id -u")) of
        "0" ->
            case [Name || Name <- ["ip", "unshare"], os:find_executable(Name) =:= false] of
                [] -> none;
                Missing -> lists:flatten(["there is no program ", lists:join(" and no ", Missing)])
            end;
        _ ->
            "only root makes network namespaces"
    end.

get(Socket, Name) ->
    {ok, [{Name, Value}]} = inet:getopts(Socket, [Name]),
    Value.

%% ------------------------------------------------------------------------------

defaults(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    Defaults = [
        {priority, 0}, {tos, 0}, {ttl, 64}, {recvtos, false}, {recvttl, false}, {dontroute, false}, {nopush, false},
        {bind_to_device, <<>>}, {debug, false}
    ],
    Names = [Name || {Name, _} <- Defaults],
    ?assertEqual({ok, Defaults}, inet:getopts(Socket, Names)),
    %% Options that IPv4 lacks or that were not given are left out.
    ?assertEqual({ok, [{tos, 0}]}, inet:getopts(Socket, [tclass, recvtclass, ipv6_v6only, netns, tos])).

given_at_open(Config) ->
    Options = [
        {tos, 16}, {priority, 3}, {ttl, 33}, {recvtos, true}, {recvttl, true}, {keepalive, true}, {nodelay, true}
    ],
    {Socket, _Peer} = socket_pair(Config, Options),
    Names = [Name || {Name, _} <- Options],
    ?assertEqual({ok, Options}, inet:getopts(Socket, Names)).

set_later(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    [
        begin
            ?assertEqual(ok, inet:setopts(Socket, [{Name, Value}])),
            ?assertEqual({Name, Value}, {Name, get(Socket, Name)})
        end
     || {Name, Values} <- [
            {priority, [1, 6, 0]}, {tos, [4, 16, 0]}, {ttl, [1, 255]}, {recvtos, [true, false]},
            {recvttl, [true, false]}, {dontroute, [true, false]}, {nopush, [true, false]}
        ],
        Value <- Values
    ],
    ok.

wrong_values(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    [
        begin
            ?assertEqual({Option, {error, einval}}, {Option, inet:setopts(Socket, [Option])}),
            ?assertExit(badarg, listen(Config, 0, [Option]))
        end
     || Option <- [
            {priority, high}, {tos, true}, {ttl, 1.0}, {tclass, "1"}, {recvtos, 1}, {recvtclass, on}, {recvttl, 0},
            {ipv6_v6only, 1}, {dontroute, 1}, {nopush, 0}, {bind_to_device, "lo"}, {bind_to_device, lo},
            {pktoptions, []}, {netns, foo}, {debug, 1}
        ]
    ],
    ok.

refused_by_the_kernel(Config) ->
    {Socket, _Peer} = socket_pair(Config, []),
    [
        ?assertEqual({Option, {error, einval}}, {Option, inet:setopts(Socket, [Option])})
     || Option <- [
            {ttl, 0}, {ttl, 256}, {tclass, 1}, {recvtclass, true}, {ipv6_v6only, true},
            {bind_to_device, <<"nosuchdevice">>}, {bind_to_device, <<"a name that is too long">>}
        ]
    ].

refused_at_open(Config) ->
    ?assertEqual({error, einval}, listen(Config, 0, [{ttl, 0}])),
    ?assertEqual({error, einval}, listen(Config, 0, [{tclass, 1}])),
    ?assertEqual({error, einval}, listen(Config, 0, [{bind_to_device, <<"nosuchdevice">>}])),
    {_Listener, Port} = listen(Config, []),
    ?assertExit(badarg, connect(Config, ?LOOPBACK, Port, [{ttl, 0}])).

later_only(Config) ->
    {_Listener, Port} = listen(Config, []),
    [
        begin
            ?assertExit(badarg, listen(Config, 0, [Option])),
            ?assertExit(badarg, connect(Config, ?LOOPBACK, Port, [Option]))
        end
     || Option <- [{dontroute, true}, {nopush, true}]
    ],
    ?assertExit(badarg, connect(Config, ?LOOPBACK, Port, [{ipv6_v6only, true}])).

those_before_a_refused_one_are_set(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{nodelay, false}, {keepalive, false}]),
    %% Options are set from the end of the list.
    ?assertEqual({error, einval}, inet:setopts(Socket, [{nodelay, true}, {ttl, 0}, {keepalive, true}])),
    ?assertEqual({ok, [{nodelay, false}, {keepalive, true}]}, inet:getopts(Socket, [nodelay, keepalive])).

type_of_service_keeps_priority(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{priority, 5}, {tos, 16}]),
    ?assertEqual({ok, [{priority, 5}, {tos, 16}]}, inet:getopts(Socket, [priority, tos])),
    ok = inet:setopts(Socket, [{tos, 8}]),
    ?assertEqual({ok, [{priority, 5}, {tos, 8}]}, inet:getopts(Socket, [priority, tos])),
    ok = inet:setopts(Socket, [{raw, 0, 1, <<24:32/native>>}]),
    ?assertEqual({ok, [{priority, 5}, {tos, 24}]}, inet:getopts(Socket, [priority, tos])),
    ok = inet:setopts(Socket, [{priority, 2}]),
    ?assertEqual({ok, [{priority, 2}, {tos, 24}]}, inet:getopts(Socket, [priority, tos])).

packet_options(Config) ->
    {Socket, Peer} = socket_pair(Config, [{active, false}]),
    ?assertEqual([], get(Socket, pktoptions)),
    ok = inet:setopts(Socket, [{recvtos, true}, {recvttl, true}]),
    ok = inet:setopts(Peer, [{tos, 8}]),
    ok = gen_tcp:send(Peer, <<"x">>),
    _ = recv_exactly(Socket, 1),
    ?assertMatch([{ttl, Ttl}, {tos, Tos}] when is_integer(Ttl) andalso is_integer(Tos), get(Socket, pktoptions)),
    ok = inet:setopts(Socket, [{recvttl, false}]),
    ?assertMatch([{tos, _}], get(Socket, pktoptions)).

inherited(Config) ->
    Options = [
        {priority, 4}, {tos, 8}, {ttl, 44}, {recvtos, true}, {recvttl, true}, {nodelay, true}, {keepalive, true},
        {linger, {true, 5}}, {reuseaddr, true}
    ],
    {Listener, Port} = listen(Config, Options),
    _ = connect_raw(Port),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    Names = [Name || {Name, _} <- Options],
    ?assertEqual({ok, Options}, inet:getopts(Accepted, Names)).

%% Connections that were in the backlog when the listener changed get its new options.
late_on_listener(Config) ->
    {Listener, Port} = listen(Config, []),
    _ = connect_raw(Port),
    Options = [
        {priority, 4}, {tos, 8}, {ttl, 44}, {recvtos, true}, {recvttl, true}, {nodelay, true}, {keepalive, true}
    ],
    ok = inet:setopts(Listener, Options),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    Names = [Name || {Name, _} <- Options],
    ?assertEqual({ok, Options}, inet:getopts(Accepted, Names)).

bound_to_device(Config) ->
    {Listener, Port} = listen(Config, [{bind_to_device, <<"lo">>}]),
    ?assertEqual(<<"lo">>, get(Listener, bind_to_device)),
    {ok, Connected} = connect(Config, ?LOOPBACK, Port, [{bind_to_device, <<"lo">>}]),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    ?assertEqual(<<"lo">>, get(Connected, bind_to_device)),
    ?assertEqual(<<"lo">>, get(Accepted, bind_to_device)).

raw_in_two_shapes(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{raw, {6, 4, <<100:32/native>>}}]),
    ?assertEqual({ok, [{raw, 6, 4, <<100:32/native>>}]}, inet:getopts(Socket, [{raw, 6, 4, 4}])),
    ?assertEqual({ok, [{raw, 6, 4, <<100:32/native>>}]}, inet:getopts(Socket, [{raw, {6, 4, 4}}])),
    ok = inet:setopts(Socket, [{raw, {6, 4, <<200:32/native>>}}]),
    ?assertEqual({ok, [{raw, 6, 4, <<200:32/native>>}]}, inet:getopts(Socket, [{raw, {6, 4, <<0:32>>}}])),
    [
        ?assertEqual({error, einval}, inet:getopts(Socket, [Wrong]))
     || Wrong <- [{raw, {6, 4}}, {raw, {6, 4, 4, 4}}, {raw, {6, 4, foo}}, {raw, foo}]
    ].

from_the_end_at_open(Config) ->
    {Socket, _Peer} = socket_pair(Config, [
        {high_watermark, 100}, {low_watermark, 200}, {raw, 6, 4, <<11:32/native>>}, {raw, 6, 4, <<22:32/native>>}
    ]),
    ?assertEqual(
        {ok, [{high_watermark, 100}, {low_watermark, 100}, {raw, 6, 4, <<11:32/native>>}]},
        inet:getopts(Socket, [high_watermark, low_watermark, {raw, 6, 4, 4}])
    ).

debug(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{debug, false}]),
    ?assertEqual(false, get(Socket, debug)),
    ok = inet:setopts(Socket, [{debug, false}]),
    ?assertEqual(false, get(Socket, debug)).

closed_socket(Config) ->
    {Socket, Peer} = socket_pair(Config, [{active, false}]),
    ok = gen_tcp:close(Peer),
    {error, closed} = gen_tcp:recv(Socket, 0, patience()),
    ?assertEqual(
        {ok, [{active, false}, {debug, false}]},
        inet:getopts(Socket, [nodelay, tos, active, bind_to_device, pktoptions, netns, debug])
    ),
    ?assertEqual(ok, inet:setopts(Socket, [{nodelay, true}])),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{tos, 1}])),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{bind_to_device, <<"lo">>}])).

%% Network namespaces -------------------------------------------------------------

namespace_that_is_ours(Config) ->
    {Listener, Port} = listen(Config, [{netns, "/proc/self/ns/net"}, {active, false}]),
    ?assertEqual("/proc/self/ns/net", get(Listener, netns)),
    {ok, Connected} = connect(Config, ?LOOPBACK, Port, [{netns, <<"/proc/self/ns/net">>}]),
    ?assertEqual("/proc/self/ns/net", get(Connected, netns)),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
    ?assertEqual({ok, []}, inet:getopts(Accepted, [netns])),
    %% On an open socket the option is only stored.
    ok = inet:setopts(Accepted, [{netns, "/nowhere"}]),
    ?assertEqual("/nowhere", get(Accepted, netns)).

namespace_that_is_none(Config) ->
    ?assertEqual({error, enoent}, listen(Config, 0, [{netns, "/nowhere"}])),
    ?assertEqual({error, einval}, listen(Config, 0, [{netns, "/proc/self/status"}])),
    ?assertEqual({error, enoent}, connect(Config, ?LOOPBACK, 1, [{netns, "/nowhere"}])).

another_namespace(Config) ->
    %% The namespace exists as long as its only process, which ends with this one.
    Program = open_port({spawn_executable, os:find_executable("unshare")}, [
        {args, ["--net", "/bin/sh", "-c", "ip link set lo up && echo up && exec cat"]}, stderr_to_stdout, exit_status
    ]),
    receive
        {Program, {data, "up\n"}} ->
            {os_pid, Pid} = erlang:port_info(Program, os_pid),
            in_namespace(Config, "/proc/" ++ integer_to_list(Pid) ++ "/ns/net"),
            true = port_close(Program);
        {Program, {data, Refused}} ->
            true = port_close(Program),
            {skip, Refused}
    after patience() -> error({no_namespace, erlang:port_info(Program)})
    end.

in_namespace(Config, Path) ->
    %% The same port is free in both namespaces.
    Connections = 2 * erlang:system_info(schedulers),
    {Outside, Port} = listen(Config, [{backlog, Connections}]),
    {ok, Inside} = listen(Config, Port, [{ip, ?LOOPBACK}, {netns, Path}, {active, false}]),
    {ok, Connected} = connect(Config, ?LOOPBACK, Port, [{netns, Path}, {active, false}]),
    {ok, Accepted} = keep(gen_tcp:accept(Inside, patience())),
    ok = gen_tcp:send(Connected, "inside"),
    ?assertEqual({ok, "inside"}, gen_tcp:recv(Accepted, 6, patience())),
    ?assertEqual({error, timeout}, gen_tcp:accept(Outside, 20)),
    %% No scheduler thread has stayed in the namespace.
    _ = [
        begin
            {ok, Socket} = connect(Config, ?LOOPBACK, Port, []),
            ok = gen_tcp:close(Socket)
        end
     || _ <- lists:seq(1, Connections)
    ],
    ?assertEqual({error, timeout}, gen_tcp:accept(Inside, 20)),
    [ok = gen_tcp:close(Socket) || Socket <- [Inside, Connected, Accepted, Outside]],
    ok.

%% Newer options ------------------------------------------------------------------

shared_port(Config) ->
    [
        begin
            {Listener, Port} = listen(Config, [{Name, true}]),
            ?assertEqual(
                {ok, [{reuseport, true}, {reuseport_lb, true}]}, inet:getopts(Listener, [reuseport, reuseport_lb])
            ),
            {ok, Other} = listen(Config, Port, [{ip, ?LOOPBACK}, {Name, true}]),
            ?assertEqual({error, eaddrinuse}, listen(Config, Port, [{ip, ?LOOPBACK}])),
            [ok = gen_tcp:close(Socket) || Socket <- [Listener, Other]]
        end
     || Name <- [reuseport, reuseport_lb]
    ].

newer_keepalive(Config) ->
    Options = [{keepcnt, 3}, {keepidle, 100}, {keepintvl, 20}],
    {Socket, _Peer} = socket_pair(Config, Options),
    ?assertEqual({ok, Options}, inet:getopts(Socket, [keepcnt, keepidle, keepintvl])),
    %% Values that the kernel refuses are ignored.
    ?assertEqual(ok, inet:setopts(Socket, [{keepidle, -1}, {keepcnt, 0}])),
    ?assertEqual({ok, Options}, inet:getopts(Socket, [keepcnt, keepidle, keepintvl])),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{keepidle, infinity}])).

user_timeout(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{user_timeout, 5000}]),
    ?assertEqual(5000, get(Socket, user_timeout)),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{user_timeout, -1}])),
    ok = inet:setopts(Socket, [{user_timeout, 0}]),
    ?assertEqual(0, get(Socket, user_timeout)).

%% An option of Windows.
exclusive(Config) ->
    {Socket, _Peer} = socket_pair(Config, [{exclusiveaddruse, true}]),
    ?assertEqual(false, get(Socket, exclusiveaddruse)),
    ?assertEqual(ok, inet:setopts(Socket, [{exclusiveaddruse, true}])),
    ?assertEqual({error, einval}, inet:setopts(Socket, [{exclusiveaddruse, 1}])).

read_ahead(Config) ->
    {Socket, Peer} = socket_pair(Config, [{read_ahead, false}, {active, false}]),
    ?assertEqual(false, get(Socket, read_ahead)),
    ok = gen_tcp:send(Peer, <<"data">>),
    ?assertEqual(<<"data">>, recv_exactly(Socket, 4)),
    ok = inet:setopts(Socket, [{read_ahead, true}]),
    ?assertEqual(true, get(Socket, read_ahead)).
