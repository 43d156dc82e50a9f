%% @doc Echoes data, as `echo' does, behind ranch.
-module(weir_example_ranch_echo).

-export([start/1]).
-export([start_link/3]).

-define(ACCEPTORS, 10).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `once'). Other options: see {@link
%% weir_example_ranch_servers:start/4}.
-spec start(#{active => active(), atom() => term()}) ->
    {ok, #{port := inet:port_number(), stop := fun(() -> ok)}} | {error, term()}.
start(Options) ->
    weir_example_ranch_servers:start(Options, ?ACCEPTORS, ?MODULE, maps:get(active, Options, once)).

%% @private
-spec start_link(term(), module(), active()) -> {ok, pid()}.
start_link(Listener, Transport, Active) ->
    {ok, spawn_link(fun() ->
        {ok, Socket} = ranch:handshake(Listener),
        serve(Socket, Transport, Active)
    end)}.

serve(Socket, Transport, false) ->
    case Transport:recv(Socket, 0, infinity) of
        {ok, Data} ->
            _ = Transport:send(Socket, Data),
            serve(Socket, Transport, false);
        {error, _} ->
            Transport:close(Socket)
    end;
serve(Socket, Transport, Active) ->
    _ = Transport:setopts(Socket, [{active, Active}]),
    loop(Socket, Transport, Active).

loop(Socket, Transport, Active) ->
    receive
        {tcp, Socket, Data} ->
            _ = Transport:send(Socket, Data),
            case Active of
                once -> serve(Socket, Transport, Active);
                _ -> loop(Socket, Transport, Active)
            end;
        {tcp_passive, Socket} ->
            serve(Socket, Transport, Active);
        _ClosedOrFailed ->
            Transport:close(Socket)
    end.
