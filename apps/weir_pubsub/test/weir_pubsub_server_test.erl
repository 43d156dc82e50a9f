%% A push server with a configuration file, and its clients.
-module(weir_pubsub_server_test).

-export([file/2]).
-export([settings/2]).
-export([start/2]).
-export([port/1]).
-export([status/1]).
-export([publish/3]).
-export([get/3]).

-import(weir_pubsub_nchan, [request/4, request/5]).

file(Config, Name) -> filename:join(proplists:get_value(directory, Config), Name).

settings(Config, Text) ->
    ok = file:write_file(file(Config, "push.toml"), Text),
    {ok, Settings} = weir_pubsub_file:read(file(Config, "push.toml")),
    Settings.

start(Config, Text) ->
    {ok, Server} = weir_pubsub_server:start(settings(Config, Text)),
    Server.

port(Server) -> hd(weir_pubsub_server:ports(Server)).

status({Status, _, _}) -> Status.

publish(Port, Channel, Fields) -> status(request(Port, <<"POST">>, ["/pub/", Channel], Fields, <<"x">>)).

get(Port, Path, Fields) -> status(request(Port, <<"GET">>, Path, Fields)).
