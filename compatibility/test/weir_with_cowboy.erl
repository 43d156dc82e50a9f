%% Cowboy passes `socket_opts' to ranch, and ranch to gen_tcp.
-module(weir_with_cowboy).
-behaviour(weir_with_server).

-export([needs/0, start/2, stop/0, path/1, pipelines/0]).
-export([init/2]).

needs() -> [ranch, cow_http, cowboy].

start(Backend, Directory) ->
    {ok, _} = application:ensure_all_started(cowboy),
    Routes = cowboy_router:compile([{'_', [
        {"/hello", ?MODULE, hello},
        {"/sum", ?MODULE, sum},
        {"/[...]", cowboy_static, {dir, Directory}}
    ]}]),
    Sockets = [{ip, {127, 0, 0, 1}}, {port, 0}] ++ [{tcp_module, weir_tcp} || Backend =:= weir],
    {ok, _} = cowboy:start_clear(?MODULE, #{socket_opts => Sockets}, #{
        env => #{dispatch => Routes}, request_timeout => 60_000
    }),
    ranch:get_port(?MODULE).

stop() ->
    cowboy:stop_listener(?MODULE).

path(hello) -> "/hello";
path(sum) -> "/sum";
path({file, Name}) -> "/" ++ Name.

pipelines() -> true.

init(Request, hello) ->
    {ok, reply(<<"hello world">>, Request), hello};
init(Request, sum) ->
    {Sum, Read} = sum(Request, crypto:hash_init(sha256)),
    {ok, reply(Sum, Read), sum}.

sum(Request, Hash) ->
    case cowboy_req:read_body(Request) of
        {ok, Data, Read} -> {base64:encode(crypto:hash_final(crypto:hash_update(Hash, Data))), Read};
        {more, Data, Read} -> sum(Read, crypto:hash_update(Hash, Data))
    end.

reply(Body, Request) ->
    cowboy_req:reply(200, #{<<"content-type">> => <<"text/plain">>}, Body, Request).
