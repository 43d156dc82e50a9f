%% @doc Sends back all data: the simplest server, once for each way to receive.
-module(weir_example_echo).

-export([start/1]).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' says how connections receive (`once'). `packet' has them receive and send packets,
%% `4' with the length in front or `line' (bytes as they come). `work' is how many microseconds are
%% computed for what comes (0). The rest is for {@link weir_example_acceptors:start/2}.
-spec start(#{
    active => active(), packet => 4 | line, work => non_neg_integer(),
    port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Active = maps:get(active, Options, once),
    %% Connections have it from the socket that they were accepted on.
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
            %% {active, N} has counted down to 0: the next N.
            _ = inet:setopts(Socket, [{active, Active}]),
            active(Socket, Active, Work);
        {tcp_error, Socket, _Reason} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            gen_tcp:close(Socket)
    end.
