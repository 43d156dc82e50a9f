%% @private
%% @doc Operations on the socket of an HTTP connection, except sending. The socket belongs to a reactor or, with TLS,
%% to a process of its own (see {@link weir_http_tls}).
%%
%% A TLS connection sends synchronously: when a callback is called, all earlier output is with the kernel, and nothing
%% is pending.
-module(weir_http_socket).

-export([tls/1]).
-export([public/1]).
-export([is_tls/1]).
-export([tell/2]).
-export([active/2]).
-export([read_on/1]).
-export([notify_writable/1]).
-export([tick_soon/1]).
-export([pending/1]).
-export([is_written/1]).
-export([sends_files/1]).
-export([shutdown_write/1]).
-export([closed/1]).
-export([peername/1]).
-export([withdraw/1]).

-export_type([socket/0]).

-type socket() :: weir_tcp:socket() | {weir_http_tls, pid(), ssl:sslsocket(), IsClosed :: atomics:atomics_ref()}.

%% Messages that may wait for a TLS connection whose client does not read. There is no other limit, since the process
%% blocks while it sends.
-define(WAITING, 1000).

-define(TLS(Pid, Socket, IsClosed), {weir_http_tls, Pid, Socket, IsClosed}).

%% @doc Returns the TLS connection that the calling process serves. It is not read before {@link active/2}.
-spec tls(ssl:sslsocket()) -> socket().
tls(Socket) ->
    _ = put(?MODULE, false),
    ?TLS(self(), Socket, atomics:new(1, [])).

-spec is_tls(socket()) -> boolean().
is_tls(?TLS(_, _, _)) -> true;
is_tls(_Socket) -> false.

%% @doc Returns the socket as users know it: for gen_tcp, or for ssl.
-spec public(socket()) -> weir_tcp:socket() | ssl:sslsocket().
public(?TLS(_, Socket, _)) -> Socket;
public(Socket) -> Socket.

%% @doc Sends a message to a connection, from any process.
-spec tell(socket(), term()) -> ok | {error, closed}.
tell(?TLS(Pid, _, IsClosed) = Socket, Message) ->
    case atomics:get(IsClosed, 1) =:= 0 andalso process_info(Pid, message_queue_len) of
        {message_queue_len, Waiting} when Waiting < ?WAITING ->
            Pid ! {weir_http_tls, Message},
            ok;
        %% The client does not read, or not fast enough.
        {message_queue_len, _} ->
            ok = closed(Socket),
            _ = exit(Pid, {shutdown, send_queue_full}),
            {error, closed};
        _ ->
            {error, closed}
    end;
tell(Socket, Message) ->
    case weir_reactor:send(Socket, Message) of
        ok -> ok;
        {error, _} -> {error, closed}
    end.

%%% Called only in the process that serves the connection.

%% @doc Resumes or pauses reading.
-spec active(socket(), boolean()) -> ok.
active(?TLS(_, Socket, _), IsActive) ->
    Before = put(?MODULE, IsActive),
    _ = IsActive andalso Before =:= false andalso weir_transport_tls:setopts(Socket, [{active, once}]),
    ok;
active(Socket, IsActive) ->
    _ = inet:setopts(Socket, [{active, IsActive}]),
    ok.

%% @doc After a message from a TLS connection: asks for the next one, unless {@link active/2} has paused reading.
-spec read_on(socket()) -> ok | {error, term()}.
read_on(?TLS(_, Socket, _)) ->
    case get(?MODULE) of
        true -> weir_transport_tls:setopts(Socket, [{active, once}]);
        false -> ok
    end.

%% @doc Asks for a call of `handle_writable/2' when output is no longer blocked.
-spec notify_writable(socket()) -> ok.
notify_writable(?TLS(Pid, _, _)) ->
    Pid ! weir_http_writable,
    ok;
notify_writable(Socket) ->
    _ = weir:notify_writable(Socket),
    ok.

%% @doc Ends a sleep that skips ticks. A TLS connection sleeps only until its next callback.
-spec tick_soon(socket()) -> ok.
tick_soon(?TLS(_, _, _)) -> ok;
tick_soon(Socket) -> weir_reactor:tick_soon(Socket).

%% @doc Returns how many bytes wait in the send queue. A closed connection has none.
-spec pending(socket()) -> non_neg_integer().
pending(?TLS(_, _, _)) ->
    0;
pending(Socket) ->
    case inet:getstat(Socket, [send_pend]) of
        {ok, [{send_pend, Bytes}]} -> Bytes;
        {error, _} -> 0
    end.

%% @doc Whether the kernel has all output. If not, asks for a further `handle_writable/2': that is also called when a
%% queue has fallen from its high watermark to the low one, with some output still waiting.
-spec is_written(socket()) -> boolean().
is_written(Socket) ->
    case pending(Socket) of
        0 ->
            true;
        _ ->
            ok = notify_writable(Socket),
            false
    end.

%% @doc Whether output may contain parts of files.
-spec sends_files(socket()) -> boolean().
sends_files(?TLS(_, _, _)) -> false;
sends_files(_Socket) -> true.

%% @doc Shuts down the sending direction.
-spec shutdown_write(socket()) -> ok.
shutdown_write(?TLS(_, Socket, _)) ->
    _ = weir_transport_tls:shutdown(Socket, write),
    ok;
shutdown_write(Socket) ->
    _ = gen_tcp:shutdown(Socket, write),
    ok.

%% @doc Marks a TLS connection as closed for senders, before its process ends.
-spec closed(socket()) -> ok.
closed(?TLS(_, _, IsClosed)) -> atomics:put(IsClosed, 1, 1).

%% @doc Returns the peer.
-spec peername(socket()) -> {ok, weir_tcp:name()} | {error, closed | inet:posix()}.
peername(?TLS(_, Socket, _)) -> weir_transport_tls:peername(Socket);
peername(Socket) -> inet:peername(Socket).

%% @doc Leaves the groups that the connection has joined for one message. `served': it has had that message.
-spec withdraw(socket()) -> ok | {error, served | closed}.
withdraw(?TLS(_, _, _)) -> ok;
withdraw(Socket) -> weir_group:withdraw(Socket).
