%% @private
%% @doc Checks a server at intervals, or asks its agent, in its own process. Sends each result to the backend's
%% process.
-module(weir_proxy_check).

-export([adjust/2]).
-export([run/4]).

-export_type([check/0, name/0]).

-type name() :: binary() | {agent, binary()}.
%% A server that is checked, or whose agent is asked.
-type check() :: {pid(), what()}.
-type what() :: {weir_tcp:name(), weir_proxy_config:health() | weir_proxy_config:agent()}.

%% @doc Starts and stops checks of the calling process so that exactly the wanted ones run.
-spec adjust(#{name() => check()}, #{name() => what()}) -> #{name() => check()}.
adjust(Checks, Wanted) ->
    Kept = maps:filter(
        fun(Name, {Pid, What}) -> maps:get(Name, Wanted, none) =:= What andalso is_process_alive(Pid) end, Checks
    ),
    _ = [stop(Pid) || {Pid, _} <- maps:values(maps:without(maps:keys(Kept), Checks))],
    New = maps:map(fun(Name, What) -> {start(Name, What), What} end, maps:without(maps:keys(Kept), Wanted)),
    maps:merge(Kept, New).

stop(Pid) ->
    unlink(Pid),
    exit(Pid, kill).

start(Name, {Address, Health = #{interval := Interval}}) ->
    %% A random start, so that checks do not all run at once.
    spawn_link(?MODULE, run, [self(), Name, {at(Address, Health), Health}, rand:uniform(max(1, min(200, Interval)))]).

at({Address, _Port}, #{port := Port}) when Port =/= undefined, tuple_size(Address) >= 4 -> {Address, Port};
at(Address, _Health) -> Address.

%% @doc The loop of the process: waits and checks. Each round uses the current code.
-spec run(pid(), name(), what(), non_neg_integer()) -> no_return().
run(Backend, Name, What = {Address, Health = #{interval := Interval}}, Wait) ->
    timer:sleep(Wait),
    Start = erlang:monotonic_time(millisecond),
    Result = ask(Address, Health),
    Backend ! {weir_proxy_check, Name, Result, erlang:monotonic_time(millisecond) - Start},
    ?MODULE:run(Backend, Name, What, Interval).

ask(Address, Agent = #{kind := agent}) -> weir_proxy_agent:ask(Address, Agent);
ask(Address, Health) -> weir_proxy_probe:probe(Address, Health).
