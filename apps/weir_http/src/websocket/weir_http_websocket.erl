%% @doc WebSockets (RFC 6455): a handler whose connections live in the reactor, and functions that any process can use
%% to send to them.
%%
%% ```
%% -module(chat).
%% -behaviour(weir_http_direct).
%% -behaviour(weir_http_websocket).
%% -export([handle/2, open/2, message/2]).
%%
%% handle(_Request, Group) -> {websocket, chat, Group}.
%%
%% open(Socket, Group) ->
%%     ok = weir_group:join(Group, Socket),
%%     {send, {text, "Welcome!"}, Group}.
%%
%% message(Message, Group) ->
%%     _ = weir_group:broadcast(Group, weir_http_websocket:frame(Message)),
%%     {ok, Group}.
%% '''
%%
%% A direct handler answers a handshake with `{websocket, Module, State}' or `{websocket, Module, State, Options}', or
%% refuses it with any other result. A request that is not a handshake, or asks for a version other than 13, gets 426;
%% a bad key 400; a forbidden origin 403. After the handshake callbacks of Module are called.
%%
%% The callbacks run in the reactor: while one runs, all connections of its scheduler wait. A handler that has to wait
%% returns `{process, Fun}'.
%%
%% <h2>Callbacks</h2>
%% <ul>
%% <li>`open(Socket, State)', optional: the handshake is done. Socket identifies the WebSocket for other processes and
%% for groups. No callback is called before this one, except `closed' alone if the connection ends at once.</li>
%% <li>`message({text | binary, Bytes}, State)': a whole message. Text is valid UTF-8.</li>
%% <li>`info(Message, State)', optional: a message of {@link tell/2}, or of a monitor with the tag that {@link
%% weir_reactor:send/2} describes.</li>
%% <li>`written(Socket, State)', optional: the kernel has all output. Called after `weir:notify_writable(Socket)'.</li>
%% <li>`closed(Reason, State)', optional: the last call, exactly one for each WebSocket whose handshake was answered;
%% see {@type reason()}. Its result is ignored.</li>
%% </ul>
%% <h2>Results</h2>
%% <ul>
%% <li>`{ok, State}'</li>
%% <li>`{send, Frames, State}': a {@type frame()}, or a list of them.</li>
%% <li>`{close, State}', `{close, Code, Text, State}': sends a close frame with code 1000, or with that code and at
%% most 123 bytes of text. The client has `close_timeout' to answer it.</li>
%% <li>`{process, Fun}': `Fun(Socket)' runs in a new process, which receives messages with {@link recv/1} or
%% {@link next/1} and sends with {@link send/2}. When it ends, the WebSocket is closed with 1000, or with 1011 if it
%% failed.</li>
%% </ul>
%% If a callback raises or returns something else, its WebSocket is closed with 1011 and the failure is logged.
%%
%% <h2>Broadcasts</h2>
%% `weir_group:broadcast(Group, frame(Frame))' sends one frame, made once, to all members of a group, also to those
%% with permessage-deflate. Join in `open/2' or later: before that a message could go out ahead of the handshake.
-module(weir_http_websocket).

-export([send/2]).
-export([tell/2]).
-export([frame/1, frame/2]).
-export([shared/2]).
-export([protocols/1]).

%% For a process of {process, Fun}.
-export([recv/1, recv/2]).
-export([next/1]).

-export_type([shared/0, websocket/0, message/0, frame/0, result/1, result/0, reason/0, options/0]).

-type websocket() :: weir_tcp:socket() | {weir_http_tls, pid(), ssl:sslsocket(), atomics:atomics_ref()}.
%% A WebSocket, for all senders. It can be a member of a group (see {@link weir_group}) unless its listener has TLS.

-type message() :: {text | binary, binary()}.

