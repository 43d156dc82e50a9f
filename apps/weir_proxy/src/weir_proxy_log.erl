%% @private
%% @doc The access log: a line for each session when it ends, as HAProxy's `option tcplog', or a JSON object. One process for a proxy
%% writes it. It is never in the way: what it cannot write in time is dropped and counted.
-module(weir_proxy_log).
-behaviour(gen_server).

-include("weir_proxy_session.hrl").

-export([adjust/2]).
-export([session/3]).
-export([unserved/2]).
-export([line/4]).
-export([dropped/1]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% Lines that wait for the disk, at most.
-define(MOST, 10_000).

-record(state, {device :: file:io_device(), waiting :: counters:counters_ref()}).

%% @doc Logs a proxy as its configuration says from now on. The caller is linked to the process.
-spec adjust(term(), off | #{file := binary(), format := haproxy | json}) -> ok | {error, term()}.
adjust(Proxy, Wanted) ->
    case {running(Proxy), Wanted} of
        {{ok, {Pid, _, Wanted}}, _} when Wanted =/= off ->
            %% The file may have been moved away.
            gen_server:call(Pid, {reopen, Wanted});
        {none, off} ->
            ok;
        {{ok, {Pid, _, _}}, off} ->
            ok = weir_proxy_memory:forget({log, Proxy}),
            gen_server:stop(Pid);
        {Before, _} ->
            Waiting = counters:new(2, [write_concurrency]),
            case gen_server:start_link(?MODULE, {Wanted, Waiting}, []) of
                {ok, Pid} ->
                    ok = weir_proxy_memory:save({log, Proxy}, {Pid, Waiting, Wanted}),
                    case Before of
                        {ok, {Old, _, _}} -> gen_server:stop(Old);
                        none -> ok
                    end;
                {error, _} = Error ->
                    Error
            end
    end.

%% That of a proxy that was killed has gone with it.
running(Proxy) ->
    case weir_proxy_memory:saved({log, Proxy}) of
        {ok, {Pid, _, _}} = Running ->
            case is_process_alive(Pid) of
                true -> Running;
                false -> none
            end;
        none ->
            none
    end.

%% @doc A session has ended.
-spec session(#session{}, term(), weir_relay:statistics() | none) -> ok.
session(_Session, _Result, none) -> ok;
session(Session, Result, Statistics) -> log(Session, Result, Statistics).

%% @doc A client has never had a server, and why.
-spec unserved(atom(), #session{}) -> ok.
unserved(Why, Session = #session{accepted = Accepted}) ->
    None = #{bytes => 0, packets => 0},
    Duration = 1000 * max(0, erlang:system_time(millisecond) - Accepted),
    log(Session, {unserved, Why}, #{a_to_b => None, b_to_a => None, duration_us => Duration, first_byte_us => undefined}).

log(Session = #session{proxy = Proxy}, Result, Statistics) ->
    case weir_proxy_memory:saved({log, Proxy}) of
        none -> ok;
        {ok, {Pid, Waiting, #{format := Format}}} -> write(Pid, Waiting, line(Format, Session, Result, Statistics))
    end.

write(Pid, Waiting, Line) ->
    case counters:get(Waiting, 1) < ?MOST of
        true ->
            ok = counters:add(Waiting, 1, 1),
            gen_server:cast(Pid, {line, Line});
        false ->
            counters:add(Waiting, 2, 1)
    end.

%% @doc How many lines of a proxy were dropped.
-spec dropped(term()) -> non_neg_integer().
dropped(Proxy) ->
    case weir_proxy_memory:saved({log, Proxy}) of
        {ok, {_, Waiting, _}} -> counters:get(Waiting, 2);
        none -> 0
    end.

%% @doc The line of a session. The format `haproxy' has the fields of `%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq'.
-spec line(haproxy | json, #session{}, term(), map()) -> iodata().
line(haproxy, Session, Result, Statistics) ->
    #session{frontend = Frontend, backend = Backend, server = Server, queued = Queued, connected = Connected, retries = Retries} = Session,
    #{b_to_a := #{bytes := Out}} = Statistics,
    [FrontendNow, BackendNow, ServerNow] = [number(Numbers, current_sessions) || Numbers <- tuple_to_list(Session#session.numbers)],
    BackendQueue = number(element(2, Session#session.numbers), queue_current),
    io_lib:format("~ts [~ts] ~ts ~ts/~ts ~b/~b/~b ~b ~s ~b/~b/~b/~b/~b 0/~b~n", [
        weir_proxy_address:to_text(Session#session.client), time(Session#session.accepted), Frontend, Backend, Server,
        Queued, case Connected of none -> -1; _ -> Connected end, duration(Session, Statistics), Out, state(Result, Statistics),
        FrontendNow, FrontendNow, BackendNow, ServerNow, Retries, BackendQueue
    ]);
line(json, Session, Result, Statistics) ->
    #{a_to_b := #{bytes := In}, b_to_a := #{bytes := Out}, first_byte_us := FirstByte} = Statistics,
    Object = weir_json:encode(#{
        time => iolist_to_binary(calendar:system_time_to_rfc3339(Session#session.accepted, [{unit, millisecond}, {offset, "Z"}])),
        client => weir_proxy_address:to_text(Session#session.client),
        frontend => Session#session.frontend,
        backend => Session#session.backend,
        server => Session#session.server,
        address => weir_proxy_address:to_text(Session#session.address),
        queue_ms => Session#session.queued,
        connect_ms => case Session#session.connected of none -> null; Connected -> Connected end,
        duration_ms => duration(Session, Statistics),
        first_byte_us => case FirstByte of undefined -> null; _ -> FirstByte end,
        bytes_in => In,
        bytes_out => Out,
        retries => Session#session.retries,
        state => iolist_to_binary(state(Result, Statistics))
    }),
    %% In one line: a string has no line feed of its own.
    [binary:replace(iolist_to_binary(Object), <<"\n">>, <<>>, [global]), $\n].

number(none, _Name) -> 0;
number(Numbers, Name) -> weir_proxy_numbers:get(Numbers, Name).

duration(#session{connected = none}, #{duration_us := Duration}) ->
    Duration div 1000;
duration(#session{queued = Queued, connected = Connected}, #{duration_us := Duration}) ->
    Queued + Connected + Duration div 1000.

time(Milliseconds) ->
    {{Year, Month, Day}, {Hour, Minute, Second}} = calendar:system_time_to_local_time(Milliseconds, millisecond),
    Name = element(Month, {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}),
    io_lib:format("~2..0b/~s/~b:~2..0b:~2..0b:~2..0b.~3..0b", [Day, Name, Year, Hour, Minute, Second, Milliseconds rem 1000]).

%% HAProxy's termination state: which side has ended it, a timeout in small letters; `D' stands for "in the data phase".
state(closed, _Statistics) -> "--";
state({unserved, Why}, _Statistics) -> unserved(Why);
state({error, timeout}, _Statistics) -> "cD";
state({error, _}, #{failed := b}) -> "SD";
state({error, _}, _Statistics) -> "CD".

%% Before there was a server: `R' stands for rules, `Q' for the queue, `C' for the connection to a server.
unserved(gone) -> "CR";
unserved(killed) -> "cR";
unserved(Why) when Why =:= reject; Why =:= crashed -> "PR";
unserved(queue_timeout) -> "sQ";
unserved(queue_full) -> "SQ";
unserved(_NoServer) -> "SC".

%%% The process.

-spec init({#{file := binary(), _ => _}, counters:counters_ref()}) -> {ok, #state{}} | {stop, {shutdown, term()}}.
init({#{file := File}, Waiting}) ->
    case open(File) of
        {ok, Device} -> {ok, #state{device = Device, waiting = Waiting}};
        {error, Reason} -> {stop, {shutdown, {log, File, Reason}}}
    end.

open(File) -> file:open(File, [append, raw, binary, {delayed_write, 65536, 200}]).

-spec handle_call({reopen, map()}, gen_server:from(), #state{}) -> {reply, ok | {error, term()}, #state{}}.
handle_call({reopen, #{file := File}}, _From, State = #state{device = Device}) ->
    case open(File) of
        {ok, New} ->
            _ = file:close(Device),
            {reply, ok, State#state{device = New}};
        {error, Reason} ->
            {reply, {error, {log, File, Reason}}, State}
    end.

-spec handle_cast({line, iodata()}, #state{}) -> {noreply, #state{}}.
handle_cast({line, Line}, State = #state{device = Device, waiting = Waiting}) ->
    ok = counters:sub(Waiting, 1, 1),
    case file:write(Device, Line) of
        ok -> ok;
        %% A disk that is full.
        {error, _} -> counters:add(Waiting, 2, 1)
    end,
    {noreply, State}.

-spec handle_info(term(), State) -> {noreply, State}.
handle_info(_Message, State) -> {noreply, State}.
