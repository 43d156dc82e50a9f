%% @private
%% @doc The handler of a WebSocket with its own process: sends it a message each time that it asks for one.
-module(weir_http_websocket_process).
-behaviour(weir_http_websocket).

-export([start/2]).
-export([initial_call/0]).
-export([run/2]).
-export([message/2]).
-export([info/2]).
-export([closed/2]).

%% Bytes of messages that may wait for the process. Beyond that the connection is not read. Each message counts 64
%% bytes more than its payload, which may be empty.
-define(INPUT, 65536).
-define(MESSAGE, 64).

-record(process, {
    socket :: weir_http_socket:socket(),
    pid :: pid(),
    monitor :: reference(),
    is_asking = false :: boolean(),
    messages = queue:new() :: queue:queue(weir_http_websocket:message()),
    bytes = 0 :: non_neg_integer(),
    is_read = true :: boolean()
}).

%% @doc Starts the process of a WebSocket.
-spec start(fun((weir_http_socket:socket()) -> term()), weir_http_socket:socket()) -> #process{}.
start(Fun, Socket) ->
    ok = weir_http_orphans:watch(),
    {Pid, Monitor} = proc_lib:spawn_opt(?MODULE, run, [Fun, Socket], [{monitor, [{tag, {weir_reactor, Socket}}]}]),
    #process{socket = Socket, pid = Pid, monitor = Monitor}.

%% @doc Returns the initial call of these processes, see `proc_lib:translate_initial_call/1'.
-spec initial_call() -> mfa().
initial_call() -> {?MODULE, run, 2}.

%% @doc Runs the fun in the process.
-spec run(fun((weir_http_websocket:websocket()) -> term()), weir_http_websocket:websocket()) -> term().
run(Fun, Socket) -> Fun(Socket).

-spec message(weir_http_websocket:message(), #process{}) -> weir_http_websocket:result(#process{}).
message(Message, Process = #process{is_asking = true}) ->
    {ok, give(Message, Process)};
message(Message, Process = #process{messages = Messages, bytes = Bytes}) ->
    {ok, bounded(Process#process{messages = queue:in(Message, Messages), bytes = Bytes + size_of(Message)})}.

-spec info(term(), #process{}) -> weir_http_websocket:result(#process{}).
info({websocket_next, Pid}, Process = #process{pid = Pid, messages = Messages, bytes = Bytes}) ->
    case queue:out(Messages) of
        {{value, Message}, Left} ->
            {ok, bounded(give(Message, Process#process{messages = Left, bytes = Bytes - size_of(Message)}))};
        {empty, _} ->
            {ok, Process#process{is_asking = true}}
    end;
info({{weir_reactor, _}, Monitor, process, _Pid, Reason}, Process = #process{monitor = Monitor}) ->
    ended(Reason, Process);
info(_Message, Process) ->
    {ok, Process}.

%% A failed process is treated as a failed callback: it is counted and logged, and the client gets 1011. The stack is
%% left out: its arguments may contain secrets.
-spec ended(term(), #process{}) -> {close, #process{}}.
ended(Reason, Process) when Reason =:= normal; Reason =:= shutdown; element(1, Reason) =:= shutdown -> {close, Process};
ended({Reason, [_ | _]}, _Process) -> exit({process_ended, Reason});
ended(Reason, _Process) -> exit({process_ended, Reason}).

give(Message, Process = #process{socket = Socket, pid = Pid}) ->
    Pid ! {weir_http_websocket, Socket, Message},
    Process#process{is_asking = false}.

size_of({_, Payload}) -> ?MESSAGE + byte_size(Payload).

%% Pauses reading while too many bytes of messages wait.
bounded(Process = #process{socket = Socket, bytes = Bytes, is_read = IsRead}) ->
    case Bytes =< ?INPUT of
        IsRead ->
            Process;
        MayRead ->
            ok = weir_http_socket:active(Socket, MayRead),
            Process#process{is_read = MayRead}
    end.

%% Sends all waiting messages, then the reason.
-spec closed(weir_http_websocket:reason(), #process{}) -> ok.
closed(Reason, Process = #process{monitor = Monitor, messages = Messages}) ->
    _ = erlang:demonitor(Monitor, [flush]),
    lists:foreach(fun(Message) -> give(Message, Process) end, queue:to_list(Messages) ++ [{closed, Reason}]).
