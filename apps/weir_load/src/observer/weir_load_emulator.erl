%% @doc Reads what an Erlang node uses, from the node itself.
%%
%% The node needs none of our code: it evaluates expressions that need only OTP. It keeps `scheduler_wall_time' on
%% until the observer ends, which costs next to nothing.
-module(weir_load_emulator).

-export([attach/1]).
-export([read/1]).

%% Less than a second: without an answer in time, the second has no reading.
-define(PATIENCE, 900).

%% `scheduler_wall_time' stays on as long as the process lives that has switched it on.
-define(KEEP_TIME, "
    erlang:system_flag(scheduler_wall_time, true),
    Monitor = erlang:monitor(process, Observer),
    receive {'DOWN', Monitor, process, _, _} -> ok end.
").

%% Dirty schedulers have numbers above those of normal ones. Weir is asked only where it runs, because asking would
%% start it. The pollsets of reactors have numbers from 1025 on, in the order in which they were first acquired.
-define(READ, "
    Online = erlang:system_info(schedulers_online),
    Times = case erlang:statistics(scheduler_wall_time) of
        undefined -> [];
        All -> [{Busy, Time} || {Number, Busy, Time} <- lists:sort(All), Number =< Online]
    end,
    Acquired = fun Acquired(Number) ->
        try weir_nif:counters(Number) of
            %% The reactor that acquired it has died.
            #{polls := 0} -> Acquired(Number + 1);
            Counters -> [Counters#{pollset => Number} | Acquired(Number + 1)]
        catch
            error:badarg -> []
        end
    end,
    Pollsets = case erlang:whereis(weir_pollsets) of
        undefined -> none;
        _ -> weir:pollsets() ++ Acquired(1025)
    end,
    {
        erlang:monotonic_time(nanosecond),
        erlang:element(1, erlang:statistics(runtime)),
        file:read_file(\"/proc/self/status\"),
        erlang:memory(total),
        Times,
        Pollsets
    }.
").

%% @doc Starts to observe a connected node, until the caller ends.
-spec attach(node()) -> {ok, weir_load_observer:reading()} | {error, iodata()}.
attach(Node) ->
    _ = erlang:spawn(Node, erl_eval, exprs, [expressions(?KEEP_TIME), [{'Observer', self()}]]),
    case read(Node) of
        {ok, _} = Answer -> Answer;
        error -> {error, ["the node ", atom_to_list(Node), " does not answer"]}
    end.

%% @doc Returns what the node has used until now.
-spec read(node()) -> {ok, weir_load_observer:reading()} | error.
read(Node) ->
    %% Do not reconnect to a node that is gone: that may take seconds.
    case Node =:= node() orelse lists:member(Node, nodes(connected)) of
        true -> ask(Node);
        false -> error
    end.

ask(Node) ->
    try erpc:call(Node, erl_eval, exprs, [expressions(?READ), []], ?PATIENCE) of
        {value, {At, CpuMs, Status, Memory, Times, Pollsets}, _} ->
            Rss =
                case Status of
                    {ok, Text} -> weir_load_proc:rss(Text);
                    %% Not Linux: the memory of the VM's allocators, which is most of it.
                    {error, _} -> Memory
                end,
            Reading = #{at => At, cpu_ns => CpuMs * 1_000_000, rss_bytes => Rss, schedulers => Times},
            {ok, maps:merge(Reading, maps:from_list([{pollsets, Pollsets} || Pollsets =/= none]))}
    catch
        error:{erpc, _} -> error;
        %% For instance, Weir is being stopped there.
        error:{exception, _, _} -> error
    end.

expressions(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    Expressions.
