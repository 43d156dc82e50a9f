%% @private
%% @doc The process of one request; see {@link weir_http_process}.
-module(weir_http_worker).

-export([start/5]).
-export([stop/1]).
-export([is_worker/1]).
-export([run/6]).

-include("weir_http.hrl").

%% @doc Starts it from the reactor, which is told of its end as of anything about the connection.
-spec start(weir_http_routes:target(), weir_http_request:request(), weir_http_answer:wanted(), weir_http_process:body(), #http{}) ->
    {pid(), reference()}.
start(#{handler := Handler, state := State}, Request, Wanted, Body, #http{name = Name, counters = Counters, reports = Reports}) ->
    ok = weir_http_orphans:watch(),
    Pid = proc_lib:spawn(?MODULE, run, [Handler, State, Request, Wanted, Body, {Name, Counters, Reports}]),
    {Pid, erlang:monitor(process, Pid, [{tag, {weir_reactor, weir_http_request:connection(Request)}}])}.

%% @doc Tells it that its client is gone. It ends, unless it traps exits.
-spec stop(pid()) -> ok.
stop(Pid) ->
    Pid ! {weir_http, gone},
    _ = exit(Pid, {shutdown, client_gone}),
    ok.

%% @doc Whether a process is that of a request, or of a WebSocket.
-spec is_worker(pid()) -> boolean().
is_worker(Pid) ->
    lists:member(proc_lib:translate_initial_call(Pid), [{?MODULE, run, 6}, {weir_http_websocket_process, run, 2}]).

-spec run(weir_http_process:handler(), term(), weir_http_request:request(), weir_http_answer:wanted(), weir_http_process:body(),
    weir_http_answer:listener()) -> ok.
run(Handler, State, Request, Wanted, Body, Listener) ->
    ok = weir_http_process:begin_with(weir_http_request:connection(Request), Request, Wanted, Body),
    try
        finished(weir_http_process:finish(with_file(Handler(Request, State), Request)))
    catch
        exit:{shutdown, client_gone} -> ok;
        exit:{shutdown, cut_off} -> weir_http_counters:add(element(2, Listener), cut_off);
        Class:Reason:Stack -> crashed(Class, Reason, Stack, Request, Listener)
    end.

with_file({file, Place}, Request) -> weir_http_process:file(weir_http_file:serve(Request, Place, []));
with_file({file, Place, Fields}, Request) -> weir_http_process:file(weir_http_file:serve(Request, Place, Fields));
with_file(Result, _Request) -> Result.

finished(ok) -> ok;
finished({error, closed}) -> ok.

crashed(Class, Reason, Stack, Request, Listener) ->
    Crash = fun(Wanted) -> weir_http_answer:crashed(Class, Reason, Stack, Request, Wanted, Listener) end,
    case weir_http_process:has_begun() of
        false ->
            finished(weir_http_process:finish({crash, Crash}));
        true ->
            %% It is counted and reported; that the end is missing is said by the end of this process.
            _ = Crash(close),
            ok
    end.
