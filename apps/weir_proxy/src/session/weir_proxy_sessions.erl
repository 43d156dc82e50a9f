%% @private
%% @doc Sessions: connections that are relayed. Their relays belong to a few processes, the keepers. A keeper gets a
%% message when a relay ends, and counts and logs the session. No session has its own process.
-module(weir_proxy_sessions).
-behaviour(gen_server).

-include_lib("weir/include/weir_step.hrl").
-include("weir_proxy_session.hrl").

-export([init/0]).
-export([keepers/0]).
-export([keeper/0]).
-export([begun/1]).
-export([list/1]).
-export([close/3]).
-export([close_within/3]).
-export([count/1]).
-export([end_later/2]).
-export([is_of/1]).

-export([start_link/1]).
-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-define(TABLE, ?MODULE).

%% A relay may end before its session is in the table. Its keeper looks again, as long as a process exists that may
%% insert it.
-define(AGAIN_MS, 20).

%% Interval and number of attempts to find a keeper while there is none: 2 seconds in all.
-define(SUCCESSOR_MS, 20).
-define(SUCCESSOR_TIMES, 100).

%% If the client has sent nothing, a close after this time is not early: the server may have timed out.
-define(EARLY_US, 1_000_000).

%% Interval at which a successor checks the sessions of dead keepers, while there are any. Nothing reports their end.
-define(ORPHANS_MS, 2000).

