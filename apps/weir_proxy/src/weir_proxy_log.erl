%% @private
%% @doc The access log: a line for each session when it ends, to a file or to syslog. One process for a proxy writes it. It is never in
%% the way: what it cannot write in time is dropped and counted.
-module(weir_proxy_log).
-behaviour(gen_server).

-include("weir_proxy_session.hrl").

-export([options/2]).
-export([adjust/2]).
-export([session/3]).
-export([unserved/2]).
-export([dropped/1]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

%% Lines that wait for the disk, at most.
-define(MOST, 10_000).

%% Facility local0, severity info, as HAProxy's examples have it.
-define(PRIORITY, "<134>").

-record(state, {
    to :: {file, file:io_device()} | {syslog, gen_udp:socket(), Where :: term(), Pid :: string()},
    waiting :: counters:counters_ref()
}).

%% @doc The option `log'.
-spec options(weir_proxy_schema:path(), term()) -> weir_proxy_config:log().
options(Path, Map) ->
    Options = weir_proxy_schema:table(Path, Map, [
        {file, optional(weir_proxy_schema:text()), undefined},
        {syslog, optional(fun syslog/2), undefined},
        {format, fun weir_proxy_log_line:format/2, weir_proxy_log_line:format(Path, haproxy)}
    ]),
    case Options of
        #{file := undefined, syslog := undefined} -> weir_proxy_schema:refuse(Path, Map, "one of file and syslog");
        #{file := File, syslog := Syslog} when File =/= undefined, Syslog =/= undefined ->
            weir_proxy_schema:refuse(Path, Map, "one of file and syslog");
        #{} -> Options
    end.

optional(Kind) ->
    fun
        (_Path, undefined) -> undefined;
        (Path, Value) -> Kind(Path, Value)
    end.

syslog(Path, Value) ->
    case weir_proxy_address:endpoint(Path, Value) of
        {name, _, _} -> weir_proxy_schema:refuse(Path, Value, "\"ADDRESS:PORT\" for UDP, or \"unix:/dev/log\"");
        Endpoint -> Endpoint
    end.

%% @doc Logs a proxy as its configuration says from now on. The caller is linked to the process.
-spec adjust(term(), weir_proxy_config:log() | off) -> ok | {error, term()}.
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
                {error, {shutdown, Reason}} ->
                    {error, Reason}
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
        {ok, {Pid, Waiting, #{format := Format}}} -> write(Pid, Waiting, weir_proxy_log_line:text(Format, Session, Result, Statistics))
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

%%% The process.

-spec init({weir_proxy_config:log(), counters:counters_ref()}) -> {ok, #state{}} | {stop, {shutdown, term()}}.
init({Options, Waiting}) ->
    case open(Options) of
        {ok, To} -> {ok, #state{to = To, waiting = Waiting}};
        {error, Reason} -> {stop, {shutdown, Reason}}
    end.

open(#{file := undefined, syslog := Where}) ->
    {Family, Destination} =
        case Where of
            {local, _} -> {local, {Where, 0}};
            {Address, Port} when tuple_size(Address) =:= 8 -> {inet6, {Address, Port}};
            {Address, Port} -> {inet, {Address, Port}}
        end,
    case gen_udp:open(0, [Family, binary, {active, false}]) of
        {ok, Socket} -> {ok, {syslog, Socket, Destination, os:getpid()}};
        {error, Reason} -> {error, {log, weir_proxy_address:to_text(Where), Reason}}
    end;
open(#{file := File}) ->
    case file:open(File, [append, raw, binary, {delayed_write, 65536, 200}]) of
        {ok, Device} -> {ok, {file, Device}};
        {error, Reason} -> {error, {log, File, Reason}}
    end.

-spec handle_call({reopen, weir_proxy_config:log()}, gen_server:from(), #state{}) -> {reply, ok | {error, term()}, #state{}}.
handle_call({reopen, Options}, _From, State = #state{to = {file, Device}}) ->
    case open(Options) of
        {ok, New} ->
            _ = file:close(Device),
            {reply, ok, State#state{to = New}};
        {error, _} = Error ->
            {reply, Error, State}
    end;
handle_call({reopen, _Options}, _From, State) ->
    {reply, ok, State}.

-spec handle_cast({line, iodata()}, #state{}) -> {noreply, #state{}}.
handle_cast({line, Line}, State = #state{to = To, waiting = Waiting}) ->
    ok = counters:sub(Waiting, 1, 1),
    case put_line(To, Line) of
        ok -> ok;
        %% A disk that is full, or nobody who listens.
        {error, _} -> counters:add(Waiting, 2, 1)
    end,
    {noreply, State}.

put_line({file, Device}, Line) -> file:write(Device, Line);
put_line({syslog, Socket, {Where, Port}, Pid}, Line) -> gen_udp:send(Socket, Where, Port, [?PRIORITY, syslog_time(), " weir-proxy[", Pid, "]: ", Line]).

%% As RFC 3164 has it, without a host: the receiver knows.
syslog_time() ->
    {{_, Month, Day}, {Hour, Minute, Second}} = calendar:local_time(),
    Name = element(Month, {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}),
    io_lib:format("~s ~2b ~2..0b:~2..0b:~2..0b", [Name, Day, Hour, Minute, Second]).

-spec handle_info(term(), State) -> {noreply, State}.
handle_info(_Message, State) -> {noreply, State}.
