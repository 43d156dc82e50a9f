%% @doc TLS (OTP's ssl) on sockets of Weir as a transport of ranch: a listener with `tls' passes it to a module with
%% `start_link/3'. The functions are those of the behaviour `ranch_transport', and of ssl.
-module(weir_transport_tls).

-export([name/0]).
-export([secure/0]).
-export([messages/0]).
-export([listen/1]).
-export([disallowed_listen_options/0]).
-export([accept/2]).
-export([handshake/2]).
-export([handshake/3]).
-export([handshake_continue/2]).
-export([handshake_continue/3]).
-export([handshake_cancel/1]).
-export([connect/3]).
-export([connect/4]).
-export([recv/3]).
-export([recv_proxy_header/2]).
-export([send/2]).
-export([sendfile/2]).
-export([sendfile/4]).
-export([sendfile/5]).
-export([setopts/2]).
-export([getopts/2]).
-export([getstat/1]).
-export([getstat/2]).
-export([controlling_process/2]).
-export([peername/1]).
-export([sockname/1]).
-export([shutdown/2]).
-export([close/1]).
-export([cleanup/1]).
-export([format_error/1]).

-define(SSL, (weir_ssl:ssl())).

%% Bytes of a file that are encrypted at once.
-define(CHUNK, 16#1fff).

-type socket() :: ssl:sslsocket().

%% @doc Returns the name of the transport.
-spec name() -> ssl.
name() -> ssl.

%% @doc Whether the transport is encrypted.
-spec secure() -> true.
secure() -> true.

%% @doc Returns the tags of messages.
-spec messages() -> {ssl, ssl_closed, ssl_error, ssl_passive}.
messages() -> {ssl, ssl_closed, ssl_error, ssl_passive}.

%% @doc Opens a listening socket with TLS, for ranch's own listeners.
-spec listen(#{socket_opts => list(), _ => _}) -> {ok, ssl:sslsocket()} | {error, term()}.
listen(Options) ->
    (?SSL):listen(0, [{cb_info, {gen_tcp, tcp, tcp_closed, tcp_error}} | weir_transport:listen_options(Options)]).

%% @doc Returns the options that {@link listen/1} sets itself.
-spec disallowed_listen_options() -> [atom()].
disallowed_listen_options() -> weir_transport:disallowed_listen_options().

%% @doc Accepts a connection.
-spec accept(ssl:sslsocket(), timeout()) -> {ok, ssl:sslsocket()} | {error, term()}.
accept(Listener, Timeout) -> (?SSL):transport_accept(Listener, Timeout).

%% @doc Begins a connection: reads its PROXY header if the listener has `proxy_protocol', and negotiates TLS.
-spec handshake(weir_transport:pending() | ssl:sslsocket(), timeout()) ->
    {ok, socket()} | {ok, socket(), ssl:protocol_extensions()} | {error, term()}.
handshake({weir_pending, _, _} = Pending, Timeout) -> weir_connection:handshake_pending(Pending, [], Timeout);
handshake(Socket, Timeout) -> (?SSL):handshake(Socket, Timeout).

%% @doc The same, with options of `ssl:handshake/3' that precede those of the listener.
-spec handshake(weir_transport:pending() | ssl:sslsocket(), list(), timeout()) ->
    {ok, socket()} | {ok, socket(), ssl:protocol_extensions()} | {error, term()}.
handshake({weir_pending, _, _} = Pending, Options, Timeout) ->
    weir_connection:handshake_pending(Pending, Options, Timeout);
handshake(Socket, Options, Timeout) ->
    (?SSL):handshake(Socket, Options, Timeout).

%% @doc Continues a handshake that was paused after the client's hello.
-spec handshake_continue(socket(), timeout()) -> {ok, socket()} | {error, term()}.
handshake_continue(Socket, Timeout) -> handshake_continue(Socket, [], Timeout).

%% @doc The same, with options of `ssl:handshake_continue/3'.
-spec handshake_continue(socket(), list(), timeout()) -> {ok, socket()} | {error, term()}.
handshake_continue(Socket, Options, Timeout) ->
    weir_connection:handshake_continued((?SSL):handshake_continue(Socket, Options, Timeout)).

%% @doc Cancels a handshake that was paused after the client's hello.
-spec handshake_cancel(socket()) -> ok.
handshake_cancel(Socket) ->
    _ = (?SSL):handshake_cancel(Socket),
    ok.

%% @doc Connects to a peer.
-spec connect(inet:socket_address() | inet:hostname(), inet:port_number(), list()) -> {ok, socket()} | {error, term()}.
connect(Host, Port, Options) -> connect(Host, Port, Options, infinity).

%% @doc Connects to a peer, with a timeout.
-spec connect(inet:socket_address() | inet:hostname(), inet:port_number(), list(), timeout()) ->
    {ok, socket()} | {error, term()}.
connect(Host, Port, Options, Timeout) ->
    (?SSL):connect(Host, Port, weir_transport:connect_options(Options), Timeout).

%% @doc Receives data.
-spec recv(socket(), non_neg_integer(), timeout()) -> {ok, binary() | term()} | {error, term()}.
recv(Socket, Length, Timeout) -> (?SSL):recv(Socket, Length, Timeout).

%% @doc Reads a PROXY header, before the handshake. A wrong header is ranch's `{error, protocol_error, Reason}'.
-spec recv_proxy_header(weir_transport:pending(), timeout()) ->
    {ok, weir_proxy_protocol:header()} | {error, closed | timeout | inet:posix()} | {error, protocol_error, atom()}.
recv_proxy_header(Pending, Timeout) -> weir_transport:recv_proxy_header(Pending, Timeout).

%% @doc Sends data.
-spec send(socket(), iodata()) -> ok | {error, term()}.
send(Socket, Data) -> (?SSL):send(Socket, Data).

%% @doc Sends a file.
-spec sendfile(socket(), file:name_all() | file:fd()) -> {ok, non_neg_integer()} | {error, term()}.
sendfile(Socket, File) -> sendfile(Socket, File, 0, 0, []).

%% @doc Sends a part of a file; from the offset to the end if `Bytes' is 0.
-spec sendfile(socket(), file:name_all() | file:fd(), non_neg_integer(), non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, term()}.
sendfile(Socket, File, Offset, Bytes) -> sendfile(Socket, File, Offset, Bytes, []).

%% @doc The same; `chunk_size' is the number of bytes that are encrypted at once.
-spec sendfile(socket(), file:name_all() | file:fd(), non_neg_integer(), non_neg_integer(), list()) ->
    {ok, non_neg_integer()} | {error, term()}.
sendfile(Socket, File, Offset, Bytes, Options) ->
    Chunk =
        case proplists:get_value(chunk_size, Options, ?CHUNK) of
            0 -> ?CHUNK;
            Size -> Size
        end,
    Left =
        case Bytes of
            0 -> infinity;
            _ -> Bytes
        end,
    weir_transport:with_file(File, fun(Open) ->
        case file:position(Open, {bof, Offset}) of
            {ok, _} -> send_chunks(Socket, Open, Left, Chunk, 0);
            {error, _} = Error -> Error
        end
    end).

send_chunks(_Socket, _File, 0, _Chunk, Sent) ->
    {ok, Sent};
send_chunks(Socket, File, Left, Chunk, Sent) ->
    case file:read(File, min(Left, Chunk)) of
        {ok, Data} ->
            case (?SSL):send(Socket, Data) of
                ok -> send_chunks(Socket, File, less(Left, byte_size(Data)), Chunk, Sent + byte_size(Data));
                {error, _} = Error -> Error
            end;
        eof ->
            {ok, Sent};
        {error, _} = Error ->
            Error
    end.

less(infinity, _) -> infinity;
less(Left, Size) -> Left - Size.

%% @doc Sets options.
-spec setopts(socket(), list()) -> ok | {error, term()}.
setopts(Socket, Options) -> (?SSL):setopts(Socket, Options).

%% @doc Returns options.
-spec getopts(socket(), list()) -> {ok, list()} | {error, term()}.
getopts(Socket, Names) -> (?SSL):getopts(Socket, Names).

%% @doc Returns all statistics of the underlying socket.
-spec getstat(socket()) -> {ok, list()} | {error, term()}.
getstat(Socket) -> (?SSL):getstat(Socket).

%% @doc Returns some statistics of the underlying socket.
-spec getstat(socket(), [atom()]) -> {ok, list()} | {error, term()}.
getstat(Socket, Names) -> (?SSL):getstat(Socket, Names).

%% @doc Gives the socket to another process.
-spec controlling_process(socket(), pid()) -> ok | {error, term()}.
controlling_process(Socket, Pid) -> (?SSL):controlling_process(Socket, Pid).

%% @doc Returns the address of the peer, which ranch asks for before the handshake.
-spec peername(socket() | weir_transport:pending()) -> {ok, weir_tcp:name()} | {error, term()}.
peername({weir_pending, Socket, _}) -> inet:peername(Socket);
peername(Socket) -> (?SSL):peername(Socket).

%% @doc Returns the local address.
-spec sockname(socket() | weir_transport:pending()) -> {ok, weir_tcp:name()} | {error, term()}.
sockname({weir_pending, Socket, _}) -> inet:sockname(Socket);
sockname(Socket) -> (?SSL):sockname(Socket).

%% @doc Shuts down a direction.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, term()}.
shutdown(Socket, How) -> (?SSL):shutdown(Socket, How).

%% @doc Closes the connection.
-spec close(socket() | weir_transport:pending()) -> ok.
close({weir_pending, _, _} = Pending) ->
    weir_transport:close(Pending);
close(Socket) ->
    _ = (?SSL):close(Socket),
    ok.

%% @doc Does nothing: there is nothing to clean up after a listener.
-spec cleanup(term()) -> ok.
cleanup(_Options) -> ok.

%% @doc Formats an error as text.
-spec format_error(term()) -> string().
format_error(Reason) -> (?SSL):format_error(Reason).
