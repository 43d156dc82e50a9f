%% Serves a page for the tests, and makes requests to it.
-module(weir_scope_served).

-include_lib("common_test/include/ct.hrl").

-export([start/1, start/2, replay/1, stop/1, recording/1]).
-export([with/2, without/1]).
-export([ask/2, bearer/1, host/0, token/0]).

%% Starts applications for a suite, which stops them in `served_suite.hrl'.
with(Applications, Config) ->
    Started = lists:append([
        element(2, {ok, _} = application:ensure_all_started(Application))
     || Application <- Applications
    ]),
    [{started, Started} | Config].

without(Config) ->
    lists:foreach(fun application:stop/1, lists:reverse(proplists:get_value(started, Config))).

token() -> <<"of sixteen bytes at least">>.

start(Options) -> start(node(), Options).

start(Node, Options) ->
    {ok, Checked} = weir_scope_web:check(maps:merge(#{token => token()}, Options)),
    {ok, Pid} = weir_scope_web:start_link({weir_scope_feed, {Node, #{}}}, Checked),
    Pid.

stop(Pid) ->
    exit(Pid, shutdown),
    receive {'EXIT', Pid, _} -> ok after weir_test_wait:patience() -> ct:fail(stays) end.

%% Makes a request over a socket of OTP, with the given fields.
ask(Path, Fields) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, weir_scope_web:port(), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, [
        "GET ",
        Path,
        " HTTP/1.1\r\nconnection: close\r\n",
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields],
        "\r\n"
    ]),
    Answer = received(Socket, <<>>),
    [Head, Body] = binary:split(Answer, <<"\r\n\r\n">>),
    <<"HTTP/1.1 ", Status:3/binary, _/binary>> = Head,
    {binary_to_integer(Status), Head, Body}.

received(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, More} -> received(Socket, <<Bytes/binary, More/binary>>);
        {error, closed} -> Bytes
    end.

bearer(Token) -> {"authorization", ["Bearer ", Token]}.
host() -> {"host", "127.0.0.1"}.

%% The first case that needs the recording makes it.
recording(Config) ->
    File = filename:join(?config(priv_dir, Config), "recording"),
    _ = filelib:is_file(File) orelse begin
        {ok, View} = weir_scope:open(node(), #{}),
        {ok, 2} = weir_scope_recording:record({node(), View}, File, #{seconds => 2}),
        ok = weir_scope:close(View)
    end,
    File.

replay(File) ->
    {ok, Checked} = weir_scope_web:check(#{token => token()}),
    {ok, Pid} = weir_scope_web:start_link({weir_scope_replay, File}, Checked),
    Pid.
