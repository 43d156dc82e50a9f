%% @doc The listener of the examples on Weir's listeners, with the options of the other examples.
-module(weir_example_listeners).

-export([start/2]).

%% @doc Starts a listener. `port' is the port to listen on (default 0: a free one). Of `listen', the address (`{ip,
%% Address}') and socket options are used; the backend is ignored, because a listener always uses Weir. `placement',
%% `affinity' and `measure' are options of the listener. It runs until `stop' is called, which also closes the
%% connections.
-spec start(Options, weir_listener:handler()) -> {ok, weir_example_acceptors:server()} | {error, term()} when
    Options :: #{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}.
start(Options, Handler) ->
    Listen = maps:get(listen, Options, []),
    Sockets = [Option || Option <- Listen, not is_ours(Option)],
    Address = maps:from_list([{ip, IP} || {ip, IP} <- Listen]),
    Known = maps:with([port, placement, affinity, measure], Options),
    Name = {?MODULE, make_ref()},
    case weir:start_listener(Name, maps:merge(Known, Address#{socket_opts => Sockets}), Handler, []) of
        {ok, _Pid} -> {ok, #{port => weir:get_port(Name), stop => fun() -> weir:stop_listener(Name) end}};
        {error, _} = Error -> Error
    end.

is_ours({Name, _}) -> lists:member(Name, [ip, ifaddr, tcp_module, inet_backend]);
is_ours(_) -> false.
