%% @doc What an Erlang node has used, by its own account.
%%
%% The node needs none of our code: it evaluates expressions, with what every OTP has. Nothing stays there but the time
%% of its schedulers being kept, which costs next to nothing, until the observer has ended.
-module(weir_load_emulator).

-export([attach/1]).
-export([read/1]).

%% A second without an answer is one without a reading.
-define(PATIENCE, 900).

%% The process that switches the keeping of time on has to live as long as it is to be on.
-define(KEEP_TIME, "
    erlang:system_flag(scheduler_wall_time, true),
    Monitor = erlang:monitor(process, Observer),
    receive {'DOWN', Monitor, process, _, _} -> ok end.
").

%% Dirty schedulers come after the others in the list. Weir is not asked where it has not been started, since to ask
%% would be to start it. Reactors' own pollsets have numbers from 1025 on, in the order in which they were first taken.
-define(READ, "
    Online = erlang:system_info(schedulers_online),
    Times = case erlang:statistics(scheduler_wall_time) of
        undefined -> [];
        All -> [{Busy, Time} || {Number, Busy, Time} <- lists:sort(All), Number =< Online]
    end,
    Acquired = fun Acquired(Number) ->
        try weir_nif:counters(Number) of
            %% Nobody's reactor: its process has acquired it and died.
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

%% @doc Begins to observe a node that we are connected with, on behalf of the caller, with whom it ends.
-spec attach(node()) -> {ok, weir_load_observer:reading()} | {error, iodata()}.
attach(Node) ->
    _ = erlang:spawn(Node, erl_eval, exprs, [expressions(?KEEP_TIME), [{'Observer', self()}]]),
    case read(Node) of
        {ok, _} = Answer -> Answer;
        error -> {error, ["the node ", atom_to_list(Node), " does not answer"]}
    end.

%% @doc What it has used until now.
-spec read(node()) -> {ok, weir_load_observer:reading()} | error.
read(Node) ->
    %% One that has gone is not connected with anew: that may take seconds.
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
                    %% No Linux: what its allocators have, which is the most of it.
                    {error, _} -> Memory
                end,
            Reading = #{at => At, cpu_ns => CpuMs * 1_000_000, rss_bytes => Rss, schedulers => Times},
            {ok, maps:merge(Reading, maps:from_list([{pollsets, Pollsets} || Pollsets =/= none]))}
    catch
        error:{erpc, _} -> error;
        %% Weir is being stopped there, for instance.
        error:{exception, _, _} -> error
    end.

expressions(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    Expressions.
