%% IPv6 and local sockets: what works on IPv4 works on them, and what is
%% their own. In the group `drop_in' it is `weir_tcp' that opens them all, as
%% where it is the module of a whole virtual machine.
-module(weir_tcp_family_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_peer, [keep/1, async/1, await/1]).
-import(weir_test_wait, [next_message/0, assert_no_message/0, collect_active/2, recv_exactly/2, recv_all/1]).

-define(PATIENCE, 10000).

suite() ->
    [{timetrap, {seconds, 60}}].

all() ->
    [{group, inet}, {group, weir}, {group, drop_in}, whole_virtual_machine, family_among_the_options].

groups() ->
    Families = [{group, inet6}, {group, local}],
    [
        {inet, [], Families},
        {weir, [], Families},
        {drop_in, [], Families},
        {inet6, [], common() ++ inet6()},
        {local, [], common() ++ local()}
    ].

common() ->
    [
        passive, active, active_once, active_n, large, names, half_close, reset, accept_waits, accept_times_out,
        refused, in_use, owner_dies, monitored, statistics, options, kernel_options, closed_by_us
    ].

inet6() ->
    [
        inet6_any_takes_ipv4, inet6_only, inet6_only_is_for_listen, inet6_loopback, inet6_by_name, inet6_map,
        inet6_map_with_scope, inet6_map_of_ipv4, inet6_mapped, inet6_bound_connect, inet6_address_of_ipv4,
        inet6_traffic_class
    ].

local() ->
    [
        local_path_as_string, local_abstract, local_chosen_name, local_bound_connect, local_length, local_null_in_path,
        local_unicode, local_port, local_not_bound, local_other_address, local_no_text, local_not_there,
        local_options_of_tcp, local_full_backlog
    ].

init_per_group(drop_in, Config) ->
    [{drop_in, true} | weir_test_peer:init_group(weir, Config)];
init_per_group(Family, Config) when Family =:= inet6; Family =:= local ->
    case Family =:= local orelse gen_tcp:listen(0, [inet6, {ip, loopback}]) of
        true ->
            [{family, Family} | Config];
        {ok, Listener} ->
            ok = gen_tcp:close(Listener),
            [{family, Family} | Config];
        {error, Reason} ->
            {skip, {"no IPv6 here", Reason}}
    end;
init_per_group(Group, Config) ->
    weir_test_peer:init_group(Group, Config).

end_per_group(Group, Config) ->
    weir_test_peer:end_group(Group, Config).

init_per_testcase(Case, Config) when Case =:= whole_virtual_machine; Case =:= family_among_the_options ->
    {ok, _} = application:ensure_all_started(weir),
    weir_test_peer:init_case([{backend, [{tcp_module, weir_tcp}]} | Config]);
init_per_testcase(_Case, Config) ->
    [{directory, directory(Config)} | weir_test_peer:init_case(Config)].

end_per_testcase(Case, Config) when Case =:= whole_virtual_machine; Case =:= family_among_the_options ->
    weir_test_peer:end_case(Config);
end_per_testcase(_Case, Config) ->
    Result = weir_test_peer:end_case(Config),
    Directory = proplists:get_value(directory, Config),
    {ok, Names} = file:list_dir(Directory),
    [ok = file:delete(filename:join(Directory, Name)) || Name <- Names],
    ok = file:del_dir(Directory),
    Result.

%% The directories of a test run have paths too long for a socket.
directory(_Config) ->
    Directory = "/tmp/weir_" ++ os:getpid() ++ "_" ++ integer_to_list(erlang:unique_integer([positive])),
    ok = file:make_dir(Directory),
    Directory.

%% Sockets of the family under test ---------------------------------------------

family(Config) ->
    proplists:get_value(family, Config).

backend(Config) ->
    case {proplists:get_value(backend, Config), family(Config), proplists:get_value(drop_in, Config, false)} of
        {[], Family, _} -> [Family];
        {_, _, true} -> [{tcp_module, weir_tcp}];
        {_, inet6, false} -> [{tcp_module, weir_tcp6}];
        {_, local, false} -> [{tcp_module, weir_local}]
    end.

