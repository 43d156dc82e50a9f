%% The httpd of inets passes `{ip_comm, Options}' to gen_tcp after a family, which takes precedence before OTP 29.
-module(weir_with_httpd).
-behaviour(weir_with_server).

-export([needs/0, start/2, stop/0, path/1, pipelines/0]).
-export([hello/3, sum/3]).

needs() -> [httpd].

start(Backend, Directory) ->
    {ok, _} = application:ensure_all_started(inets),
    [ok = weir_vm:use_for_families() || Backend =:= weir, erlang:system_info(otp_release) < "29"],
    {ok, _} = inets:start(httpd, [
        {socket_type, {ip_comm, [{tcp_module, weir_tcp} || Backend =:= weir]}},
        {bind_address, {127, 0, 0, 1}},
        {port, 0},
        {server_name, "localhost"},
        {server_root, Directory},
        {document_root, Directory},
        {modules, [mod_esi, mod_get, mod_head]},
        {erl_script_alias, {"/esi", [?MODULE]}}
    ]),
    [Server] = services(),
    proplists:get_value(port, httpd:info(Server)).

stop() ->
    [ok = inets:stop(httpd, Server) || Server <- services()],
    ok.

services() ->
    [Pid || {httpd, Pid} <- inets:services()].

path(hello) -> "/esi/weir_with_httpd:hello";
path(sum) -> "/esi/weir_with_httpd:sum";
path({file, Name}) -> "/" ++ Name.

pipelines() -> false.

hello(Session, _Environment, _Input) ->
    deliver(Session, "hello world").

sum(Session, _Environment, Body) ->
    deliver(Session, base64:encode_to_string(crypto:hash(sha256, Body))).

deliver(Session, Body) ->
    mod_esi:deliver(Session, ["Content-Type: text/plain\r\n\r\n", Body]).
