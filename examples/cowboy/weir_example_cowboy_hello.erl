%% @doc Cowboy's hello world, for every path.
%%
%% Compiled everywhere; runs only if Cowboy is installed.
-module(weir_example_cowboy_hello).

-export([start/1]).
-export([init/2]).

%% @doc Starts the server: see {@link weir_example_cowboy_server:start/2}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}.
start(Options) -> weir_example_cowboy_server:start(Options, ?MODULE).

%% @private
-spec init(Request, State) -> {ok, Request, State} when Request :: map(), State :: [].
init(Request, State) ->
    {ok, cowboy_req:reply(200, #{<<"content-type">> => <<"text/plain">>}, <<"Hello world!">>, Request), State}.
