%% Each subscriber sees the messages of each channel in order and without repetition, and every gap is announced; at
%% the end each program has all messages. Also while shards are killed.
-module(prop_pubsub).

-include_lib("proper/include/proper.hrl").

-export([prop_sequences/0]).
-export([run/1]).

-define(CHANNELS, [<<"one">>, <<"two">>, <<"three">>]).
%% The supervisor of the shards allows twenty restarts in a second. It counts whole seconds, so that can be the last
%% two.
-define(KILLS_MS, 130).

prop_sequences() ->
    ?FORALL({Policy, Programs}, {policy(), vector(4, list(step()))}, begin
        ok = weir_pubsub:configure(#{channels => [{<<"*">>, Policy}]}),
        ok = kill_soon(lists:member(kill, lists:append(Programs))),
        %% All programs run at once: the law holds for any order of their steps.
        Actors = [spawn_monitor(fun() -> exit({shutdown, run(Program)}) end) || Program <- Programs],
        Logs = [
            receive
                {'DOWN', Monitor, process, Pid, Reason} -> Reason
            after 2 * weir_test_wait:patience() -> timeout
            end
         || {Pid, Monitor} <- Actors
        ],
        _ = [weir_pubsub:delete(Channel) || Channel <- ?CHANNELS],
        Verdict = verdict(Logs),
        ?WHENFAIL(io:format("~p~n~p~n", [Verdict, Logs]), Verdict =:= ok)
    end).

policy() ->
    ?LET(
        {Messages, Bytes, Slow},
        {oneof([0, 1, 3, 10, 1000]), oneof([50, 1000000]), oneof([drop_oldest, disconnect])},
        #{max_messages => Messages, max_bytes => Bytes, slow => Slow, idle_timeout => 0}
    ).

channel() -> oneof(?CHANNELS).

step() ->
    frequency([
        {12, {publish, channel(), range(0, 60)}},
        {4, {subscribe, channel(), oneof([new, oldest, {last, 2}, back, nonsense]), oneof([infinity, 1, 3])}},
        {2, {unsubscribe, channel()}},
        {3, {take, channel()}},
        {1, {delete, channel()}},
        {1, {history, channel()}},
        {1, kill}
    ]).

%% A shard is killed while the programs run, not more often than the supervisor allows.
kill_soon(false) ->
    ok;
kill_soon(true) ->
    Now = erlang:monotonic_time(millisecond),
    Next = case get(?MODULE) of undefined -> Now; Last -> max(Now, Last + ?KILLS_MS) end,
    _ = put(?MODULE, Next),
    timer:sleep(Next - Now),
    Shard = weir_pubsub_shards:name(rand:uniform(weir_pubsub_shards:count())),
    _ = spawn(fun() ->
        _ = [erlang:yield() || _ <- lists:seq(1, rand:uniform(50))],
        exit(whereis(Shard), kill)
    end),
    ok.

%% A program -----------------------------------------------------------------------

%% What a program knows: its subscription to each channel, and the last id that it has seen in any.
run(Program) ->
    try
        {done,
            maps:get(log, finish(lists:foldl(fun(Step, State) -> do(Step, listen(State)) end, #{log => []}, Program)))}
    catch
        Class:Reason:Stack -> {failed, Class, Reason, Stack}
    end.

do({publish, Channel, Size}, State) ->
    Data = <<(binary:encode_hex(term_to_binary(make_ref())))/binary, (binary:copy(<<"x">>, Size))/binary>>,
    case weir_pubsub:publish(Channel, Data) of
        {ok, #{id := Id}} -> log({published, Channel, Id, Data}, State);
        {error, unavailable} -> log({tried, Channel, Data}, State);
        {error, {limit, _, _, _}} -> State
    end;
do({subscribe, Channel, From, Window}, State) ->
    Without = unsubscribe(Channel, State),
    Begin = from(From, Channel, Without),
    Tag = {tag, make_ref()},
    case weir_pubsub:subscribe(Channel, #{from => Begin, window => Window, tag => Tag}) of
        {ok, Position} ->
            Known =
                case Begin of
                    {_, _} when element(1, Begin) =/= last -> Begin;
                    _ -> Position
                end,
            Without#{Channel => #{tag => Tag, position => Known, window => Window, untaken => 0}};
        {error, Reason} when Reason =:= unavailable; element(1, Reason) =:= limit ->
            Without
    end;
do({unsubscribe, Channel}, State) ->
    unsubscribe(Channel, State);
do({take, Channel}, State) ->
    take(Channel, State);
do({delete, Channel}, State) ->
    case weir_pubsub:delete(Channel) of
        {ok, _} -> State;
        {error, Reason} when Reason =:= no_channel; Reason =:= unavailable -> State
    end;
do({history, Channel}, State) ->
    history(Channel, State);
do({presence, Channel}, State) ->
    case weir_pubsub:presence(Channel) of
        {ok, Present} ->
            [#{pid := _} = One || One <- Present],
            State;
        {error, Reason} when Reason =:= no_presence; Reason =:= no_channel; Reason =:= unavailable -> State
    end;
do(usage, State) ->
    {ok, Usage} = weir_pubsub:usage(total),
    true = lists:min(maps:values(Usage)) >= 0,
    State;
do({configure, Configuration}, State) ->
    ok = weir_pubsub:configure(Configuration),
    State;
do(kill, State) ->
    State.

history(Channel, State) ->
    {Life, _} = From = from(back, Channel, State),
    case weir_pubsub:history(Channel, #{from => From}) of
        %% The id is of the same life of the channel, so the number of missed messages must be known.
        {ok, #{position := {Life, _}, missed := unknown} = History} ->
            error({not_there, From, History});
        {ok, #{position := {Epoch, Begin}, messages := Messages}} ->
            Numbers = [Number || {message, {_, Number}, _, _} <- Messages],
            Numbers = lists:seq(Begin + 1, Begin + length(Messages)),
            lists:foldl(
                fun({message, {E, _} = Id, Data, _}, S) when E =:= Epoch -> log({got, Channel, Id, Data}, S) end,
                State,
                Messages
            );
        {error, _} ->
            State
    end.

from(back, Channel, State) -> maps:get({last, Channel}, State, {7, 7});
from(nonsense, _Channel, _State) -> {rand:uniform(1 bsl 30), rand:uniform(10)};
from(From, _Channel, _State) -> From.

unsubscribe(Channel, State) ->
    case State of
        #{Channel := #{tag := Tag}} ->
            case weir_pubsub:unsubscribe(Channel, Tag) of
                ok -> ok;
                %% The channel was deleted: that is among the messages.
                {error, not_subscribed} -> ok
            end,
            maps:remove(Channel, listen(State));
        #{} ->
            State
    end.

%% A program takes messages only between the calls above.
take(Channel, State) ->
    case State of
        #{Channel := #{window := Window, untaken := Count} = Subscription} when is_integer(Window), Count > 0 ->
            #{tag := Tag} = Subscription,
            %% A shard that was killed forgets what it had sent.
            _ = weir_pubsub_shards:cast(Channel, {taken, Channel, {self(), Tag}, Count}),
            State#{Channel := Subscription#{untaken := 0}};
        #{} ->
            State
    end.

listen(State) ->
    receive
        {{tag, _} = Tag, Channel, What} -> listen(hear(Tag, Channel, What, State))
    after 0 -> State
    end.

hear(Tag, Channel, What, State) ->
    case State of
        #{Channel := #{tag := Tag, position := Position} = Subscription} ->
            heard(What, Channel, Subscription, Position, State);
        #{} ->
            State
    end.

heard({message, {Epoch, Number} = Id, Data, _}, Channel, Subscription, {Epoch, Before}, State) when
    Number =:= Before + 1
->
    #{untaken := Count} = Subscription,
    log({got, Channel, Id, Data}, State#{
        Channel := Subscription#{position := Id, untaken := Count + 1}, {last, Channel} => Id
    });
heard({gap, Missed, {Epoch, Number} = Position}, Channel, Subscription, {Epoch, Before}, State) when
    Number > Before, Missed =:= Number - Before; Missed =:= unknown
->
    State#{Channel := Subscription#{position := Position}};
heard({gap, unknown, Position}, Channel, Subscription, _OtherEpoch, State) ->
    State#{Channel := Subscription#{position := Position}};
heard({closed, _}, Channel, _Subscription, _Position, State) ->
    maps:remove(Channel, State);
heard(What, Channel, Subscription, _Position, _State) ->
    error({wrong, What, Channel, Subscription}).

log(Entry, #{log := Log} = State) -> State#{log := [Entry | Log]}.

%% Takes messages until all subscriptions are at the end of their channels.
finish(State) -> finish(State, erlang:monotonic_time(millisecond) + weir_test_wait:patience()).

finish(State, Until) ->
    Now = lists:foldl(fun take/2, listen(State), ?CHANNELS),
    Late = [
        {Channel, Position, Info}
     || Channel <- ?CHANNELS,
        #{Channel := #{position := Position}} <- [Now],
        Info <- [weir_pubsub:info(Channel)],
        not is_at_end(Position, Info)
    ],
    case {Late, erlang:monotonic_time(millisecond) > Until} of
        {[], _} ->
            Now;
        {_, true} ->
            error({behind, Late, Now});
        _ ->
            timer:sleep(5),
            finish(Now, Until)
    end.

is_at_end(Position, {ok, #{last_id := Position}}) -> true;
is_at_end(_Position, _Info) -> false.

%% All of them -----------------------------------------------------------------------

%% An id means one message, for all programs.
verdict(Logs) ->
    case [Log || Log <- Logs, not is_done(Log)] of
        [] ->
            Entries = lists:append([Log || {shutdown, {done, Log}} <- Logs]),
            Published = maps:from_list([{{Channel, Id}, Data} || {published, Channel, Id, Data} <- Entries]),
            Tried = maps:from_list([{Data, Channel} || {tried, Channel, Data} <- Entries]),
            agree([Entry || {got, _, _, _} = Entry <- Entries], Published, Tried);
        Failed ->
            {failed, Failed}
    end.

is_done({shutdown, {done, _}}) -> true;
is_done(_) -> false.

agree([{got, Channel, Id, Data} = Got | Others], Known, Tried) ->
    case {Known, Tried} of
        {#{{Channel, Id} := Data}, _} -> agree(Others, Known, Tried);
        {#{{Channel, Id} := Other}, _} -> {two_messages, Got, Other};
        {_, #{Data := Channel}} -> agree(Others, Known#{{Channel, Id} => Data}, maps:remove(Data, Tried));
        _ -> {nobodys_message, Got}
    end;
agree([], _Known, _Tried) ->
    ok.
