%% @doc `weir push status': prints a line of figures each second, from the `/status' of a push server.
-module(weir_cli_push_status).

-export([run/1]).

-define(URL, "http://127.0.0.1:8080").
-define(PATIENCE, 5000).
-define(HEADER_EVERY, 20).

-spec run([string()]) -> weir_cli:outcome().
run(Arguments) ->
    case weir_cli_options:parse(options(), Arguments) of
        {ok, #{help := true}, _} -> {help, help()};
        {ok, #{count := Count}, []} -> watch(?URL, Count);
        {ok, #{count := Count}, [Url]} -> watch(Url, Count);
        {ok, _, [_, Extra | _]} -> {usage, ["unexpected argument: ", Extra, " (weir push status --help)"]};
        {error, Message} -> {usage, [Message, " (weir push status --help)"]}
    end.

options() ->
    [
        #{
            name => count,
            type => {integer, 0, 1000000},
            value => "N",
            default => 0,
            help => "number of lines, 0 is until Ctrl+C (0)"
        },
        #{name => help, type => flag, help => "this text"}
    ].

help() ->
    [
        "weir push status: print figures of a push server, a line each second\n"
        "\n"
        "usage: weir push status [OPTION...] [URL]\n"
        "\n"
        "URL is the address of the server (" ?URL "). Published, delivered and gaps are counts of the last second.\n"
        "\n",
        weir_cli_options:help(options())
    ].

watch(Url, Count) ->
    case uri_string:parse(Url) of
        #{scheme := "http", host := Host} = Parts ->
            case status(Host, maps:get(port, Parts, 80)) of
                {ok, First} -> lines(Host, maps:get(port, Parts, 80), First, 0, Count);
                {error, Text} -> {failed, [Url, ": ", Text]}
            end;
        _ ->
            {usage, [Url, " is not a URL such as " ?URL]}
    end.

lines(_Host, _Port, _Before, Count, Count) when Count > 0 ->
    ok;
lines(Host, Port, Before, Number, Count) ->
    Number rem ?HEADER_EVERY =:= 0 andalso
        io:put_chars(line(["published", "delivered", "subscribers", "channels", "connections", "gaps"])),
    timer:sleep(1000),
    case status(Host, Port) of
        {ok, Now} ->
            io:put_chars(line([integer_to_list(Value) || Value <- figures(Before, Now)])),
            lines(Host, Port, Now, Number + 1, Count);
        {error, Text} ->
            {failed, Text}
    end.

line(Cells) -> [[string:pad(Cell, 12, leading) || Cell <- Cells], "\n"].

figures(#{<<"counters">> := Before}, #{<<"counters">> := Counters, <<"now">> := There, <<"listeners">> := Listeners}) ->
    Since = fun(Name) -> maps:get(Name, Counters) - maps:get(Name, Before) end,
    [
        Since(<<"published">>),
        Since(<<"delivered">>) + Since(<<"broadcast">>),
        maps:get(<<"subscribers">>, There),
        maps:get(<<"channels">>, There),
        lists:sum([maps:get(<<"connections">>, Listener) || Listener <- Listeners]),
        Since(<<"gaps">>)
    ].

status(Host, Port) ->
    case gen_tcp:connect(Host, Port, [binary, {active, false}], ?PATIENCE) of
        {ok, Socket} ->
            ok = gen_tcp:send(Socket, ["GET /status HTTP/1.1\r\nHost: ", Host, "\r\nConnection: close\r\n\r\n"]),
            Answer = read(Socket, <<>>),
            ok = gen_tcp:close(Socket),
            decoded(Answer);
        {error, Reason} ->
            {error, inet:format_error(Reason)}
    end.

read(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, ?PATIENCE) of
        {ok, More} -> read(Socket, <<Bytes/binary, More/binary>>);
        {error, _} -> Bytes
    end.

decoded(<<"HTTP/1.1 200 ", _/binary>> = Answer) ->
    case [weir_json:decode(Body) || [_, Body] <- [binary:split(Answer, <<"\r\n\r\n">>)]] of
        [{ok, #{<<"counters">> := #{}, <<"now">> := #{}, <<"listeners">> := _} = Status}] -> {ok, Status};
        _ -> {error, "this is not the /status of a push server"}
    end;
decoded(<<"HTTP/1.1 403 ", _/binary>>) ->
    {error, "the server refuses /status: `status` of [http] in its file says who may read it"};
decoded(_Other) ->
    {error, "the server has no /status"}.
