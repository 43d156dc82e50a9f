%% @doc Echoes data through TLS 1.3 of OTP's ssl. The certificate is created at the start and self-made, so clients
%% must not verify it.
-module(weir_example_tls_echo).

-export([start/1]).

-define(HANDSHAKE_TIMEOUT, 10000).

-type active() :: once | true | 1..32767 | false.

%% @doc Starts the server. `active' is the active mode of connections (default: `once'). Other options: see {@link
%% weir_example_acceptors:start/2}.
-spec start(#{active => active(), port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_acceptors:server()} | {error, term()}.
start(Options) ->
    {ok, _} = application:ensure_all_started(ssl),
    Active = maps:get(active, Options, once),
    Tls = [{versions, ['tlsv1.3']} | certificate()],
    weir_example_acceptors:start(Options, fun(Socket) ->
        %% Upgrading the accepted socket is the only difference to a server without TLS. From here on ssl owns it, and
        %% closes it if the handshake fails.
        case ssl:handshake(Socket, Tls, ?HANDSHAKE_TIMEOUT) of
            {ok, Secure} -> serve(Secure, Active);
            {error, _} -> ok
        end
    end).

certificate() ->
    %% The default digest is SHA-1, which clients no longer accept.
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Config} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    %% The other options would request client certificates.
    [Option || {Name, _} = Option <- Config, Name =:= cert orelse Name =:= key].

serve(Socket, false) ->
    passive(Socket);
serve(Socket, Active) ->
    _ = ssl:setopts(Socket, [{active, Active}]),
    active(Socket, Active).

passive(Socket) ->
    case ssl:recv(Socket, 0) of
        {ok, Data} ->
            case ssl:send(Socket, Data) of
                ok -> passive(Socket);
                {error, _} -> ssl:close(Socket)
            end;
        {error, _} ->
            ssl:close(Socket)
    end.

active(Socket, Active) ->
    receive
        {ssl, Socket, Data} ->
            case ssl:send(Socket, Data) of
                ok ->
                    weir_example_active:received(ssl, Socket, Active),
                    active(Socket, Active);
                {error, _} ->
                    ssl:close(Socket)
            end;
        {ssl_passive, Socket} ->
            _ = ssl:setopts(Socket, [{active, Active}]),
            active(Socket, Active);
        {ssl_error, Socket, _Reason} ->
            ssl:close(Socket);
        {ssl_closed, Socket} ->
            ssl:close(Socket)
    end.
