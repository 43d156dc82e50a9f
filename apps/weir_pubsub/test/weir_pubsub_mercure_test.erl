%% A Mercure hub, its publishers and subscribers.
-module(weir_pubsub_mercure_test).

-export([init_case/1]).
-export([end_case/0]).
-export([secret/0]).
-export([start/1]).
-export([port/0]).
-export([token/1]).
-export([bearer/1]).
-export([publish/1]).
-export([publish/2]).
-export([subscribe/2]).
-export([subscribed/1]).
-export([hears/2]).
-export([until_closed/1]).

-include_lib("weir_testing/include/weir_test.hrl").

-import(weir_pubsub_nchan, [request/5, read_stream/2]).

-define(SECRET, <<"a secret of thirty-two bytes or more">>).
-define(HUB, "/.well-known/mercure").

secret() -> ?SECRET.

init_case(Config) ->
    {ok, _} = application:ensure_all_started(weir_pubsub),
    ok = weir_pubsub:configure(#{channels => [{weir_pubsub_mercure:channel(), #{max_messages => 3}}]}),
    ok = weir_pubsub_keys:load(?MODULE, [{secret, proplists:get_value(secret, Config)}]),
    start(#{}),
    Config.

end_case() ->
    _ = weir_http:stop_listener(?MODULE),
    ok = weir_pubsub_keys:forget(?MODULE),
    ok = application:stop(weir_pubsub).

start(Options) ->
    _ = weir_http:stop_listener(?MODULE),
    Hub = weir_pubsub_mercure:routes(maps:merge(#{keys => ?MODULE, tokens => #{require_exp => false}}, Options)),
    {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}}, Hub ++ weir_pubsub_http:routes(#{})).

port() -> weir:get_port(?MODULE).

token(Claims) ->
    Url = fun(Bytes) ->
        <<
            <<
                (case C of
                    $+ -> $-;
                    $/ -> $_;
                    _ -> C
                end)
            >>
         || <<C>> <= base64:encode(iolist_to_binary(Bytes)), C =/= $=
        >>
    end,
    Signed = <<(Url("{\"alg\":\"HS256\"}"))/binary, $., (Url(weir_json:compact(Claims)))/binary>>,
    <<Signed/binary, $., (Url(crypto:mac(hmac, sha256, ?SECRET, Signed)))/binary>>.

bearer(Mercure) -> {"Authorization", ["Bearer ", token(#{mercure => Mercure})]}.

%% Publishes with a token for all topics.
publish(Form) -> publish(Form, [bearer(#{publish => [<<"*">>]})]).

publish(Form, Fields) ->
    Body = unicode:characters_to_binary(uri_string:compose_query(Form)),
    {Status, _, Answer} = request(
        port(), <<"POST">>, ?HUB, [{"Content-Type", "application/x-www-form-urlencoded"} | Fields], Body
    ),
    {Status, Answer}.

%% Opens a stream, and waits for its head.
subscribe(Topics, Fields) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(), [binary, {active, false}]),
    Query = uri_string:compose_query([{"topic", Topic} || Topic <- Topics]),
    ok = gen_tcp:send(Socket, [
        "GET ",
        ?HUB,
        "?",
        Query,
        " HTTP/1.1\r\nHost: localhost\r\n",
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields],
        "\r\n"
    ]),
    Socket.

subscribed(Count) ->
    ?waitEqual(Count, maps:get(subscribed, weir_pubsub:counters())),
    ok.

%% Reads a stream up to a last word. Returns this and its fields.
hears(Socket, Last) ->
    {200, Fields, Body} = read_stream(Socket, Last),
    {Fields, [Data || <<"data: ", Data/binary>> <- binary:split(Body, <<"\n">>, [global])], Body}.

until_closed(Socket) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Data} -> <<Data/binary, (until_closed(Socket))/binary>>;
        {error, closed} -> <<>>
    end.
