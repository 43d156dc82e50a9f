%% @doc For measuring: how the sockets of this node are spread over pollsets. Reports the load of the busiest pollset,
%% and how many sockets are polled by another scheduler than the one that runs their owner.
-module(weir_cli_places).

-export([print/0]).

%% Milliseconds for which owners are traced. Sockets of an owner that does not run in this time are not counted.
-define(WATCHED, 100).

%% @doc Prints `places SOCKETS AWAY EVENTS BUSIEST'. `SOCKETS' are the connections whose owners ran while they were
%% traced. `AWAY' of them have a pollset of another scheduler than the one where the owner ran last. `EVENTS' is the
%% number of events of all pollsets since the start, `BUSIEST' that of the pollset with most. Takes 100 ms, in which
%% the owners are traced.
%%
%% A connection of a reactor is never away, because a reactor polls its own pollset.
-spec print() -> ok.
print() ->
    %% The node may be busy.
    _ = process_flag(priority, high),
    Connections = [
        {Owner, Pollset}
     || Socket <- weir:sockets(),
        #{owner := Owner, pollset := Pollset, states := States} <- [weir_tcp:info(Socket)],
        is_pid(Owner),
        not lists:member(listen, States)
    ],
    Homes = maps:from_list([{Pollset, Home} || #{pollset := Pollset, scheduler := Home} <- weir:pollsets()]),
    Ran = watch(lists:usort([Owner || {Owner, _} <- Connections])),
    Seen = [
        {map_get(Owner, Ran), maps:get(Pollset, Homes, reactor)}
     || {Owner, Pollset} <- Connections, is_map_key(Owner, Ran)
    ],
    Away = [Home || {Scheduler, Home} <- Seen, is_integer(Home), Home =/= Scheduler],
    Events = [events(Pollset) || Pollset <- lists:usort(maps:keys(Homes) ++ [Pollset || {_, Pollset} <- Connections])],
    io:format("places ~b ~b ~b ~b~n", [length(Seen), length(Away), lists:sum(Events), lists:max([0 | Events])]).

events(Pollset) ->
    #{events := Events} = weir_nif:counters(Pollset),
    Events.

%% Returns the scheduler where each owner ran last.
watch(Owners) ->
    ok = trace(Owners, true),
    Ran = ran(erlang:monotonic_time(millisecond) + ?WATCHED, #{}),
    ok = trace(Owners, false),
    Ran.

trace(Owners, On) ->
    lists:foreach(
        fun(Owner) ->
            %% badarg: the owner has ended.
            try erlang:trace(Owner, On, [running, scheduler_id]) of _ -> ok catch error:badarg -> ok end
        end,
        Owners
    ).

ran(Until, Ran) ->
    receive
        {trace, Owner, in, _Function, Scheduler} -> ran(Until, Ran#{Owner => Scheduler});
        {trace, _Owner, out, _, _} -> ran(Until, Ran)
    after max(0, Until - erlang:monotonic_time(millisecond)) ->
        Ran
    end.
