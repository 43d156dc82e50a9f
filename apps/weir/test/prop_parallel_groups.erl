%% Memberships from two processes at once: the number of members that a group or a broadcast returns is that of one
%% moment between the beginning and the end of the call.
-module(prop_parallel_groups).
-behaviour(proper_statem).
-behaviour(weir_parallel).

-include_lib("proper/include/proper.hrl").
-include("weir_parallel.hrl").

-export([with/1]).
-export([initial_state/0, command/1, precondition/2, postcondition/3, next_state/3]).
-export([join/3, join_once/3, leave/3, withdraw/2, broadcast/2, size/2, members/2, delete/2, close/2]).

-define(SOCKETS, 3).
-define(GROUPS, 2).

-record(model, {
    members = #{} :: #{{group(), socket()} => always | once}, deleted = [] :: [group()], closed = [] :: [socket()]
}).

-type group() :: 1..?GROUPS.
-type socket() :: 1..?SOCKETS.

%% The world of a program ---------------------------------------------------------

with(Run) ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    Pairs = [pair(Listener, Port) || _ <- lists:seq(1, ?SOCKETS)],
    ok = gen_tcp:close(Listener),
    Groups = [new() || _ <- lists:seq(1, ?GROUPS)],
    try
        Run({list_to_tuple(Groups), list_to_tuple([Socket || {Socket, _} <- Pairs])})
    after
        _ = [gen_tcp:close(Socket) || {One, Other} <- Pairs, Socket <- [One, Other]],
        _ = [weir_group:delete(Group) || Group <- Groups]
    end.

pair(Listener, Port) ->
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    {Socket, Peer}.

new() ->
    {ok, Group} = weir_group:new(#{backlog => 1000, max_messages => 1000}),
    Group.

%% Commands -------------------------------------------------------------------------

join(World, Group, Socket) -> on(World, Group, Socket, fun weir_group:join/2).

join_once(World, Group, Socket) -> on(World, Group, Socket, fun(G, S) -> weir_group:join(G, S, #{once => true}) end).

leave(World, Group, Socket) -> on(World, Group, Socket, fun weir_group:leave/2).

withdraw(World, Socket) -> on_socket(World, Socket, fun weir_group:withdraw/1).

broadcast(World, Group) -> on_group(World, Group, fun(G) -> weir_group:broadcast(G, <<"message">>) end).

size(World, Group) -> on_group(World, Group, fun weir_group:size/1).

members(World, Group) ->
    on_group(World, Group, fun(G) ->
        case weir_group:info(G) of
            {ok, #{members := Members}} -> {ok, Members};
            Error -> Error
        end
    end).

delete(World, Group) -> on_group(World, Group, fun weir_group:delete/1).

close(World, Socket) -> on_socket(World, Socket, fun gen_tcp:close/1).

on(World, Group, Socket, Call) ->
    weir_parallel:call(World, fun({Groups, Sockets}) -> Call(element(Group, Groups), element(Socket, Sockets)) end).

on_group(World, Group, Call) -> weir_parallel:call(World, fun({Groups, _}) -> Call(element(Group, Groups)) end).

on_socket(World, Socket, Call) -> weir_parallel:call(World, fun({_, Sockets}) -> Call(element(Socket, Sockets)) end).

%% The model ------------------------------------------------------------------------

initial_state() -> #model{}.

%% Only the first group is broadcast to. A message ends a one-message membership when it is written, which is later;
%% such memberships are in the second group, which gets no messages.
command(_Model) ->
    {Group, Socket} = {range(1, ?GROUPS), range(1, ?SOCKETS)},
    frequency([
        {6, {call, ?MODULE, join, [?WORLD, Group, Socket]}},
        {3, {call, ?MODULE, join_once, [?WORLD, 2, Socket]}},
        {5, {call, ?MODULE, leave, [?WORLD, Group, Socket]}},
        {2, {call, ?MODULE, withdraw, [?WORLD, Socket]}},
        {4, {call, ?MODULE, broadcast, [?WORLD, 1]}},
        {4, {call, ?MODULE, size, [?WORLD, Group]}},
        {2, {call, ?MODULE, members, [?WORLD, Group]}},
        {1, {call, ?MODULE, delete, [?WORLD, Group]}},
        {1, {call, ?MODULE, close, [?WORLD, Socket]}}
    ]).

%% A socket that closes leaves its groups one after the other, which is no single moment.
precondition(#model{members = Members}, {call, _, close, [_World, Socket]}) ->
    length([Group || {Group, Of} <- maps:keys(Members), Of =:= Socket]) < 2;
precondition(_Model, _Call) ->
    true.

postcondition(Model, {call, _, What, [_World | Arguments]}, Result) ->
    {Expected, _} = step(What, Arguments, Model),
    Result =:= Expected.

next_state(Model, _Result, {call, _, What, [_World | Arguments]}) ->
    {_, Next} = step(What, Arguments, Model),
    Next.

%% The result of a call, and the next model.
step(join, [Group, Socket], Model) -> joined(Group, Socket, always, Model);
step(join_once, [Group, Socket], Model) -> joined(Group, Socket, once, Model);
step(leave, [Group, Socket], Model = #model{members = Members}) ->
    case Members of
        #{{Group, Socket} := _} -> {ok, Model#model{members = maps:remove({Group, Socket}, Members)}};
        #{} -> {{error, not_member}, Model}
    end;
step(withdraw, [Socket], Model = #model{members = Members, closed = Closed}) ->
    Left = maps:filter(fun({_, Of}, Kind) -> Of =/= Socket orelse Kind =/= once end, Members),
    {unless(lists:member(Socket, Closed), ok), Model#model{members = Left}};
step(broadcast, [Group], Model) -> {counted(Group, Model), Model};
step(members, [Group], Model) -> {counted(Group, Model), Model};
step(size, [Group], Model) -> {count(Group, Model), Model};
step(delete, [Group], Model = #model{deleted = Deleted}) ->
    {ok, without(fun({Of, _}) -> Of =:= Group end, Model#model{deleted = [Group | Deleted]})};
step(close, [Socket], Model = #model{closed = Closed}) ->
    {ok, without(fun({_, Of}) -> Of =:= Socket end, Model#model{closed = [Socket | Closed]})}.

joined(Group, Socket, Kind, Model = #model{members = Members, deleted = Deleted, closed = Closed}) ->
    case lists:member(Group, Deleted) orelse lists:member(Socket, Closed) of
        true -> {{error, closed}, Model};
        false -> {ok, Model#model{members = maps:merge(#{{Group, Socket} => Kind}, Members)}}
    end.

counted(Group, Model = #model{deleted = Deleted}) -> unless(lists:member(Group, Deleted), {ok, count(Group, Model)}).

unless(true, _Result) -> {error, closed};
unless(false, Result) -> Result.

count(Group, #model{members = Members}) -> length([Socket || {Of, Socket} <- maps:keys(Members), Of =:= Group]).

without(IsGone, Model = #model{members = Members}) ->
    Model#model{members = maps:filter(fun(Membership, _) -> not IsGone(Membership) end, Members)}.