path(Config, Name) ->
    list_to_binary(filename:join(proplists:get_value(directory, Config), Name)).

where(Config) ->
    case family(Config) of
        inet6 -> {0, 0, 0, 0, 0, 0, 0, 1};
        local -> {local, path(Config, "socket")}
    end.

listen(Config, Options) ->
    listen(Config, 0, [{ifaddr, where(Config)} | Options]).

listen(Config, Port, Options) ->
    keep(gen_tcp:listen(Port, backend(Config) ++ Options)).

connect(Config, Address, Port, Options) ->
    keep(gen_tcp:connect(Address, Port, backend(Config) ++ Options, ?PATIENCE)).

connect_to(Config, Listener, Options) ->
    Port =
        case family(Config) of
            inet6 -> element(2, inet:port(Listener));
            local -> 0
        end,
    connect(Config, where(Config), Port, Options).

pair(Config, ConnectOptions, ListenOptions) ->
    {ok, Listener} = listen(Config, ListenOptions),
    {ok, Connected} = connect_to(Config, Listener, ConnectOptions),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    {Connected, Accepted}.

passive_pair(Config) ->
    pair(Config, [binary, {active, false}], [binary, {active, false}]).

what(Fun) ->
    try Fun() of
        {ok, Socket} -> {ok, Socket};
        Other -> Other
    catch
        exit:_ -> exit;
        error:_ -> exit
    end.

%% Any family ---------------------------------------------------------------------

passive(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:send(Connected, <<"request">>),
    ?assertEqual({ok, <<"request">>}, gen_tcp:recv(Accepted, 0, ?PATIENCE)),
    ok = gen_tcp:send(Accepted, [<<"re">>, "sponse"]),
    ?assertEqual({ok, <<"res">>}, gen_tcp:recv(Connected, 3, ?PATIENCE)),
    ?assertEqual({ok, <<"ponse">>}, gen_tcp:recv(Connected, 5, ?PATIENCE)),
    ?assertEqual({error, timeout}, gen_tcp:recv(Connected, 1, 20)).

active(Config) ->
    {Connected, Accepted} = pair(Config, [{active, true}], [binary, {active, true}]),
    ok = gen_tcp:send(Connected, <<"one">>),
    ?assertEqual({tcp, Accepted, <<"one">>}, next_message()),
    ok = gen_tcp:send(Accepted, <<"two">>),
    ?assertEqual({tcp, Connected, "two"}, next_message()),
    ok = gen_tcp:close(Accepted),
    ?assertEqual({tcp_closed, Connected}, next_message()),
    assert_no_message().

active_once(Config) ->
    {Connected, Accepted} = pair(Config, [binary, {active, once}], [binary, {active, false}]),
    ok = gen_tcp:send(Accepted, <<"one">>),
    ?assertEqual({tcp, Connected, <<"one">>}, next_message()),
    ok = gen_tcp:send(Accepted, <<"two">>),
    assert_no_message(),
    ok = inet:setopts(Connected, [{active, once}]),
    ?assertEqual({tcp, Connected, <<"two">>}, next_message()),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(Connected, [active])).

active_n(Config) ->
    {Connected, Accepted} = pair(Config, [binary, {active, 2}], [binary, {active, false}]),
    [
        begin
            ok = gen_tcp:send(Accepted, Data),
            ?assertEqual({tcp, Connected, Data}, next_message())
        end
     || Data <- [<<"one">>, <<"two">>]
    ],
    ?assertEqual({tcp_passive, Connected}, next_message()),
    assert_no_message().

large(Config) ->
    {Connected, Accepted} = pair(Config, [binary, {active, true}], [binary, {active, false}]),
    Data = binary:copy(<<"0123456789">>, 300_000),
    Sender = async(fun() -> gen_tcp:send(Accepted, Data) end),
    ?assert(Data =:= collect_active(Connected, byte_size(Data))),
    ?assertEqual(ok, await(Sender)).

