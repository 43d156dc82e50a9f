%% @doc The same service as {@link weir_example_push_processes} with `weir_pubsub', which adds event streams and
%% WebSockets to long polls.
-module(weir_example_push).

-export([start/1]).

%% Messages that a channel keeps; the same number as there.
-define(KEPT, 1000).

%% @doc Starts the server. `port' is the port to listen on (default 0: a free one); of `listen' only the address is
%% used.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    case application:ensure_all_started(weir_pubsub) of
        {ok, _} ->
            ok = weir_pubsub:configure(#{channels => [{<<"*">>, #{max_messages => ?KEPT}}]}),
            weir_example_http_server:start(Options, weir_pubsub_http:routes(#{}));
        {error, _} = Error ->
            Error
    end.
