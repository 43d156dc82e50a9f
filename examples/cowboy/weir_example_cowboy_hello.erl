%% @doc Cowboy's hello world, for every path. Nothing here knows of Weir: `{tcp_module, weir_tcp}' comes as one of
%% `listen' and goes to ranch among its socket options.
%%
%% Compiled wherever Weir is, run where Cowboy is installed.
-module(weir_example_cowboy_hello).

-export([start/1]).
-export([init/2]).

%% @doc Starts the server. `port' is the port to listen on, 0 (the default) takes a free one; `listen' are socket
%% options for it. Errors are those of `cowboy:start_clear/3', or `{not_installed, cowboy}'.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}.
start(Options) ->
    case code:where_is_file("cowboy.app") of
        non_existing ->
            {error, {not_installed, cowboy}};
        _ ->
            {ok, _} = application:ensure_all_started(cowboy),
            Sockets = maps:get(listen, Options, []) ++ [{port, maps:get(port, Options, 0)}],
            Dispatch = cowboy_router:compile([{'_', [{'_', ?MODULE, []}]}]),
            %% A client under load stays longer than the thousand requests after which Cowboy would part with it.
            Protocol = #{env => #{dispatch => Dispatch}, max_keepalive => infinity},
            case cowboy:start_clear(?MODULE, #{socket_opts => Sockets, max_connections => infinity}, Protocol) of
                {ok, _} -> {ok, #{port => ranch:get_port(?MODULE), stop => fun() -> cowboy:stop_listener(?MODULE) end}};
                {error, _} = Error -> Error
            end
    end.

%% @private
-spec init(Request, State) -> {ok, Request, State} when Request :: map(), State :: [].
init(Request, State) ->
    {ok, cowboy_req:reply(200, #{<<"content-type">> => <<"text/plain">>}, <<"Hello world!">>, Request), State}.