names(Config) ->
    {ok, Listener} = listen(Config, []),
    {ok, Connected} = connect_to(Config, Listener, []),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    {ok, Name} = inet:sockname(Listener),
    ?assertEqual({ok, Name}, inet:peername(Connected)),
    ?assertEqual({ok, Name}, inet:sockname(Accepted)),
    ?assertEqual({ok, [Name]}, inet:socknames(Accepted)),
    ?assertEqual(inet:sockname(Connected), inet:peername(Accepted)),
    ?assertEqual({error, enotconn}, inet:peername(Listener)),
    case family(Config) of
        inet6 ->
            ?assertMatch({{0, 0, 0, 0, 0, 0, 0, 1}, _}, Name),
            ?assertEqual({ok, element(2, Name)}, inet:port(Listener));
        local ->
            ?assertEqual(where(Config), Name),
            ?assertEqual({ok, {local, <<>>}}, inet:sockname(Connected)),
            ?assertEqual({ok, element(2, Name)}, inet:port(Listener))
    end,
    ok = gen_tcp:close(Connected),
    ?assertEqual({error, einval}, inet:sockname(Connected)),
    ?assertEqual({error, einval}, inet:peername(Connected)).

half_close(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:send(Connected, <<"the last">>),
    ok = gen_tcp:shutdown(Connected, write),
    ?assertEqual({<<"the last">>, closed}, recv_all(Accepted)).

%% A local socket that is closed with data unread is reset as well.
reset(Config) ->
    {Connected, Accepted} = pair(
        Config, [binary, {active, false}, {show_econnreset, true}], [binary, {active, false}]
    ),
    ok = gen_tcp:send(Connected, <<"not read">>),
    ?assertEqual({ok, <<"n">>}, gen_tcp:recv(Accepted, 1, ?PATIENCE)),
    ok = inet:setopts(Accepted, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Accepted),
    {error, Reason} = gen_tcp:recv(Connected, 0, ?PATIENCE),
    ?assert(lists:member(Reason, [closed, econnreset])).

accept_waits(Config) ->
    {ok, Listener} = listen(Config, []),
    Acceptor = async(fun() -> gen_tcp:accept(Listener, ?PATIENCE) end),
    {ok, Connected} = connect_to(Config, Listener, []),
    {ok, Accepted} = await(Acceptor),
    ?assertEqual(inet:sockname(Connected), inet:peername(Accepted)).

accept_times_out(Config) ->
    {ok, Listener} = listen(Config, []),
    ?assertEqual({error, timeout}, gen_tcp:accept(Listener, 0)),
    ?assertEqual({error, timeout}, gen_tcp:accept(Listener, 20)).

refused(Config) ->
    {ok, Listener} = listen(Config, []),
    Port =
        case family(Config) of
            inet6 -> element(2, inet:port(Listener));
            local -> 0
        end,
    ok = gen_tcp:close(Listener),
    %% The file of a path stays.
    ?assertEqual({error, econnrefused}, connect(Config, where(Config), Port, [])).

in_use(Config) ->
    {ok, Listener} = listen(Config, []),
    Port =
        case family(Config) of
            inet6 -> element(2, inet:port(Listener));
            local -> 0
        end,
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, [{ifaddr, where(Config)}])).

