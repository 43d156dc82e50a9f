%% @doc Echoes data: the simplest server, in each active mode.
-module(weir_example_echo).

-export([start/1]).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `once'). `packet' is their packet
%% mode, `4' or `line' (default: raw bytes). `work' is the microseconds of computation for each message (default: 0).
%% Other options: see {@link weir_example_acceptors:start/2}.
-spec start(#{
    active => active(), packet => 4 | line, work => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Active = maps:get(active, Options, once),
    %% Accepted sockets inherit `packet' from the listening socket.
    Listen = maps:get(listen, Options, []) ++ maps:to_list(maps:with([packet], Options)),
    Work = weir_example_work:of_options(Options),
    weir_example_acceptors:start(Options#{listen => Listen}, fun(Socket) -> serve(Socket, Active, Work) end).

serve(Socket, false, Work) ->
    passive(Socket, Work);
serve(Socket, Active, Work) ->
    _ = inet:setopts(Socket, [{active, Active}]),
    active(Socket, Active, Work).

passive(Socket, Work) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            ok = weir_example_work:do(Work),
            case gen_tcp:send(Socket, Data) of
                ok -> passive(Socket, Work);
                {error, _} -> gen_tcp:close(Socket)
            end;
        {error, _} ->
            gen_tcp:close(Socket)
    end.

active(Socket, Active, Work) ->
    receive
        {tcp, Socket, Data} ->
            ok = weir_example_work:do(Work),
            case gen_tcp:send(Socket, Data) of
                ok ->
                    weir_example_active:received(inet, Socket, Active),
                    active(Socket, Active, Work);
                {error, _} ->
                    gen_tcp:close(Socket)
            end;
        {tcp_passive, Socket} ->
            %% {active, N} has counted down to 0: allow the next N.
            _ = inet:setopts(Socket, [{active, Active}]),
            active(Socket, Active, Work);
        {tcp_error, Socket, _Reason} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.
