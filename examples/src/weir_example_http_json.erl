%% @doc Decodes a POST of JSON and answers with the same value encoded again: `weir_http' with a handler that runs in
%% the reactor.
-module(weir_example_http_json).
-behaviour(weir_http_direct).

-export([start/1]).

-export([handle/2]).

%% @doc Starts the server. `port' is the port to listen on (default 0: a free one); of `listen' only the address is
%% used.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    weir_example_http_server:start(Options, [{"/", ?MODULE, none, #{methods => [<<"POST">>], max_body => 65536}}]).

-spec handle(weir_http_request:request(), none) -> weir_http_direct:result().
handle(Request, none) ->
    case weir_example_json:decode(weir_http_request:body(Request)) of
        {ok, Value} -> {reply, 200, [{<<"content-type">>, <<"application/json">>}], weir_example_json:encode(Value)};
        error -> {reply, 400, [{<<"content-type">>, <<"text/plain">>}], <<"the body is not JSON\n">>}
    end.