%% @doc Makes the table, which the caller owns, and the registered names of the keepers.
-spec init() -> ok.
init() ->
    ok = persistent_term:put(
        ?MODULE, list_to_tuple([list_to_atom(lists:concat([?MODULE, "_", N])) || N <- lists:seq(1, keepers())])
    ),
    ?TABLE = ets:new(?TABLE, [
        named_table, public, set, {keypos, #session.relay}, {write_concurrency, true}, {decentralized_counters, true}
    ]),
    ok.

%% @doc Returns the number of keepers: one for each scheduler, online or not. An idle keeper costs 3 KB.
-spec keepers() -> pos_integer().
keepers() -> erlang:system_info(schedulers).

name(Number) -> element(Number, persistent_term:get(?MODULE)).

%% @doc Returns the keeper that should own the caller's relay, or `undefined' if there was none for 2 seconds.
-spec keeper() -> pid() | undefined.
keeper() ->
    case whereis(nearest()) of
        undefined -> any_keeper(?SUCCESSOR_TIMES);
        Keeper -> Keeper
    end.

%% Any living keeper, because the nearest was killed and has no successor yet.
any_keeper(Left) ->
    case living() of
        [Keeper | _] ->
            Keeper;
        [] when Left > 0 ->
            timer:sleep(?SUCCESSOR_MS),
            any_keeper(Left - 1);
        [] ->
            undefined
    end.

living() -> [Pid || Number <- lists:seq(1, keepers()), Pid <- [whereis(name(Number))], is_pid(Pid)].

nearest() -> name((erlang:system_info(scheduler_id) - 1) rem keepers() + 1).

%% @doc Inserts a session, which is counted in place of its pending connection from here on.
-spec begun(#session{}) -> ok.
begun(Session = #session{relay = Relay, keeper = Keeper, process = Process, due = Due}) ->
    ?STEP,
    true = ets:insert(?TABLE, Session),
    ?STEP,
    ok = weir_proxy_admissions:relayed(Process),
    ?STEP,
    %% If the keeper has died since it was chosen, its successor may have looked for orphans before this session was
    %% inserted.
    _ = is_process_alive(Keeper) orelse gen_server:cast(name(1), orphans),
    case is_over(Due) of
        true -> end_now(Relay, life);
        false -> ok
    end.

is_over({infinity, _}) -> false;
is_over({At, _}) -> At =< now_ms().

now_ms() -> erlang:monotonic_time(millisecond).

%% @doc Returns whether a process has served the connection of a session that goes on. Goes through all sessions.
-spec is_of(pid()) -> boolean().
is_of(Pid) -> ets:select_count(?TABLE, [{#session{process = Pid, _ = '_'}, [], [true]}]) > 0.

%% @doc Returns the sessions of a proxy.
-spec list(Proxy :: term()) -> [#session{}].
list(Proxy) -> ets:match_object(?TABLE, #session{proxy = Proxy, _ = '_'}).

-spec count(Proxy :: term()) -> non_neg_integer().
count(Proxy) -> ets:select_count(?TABLE, [{#session{proxy = Proxy, _ = '_'}, [], [true]}]).

%% @doc Ends all sessions of a server or of a proxy. Returns how many there were.
-spec close(Proxy :: term(), {server, Backend :: binary(), Server :: binary()} | all, operator | down) ->
    non_neg_integer().
close(Proxy, Which, Why) ->
    Sessions = which(Proxy, Which),
    lists:foreach(fun(#session{relay = Relay}) -> end_now(Relay, Why) end, Sessions),
    length(Sessions).

end_now(Relay, Why) ->
    %% False if it has just ended.
    _ = ets:update_element(?TABLE, Relay, {#session.ended_by, Why}),
    weir:stop_relay(Relay).

%% @doc Starts the timer of `longest_life'. Returns the values of the session's `due' and `timer'. The timer's message
%% goes to a registered name. If it is lost because that keeper dies, the successor finds the session by its due time.
-spec end_later(weir_relay:relay(), pos_integer()) -> {Due :: {integer(), life}, Timer :: reference()}.
end_later(Relay, Milliseconds) ->
    {{now_ms() + Milliseconds, life}, erlang:send_after(Milliseconds, nearest(), {over, Relay, life})}.

%% @doc Ends all sessions of a server or of a proxy one after the other, evenly over `Within' milliseconds. Returns how
%% many there are.
-spec close_within(Proxy :: term(), {server, Backend :: binary(), Server :: binary()} | all, non_neg_integer()) ->
    non_neg_integer().
close_within(Proxy, Which, Within) ->
    Sessions = which(Proxy, Which),
    Count = length(Sessions),
    Start = now_ms(),
    Later = fun({Number, #session{relay = Relay, due = {Due, _}}}) ->
        After = Number * Within div Count,
        %% False if it has just ended.
        _ = Start + After < Due andalso ets:update_element(?TABLE, Relay, {#session.due, {Start + After, operator}}),
        %% Any keeper can end any session.
        erlang:send_after(After, name(Number rem keepers() + 1), {over, Relay, operator})
    end,
    lists:foreach(Later, lists:zip(lists:seq(1, Count), Sessions)),
    Count.

which(Proxy, {server, Backend, Server}) ->
    ets:match_object(?TABLE, #session{proxy = Proxy, backend = Backend, server = Server, _ = '_'});
which(Proxy, all) ->
    list(Proxy).

%%% The processes.

-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Number) -> gen_server:start_link({local, name(Number)}, ?MODULE, Number, []).

-spec init(pos_integer()) -> {ok, Look :: reference() | none}.
init(_Number) ->
    ok = end_overdue(),
    %% The relays of the keeper before cannot notify this one.
    {ok, look_later(none)}.

%% Ends sessions whose timer messages were lost with the keeper before. A message to a living keeper may still be on
%% its way: ending a session twice does no harm.
end_overdue() ->
    Overdue = ets:select(?TABLE, [
        {#session{relay = '$3', due = {'$1', '$2'}, _ = '_'}, [{'=<', '$1', now_ms()}], [{{'$3', '$2'}}]}
    ]),
    lists:foreach(fun({Relay, Why}) -> end_now(Relay, Why) end, Overdue).

-spec handle_call(term(), gen_server:from(), State) -> {reply, {error, unknown}, State}.
handle_call(_Request, _From, State) -> {reply, {error, unknown}, State}.

-spec handle_cast(orphans, Look :: reference() | none) -> {noreply, reference()}.
handle_cast(orphans, Look) -> {noreply, look_later(Look)}.

-spec handle_info(term(), Look :: reference() | none) -> {noreply, reference() | none}.
handle_info({weir_relay, Relay, Result, Statistics}, State) ->
    _ = ended(Relay, Result, Statistics) orelse look_again(Relay, Result, Statistics, weir_proxy_admissions:relaying()),
    {noreply, State};
handle_info({again, Relay, Result, Statistics, Pids}, State) ->
    ok = look_again(Relay, Result, Statistics, weir_proxy_admissions:remaining(Pids)),
    {noreply, State};
handle_info({over, Relay, Why}, State) ->
    ok = end_now(Relay, Why),
    {noreply, State};
handle_info({timeout, Look, orphans}, Look) ->
    Orphans = orphans(),
    ok = report([Relay || Relay <- Orphans, weir:relay_info(Relay) =:= {error, closed}, ended(Relay, closed, none)]),
    {noreply, case Orphans of [] -> none; _ -> look_later(none) end};
handle_info(_Message, State) ->
    {noreply, State}.

look_later(none) -> erlang:start_timer(?ORPHANS_MS, self(), orphans);
look_later(Look) -> Look.

%% The relays of sessions whose keeper is dead, selected without copying the other rows.
orphans() ->
    ets:select(?TABLE, [
        {#session{relay = '$2', keeper = '$1', _ = '_'}, [{'=/=', '$1', Pid} || Pid <- living()], ['$2']}
    ]).

report([]) ->
    ok;
report(Ended) ->
    weir_reports:log(warning, #{
        what =>
            "a session keeper was killed: sessions have ended without a line in the access log, and their bytes are "
            "not counted",
        sessions => length(Ended)
    }).

%% Pids are the processes that may have begun this relay. One of them inserts the session, unless it is killed; then the
%% reaper uncounts its connection. A process inserts its session before it leaves this list, so the list was read before
%% the table.
look_again(Relay, Result, Statistics, Pids) ->
    case ended(Relay, Result, Statistics) of
        false when Pids =/= [] ->
            _ = erlang:send_after(?AGAIN_MS, self(), {again, Relay, Result, Statistics, Pids}),
            ok;
        _ ->
            ok
    end.

%% False if the session is not in the table (yet).
ended(Relay, Result, Statistics) ->
    %% In this order: if the reaper found a killed process's pending row without its session, it would uncount the
    %% connection twice.
    _ = [ok = weir_proxy_admissions:relayed(Process) || Process <- process(Relay)],
    case ets:take(?TABLE, Relay) of
        [Session] ->
            ok = finish(Session, Result, Statistics),
            true;
        [] ->
            false
    end.

process(Relay) ->
    try
        [ets:lookup_element(?TABLE, Relay, #session.process)]
    catch
        error:badarg -> []
    end.

finish(Session, Relayed, Statistics) ->
    #session{proxy = Proxy, backend = Name, numbers = {Frontend, Backend, Server}, timer = Timer, ended_by = EndedBy} =
        Session,
    Result =
        case EndedBy of
            none -> Relayed;
            _ -> {ended, EndedBy}
        end,
    {In, Out} = bytes(Statistics),
    ok = judge(Session, Result, Statistics),
    %% Together, and before anything that may take long: a killed process ends while it waits for a message or when its
    %% time slice is used up, so rarely between these calls.
    ok = weir_proxy_counters:ended(Frontend, In, Out),
    ok = weir_proxy_counters:ended(Backend, In, Out),
    ok = weir_proxy_counters:ended(Server, In, Out),
    ok = weir_proxy_store:freed(Proxy, Name, Backend),
    _ = Timer =/= none andalso erlang:cancel_timer(Timer, [{async, true}, {info, false}]),
    ok = weir_proxy_event:session(Session, Result, Statistics),
    weir_proxy_log:session(Session, Result, Statistics).

%% Counts a session for or against its server, for the option `passive'. A client that leaves early does not count.
judge(#session{numbers = {_, _, Server}}, _Result, #{b_to_a := #{bytes := Out}}) when Out > 0 ->
    ok = weir_proxy_counters:clear(Server, resets),
    weir_proxy_counters:clear(Server, early_closes);
judge(Session, {error, _}, #{failed := b}) ->
    unanswered(Session, resets);
judge(Session, _Result, #{ended_first := b, a_to_b := #{bytes := In}, duration_us := Duration}) when
    In > 0; Duration < ?EARLY_US
->
    unanswered(Session, early_closes);
judge(_Session, _Result, _Statistics) ->
    ok.

unanswered(#session{proxy = Proxy, backend = Backend, server = Name, numbers = {_, _, Server}}, Kind) ->
    _ = weir_proxy_counters:add(Server, Kind, 1),
    InARow = maps:from_list([{Each, weir_proxy_counters:get(Server, Each)} || Each <- [resets, early_closes]]),
    weir_proxy_store:unanswered(Proxy, Backend, Name, InARow).

bytes(#{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}}) -> {In, Out};
bytes(none) -> {0, 0}.
