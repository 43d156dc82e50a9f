%% A process that subscribes to a channel and checks the law: no message twice, none out of order, and every gap
%% announced.
-module(weir_pubsub_follower).

-export([start/2]).
-export([log/1]).
-export([stop/1]).

%% Subscribes, and continues until it is stopped.
start(Channel, From) ->
    Parent = self(),
    Pid = spawn(fun() ->
        case weir_pubsub:subscribe(Channel, #{from => From}) of
            {ok, Position} ->
                Parent ! {self(), ok},
                loop(Channel, case From of {Epoch, _} when is_integer(Epoch) -> From; _ -> Position end, []);
            {error, _} = Error ->
                Parent ! {self(), Error}
        end
    end),
    receive
        {Pid, ok} -> {ok, Pid};
        {Pid, Error} -> Error
    end.

loop(Channel, Position, Log) ->
    receive
        {weir_pubsub, Channel, What} ->
            Next = next(What, Position),
            loop(Channel, element(1, Next), [element(2, Next) | Log]);
        {log, From} ->
            From ! {self(), {Position, lists:reverse(Log)}},
            loop(Channel, Position, Log);
        stop ->
            ok
    end.

next({message, {Epoch, Number} = Id, Data, _}, {Epoch, Before}) when Number =:= Before + 1 -> {Id, {message, Id, Data}};
next({gap, Missed, {Epoch, Number} = Id} = Gap, {Epoch, Before}) when Number - Before =:= Missed -> {Id, Gap};
next({gap, unknown, Id} = Gap, _) -> {Id, Gap};
next({closed, _} = Closed, Position) -> {Position, Closed};
next(What, Position) -> {Position, {wrong, What, Position}}.

%% Returns its position, and what it has got.
log(Pid) ->
    Pid ! {log, self()},
    receive
        {Pid, Log} -> Log
    after weir_test_wait:patience() -> error({no_log, Pid})
    end.

stop(Pid) ->
    Pid ! stop,
    ok.
