%% @doc Answers requests for `/' with `Hello, world!', as {@link weir_example_http_hello} does, but each in a process
%% of its own: for handlers that block.
-module(weir_example_http_process).
-behaviour(weir_http_process).

-export([start/1]).

-export([serve/2]).

%% @doc Starts the server. `port' is the port to listen on (default 0: a free one); of `listen' only the address is
%% used.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) -> weir_example_http_server:start(Options, [{"/", ?MODULE, <<"Hello, world!\n">>}]).

-spec serve(weir_http_request:request(), binary()) -> weir_http_process:result().
serve(_Request, Greeting) -> {reply, 200, [{<<"content-type">>, <<"text/plain">>}], Greeting}.
