%% Random histories of group members: they join, leave and join again with a first message, move to other pollsets and
%% to a reactor, and are reset by their peers, while messages are broadcast. Every peer gets the messages of a group
%% in order and none twice; every broadcast ends; in the end there are no members.
-module(weir_scenario_groups).
-behaviour(weir_reactor).

-include_lib("stdlib/include/assert.hrl").

-export([run/2]).
-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).

-import(weir_test_wait, [patience/0, wait_until/1]).
-import(weir_scenario, [one_of/1, seed/1, start_disturber/2, stop_disturber/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(GROUPS, 2).
-define(MEMBERS, 12).
-define(BROADCASTS, 60).

%% Runs rounds with random numbers of this seed, and fails with what violated an invariant.
-spec run(term(), pos_integer()) -> ok.
run(Seed, Rounds) ->
    lists:foreach(fun(Round) -> play({Seed, Round}) end, lists:seq(1, Rounds)).

play(Seed) ->
    ok = seed(Seed),
    {ok, Listener} = gen_tcp:listen(0, [
        {tcp_module, weir_tcp},
        binary,
        {active, false},
        {packet, 4},
        {ip, ?LOOPBACK},
        {backlog, 64},
        {sndbuf, one_of([4096, 65536])}
    ]),
    {ok, Port} = inet:port(Listener),
    {ok, Reactor} = weir_reactor:start_link(#{module => ?MODULE}),
    Sequences = counters:new(?GROUPS, []),
    Groups = [{Number, new_group()} || Number <- lists:seq(1, ?GROUPS)],
    Members = [
        start_member(Listener, Port, {Seed, Number}, {Groups, Sequences, Reactor})
     || Number <- lists:seq(1, ?MEMBERS)
    ],
    Mover = start_disturber({Seed, mover}, fun() -> move([Socket || {_, _, Socket} <- Members]) end),
    try
        Broadcasters = [start_broadcaster(Group, Sequences) || Group <- Groups],
        Outcomes = [{{broadcaster, Pid}, outcome(Pid)} || Pid <- Broadcasters],
        _ = [Holder ! stop || {_, Holder, _} <- Members],
        All = Outcomes ++ [{{peer, Peer}, outcome(Peer)} || {Peer, _, _} <- Members],
        ?assertEqual({Seed, []}, {Seed, [Wrong || {_, Outcome} = Wrong <- All, Outcome =/= ok]})
    after
        stop_disturber(Mover),
        ok = proc_lib:stop(Reactor),
        ok = gen_tcp:close(Listener)
    end,
    [wait_until(fun() -> weir_group:size(Group) =:= 0 orelse weir_group:info(Group) end) || {_, Group} <- Groups],
    lists:foreach(fun({_, Group}) -> ok = weir_group:delete(Group) end, Groups).

new_group() ->
    Policy = one_of([drop_oldest, drop_newest, conflate, disconnect, leave]),
    {ok, Group} = weir_group:new(#{policy => Policy, max_messages => one_of([1, 4, 64]), backlog => one_of([2, 64])}),
    Group.

outcome(Who) ->
    receive
        {ended, Who, Outcome} -> Outcome
    after patience() -> no_end
    end.

%% Broadcasts ---------------------------------------------------------------------

%% As many in flight as the group allows.
start_broadcaster({Number, Group}, Sequences) ->
    Parent = self(),
    spawn_link(fun() ->
        References = [broadcast(Number, Group, Sequences) || _ <- lists:seq(1, ?BROADCASTS)],
        Parent ! {ended, self(), all_told(References)}
    end).

broadcast(Number, Group, Sequences) ->
    ok = counters:add(Sequences, Number, 1),
    try_to_broadcast(Group, message(Number, counters:get(Sequences, Number)), make_ref()).

try_to_broadcast(Group, Message, Reference) ->
    case weir_group:broadcast(Group, Message, #{notify => Reference}) of
        {ok, _} ->
            Reference;
        {error, busy} ->
            receive after 1 -> ok end,
            try_to_broadcast(Group, Message, Reference)
    end.

%% Large enough to fill small kernel buffers.
message(Number, Sequence) -> <<Number:8, Sequence:32, 0:(8 * 500)>>.

all_told([]) ->
    ok;
all_told([Reference | References]) ->
    receive
        {weir_group, _, Reference, _} -> all_told(References)
    after patience() -> {never_told, length(References) + 1}
    end.

%% Members ------------------------------------------------------------------------

start_member(Listener, Port, Seed, {Groups, Sequences, Reactor}) ->
    Parent = self(),
    Pace = one_of([0, 0, 0, 1, 5]),
    Finish = one_of([read, read, reset]),
    Peer = spawn_link(fun() ->
        ok = seed({Seed, peer}),
        {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [
            binary, {packet, 4}, {active, false}, {recbuf, one_of([4096, 65536])}
        ]),
        Parent ! {ended, self(), read(Socket, #{}, Pace, Finish)}
    end),
    {ok, Socket} = gen_tcp:accept(Listener, patience()),
    Holder = spawn(fun() ->
        ok = seed({Seed, holder}),
        receive
            go -> hold(Socket, Groups, Sequences, Reactor)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, Holder),
    Holder ! go,
    {Peer, Holder, Socket}.

hold(Socket, Groups, Sequences, Reactor) ->
    {Number, Group} = one_of(Groups),
    case rand:uniform(20) of
        1 -> weir_reactor:adopt(Reactor, Socket, none);
        2 -> inet:setopts(Socket, [{active, one_of([true, false, once])}]);
        N when N < 6 -> weir_group:leave(Group, Socket);
        N when N < 12 -> weir_group:join(Group, Socket);
        N when N < 18 -> join_anew(Number, Group, Socket, Sequences);
        _ -> weir_group:join(Group, Socket, #{once => true})
    end,
    receive
        %% A connection of the reactor ends with the reactor.
        stop -> gen_tcp:close(Socket)
    after rand:uniform(4) - 1 -> hold(Socket, Groups, Sequences, Reactor)
    end.

%% Until it has left, a member may get a later message than its new first one.
join_anew(Number, Group, Socket, Sequences) ->
    _ = weir_group:leave(Group, Socket),
    weir_group:join(Group, Socket, #{first => message(Number, counters:get(Sequences, Number))}).

read(Socket, _Last, _Pace, 0) ->
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    gen_tcp:close(Socket);
read(Socket, Last, Pace, reset) ->
    read(Socket, Last, Pace, rand:uniform(30));
read(Socket, Last, Pace, Finish) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, <<Number:8, Sequence:32, 0:(8 * 500)>>} ->
            case maps:get(Number, Last, 0) of
                %% A new member's first message may be the last broadcast again.
                Before when Before =< Sequence ->
                    Pace > 0 andalso timer:sleep(rand:uniform(Pace)),
                    read(Socket, Last#{Number => Sequence}, Pace, one_less(Finish));
                Before ->
                    {group, Number, got, Sequence, behind, Before}
            end;
        {ok, Other} ->
            {unknown, Other};
        {error, Reason} when Reason =:= closed; Reason =:= econnreset ->
            gen_tcp:close(Socket)
    end.

one_less(read) -> read;
one_less(Messages) -> Messages - 1.

move(Sockets) ->
    _ = weir:migrate(one_of(Sockets), rand:uniform(erlang:system_info(schedulers))),
    ok.

%% The reactor ----------------------------------------------------------------------

init(_Socket, none) -> {ok, none}.

handle_data(_Socket, _Data, none) -> {ok, none}.

handle_close(_Socket, _Reason, none) -> {ok, none}.
