%% @doc What the examples on Cowboy share: a listener with one handler for every path. Nothing here knows of Weir:
%% `{tcp_module, weir_tcp}' comes as one of `listen' and goes to ranch among its socket options.
-module(weir_example_cowboy_server).

-export([start/2]).

%% @doc Starts Cowboy. `port' is the port to listen on, 0 (the default) takes a free one; `listen' are socket options for
%% it. Errors are those of `cowboy:start_clear/3', or `{not_installed, cowboy}'.
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
            %% A client under load stays longer than the thousand requests after which Cowboy would part with it.
            Protocol = #{env => #{dispatch => Dispatch}, max_keepalive => infinity},
            case cowboy:start_clear(Handler, #{socket_opts => Sockets, max_connections => infinity}, Protocol) of
                {ok, _} -> {ok, #{port => ranch:get_port(Handler), stop => fun() -> cowboy:stop_listener(Handler) end}};
                {error, _} = Error -> Error
            end
    end.