owner_dies(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    Owner = async(fun() ->
        receive
            never -> ok
        end
    end),
    ok = gen_tcp:controlling_process(Accepted, weir_test_peer:pid(Owner)),
    ok = weir_test_peer:kill(Owner),
    ?assertEqual({error, closed}, gen_tcp:recv(Connected, 0, ?PATIENCE)).

monitored(Config) ->
    {Connected, _Accepted} = passive_pair(Config),
    Reference = inet:monitor(Connected),
    ok = gen_tcp:close(Connected),
    ?assertMatch({'DOWN', Reference, _, Connected, _}, next_message()).

statistics(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:send(Connected, <<"12345">>),
    <<"12345">> = recv_exactly(Accepted, 5),
    ?assertEqual({ok, [{send_oct, 5}, {send_cnt, 1}]}, inet:getstat(Connected, [send_oct, send_cnt])),
    ?assertEqual({ok, [{recv_oct, 5}, {recv_max, 5}]}, inet:getstat(Accepted, [recv_oct, recv_max])).

options(Config) ->
    Options = [{mode, binary}, {active, 3}, {send_timeout, 77}, {exit_on_close, false}, {high_watermark, 100000}],
    {Connected, Accepted} = pair(Config, Options, Options),
    Names = [Name || {Name, _} <- Options],
    ?assertEqual({ok, Options}, inet:getopts(Connected, Names)),
    ?assertEqual({ok, Options}, inet:getopts(Accepted, Names)).

kernel_options(Config) ->
    {Connected, Accepted} = pair(Config, [{priority, 2}], [{priority, 4}]),
    ?assertEqual({ok, [{priority, 2}]}, inet:getopts(Connected, [priority])),
    ?assertEqual({ok, [{priority, 4}]}, inet:getopts(Accepted, [priority])),
    ok = inet:setopts(Accepted, [{priority, 1}]),
    ?assertEqual({ok, [{priority, 1}]}, inet:getopts(Accepted, [priority])).

closed_by_us(Config) ->
    {Connected, Accepted} = passive_pair(Config),
    ok = gen_tcp:close(Connected),
    ?assertEqual({error, closed}, gen_tcp:send(Connected, <<"late">>)),
    ?assertEqual({error, closed}, gen_tcp:recv(Connected, 0)),
    ?assertEqual({error, closed}, gen_tcp:recv(Accepted, 0, ?PATIENCE)).

%% IPv6 ---------------------------------------------------------------------------

%% The option `inet6' or the module says so, where no address does; the
%% drop-in is told by the family among its options.
unspecified(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true -> [{ip, {0, 0, 0, 0, 0, 0, 0, 0}}];
        false -> []
    end.

inet6_any_takes_ipv4(Config) ->
    {ok, Listener} = listen(Config, 0, [{active, false} | unspecified(Config)]),
    {ok, {{0, 0, 0, 0, 0, 0, 0, 0}, Port}} = inet:sockname(Listener),
    {ok, Peer} = keep(gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    {ok, {{127, 0, 0, 1}, PeerPort}} = inet:sockname(Peer),
    ?assertEqual({ok, {{0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1}, PeerPort}}, inet:peername(Accepted)).

inet6_only(Config) ->
    {ok, Listener} = listen(Config, 0, [{ipv6_v6only, true} | unspecified(Config)]),
    {ok, Port} = inet:port(Listener),
    ?assertEqual({ok, [{ipv6_v6only, true}]}, inet:getopts(Listener, [ipv6_v6only])),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    %% Too late.
    ?assertEqual({error, einval}, inet:setopts(Listener, [{ipv6_v6only, false}])),
    ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ipv6_v6only, yes}]) end)).

inet6_only_is_for_listen(Config) ->
    ?assertEqual(exit, what(fun() -> connect(Config, {0, 0, 0, 0, 0, 0, 0, 1}, 1, [{ipv6_v6only, true}]) end)).

inet6_loopback(Config) ->
    {Socket, _} = pair(Config, [], []),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}}, inet:sockname(Socket)),
    case proplists:get_value(drop_in, Config, false) of
        %% To a module of all families the loopback address is that of IPv4.
        true ->
            ok;
        false ->
            {ok, Listener} = listen(Config, 0, [{ip, loopback}]),
            ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}}, inet:sockname(Listener))
    end.

inet6_by_name(Config) ->
    {ok, Listener} = listen(Config, [{active, false}]),
    {ok, Port} = inet:port(Listener),
    case proplists:get_value(drop_in, Config, false) of
        true ->
            %% A name is one of IPv4, unless it is an address.
            {ok, Connected} = connect(Config, {0, 0, 0, 0, 0, 0, 0, 1}, Port, []),
            ?assertEqual({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}}, inet:peername(Connected));
        false ->
            {ok, Connected} = connect(Config, "::1", Port, []),
            ?assertEqual({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}}, inet:peername(Connected))
    end.

inet6_map(Config) ->
    {ok, Listener} = listen(Config, 0, [{ifaddr, #{family => inet6, addr => loopback}}]),
    {ok, {IP, Port}} = inet:sockname(Listener),
    ?assertEqual({0, 0, 0, 0, 0, 0, 0, 1}, IP),
    Address = #{family => inet6, addr => IP, port => Port},
    {ok, Connected} = keep(gen_tcp:connect(Address, backend(Config))),
    ?assertEqual({ok, {IP, Port}}, inet:peername(Connected)),
    {ok, Other} = keep(gen_tcp:connect(Address#{flowinfo => 0, scope_id => 0}, backend(Config), ?PATIENCE)),
    ?assertEqual({ok, {IP, Port}}, inet:peername(Other)).

inet6_map_with_scope(Config) ->
    LinkLocal = #{family => inet6, addr => {16#fe80, 0, 0, 0, 0, 0, 0, 1}},
    %% Without a scope it is no address; with that of the loopback device, one that nobody has.
    ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, LinkLocal}])),
    ?assertEqual({error, eaddrnotavail}, listen(Config, 0, [{ifaddr, LinkLocal#{scope_id => 1}}])),
    ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ifaddr, LinkLocal#{scope_id => foo}}]) end)).

inet6_map_of_ipv4(Config) ->
    Map = #{family => inet, addr => {127, 0, 0, 1}},
    case proplists:get_value(drop_in, Config, false) of
        true -> ?assertMatch({ok, _}, listen(Config, 0, [{ifaddr, Map}]));
        false -> ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, Map}]))
    end.

inet6_mapped(Config) ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    Mapped = {0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1},
    {ok, Connected} = connect(Config, Mapped, Port, []),
    ?assertEqual({ok, {Mapped, Port}}, inet:peername(Connected)),
    ok = gen_tcp:close(Listener).

inet6_bound_connect(Config) ->
    {ok, Listener} = listen(Config, []),
    {ok, Port} = inet:port(Listener),
    {ok, Connected} = connect(Config, where(Config), Port, [{ip, where(Config)}, {port, 0}]),
    {ok, {IP, OwnPort}} = inet:sockname(Connected),
    ?assertEqual(where(Config), IP),
    ?assert(OwnPort > 0).

inet6_address_of_ipv4(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true ->
            ?assertMatch({ok, _}, listen(Config, 0, [{ip, {127, 0, 0, 1}}]));
        false ->
            ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ip, {127, 0, 0, 1}}]) end)),
            ?assertEqual({error, eafnosupport}, connect(Config, {127, 0, 0, 1}, 1, []))
    end,
    ?assertEqual(exit, what(fun() -> connect(Config, where(Config), 1, [{ip, {127, 0, 0, 1}}]) end)).

inet6_traffic_class(Config) ->
    {Connected, Accepted} = pair(
        Config, [{tclass, 8}, {active, false}], [{tclass, 4}, {recvtclass, true}, {active, false}]
    ),
    ?assertEqual({ok, [{tclass, 8}, {recvtclass, false}]}, inet:getopts(Connected, [tclass, recvtclass])),
    ?assertEqual({ok, [{tclass, 4}, {recvtclass, true}]}, inet:getopts(Accepted, [tclass, recvtclass])),
    ok = gen_tcp:send(Connected, <<"x">>),
    _ = recv_exactly(Accepted, 1),
    ?assertMatch({ok, [{pktoptions, [{tclass, _}]}]}, inet:getopts(Accepted, [pktoptions])),
    ok = inet:setopts(Accepted, [{tclass, 12}]),
    ?assertEqual({ok, [{tclass, 12}]}, inet:getopts(Accepted, [tclass])).

%% Local sockets ------------------------------------------------------------------

local_path_as_string(Config) ->
    Path = path(Config, "string"),
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, binary_to_list(Path)}}]),
    ?assertEqual({ok, {local, Path}}, inet:sockname(Listener)),
    ?assertMatch({ok, _}, connect(Config, {local, binary_to_list(Path)}, 0, [])),
    ok = gen_tcp:close(Listener),
    %% Whoever made it removes it.
    ?assertMatch({ok, _}, file:read_link_info(Path)).

local_abstract(Config) ->
    Name = <<0, (path(Config, "abstract"))/binary>>,
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, Name}}]),
    ?assertEqual({ok, {local, Name}}, inet:sockname(Listener)),
    {ok, Connected} = connect(Config, {local, Name}, 0, []),
    ?assertEqual({ok, {local, Name}}, inet:peername(Connected)).

local_chosen_name(Config) ->
    [
        begin
            {ok, Listener} = listen(Config, 0, [{ifaddr, Address}]),
            {ok, {local, <<0, _, _/binary>>} = Name} = inet:sockname(Listener),
            ?assertMatch({ok, _}, connect(Config, Name, 0, []))
        end
     || Address <- [{local, <<>>}, {local, ""}]
    ],
    ok.

local_bound_connect(Config) ->
    {ok, Listener} = listen(Config, []),
    {ok, Connected} = connect_to(Config, Listener, [{ifaddr, {local, path(Config, "client")}}]),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
    ?assertEqual({ok, {local, path(Config, "client")}}, inet:peername(Accepted)),
    ?assertEqual({ok, {local, path(Config, "client")}}, inet:sockname(Connected)).

local_length(Config) ->
    Path = fun(Size) ->
        Short = path(Config, ""),
        <<Short/binary, $/, (binary:copy(<<"x">>, Size - byte_size(Short) - 1))/binary>>
    end,
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, Path(107)}}]),
    ?assertEqual({ok, {local, Path(107)}}, inet:sockname(Listener)),
    ?assertMatch({ok, _}, connect(Config, {local, Path(107)}, 0, [])),
    Abstract = fun(Size) -> <<0, (binary:copy(<<"x">>, Size - 1))/binary>> end,
    {ok, Named} = listen(Config, 0, [{ifaddr, {local, Abstract(108)}}]),
    ?assertEqual({ok, {local, Abstract(108)}}, inet:sockname(Named)),
    [
        begin
            ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, {local, TooLong}}])),
            ?assertEqual(exit, what(fun() -> connect(Config, {local, TooLong}, 0, []) end))
        end
     || TooLong <- [Path(108), Path(300), Abstract(109), Abstract(300), lists:duplicate(200, $x)]
    ],
    ok.

local_null_in_path(Config) ->
    Path = path(Config, "cut"),
    {ok, Listener} = listen(Config, 0, [{ifaddr, {local, <<Path/binary, 0, "rest">>}}]),
    ?assertEqual({ok, {local, Path}}, inet:sockname(Listener)).

local_unicode(Config) ->
    Path = binary_to_list(path(Config, "")) ++ [$/, 16#e5, 16#3b1],
    case file:native_name_encoding() of
        utf8 ->
            {ok, Listener} = listen(Config, 0, [{ifaddr, {local, Path}}]),
            ?assertEqual({ok, {local, unicode:characters_to_binary(Path)}}, inet:sockname(Listener));
        latin1 ->
            ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, {local, Path}}]))
    end.

local_port(Config) ->
    ?assertEqual(exit, what(fun() -> listen(Config, 5, [{ifaddr, where(Config)}]) end)),
    ?assertEqual(exit, what(fun() -> connect(Config, where(Config), 5, []) end)).

local_not_bound(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true ->
            ok;
        false ->
            ?assertEqual({error, einval}, listen(Config, 0, [])),
            ?assertEqual({error, einval}, listen(Config, 0, [{ip, any}]))
    end.

local_other_address(Config) ->
    case proplists:get_value(drop_in, Config, false) of
        true -> ok;
        false -> ?assertEqual(exit, what(fun() -> listen(Config, 0, [{ip, {127, 0, 0, 1}}]) end))
    end,
    {ok, Listener} = listen(Config, []),
    ?assertEqual(exit, what(fun() -> connect_to(Config, Listener, [{ip, {127, 0, 0, 1}}]) end)).

local_no_text(Config) ->
    [
        begin
            ?assertEqual({error, einval}, listen(Config, 0, [{ifaddr, {local, Wrong}}])),
            ?assertEqual(exit, what(fun() -> connect(Config, {local, Wrong}, 0, []) end))
        end
     || Wrong <- [foo, 17, [foo], [-1]]
    ],
    ok.

local_not_there(Config) ->
    ?assertEqual({error, enoent}, connect(Config, {local, path(Config, "nothing")}, 0, [])),
    ok = file:write_file(path(Config, "file"), <<>>),
    ?assertEqual({error, econnrefused}, connect(Config, {local, path(Config, "file")}, 0, [])),
    ?assertEqual({error, enoent}, listen(Config, 0, [{ifaddr, {local, path(Config, "nowhere/socket")}}])).

local_options_of_tcp(Config) ->
    {Connected, _} = pair(Config, [{nodelay, true}], [{nodelay, true}]),
    ?assertEqual({ok, [{active, true}]}, inet:getopts(Connected, [nodelay, tos, ttl, active, tclass])),
    ?assertEqual({error, einval}, inet:getopts(Connected, [pktoptions])),
    ?assertEqual(ok, inet:setopts(Connected, [{nodelay, true}])),
    ?assertEqual({error, einval}, inet:setopts(Connected, [{tos, 1}])),
    ?assertEqual({error, einval}, listen(Config, [{tos, 1}])).

%% Stock takes it for connected, and is wrong about it.
local_full_backlog(Config) ->
    case proplists:get_value(backend, Config) of
        [] ->
            {skip, "a deliberate difference"};
        _ ->
            {ok, Listener} = listen(Config, [{backlog, 0}]),
            {ok, _} = connect_to(Config, Listener, []),
            ?assertEqual({error, eagain}, connect_to(Config, Listener, []))
    end.

%% Weir as the module of a virtual machine --------------------------------------

whole_virtual_machine(_Config) ->
    inet_tcp = inet_db:tcp_module(),
    ok = inet_db:set_tcp_module(weir_tcp),
    try
        [
            begin
                {ok, Listener} = keep(gen_tcp:listen(0, [{ip, IP}, binary, {active, false}])),
                {ok, Port} = inet:port(Listener),
                {ok, Connected} = keep(gen_tcp:connect(IP, Port, [binary, {active, false}])),
                {ok, Mapped} = keep(gen_tcp:connect(#{family => Family, addr => IP, port => Port}, [])),
                {ok, Accepted} = keep(gen_tcp:accept(Listener, ?PATIENCE)),
                ok = gen_tcp:send(Connected, <<"through">>),
                ?assertEqual({ok, <<"through">>}, gen_tcp:recv(Accepted, 7, ?PATIENCE)),
                ?assertEqual({ok, {IP, Port}}, inet:peername(Mapped)),
                [?assertMatch({'$inet', weir_tcp, _}, Socket) || Socket <- [Listener, Connected, Mapped, Accepted]]
            end
         || {Family, IP} <- [{inet, {127, 0, 0, 1}}, {inet6, {0, 0, 0, 0, 0, 0, 0, 1}}]
        ]
    after
        inet_db:set_tcp_module(inet_tcp)
    end.

family_among_the_options(_Config) ->
    {ok, Any} = keep(weir_tcp:listen(0, [inet6])),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 0}, _}}, inet:sockname(Any)),
    {ok, Loopback} = keep(weir_tcp:listen(0, [inet6, {ip, loopback}])),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, _}}, inet:sockname(Loopback)),
    ?assertExit(badarg, weir_tcp:listen(0, [inet, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}])),
    ?assertEqual({error, einval}, weir_tcp:listen(0, [local])),
    ?assertEqual({ok, [{local, "path"}]}, weir_tcp:getaddrs({local, "path"})),
    ?assertEqual({ok, {0, 0, 0, 0, 0, 0, 0, 1}}, weir_tcp:getaddr({0, 0, 0, 0, 0, 0, 0, 1})),
    ?assertEqual({ok, {127, 0, 0, 1}}, weir_tcp:getaddr("localhost")).
