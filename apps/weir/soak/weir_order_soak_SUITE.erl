%% Numbers arrive in order, and the end last, at owners whose queues have a buffer for each sender, while others fill
%% those, the owners ask again and again, sockets are moved, and pollers are killed. WEIR_SOAK_SECONDS in the
%% environment makes it shorter or longer. More schedulers than processors find more: `+S 4:4'.
-module(weir_order_soak_SUITE).

-include_lib("stdlib/include/assert.hrl").

-compile([export_all, nowarn_export_all]).

-import(weir_test_wait, [patience/0]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(SECONDS, 120).
-define(OWNERS, 4).
-define(OTHERS, 24).
-define(NUMBERS, 200).

suite() ->
    [{timetrap, {seconds, seconds() + 600}}].

all() ->
    [everything_in_order].

seconds() ->
    list_to_integer(os:getenv("WEIR_SOAK_SECONDS", integer_to_list(?SECONDS))).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir),
    ok = logger:add_primary_filter(?MODULE, {fun without_pollers/2, []}),
    Config.

end_per_suite(_Config) ->
    logger:remove_primary_filter(?MODULE).

%% Pollers die by the dozen here, and Weir says so each time.
without_pollers(#{msg := {report, #{what := "a poller died" ++ _}}}, _) -> stop;
without_pollers(_Event, _) -> ignore.

everything_in_order(_Config) ->
    _ = erts_debug:set_internal_state(available_internal_state, true),
    Deadline = erlang:monotonic_time(second) + seconds(),
    Owners = [start_owner(Queue) || Queue <- [off_heap, off_heap, off_heap, on_heap], _ <- lists:seq(1, ?OWNERS div 4)],
    Others = [spawn_link(fun() -> fill([Owner || {Owner, _} <- Owners]) end) || _ <- lists:seq(1, ?OTHERS)],
    {Chaos, _} = spawn_monitor(fun() -> chaos([Socket || {_, {Socket, _}} <- Owners]) end),
    Senders = [spawn_monitor(fun() -> send_numbers(Owner, Ends, Deadline) end) || {Owner, Ends} <- Owners],
    Counts = [await(Sender) || Sender <- Senders],
    ct:log("messages in order: ~p", [Counts]),
    [exit(Pid, kill) || Pid <- [Chaos | Others], unlink(Pid)],
    [?assert(Count > 0) || Count <- Counts].

await({Sender, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Sender, {counted, Count}} -> Count;
        {'DOWN', Monitor, process, Sender, Reason} -> error(Reason)
    after (seconds() * 1000) + patience() -> error(no_end)
    end.

start_owner(Queue) ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, {ip, ?LOOPBACK}, binary, {active, false}, {packet, 4}]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {packet, 4}, {nodelay, true}]),
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = gen_tcp:close(Listener),
    Owner = spawn_opt(
        fun() ->
            _ = Queue =:= off_heap andalso erts_debug:set_internal_state(proc_sig_buffers, true),
            receive
                go -> own(Socket, 0)
            end
        end,
        [link, {message_queue_data, Queue}]
    ),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner ! go,
    {Owner, {Socket, Peer}}.

%% One of all ways to ask at a time. What waits comes by the owner itself, and what comes later by the poller.
own(Socket, Next) ->
    Active = lists:nth(rand:uniform(4), [true, once, 3, 50]),
    %% It is closed where the end is in the mailbox.
    _ = inet:setopts(Socket, [{active, Active}]),
    take(Socket, Next, rand:uniform(30)).

take(Socket, Next, 0) ->
    _ = inet:setopts(Socket, [{active, false}]),
    own(Socket, Next);
take(Socket, Next, Count) ->
    receive
        {tcp, Socket, <<Number:32>>} ->
            ?assertEqual(Next, Number),
            take(Socket, Next + 1, Count - 1);
        {tcp_passive, Socket} ->
            take(Socket, Next, 0);
        {other, _} ->
            take(Socket, Next, Count);
        {tcp_closed, Socket} ->
            receive
                {how_many, To} -> To ! {so_many, Next}
            end
    after 1 ->
        %% All that it has asked for may have come.
        take(Socket, Next, 0)
    end.

send_numbers(Owner, {_Socket, Peer}, Deadline) ->
    true = link(Owner),
    Sent = send_from(0, Peer, Deadline),
    ok = gen_tcp:shutdown(Peer, write),
    Owner ! {how_many, self()},
    receive
        {so_many, Count} -> ?assertEqual(Sent, Count)
    after patience() -> error(not_told)
    end,
    exit({counted, Sent}).

send_from(Next, Peer, Deadline) ->
    case erlang:monotonic_time(second) < Deadline of
        true ->
            Few = rand:uniform(?NUMBERS),
            [ok = gen_tcp:send(Peer, <<Number:32>>) || Number <- lists:seq(Next, Next + Few - 1)],
            _ = Few rem 3 =:= 0 andalso timer:sleep(1),
            send_from(Next + Few, Peer, Deadline);
        false ->
            Next
    end.

%% They keep many buffers in use, and are not in the way for long.
fill(Owners) ->
    [Owner ! {other, self()} || Owner <- Owners, is_short(Owner)],
    erlang:yield(),
    fill(Owners).

is_short(Owner) ->
    case process_info(Owner, message_queue_len) of
        {message_queue_len, Length} -> Length < 1000;
        undefined -> false
    end.

chaos(Sockets) ->
    [weir:migrate(Socket, rand:uniform(erlang:system_info(schedulers))) || Socket <- Sockets],
    _ = rand:uniform(100) =:= 1 andalso kill_a_poller(),
    timer:sleep(rand:uniform(5) - 1),
    chaos(Sockets).

kill_a_poller() ->
    Pollers = [Poller || #{poller := Poller} <- weir:pollsets(), is_pid(Poller)],
    exit(lists:nth(rand:uniform(length(Pollers)), Pollers), kill).
