%% @doc The listener of the examples on ranch. This module does not know Weir: `{tcp_module, weir_tcp}' in `listen' is
%% passed to ranch as a socket option.
-module(weir_example_ranch_servers).

-export([start/4]).

%% @doc Starts ranch with `Acceptors' acceptors and a process of `Protocol' for each connection. `port' is the port to
%% listen on (default 0: a free one), `listen' are its socket options. Errors are those of `ranch:start_listener/5',
%% or `{not_installed, ranch}'.
-spec start(Options, Acceptors :: pos_integer(), Protocol :: module(), term()) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}
when
    Options :: #{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}.
start(Options, Acceptors, Protocol, Settings) ->
    case code:where_is_file("ranch.app") of
        non_existing ->
            {error, {not_installed, ranch}};
        _ ->
            {ok, _} = application:ensure_all_started(ranch),
            Sockets = maps:get(listen, Options, []) ++ [{port, maps:get(port, Options, 0)}],
            Transport = #{socket_opts => Sockets, num_acceptors => Acceptors, max_connections => infinity},
            case ranch:start_listener(Protocol, ranch_tcp, Transport, Protocol, Settings) of
                {ok, _} ->
                    {ok, #{port => ranch:get_port(Protocol), stop => fun() -> ranch:stop_listener(Protocol) end}};
                {error, _} = Error ->
                    Error
            end
    end.
