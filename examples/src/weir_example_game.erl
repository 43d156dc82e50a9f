%% @doc Sends the state of a game to every player: 512 bytes on each connection, half a second after the player's last
%% message.
%%
%% Answers of players are ignored. It models thousands of connections with little traffic each, where the cost of the
%% server itself matters.
-module(weir_example_game).

-export([start/1]).

-define(TICK, 500).
-define(STATE_BYTES, 512).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `true'). Other options: see {@link
%% weir_example_acceptors:start/2}.
-spec start(#{active => active(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    Active = maps:get(active, Options, true),
    State = binary:copy(<<"w">>, ?STATE_BYTES),
    weir_example_acceptors:start(Options, fun(Socket) ->
        _ = inet:setopts(Socket, [{active, Active}]),
        play(Socket, Active, State)
    end).

play(Socket, Active, State) ->
    case answer(Socket, Active) of
        answered ->
            play(Socket, Active, State);
        silent ->
            case gen_tcp:send(Socket, State) of
                ok -> play(Socket, Active, State);
                {error, _} -> gen_tcp:close(Socket)
            end;
        closed ->
            gen_tcp:close(Socket)
    end.

answer(Socket, false) ->
    case gen_tcp:recv(Socket, 0, ?TICK) of
        {ok, _Answer} -> answered;
        {error, timeout} -> silent;
        {error, _} -> closed
    end;
answer(Socket, Active) ->
    receive
        {tcp, Socket, _Answer} ->
            weir_example_active:received(inet, Socket, Active),
            answered;
        {tcp_passive, Socket} ->
            _ = inet:setopts(Socket, [{active, Active}]),
            answered;
        {tcp_error, Socket, _Reason} ->
            closed;
        {tcp_closed, Socket} ->
            closed
    after ?TICK ->
        silent
    end.
