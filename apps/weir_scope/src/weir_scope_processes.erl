%% @doc The processes of a node: which have long queues, and how many wait for a connection.
-module(weir_scope_processes).

-export([facts/1]).

%% From another node each process takes a message; more than that are not looked at so.
-define(MOST_FROM_AFAR, 2000).

-define(LONGEST, 5).

%% @doc `queues': the five longest message queues, each `{Length, Pid, Name}' with the registered name or the function that the
%% process began with. `acceptors': processes that wait in gen_tcp's accept for a port. Both are absent if there are too many
%% processes to be asked from another node.
-spec facts(weir_scope_facts:ask()) -> weir_scope_facts:facts().
facts(Ask) ->
    Pids = Ask(erlang, processes, []),
    case Ask =:= fun erlang:apply/3 orelse length(Pids) =< ?MOST_FROM_AFAR of
        true ->
            {Queues, Acceptors} = lists:foldl(fun(Pid, Found) -> add(Ask, Pid, Found) end, {[], 0}, Pids),
            #{queues => [{Length, Pid, name(Ask, Pid)} || {Length, Pid} <- Queues], acceptors => Acceptors};
        false ->
            #{}
    end.

add(Ask, Pid, {Queues, Acceptors}) ->
    case Ask(erlang, process_info, [Pid, [message_queue_len, current_function]]) of
        undefined ->
            {Queues, Acceptors};
        [{_, Length}, {_, Function}] ->
            {longest(Length, Pid, Queues), Acceptors + waits(Function)}
    end.

longest(0, _Pid, Queues) -> Queues;
longest(Length, Pid, Queues) -> lists:sublist(lists:reverse(lists:sort([{Length, Pid} | Queues])), ?LONGEST).

waits({prim_inet, Function, _}) when Function =:= accept0; Function =:= async_accept -> 1;
waits(_) -> 0.

name(Ask, Pid) ->
    case Ask(erlang, process_info, [Pid, [registered_name, initial_call, dictionary]]) of
        [{_, Name}, _, _] when is_atom(Name) -> Name;
        [_, {_, Call}, {_, Dictionary}] -> proplists:get_value('$initial_call', Dictionary, Call);
        undefined -> gone
    end.
