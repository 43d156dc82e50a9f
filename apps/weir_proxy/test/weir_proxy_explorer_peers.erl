%% The clients and servers of weir_proxy_explorer. Both know the plan of a connection by its seed, and compare every
%% byte.
-module(weir_proxy_explorer_peers).

-include("weir_proxy_explorer.hrl").

-export([prepare/0]).
-export([choice/2]).
-export([meet/3]).
-export([client/3]).
-export([server/3]).
-export([stop_server/1]).

-import(weir_test_wait, [patience/0]).

-define(BLOCK, {?MODULE, block}).
%% A prime number, so that no buffer size divides it.
-define(BLOCK_SIZE, 65_521).

%% The plan of a connection: bytes in each direction, milliseconds before the first byte and before the server's
%% answer, and how it ends.
-record(plan, {
    up :: non_neg_integer(),
    down :: non_neg_integer(),
    silence :: non_neg_integer(),
    stall :: non_neg_integer(),
    ending :: whole | half | client_resets | server_resets | client_leaves
}).

%% @doc Makes the bytes of all streams. Must be called first.
prepare() -> persistent_term:put(?BLOCK, rand:bytes(?BLOCK_SIZE)).

choice(Choices, Random) ->
    {Number, Next} = rand:uniform_s(length(Choices), Random),
    {lists:nth(Number, Choices), Next}.

%% @doc Counts connects and accepts of a client's port: each connected client must be accepted. Clients may reuse a
%% port.
meet(Seen, Peer, Number) ->
    _ = ets:update_counter(Seen, {met, Peer}, Number, {{met, Peer}, 0}),
    ok.

%%% Clients.

plan({Salt, Number, Count}) ->
    {[Up, Down, Silence, Stall, Ending], _} = lists:mapfoldl(
        fun choice/2,
        rand:seed_s(exsss, {Salt, Number, Count}),
        [
            [0, 1, 1000, 30_000, 200_000], [0, 1, 1000, 30_000, 200_000], [0, 0, 0, 5, 50], [0, 0, 0, 2, 20],
            [whole, whole, whole, whole, half, half, client_resets, server_resets, client_leaves]
        ]
    ),
    #plan{up = Up, down = Down, silence = Silence, stall = Stall, ending = Ending}.

bytes(Seed, From, Size) ->
    Block = persistent_term:get(?BLOCK),
    At = (erlang:phash2(Seed, ?BLOCK_SIZE) + From) rem ?BLOCK_SIZE,
    case Size =< ?BLOCK_SIZE - At of
        true ->
            binary:part(Block, At, Size);
        false ->
            <<
                (binary:part(Block, At, ?BLOCK_SIZE - At))/binary,
                (bytes(Seed, From + ?BLOCK_SIZE - At, Size - (?BLOCK_SIZE - At)))/binary
            >>
    end.

