%% Shared by the suites of misfortune.
-module(weir_misfortune_test).

-export([owned/2]).
-export([wait_for_process_in/2]).
-export([in_wait/1]).
-export([in_close/1]).
-export([plenty/0]).
-export([assert_arrives/2]).
-export([spin/1]).
-export([send_until_closed/2]).
-export([info/1]).
-export([is_open/1]).
-export([stingy_pair/1]).
-export([stingy_pair/2]).
-export([left_behind/1]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/3, async/1, await/1, kill/1, pid/1]).
-import(weir_test_wait, [wait_until/1, recv_all/1]).

%% More than the kernel takes, so that most of it is in the send queue. No two parts are alike.
-define(PLENTY, 2000000).

%% Gives a socket of the caller to a process that runs a function.
owned(Socket, Fun) ->
    Owner = async(fun() ->
        receive
            go -> Fun()
        end
    end),
    ok = gen_tcp:controlling_process(Socket, pid(Owner)),
    pid(Owner) ! go,
    Owner.

wait_for_process_in(Async, Function) ->
    wait_until(fun() ->
        case process_info(pid(Async), [status, current_function]) of
            [{status, waiting}, {current_function, Function}] -> true;
            _ -> false
        end
    end).

in_wait(Async) ->
    wait_for_process_in(Async, {weir_operation, await_until, 4}).

in_close(Async) ->
    wait_for_process_in(Async, {weir_flush, await_flush, 4}).

plenty() ->
    <<<<N:32>> || N <- lists:seq(1, ?PLENTY div 4)>>.

%% The peer gets all data, and then the end. An assertion macro would print megabytes, so they are compared without
%% one.
assert_arrives(Data, Peer) ->
    {Received, End} = recv_all(Peer),
    ?assertEqual({byte_size(Data), closed}, {byte_size(Received), End}),
    ?assert(Received =:= Data).

spin(0) -> ok;
spin(N) -> spin(N - 1).

send_until_closed(Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> send_until_closed(Socket, Data);
        Error -> Error
    end.

info({'$inet', weir_tcp, Handle}) ->
    case weir_nif:info(Handle) of
        {ok, Info} -> Info;
        {error, closed} -> closed
    end.

is_open(Socket) ->
    info(Socket) =/= closed.

stingy_pair(Config) ->
    stingy_pair(Config, []).

stingy_pair(Config, Options) ->
    socket_pair(Config, [binary, {active, false}, {sndbuf, 8192} | Options], [{recbuf, 8192}]).

%% A socket whose owner has died with data in its queue, its peer, and the data.
left_behind(Config) ->
    {Socket, Peer} = stingy_pair(Config),
    Data = plenty(),
    Owner = owned(Socket, fun() -> gen_tcp:send(Socket, Data) end),
    ok = await(Owner),
    ok = kill(Owner),
    wait_until(fun() -> maps:get(owner, info(Socket)) =:= undefined end),
    {Socket, Peer, Data}.
