%% yaws passes `listen_opts' to gen_tcp.
-module(weir_with_yaws).
-behaviour(weir_with_server).

-export([needs/0, start/2, stop/0, path/1, pipelines/0]).
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
        {soptions, [{listen_opts, [{tcp_module, weir_tcp} || Backend =:= weir]}]}
    ], [{logdir, Log}]),
    {ok, _, [[Server]]} = yaws_api:getconf(),
    yaws:sconf_port(Server).

stop() ->
    yaws:stop().

path(hello) -> "/hello";
path(sum) -> "/sum";
path({file, Name}) -> "/" ++ Name.

pipelines() -> true.

out(Argument) ->
    case {yaws_api:arg_server_path(Argument), yaws_api:arg_clidata(Argument)} of
        {"/hello", _} -> text(<<"hello world">>);
        {"/sum", {partial, Part}} -> {get_more, undefined, crypto:hash_update(hash(Argument), Part)};
        {"/sum", Last} -> text(base64:encode(crypto:hash_final(crypto:hash_update(hash(Argument), Last))))
    end.

hash(Argument) ->
    case yaws_api:arg_state(Argument) of
        undefined -> crypto:hash_init(sha256);
        Hash -> Hash
    end.

text(Text) ->
    {content, "text/plain", Text}.
