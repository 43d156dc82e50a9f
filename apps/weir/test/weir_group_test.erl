%% Shared by the suites of groups.
-module(weir_group_test).

-export([new/0]).
-export([new/1]).
-export([member/2]).
-export([member/3]).
-export([slow/2]).
-export([through/2]).
-export([through_to/3]).
-export([numbered/2]).
-export([numbers/2]).
-export([broadcast_numbered/3]).
-export([rest/2]).
-export([info/2]).
-export([flood/2]).

-export([through_when_not_busy/2]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/2, socket_pair/3, async/1, await/1, pid/1]).
-import(weir_test_wait, [wait_until/1, recv_all/1, recv_exactly/2, patience/0]).


new() ->
    new(#{}).

new(Options) ->
    {ok, Group} = weir_group:new(Options),
    Group.

%% A member and its peer.
member(Config, Group) ->
    member(Config, Group, []).

member(Config, Group, Options) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {nodelay, true} | Options]),
    ok = weir_group:join(Group, Socket),
    {Socket, Peer}.

%% A member whose peer has small buffers and does not read.
slow(Config, Group) ->
    {Socket, Peer} = socket_pair(Config, [binary, {active, false}, {sndbuf, 4096}], [{recbuf, 4096}]),
    ok = weir_group:join(Group, Socket),
    {Socket, Peer}.

%% Broadcasts and waits for the notification.
through(Group, Message) ->
    Reference = make_ref(),
    {ok, Members} = weir_group:broadcast(Group, Message, #{notify => Reference}),
    receive
        {weir_group, Group, Reference, Outcomes} -> {Members, Outcomes}
    after patience() -> ct:fail({not_through, weir_group:info(Group)})
    end.

%% The same, and makes each of these peers receive the message, so that none has a backlog.
through_to(Peers, Group, Message) ->
    Through = through(Group, Message),
    [?assertEqual(Message, recv_exactly(Peer, byte_size(Message))) || Peer <- Peers],
    Through.

%% Numbered messages of a size.
numbered(Number, Size) ->
    <<Number:32, 0:(Size - 4)/unit:8>>.

numbers(Bytes, Size) ->
    [Number || <<Number:32, _:(Size - 4)/binary>> <= Bytes].

broadcast_numbered(Group, Count, Size) ->
    [through(Group, numbered(Number, Size)) || Number <- lists:seq(1, Count)].

%% Returns everything that a peer gets before its member is closed.
rest(Socket, Peer) ->
    Reader = async(fun() -> receive go -> ok end, element(1, recv_all(Peer)) end),
    ok = gen_tcp:controlling_process(Peer, pid(Reader)),
    pid(Reader) ! go,
    ok = gen_tcp:close(Socket),
    await(Reader).

info(Group, What) ->
    {ok, #{What := Value}} = weir_group:info(Group),
    Value.

%% Slow members ----------------------------------------------------------------

%% Sends more than fits into a slow member. Returns what it gets in the end, and the counts.
flood(Config, Policy) ->
    Group = new(#{policy => Policy, max_messages => 5}),
    {Socket, Peer} = slow(Config, Group),
    broadcast_numbered(Group, 300, 1000),
    {ok, Info} = weir_group:info(Group),
    {Info, numbers(rest(Socket, Peer), 1000)}.

through_when_not_busy(Group, Message) ->
    wait_until(fun() -> info(Group, pending) =:= 0 end),
    through(Group, Message).
