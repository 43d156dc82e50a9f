%% @doc Runs another scenario over TLS: encrypts its output and decrypts its input. The engine does not know.
%%
%% TLS is rustls in native code, on the thread that drives the connection. A handshake begins when its connection is
%% open and is always a full one. Requests sent during the handshake wait in the session.
-module(weir_load_tls).
-behaviour(weir_load_scenario).

-export([describe/1]).
-export([init/1]).
-export([connect/2]).
-export([request/2]).
-export([response/2]).
-export([done/1]).

-export_type([trust/0]).

%% Which servers to trust: those with a certificate that the system trusts, or that the certificates in a PEM file have
%% signed, or any.
-type trust() :: system | {file, file:filename()} | anybody.

%% Native settings exist on one node only. So this has what they are made from, and `id' identifies those of a node.
-record(config, {
    scenario :: module(),
    config :: weir_load_scenario:config(),
    server :: binary(),
    id :: reference(),
    trust :: [binary()] | anybody,
    alpn :: [binary()]
}).

-record(connection, {
    session :: weir_load_nif:tls_session(),
    scenario :: module(),
    inner :: weir_load_scenario:connection()
}).

-define(MILLISECOND, 1_000_000).

-spec describe(#{within_tls := module(), _ => _}) -> weir_load_scenario:description().
describe(#{within_tls := Scenario}) -> weir_load_scenario:describe(Scenario).

%% Tries a handshake before the load, so that a problem is one clear error instead of one for each connection.
-spec init(#{within_tls := module(), trust := trust(), host := string(), _ => _}) ->
    {ok, #config{}} | {error, iodata()}.
init(#{within_tls := Scenario, trust := Trust, host := Host} = Options) ->
    case {Scenario:init(Options), certificates(Trust)} of
        {{ok, Inner}, {ok, Certificates}} ->
            #{alpn := Alpn} = weir_load_scenario:describe(Scenario),
            Config = #config{
                scenario = Scenario,
                config = Inner,
                server = unicode:characters_to_binary(Host),
                id = make_ref(),
                trust = Certificates,
                alpn = Alpn
            },
            case try_handshake(Config, Options) of
                ok -> {ok, Config};
                {error, _} = Error -> Error
            end;
        {{error, _} = Error, _} ->
            Error;
        {_, {error, _} = Error} ->
            Error
    end.

certificates(anybody) ->
    {ok, anybody};
certificates(system) ->
    try public_key:cacerts_get() of
        Certificates -> {ok, [Der || {cert, Der, _} <- Certificates]}
    catch
        error:_ -> {error, "this system has no certificates to trust: --cacert FILE or --insecure"}
    end;
certificates({file, File}) ->
    case file:read_file(File) of
        {ok, Pem} ->
            case [Der || {'Certificate', Der, not_encrypted} <- public_key:pem_decode(Pem)] of
                [] -> {error, [File, " contains no PEM certificate"]};
                Certificates -> {ok, Certificates}
            end;
        {error, Reason} ->
            {error, ["cannot read ", File, ": ", file:format_error(Reason)]}
    end.

try_handshake(Config, #{address := Address, port := Port, timeout := Timeout} = Options) ->
    Milliseconds = max(1, Timeout div ?MILLISECOND),
    Family = weir_load_family:options(Address),
    case gen_tcp:connect(Address, Port, [binary, {active, false}, {nodelay, true} | Family], Milliseconds) of
        {ok, Socket} ->
            Outcome = handshake(Socket, Config, Milliseconds),
            ok = gen_tcp:close(Socket),
            case Outcome of
                ok -> ok;
                {error, Reason} -> {error, failure(Reason, Options)}
            end;
        {error, _} ->
            %% The load itself reports a server that cannot be reached.
            ok
    end.

handshake(Socket, #config{server = Server} = Config, Timeout) ->
    case settings(Config) of
        {ok, Settings} ->
            case weir_load_nif:tls_connect(Settings, Server) of
                {ok, {Session, Hello}} ->
                    _ = gen_tcp:send(Socket, Hello),
                    handshakes(Socket, Session, Timeout);
                {error, _} = Error ->
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

handshakes(Socket, Session, Timeout) ->
    case gen_tcp:recv(Socket, 0, Timeout) of
        {ok, Bytes} ->
            case weir_load_nif:tls_received(Session, Bytes) of
                {ok, {_Plain, Reply}} ->
                    _ = gen_tcp:send(Socket, Reply),
                    case weir_load_nif:tls_is_handshaking(Session) of
                        true -> handshakes(Socket, Session, Timeout);
                        false -> ok
                    end;
                {error, _} = Error ->
                    Error
            end;
        {error, Reason} ->
            {error, {socket, Reason}}
    end.

failure(Reason, #{host := Host, port := Port}) ->
    Target = [Host, " port ", integer_to_list(Port)],
    case Reason of
        {tls_certificate, Text} ->
            [
                "the certificate of ",
                Target,
                " is not trusted: ",
                Text,
                " (--cacert FILE trusts a certificate, --insecure trusts all)"
            ];
        {tls_alert, Text} ->
            [Target, " refuses the TLS handshake: ", Text];
        {tls_error, Text} ->
            ["no TLS with ", Target, ": ", Text];
        {socket, timeout} ->
            ["no TLS with ", Target, ": no answer in time"];
        {socket, closed} ->
            ["no TLS with ", Target, ": the server has closed the connection"];
        {socket, Posix} ->
            ["no TLS with ", Target, ": ", inet:format_error(Posix)]
    end.

%% The settings of this node, made at the first call. Concurrent first calls make equal ones.
settings(#config{id = Id, trust = Trust, alpn = Alpn}) ->
    case persistent_term:get(?MODULE, none) of
        {Id, Settings} ->
            {ok, Settings};
        _ ->
            case weir_load_nif:tls_settings(Trust, Alpn) of
                {ok, Settings} ->
                    persistent_term:put(?MODULE, {Id, Settings}),
                    {ok, Settings};
                {error, _} = Error ->
                    Error
            end
    end.

-spec connect(pos_integer(), #config{}) -> {send, iodata(), #connection{}}.
connect(Number, #config{scenario = Scenario, config = Inner, server = Server} = Config) ->
    {ok, Settings} = settings(Config),
    {ok, {Session, Hello}} = weir_load_nif:tls_connect(Settings, Server),
    {Greeting, State} =
        case Scenario:connect(Number, Inner) of
            {ok, Ready} -> {<<>>, Ready};
            {send, Bytes, Ready} -> {encrypt(Session, Bytes), Ready}
        end,
    {send, [Hello, Greeting], #connection{session = Session, scenario = Scenario, inner = State}}.

-spec request(pos_integer(), #connection{}) -> {ok, iodata(), #connection{}}.
request(Number, #connection{session = Session, scenario = Scenario, inner = Inner} = Connection) ->
    {ok, Bytes, Later} = Scenario:request(Number, Inner),
    {ok, encrypt(Session, Bytes), Connection#connection{inner = Later}}.

-spec response(binary(), #connection{}) ->
    {ok, [weir_load_scenario:event()], #connection{}} | {error, weir_load_scenario:error()}.
response(Cipher, #connection{session = Session, scenario = Scenario, inner = Inner} = Connection) ->
    case weir_load_nif:tls_received(Session, Cipher) of
        {ok, {<<>>, Reply}} ->
            {ok, replies(Reply), Connection};
        {ok, {Plain, Reply}} ->
            case Scenario:response(Plain, Inner) of
                {ok, Events, Later} ->
                    {ok, replies(Reply) ++ [event(Event, Session) || Event <- Events], Connection#connection{
                        inner = Later
                    }};
                {error, _} = Error ->
                    Error
            end;
        {error, {Kind, _Text}} ->
            {error, Kind}
    end.

replies(<<>>) -> [];
replies(Reply) -> [{send, Reply}].

event({send, Bytes}, Session) -> {send, encrypt(Session, Bytes)};
event(Event, _Session) -> Event.

encrypt(Session, Bytes) ->
    {ok, Cipher} = weir_load_nif:tls_send(Session, iolist_to_binary(Bytes)),
    Cipher.

-spec done(#connection{}) -> ok.
done(#connection{scenario = Scenario, inner = Inner}) -> Scenario:done(Inner).
