%% @doc Facts about the processes of a node: long message queues, acceptors, receivers with timeouts, and broadcasters.
-module(weir_scope_processes).

-export([facts/1]).

%% Reading from another node takes a message for each process. Nodes with more processes are not read that way.
-define(MOST_FROM_AFAR, 2000).

-define(LONGEST, 5).

%% Registered processes that are read, and the links and monitors from which on one is a broadcaster.
-define(MOST_REGISTERED, 500).
-define(MANY, 1000).

%% Waiting receivers whose calling module is looked up.
-define(MOST_RECEIVERS, 200).

%% @doc Returns these facts. `queues': the five longest message queues, each `{Length, Pid, Name}' with the registered
%% name or the initial function. `acceptors': processes that wait in gen_tcp:accept on a port. `timed_receivers':
%% `{Module, Number}', the processes that wait in a `gen_tcp:recv' of a module that only calls it with a timeout. These
%% three are absent if the node has too many processes to read them from another node. `broadcasters': registered
%% processes with a thousand links and monitors or more, each `{Name, Number, Priority}'.
-spec facts(weir_scope_facts:ask()) -> weir_scope_facts:facts().
facts(Ask) ->
    Pids = Ask(erlang, processes, []),
    Broadcasters = broadcasters(Ask),
    case Ask =:= fun erlang:apply/3 orelse length(Pids) =< ?MOST_FROM_AFAR of
        true ->
            {Queues, Acceptors, Receivers} = lists:foldl(
                fun(Pid, Found) -> add(Ask, Pid, Found) end, {[], 0, []}, Pids
            ),
            #{
                queues => [{Length, Pid, name(Ask, Pid)} || {Length, Pid} <- Queues],
                acceptors => Acceptors,
                timed_receivers => timed(Ask, lists:sublist(Receivers, ?MOST_RECEIVERS)),
                broadcasters => Broadcasters
            };
        false ->
            #{broadcasters => Broadcasters}
    end.

add(Ask, Pid, {Queues, Acceptors, Receivers}) ->
    case Ask(erlang, process_info, [Pid, [message_queue_len, current_function]]) of
        undefined ->
            {Queues, Acceptors, Receivers};
        [{_, Length}, {_, Function}] ->
            {
                longest(Length, Pid, Queues),
                Acceptors + waits(Function),
                [Pid || {prim_inet, recv0, _} <- [Function]] ++ Receivers
            }
    end.

%% The caller is below gen_tcp on the stack. The imports of its module say whether it calls recv with a timeout.
timed(Ask, Receivers) ->
    Callers = [Module || Pid <- Receivers, Module <- caller(Ask(erlang, process_info, [Pid, current_stacktrace]))],
    [
        {Module, length([Same || Same <- Callers, Same =:= Module])}
     || Module <- lists:usort(Callers), has_timeout(Ask, Module)
    ].

caller({current_stacktrace, Stack}) ->
    lists:sublist(
        [Module || {Module, _, _, _} <- Stack, not lists:member(Module, [prim_inet, inet_tcp, inet6_tcp, gen_tcp])], 1
    );
caller(undefined) ->
    [].

has_timeout(Ask, Module) ->
    case Ask(beam_lib, chunks, [Ask(code, which, [Module]), [imports]]) of
        {ok, {Module, [{imports, Imports}]}} ->
            lists:member({gen_tcp, recv, 3}, Imports) andalso not lists:member({gen_tcp, recv, 2}, Imports);
        %% The module was not loaded from a file.
        {error, beam_lib, _} ->
            false
    end.

broadcasters(Ask) ->
    Pids = [
        {Name, Ask(erlang, whereis, [Name])}
     || Name <- lists:sublist(Ask(erlang, registered, []), ?MOST_REGISTERED)
    ],
    [
        {Name, length(Monitors) + length(Links), Priority}
     || {Name, Pid} <- Pids,
        is_pid(Pid),
        [{_, Monitors}, {_, Links}, {_, Priority}] <- [Ask(erlang, process_info, [Pid, [monitors, links, priority]])],
        length(Monitors) + length(Links) >= ?MANY
    ].

longest(0, _Pid, Queues) -> Queues;
longest(Length, Pid, Queues) -> lists:sublist(lists:reverse(lists:sort([{Length, Pid} | Queues])), ?LONGEST).

waits({prim_inet, Function, _}) when Function =:= accept0; Function =:= async_accept -> 1;
waits(_) -> 0.

name(Ask, Pid) ->
    case weir_scope_process:name(Ask, Pid) of
        #{name := Name} -> Name;
        gone -> gone
    end.
