%% @doc A rule of weir_proxy that authenticates with a line `NAME PASSWORD'. The bytes after the line go to the
%% backend of that name.
-module(weir_example_route_line).
-behaviour(weir_proxy_route).

-export([start/1]).
-export([route/3]).

%% Maximum bytes of a line.
-define(LONGEST, 256).

%% @doc Starts a proxy with this rule. `passwords' maps names to passwords; `servers' maps names to addresses.
-spec start(#{
    name := term(), listen := iodata(), passwords := #{binary() => binary()}, servers := #{binary() => [iodata()]}
}) ->
    ok | {error, term()}.
start(#{name := Name, listen := Listen, passwords := Passwords, servers := Servers}) ->
    weir_proxy:start(Name, #{
        frontends => #{line => #{listen => Listen, rules => [#{module => ?MODULE, args => Passwords}]}},
        backends => maps:map(fun(_, Addresses) -> #{servers => Addresses} end, Servers)
    }).

%% @private
-spec route(weir_tcp:socket(), weir_proxy_route:facts(), #{binary() => binary()}) -> weir_proxy_route:result().
route(Socket, _Facts, Passwords) ->
    %% Reads one line and no byte more: the rest is for the server.
    ok = inet:setopts(Socket, [{packet, line}, {packet_size, ?LONGEST}]),
    case gen_tcp:recv(Socket, 0) of
        {ok, Line} ->
            ok = inet:setopts(Socket, [{packet, raw}]),
            answer(Socket, binary:split(string:trim(Line), <<" ">>), Passwords);
        {error, _} ->
            reject
    end.

answer(Socket, [Name, Password], Passwords) when is_map_key(Name, Passwords) ->
    case is_same(Password, maps:get(Name, Passwords)) of
        true ->
            ok = gen_tcp:send(Socket, <<"welcome\n">>),
            {backend, Name};
        false ->
            refuse(Socket)
    end;
answer(Socket, _, _Passwords) ->
    refuse(Socket).

refuse(Socket) ->
    _ = gen_tcp:send(Socket, <<"no\n">>),
    reject.

%% Compares hashes, so that the time reveals nothing about the password.
is_same(Given, Known) -> crypto:hash(sha256, Given) =:= crypto:hash(sha256, Known).
