%% @doc Shows where a node spends its time: this node, or any node of OTP 25 or later that distribution reaches. The
%% other node needs no part of Weir.
%%
%% ```
%% {ok, View} = weir_scope:open('app@127.0.0.1', #{}),
%% {ok, #{schedulers := Schedulers}} = weir_scope:sample(View),
%% {ok, Busiest} = weir_scope:processes(View, #{by => reductions, most => 10}),
%% ok = weir_scope:close(View).
%% '''
%%
%% One process samples a node once a second, for all views; {@link sample/1} and {@link history/3} read its samples.
%% The other functions measure when they are called; their documentation says what that costs. Where the application
%% `weir_scope' runs, it contains the sampler, which keeps the last day. Elsewhere the sampler starts with the first
%% view and ends with the last.
%%
%% Everything is read-only. A view ends with the process that has opened it. Nothing stays on the node: no module,
%% process, tracer or flag.
-module(weir_scope).

-export([open/2]).
-export([close/1]).
-export([sample/1]).
-export([history/3]).
-export([processes/2]).
-export([sockets/2]).
-export([relays/2]).
-export([listeners/1]).
-export([mappings/1]).
-export([microstates/2]).
-export([clocks/1]).
-export([locks/1]).
-export([tracer/1]).
-export([schedules/2]).
-export([ping_pong/2]).

-export_type([view/0, reason/0]).

%% Milliseconds to wait for a sampler to stop. It may be waiting for a node that hangs.
-define(PATIENCE, 5000).

-record(view, {visit :: weir_scope_visit:visit(), sampler :: pid()}).

-opaque view() :: #view{}.

-type reason() ::
    weir_scope_visit:reason()
    | {bad_option, Key :: atom(), Value :: term(), Allowed :: term()}
    | {needs_load, atom()}
    | {not_sampled, node(), Why :: binary()}.
%% `needs_load': this cannot be measured with `load => false'; see {@link open/2}. `not_sampled': the node answers, but
%% every sample has failed.

