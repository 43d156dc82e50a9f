%% @doc The proxy that Weir grew from: a few lines of Erlang check each client and connect it to a backend. Then a
%% relay takes both connections, without a process.
-module(weir_example_relay).

-export([start/1]).

-define(CONNECT_TIMEOUT, 5000).
%% Milliseconds that a client may take to send its first line.
-define(AUTHENTICATE_TIMEOUT, 5000).
%% Maximum bytes of that line.
-define(LINE_MAX, 1024).
%% Milliseconds after which an idle connection is closed.
-define(IDLE_TIMEOUT, 3600_000).
%% Milliseconds that a half-closed connection waits for the rest of the answer.
-define(HALF_CLOSE_TIMEOUT, 60_000).

-type authenticate() :: fun((Line :: binary()) -> boolean()).

%% @doc Starts the server. `to' is the backend; `connect' are options for connections to it that come before our own.
%% `authenticate' gets the first line of a client, without its end; the client is answered `ok' or `denied' in a line.
%% Without this option every client is admitted and all bytes go to the backend. `relay' are options of {@link
%% weir:relay/3}. Other options: see {@link weir_example_acceptors:start/2}; both sides must use Weir's sockets.
-spec start(#{
    to := {inet:ip_address() | inet:hostname(), inet:port_number()},
    authenticate => authenticate(),
    relay => weir_relay:options(),
    connect => [gen_tcp:connect_option()],
    port => inet:port_number(),
    listen => [gen_tcp:listen_option()],
    _ => _
}) -> {ok, weir_example_acceptors:server()} | {error, term()}.
start(#{to := {Host, Port}} = Options) ->
    Connect = maps:get(connect, Options, []) ++ [binary, {active, false}, {nodelay, true}],
    Ours = #{detached => true, idle_timeout => ?IDLE_TIMEOUT, half_close_timeout => ?HALF_CLOSE_TIMEOUT},
    Relay = maps:merge(Ours, maps:get(relay, Options, #{})),
    weir_example_acceptors:start(Options, fun(Client) ->
        case is_let_in(Client, Options) andalso gen_tcp:connect(Host, Port, Connect, ?CONNECT_TIMEOUT) of
            {ok, Backend} -> relay(Client, Backend, Relay);
            {error, _} -> gen_tcp:close(Client);
            false -> gen_tcp:close(Client)
        end
    end).

%% Bytes after the line stay in the socket, and the relay forwards them.
is_let_in(Client, #{authenticate := Authenticate}) ->
    ok = inet:setopts(Client, [{packet, line}, {packet_size, ?LINE_MAX}]),
    case gen_tcp:recv(Client, 0, ?AUTHENTICATE_TIMEOUT) of
        {ok, Line} ->
            LetIn = Authenticate(string:chomp(Line)),
            ok = inet:setopts(Client, [{packet, raw}]),
            gen_tcp:send(Client, answer(LetIn)) =:= ok andalso LetIn;
        {error, _} ->
            false
    end;
is_let_in(_Client, _Options) ->
    true.

answer(true) -> <<"ok\n">>;
answer(false) -> <<"denied\n">>.

relay(Client, Backend, Options) ->
    case weir:relay(Client, Backend, Options) of
        {ok, _Relay} ->
            ok;
        {error, _} ->
            %% One side has already closed.
            gen_tcp:close(Client),
            gen_tcp:close(Backend)
    end.
