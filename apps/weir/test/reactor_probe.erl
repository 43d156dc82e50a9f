%% A reactor's callbacks that tell a process what they are called with and do what they are told. The state of a
%% connection is a map: `tell' is the process, the other keys are funs in place of a callback's answer.
-module(reactor_probe).
-behaviour(weir_reactor).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).
-export([handle_writable/2]).
-export([handle_info/2]).
-export([handle_tick/2]).
-export([terminate/2]).

init(Socket, Args = #{tell := Pid}) ->
    Pid ! {init, Socket},
    answer(init, [Socket], Args#{socket => Socket}).

handle_data(Socket, Data, State) ->
    answer(data, [Socket, Data], State).

handle_close(Socket, {connect, Reason}, #{tell := Pid}) ->
    Pid ! {not_connected, Socket, Reason},
    {ok, none};
handle_close(Socket, Reason, State = #{tell := Pid}) ->
    Pid ! {closed, Socket, Reason},
    {ok, State}.

handle_writable(Socket, State = #{tell := Pid}) ->
    Pid ! {writable, Socket},
    answer(writable, [Socket], State).

handle_info(Message, State = #{tell := Pid, socket := Socket}) ->
    Pid ! {info, Socket, Message},
    answer(info, [Message], State).

handle_tick(Socket, State) ->
    answer(tick, [Socket], State).

terminate(Reason, #{tell := Pid, socket := Socket}) ->
    Pid ! {terminated, Socket, Reason}.

answer(Callback, Arguments, State) ->
    case State of
        #{Callback := Fun} -> apply(Fun, Arguments ++ [State]);
        #{} when Callback =:= data -> {send, lists:last(Arguments), State};
        #{} -> {ok, State}
    end.
