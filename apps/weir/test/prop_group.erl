%% A group delivers to each member a subsequence of the broadcasts during its membership, in order and each message
%% complete. A member that reads gets all of them.
-module(prop_group).

-include_lib("proper/include/proper.hrl").

-export([prop_group/0]).

%% More than there are messages.
-define(ENOUGH, 10000).

prop_group() ->
    ?FORALL(
        {Options, Kinds, Steps},
        {options(), vector(4, kind()), list(step())},
        weir_test_property:holds(fun() -> is_delivered(Options, Kinds, Steps) end)
    ).

is_delivered(Options, Kinds, Steps) ->
    {ok, Group} = weir_group:new(Options),
    Members = [member(Kind) || Kind <- Kinds],
    Numbered = lists:zip(lists:seq(1, length(Steps)), Steps),
    Expected = lists:foldl(fun(Step, Due) -> take(Step, Group, Members, Due) end, #{}, Numbered),
    ok = settle(Group),
    Got = [got(Member) || Member <- Members],
    ok = weir_group:delete(Group),
    Verdicts = [
        judge(is_complete(Kind, Options), Packets, maps:get(At, Expected, []))
     || {At, Kind, Packets} <- lists:zip3(lists:seq(1, 4), Kinds, Got)
    ],
    lists:all(fun(Verdict) -> Verdict =:= ok end, Verdicts) orelse
        {{expected, Expected}, {got, Got}, {verdicts, Verdicts}}.

options() ->
    ?LET(
        {Policy, Messages},
        {oneof([drop_oldest, drop_newest, conflate]), oneof([integer(1, 20), ?ENOUGH])},
        #{policy => Policy, max_messages => Messages, backlog => 1000}
    ).

%% A member that reads does so from the start; a slow one has little room and reads after the last broadcast.
kind() -> oneof([reads, slow]).

step() ->
    frequency([
        {6, {broadcast, oneof([integer(1, 200), integer(200, 30000)])}},
        {2, {join, integer(1, 4)}},
        {1, {leave, integer(1, 4)}},
        {1, {own, integer(1, 4), integer(1, 5000)}},
        {1, settle}
    ]).

%% The data due to each member by its number: messages of the group and its own sends, in order.
take({_, {join, At}}, Group, Members, Due) ->
    #{socket := Socket} = lists:nth(At, Members),
    ok = weir_group:join(Group, Socket),
    Due#{{in, At} => true};
take({_, {leave, At}}, Group, Members, Due) ->
    #{socket := Socket} = lists:nth(At, Members),
    Was = maps:is_key({in, At}, Due),
    case weir_group:leave(Group, Socket) of
        ok when Was -> ok;
        {error, not_member} when not Was -> ok
    end,
    maps:remove({in, At}, Due);
take({Number, {broadcast, Size}}, Group, _Members, Due) ->
    In = [At || {in, At} <- maps:keys(Due)],
    {ok, Count} = weir_group:broadcast(Group, packet(Number, Size)),
    true = Count =:= length(In),
    %% Waits before the next step, so that a member has its messages before it leaves.
    ok = settle(Group),
    lists:foldl(fun(At, D) -> add(At, {group, Number, Size}, D) end, Due, In);
take({Number, {own, At, Size}}, _Group, Members, Due) ->
    #{socket := Socket} = lists:nth(At, Members),
    ok = gen_tcp:send(Socket, packet(Number, Size)),
    add(At, {own, Number, Size}, Due);
take({_, settle}, Group, _Members, Due) ->
    ok = settle(Group),
    Due.

add(At, Packet, Due) ->
    maps:update_with(At, fun(Packets) -> [Packet | Packets] end, [Packet], Due).

packet(Number, Size) ->
    [<<Number:32>>, binary:copy(<<Number:8>>, Size)].

%% Waits until all broadcasts have been delivered.
settle(Group) ->
    Reference = make_ref(),
    {ok, _} = weir_group:broadcast(Group, [], #{notify => Reference, except => nobody()}),
    receive
        {weir_group, Group, Reference, _} -> ok
    after weir_test_wait:patience() -> {not_through, weir_group:info(Group)}
    end.

%% A socket that is not a member. The empty message only costs members its length.
nobody() ->
    {'$inet', weir_tcp, 0}.

%% Whether a member gets everything: it reads, and its backlog is allowed.
is_complete(reads, #{policy := Policy, max_messages := ?ENOUGH}) -> Policy =/= conflate;
is_complete(_Kind, _Options) -> false.

judge(_Complete, {broken, _} = Broken, _Due) ->
    Broken;
judge(Complete, Packets, Due) ->
    All = lists:reverse(Due),
    Got = [Packet || {_, _} = Packet <- Packets],
    Owns = [{Number, Size} || {own, Number, Size} <- All],
    Everything = [{Number, Size} || {_, Number, Size} <- All],
    case {is_subsequence(Got, Everything), Owns -- Got, Complete} of
        {false, _, _} -> {out_of_order, Got};
        {true, [_ | _] = Missing, _} -> {own_missing, Missing};
        {true, [], true} when Got =/= Everything -> {incomplete, Everything -- Got};
        {true, [], _} -> ok
    end.

is_subsequence([], _) -> true;
is_subsequence([Packet | Packets], [Packet | All]) -> is_subsequence(Packets, All);
is_subsequence(Packets, [_ | All]) -> is_subsequence(Packets, All);
is_subsequence(_, []) -> false.

%% Members ----------------------------------------------------------------------

member(Kind) ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, {ip, {127, 0, 0, 1}} | options(Kind)]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {packet, 4}, {active, false} | room(Kind)]),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    Parent = self(),
    Reader = spawn_link(fun() ->
        receive
            {go, Mine} -> Parent ! {got, self(), read(Mine, [])}
        end
    end),
    ok = gen_tcp:controlling_process(Peer, Reader),
    Kind =:= reads andalso (Reader ! {go, Peer}),
    #{socket => Socket, peer => Peer, reader => Reader}.

options(slow) -> [{sndbuf, 4096}, {high_watermark, 1 bsl 30} | options(reads)];
options(reads) -> [binary, {active, false}, {packet, 4}, {nodelay, true}].

room(slow) -> [{recbuf, 4096}];
room(reads) -> [].

read(Socket, Packets) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<>>} -> read(Socket, Packets);
        {ok, <<Number:32, Body/binary>>} -> read(Socket, [{Number, whole(Number, Body)} | Packets]);
        {error, closed} -> lists:reverse(Packets);
        {error, Reason} -> {broken, Reason}
    end.

whole(Number, Body) ->
    case binary:copy(<<Number:8>>, byte_size(Body)) of
        Body -> byte_size(Body);
        _ -> {broken, Number}
    end.

got(#{socket := Socket, peer := Peer, reader := Reader}) ->
    Reader ! {go, Peer},
    ok = gen_tcp:close(Socket),
    receive
        {got, Reader, Packets} -> Packets
    after weir_test_wait:patience() -> {broken, timeout}
    end.
