%% `{active, _}' on a real connection: random options and data, compared with a model that predicts the messages.
-module(prop_active).
-behaviour(proper_statem).

-include_lib("proper/include/proper.hrl").

-export([prop_active/0]).
-export([initial_state/0, command/1, precondition/2, postcondition/3, next_state/3]).
-export([send/3, setopts/2, getopts/0]).

%% The mode, sent data that is not delivered yet, and the number of bytes sent in total.
-record(model, {
    active = false :: boolean() | once | pos_integer(),
    waiting = <<>> :: binary(),
    sent = 0 :: non_neg_integer()
}).

prop_active() ->
    ?FORALL(Commands, commands(?MODULE), weir_test_property:holds(fun() -> agrees(Commands) end)).

agrees(Commands) ->
    put(?MODULE, pair()),
    {History, Model, Result} = run_commands(?MODULE, Commands),
    Left = weir_test_wait:messages(),
    (Result =:= ok andalso Left =:= []) orelse {{history, History}, {model, Model}, {result, Result}, {left, Left}}.

pair() ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, loopback}]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    {Socket, Peer}.

%% Commands -------------------------------------------------------------------

send(Data, Messages, Total) ->
    {Socket, Peer} = get(?MODULE),
    ok = gen_tcp:send(Peer, Data),
    wait_for_kernel(Socket, Total),
    received(Messages).

setopts(Active, Messages) ->
    {Socket, _} = get(?MODULE),
    {inet:setopts(Socket, [{active, Active}]), received(Messages)}.

getopts() ->
    {Socket, _} = get(?MODULE),
    inet:getopts(Socket, [active]).

%% Receives the expected number of messages, and returns any further ones with them.
received(0) ->
    [tag(Message) || Message <- weir_test_wait:messages()];
received(Messages) ->
    receive
        Message -> [tag(Message) | received(Messages - 1)]
    after weir_test_wait:patience() -> [missing]
    end.

tag({tcp, _, Data}) -> {tcp, Data};
tag({Tag, _}) -> Tag.

%% Waits until the kernel has the data, so that it becomes one message. The received bytes are in TCP_INFO after 8
%% bytes, 24 words and 3 long words.
wait_for_kernel(Socket, Total) ->
    weir_test_wait:wait_until(fun() ->
        {ok, [{raw, 6, 11, Info}]} = inet:getopts(Socket, [{raw, 6, 11, 192}]),
        <<_:128/binary, Received:64/native, _/binary>> = Info,
        Received >= Total orelse {received, Received, 'of', Total}
    end).

%% The model ------------------------------------------------------------------

initial_state() ->
    #model{}.

command(Model = #model{}) ->
    frequency([
        {5, ?LET(Data, data(), {call, ?MODULE, send, [Data, expected(send, Data, Model), total(Data, Model)]})},
        {5, ?LET(Active, active(), {call, ?MODULE, setopts, [Active, expected(setopts, Active, Model)]})},
        {1, {call, ?MODULE, getopts, []}}
    ]).

data() ->
    ?LET(Bytes, non_empty(list(byte())), list_to_binary(Bytes)).

active() ->
    frequency([
        {2, true},
        {2, false},
        {4, once},
        {8, integer(-3, 5)},
        {1, oneof([32767, 32766, -32768, 20000])}
    ]).

precondition(Model, {call, _, send, [Data, Messages, Total]}) ->
    Messages =:= expected(send, Data, Model) andalso Total =:= total(Data, Model);
precondition(Model, {call, _, setopts, [Active, Messages]}) ->
    Messages =:= expected(setopts, Active, Model);
precondition(_Model, _Call) ->
    true.

total(Data, #model{sent = Sent}) ->
    Sent + byte_size(Data).

expected(What, Argument, Model) ->
    {_Result, Messages, _Next} = step(What, Argument, Model),
    length(Messages).

postcondition(Model, {call, _, send, [Data | _]}, Result) ->
    {ok, Messages, _} = step(send, Data, Model),
    Result =:= Messages;
postcondition(Model, {call, _, setopts, [Active | _]}, Result) ->
    {Answer, Messages, _} = step(setopts, Active, Model),
    Result =:= {Answer, Messages};
postcondition(#model{active = Active}, {call, _, getopts, []}, Result) ->
    Result =:= {ok, [{active, Active}]}.

next_state(Model, _Result, {call, _, getopts, []}) ->
    Model;
next_state(Model, _Result, {call, _, What, [Argument | _]}) ->
    {_, _, Next} = step(What, Argument, Model),
    Next.

%% The result of a command, the messages that follow, and the next model.
step(send, Data, Model = #model{waiting = Waiting, sent = Sent}) ->
    deliver(ok, [], Model#model{waiting = <<Waiting/binary, Data/binary>>, sent = Sent + byte_size(Data)});
step(setopts, Count, Model = #model{active = Active}) when is_integer(Count) ->
    Before =
        case is_integer(Active) of
            true -> Active;
            false -> 0
        end,
    case Before + Count of
        Sum when Sum > 32767; Sum < -32768 -> {{error, einval}, [], Model};
        Sum when Sum > 0 -> deliver(ok, [], Model#model{active = Sum});
        _ -> {ok, [tcp_passive], Model#model{active = false}}
    end;
step(setopts, Active, Model) ->
    deliver(ok, [], Model#model{active = Active}).

deliver(Result, Messages, Model = #model{active = Active, waiting = Waiting}) when
    Active =:= false; Waiting =:= <<>>
->
    {Result, Messages, Model};
deliver(Result, Messages, Model = #model{active = Active, waiting = Waiting}) ->
    {Next, Told} =
        case Active of
            true -> {true, []};
            once -> {false, []};
            1 -> {false, [tcp_passive]};
            Count -> {Count - 1, []}
        end,
    {Result, Messages ++ [{tcp, Waiting} | Told], Model#model{active = Next, waiting = <<>>}}.
