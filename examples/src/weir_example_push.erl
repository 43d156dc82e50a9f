%% @doc The same service as {@link weir_example_push_processes} by `weir_pubsub', with event streams and WebSockets beside long polls.
-module(weir_example_push).

-export([start/1]).

%% Messages that a channel keeps, as there.
-define(KEPT, 1000).

%% @doc Starts the server. `port' is where it listens (0, the default, takes a free one), and of `listen' the address is taken.
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
