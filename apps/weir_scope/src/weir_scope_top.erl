%% @doc The processes, the sockets and the relays of a node that do or hold most. They are looked at twice, in slices of a hundred at low
%% priority, so that nobody waits; what is kept between the two stands in a table that no collection has to copy.
-module(weir_scope_top).

-export([check/2]).
-export([processes/1]).
-export([processes/2]).
-export([sockets/1]).
-export([sockets/2]).
-export([relays/1]).
-export([relays/2]).

-export_type([options/0, process/0, socket/0, relay/0]).

-type options() :: #{by => process_key() | socket_key() | relay_key(), most => 1..1000, over => 10..60_000}.
%% `by' is what is sorted by, the largest first; `most' (20) is how many are wanted; `over' (1000) the milliseconds between both
%% looks.

-type process_key() :: reductions | memory | growth | queue | binaries.
-type socket_key() :: bytes | in | out | queue.
-type relay_key() :: bytes | in | out | age | idle.

-type process() :: #{
    pid := pid(),
    name := atom() | {module(), atom(), arity()},
    label => term(),
    reductions := float(),
    memory := non_neg_integer(),
    growth := float(),
    queue := non_neg_integer(),
    binaries := non_neg_integer(),
    function := mfa() | undefined,
    status := atom()
}.
%% `reductions' and `growth' (of memory, bytes) are a second. `binaries': bytes of those that it holds and that are kept outside of its heap, as
%% the VM counts them for its collections. `name' is the registered name, or the function that the process began
%% with. `label' from OTP 27 on, where the process has set one.

-type socket() :: #{
    socket := term(),
    kind := weir | port | socket,
    owner => pid() | undefined,
    local => term(),
    peer => term(),
    in := float(),
    out := float(),
    queue := non_neg_integer(),
    rtt_us => non_neg_integer(),
    resent => non_neg_integer()
}.
%% `in', `out': bytes a second. `queue': bytes that wait to be sent. `rtt_us': the way to the peer and back, microseconds, and `resent' the segments
%% that were sent again, since the connection began: what Linux says of it (tcp_info). `kind': of Weir, a port (gen_tcp's default), or OTP's `socket'.

-type relay() :: #{
    relay := pos_integer(),
    owner := pid(),
    pollset := pos_integer(),
    in := float(),
    out := float(),
    age := float(),
    idle := float(),
    replies := non_neg_integer(),
    first_byte_us => non_neg_integer(),
    p50 => non_neg_integer(),
    p99 => non_neg_integer()
}.
%% `in', `out': bytes a second from the client and from the server. `age': seconds since it began, `idle': since bytes last moved. `replies' of
%% the server, and of the time that these took the median and the 99th percentile, microseconds. `first_byte_us': until the first of them.

-define(SLICE, 100).

%% @doc The top of the processes: `by' is `reductions' (the default), `memory', `growth', `queue' or `binaries'.
-spec processes(options()) -> [process()].
processes(Options) -> processes(fun erlang:apply/3, Options).

%% @private
-spec processes(weir_scope_facts:ask(), options()) -> [process()].
processes(Ask, Options) ->
    Index = maps:get(maps:get(by, Options, reductions), keys(processes)),
    apart(fun() -> top_processes(Ask, Index, maps:get(most, Options, 20), maps:get(over, Options, 1000)) end).

%% @doc The top of the sockets: `by' is `bytes' (the default: in and out together), `in', `out' or `queue'.
-spec sockets(options()) -> [socket()].
sockets(Options) -> sockets(fun erlang:apply/3, Options).

%% @private
-spec sockets(weir_scope_facts:ask(), options()) -> [socket()].
sockets(Ask, Options) ->
    Index = maps:get(maps:get(by, Options, bytes), keys(sockets)),
    apart(fun() -> top_sockets(Ask, Index, maps:get(most, Options, 20), maps:get(over, Options, 1000)) end).

%% @doc The top of the relays of Weir: `by' is `bytes' (the default: in and out together), `in', `out', `age' or `idle'.
-spec relays(options()) -> [relay()].
relays(Options) -> relays(fun erlang:apply/3, Options).

%% @private
-spec relays(weir_scope_facts:ask(), options()) -> [relay()].
relays(Ask, Options) ->
    Index = maps:get(maps:get(by, Options, bytes), keys(relays)),
    apart(fun() -> top_relays(Ask, Index, maps:get(most, Options, 20), maps:get(over, Options, 1000)) end).

%% The place of a key in the values of a process, socket or relay.
keys(processes) -> #{reductions => 1, memory => 2, growth => 3, queue => 4, binaries => 5};
keys(sockets) -> #{in => 1, out => 2, queue => 3, bytes => 4};
keys(relays) -> #{in => 1, out => 2, bytes => 3, age => 4, idle => 5}.

