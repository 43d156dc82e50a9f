%% @private
%% @doc One question to an HTTP server, over a connection of its own. Only the status of the answer counts.
-module(weir_pubsub_asker_request).

-export([run/2]).

%% @doc The life of a process: it ends with `{answer, Answer}'.
-spec run(weir_pubsub_asker:server(), weir_pubsub_asker:question()) -> no_return().
run(Server, Question) -> exit({answer, ask(Server, Question)}).

%% 2xx is yes and 4xx is no; everything else is no answer.
-spec ask(weir_pubsub_asker:server(), weir_pubsub_asker:question()) -> {ok, boolean()} | {error, term()}.
ask(#{host := Host, port := Port, target := Target, timeout := Timeout}, Question) ->
    Until = erlang:monotonic_time(millisecond) + Timeout,
    {Family, Name} = case lists:member($:, Host) of true -> {inet6, [$[, Host, $]]}; false -> {inet, Host} end,
    Options = [Family, binary, {active, false}, {packet, http_bin}, {send_timeout, Timeout}, {nodelay, true}],
    case gen_tcp:connect(Host, Port, Options, Timeout) of
        {ok, Socket} ->
            Head = ["GET ", Target, " HTTP/1.1\r\nhost: ", Name, $:, integer_to_list(Port), "\r\nconnection: close\r\n", Question, "\r\n"],
            Answer =
                case gen_tcp:send(Socket, Head) of
                    ok -> answer(gen_tcp:recv(Socket, 0, max(0, Until - erlang:monotonic_time(millisecond))));
                    {error, _} = Error -> Error
                end,
            ok = gen_tcp:close(Socket),
            Answer;
        {error, _} = Error ->
            Error
    end.

answer({ok, {http_response, _Version, Status, _Text}}) when Status >= 200, Status < 300 -> {ok, true};
answer({ok, {http_response, _Version, Status, _Text}}) when Status >= 400, Status < 500 -> {ok, false};
answer({ok, {http_response, _Version, Status, _Text}}) -> {error, {status, Status}};
answer({ok, _Other}) -> {error, no_http};
answer({error, _} = Error) -> Error.
