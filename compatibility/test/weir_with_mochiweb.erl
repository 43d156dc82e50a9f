%% mochiweb passes no socket options on and always names a family, so it needs `weir_vm:use_for_families/0'.
-module(weir_with_mochiweb).
-behaviour(weir_with_server).

-export([needs/0, start/2, stop/0, path/1, pipelines/0]).
-export([serve/2]).

needs() -> [mochiweb].

start(Backend, Directory) ->
    {ok, _} = application:ensure_all_started(mochiweb),
    [ok = weir_vm:use_for_families() || Backend =:= weir],
    {ok, _} = mochiweb_http:start([
        {name, ?MODULE}, {ip, "127.0.0.1"}, {port, 0}, {loop, {?MODULE, serve, [Directory]}}
    ]),
    mochiweb_socket_server:get(?MODULE, port).

stop() ->
    mochiweb_http:stop(?MODULE).

path(hello) -> "/hello";
path(sum) -> "/sum";
path({file, Name}) -> "/" ++ Name.

pipelines() -> true.

serve(Request, Directory) ->
    case mochiweb_request:get(path, Request) of
        "/hello" -> mochiweb_request:ok({"text/plain", <<"hello world">>}, Request);
        "/sum" -> mochiweb_request:ok({"text/plain", sum(Request)}, Request);
        "/" ++ Name -> mochiweb_request:serve_file(Name, Directory, Request)
    end.

sum(Request) ->
    Hash = fun({_, Chunk}, Context) -> crypto:hash_update(Context, Chunk) end,
    base64:encode(crypto:hash_final(mochiweb_request:stream_body(65536, Hash, crypto:hash_init(sha256), Request))).