%% @private
-spec check(processes | sockets | relays, options()) -> ok | {error, {bad_option, atom(), term(), term()}}.
check(What, Options) ->
    Checks = #{
        by => fun(By) -> is_map_key(By, keys(What)) orelse {one_of, lists:sort(maps:keys(keys(What)))} end,
        most => fun(Most) -> (is_integer(Most) andalso Most >= 1 andalso Most =< 1000) orelse {between, 1, 1000} end,
        over => fun(Over) -> (is_integer(Over) andalso Over >= 10 andalso Over =< 60_000) orelse {between, 10, 60_000} end
    },
    Verdicts = [
        case Checks of
            #{Key := Check} -> {Key, Value, Check(Value)};
            _ -> {Key, Value, {one_of, [by, most, over]}}
        end
     || {Key, Value} <- maps:to_list(Options)
    ],
    case [{bad_option, Key, Value, Allowed} || {Key, Value, Allowed} <- Verdicts, Allowed =/= true] of
        [] -> ok;
        [Bad | _] -> {error, Bad}
    end.

%% In a process of its own, of low priority, that ends with the one that wants it.
apart(Fun) ->
    Caller = self(),
    Tag = make_ref(),
    Work = fun() ->
        Caller !
            {Tag,
                try
                    {ok, Fun()}
                catch
                    error:Reason -> {error, Reason}
                end}
    end,
    Pid = spawn_opt(Work, [link, {priority, low}]),
    receive
        {Tag, Result} ->
            true = unlink(Pid),
            case Result of
                {ok, Top} -> Top;
                {error, Reason} -> error(Reason)
            end
    end.

top_processes(Ask, Index, Most, Over) ->
    Table = ets:new(?MODULE, [set, private]),
    First = fun(Pid, [{_, Reductions}, {_, Memory}], none) ->
        _ = ets:insert(Table, {Pid, now_us(), Reductions, Memory}),
        none
    end,
    none = each_process(Ask, [reductions, memory], First, none),
    ok = timer:sleep(Over),
    Second = fun(Pid, [{_, Reductions}, {_, Memory}, {_, Queue} | Rest], Top) ->
        case ets:lookup(Table, Pid) of
            [{_, At, Reductions0, Memory0}] when Pid =/= self() ->
                Binaries = lists:sum([binaries(Info) || {_, Info} <- Rest]),
                add(Index, {rate(Reductions - Reductions0, At), Memory, rate(Memory - Memory0, At), Queue, Binaries}, Pid, Most, Top);
            _ ->
                Top
        end
    end,
    %% What costs more is asked of all only where they are sorted by it.
    Items = [reductions, memory, message_queue_len] ++ [garbage_collection_info || Index =:= maps:get(binaries, keys(processes))],
    Top = each_process(Ask, Items, Second, {0, gb_sets:new()}),
    [Process || {_, Pid, Values} <- largest(Top), Process <- process(Ask, Pid, Values)].

%% Those that have ended meanwhile are left out.
each_process(Ask, Items, Fun, State) ->
    Known = fun(Pid, Info, Then) -> case Info of undefined -> Then; _ -> Fun(Pid, Info, Then) end end,
    sliced(fun(Pids, Then) -> each(Ask, fun erlang:process_info/2, Pids, Items, Known, Then) end, State, Ask(erlang, processes, [])).

%% Calls Function(Element, Argument) there for each of a slice: one question.
each(Ask, Function, Elements, Argument, Fun, State) ->
    Answers = Ask(lists, zipwith, [Function, Elements, lists:duplicate(length(Elements), Argument)]),
    lists:foldl(fun({Element, Answer}, Then) -> Fun(Element, Answer, Then) end, State, lists:zip(Elements, Answers)).

%% A look at a million processes takes time: each has its own moment.
rate(Difference, At) -> Difference * 1_000_000 / max(1, now_us() - At).

now_us() -> erlang:monotonic_time(microsecond).

