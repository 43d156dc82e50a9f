%% @private
%% @doc The access log: a line to a file or to syslog when a session ends. One process of each proxy writes it. It
%% never blocks a connection: lines that it cannot write in time are dropped and counted.
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
-export([terminate/2]).

%% Most lines that may wait to be written. Further ones are dropped.
-define(MOST, 10_000).

%% Lines are written together, when the first is this old or all have this many bytes.
-define(WRITE_MS, 200).
-define(WRITE_BYTES, 65536).

%% Limits how long the log may block the proxy, such as when it opens a pipe that has no reader.
-define(PATIENCE_MS, 2000).

%% Facility local0, severity info, as in HAProxy's examples.
-define(PRIORITY, "<134>").

-record(state, {
    to :: {file, file:io_device()} | {syslog, gen_udp:socket(), Where :: term(), Pid :: string()},
    waiting :: counters:counters_ref(),
    %% Lines not yet written to the file, newest first.
    lines = [] :: [iodata()],
    bytes = 0 :: non_neg_integer()
}).

%% @doc Checks the option `log'.
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

%% @doc Starts, reopens, replaces or stops the log of a proxy, as its configuration says. The log's process is linked
%% to the caller.
-spec adjust(term(), weir_proxy_config:log() | off) -> ok | {error, term()}.
adjust(Proxy, Wanted) ->
    case {running(Proxy), Wanted} of
        {{ok, {Pid, _, Wanted}}, _} when Wanted =/= off ->
            %% The file may have been moved away.
            try
                gen_server:call(Pid, {reopen, Wanted}, ?PATIENCE_MS)
            catch
                exit:{timeout, _} -> {error, {log, where(Wanted), timeout}};
                %% Its process was killed.
                exit:_ -> open(Proxy, Wanted)
            end;
        {none, off} ->
            ok;
        {{ok, {Pid, _, _}}, off} ->
            ok = weir_proxy_store:forget({log, Proxy}),
            stop(Pid);
        {_, _} ->
            open(Proxy, Wanted)
    end.

open(Proxy, Wanted) ->
    Waiting = counters:new(2, [write_concurrency]),
    Before = weir_proxy_store:saved({log, Proxy}),
    case gen_server:start_link(?MODULE, {Wanted, Waiting}, [{timeout, ?PATIENCE_MS}]) of
        {ok, Pid} ->
            ok = weir_proxy_store:save({log, Proxy}, {Pid, Waiting, Wanted}),
            in_place_of(Before, Wanted, Waiting);
        {error, timeout} ->
            {error, {log, where(Wanted), timeout}};
        {error, {shutdown, Reason}} ->
            {error, Reason}
    end.

in_place_of(none, _Wanted, _Waiting) ->
    ok;
in_place_of({ok, {Old, Lost, Wanted}}, Wanted, Waiting) ->
    ok = stop(Old),
    %% The old process was killed. The lines that it had not written are lost, and count as dropped.
    counters:add(Waiting, 2, counters:get(Lost, 1) + counters:get(Lost, 2));
in_place_of({ok, {Old, _, _}}, _Wanted, _Waiting) ->
    stop(Old).

%% Lets it write the lines that it has, for at most ?PATIENCE_MS.
stop(Pid) ->
    try
        gen_server:stop(Pid, normal, ?PATIENCE_MS)
    catch
        exit:_ ->
            exit(Pid, kill),
            ok
    end.

where(#{file := undefined, syslog := Where}) -> weir_proxy_address:to_text(Where);
where(#{file := File}) -> File.

%% The log's process of a proxy process that was killed does not count: it ends too, after it has written its lines.
running(Proxy) ->
    {links, Mine} = process_info(self(), links),
    case weir_proxy_store:saved({log, Proxy}) of
        {ok, {Pid, _, _}} = Running ->
            case lists:member(Pid, Mine) of
                true -> Running;
                false -> none
            end;
        none ->
            none
    end.

%% @doc Logs a session that has ended.
-spec session(#session{}, term(), weir_relay:statistics() | none) -> ok.
session(_Session, _Result, none) -> ok;
session(Session, Result, Statistics) -> log(Session, Result, Statistics).

%% @doc Logs a connection that ended without a server, and why.
-spec unserved(atom(), #session{}) -> ok.
unserved(Why, Session = #session{accepted = Accepted}) ->
    None = #{bytes => 0, packets => 0},
    Duration = 1000 * max(0, erlang:system_time(millisecond) - Accepted),
    log(Session, {unserved, Why}, #{
        a_to_b => None, b_to_a => None, duration_us => Duration, first_byte_us => undefined
    }).

log(Session = #session{proxy = Proxy}, Result, Statistics) ->
    case weir_proxy_store:saved({log, Proxy}) of
        none ->
            ok;
        {ok, {Pid, Waiting, #{format := Format}}} ->
            write(Pid, Waiting, weir_proxy_log_line:text(Format, Session, Result, Statistics))
    end.

write(Pid, Waiting, Line) ->
    case counters:get(Waiting, 1) < ?MOST of
        true ->
            ok = counters:add(Waiting, 1, 1),
            gen_server:cast(Pid, {line, Line});
        false ->
            counters:add(Waiting, 2, 1)
    end.

%% @doc Returns how many lines of a proxy's log were dropped.
-spec dropped(term()) -> non_neg_integer().
dropped(Proxy) ->
    case weir_proxy_store:saved({log, Proxy}) of
        {ok, {_, Waiting, _}} -> counters:get(Waiting, 2);
        none -> 0
    end.

%%% The process.

-spec init({weir_proxy_config:log(), counters:counters_ref()}) -> {ok, #state{}} | {stop, {shutdown, term()}}.
init({Options, Waiting}) ->
    %% So that `terminate' writes the last lines.
    process_flag(trap_exit, true),
    case open(Options) of
        {ok, To} -> {ok, #state{to = To, waiting = Waiting}};
        {error, Reason} -> {stop, {shutdown, {log, where(Options), Reason}}}
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
        {error, _} = Error -> Error
    end;
open(#{file := File}) ->
    case file:open(File, [append, raw, binary]) of
        {ok, Device} -> {ok, {file, Device}};
        {error, _} = Error -> Error
    end.

-spec handle_call({reopen, weir_proxy_config:log()}, gen_server:from(), #state{}) ->
    {reply, ok | {error, term()}, #state{}}.
handle_call({reopen, Options}, _From, State = #state{to = {file, Device}}) ->
    case open(Options) of
        {ok, New} ->
            Written = write_file(State),
            _ = file:close(Device),
            {reply, ok, Written#state{to = New}};
        {error, Reason} ->
            {reply, {error, {log, where(Options), Reason}}, State}
    end;
handle_call({reopen, _Options}, _From, State) ->
    {reply, ok, State}.

-spec handle_cast({line, iodata()}, #state{}) -> {noreply, #state{}}.
handle_cast({line, Line}, State = #state{to = To, waiting = Waiting}) ->
    case To of
        {file, _} ->
            {noreply, gather(Line, State)};
        {syslog, _, _, _} ->
            ok = counters:sub(Waiting, 1, 1),
            _ = send(To, Line) =:= ok orelse counters:add(Waiting, 2, 1),
            {noreply, State}
    end.

gather(Line, State = #state{lines = Lines, bytes = Before}) ->
    _ = Lines =:= [] andalso erlang:send_after(?WRITE_MS, self(), write),
    case Before + iolist_size(Line) of
        Bytes when Bytes < ?WRITE_BYTES -> State#state{lines = [Line | Lines], bytes = Bytes};
        _ -> write_file(State#state{lines = [Line | Lines]})
    end.

write_file(State = #state{lines = []}) ->
    State;
write_file(State = #state{to = {file, Device}, lines = Lines, waiting = Waiting}) ->
    case file:write(Device, lists:reverse(Lines)) of
        ok -> ok;
        %% The disk is full, for example.
        {error, _} -> counters:add(Waiting, 2, length(Lines))
    end,
    ok = counters:sub(Waiting, 1, length(Lines)),
    State#state{lines = [], bytes = 0}.

send({syslog, Socket, {Where, Port}, Pid}, Line) ->
    gen_udp:send(Socket, Where, Port, [?PRIORITY, syslog_time(), " weir-proxy[", Pid, "]: ", Line]).

%% The time stamp of RFC 3164. The host name is left out: the receiver knows it.
syslog_time() ->
    {{_, Month, Day}, {Hour, Minute, Second}} = calendar:local_time(),
    Name = element(Month, {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}),
    io_lib:format("~s ~2b ~2..0b:~2..0b:~2..0b", [Name, Day, Hour, Minute, Second]).

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(write, State) -> {noreply, write_file(State)};
handle_info(_Message, State) -> {noreply, State}.

-spec terminate(term(), #state{}) -> #state{}.
terminate(_Reason, State) -> write_file(State).
