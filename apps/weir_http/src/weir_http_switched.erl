%% @private
%% @doc Connections that have left the cycle of requests and responses, for an event stream, a held request or a WebSocket:
%% what {@link weir_http_connection} calls for them, and what they may answer.
%%
%% What a handler returns leads there (see `weir_http_answer'): `enter/4' says what is sent first and what the state is.
%% Bytes that came behind the request are then given to `data/4'. Key is that of the listener, `persistent_term:get(Key)' its
%% `#http{}'. A callback that has nothing to change returns the state as it was: that costs no memory.
%%
%% What is sent is written when the callback has returned. If something must happen behind that (joining a group, whose
%% messages would go out first), ask for `writable/3' by `weir_http_socket:notify_writable/1'.
%%
%% The socket is one of a reactor, or of TLS: what is done with it goes by {@link weir_http_socket}.
-module(weir_http_switched).

-export([send/2]).

-include("weir_http.hrl").

-export_type([state/0, key/0, result/0, sleep/0, entered/0, process/0]).

-type state() :: term().

-type key() :: term().

-type entered() ::
    {switched, module(), iodata(), state()}
    %% It stays where it is, after this response.
    | weir_http_response:response().

-type result() ::
    {ok, state()}
    | {send, iodata(), state()}
    %% Closed as soon as that is sent: for a client that sends nothing more. `gone/4' is not called any more, as with all below.
    | {close, iodata()}
    %% Closed when the client has had time to read that; what it still sends is thrown away.
    | {close_later, iodata()}
    %% Back to the cycle of requests: that was the response. Rest: what has come behind the request. IsRead: whether the
    %% connection is being read, and not `{active, false}'.
    | {finished, weir_http_response:wanted(), iodata(), Rest :: binary(), IsRead :: boolean()}
    %% A process goes on, behind those bytes.
    | {process, process(), iodata()}.

-type sleep() :: {sleep, Until :: integer() | infinity, state()}.

-type process() :: #{
    found := weir_http_routes:found(),
    request := weir_http_request:request(),
    body := whole | {begun, chunked | raw},
    wanted := weir_http_response:wanted(),
    rest := binary(),
    is_read := boolean()
}.
%% See `weir_http_busy:start/6'. `begun': it goes on with a response that has begun.

%% A handler's result leads here. Fails if it is not as it should be: then its client gets a 500.
-callback enter(Result :: tuple(), weir_http_request:request(), weir_http_response:wanted(), #http{}) -> entered().

%% Bytes have come.
-callback data(weir_http_socket:socket(), binary(), state(), key()) -> result().

%% A message, that of {@link send/2} or another for the connection (see {@link weir_reactor:send/2}). The socket may have become
%% what it is after the message was sent.
-callback info(weir_http_socket:socket(), Message :: term(), state(), key()) -> result().

%% The kernel takes output, and nothing waits: after `weir_http_socket:notify_writable/1'.
-callback writable(weir_http_socket:socket(), state(), key()) -> result().

%% A tick of the reactor. `{sleep, Until, State}': there is nothing for ticks to do before that time, in milliseconds of the
%% monotonic time, unless `weir_http_socket:tick_soon/1' is called.
-callback tick(weir_http_socket:socket(), state(), key()) -> result() | sleep().

%% The connection has ended: by its peer, by its reactor's end, or by a callback here that has raised.
-callback gone(Reason :: term(), state(), key()) -> ok.

%% @doc Sends a message to `info/4' of a connection.
-spec send(weir_http_socket:socket(), Message :: term()) -> ok | {error, closed}.
send(Socket, Message) -> weir_http_socket:tell(Socket, {weir_http, Socket, Message}).
