%% @doc A handler that runs in the reactor: the fastest, for what needs no waiting.
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
%% It is called once for each request, when the whole of it has come. While it runs, all connections of its reactor wait: it
%% must not wait for anything, and one that takes longer than `long_callback_ms' (see {@link weir_reactor:start_link/1}) is
%% named in a warning.
%%
%% <h2>Results</h2>
%% <ul>
%% <li>`{reply, Status, Fields, Body}'. Content-Length and Date are added, and Connection where it is needed. A field
%% `{<<"connection">>, <<"close">>}' closes the connection after the response. HEAD gets the response without its body.</li>
%% <li>`{redirect, Status, Location}': 301, 302, 303, 307 or 308.</li>
%% <li>`{file, Path}', `{file, Path, Fields}': the file of that name, with ETag, Last-Modified and a Content-Type that follows
%% from the name unless the fields have one. Conditions (If-None-Match and the others) and ranges, several too, are answered as
%% RFC 9110 says. A client that takes br or gzip gets `Path.br' or `Path.gz' where it is there. What is no file, or none that
%% is there, is a 404, one that may not be read a 403. The kernel sends the file, without a copy; through TLS a process reads
%% it, 64 KiB at a time. A file that was opened is kept for a second: until then what has replaced it is not seen. One that
%% becomes shorter while it is sent ends the connection. A path that is made from a request must be looked at by the handler;
%% see {@link weir_http_directory}.</li>
%% <li>`{process, Fun}': `Fun(Request)' is run by a process of its own, as a {@link weir_http_process}, and returns what that may
%% return.</li>
%% <li>`{events, Module, State}', `{events, Module, State, Options}': an event stream; see {@link weir_http_events}.</li>
%% <li>`{hold, Module, State}', `{hold, Module, State, Options}': the request is answered later; see {@link weir_http_held}.</li>
%% <li>`{websocket, Module, State}', `{websocket, Module, State, Options}': a WebSocket; see {@link weir_http_websocket}.</li>
%% </ul>
%% A handler that raises, or returns anything else, gives the client a 500, and a report with the request in the log. So
%% does a field that may not be sent: one whose name or value has a byte that would end it (CR, LF, NUL), or that is for the
%% server to say (Content-Length, Transfer-Encoding, Keep-Alive).
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
