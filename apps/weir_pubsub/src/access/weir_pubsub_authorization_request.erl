%% @private
%% @doc One question to an HTTP server, over its own connection. Only the status of the response matters.
-module(weir_pubsub_authorization_request).

-export([run/2]).
-export([system_certificates/0]).

%% @doc The function of a process, which exits with `{answer, Answer}'.
-spec run(weir_pubsub_authorizer:server(), weir_pubsub_authorizer:question()) -> no_return().
run(Server, Question) -> exit({answer, ask(Server, Question)}).

%% @doc Returns the certificates that the operating system trusts, in the form that ssl takes.
-spec system_certificates() -> {ok, [public_key:combined_cert(), ...]} | {error, Text :: string()}.
system_certificates() ->
    try public_key:cacerts_get() of
        [_ | _] = Certificates -> {ok, Certificates};
        [] -> {error, "the operating system has no trusted certificates"}
    catch
        error:_ -> {error, "the operating system's trusted certificates cannot be read"}
    end.

%% 2xx is yes and 4xx is no; any other status is no answer.
-spec ask(weir_pubsub_authorizer:server(), weir_pubsub_authorizer:question()) -> {ok, boolean()} | {error, term()}.
ask(#{host := Host, port := Port, target := Target, timeout := Timeout} = Server, Question) ->
    Until = erlang:monotonic_time(millisecond) + Timeout,
    {Family, Name} =
        case lists:member($:, Host) of
            true -> {inet6, [$[, Host, $]]};
            false -> {inet, Host}
        end,
    Options = [Family, binary, {active, false}, {packet, http_bin}, {send_timeout, Timeout}, {nodelay, true}],
    case connect(Server, Options) of
        {ok, Transport, Socket} ->
            Head = [
                "GET ",
                Target,
                " HTTP/1.1\r\nhost: ",
                Name,
                $:,
                integer_to_list(Port),
                "\r\nconnection: close\r\n",
                Question,
                "\r\n"
            ],
            Answer =
                case Transport:send(Socket, Head) of
                    ok -> answer(Transport:recv(Socket, 0, max(0, Until - erlang:monotonic_time(millisecond))));
                    {error, _} = Error -> Error
                end,
            _ = Transport:close(Socket),
            Answer;
        {error, _} = Error ->
            Error
    end.

connect(#{host := Host, port := Port, timeout := Timeout} = Server, Options) ->
    case maps:get(cacerts, Server, none) of
        none -> connected(gen_tcp, gen_tcp:connect(Host, Port, Options, Timeout));
        system ->
            case system_certificates() of
                {ok, Certificates} -> connect_tls(Certificates, Server, Options);
                {error, _} = Error -> Error
            end;
        Certificates -> connect_tls(Certificates, Server, Options)
    end.

%% The certificate must be for the host of the URL, also if that is an address.
connect_tls(Certificates, #{host := Host, port := Port, timeout := Timeout}, Options) ->
    Named = case inet:parse_address(Host) of {ok, Ip} -> Ip; {error, einval} -> Host end,
    Verify = [
        {verify, verify_peer},
        {cacerts, Certificates},
        %% The asker logs why a connection failed, at a limited rate.
        {log_level, none},
        {customize_hostname_check, [{match_fun, public_key:pkix_verify_hostname_match_fun(https)}]}
    ],
    connected(ssl, ssl:connect(Named, Port, Verify ++ Options, Timeout)).

connected(Transport, {ok, Socket}) -> {ok, Transport, Socket};
connected(_Transport, {error, _} = Error) -> Error.

answer({ok, {http_response, _Version, Status, _Text}}) when Status >= 200, Status < 300 -> {ok, true};
answer({ok, {http_response, _Version, Status, _Text}}) when Status >= 400, Status < 500 -> {ok, false};
answer({ok, {http_response, _Version, Status, _Text}}) -> {error, {status, Status}};
answer({ok, _Other}) -> {error, no_http};
answer({error, _} = Error) -> Error.
