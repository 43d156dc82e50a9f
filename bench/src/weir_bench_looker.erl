%% @doc Monitoring tools that run inside the node: weir_scope, recon, observer_cli, and tracers. See {@link
%% weir_bench_node}.
-module(weir_bench_looker).

-export([begin_looking/1]).
-export([top/2]).
-export([begin_tracing/2]).
-export([numbers/0]).

%% Sampling interval in milliseconds.
-define(INTERVAL, 1000).

%% Rows of a table, and the milliseconds that it covers, in which the tool only waits.
-define(ROWS, 20).
-define(OVER, 100).

%% @doc Starts sampling the totals of the VM once a second, for ever. observer_cli draws its first page every 1.5
%% seconds, its default, into a terminal that is not displayed.
-spec begin_looking(weir_bench_node:looks()) -> ok.
begin_looking(weir_scope) ->
    {ok, _} = application:ensure_all_started(weir_scope),
    begun(fun() ->
        {ok, View} = weir_scope:open(node(), #{}),
        samples(View)
    end);
begin_looking(recon) ->
    begun(fun() -> peer(recon, node_stats, [1_000_000, ?INTERVAL, fun(_, ok) -> ok end, ok]) end);
begin_looking(observer_cli) ->
    Terminal = spawn_link(fun terminal/0),
    begun(fun() ->
        true = group_leader(Terminal, self()),
        peer(observer_cli, start, [])
    end).

begun(Fun) ->
    _ = spawn_link(Fun),
    ok.

samples(View) ->
    {ok, _} = weir_scope:sample(View),
    timer:sleep(?INTERVAL),
    samples(View).

%% Accepts output and returns no input.
terminal() ->
    receive
        {io_request, From, Reference, Request} ->
            Answers = #{put_chars => [ok], requests => [ok], get_line => []},
            lists:foreach(
                fun(Answer) -> From ! {io_reply, Reference, Answer} end,
                maps:get(element(1, Request), Answers, [{error, enotsup}])
            ),
            terminal()
    end.

%% @doc Returns one table: the 20 processes with most reductions, or the 20 sockets with most bytes.
-spec top(weir_bench_node:looks(), processes | sockets) -> term().
top(weir_scope, processes) -> weir_scope_top:processes(#{by => reductions, most => ?ROWS, over => ?OVER});
top(weir_scope, sockets) -> weir_scope_top:sockets(#{by => bytes, most => ?ROWS, over => ?OVER});
top(recon, processes) -> peer(recon, proc_window, [reductions, ?ROWS, ?OVER]);
top(recon, sockets) -> peer(recon, inet_window, [oct, ?ROWS, ?OVER]).

%% Calls by name, because the application may be missing at build time.
peer(Application, Function, Arguments) -> apply(Application, Function, Arguments).

%% @doc Traces the schedules of all processes for a number of milliseconds: not at all, with the native tracer, or
%% with a process that gets a message for each event and drops it.
-spec begin_tracing(nobody | weir_scope | messages, Milliseconds :: pos_integer()) -> ok.
begin_tracing(nobody, _Milliseconds) ->
    ok;
begin_tracing(weir_scope, Milliseconds) ->
    {ok, _} = application:ensure_all_started(weir),
    native = weir_scope_schedules:tracer(),
    begun(fun() -> {ok, #{complete := true}} = weir_scope_schedules:measure(#{over => Milliseconds}) end);
begin_tracing(messages, _Milliseconds) ->
    Dropping = spawn_opt(fun drop/0, [link, {message_queue_data, off_heap}, {priority, high}]),
    _ = erlang:trace(all, true, [running_procs, monotonic_timestamp, {tracer, Dropping}]),
    ok.

drop() ->
    receive _ -> drop() end.

%% @doc Returns the numbers that weir_scope keeps for one second of this node.
-spec numbers() -> [{weir_scope_sample:name(), float()}].
numbers() ->
    {ok, View} = weir_scope:open(node(), #{}),
    {ok, Sample} = weir_scope:sample(View),
    ok = weir_scope:close(View),
    weir_scope_sample:numbers(Sample).
