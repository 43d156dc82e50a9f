%% yaws hands `listen_opts' to gen_tcp.
-module(weir_with_yaws).
-behaviour(weir_with_server).

-export([needs/0, start/2, stop/0, path/1]).
-export([out/1]).

needs() -> [yaws].

start(Backend, Directory) ->
    Log = filename:join(Directory, "log"),
    ok = filelib:ensure_path(Log),
    ok = yaws:start_embedded(Directory, [
        {servername, "localhost"},
        {listen, {127, 0, 0, 1}},
        {port, 0},
        {appmods, [{"/hello", ?MODULE}, {"/sum", ?MODULE}]},
        {partial_post_size, nolimit},
        {soptions, [{listen_opts, [{tcp_module, weir_tcp} || Backend =:= weir]}]}
    ], [{logdir, Log}]),
    {ok, _, [[Server]]} = yaws_api:getconf(),
    yaws:sconf_port(Server).

stop() ->
    yaws:stop().

path(hello) -> "/hello";
path(sum) -> "/sum";
path({file, Name}) -> "/" ++ Name.

out(Argument) ->
    {content, "text/plain", answer(yaws_api:arg_server_path(Argument), yaws_api:arg_clidata(Argument))}.

answer("/hello", _) -> <<"hello world">>;
answer("/sum", Body) -> base64:encode(crypto:hash(sha256, Body)).
