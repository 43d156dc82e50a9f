%% Clients of long polls that keep their connections, and the state of those that wait together.
-module(weir_pubsub_polls_test).

-export([init_case/1]).
-export([end_case/0]).
-export([restart/2]).
-export([port/0]).
-export([publish/1]).
-export([publish/2]).
-export([connect/0]).
-export([poll/1]).
-export([poll/2]).
-export([bytes/2]).
-export([answer/1]).
-export([silent/1]).
-export([resume/1]).
-export([wait/1]).
-export([wait/2]).
-export([wait/3]).
-export([again/2]).
-export([subscribers/0]).
-export([until_subscribers/1]).
-export([together/0]).
-export([crowds/0]).
-export([rows/0]).
-export([nobody/0]).
-export([shard/0]).
-export([kill_shard/0]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").
-include("../src/weir_pubsub.hrl").

-import(weir_pubsub_nchan, [request/5]).

init_case(Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{}),
    start(#{}, #{}),
    Config.

end_case() ->
    _ = weir_http:stop_listener(?MODULE),
    ok = application:stop(weir_pubsub).

start(Listener, Options) ->
    {ok, _} = weir_http:start_listener(
        ?MODULE, Listener#{ip => {127, 0, 0, 1}}, weir_pubsub_http:routes(Options#{publishers => any})
    ).

restart(Listener, Options) ->
    ok = weir_http:stop_listener(?MODULE),
    start(Listener, Options).

port() -> weir:get_port(?MODULE).

publish(Data) -> publish(Data, []).

publish(Data, Fields) ->
    {Status, _, Body} = request(port(), <<"POST">>, "/pub/a", Fields, Data),
    {Status, Body}.

connect() ->
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}, {nodelay, true}]),
    Client.

poll(Client) -> poll(Client, []).

poll(Client, Fields) -> ok = gen_tcp:send(Client, bytes(<<"GET">>, Fields)).

bytes(Method, Fields) ->
    [
        Method,
        " /sub/a HTTP/1.1\r\nHost: localhost\r\n",
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields],
        "\r\n"
    ].

answer(Client) -> answer(Client, <<>>).

answer(Client, Bytes) ->
    case binary:split(Bytes, <<"\r\n\r\n">>) of
        [Head, Begun] ->
            [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
            Fields = [
                {string:lowercase(Name), string:trim(Value)}
             || Line <- Lines, [Name, Value] <- [binary:split(Line, <<":">>)]
            ],
            Length = binary_to_integer(proplists:get_value(<<"content-length">>, Fields)),
            {binary_to_integer(Status), Fields, body(Client, Length, Begun)};
        [_] ->
            {ok, More} = gen_tcp:recv(Client, 0, weir_test_wait:patience()),
            answer(Client, <<Bytes/binary, More/binary>>)
    end.

%% Nothing comes after it: one response to one request.
body(_Client, Length, Begun) when Length =:= byte_size(Begun) ->
    Begun;
body(Client, Length, Begun) when Length > byte_size(Begun) ->
    {ok, More} = gen_tcp:recv(Client, Length - byte_size(Begun), weir_test_wait:patience()),
    <<Begun/binary, More/binary>>.

silent(Client) -> ?assertEqual({error, timeout}, gen_tcp:recv(Client, 0, 0)).

resume({_, Fields, _}) ->
    [
        {"If-Modified-Since", proplists:get_value(<<"last-modified">>, Fields)},
        {"If-None-Match", proplists:get_value(<<"etag">>, Fields)}
    ].

%% `Count' polls wait, most of them together. They start one after the other, each when the claim on the shard is
%% free: otherwise a poll subscribes alone.
wait(Count) -> wait(Count, fun(_) -> [] end).

wait(Count, Fields) -> wait(Count, Fields, Count div 2).

wait(Count, Fields, Together) ->
    Clients = [connect() || _ <- lists:seq(1, Count)],
    again(lists:zip(lists:seq(1, Count), Clients), Fields),
    ?assert(together() >= Together),
    Clients.

again(Clients, Fields) ->
    %% A poll that waited alone is counted until its shard hears that it is over.
    ok = nobody(),
    lists:foldl(
        fun({Number, Client}, There) ->
            ok = weir_pubsub_test:idle(<<"a">>),
            ok = poll(Client, Fields(Number)),
            ok = until_subscribers(There + 1),
            There + 1
        end,
        0,
        Clients
    ).

subscribers() ->
    case weir_pubsub:info(<<"a">>) of
        {ok, #{subscribers := Count}} -> Count;
        {error, _} -> 0
    end.

until_subscribers(Count) ->
    ?waitEqual(Count, subscribers()),
    ok.

%% The polls that are in groups.
together() -> weir_pubsub_poll_group:waiting(crowds()).

crowds() ->
    {ok, {Channels, _, _}} = weir_pubsub_shards:tables_of(<<"a">>),
    ets:lookup_element(Channels, <<"a">>, #channel.crowds).

rows() ->
    {ok, {_, _, Subscribers}} = weir_pubsub_shards:tables_of(<<"a">>),
    [Row || {_, Row} <- weir_pubsub_subscribers:all(Subscribers)].

%% No poll is left in any table or count.
nobody() ->
    ok = until_subscribers(0),
    ?waitEqual([], rows()),
    ?waitMatch({ok, #{subscribers := 0}}, weir_pubsub_limits:usage(total)),
    ok.

shard() ->
    {ok, {Channels, _, _}} = weir_pubsub_shards:tables_of(<<"a">>),
    ets:info(Channels, owner).

kill_shard() ->
    Pid = shard(),
    Monitor = monitor(process, Pid),
    true = exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, _, _} -> ok
    after weir_test_wait:patience() -> error({still_alive, Pid})
    end.
