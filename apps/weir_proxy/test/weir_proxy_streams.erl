%% Pairs of streams through a proxy, each with its own plan: how much each side sends, in which pieces, where it
%% stalls, how fast it reads, and how it ends. Both sides know the plan by its seed, and compare every byte.
-module(weir_proxy_streams).

-include_lib("stdlib/include/assert.hrl").

-export([start_server/0, stop_server/1]).
-export([run/3]).

-import(weir_test_wait, [patience/0]).

-record(plan, {
    %% Bytes to the server, and to the client.
    up :: non_neg_integer(),
    down :: non_neg_integer(),
    %% Bytes of a piece, and milliseconds of a stall after some pieces.
    piece :: pos_integer(),
    stall :: non_neg_integer(),
    %% Bytes read at a time, and milliseconds between reads.
    read :: pos_integer(),
    pause :: non_neg_integer(),
    %% `together': both send everything and close. `half': the client half-closes, and only then the server sends.
    %% `other_half': the same with the sides swapped. `reset': the client resets after it has read half of its bytes.
    ending :: together | half | other_half | reset
}).

plan(Seed) ->
    {[Up, Down, Piece, Stall, Read, Pause, Ending], _} = lists:mapfoldl(
        fun(Choices, State) ->
            {N, Next} = rand:uniform_s(length(Choices), State),
            {lists:nth(N, Choices), Next}
        end,
        rand:seed_s(exsss, {Seed, 2, 3}),
        [
            [0, 1, 100, 5000, 70_000, 1_000_000],
            [0, 1, 100, 5000, 70_000, 1_000_000],
            [1, 7, 1460, 16_384, 100_000],
            [0, 0, 0, 1, 30],
            [1, 500, 65_536, 1_000_000],
            [0, 0, 0, 1, 5],
            [together, half, other_half, reset]
        ]
    ),
    %% Small pieces only for small streams, so that a case ends.
    Many = max(Up, Down) > 5000,
    #plan{
        up = Up,
        down = Down,
        piece =
            case Many of
                true -> max(1460, Piece);
                false -> Piece
            end,
        stall = Stall,
        read =
            case Many of
                true -> max(16_384, Read);
                false -> Read
            end,
        pause =
            case Read of
                1 -> 0;
                _ when Many -> min(1, Pause);
                _ -> Pause
            end,
        %% The client reads something before it resets, so that the server knows the plan.
        ending =
            case Ending of
                reset when Down < 2 -> together;
                _ -> Ending
            end
    }.

%% Bytes of a seed's stream from an offset on. They depend only on seed and offset.
bytes(Seed, From, Size) ->
    Block = block(Seed),
    At = From rem byte_size(Block),
    part(Block, At, Size).

part(Block, At, Size) when At + Size =< byte_size(Block) -> binary:part(Block, At, Size);
part(Block, At, Size) ->
    First = byte_size(Block) - At,
    <<(binary:part(Block, At, First))/binary, (part(Block, 0, Size - First))/binary>>.

%% A prime number of bytes, so that no buffer size divides it.
block(Seed) ->
    case get({block, Seed}) of
        undefined ->
            {Block, _} = rand:bytes_s(65_521, rand:seed_s(exsss, {Seed, 5, 7})),
            put({block, Seed}, Block),
            Block;
        Block -> Block
    end.

%% @doc Starts a server that follows the plans. Returns its address.
start_server() ->
    Self = self(),
    Pid = spawn_link(fun() ->
        {ok, Listen} = gen_tcp:listen(0, [
            binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 1024}, {exit_on_close, false}, {nodelay, true}
        ]),
        {ok, Port} = inet:port(Listen),
        Self ! {self(), Port},
        accept(Listen, Self)
    end),
    receive
        {Pid, Port} -> {Pid, iolist_to_binary(["127.0.0.1:", integer_to_binary(Port)])}
    end.

stop_server({Pid, _}) ->
    true = unlink(Pid),
    exit(Pid, kill).

accept(Listen, Tester) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> serve(Socket, Tester) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Tester).