process(Ask, Pid, {Reductions, Memory, Growth, Queue, _}) ->
    case {weir_scope_process:name(Ask, Pid), Ask(erlang, process_info, [Pid, [current_function, status, garbage_collection_info]])} of
        {#{} = Named, [{_, Function}, {_, Status}, {_, Collection}]} ->
            Process = #{pid => Pid, reductions => Reductions, memory => Memory, growth => Growth, queue => Queue, function => Function, status => Status},
            [maps:merge(Named, Process#{binaries => binaries(Collection)})];
        _ ->
            []
    end.

%% The VM counts them in words.
binaries(Collection) ->
    8 * lists:sum([Words || {Generation, Words} <- Collection, Generation =:= bin_vheap_size orelse Generation =:= bin_old_vheap_size]).

top_sockets(Ask, Index, Most, Over) ->
    Table = ets:new(?MODULE, [set, private]),
    First = fun(Kind, Socket, {In, Out, _}, none) ->
        _ = ets:insert(Table, {{Kind, Socket}, now_us(), In, Out}),
        none
    end,
    none = each_socket(Ask, First, none),
    ok = timer:sleep(Over),
    Second = fun(Kind, Socket, {In, Out, Queue}, Top) ->
        case ets:lookup(Table, {Kind, Socket}) of
            [{_, At, In0, Out0}] ->
                {InRate, OutRate} = {rate(In - In0, At), rate(Out - Out0, At)},
                add(Index, {InRate, OutRate, Queue, InRate + OutRate}, {Kind, Socket}, Most, Top);
            [] ->
                Top
        end
    end,
    Top = each_socket(Ask, Second, {0, gb_sets:new()}),
    [socket(Ask, Kind, Socket, Values) || {_, {Kind, Socket}, Values} <- largest(Top)].

each_socket(Ask, Fun, State) ->
    of_weir(Ask, Fun, of_module(Ask, Fun, of_ports(Ask, Fun, State)), 0).

of_ports(Ask, Fun, State) ->
    Counted = fun(Ports, Then) ->
        Tcp = each(Ask, fun erlang:port_info/2, Ports, name, fun(Port, Name, Found) -> [Port || Name =:= {name, "tcp_inet"}] ++ Found end, []),
        getstat(Ask, port, Fun, Then, Tcp)
    end,
    sliced(Counted, State, Ask(erlang, ports, [])).

getstat(Ask, Kind, Fun, State, Sockets) ->
    Counted = fun
        (Socket, {ok, [{recv_oct, In}, {send_oct, Out}, {send_pend, Queue}]}, Then) -> Fun(Kind, Socket, {In, Out, Queue}, Then);
        (_Socket, {error, _}, Then) -> Then
    end,
    each(Ask, fun inet:getstat/2, Sockets, [recv_oct, send_oct, send_pend], Counted, State).

%% Where the module is not loaded, nobody has a socket of it.
of_module(Ask, Fun, State) ->
    case Ask(code, is_loaded, [socket]) of
        false -> State;
        _ -> sliced(fun(Sockets, Then) -> lists:foldl(fun(Socket, Last) -> module_socket(Ask, Fun, Socket, Last) end, Then, Sockets) end, State, Ask(socket, which_sockets, [tcp]))
    end.

module_socket(Ask, Fun, Socket, State) ->
    try Ask(socket, info, [Socket]) of
        #{counters := #{read_byte := In, write_byte := Out}} -> Fun(socket, Socket, {In, Out, 0}, State);
        _ -> State
    catch
        %% It is closed.
        error:_ -> State
    end.

of_weir(Ask, Fun, State, Piece) ->
    case Ask(erlang, whereis, [weir_sup]) =/= undefined andalso Ask(weir_nif, sockets, [Piece]) of
        {ok, Handles} ->
            Counted = fun(Slice, Then) -> getstat(Ask, weir, Fun, Then, [{'$inet', weir_tcp, Handle} || Handle <- Slice]) end,
            of_weir(Ask, Fun, sliced(Counted, State, Handles), Piece + 1);
        _ ->
            State
    end.

socket(Ask, Kind, Socket, {In, Out, Queue, _}) ->
    Known = #{
        socket => Socket,
        kind => Kind,
        owner => owner(Ask, Kind, Socket),
        local => address(Ask, Kind, sockname, Socket),
        peer => address(Ask, Kind, peername, Socket),
        in => In,
        out => Out,
        queue => Queue
    },
    maps:merge(maps:filter(fun(_, Value) -> Value =/= unknown end, Known), tcp_info(Ask, Kind, Socket)).

%% Of struct tcp_info of Linux so much as to have both numbers. Elsewhere the option is another.
-define(TCP_INFO, 104).

tcp_info(Ask, Kind, Socket) ->
    case raw(Ask, Kind, Socket) of
        <<_:68/binary, Rtt:32/native, _:28/binary, Resent:32/native>> -> #{rtt_us => Rtt, resent => Resent};
        _ -> #{}
    end.

raw(Ask, socket, Socket) ->
    case Ask(socket, getopt_native, [Socket, {6, 11}, ?TCP_INFO]) of
        {ok, Value} -> Value;
        {error, _} -> unknown
    end;
raw(Ask, _, Socket) ->
    case Ask(inet, getopts, [Socket, [{raw, 6, 11, ?TCP_INFO}]]) of
        {ok, [{raw, 6, 11, Value}]} -> Value;
        _ -> unknown
    end.

owner(Ask, port, Port) ->
    case Ask(erlang, port_info, [Port, connected]) of
        {connected, Pid} -> Pid;
        undefined -> unknown
    end;
owner(Ask, weir, {_, _, Handle}) ->
    case Ask(weir_nif, info, [Handle]) of
        {ok, #{owner := Owner}} -> Owner;
        {error, _} -> unknown
    end;
owner(Ask, socket, Socket) ->
    try Ask(socket, info, [Socket]) of
        #{owner := Owner} -> Owner;
        _ -> unknown
    catch
        error:_ -> unknown
    end.

address(Ask, socket, Which, Socket) ->
    case Ask(socket, Which, [Socket]) of
        {ok, #{addr := Address, port := Port}} -> {Address, Port};
        _ -> unknown
    end;
address(Ask, _, Which, Socket) ->
    case Ask(inet, Which, [Socket]) of
        {ok, Address} -> Address;
        {error, _} -> unknown
    end.

top_relays(Ask, Index, Most, Over) ->
    Table = ets:new(?MODULE, [set, private]),
    First = fun(Relay, {In, Out, _}, none) ->
        _ = ets:insert(Table, {Relay, now_us(), In, Out}),
        none
    end,
    none = each_relay(Ask, First, none, 0),
    ok = timer:sleep(Over),
    Second = fun(Relay, {In, Out, Info}, Top) ->
        {_, _, #{duration_us := Age, idle_us := Idle}} = Info,
        case ets:lookup(Table, Relay) of
            [{_, At, In0, Out0}] ->
                {InRate, OutRate} = {rate(In - In0, At), rate(Out - Out0, At)},
                add(Index, {InRate, OutRate, InRate + OutRate, Age / 1_000_000, Idle / 1_000_000}, {Relay, Info}, Most, Top);
            [] ->
                Top
        end
    end,
    [relay(Relay, Info, Values) || {_, {Relay, Info}, Values} <- largest(each_relay(Ask, Second, {0, gb_sets:new()}, 0))].

each_relay(Ask, Fun, State, Piece) ->
    case Ask(erlang, whereis, [weir_pollsets]) =/= undefined andalso Ask(weir_nif, relays, [Piece]) of
        {ok, Relays} ->
            Told = fun
                ({Relay, {ok, {_, _, #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}}} = Info}}, Then) -> Fun(Relay, {In, Out, Info}, Then);
                ({_, {error, closed}}, Then) -> Then
            end,
            Slice = fun(Some, Then) -> lists:foldl(Told, Then, lists:zip(Some, Ask(lists, map, [fun weir_nif:relay_info/1, Some]))) end,
            each_relay(Ask, Fun, sliced(Slice, State, Relays), Piece + 1);
        _ ->
            State
    end.

relay(Relay, {Owner, Pollset, #{reply_us := Times, first_byte_us := First}}, {In, Out, _, Age, Idle}) ->
    Own = #{relay => Relay, owner => Owner, pollset => Pollset, in => In, out => Out, age => Age, idle => Idle, replies => maps:get(count, Times)},
    maps:merge(maps:merge(Own, maps:with([p50, p99], Times)), maps:from_list([{first_byte_us, First} || is_integer(First)])).

%% Keeps the largest, and nothing that is zero.
add(Index, Values, What, Most, {Count, Set} = Top) ->
    case element(Index, Values) of
        Key when Key =< 0 ->
            Top;
        Key when Count < Most ->
            {Count + 1, gb_sets:add_element({Key, What, Values}, Set)};
        Key ->
            case gb_sets:take_smallest(Set) of
                {{Least, _, _}, _} when Least >= Key -> Top;
                {_, Rest} -> {Count, gb_sets:add_element({Key, What, Values}, Rest)}
            end
    end.

largest({_Count, Set}) -> lists:reverse(gb_sets:to_list(Set)).

sliced(_Fun, State, []) ->
    State;
sliced(Fun, State, List) ->
    {Slice, Rest} = slice(List, ?SLICE, []),
    Then = Fun(Slice, State),
    true = erlang:yield(),
    sliced(Fun, Then, Rest).

%% Without counting the list: that would be work in proportion to all for each slice.
slice([Element | Rest], Left, Slice) when Left > 0 -> slice(Rest, Left - 1, [Element | Slice]);
slice(Rest, _Left, Slice) -> {lists:reverse(Slice), Rest}.
