%% @doc The listener of the HTTP examples.
-module(weir_example_http_server).

-export([start/2]).

%% @doc Starts a listener with these routes and without a limit of connections. Options: `port', and of `listen' the
%% address and the send buffer of each connection.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}, [weir_http_routes:route()]) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options, Routes) ->
    Listen = maps:get(listen, Options, []),
    Ip = proplists:get_value(ip, Listen, any),
    Name = {?MODULE, make_ref()},
    {ok, _} = application:ensure_all_started(weir_http),
    Listener = #{
        port => maps:get(port, Options, 0),
        ip => Ip,
        max_connections => infinity,
        socket_opts => [{sndbuf, Bytes} || {sndbuf, Bytes} <- Listen]
    },
    case weir_http:start_listener(Name, Listener, Routes) of
        {ok, _} -> {ok, #{port => weir:get_port(Name), stop => fun() -> weir_http:stop_listener(Name) end}};
        {error, _} = Error -> Error
    end.
