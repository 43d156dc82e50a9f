%% @private
%% @doc The process of one request; see {@link weir_http_process}.
-module(weir_http_worker).

-export([start/5]).
-export([initial_call/0]).
-export([run/6]).

-include("weir_http.hrl").

%% @doc Starts the process from the reactor, which gets its end as a message for the connection.
-spec start(
    weir_http_routes:target(),
    weir_http_request:request(),
    weir_http_response:wanted(),
    weir_http_process:body(),
    #http{}
) ->
    {pid(), reference()}.
start(#{handler := Handler, state := State}, Request, Wanted, Body, #http{
    name = Name, counters = Counters, reports = Reports
}) ->
    ok = weir_http_orphans:watch(),
    %% Spawn and monitor in one call: for a process that died before a later monitor/2, the reason would be `noproc'.
    {_Pid, _Monitor} = proc_lib:spawn_opt(
        ?MODULE,
        run,
        [Handler, State, Request, Wanted, Body, {Name, Counters, Reports}],
        [{monitor, [{tag, {weir_reactor, weir_http_request:connection(Request)}}]}]
    ).

%% @doc Returns the initial call of these processes, see `proc_lib:translate_initial_call/1'.
-spec initial_call() -> mfa().
initial_call() -> {?MODULE, run, 6}.

-spec run(
    weir_http_process:handler(),
    term(),
    weir_http_request:request(),
    weir_http_response:wanted(),
    weir_http_process:body(),
    weir_http_crash:listener()
) -> ok.
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
    Crash = fun(Wanted) -> weir_http_crash:response(Class, Reason, Stack, Request, Wanted, Listener) end,
    case weir_http_process:has_begun() of
        false ->
            finished(weir_http_process:finish({crash, Crash}));
        true ->
            %% Counts and reports. The end of this process makes the connection close, so the client sees that the end
            %% is missing.
            _ = Crash(close),
            ok
    end.
