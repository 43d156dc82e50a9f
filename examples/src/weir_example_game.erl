%% @doc Tells every player the state of the world: 512 bytes to each connection, half a second after it last spoke.
%%
%% Players answer and are not listened to. Thousands of connections that each do little: what counts is what the server
%% costs beside the game.
-module(weir_example_game).

-export([start/1]).

-define(TICK, 500).
-define(STATE_BYTES, 512).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' says how connections receive (`true'); the rest is for {@link
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