client(Number, Seed = {Salt, _, Count}, Run = #run{stop = Stop, ports = Ports}) ->
    case counters:get(Stop, 1) of
        1 when Count > 0 ->
            ok;
        _ ->
            Port = lists:nth(1 + Count rem length(Ports), Ports),
            Options = [binary, {active, false}, {exit_on_close, false}, {show_econnreset, true}, {nodelay, true}],
            case gen_tcp:connect({127, 0, 0, 1}, Port, Options, patience()) of
                {ok, Socket} ->
                    {ok, Here} = inet:sockname(Socket),
                    ok = meet(Run#run.seen, Here, 1),
                    ok = judge(Seed, Here, plan(Seed), converse(Socket, Seed, plan(Seed)), Run),
                    _ = gen_tcp:close(Socket);
                %% Only the first port is always listened on.
                {error, econnrefused} when Port =/= hd(Ports) ->
                    ok;
                %% The listener was closed before connect returned.
                {error, econnreset} when Run#run.is_rough; Port =/= hd(Ports) ->
                    ok
            end,
            client(Number, {Salt, Number, Count + 1}, Run)
    end.

%% Sends its bytes and reads the answer.
converse(Socket, _Seed, #plan{ending = client_leaves, silence = Silence}) ->
    timer:sleep(Silence),
    ok = inet:setopts(Socket, [{linger, {Silence > 0, 0}}]),
    left;
converse(
    Socket, Seed = {Salt, Number, Count}, Plan = #plan{up = Up, down = Down, silence = Silence, ending = Ending}
) ->
    timer:sleep(Silence),
    Said =
        case Ending of
            client_resets -> Up div 2;
            _ -> Up
        end,
    Sent = gen_tcp:send(Socket, [<<"SSH-", Salt:32, Number:32, Count:32>>, bytes({Seed, up}, 0, Said)]),
    _ = Ending =:= half andalso gen_tcp:shutdown(Socket, write),
    case {Ending, Sent} of
        {client_resets, _} ->
            ok = inet:setopts(Socket, [{linger, {true, 0}}]),
            left;
        %% Bytes that the server sent before the reset may still be read.
        _ ->
            hear(Socket, {Seed, down}, 0, Down, Plan)
    end.

hear(Socket, _Name, Size, Size, _Plan) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {error, closed} -> whole;
        Other -> {no_end, Other}
    end;
hear(Socket, Name, Heard, Size, Plan) ->
    case gen_tcp:recv(Socket, 0, patience()) of
        {ok, Data} when Heard + byte_size(Data) =< Size ->
            case bytes(Name, Heard, byte_size(Data)) of
                Data -> hear(Socket, Name, Heard + byte_size(Data), Size, Plan);
                _ -> {wrong_bytes_after, Heard}
            end;
        {ok, Data} ->
            {surplus, Heard, byte_size(Data), Size};
        {error, timeout} ->
            {nothing_more_after, Heard, Size};
        {error, Reason} ->
            {ended_after, Heard, Reason}
    end.

judge(_Seed, _Here, #plan{ending = Ending}, whole, #run{numbers = Numbers}) when Ending =/= server_resets ->
    counters:add(Numbers, ?WHOLE, 1);
judge(_Seed, _Here, _Plan, left, _Run) ->
    ok;
judge(_Seed, _Here, #plan{ending = server_resets}, {ended_after, _, _}, _Run) ->
    ok;
judge(_Seed, _Here, #plan{ending = server_resets, down = 0}, Result, _Run) when
    Result =:= whole; Result =:= {no_end, {error, econnreset}}
->
    ok;
judge(_Seed, _Here, _Plan, {ended_after, _, _}, #run{is_rough = true}) ->
    ok;
judge(_Seed, _Here, _Plan, {no_end, {error, Reason}}, #run{is_rough = true}) when Reason =/= timeout -> ok;
judge(Seed, Here, Plan, Result, #run{seen = Seen}) ->
    case ets:lookup(Seen, {met, Here}) of
        %% Its handshake took longer than the listener waits while the address was removed, so it was not accepted.
        [{_, Left}] when Left > 0, element(1, Result) =:= ended_after, element(2, Result) =:= 0 -> ok;
        _ -> exit({Seed, Plan, Result, ets:lookup(Seen, {refused, Here})})
    end.

%%% Servers.

server(Name, Port, Run) ->
    Test = self(),
    Pid = spawn(fun() ->
        Owner = monitor(process, Test),
        Options = [
            binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 1024}, {exit_on_close, false}, {reuseaddr, true}
        ],
        {ok, Listen} = gen_tcp:listen(Port, Options),
        {ok, Bound} = inet:port(Listen),
        Me = self(),
        _ = spawn_link(fun() -> accept(Me, Listen, Run) end),
        Test ! {listens, Me, Bound},
        receive
            {'DOWN', Owner, process, _, _} -> exit(owner_ended)
        end
    end),
    receive
        {listens, Pid, Bound} -> {Name, Bound, Pid}
    after patience() -> ct:fail(no_server)
    end.

stop_server({_, _, Pid}) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

accept(Server, Listen, Run) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() ->
        receive go -> ok end,
        link(Server),
        serve(Socket, Run)
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Server, Listen, Run).

serve(Socket, #run{seen = Seen}) ->
    case gen_tcp:recv(Socket, 16, patience()) of
        {ok, <<"SSH-", Salt:32, Number:32, Count:32>>} ->
            Seed = {Salt, Number, Count},
            Result = case ets:insert_new(Seen, {Seed}) of true -> answer(Socket, Seed, plan(Seed)); false -> twice end,
            _ = Result =:= ok orelse ets:insert(Seen, {{fault, Seed, plan(Seed), Result}});
        %% The client has left.
        {error, Reason} when Reason =/= timeout ->
            ok
    end,
    gen_tcp:close(Socket).

%% Returns `ok' also if the client has left before.
answer(Socket, Seed, #plan{ending = server_resets, up = Up, down = Down}) ->
    Heard = listen(Socket, Seed, 0, Up div 2),
    _ = gen_tcp:send(Socket, bytes({Seed, down}, 0, Down div 2)),
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    case Heard of ended -> ok; _ -> Heard end;
answer(Socket, Seed, #plan{up = Up, down = Down, stall = Stall, ending = Ending}) ->
    timer:sleep(Stall),
    case {listen(Socket, Seed, 0, Up), Ending} of
        {ok, half} ->
            case gen_tcp:recv(Socket, 0, patience()) of
                {error, closed} -> say(Socket, Seed, Down);
                {error, Reason} when Reason =/= timeout -> ok;
                Other -> {no_end, Other}
            end;
        {ok, _} -> say(Socket, Seed, Down);
        {ended, _} -> ok;
        {Fault, _} -> Fault
    end.

say(Socket, Seed, Size) ->
    _ = gen_tcp:send(Socket, bytes({Seed, down}, 0, Size)),
    ok.

listen(_Socket, _Seed, Size, Size) -> ok;
listen(Socket, Seed, Heard, Size) ->
    case gen_tcp:recv(Socket, min(65_536, Size - Heard), patience()) of
        {ok, Data} ->
            case bytes({Seed, up}, Heard, byte_size(Data)) of
                Data -> listen(Socket, Seed, Heard + byte_size(Data), Size);
                _ -> {wrong_bytes_after, Heard}
            end;
        {error, timeout} -> {nothing_more_after, Heard, Size};
        {error, _} -> ended
    end.
