%% Directories with files for the tests, and a listener that serves them.
-module(weir_http_site).

-include_lib("common_test/include/ct.hrl").
-include_lib("kernel/include/file.hrl").

-export([directory/2, write/3, start/2]).

%% Sun, 06 Nov 1994 08:49:37 GMT.
-define(MODIFIED, 784111777).

%% Creates a directory for a test case.
directory(Case, Config) ->
    Directory = filename:join([?config(priv_dir, Config), Case, "www"]),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    [{www, Directory} | Config].

write(Config, Name, Bytes) ->
    Path = filename:join(?config(www, Config), Name),
    ok = filelib:ensure_dir(Path),
    ok = file:write_file(Path, Bytes),
    ok = file:write_file_info(Path, #file_info{mtime = ?MODIFIED}, [{time, posix}]),
    Path.

start(Listener, Routes) ->
    {ok, _} = weir_http:start_listener(Listener, weir_http_client:options(#{ip => {127, 0, 0, 1}}), Routes),
    weir:get_port(Listener).
