%% @doc Connects each client to a backend and copies bytes in both directions until either side closes.
-module(weir_example_proxy).

-export([start/1]).

-define(CONNECT_TIMEOUT, 5000).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the proxy. `to' is the backend. `connect' are options for connections to it that come before our own,
%% for example its socket backend. `active' is the active mode of both connections (default: `once'). Other options:
%% see {@link weir_example_acceptors:start/2}.
-spec start(#{
    to := {inet:ip_address() | inet:hostname(), inet:port_number()},
    connect => [gen_tcp:connect_option()],
    active => active(),
    port => inet:port_number(),
    listen => [gen_tcp:listen_option()],
    _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(#{to := {Host, Port}} = Options) ->
    Active = maps:get(active, Options, once),
    Connect = maps:get(connect, Options, []) ++ [binary, {active, false}, {nodelay, true}],
    weir_example_acceptors:start(Options, fun(Client) ->
        case gen_tcp:connect(Host, Port, Connect, ?CONNECT_TIMEOUT) of
            {ok, Backend} -> serve(Client, Backend, Active);
            {error, _} -> gen_tcp:close(Client)
        end
    end).

%% A process cannot wait in two calls of recv, so each direction gets its own.
serve(Client, Backend, false) ->
    _ = spawn(fun() -> carry(Backend, Client) end),
    carry(Client, Backend);
serve(Client, Backend, Active) ->
    _ = inet:setopts(Client, [{active, Active}]),
    _ = inet:setopts(Backend, [{active, Active}]),
    pass(Client, Backend, Active).

carry(From, To) ->
    case gen_tcp:recv(From, 0) of
        {ok, Data} ->
            case gen_tcp:send(To, Data) of
                ok -> carry(From, To);
                {error, _} -> close(From, To)
            end;
        {error, _} ->
            close(From, To)
    end.

pass(Client, Backend, Active) ->
    receive
        {tcp, Client, Data} ->
            pass(Client, Backend, Active, Client, Backend, Data);
        {tcp, Backend, Data} ->
            pass(Client, Backend, Active, Backend, Client, Data);
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, Active}]),
            pass(Client, Backend, Active);
        {tcp_error, _Socket, _Reason} ->
            close(Client, Backend);
        {tcp_closed, _Socket} ->
            close(Client, Backend)
    end.

pass(Client, Backend, Active, From, To, Data) ->
    case gen_tcp:send(To, Data) of
        ok ->
            weir_example_active:received(inet, From, Active),
            pass(Client, Backend, Active);
        {error, _} ->
            close(Client, Backend)
    end.

close(Client, Backend) ->
    gen_tcp:close(Client),
    gen_tcp:close(Backend).
