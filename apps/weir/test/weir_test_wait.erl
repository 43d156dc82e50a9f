%% Waiting for what must happen, and for messages and data of sockets; a case fails that waits in vain.
-module(weir_test_wait).

-export([wait_until/1]).
-export([becomes_true/2]).
-export([wait_for_messages/1]).
-export([next_message/0]).
-export([assert_no_message/0]).
-export([messages/0]).
-export([messages_of/1]).
-export([collect_active/2]).
-export([recv_all/1]).
-export([recv_exactly/2]).
-export([timed/1]).

%% How long to wait for what must happen; reached only by a failing test.
-define(PATIENCE, 30000).
%% How long silence must last to be taken for silence.
-define(QUIET, 40).

-spec wait_until(fun(() -> boolean())) -> ok.
wait_until(Condition) ->
    case becomes_true(Condition, ?PATIENCE) of
        true -> ok;
        false -> ct:fail({never_true, Condition})
    end.

%% Whether it becomes true, within so many milliseconds.
-spec becomes_true(fun(() -> boolean()), integer()) -> boolean().
becomes_true(Condition, Left) ->
    case Condition() of
        true ->
            true;
        false when Left > 0 ->
            %% A receive that looks for something fetches new messages into
            %% the queue that process_info/2 sees; a mere delay does not.
            receive
                {?MODULE, never_sent} -> false
            after 5 -> becomes_true(Condition, Left - 5)
            end;
        false ->
            false
    end.

%% Waits until the mailbox holds this many messages, and leaves them there.
-spec wait_for_messages(pos_integer()) -> ok.
wait_for_messages(Count) ->
    wait_until(fun() -> process_info(self(), message_queue_len) >= {message_queue_len, Count} end).

-spec next_message() -> term().
next_message() ->
    receive
        Message -> Message
    after ?PATIENCE ->
        ct:fail(no_message)
    end.

-spec assert_no_message() -> ok.
assert_no_message() ->
    receive
        Message -> ct:fail({unexpected_message, Message})
    after ?QUIET ->
        ok
    end.

%% Takes what is in the mailbox.
-spec messages() -> [term()].
messages() ->
    receive
        Message -> [Message | messages()]
    after 0 ->
        []
    end.

%% What a process (not the caller) has in its mailbox, once it holds something.
-spec messages_of(pid()) -> [term()].
messages_of(Pid) ->
    wait_until(fun() -> process_info(Pid, message_queue_len) =/= {message_queue_len, 0} end),
    {messages, Messages} = process_info(Pid, messages),
    Messages.

%% The data of the messages of a socket, until there are so many bytes.
-spec collect_active(inet:socket(), non_neg_integer()) -> binary().
collect_active(Socket, Size) ->
    collect_active(Socket, Size, []).

collect_active(_Socket, Size, Data) when Size =< 0 ->
    iolist_to_binary(lists:reverse(Data));
collect_active(Socket, Size, Data) ->
    case next_message() of
        {tcp, Socket, Part} -> collect_active(Socket, Size - iolist_size(Part), [Part | Data]);
        Other -> ct:fail({unexpected_message, Other, {bytes_missing, Size}})
    end.

%% Reads until the end of the stream; returns the data and how it ended.
-spec recv_all(gen_tcp:socket()) -> {binary(), term()}.
recv_all(Socket) ->
    recv_all(Socket, []).

recv_all(Socket, Data) ->
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, Part} -> recv_all(Socket, [Part | Data]);
        {error, Reason} -> {iolist_to_binary(lists:reverse(Data)), Reason}
    end.

-spec recv_exactly(gen_tcp:socket(), pos_integer()) -> binary().
recv_exactly(Socket, Size) ->
    {ok, Data} = gen_tcp:recv(Socket, Size, ?PATIENCE),
    iolist_to_binary(Data).

-spec timed(fun(() -> Result)) -> {Milliseconds :: integer(), Result}.
timed(Fun) ->
    Start = erlang:monotonic_time(),
    Result = Fun(),
    {erlang:convert_time_unit(erlang:monotonic_time() - Start, native, millisecond), Result}.