-type frame() :: {text | binary | ping | pong, iodata()} | {framed, binary()}.
%% `framed': the result of {@link frame/1}. A ping or pong has at most 125 bytes. Pings of clients are answered
%% automatically.

-opaque shared() :: none | weir_http_websocket_deflate:deflate().
%% How frames are compressed for several WebSockets.

-type result(State) ::
    {ok, State}
    | {send, frame() | [frame()], State}
    | {close, State}
    | {close, Code :: 1000..4999, Text :: iodata(), State}
    | {process, fun((websocket()) -> term())}.

-type result() :: result(term()).

-type reason() ::
    {peer, Code :: 1000..4999 | none, Text :: binary()}
    | {closed, Code :: 1000..4999, Text :: binary()}
    | {failed, Code :: 1002..1009, What :: atom()}
    | timeout
    | slow
    | {lost, term()}
    | {crashed, {error | exit | throw, term()}}.
%% Why a WebSocket was closed. `peer': the client sent a close frame. `closed': the server closed it: by a result, a
%% drain, or because a process ended. `failed': the client broke the protocol or a limit, and was sent that code.
%% `timeout': nothing arrived for `idle_timeout'. `slow': the client does not read fast enough. `lost': the connection
%% ended without a close frame, or with the listener. `crashed': a callback failed.

-type options() :: #{
    protocol => binary(),
    fields => weir_http_direct:fields(),
    origins => any | same | [binary()],
    deflate => boolean() | weir_http_websocket_deflate:options(),
    max_message => pos_integer(),
    max_pending => pos_integer(),
    slow => close | drop,
    idle_timeout => timeout(),
    ping_interval => timeout(),
    close_timeout => pos_integer(),
    drain_code => 1001 | 1012
}.
%% Times are milliseconds, accurate to a tick of the listener.
%% <dl>
%% <dt>`protocol'</dt><dd>The subprotocol: one of {@link protocols/1}.</dd>
%% <dt>`fields'</dt><dd>Fields of the response.</dd>
%% <dt>`origins' (`same')</dt><dd>The allowed values of `Origin'. Without this check, pages of other sites could open
%% WebSockets with the cookies of their visitors. `same': host and port must equal those in `Host'. A client without
%% that field is not a browser, and is allowed.</dd>
%% <dt>`deflate' (`false')</dt><dd>permessage-deflate for clients that offer it.</dd>
%% <dt>`max_message' (1048576)</dt><dd>Bytes of a message over all its frames, and after inflating. A larger one is
%% refused with 1009 as soon as its size is known.</dd>
%% <dt>`max_pending' (262144), `slow' (`close')</dt><dd>When this many bytes wait for the client, unsolicited frames
%% (from `info/2', {@link send/2}, and processes) are dropped, or the WebSocket is closed with 1013. Messages of the
%% client are not handled while 64 KiB of answers to them wait. For broadcasts the limit is the send queue of the
%% socket (`max_send_queue' of {@link weir_reactor}).</dd>
%% <dt>`idle_timeout' (60000), `ping_interval' (30000)</dt><dd>A silent client is sent a ping after `ping_interval', up
%% to a quarter earlier so that pings are not all due together, and is closed after `idle_timeout'.</dd>
%% <dt>`close_timeout' (5000)</dt><dd>For the client's answer to a close frame.</dd>
%% <dt>`drain_code' (1001)</dt><dd>The close code when the listener is drained: 1001, going away, or 1012,
%% restart.</dd>
%% </dl>

-callback open(websocket(), State :: term()) -> result().
-callback message(message(), State :: term()) -> result().
-callback info(Message :: term(), State :: term()) -> result().
-callback written(websocket(), State :: term()) -> result().
-callback closed(reason(), State :: term()) -> term().

-optional_callbacks([open/2, info/2, written/2, closed/2]).

%% @doc Sends frames, from any process. Returns at once, without confirmation of delivery. Fails with
%% `{bad_frame, Frame}' for a frame that may not be sent, such as a text that is not UTF-8.
-spec send(websocket(), frame() | [frame()]) -> ok | {error, closed}.
send(Socket, Frames) ->
    Checked = weir_http_websocket_frames:check(Frames),
    weir_http_upgrade:send(Socket, {websocket_send, Checked}).

%% @doc Sends a message to a WebSocket, for the callback `info/2' of its handler.
-spec tell(websocket(), Message :: term()) -> ok | {error, closed}.
tell(Socket, Message) -> weir_http_upgrade:send(Socket, {websocket_info, Message}).

%% @doc Encodes a frame once, to send it to many. Fails like {@link send/2}.
-spec frame(frame()) -> binary().
frame(Frame) -> weir_http_websocket_frames:frame(Frame).

%% @doc Returns how frames can be compressed for the WebSocket of a handshake, with that option `deflate' (without
%% `context'). Many WebSockets share the result: a frame that {@link frame/2} has made for it can be sent to all of
%% them. Fails with `{bad_option, Name, Value, Allowed}'.
-spec shared(weir_http_request:request(), boolean() | weir_http_websocket_deflate:options()) -> shared().
shared(Request, Deflate) ->
    case weir_http_websocket_deflate:offer(Deflate) of
        {ok, false} ->
            none;
        {ok, _} when is_map(Deflate), map_get(context, Deflate) ->
            error({bad_option, context, true, "false, to share frames"});
        {ok, Offer} ->
            weir_http_websocket_deflate:shared(weir_http_request:field(<<"sec-websocket-extensions">>, Request), Offer);
        {error, Bad} ->
            error(Bad)
    end.

%% @doc Encodes and compresses a frame once for many WebSockets. Fails like {@link send/2}.
-spec frame(frame(), shared()) -> binary().
frame(Frame, Shared) ->
    {Bytes, _} = weir_http_websocket_frames:encode(Frame, Shared),
    iolist_to_binary(Bytes).

%% @doc Returns the subprotocols that a client offers, the preferred one first.
-spec protocols(weir_http_request:request()) -> [binary()].
protocols(Request) -> weir_http_websocket_handshake:protocols(Request).

%% @doc Waits for and returns the next message, or why the WebSocket was closed: then no more messages follow.
-spec recv(websocket()) -> message() | {closed, reason()}.
recv(Socket) -> recv(Socket, infinity).

%% @doc {@link recv/1} with a timeout in milliseconds. A message that arrives after a `timeout' is returned by the next
%% call.
-spec recv(websocket(), timeout()) -> message() | {closed, reason()} | timeout.
recv(Socket, Timeout) ->
    ok = next(Socket),
    receive
        {weir_http_websocket, Socket, Message} -> Message
    after Timeout -> timeout
    end.

%% @doc Asks for the next message, which is sent as `{weir_http_websocket, Socket, Message}' to the calling process,
%% that of `{process, Fun}'. `{closed, Reason}' is sent without being asked for, after all messages. The connection is
%% not read while more than 64 KiB of messages wait to be asked for.
-spec next(websocket()) -> ok.
next(Socket) ->
    _ = weir_http_upgrade:send(Socket, {websocket_next, self()}),
    ok.
