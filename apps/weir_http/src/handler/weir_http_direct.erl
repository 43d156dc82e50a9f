%% @doc A handler that runs in the reactor: the fastest kind, for handlers that never wait.
%%
%% ```
%% -module(hello).
%% -behaviour(weir_http_direct).
%% -export([handle/2]).
%%
%% handle(_Request, Greeting) ->
%%     {reply, 200, [{<<"content-type">>, <<"text/plain">>}], [Greeting, "!"]}.
%% '''
%%
%% It is called once for each request, when the request is complete. While it runs, all connections of its reactor
%% wait: it must not block. A call that takes longer than `long_callback_ms' (see {@link weir_reactor:start_link/1}) is
%% logged as a warning.
%%
%% <h2>Results</h2>
%% <ul>
%% <li>`{reply, Status, Fields, Body}'. Content-Length and Date are added, and Connection where it is needed. A field
%% `{<<"connection">>, <<"close">>}' closes the connection after the response. HEAD gets the response without its
%% body.</li>
%% <li>`{redirect, Status, Location}': 301, 302, 303, 307 or 308.</li>
%% <li>`{file, Path}', `{file, Path, Fields}': the file at Path, with ETag, Last-Modified, and a Content-Type by its
%% extension unless Fields has one. Conditional requests (If-None-Match and the others) and ranges, also several, are
%% answered as in RFC 9110. A client that accepts br or gzip gets `Path.br' or `Path.gz' if it exists. If there is no
%% such regular file, the response is 404; if it may not be read, 403. The kernel sends the file without a copy; over
%% TLS a process reads it, 64 KiB at a time. An opened file is cached for a second: until then a replacement is not
%% seen. If the file becomes shorter while it is sent, the connection is closed. Check paths that you make from a
%% request, or use {@link weir_http_directory}.</li>
%% <li>`{process, Fun}': `Fun(Request)' runs in a new process, as a {@link weir_http_process}, and returns what such a
%% handler may return.</li>
%% <li>`{events, Module, State}', `{events, Module, State, Options}': an event stream; see
%% {@link weir_http_events}.</li>
%% <li>`{hold, Module, State}', `{hold, Module, State, Options}': the request is answered later; see
%% {@link weir_http_held}.</li>
%% <li>`{websocket, Module, State}', `{websocket, Module, State, Options}': a WebSocket; see
%% {@link weir_http_websocket}.</li>
%% </ul>
%% If a handler raises or returns anything else, the client gets a 500, and the failure is logged with the request. The
%% same happens for a field that may not be sent: one whose name or value contains CR, LF or NUL, or that only the
%% server may set (Content-Length, Transfer-Encoding, Keep-Alive).
-module(weir_http_direct).

-export_type([result/0, response/0, handler/0, status/0, fields/0]).

-type status() :: 200..599.

-type fields() :: [{Name :: binary(), Value :: iodata()}].

-type response() ::
    {reply, status(), fields(), Body :: iodata()}
    | {file, file:name_all()}
    | {file, file:name_all(), fields()}
    | {redirect, 301 | 302 | 303 | 307 | 308, Location :: iodata()}
    | {process, fun((weir_http_request:request()) -> weir_http_process:result())}.

-type result() ::
    response()
    | {events, module(), State :: term()}
    | {events, module(), State :: term(), weir_http_events:options()}
    | {hold, module(), State :: term()}
    | {hold, module(), State :: term(), weir_http_held:options()}
    | {websocket, module(), State :: term()}
    | {websocket, module(), State :: term(), weir_http_websocket:options()}.

-type handler() :: fun((weir_http_request:request(), State :: term()) -> result()).

-callback handle(weir_http_request:request(), State :: term()) -> result().
