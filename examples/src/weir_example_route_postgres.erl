%% @doc A rule of weir_proxy that routes PostgreSQL clients by database. It reads the startup message itself. Clients
%% that ask for TLS first, as psql does, are told that there is none, and are then routed as well.
-module(weir_example_route_postgres).
-behaviour(weir_proxy_route).

-export([start/1]).
-export([route/3]).

-define(SSL_REQUEST, 80877103).
-define(GSS_REQUEST, 80877104).
-define(CANCEL_REQUEST, 80877102).

%% Maximum bytes of a startup message, as in PostgreSQL.
-define(LONGEST, 10_000).

%% @doc Starts a proxy. `databases' maps each database to its server.
-spec start(#{name := term(), listen := iodata(), databases := #{binary() => iodata()}}) -> ok | {error, term()}.
start(#{name := Name, listen := Listen, databases := Databases}) ->
    weir_proxy:start(Name, #{
        frontends => #{postgres => #{listen => Listen, rules => [#{module => ?MODULE, args => maps:keys(Databases)}]}},
        backends => maps:map(fun(_, Address) -> #{servers => [Address], health => #{kind => postgres}} end, Databases)
    }).

%% @private
-spec route(weir_tcp:socket(), weir_proxy_route:facts(), [binary()]) -> weir_proxy_route:result().
route(Socket, Facts, Databases) ->
    case gen_tcp:recv(Socket, 8) of
        {ok, <<8:32, Code:32>>} when Code =:= ?SSL_REQUEST; Code =:= ?GSS_REQUEST ->
            ok = gen_tcp:send(Socket, <<"N">>),
            route(Socket, Facts, Databases);
        %% A cancel request names no database, and its key is known only to one server: it would have to go to all.
        {ok, <<16:32, ?CANCEL_REQUEST:32>>} ->
            reject;
        {ok, <<Size:32, 3:16, _Minor:16>> = Front} when Size > 8, Size =< ?LONGEST ->
            startup(Socket, Front, gen_tcp:recv(Socket, Size - 8), Databases);
        _ ->
            reject
    end.

startup(Socket, Front, {ok, Pairs}, Databases) ->
    Database = database(binary:split(Pairs, <<0>>, [global]), #{}),
    case lists:member(Database, Databases) of
        true ->
            {backend, Database, #{prefix => [Front, Pairs]}};
        false ->
            _ = gen_tcp:send(Socket, refusal(<<"3D000">>, [<<"no server has the database \"">>, Database, <<"\"">>])),
            reject
    end;
startup(_Socket, _Front, {error, _}, _Databases) ->
    reject.

database([Name, Value | More], Seen) when Name =/= <<>> -> database(More, Seen#{Name => Value});
database(_End, #{<<"database">> := Database}) -> Database;
%% Without a database, it is named like the user.
database(_End, #{<<"user">> := User}) -> User;
database(_End, #{}) -> <<>>.

%% An error in PostgreSQL's format.
refusal(Code, Message) ->
    Fields = iolist_to_binary([<<"SFATAL", 0, "C">>, Code, <<0, "M">>, Message, <<0, 0>>]),
    [<<"E", (byte_size(Fields) + 4):32>>, Fields].
