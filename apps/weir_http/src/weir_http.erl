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
%% A handler is a module of the behaviour {@link weir_http_direct} or {@link weir_http_process}; {@link weir_http_directory} has the
%% files of a directory. A direct handler leads to event streams ({@link weir_http_events}) and held requests ({@link
%% weir_http_held}). It gets a {@link weir_http_request}. Routes are
%% described in {@link weir_http_routes}.
%%
%% <h2>Events</h2>
%% In the form of {@link weir_event}, where the keys that all events share are described. Beside `name', `peer', `socket' and
%% `pid' the metadata are:
%% <table>
%% <tr><td>event</td><td>measurements</td><td>metadata</td></tr>
%% <tr><td>`[weir, request, stop]': a request was answered, or nothing more comes of it</td>
%%   <td>`monotonic_time', `duration' since its head was there, `bytes' of the body as sent</td>
%%   <td>`method', `path', `status', `request_id', `reason': `normal', `client_gone' or `process_ended'. The status is 499 if
%%   the client was gone before there was one</td></tr>
%% <tr><td>`[weir, request, exception]': a handler failed</td><td>`count'</td>
%%   <td>`method', `path', `request_id', `kind', `reason', `stacktrace'</td></tr>
%% <tr><td>`[weir, request, refuse]': what came was no request that could be served, or came too slowly</td><td>`count'</td>
%%   <td>`status', `reason': what the text of the response says</td></tr>
%% <tr><td>`[weir, request, timeout]': a connection was given up without a word</td><td>`count'</td><td></td></tr>
%% <tr><td>`[weir, connection, start]'</td><td>`monotonic_time', `system_time'</td><td></td></tr>
%% <tr><td>`[weir, connection, stop]'</td><td>`monotonic_time', `duration'</td><td>`reason'. Only of connections whose start could be
%%   heard</td></tr>
%% </table>
%% They happen in the reactor, but for those of failed process handlers: a handler of events must not wait. What nobody is
%% attached to is not measured; one that is attached hears of all requests a second later.
-module(weir_http).

-export([start_listener/3]).
-export([child_spec/3]).
-export([stop_listener/1]).
-export([drain_listener/2]).
-export([drain_listener/3]).
-export([set_routes/2]).
-export([info/1]).
-export([reopen_log/1]).

%% @doc Starts a listener, with a reactor on each scheduler that is online. `Name' is any term, of which no other listener has the same. The
%% options are those of `weir:start_listener/4' and the limits of HTTP, see {@link weir_http_options:options()}.
%%
%% Errors: `{bad_option, Name, Value, Allowed}', also for routes; those of `weir:start_listener/4'.
-spec start_listener(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) ->
    {ok, pid()} | {error, term()}.
start_listener(Name, Options, Routes) -> weir_http_listener:start(Name, Options, Routes).

%% @doc A listener for a supervisor of the user's own. Fails with `{bad_option, Name, Value, Allowed}' for what is wrong. It
%% is stopped by its supervisor.
-spec child_spec(weir_listener:name(), weir_http_options:options(), [weir_http_routes:route()]) -> supervisor:child_spec().
child_spec(Name, Options, Routes) -> weir_http_listener:child_spec(Name, Options, Routes).

%% @doc Stops a listener and closes its connections. See {@link drain_listener/2}.
-spec stop_listener(weir_listener:name()) -> ok | {error, {no_listener, weir_listener:name()}}.
stop_listener(Name) -> weir_http_listener:stop(Name).

%% @doc Refuses new connections, and waits for those that are there. Requests are answered, each response says `Connection:
%% close', and a connection without a request is closed. After `Timeout' milliseconds the error says how many are left. Fails
%% with `{no_listener, Name}', as the functions below, if there is none.
-spec drain_listener(weir_listener:name(), timeout()) -> ok | {error, {timeout, Remaining :: pos_integer()}}.
drain_listener(Name, Timeout) -> weir_http_listener:drain(Name, Timeout, #{}).

%% @doc The same with options: `spread' (0) is a time in milliseconds, no longer than `Timeout'. Event streams, WebSockets and held requests
%% do not end all at once, but evenly over that time, each at random, and so their clients come back one after the other. A stream also
%% says by `retry' when to come back, and a WebSocket closes with its `drain_code'. `{bad_option, Name, Value, Allowed}' for a wrong option.
-spec drain_listener(weir_listener:name(), timeout(), #{spread => non_neg_integer()}) ->
    ok | {error, {timeout, Remaining :: pos_integer()} | weir_checked_options:bad_option()}.
drain_listener(Name, Timeout, Options) -> weir_http_listener:drain(Name, Timeout, Options).

%% @doc Gives a listener other routes. Requests whose head comes from now on are served by them, on connections that are
%% there too. Costs a scan of all processes (see `persistent_term:put/2'): for deployments, not for every minute.
-spec set_routes(weir_listener:name(), [weir_http_routes:route()]) -> ok | {error, {bad_option, routes, term(), string()}}.
set_routes(Name, Routes) -> weir_http_listener:set_routes(Name, Routes).

%% @doc What a listener is and has done: `weir:info/1', and
%% <dl>
%% <dt>`requests'</dt><dd>whose head was complete and right</dd>
%% <dt>`refused'</dt><dd>that got a 4xx or 5xx and a close before a handler saw them</dd>
%% <dt>`timeouts'</dt><dd>connections closed because a request took too long to come</dd>
%% <dt>`crashes'</dt><dd>requests and WebSockets whose handler failed</dd>
%% <dt>`websockets', `websocket_messages'</dt><dd>that were opened, and that have come</dd>
%% <dt>`websocket_failures'</dt><dd>WebSockets whose client broke the protocol or a limit</dd>
%% <dt>`websocket_slow', `websocket_dropped'</dt><dd>WebSockets that were closed, and frames that were dropped, because the
%% client did not take what was sent</dd>
%% <dt>`log_dropped'</dt><dd>lines of the access log that were thrown away</dd>
%% <dt>`streams', `stream_slow', `stream_dropped'</dt><dd>event streams that were begun, that were closed because the client did not
%% take what was sent, and sends that were dropped for that</dd>
%% <dt>`held', `held_timeouts', `held_lost'</dt><dd>requests that were held, that were answered because their time was over, and
%% whose client was gone before</dd>
%% </dl>
-spec info(weir_listener:name()) -> map().
info(Name) -> weir_http_listener:info(Name).

%% @doc Has the access log opened by its name again: call it when a rotation has moved the file away. What was logged before the
%% call is in the old file, but for up to a second of lines that reactors still have. Errors: `no_access_log', or that of
%% {@link start_listener/3} for a file that cannot be written; then the old one stays.
-spec reopen_log(weir_listener:name()) -> ok | {error, no_access_log | {not_started, weir_http} | weir_listener:bad_option()}.
reopen_log(Name) -> weir_http_listener:reopen_log(Name).
