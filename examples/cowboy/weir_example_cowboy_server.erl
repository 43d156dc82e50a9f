%% @doc The listener of the examples on Cowboy, with one handler for every path. This module does not know Weir:
%% `{tcp_module, weir_tcp}' in `listen' is passed to ranch as a socket option.
-module(weir_example_cowboy_server).

-export([start/2]).

%% @doc Starts Cowboy. `port' is the port to listen on (default 0: a free one), `listen' are its socket options.
%% Errors are those of `cowboy:start_clear/3', or `{not_installed, cowboy}'.
-spec start(Options, Handler :: module()) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}
when
    Options :: #{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}.
start(Options, Handler) ->
    case code:where_is_file("cowboy.app") of
        non_existing ->
            {error, {not_installed, cowboy}};
        _ ->
            {ok, _} = application:ensure_all_started(cowboy),
            Sockets = maps:get(listen, Options, []) ++ [{port, maps:get(port, Options, 0)}],
            Dispatch = cowboy_router:compile([{'_', [{'_', Handler, []}]}]),
            %% By default Cowboy closes a connection after 1,000 requests; a load generator sends more.
            Protocol = #{env => #{dispatch => Dispatch}, max_keepalive => infinity},
            case cowboy:start_clear(Handler, #{socket_opts => Sockets, max_connections => infinity}, Protocol) of
                {ok, _} -> {ok, #{port => ranch:get_port(Handler), stop => fun() -> cowboy:stop_listener(Handler) end}};
                {error, _} = Error -> Error
            end
    end.
