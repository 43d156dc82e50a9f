%% @doc WebSockets (RFC 6455): a handler whose connections live in the reactor, and what any process can do with them.
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
%% A direct handler answers a handshake with `{websocket, Module, State}' or `{websocket, Module, State, Options}', or refuses it
%% with any other result. What is no handshake gets 426, a version that is not 13 too, a bad key 400, and an origin that is not
%% allowed 403. What follows are calls of Module.
%%
%% The callbacks run in the reactor: while one runs, all connections of its scheduler wait. A handler that has to wait for
%% something returns `{process, Fun}'.
%%
%% <h2>Callbacks</h2>
%% <ul>
%% <li>`open(Socket, State)', optional: the handshake is done. The WebSocket is known by its socket, to other processes and to
%% groups. No callback comes before this one, and only `closed' without it: where the connection ends at once.</li>
%% <li>`message({text | binary, Bytes}, State)': a whole message. Text is UTF-8.</li>
%% <li>`info(Message, State)', optional: what {@link tell/2} has sent, or a monitor with the tag of {@link
%% weir_reactor:send/2}.</li>
%% <li>`written(Socket, State)', optional: what was sent is with the kernel. Called after `weir:notify_writable(Socket)'.</li>
%% <li>`closed(Reason, State)', optional: the last call, exactly one for each WebSocket whose handshake was answered; see
%% {@type reason()}. What it returns is ignored.</li>
%% </ul>
%% <h2>Results</h2>
%% <ul>
%% <li>`{ok, State}'</li>
%% <li>`{send, Frames, State}': a {@type frame()}, or a list of them.</li>
%% <li>`{close, State}', `{close, Code, Text, State}': a close frame is sent, with 1000 or that code and at most 123 bytes of
%% text, and the client has `close_timeout' to answer it.</li>
%% <li>`{process, Fun}': `Fun(Socket)' runs in a process of its own, which gets the messages by {@link recv/1} or {@link next/1}
%% and sends by {@link send/2}. When it ends the WebSocket is closed, with 1000, or 1011 if it has failed.</li>
%% </ul>
%% A callback that raises, or returns something else, closes its own WebSocket with 1011, with a report in the log.
%%
%% <h2>Broadcasts</h2>
%% `weir_group:broadcast(Group, frame(Frame))' sends one frame, made once, to all members of a group, also to those with
%% permessage-deflate. Join in `open/2' or later, not before: else a message may go out before the handshake.
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
%% A WebSocket, to all who send on it. It can be a member of a group (see {@link weir_group}) unless its listener has TLS.

-type message() :: {text | binary, binary()}.

