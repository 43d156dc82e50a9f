%% Shared by the suites weir_tcp_sendfile_SUITE and weir_tcp_sendfile_ends_SUITE.
-module(weir_tcp_sendfile_test).

-export([contents/1]).
-export([file/2]).
-export([open/2]).
-export([open_with/2]).
-export([pair/1]).
-export([send_whole/2]).
-export([is_weir/1]).
-export([assert_refused/2]).
-export([stuck/2]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_peer, [socket_pair/3, async/1, assert_waits/1, pid/1]).

%% The bytes of a file show their place: each 64 bytes are a number, 16 times.
contents(Size) ->
    binary:part(<<<<(binary:copy(<<N:32>>, 16))/binary>> || N <- lists:seq(1, Size div 64 + 1)>>, 0, Size).

file(Config, Contents) ->
    Name = filename:join(
        proplists:get_value(priv_dir, Config), "file-" ++ integer_to_list(erlang:unique_integer([positive]))
    ),
    ok = file:write_file(Name, Contents),
    Name.

open(Config, Contents) ->
    open_with(file(Config, Contents), [read, raw, binary]).

open_with(Name, Modes) ->
    {ok, File} = file:open(Name, Modes),
    File.

%% The peer reads with a large buffer.
pair(Config) ->
    socket_pair(Config, [binary, {active, false}], [{buffer, 1 bsl 18}]).

send_whole(File, Socket) ->
    file:sendfile(File, Socket, 0, 0, []).

is_weir(Config) ->
    proplists:get_value(backend, Config) =/= [].

%% After OTP 25, stock reports the end to send once more.
assert_refused(Config, Socket) ->
    {error, Reason} = gen_tcp:send(Socket, <<"x">>),
    ?assert(Reason =:= enotconn orelse not is_weir(Config)).

%% Hands the socket to a process that sends the file, and waits until it blocks. Only the process that opened the file
%% may use it.
stuck(Socket, Name) ->
    Sender = async(fun() ->
        File = open_with(Name, [read, raw, binary]),
        receive
            go -> ok
        end,
        Result = send_whole(File, Socket),
        ok = file:close(File),
        Result
    end),
    ok = gen_tcp:controlling_process(Socket, pid(Sender)),
    pid(Sender) ! go,
    assert_waits(Sender),
    Sender.