serve(Socket, Tester) ->
    {ok, <<Seed:32>>} = gen_tcp:recv(Socket, 4, patience()),
    Plan = plan(Seed),
    Result =
        case Plan#plan.ending of
            half ->
                Said = listen(Socket, {Seed, up}, Plan#plan.up, Plan),
                ok = say(Socket, {Seed, down}, Plan#plan.down, Plan),
                Said;
            other_half ->
                ok = say(Socket, {Seed, down}, Plan#plan.down, Plan),
                ok = gen_tcp:shutdown(Socket, write),
                listen(Socket, {Seed, up}, Plan#plan.up, Plan);
            together ->
                both(Socket, {{Seed, down}, Plan#plan.down}, {{Seed, up}, Plan#plan.up}, Plan);
            reset ->
                _ = say(Socket, {Seed, down}, Plan#plan.down, Plan),
                reset
        end,
    _ = gen_tcp:close(Socket),
    Tester ! {served, Seed, Result}.

%% @doc Runs plans through the proxy on a port, AtATime at once.
run(_Port, [], _AtATime) ->
    ok;
run(Port, Seeds, AtATime) ->
    {Some, Rest} = lists:split(min(AtATime, length(Seeds)), Seeds),
    Clients = [{Seed, spawn_monitor(fun() -> exit({result, client(Port, Seed)}) end)} || Seed <- Some],
    [
        receive
            {'DOWN', Monitor, process, Pid, Reason} ->
                ?assertEqual({Seed, plan(Seed), {result, expected(plan(Seed), down)}}, {Seed, plan(Seed), Reason})
        after 2 * patience() -> ct:fail({no_end, Seed, plan(Seed)})
        end
     || {Seed, {Pid, Monitor}} <- Clients
    ],
    [
        receive
            {served, Seed, Result} ->
                ?assertEqual({Seed, plan(Seed), expected(plan(Seed), up)}, {Seed, plan(Seed), Result})
        after patience() -> ct:fail({not_served, Seed, plan(Seed)})
        end
     || Seed <- Some
    ],
    run(Port, Rest, AtATime).

expected(#plan{ending = reset}, _) -> reset;
expected(#plan{up = Up}, up) -> {whole, Up};
expected(#plan{down = Down}, down) -> {whole, Down}.

client(Port, Seed) ->
    Plan = plan(Seed),
    {ok, Socket} = gen_tcp:connect(
        {127, 0, 0, 1}, Port, [binary, {active, false}, {exit_on_close, false}, {nodelay, true}], patience()
    ),
    ok = gen_tcp:send(Socket, <<Seed:32>>),
    Result =
        case Plan#plan.ending of
            half ->
                ok = say(Socket, {Seed, up}, Plan#plan.up, Plan),
                ok = gen_tcp:shutdown(Socket, write),
                listen(Socket, {Seed, down}, Plan#plan.down, Plan);
            other_half ->
                Said = listen(Socket, {Seed, down}, Plan#plan.down, Plan),
                ok = say(Socket, {Seed, up}, Plan#plan.up, Plan),
                Said;
            together ->
                both(Socket, {{Seed, up}, Plan#plan.up}, {{Seed, down}, Plan#plan.down}, Plan);
            reset ->
                ok = heard(Socket, {Seed, down}, 0, Plan#plan.down div 2, Plan),
                ok = inet:setopts(Socket, [{linger, {true, 0}}]),
                reset
        end,
    ok = gen_tcp:close(Socket),
    Result.

%% Both directions at once.
both(Socket, {Mine, Size}, {Theirs, Other}, Plan) ->
    {Sayer, Monitor} = spawn_monitor(fun() ->
        ok = say(Socket, Mine, Size, Plan),
        ok = gen_tcp:shutdown(Socket, write)
    end),
    Result = listen(Socket, Theirs, Other, Plan),
    receive
        {'DOWN', Monitor, process, Sayer, Reason} -> ?assertEqual(normal, Reason)
    after patience() -> error(says_on)
    end,
    Result.

say(Socket, Seed, Size, Plan) -> say(Socket, seed(Seed), 0, Size, Plan).

say(_Socket, _Seed, Size, Size, _Plan) -> ok;
say(Socket, Seed, Said, Size, Plan = #plan{piece = Piece, stall = Stall}) ->
    Now = min(Piece, Size - Said),
    case gen_tcp:send(Socket, bytes(Seed, Said, Now)) of
        ok ->
            _ = Stall > 0 andalso (Said div Piece) rem 100 =:= 0 andalso timer:sleep(Stall),
            say(Socket, Seed, Said + Now, Size, Plan);
        {error, _} = Error -> Error
    end.

%% Reads everything, then the end, and not a byte more.
listen(Socket, Name, Size, Plan) ->
    case heard(Socket, Name, 0, Size, Plan) of
        ok ->
            case gen_tcp:recv(Socket, 0, patience()) of
                {error, closed} -> {whole, Size};
                Other -> {no_end, Other}
            end;
        Error -> Error
    end.

heard(_Socket, _Name, Size, Size, _Plan) -> ok;
heard(Socket, Name, Heard, Size, Plan = #plan{read = Read, pause = Pause}) ->
    case gen_tcp:recv(Socket, min(Read, Size - Heard), patience()) of
        {ok, Data} ->
            case bytes(seed(Name), Heard, byte_size(Data)) of
                Data ->
                    _ = Pause > 0 andalso timer:sleep(Pause),
                    heard(Socket, Name, Heard + byte_size(Data), Size, Plan);
                _ -> {wrong_bytes_after, Heard}
            end;
        {error, Reason} -> {ended_after, Heard, Reason}
    end.

seed({Seed, up}) -> 2 * Seed;
seed({Seed, down}) -> 2 * Seed + 1.