%% @doc Opens a view of a node. The view ends with the calling process. With `load => false' no module is loaded on the
%% node: calls take longer, clocks/1 does not measure costs, and schedules/2 and ping_pong/2 return `needs_load'.
%% Errors: see {@link weir_scope_visit:reason()}.
-spec open(node(), weir_scope_visit:options()) -> {ok, view()} | {error, reason()}.
open(Node, Options) ->
    case weir_scope_visit:begin_visit(Node, Options) of
        {ok, Visit} ->
            case weir_scope_visit:sampler(Visit) of
                {ok, Sampler} ->
                    {ok, #view{visit = Visit, sampler = Sampler}};
                {error, _} = Error ->
                    ok = weir_scope_visit:end_visit(Visit),
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Closes a view. The modules that were loaded for it are gone when this returns, unless the node has other views.
-spec close(view()) -> ok.
close(#view{visit = Visit, sampler = Sampler}) ->
    _ = weir_scope_visit:is_there(Visit) orelse stopped(Sampler),
    weir_scope_visit:end_visit(Visit).

%% A sampler that asks from this node resets the flags that it has set on the other node, if that answers.
stopped(Sampler) ->
    try
        gen_server:stop(Sampler, shutdown, ?PATIENCE)
    catch
        exit:_ -> exit(Sampler, kill)
    end.

%% @doc Returns the sample of the last second. Waits up to a second for the first one.
-spec sample(view()) -> {ok, weir_scope_sample:sample()} | {error, reason()}.
sample(#view{sampler = Sampler} = View) ->
    asked(View, fun(Patience) -> weir_scope_sampler:latest(Sampler, Patience) end).

%% @doc Returns the samples of the last ten minutes (`second') or the minutes of the last day (`minute') that are later
%% than `After', which is in milliseconds since 1970 (0 for all).
-spec history(view(), weir_scope_history:grain(), After :: integer()) ->
    {ok, [weir_scope_history:series()]} | {error, reason()}.
history(#view{sampler = Sampler} = View, Grain, After) when Grain =:= second; Grain =:= minute ->
    asked(View, fun(Patience) -> weir_scope_sampler:history(Sampler, Grain, After, Patience) end).

%% @doc Returns the processes that use or hold most: see {@link weir_scope_top:processes/1}. It reads every process
%% twice, about 2 µs each, in slices of less than a millisecond.
-spec processes(view(), weir_scope_top:options()) -> {ok, [weir_scope_top:process()]} | {error, reason()}.
processes(View, Options) -> top(View, processes, Options).

%% @doc Returns the sockets with most traffic or the longest queues: see {@link weir_scope_top:sockets/1}. It reads
%% every socket twice, in slices of less than a millisecond.
-spec sockets(view(), weir_scope_top:options()) -> {ok, [weir_scope_top_sockets:socket()]} | {error, reason()}.
sockets(View, Options) -> top(View, sockets, Options).

%% @doc Returns the relays of Weir with most traffic: see {@link weir_scope_top:relays/1}. It reads every relay twice,
%% in slices of less than a millisecond.
-spec relays(view(), weir_scope_top:options()) -> {ok, [weir_scope_top:relay()]} | {error, reason()}.
relays(View, Options) -> top(View, relays, Options).

%% @doc Returns the listening sockets, with connections that wait and connections that the kernel has dropped: see
%% {@link weir_scope_listeners:all/1}. It reads every socket once.
-spec listeners(view()) -> {ok, [weir_scope_listeners:listener()]} | {error, reason()}.
listeners(View) -> asks(View, weir_scope_listeners, all).

%% @doc Returns how often memory was mapped and unmapped: see {@link weir_scope_memory:mappings/1}.
-spec mappings(view()) -> {ok, weir_scope_memory:mappings()} | {error, reason()}.
mappings(View) -> asks(View, weir_scope_memory, mappings).

asks(#view{visit = Visit}, Module, Function) ->
    case weir_scope_visit:is_there(Visit) of
        true -> weir_scope_visit:call(Visit, Module, Function, [fun erlang:apply/3], 1000);
        false -> weir_scope_visit:afar(Visit, fun(Ask) -> Module:Function(Ask) end)
    end.

top(#view{visit = Visit}, What, Options) ->
    case weir_scope_top:check(What, Options) of
        ok ->
            case weir_scope_visit:is_there(Visit) of
                true -> weir_scope_visit:call(Visit, weir_scope_top, What, [Options], maps:get(over, Options, 1000));
                false -> weir_scope_visit:afar(Visit, fun(Ask) -> weir_scope_top:What(Ask, Options) end)
            end;
        {error, _} = Error ->
            Error
    end.

%% @doc Measures for 1 to 60,000 milliseconds what the VM's threads do: see {@link weir_scope_sampler:microstates/3}.
%% The VM runs microstate accounting in this time, which costs a few percent.
-spec microstates(view(), 1..60_000) -> {ok, weir_scope_sampler:microstates()} | {error, reason()}.
microstates(#view{sampler = Sampler} = View, Milliseconds) when
    is_integer(Milliseconds), Milliseconds >= 1, Milliseconds =< 60_000
->
    asked(View, fun(Patience) -> weir_scope_sampler:microstates(Sampler, Milliseconds, Patience) end);
microstates(_View, Milliseconds) ->
    {error, {bad_option, milliseconds, Milliseconds, {between, 1, 60_000}}}.

%% @doc Returns the node's clock settings and the cost of reading each clock: see {@link weir_scope_clocks:all/1}. The
%% measurement takes about ten milliseconds of one scheduler. It is left out with `load => false'.
-spec clocks(view()) -> {ok, weir_scope_clocks:clocks()} | {error, reason()}.
clocks(View) -> asks(View, weir_scope_clocks, all).

%% @doc Returns the lock counts of the VM, if it was built to count them: see {@link weir_scope_locks:all/1}.
-spec locks(view()) -> {ok, weir_scope_locks:locks()} | {error, reason()}.
locks(View) -> asks(View, weir_scope_locks, all).

%% @doc Returns the tracer that {@link schedules/2} would use on the node. {@link weir_scope_schedules} says what each
%% costs.
-spec tracer(view()) -> {ok, weir_scope_schedules:tracer()} | {error, reason()}.
tracer(View) -> there(View, schedules, weir_scope_schedules, tracer, [], 0).

%% @doc Measures for `over' milliseconds (1000) how long processes wait for their turns and how long turns are: see
%% {@link weir_scope_schedules:measure/1}. The node is slower in this time. Returns `busy' if another such measurement
%% runs.
-spec schedules(view(), weir_scope_schedules:options()) ->
    {ok, weir_scope_schedules:schedules()} | {error, reason() | busy}.
schedules(View, Options) ->
    Over = case Options of #{over := Milliseconds} when is_integer(Milliseconds) -> Milliseconds; _ -> 1000 end,
    case there(View, schedules, weir_scope_schedules, measure, [Options], Over + 1000) of
        {ok, Result} -> Result;
        {error, _} = Error -> Error
    end.

%% @doc Measures how many messages two processes of the node can exchange: see {@link
%% weir_scope_schedules:ping_pong/1}. It keeps one scheduler busy for the given time, 1 to 10,000 milliseconds.
-spec ping_pong(view(), 1..10_000) -> {ok, #{round_trips := float(), in_2013 := pos_integer()}} | {error, reason()}.
ping_pong(View, Milliseconds) when is_integer(Milliseconds), Milliseconds >= 1, Milliseconds =< 10_000 ->
    there(View, ping_pong, weir_scope_schedules, ping_pong, [Milliseconds], Milliseconds);
ping_pong(_View, Milliseconds) ->
    {error, {bad_option, milliseconds, Milliseconds, {between, 1, 10_000}}}.

there(#view{visit = Visit}, What, Module, Function, Arguments, Milliseconds) ->
    case weir_scope_visit:is_there(Visit) of
        true -> weir_scope_visit:call(Visit, Module, Function, Arguments, Milliseconds);
        false -> {error, {needs_load, What}}
    end.

asked(#view{visit = Visit}, Fun) ->
    Node = weir_scope_visit:node_of(Visit),
    try
        {ok, Fun(weir_scope_visit:patience(Visit))}
    catch
        exit:{not_sampled, Why} -> {error, {not_sampled, Node, Why}};
        exit:{timeout, _} -> {error, {timeout, Node}};
        exit:{{shutdown, timeout}, _} -> {error, {timeout, Node}};
        exit:_ ->
            case lists:member(Node, [node() | nodes(connected)]) of
                true -> {error, {disturbed, Node}};
                false -> {error, {no_connection, Node}}
            end
    end.
