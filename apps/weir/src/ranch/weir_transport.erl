%% @doc TCP of Weir as a transport of ranch: a listener passes it to a module with `start_link/3'. The functions are
%% those of the behaviour `ranch_transport', and of gen_tcp.
-module(weir_transport).

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

%% Shared by both transports.
-export([listen_options/1]).
-export([connect_options/1]).
-export([with_file/2]).

-export_type([pending/0]).

-type socket() :: weir_tcp:socket().

-type pending() :: {weir_pending, weir_tcp:socket(), term()}.
%% A connection before its PROXY header and its TLS handshake, in the place of the socket in ranch's message.

%% @doc Returns the name of the transport.
-spec name() -> tcp.
name() -> tcp.

%% @doc Whether the transport is encrypted.
-spec secure() -> false.
secure() -> false.

%% @doc Returns the tags of messages.
-spec messages() -> {tcp, tcp_closed, tcp_error, tcp_passive}.
messages() -> {tcp, tcp_closed, tcp_error, tcp_passive}.

%% @doc Opens a listening socket, for ranch's own listeners.
-spec listen(#{socket_opts => [gen_tcp:listen_option()], _ => _}) -> {ok, inet:socket()} | {error, term()}.
listen(Options) -> gen_tcp:listen(0, listen_options(Options)).

%% @private
%% Options of a listening socket of ranch's own listeners. Before OTP 29 a family in front of the module would take
%% precedence.
-spec listen_options(#{socket_opts => list(), _ => _}) -> list().
listen_options(Options) ->
    Given = maps:get(socket_opts, Options, []),
    Defaults = [{backlog, 1024}, {nodelay, true}, {send_timeout, 30000}, {send_timeout_close, true}],
    [{tcp_module, weir_tcp} | Defaults] ++ Given ++ [{reuseaddr, true}, binary, {active, false}, {packet, raw}].

%% @private
%% Options of a connection to a peer.
-spec connect_options(list()) -> list().
connect_options(Given) -> [{tcp_module, weir_tcp} | Given] ++ [binary, {active, false}, {packet, raw}].

%% @doc Returns the options that {@link listen/1} sets itself.
-spec disallowed_listen_options() -> [atom()].
disallowed_listen_options() -> [active, header, mode, packet, packet_size, line_delimiter, reuseaddr, tcp_module].

%% @doc Accepts a connection.
-spec accept(socket(), timeout()) -> {ok, inet:socket()} | {error, closed | timeout | inet:posix()}.
accept(Listener, Timeout) -> gen_tcp:accept(Listener, Timeout).

%% @doc Begins a connection: reads its PROXY header if the listener has `proxy_protocol'.
-spec handshake(socket() | pending(), timeout()) -> {ok, socket()} | {error, term()}.
handshake(Socket, Timeout) -> weir_connection:handshake_pending(Socket, [], Timeout).

%% @doc The same; the options are ignored.
-spec handshake(socket() | pending(), term(), timeout()) -> {ok, socket()} | {error, term()}.
handshake(Socket, _Options, Timeout) -> handshake(Socket, Timeout).

%% @doc Not supported: without TLS there is no handshake to continue.
-spec handshake_continue(socket(), timeout()) -> no_return().
handshake_continue(Socket, Timeout) -> error(not_supported, [Socket, Timeout]).

%% @doc Not supported: without TLS there is no handshake to continue.
-spec handshake_continue(socket(), term(), timeout()) -> no_return().
handshake_continue(Socket, Options, Timeout) -> error(not_supported, [Socket, Options, Timeout]).

%% @doc Not supported: without TLS there is no handshake to cancel.
-spec handshake_cancel(socket()) -> no_return().
handshake_cancel(Socket) -> error(not_supported, [Socket]).

%% @doc Connects to a peer.
-spec connect(inet:socket_address() | inet:hostname(), inet:port_number(), list()) ->
    {ok, inet:socket()} | {error, inet:posix()}.
connect(Host, Port, Options) -> connect(Host, Port, Options, infinity).

%% @doc Connects to a peer, with a timeout.
-spec connect(inet:socket_address() | inet:hostname(), inet:port_number(), list(), timeout()) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Host, Port, Options, Timeout) -> gen_tcp:connect(Host, Port, connect_options(Options), Timeout).

%% @doc Receives data.
-spec recv(socket(), non_neg_integer(), timeout()) ->
    {ok, binary() | term()} | {error, closed | timeout | inet:posix()}.
recv(Socket, Length, Timeout) -> gen_tcp:recv(Socket, Length, Timeout).

%% @doc Reads a PROXY header, before the handshake. A wrong header is ranch's `{error, protocol_error, Reason}'.
-spec recv_proxy_header(socket() | pending(), timeout()) ->
    {ok, weir_proxy_protocol:header()} | {error, closed | timeout | inet:posix()} | {error, protocol_error, atom()}.
recv_proxy_header({weir_pending, Socket, _}, Timeout) ->
    recv_proxy_header(Socket, Timeout);
recv_proxy_header(Socket, Timeout) ->
    case weir_connection:read_proxy_header(Socket, Timeout) of
        {error, Reason} when Reason =:= not_proxy; Reason =:= bad_header -> {error, protocol_error, Reason};
        Result -> Result
    end.

%% @doc Sends data.
-spec send(socket(), iodata()) -> ok | {error, term()}.
send(Socket, Data) -> gen_tcp:send(Socket, Data).

%% @doc Sends a file.
-spec sendfile(socket(), file:name_all() | file:fd()) -> {ok, non_neg_integer()} | {error, term()}.
sendfile(Socket, File) -> sendfile(Socket, File, 0, 0, []).

%% @doc Sends a part of a file; from the offset to the end if `Bytes' is 0.
-spec sendfile(socket(), file:name_all() | file:fd(), non_neg_integer(), non_neg_integer()) ->
    {ok, non_neg_integer()} | {error, term()}.
sendfile(Socket, File, Offset, Bytes) -> sendfile(Socket, File, Offset, Bytes, []).

%% @doc The same, with options of `file:sendfile/5'.
-spec sendfile(socket(), file:name_all() | file:fd(), non_neg_integer(), non_neg_integer(), list()) ->
    {ok, non_neg_integer()} | {error, term()}.
sendfile(Socket, File, Offset, Bytes, Options) ->
    with_file(File, fun(Open) -> file:sendfile(Open, Socket, Offset, Bytes, Options) end).

%% @private
%% Calls a fun with an open file; a file given by name is open during the call.
-spec with_file(file:name_all() | file:fd(), fun((file:fd()) -> Result)) -> Result | {error, term()}.
with_file(Name, Fun) when is_list(Name); is_atom(Name); is_binary(Name) ->
    case file:open(Name, [read, raw, binary]) of
        {ok, File} ->
            try
                Fun(File)
            after
                _ = file:close(File)
            end;
        {error, _} = Error ->
            Error
    end;
with_file(File, Fun) ->
    Fun(File).

%% @doc Sets options.
-spec setopts(socket(), list()) -> ok | {error, inet:posix()}.
setopts(Socket, Options) -> inet:setopts(Socket, Options).

%% @doc Returns options.
-spec getopts(socket(), list()) -> {ok, list()} | {error, inet:posix()}.
getopts(Socket, Names) -> inet:getopts(Socket, Names).

%% @doc Returns all statistics.
-spec getstat(socket()) -> {ok, list()} | {error, inet:posix()}.
getstat(Socket) -> inet:getstat(Socket).

%% @doc Returns some statistics.
-spec getstat(socket(), [atom()]) -> {ok, list()} | {error, inet:posix()}.
getstat(Socket, Names) -> inet:getstat(Socket, Names).

%% @doc Gives the socket to another process.
-spec controlling_process(socket(), pid()) -> ok | {error, closed | not_owner | badarg | inet:posix()}.
controlling_process(Socket, Pid) -> gen_tcp:controlling_process(Socket, Pid).

%% @doc Returns the address of the peer, which ranch asks for before the handshake.
-spec peername(socket() | pending()) -> {ok, weir_tcp:name()} | {error, inet:posix()}.
peername({weir_pending, Socket, _}) -> inet:peername(Socket);
peername(Socket) -> inet:peername(Socket).

%% @doc Returns the local address.
-spec sockname(socket() | pending()) -> {ok, weir_tcp:name()} | {error, inet:posix()}.
sockname({weir_pending, Socket, _}) -> inet:sockname(Socket);
sockname(Socket) -> inet:sockname(Socket).

%% @doc Shuts down a direction.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, inet:posix()}.
shutdown(Socket, How) -> gen_tcp:shutdown(Socket, How).

%% @doc Closes the connection.
-spec close(socket() | pending()) -> ok.
close({weir_pending, Socket, _}) -> close(Socket);
close(Socket) -> gen_tcp:close(Socket).

%% @doc Does nothing: there is nothing to clean up after a listener.
-spec cleanup(term()) -> ok.
cleanup(_Options) -> ok.

%% @doc Formats an error as text.
-spec format_error(inet:posix() | system_limit) -> string().
format_error(Reason) -> inet:format_error(Reason).
