%% Sockets that several processes use at once: owner, options, reading and closing.
%%
%% Three processes each run one call after the other; a program says which process runs a call. One socket has pending
%% data and goes from owner to owner; another has none and is active at times. A socket that is handed over is passive
%% for a moment, as with gen_tcp, so the two are not mixed.
-module(prop_parallel_sockets).
-behaviour(proper_statem).
-behaviour(weir_parallel).

-include_lib("proper/include/proper.hrl").
-include("weir_parallel.hrl").

-export([with/1]).
-export([initial_state/0, command/1, precondition/2, postcondition/3, next_state/3]).
-export([give/3, owner/2, read/2, put_back/2, set_active/3, active/2, try_read/1, close/3]).

-define(ACTORS, 3).
%% More than a program reads.
-define(DATA, <<"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz">>).

%% The owner and remaining data of the given socket, the active mode of the other, and the closed sockets.
-record(model, {
    owner = 1 :: 1..?ACTORS,
    data = ?DATA :: binary(),
    active = false :: boolean() | once | pos_integer(),
    closed = [] :: [given | set]
}).

%% The world of a program ---------------------------------------------------------

with(Run) ->
    Actors = list_to_tuple([spawn_link(fun act/0) || _ <- lists:seq(1, ?ACTORS)]),
    {Given, Sender} = pair(),
    {Set, Peer} = pair(),
    ok = gen_tcp:send(Sender, ?DATA),
    %% All data has arrived; unrecv makes it look unread.
    {ok, ?DATA} = gen_tcp:recv(Given, byte_size(?DATA), weir_test_wait:patience()),
    ok = gen_tcp:unrecv(Given, ?DATA),
    ok = gen_tcp:controlling_process(Given, element(1, Actors)),
    ok = gen_tcp:controlling_process(Set, element(1, Actors)),
    try
        Run({Actors, #{given => Given, set => Set}})
    after
        _ = [gen_tcp:close(Socket) || Socket <- [Given, Sender, Set, Peer]]
    end.

pair() ->
    {ok, Listener} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listener),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    {ok, Socket} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    ok = gen_tcp:close(Listener),
    {Socket, Peer}.

act() ->
    receive
        {From, Reference, Call} ->
            From ! {Reference, weir_parallel:outcome(Call)},
            act()
    end.

ask(World, Actor, Call) ->
    weir_parallel:call(World, fun({Actors, Sockets}) ->
        ask(element(Actor, Actors), fun() -> Call(Actors, Sockets) end)
    end).

ask(Actor, Call) ->
    Reference = make_ref(),
    Actor ! {self(), Reference, Call},
    receive
        {Reference, Outcome} -> Outcome
    end.

%% Commands -------------------------------------------------------------------------

give(World, From, To) ->
    ask(World, From, fun(Actors, #{given := Socket}) -> gen_tcp:controlling_process(Socket, element(To, Actors)) end).

owner(World, Actor) ->
    ask(World, Actor, fun(Actors, #{given := {_, _, Handle}}) ->
        case weir_nif:owner(Handle) of
            {ok, Pid} -> {ok, length(lists:takewhile(fun(Each) -> Each =/= Pid end, tuple_to_list(Actors))) + 1};
            Error -> Error
        end
    end).

read(World, Actor) ->
    ask(World, Actor, fun(_, #{given := Socket}) -> gen_tcp:recv(Socket, 1, weir_test_wait:patience()) end).

put_back(World, Actor) -> ask(World, Actor, fun(_, #{given := Socket}) -> gen_tcp:unrecv(Socket, <<"!">>) end).

set_active(World, Actor, Active) ->
    ask(World, Actor, fun(_, #{set := Socket}) -> inet:setopts(Socket, [{active, Active}]) end).

active(World, Actor) -> ask(World, Actor, fun(_, #{set := Socket}) -> inet:getopts(Socket, [active]) end).

%% Only the first process reads: a second reader would get ealready while the first checks for data, as with gen_tcp.
try_read(World) -> ask(World, 1, fun(_, #{set := Socket}) -> gen_tcp:recv(Socket, 1, 0) end).

close(World, Actor, Which) -> ask(World, Actor, fun(_, Sockets) -> gen_tcp:close(map_get(Which, Sockets)) end).

%% The model ------------------------------------------------------------------------

initial_state() -> #model{}.

command(_Model) ->
    Actor = range(1, ?ACTORS),
    frequency([
        {8, {call, ?MODULE, give, [?WORLD, Actor, Actor]}},
        {3, {call, ?MODULE, owner, [?WORLD, Actor]}},
        {4, {call, ?MODULE, read, [?WORLD, Actor]}},
        {1, {call, ?MODULE, put_back, [?WORLD, Actor]}},
        {6, {call, ?MODULE, set_active, [?WORLD, Actor, oneof([true, false, once, 1, 5, 32767, -3, -32768])]}},
        {4, {call, ?MODULE, active, [?WORLD, Actor]}},
        {2, {call, ?MODULE, try_read, [?WORLD]}},
        {1, {call, ?MODULE, close, [?WORLD, Actor, oneof([given, set])]}}
    ]).

precondition(_Model, _Call) -> true.

postcondition(Model, {call, _, What, [_World | Arguments]}, Result) ->
    {Expected, _} = step(What, Arguments, Model),
    Result =:= Expected.

next_state(Model, _Result, {call, _, What, [_World | Arguments]}) ->
    {_, Next} = step(What, Arguments, Model),
    Next.

%% The result of a call, and the next model.
step(close, [_, Which], Model = #model{closed = Closed}) ->
    {ok, Model#model{closed = [Which | Closed]}};
step(What, Arguments, Model = #model{closed = Closed}) ->
    case lists:member(socket_of(What), Closed) of
        true -> {{error, when_closed(What)}, Model};
        false -> open(What, Arguments, Model)
    end.

socket_of(What) when What =:= set_active; What =:= active; What =:= try_read -> set;
socket_of(_What) -> given.

when_closed(What) when What =:= set_active; What =:= active -> einval;
when_closed(_What) -> closed.

%% Giving a socket to its present owner succeeds, whoever calls.
open(give, [_From, To], Model = #model{owner = To}) -> {ok, Model};
open(give, [From, To], Model = #model{owner = From}) -> {ok, Model#model{owner = To}};
open(give, [_From, _To], Model) -> {{error, not_owner}, Model};
open(owner, [_], Model = #model{owner = Owner}) -> {{ok, Owner}, Model};
open(read, [_], Model = #model{data = <<Byte:1/binary, Left/binary>>}) -> {{ok, Byte}, Model#model{data = Left}};
open(put_back, [_], Model = #model{data = Data}) -> {ok, Model#model{data = <<"!", Data/binary>>}};
open(active, [_], Model = #model{active = Active}) -> {{ok, [{active, Active}]}, Model};
open(try_read, [], Model = #model{active = false}) -> {{error, timeout}, Model};
open(try_read, [], Model) -> {{error, einval}, Model};
open(set_active, [_, Count], Model = #model{active = Active}) when is_integer(Count) ->
    case Count + count(Active) of
        Sum when Sum > 32767; Sum < -32768 -> {{error, einval}, Model};
        Sum when Sum > 0 -> {ok, Model#model{active = Sum}};
        _ -> {ok, Model#model{active = false}}
    end;
open(set_active, [_, Active], Model) -> {ok, Model#model{active = Active}}.

count(Active) when is_integer(Active) -> Active;
count(_Active) -> 0.
