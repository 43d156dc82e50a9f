%% @doc How the sockets of this node lie on pollsets, for measuring: how much the busiest pollset has to do, and how many sockets are
%% polled elsewhere than their owners run.
-module(weir_cli_places).

-export([print/0]).

%% How long owners are watched, in milliseconds. One that does not run meanwhile is not counted.
-define(WATCHED, 100).

%% @doc Prints `places SOCKETS AWAY EVENTS BUSIEST': connections whose owners have just run, and those of them whose pollset is not that
%% of the scheduler where the owner ran last; events of all pollsets since the start, and of the pollset that had most. Takes a tenth of
%% a second, in which the owners are traced.
%%
%% A connection of a reactor, which polls its own pollset, is never away.
-spec print() -> ok.
print() ->
    %% It is asked while the node is busy.
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
    Seen = [{map_get(Owner, Ran), maps:get(Pollset, Homes, reactor)} || {Owner, Pollset} <- Connections, is_map_key(Owner, Ran)],
    Away = [Home || {Scheduler, Home} <- Seen, is_integer(Home), Home =/= Scheduler],
    Events = [events(Pollset) || Pollset <- lists:usort(maps:keys(Homes) ++ [Pollset || {_, Pollset} <- Connections])],
    io:format("places ~b ~b ~b ~b~n", [length(Seen), length(Away), lists:sum(Events), lists:max([0 | Events])]).

events(Pollset) ->
    #{events := Events} = weir_nif:counters(Pollset),
    Events.

%% On which scheduler each ran last.
watch(Owners) ->
    ok = trace(Owners, true),
    Ran = ran(erlang:monotonic_time(millisecond) + ?WATCHED, #{}),
    ok = trace(Owners, false),
    Ran.

trace(Owners, On) ->
    lists:foreach(
        fun(Owner) ->
            %% One may have ended meanwhile.
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
