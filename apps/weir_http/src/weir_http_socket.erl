%% @private
%% @doc What a connection of HTTP does with its socket but send: that of a reactor, or one of TLS, which has a process of its
%% own (see {@link weir_http_tls}).
%%
%% Bytes that were sent by TLS are the kernel's when the callback is called again: nothing is ever pending there.
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

%% Messages for a connection of TLS that may wait while its client takes nothing. There is no other bound: the process sends
%% what it is told, and waits.
-define(WAITING, 1000).

-define(TLS(Pid, Socket, IsClosed), {weir_http_tls, Pid, Socket, IsClosed}).

%% @doc The connection that the calling process serves. Nothing is read before {@link active/2}.
-spec tls(ssl:sslsocket()) -> socket().
tls(Socket) ->
    _ = put(?MODULE, false),
    ?TLS(self(), Socket, atomics:new(1, [])).

-spec is_tls(socket()) -> boolean().
is_tls(?TLS(_, _, _)) -> true;
is_tls(_Socket) -> false.

%% @doc The socket as users know it: of gen_tcp, or of ssl.
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
        %% Its client does not take what was sent, or not as fast.
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

%%% In the process that serves the connection.

%% @doc Has it read, or not.
-spec active(socket(), boolean()) -> ok.
active(?TLS(_, Socket, _), IsActive) ->
    Before = put(?MODULE, IsActive),
    _ = IsActive andalso Before =:= false andalso weir_transport_tls:setopts(Socket, [{active, once}]),
    ok;
active(Socket, IsActive) ->
    _ = inet:setopts(Socket, [{active, IsActive}]),
    ok.

%% @doc Has a connection of TLS, of which a message has come, read the next, unless {@link active/2} has said that it does not.
-spec read_on(socket()) -> ok | {error, term()}.
read_on(?TLS(_, Socket, _)) ->
    case get(?MODULE) of
        true -> weir_transport_tls:setopts(Socket, [{active, once}]);
        false -> ok
    end.

%% @doc Has `handle_writable/2' called when nothing is pending.
-spec notify_writable(socket()) -> ok.
notify_writable(?TLS(Pid, _, _)) ->
    Pid ! weir_http_writable,
    ok;
notify_writable(Socket) ->
    _ = weir:notify_writable(Socket),
    ok.

%% @doc Ends the sleep of a connection to which ticks do not come. One of TLS sleeps only until something is called.
-spec tick_soon(socket()) -> ok.
tick_soon(?TLS(_, _, _)) -> ok;
tick_soon(Socket) -> weir_reactor:tick_soon(Socket).

%% @doc The bytes that the client has not taken yet. A connection that is closed has none left.
-spec pending(socket()) -> non_neg_integer().
pending(?TLS(_, _, _)) ->
    0;
pending(Socket) ->
    case inet:getstat(Socket, [send_pend]) of
        {ok, [{send_pend, Bytes}]} -> Bytes;
        {error, _} -> 0
    end.

%% @doc Whether the client's side has all that was sent, or the kernel. If not, `handle_writable/2' is called when it has: that is also
%% called when a queue over its high watermark is down at the low one, where the rest still waits.
-spec is_written(socket()) -> boolean().
is_written(Socket) ->
    case pending(Socket) of
        0 ->
            true;
        _ ->
            ok = notify_writable(Socket),
            false
    end.

%% @doc Whether its output may contain parts of files.
-spec sends_files(socket()) -> boolean().
sends_files(?TLS(_, _, _)) -> false;
sends_files(_Socket) -> true.

%% @doc Says that nothing more is sent.
-spec shutdown_write(socket()) -> ok.
shutdown_write(?TLS(_, Socket, _)) ->
    _ = weir_transport_tls:shutdown(Socket, write),
    ok;
shutdown_write(Socket) ->
    _ = gen_tcp:shutdown(Socket, write),
    ok.

%% @doc Has others know that a connection of TLS is closed, before its process ends.
-spec closed(socket()) -> ok.
closed(?TLS(_, _, IsClosed)) -> atomics:put(IsClosed, 1, 1).

%% @doc The other end.
-spec peername(socket()) -> {ok, weir_tcp:name()} | {error, closed | inet:posix()}.
peername(?TLS(_, Socket, _)) -> weir_transport_tls:peername(Socket);
peername(Socket) -> inet:peername(Socket).

%% @doc Has it leave the groups that it has joined for one message. `served': it has had that.
-spec withdraw(socket()) -> ok | {error, served | closed}.
withdraw(?TLS(_, _, _)) -> ok;
withdraw(Socket) -> weir_group:withdraw(Socket).
