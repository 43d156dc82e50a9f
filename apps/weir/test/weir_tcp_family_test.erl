%% Sockets of the family under test, IPv6 or local.
-module(weir_tcp_family_test).

-export([groups/1]).
-export([init_group/2]).
-export([init_case/1]).
-export([end_case/1]).
-export([family/1]).
-export([backend/1]).
-export([path/2]).
-export([where/1]).
-export([listen/2]).
-export([listen/3]).
-export([connect/4]).
-export([port/2]).
-export([connect_to/3]).
-export([pair/3]).
-export([passive_pair/1]).
-export([what/1]).

-import(weir_test_wait, [patience/0]).
-import(weir_test_peer, [keep/1]).


%% The same families on each of the three backends.
groups(Families) ->
    [{Backend, [], [{group, Family} || {Family, _} <- Families]} || Backend <- [inet, weir, drop_in]] ++
        [{Family, [], Cases} || {Family, Cases} <- Families].

init_group(drop_in, Config) ->
    [{drop_in, true} | weir_test_peer:init_group(weir, Config)];
init_group(Family, Config) when Family =:= inet6; Family =:= local ->
    case Family =:= local orelse gen_tcp:listen(0, [inet6, {ip, loopback}]) of
        true ->
            [{family, Family} | Config];
        {ok, Listener} ->
            ok = gen_tcp:close(Listener),
            [{family, Family} | Config];
        {error, Reason} ->
            {skip, {"no IPv6 here", Reason}}
    end;
init_group(Backend, Config) ->
    weir_test_peer:init_group(Backend, Config).

init_case(Config) ->
    [{directory, directory()} | weir_test_peer:init_case(Config)].

end_case(Config) ->
    Result = weir_test_peer:end_case(Config),
    Directory = proplists:get_value(directory, Config),
    {ok, Names} = file:list_dir(Directory),
    [ok = file:delete(filename:join(Directory, Name)) || Name <- Names],
    ok = file:del_dir(Directory),
    Result.

%% The paths of a test run are too long for a socket.
directory() ->
    Directory = "/tmp/weir_" ++ os:getpid() ++ "_" ++ integer_to_list(erlang:unique_integer([positive])),
    ok = file:make_dir(Directory),
    Directory.

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
    keep(gen_tcp:connect(Address, Port, backend(Config) ++ Options, patience())).

port(Config, Listener) ->
    case family(Config) of
        inet6 -> element(2, inet:port(Listener));
        local -> 0
    end.

connect_to(Config, Listener, Options) ->
    connect(Config, where(Config), port(Config, Listener), Options).

pair(Config, ConnectOptions, ListenOptions) ->
    {ok, Listener} = listen(Config, ListenOptions),
    {ok, Connected} = connect_to(Config, Listener, ConnectOptions),
    {ok, Accepted} = keep(gen_tcp:accept(Listener, patience())),
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
