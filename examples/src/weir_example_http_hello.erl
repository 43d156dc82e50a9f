%% @doc Answers requests for `/' with `Hello, world!': `weir_http' with a handler that runs in the reactor.
-module(weir_example_http_hello).
-behaviour(weir_http_direct).

-export([start/1]).

-export([handle/2]).

%% @doc Starts the server. `port' is the port to listen on (default 0: a free one); of `listen' only the address is
%% used.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) -> weir_example_http_server:start(Options, [{"/", ?MODULE, <<"Hello, world!\n">>}]).

-spec handle(weir_http_request:request(), binary()) -> weir_http_direct:result().
handle(_Request, Greeting) -> {reply, 200, [{<<"content-type">>, <<"text/plain">>}], Greeting}.