-type frame() :: {text | binary | ping | pong, iodata()} | {framed, binary()}.
%% `framed' are the bytes of {@link frame/1}. A ping or pong has at most 125 bytes. Pings of clients are answered already.

-opaque shared() :: none | weir_http_websocket_deflate:deflate().
%% How frames are compressed for many WebSockets.

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
%% Why a WebSocket is closed. `peer': it has sent a close frame. `closed': we have: by a result, by a drain, or because a process
%% has ended. `failed': it has broken the protocol, or a limit, and was told that code. `timeout': nothing came for
%% `idle_timeout'. `slow': it does not take what is sent. `lost': the connection has ended, without a close frame or with the
%% listener. `crashed': a callback has failed.

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
%% Times are milliseconds, kept to within a tick of the listener.
%% <dl>
%% <dt>`protocol'</dt><dd>The subprotocol: one of {@link protocols/1}.</dd>
%% <dt>`fields'</dt><dd>Fields of the response.</dd>
%% <dt>`origins' (`same')</dt><dd>The values of `Origin' that are allowed: pages of other sites can open WebSockets with the
%% cookies of their visitors. `same': its host and port are those of `Host'. A client without that field is no browser, and
%% allowed.</dd>
%% <dt>`deflate' (`false')</dt><dd>permessage-deflate for clients that offer it.</dd>
%% <dt>`max_message' (1048576)</dt><dd>Bytes of a message, in however many frames, and of what it inflates to. A larger one is
%% refused with 1009 as soon as that is known.</dd>
%% <dt>`max_pending' (262144), `slow' (`close')</dt><dd>When so many bytes wait for the client, frames that it did not ask for
%% (of `info/2', {@link send/2}, and processes) are dropped, or it is closed with 1013. Its own messages are not read while 64 KiB of
%% answers to them wait. The queue of the socket itself (`max_send_queue' of {@link weir_reactor}) is the bound for groups.</dd>
%% <dt>`idle_timeout' (60000), `ping_interval' (30000)</dt><dd>A client of whom nothing has come for that time is sent a ping, up
%% to a quarter earlier so that not all are due together, and then is gone.</dd>
%% <dt>`close_timeout' (5000)</dt><dd>For the answer to a close frame.</dd>
%% <dt>`drain_code' (1001)</dt><dd>The code when the listener is drained: 1001, going away, or 1012, restart.</dd>
%% </dl>

-callback open(websocket(), State :: term()) -> result().
-callback message(message(), State :: term()) -> result().
-callback info(Message :: term(), State :: term()) -> result().
-callback written(websocket(), State :: term()) -> result().
-callback closed(reason(), State :: term()) -> term().

-optional_callbacks([open/2, info/2, written/2, closed/2]).

%% @doc Sends frames, from any process. Returns at once: nothing says whether they have arrived. Fails with `{bad_frame, Frame}'
%% for one that may not be sent, such as a text that is not UTF-8.
-spec send(websocket(), frame() | [frame()]) -> ok | {error, closed}.
send(Socket, Frames) ->
    Checked = weir_http_websocket_frames:check(Frames),
    weir_http_switched:send(Socket, {websocket_send, Checked}).

%% @doc Sends a message to a WebSocket: its handler's `info/2' is called with it.
-spec tell(websocket(), Message :: term()) -> ok | {error, closed}.
tell(Socket, Message) -> weir_http_switched:send(Socket, {websocket_info, Message}).

%% @doc The bytes of a frame, to be made once and sent to many. Fails as {@link send/2}.
-spec frame(frame()) -> binary().
frame(Frame) -> weir_http_websocket_frames:frame(Frame).

%% @doc How frames may be compressed for the WebSocket of a handshake, if its option `deflate' is as given, without `context'. Many WebSockets
%% have the same: a frame that {@link frame/2} has made for it is for all of them. Fails with `{bad_option, Name, Value, Allowed}'.
-spec shared(weir_http_request:request(), boolean() | weir_http_websocket_deflate:options()) -> shared().
shared(Request, Deflate) ->
    case weir_http_websocket_deflate:offer(Deflate) of
        {ok, false} -> none;
        {ok, _} when is_map(Deflate), map_get(context, Deflate) -> error({bad_option, context, true, "false, to share frames"});
        {ok, Offer} -> weir_http_websocket_deflate:shared(weir_http_request:field(<<"sec-websocket-extensions">>, Request), Offer);
        {error, Bad} -> error(Bad)
    end.

%% @doc The bytes of a frame, compressed once for many. Fails as {@link send/2}.
-spec frame(frame(), shared()) -> binary().
frame(Frame, Shared) ->
    {Bytes, _} = weir_http_websocket_frames:encode(Frame, Shared),
    iolist_to_binary(Bytes).

%% @doc The subprotocols that a client offers, the best first.
-spec protocols(weir_http_request:request()) -> [binary()].
protocols(Request) -> weir_http_websocket_handshake:protocols(Request).

%% @doc The next message, or why there is none: after `closed' there is no other. Waits for it.
-spec recv(websocket()) -> message() | {closed, reason()}.
recv(Socket) -> recv(Socket, infinity).

%% @doc {@link recv/1} for so many milliseconds. What comes after a `timeout' is what the next call returns.
-spec recv(websocket(), timeout()) -> message() | {closed, reason()} | timeout.
recv(Socket, Timeout) ->
    ok = next(Socket),
    receive
        {weir_http_websocket, Socket, Message} -> Message
    after Timeout -> timeout
    end.

%% @doc Asks for the next message, which comes as `{weir_http_websocket, Socket, Message}' to the calling process, that of
%% `{process, Fun}'. `{closed, Reason}' comes without being asked for, behind all messages. A client whose messages nobody asks
%% for is not read while 64 KiB of them wait.
-spec next(websocket()) -> ok.
next(Socket) ->
    _ = weir_http_switched:send(Socket, {websocket_next, self()}),
    ok.
