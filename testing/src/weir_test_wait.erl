%% @doc Waits for a condition, a message or data of a socket. If it does not come, the case fails with what it waited
%% for and what it saw last.
%%
%% All tests share one time limit. Only a failing test reaches it, so it is long. The environment variable
%% WEIR_PATIENCE multiplies it, for a slow machine or an emulator.
-module(weir_test_wait).

-export([patience/0]).
-export([stretch/0]).
-export([wait_until/1]).
-export([wait_match/3]).
-export([wait_match/4]).
-export([becomes_true/2]).
-export([wait_for_messages/1]).
-export([wait_for_end/1]).
-export([next_message/0]).
-export([assert_no_message/0]).
-export([messages/0]).
-export([messages_of/1]).
-export([collect_active/2]).
-export([recv_all/1]).
-export([recv_exactly/2]).
-export([timed/1]).

%% In milliseconds.
-define(PATIENCE, 60_000).
%% How long silence must last to count as silence, in milliseconds. A busy machine can hide a fault here, but cannot
%% make a correct program fail.
-define(QUIET, 40).
%% Milliseconds between two checks of a condition.
-define(INTERVAL, 5).

%% @doc Returns the time limit of the tests in milliseconds, for `after' and for the limits of calls.
-spec patience() -> pos_integer().
patience() -> ?PATIENCE * stretch().

%% @doc Returns the factor by which WEIR_PATIENCE multiplies the time limit: a whole number, 1 if it is not set.
-spec stretch() -> pos_integer().
stretch() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined ->
            Stretch = stretch(os:getenv("WEIR_PATIENCE", "")),
            ok = persistent_term:put(?MODULE, Stretch),
            Stretch;
        Stretch ->
            Stretch
    end.

stretch("") -> 1;
stretch(Text) ->
    case string:to_integer(Text) of
        {Number, ""} when is_integer(Number), Number > 0 -> Number;
        _ -> error({bad_environment, "WEIR_PATIENCE", Text, "a whole number of at least 1"})
    end.

%% @doc Waits until the function returns `true'. On timeout the last other value is reported: `fun() -> count() =:= 3
%% orelse {count, count()} end'. The macros of weir_test.hrl are shorter.
-spec wait_until(fun(() -> true | term())) -> ok.
wait_until(Condition) ->
    case wait(Condition, fun(Value) -> Value =:= true end, deadline(patience())) of
        {ok, _} -> ok;
        {never, Last} -> error({never_true, name(Condition), {last, Last}})
    end.

%% @doc Waits until a value passes, and returns it. The macros `?waitMatch' and `?waitEqual' of weir_test.hrl call it.
-spec wait_match(fun(() -> Value), fun((Value) -> boolean()), map()) -> Value.
wait_match(Fun, Passes, About) -> wait_match(Fun, Passes, patience(), About).

%% @doc The same with a limit in milliseconds.
-spec wait_match(fun(() -> Value), fun((Value) -> boolean()), non_neg_integer(), map()) -> Value.
wait_match(Fun, Passes, Milliseconds, About) ->
    case wait(Fun, Passes, deadline(Milliseconds)) of
        {ok, Value} -> Value;
        {never, Last} -> error({never_seen, About#{last => Last}})
    end.

%% @doc Whether the condition becomes true within a limit in milliseconds: for what need not happen.
-spec becomes_true(fun(() -> term()), non_neg_integer()) -> boolean().
becomes_true(Condition, Milliseconds) ->
    element(1, wait(Condition, fun(Value) -> Value =:= true end, deadline(Milliseconds))) =:= ok.

wait(Fun, Passes, Deadline) ->
    Value = Fun(),
    case Passes(Value) of
        true ->
            {ok, Value};
        false ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> pause(), wait(Fun, Passes, Deadline);
                false -> {never, Value}
            end
    end.

%% A receive with a pattern moves new messages into the queue that process_info/2 counts; a mere delay does not.
pause() ->
    receive
        {?MODULE, never_sent} -> ok
    after ?INTERVAL -> ok
    end.

deadline(Milliseconds) -> erlang:monotonic_time(millisecond) + Milliseconds.

%% The place of a condition in the source.
name(Fun) ->
    {module, Module} = erlang:fun_info(Fun, module),
    {name, Name} = erlang:fun_info(Fun, name),
    {Module, Name}.

%% @doc Waits until the mailbox holds this many messages, and leaves them there.
-spec wait_for_messages(pos_integer()) -> ok.
wait_for_messages(Count) ->
    wait_until(fun() ->
        {message_queue_len, Now} = process_info(self(), message_queue_len),
        Now >= Count orelse {messages, Now, expected, Count}
    end).

%% @doc Waits until a process ends, and returns its reason.
-spec wait_for_end(pid()) -> term().
wait_for_end(Pid) ->
    Monitor = monitor(process, Pid),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    after patience() -> error({still_alive, Pid, process_info(Pid)})
    end.

%% @doc Takes and returns the next message of any kind.
-spec next_message() -> term().
next_message() ->
    receive
        Message -> Message
    after patience() -> error(no_message)
    end.

%% @doc Fails if a message arrives before silence is assumed.
-spec assert_no_message() -> ok.
assert_no_message() ->
    receive
        Message -> error({unexpected_message, Message})
    after ?QUIET -> ok
    end.

%% @doc Takes and returns all messages of the mailbox.
-spec messages() -> [term()].
messages() ->
    receive
        Message -> [Message | messages()]
    after 0 -> []
    end.

%% @doc Returns the messages of another process, once it has any.
-spec messages_of(pid()) -> [term()].
messages_of(Pid) ->
    wait_until(fun() -> process_info(Pid, message_queue_len) =/= {message_queue_len, 0} end),
    {messages, Messages} = process_info(Pid, messages),
    Messages.

%% @doc Returns the data of a socket's messages, once it has this many bytes.
-spec collect_active(inet:socket(), non_neg_integer()) -> binary().
collect_active(Socket, Size) -> collect_active(Socket, Size, []).

collect_active(_Socket, Size, Data) when Size =< 0 ->
    iolist_to_binary(lists:reverse(Data));
collect_active(Socket, Size, Data) ->
    case next_message() of
        {tcp, Socket, Part} -> collect_active(Socket, Size - iolist_size(Part), [Part | Data]);
        Other -> error({unexpected_message, Other, {bytes_missing, Size}})
    end.

%% @doc Reads until the stream ends. Returns the data and the reason of the end.
-spec recv_all(gen_tcp:socket()) -> {binary(), term()}.
recv_all(Socket) -> recv_all(Socket, []).

recv_all(Socket, Data) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, Part} -> recv_all(Socket, [Part | Data]);
        {error, Reason} -> {iolist_to_binary(lists:reverse(Data)), Reason}
    end.

%% @doc Reads exactly this many bytes.
-spec recv_exactly(gen_tcp:socket(), pos_integer()) -> binary().
recv_exactly(Socket, Size) ->
    {ok, Data} = gen_tcp:recv(Socket, Size, patience()),
    iolist_to_binary(Data).

%% @doc Returns how long a call took, in milliseconds, and its result. A case may require that a wait lasted at least
%% some time, but never at most: the machine may be busy.
-spec timed(fun(() -> Result)) -> {Milliseconds :: integer(), Result}.
timed(Fun) ->
    Start = erlang:monotonic_time(),
    Result = Fun(),
    {erlang:convert_time_unit(erlang:monotonic_time() - Start, native, millisecond), Result}.
