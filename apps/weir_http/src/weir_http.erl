%% @doc HTTP/1.1 servers on Weir's reactors.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_http),
%% {ok, _} = weir_http:start_listener(web, #{port => 8080}, [
%%     {"/", hello, <<"Hello">>},
%%     {"/users/:id", users, [], #{methods => [<<"GET">>], constraints => #{id => integer}}}
%% ]).
%% '''
%%
%% A handler is a module of the behaviour {@link weir_http_direct} (runs in the reactor) or {@link weir_http_process}
%% (runs in a process). Both get a {@link weir_http_request}. A direct handler can start an event stream
%% ({@link weir_http_events}), a WebSocket ({@link weir_http_websocket}) or a held request ({@link weir_http_held}).
%% {@link weir_http_directory} serves the files of a directory. {@link weir_http_routes} describes routes.
%%
%% <h2>Events</h2>
%% See {@link weir_event} for the form of events and the keys that all events share. The metadata are `name', `peer',
%% `socket', `pid' and:
%% <table>
%% <tr><td>event</td><td>measurements</td><td>metadata</td></tr>
%% <tr><td>`[weir, request, stop]': a request was answered, or its client or process ended first</td>
%%   <td>`monotonic_time', `duration' since the head was complete, `bytes' of the body as sent</td>
%%   <td>`method', `path', `status', `request_id', `reason': `normal', `client_gone' or `process_ended'. The status is
%%   499 if the client disconnected before the response</td></tr>
%% <tr><td>`[weir, request, exception]': a handler failed</td><td>`count'</td>
%%   <td>`method', `path', `request_id', `kind', `reason', `stacktrace'</td></tr>
%% <tr><td>`[weir, request, refuse]': a malformed, too large or slow request was refused</td><td>`count'</td>
%%   <td>`status', `reason': the text of the response</td></tr>
%% <tr><td>`[weir, request, timeout]': a connection was closed after a timeout, without a response</td>
%%   <td>`count'</td><td></td></tr>
%% <tr><td>`[weir, connection, start]'</td><td>`monotonic_time', `system_time'</td><td></td></tr>
%% <tr><td>`[weir, connection, stop]'</td><td>`monotonic_time', `duration'</td><td>`reason'. Only for connections that
%%   began while a handler of one of these two events was attached</td></tr>
%% </table>
%% Events are executed in the reactor, except those of failed process handlers: an event handler must not block.
%% Requests are measured only while a handler is attached. A new handler gets the requests that begin after
%% the next tick, at most a second later.
-module(weir_http).

-export([start_listener/3]).
-export([child_spec/3]).
-export([stop_listener/1]).
-export([drain_listener/2]).
-export([drain_listener/3]).
-export([set_routes/2]).
-export([info/1]).
-export([reopen_log/1]).

%% @doc Starts a listener, with a reactor on each scheduler that is online. `Name' is any term that no other listener
%% has. The options are those of `weir:start_listener/4' and the limits of HTTP, see
%% {@link weir_http_options:options()}.
%%
%% Errors: `{bad_option, Name, Value, Allowed}', also for routes; `{not_started, weir_http}' if there is an access log
%% and the application is not running; those of `weir:start_listener/4'.
-spec start_listener(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) ->
    {ok, pid()} | {error, term()}.
start_listener(Name, Options, Routes) -> weir_http_listener:start(Name, Options, Routes).

%% @doc Returns the child specification of a listener for your own supervisor, which also stops it. Fails with
%% `{bad_option, Name, Value, Allowed}'.
-spec child_spec(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) ->
    supervisor:child_spec().
child_spec(Name, Options, Routes) -> weir_http_listener:child_spec(Name, Options, Routes).

%% @doc Stops a listener and closes its connections. See {@link drain_listener/2}.
-spec stop_listener(weir_listener:name()) -> ok | {error, {no_listener, weir_listener:name()}}.
stop_listener(Name) -> weir_http_listener:stop(Name).

%% @doc Refuses new connections, and waits until the existing ones have ended. Requests are answered with
%% `Connection: close', and connections without a request are closed. After `Timeout' milliseconds it returns an error
%% with the number of connections that remain. Fails with `{no_listener, Name}' if there is no such listener, as the
%% functions below do.
-spec drain_listener(weir_listener:name(), timeout()) -> ok | {error, {timeout, Remaining :: pos_integer()}}.
drain_listener(Name, Timeout) -> weir_http_listener:drain(Name, Timeout, #{}).

%% @doc {@link drain_listener/2} with options. `spread' (0) is a time in milliseconds, at most `Timeout'. Event
%% streams, WebSockets and held requests end at random times spread evenly over it, so that their clients do not
%% reconnect all at once. A stream also sends `retry' with the time after which to reconnect, and a WebSocket closes
%% with its `drain_code'. Returns `{bad_option, Name, Value, Allowed}' for a wrong option.
-spec drain_listener(weir_listener:name(), timeout(), #{spread => non_neg_integer()}) ->
    ok | {error, {timeout, Remaining :: pos_integer()} | weir_checked_options:bad_option()}.
drain_listener(Name, Timeout, Options) -> weir_http_listener:drain(Name, Timeout, Options).

%% @doc Replaces the routes of a listener. They serve all requests whose head arrives from now on, also on existing
%% connections. Costs a scan of all processes (see `persistent_term:put/2'): call it for a deployment, not every
%% minute.
-spec set_routes(weir_listener:name(), [weir_http_routes:route()]) ->
    ok | {error, {bad_option, routes, term(), string()}}.
set_routes(Name, Routes) -> weir_http_listener:set_routes(Name, Routes).

%% @doc Returns the state and the counters of a listener: the map of `weir:info/1', and
%% <dl>
%% <dt>`requests'</dt><dd>requests with a complete, valid head</dd>
%% <dt>`refused'</dt><dd>requests refused with a 4xx or 5xx and a close, before a handler saw them</dd>
%% <dt>`timeouts'</dt><dd>connections closed because a request took too long to arrive, the client did not read its
%% response, or a WebSocket was silent</dd>
%% <dt>`crashes'</dt><dd>requests, streams and WebSockets whose handler failed</dd>
%% <dt>`cut_off'</dt><dd>responses cut off because their file became shorter while it was sent</dd>
%% <dt>`websockets', `websocket_messages'</dt><dd>WebSockets opened, and messages received on them</dd>
%% <dt>`websocket_failures'</dt><dd>WebSockets closed because the client broke the protocol or a limit</dd>
%% <dt>`websocket_slow', `websocket_dropped'</dt><dd>WebSockets closed, and frames dropped, because the client did not
%% read fast enough</dd>
%% <dt>`log_dropped'</dt><dd>lines of the access log that were not written</dd>
%% <dt>`streams', `stream_slow', `stream_dropped'</dt><dd>event streams opened; streams closed, and sends dropped,
%% because the client did not read fast enough</dd>
%% <dt>`held', `held_timeouts', `held_lost'</dt><dd>requests held; answered because their timeout passed; lost because
%% the client disconnected first</dd>
%% </dl>
-spec info(weir_listener:name()) -> map().
info(Name) -> weir_http_listener:info(Name).

%% @doc Reopens the access log by its name. Call it after a rotation has moved the file away. Lines logged before the
%% call are in the old file, except up to a second of lines that reactors still buffer. Errors: `no_access_log',
%% `{not_started, weir_http}', or `{bad_option, access_log, Value, Allowed}' for a file that cannot be opened; then the
%% old one stays in use.
-spec reopen_log(weir_listener:name()) ->
    ok | {error, no_access_log | {not_started, weir_http} | weir_listener:bad_option()}.
reopen_log(Name) -> weir_http_listener:reopen_log(Name).
