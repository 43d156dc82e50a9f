%% @private
%% @doc The behaviour of connections that have left the cycle of requests and responses: event streams, held requests
%% and WebSockets. {@link weir_http_connection} calls these callbacks.
%%
%% The result of a handler starts it (see `weir_http_answer'): `enter/4' returns the first output and the state. Bytes
%% received after the request are then passed to `data/4'. Key is that of the listener: `persistent_term:get(Key)' is
%% its `#http{}'. A callback that changes nothing returns the same state, which costs no memory.
%%
%% Output is written after the callback has returned. To do something after that, ask for `writable/3' with
%% `weir_http_socket:notify_writable/1': for instance to join a group, whose messages would otherwise go out first.
%%
%% The socket is one of a reactor or of TLS: use the functions of {@link weir_http_socket}.
-module(weir_http_upgrade).

-export([send/2]).

-include("weir_http.hrl").

-export_type([state/0, key/0, result/0, sleep/0, entered/0, process/0]).

-type state() :: term().

-type key() :: term().

-type entered() ::
    {switched, module(), iodata(), state()}
    %% Stays in the cycle of requests, after this response.
    | weir_http_response:response().

-type result() ::
    {ok, state()}
    | {send, iodata(), state()}
    %% Closes after sending that: for a client that sends nothing more. `gone/3' is not called after this result or
    %% those below.
    | {close, iodata()}
    %% Closes after the client has had time to read that; further input is discarded.
    | {close_later, iodata()}
    %% Returns to the cycle of requests: that was the response. Rest: the bytes received after the request. IsRead:
    %% whether the connection is being read, and not `{active, false}'.
    | {finished, weir_http_response:wanted(), iodata(), Rest :: binary(), IsRead :: boolean()}
    %% A process continues, after those bytes.
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
%% See `weir_http_request_process:start/6'. `begun': the process continues a response that has begun.

%% Starts with the result of a handler. Fails if that is invalid: then the client gets a 500.
-callback enter(Result :: tuple(), weir_http_request:request(), weir_http_response:wanted(), #http{}) -> entered().

%% Bytes were received.
-callback data(weir_http_socket:socket(), binary(), state(), key()) -> result().

%% A message of {@link send/2}, or another for the connection (see {@link weir_reactor:send/2}). It may have been sent
%% before the connection was switched.
-callback info(weir_http_socket:socket(), Message :: term(), state(), key()) -> result().

%% No output waits any more, after `weir_http_socket:notify_writable/1'.
-callback writable(weir_http_socket:socket(), state(), key()) -> result().

%% A tick of the reactor. `{sleep, Until, State}': no tick is needed before that time, in milliseconds of the
%% monotonic clock, unless `weir_http_socket:tick_soon/1' is called.
-callback tick(weir_http_socket:socket(), state(), key()) -> result() | sleep().

%% The connection ended: by its peer, with its reactor, or by a callback here that raised.
-callback gone(Reason :: term(), state(), key()) -> ok.

%% @doc Sends a message to `info/4' of a connection.
-spec send(weir_http_socket:socket(), Message :: term()) -> ok | {error, closed}.
send(Socket, Message) -> weir_http_socket:tell(Socket, {weir_http, Socket, Message}).
