%% @private
%% @doc The access log of a listener: a process that writes, and the buffers of the reactors.
%%
%% A reactor buffers lines and hands them over in batches, so that a line costs no message. It never waits: the bytes
%% on their way to the writer are counted, and above the limit a batch is dropped and counted. The drop is logged once
%% until the writer has caught up. Each writer has its own counts, and the table names the current writer: if a writer
%% is killed, only the lines that it had are lost.
-module(weir_http_log).
-behaviour(gen_server).

-export([new_table/0]).
-export([begin_again/0]).
-export([check/1]).

-export([open/3]).
-export([owned/2]).
-export([close/1]).
-export([reopen/1]).
-export([line/2]).
-export([flush/0]).
-export([is_json/1]).

-export([start_link/1]).
-export([init/1]).
-export([handle_continue/2]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-export_type([log/0, options/0]).

-type options() :: #{format => combined | json, to => logger | {file, file:name_all()}}.

-record(log, {
    key :: reference(),
    name :: weir_listener:name(),
    is_json :: boolean(),
    to :: logger | {file, file:name_all()},
    counters :: weir_http_counters:counters()
}).

-opaque log() :: #log{}.

%% Bytes that a reactor buffers before it hands them over. It also hands them over with each tick.
-define(BATCH, 16384).

%% Bytes that may wait for the writer.
-define(WAITING, 4194304).

%% Batches per write call.
-define(BATCHES, 64).

%% Milliseconds for the reactors of a stopped listener to hand over their lines.
-define(LISTENER_MS, 5000).

%% Milliseconds between checks for the successor of a killed writer. Its supervisor starts it at once.
-define(SUCCESSOR_MS, 1).

%% Counts of what is on its way to a writer: bytes, lines, and whether the current drop has been logged.
-define(BYTES, 1).
-define(LINES, 2).
-define(TOLD, 3).

%% Set as the number of lines in a queue once the successor of its writer has counted the lost lines. A process that
%% adds lines later sees a negative number, and counts them as dropped itself.
-define(COUNTED, (-1 bsl 62)).

-record(writer, {
    log :: #log{}, device :: file:io_device() | logger | {error, term()}, queue :: atomics:atomics_ref() | none
}).

%% @doc Creates the table of writers, owned by the caller.
-spec new_table() -> ok.
new_table() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    ok.

%% @doc Restarts the writers of all logs that had one when the previous supervisor ended.
-spec begin_again() -> ignore.
begin_again() ->
    case written() of
        [] ->
            ignore;
        Logs ->
            _ = [weir_http_log_sup:start_writer(Log) || Log <- Logs],
            ok = weir_reports:log(error, #{
                what => "the access log writers ended too often; all were started again, and lines may be lost",
                domain => [weir, http],
                listeners => [Name || #log{name = Name} <- Logs]
            }),
            ignore
    end.

%% Returns the logs that have a writer, alive or dead.
written() -> [Log || [Log, Writer] <- ets:match(?MODULE, {'_', '$2', '_', '$1'}), Writer =/= none].

%% @doc Checks the options of an access log.
-spec check(term()) -> ok | {error, Value :: term(), Allowed :: string()}.
check(off) ->
    ok;
check(Options) when is_map(Options) ->
    case [Option || Option <- maps:to_list(Options), not is_option(Option)] of
        [] -> ok;
        [Wrong | _] -> {error, Wrong, allowed()}
    end;
check(Wrong) ->
    {error, Wrong, allowed()}.

is_option({format, Format}) -> Format =:= combined orelse Format =:= json;
is_option({to, logger}) -> true;
is_option({to, {file, Path}}) -> is_binary(Path) orelse io_lib:printable_unicode_list(Path) andalso Path =/= [];
is_option(_) -> false.

allowed() -> "off, or a map with format => combined or json, and to => logger or {file, Path}".

%% @doc Starts the writer of a listener.
-spec open(weir_listener:name(), options(), weir_http_counters:counters()) ->
    {ok, log()} | {error, {not_started, weir_http} | weir_listener:bad_option()}.
open(Name, Options, Counters) ->
    Log = #log{
        key = make_ref(),
        name = Name,
        is_json = maps:get(format, Options, combined) =:= json,
        to = maps:get(to, Options, logger),
        counters = Counters
    },
    try ets:insert(?MODULE, {Log#log.key, none, none, Log}) andalso weir_http_log_sup:start_writer(Log) of
        {ok, _} ->
            {ok, Log};
        {error, {shutdown, {file, Path, Reason}}} ->
            _ = taken(Log),
            {error, bad_file(Path, Reason)}
    catch
        %% The supervisor is not running, or ended during the call.
        exit:_ ->
            ok = close(Log),
            {error, {not_started, weir_http}};
        error:badarg ->
            {error, {not_started, weir_http}}
    end.

bad_file(Path, Reason) ->
    {bad_option, access_log, {to, {file, Path}}, "a file that can be written (" ++ file:format_error(Reason) ++ ")"}.

%% @doc Ends the writer after it has written all lines handed over before.
-spec close(log()) -> ok.
close(Log) ->
    %% If the writer was killed, its successor finds no entry and ends as well.
    case taken(Log) of
        [{_, Writer, Queue, _}] ->
            try
                gen_server:call(Writer, close, infinity)
            catch
                %% It was killed, and its successor finds no entry.
                exit:_ when Queue =/= none -> lost(atomics:exchange(Queue, ?LINES, ?COUNTED), Log);
                exit:_ -> ok
            end;
        [] ->
            ok
    end.

taken(#log{key = Key}) ->
    try
        _ = ets:delete(?MODULE, {listener, Key}),
        ets:take(?MODULE, Key)
    catch
        %% The table exists only while the application runs.
        error:badarg -> []
    end.

%% @doc Makes the writer end some time after the listener process: nothing else closes the log of a listener that the
%% user's supervisor stops.
-spec owned(log(), pid()) -> ok.
owned(Log = #log{key = Key}, Listener) ->
    true = ets:insert(?MODULE, {{listener, Key}, Listener}),
    [gen_server:cast(Writer, {listener, Listener}) || {_, Writer, _, _} <- writer(Log)],
    ok.

%% @doc Makes the writer reopen its file by name, after a rotation has moved it away.
-spec reopen(log()) -> ok | {error, {not_started, weir_http} | weir_listener:bad_option()}.
reopen(Log) ->
    case writer(Log) of
        [{_, Writer, _, _}] ->
            try
                gen_server:call(Writer, reopen, infinity)
            catch
                %% It was killed. Its successor may have opened the file before the rotation, so try again.
                exit:_ ->
                    ok = timer:sleep(?SUCCESSOR_MS),
                    reopen(Log)
            end;
        [] ->
            {error, {not_started, weir_http}}
    end.

%% @doc Whether the lines are JSON.
-spec is_json(log()) -> boolean().
is_json(#log{is_json = IsJson}) -> IsJson.

%%% Called only in the process that serves connections.

%% @doc Buffers a line.
-spec line(binary(), log()) -> ok.
line(Line, Log) ->
    case get(?MODULE) of
        %% Appending extends the binary in place.
        {Log, Before, Count} when byte_size(Before) < ?BATCH ->
            _ = put(?MODULE, {Log, <<Before/binary, Line/binary>>, Count + 1}),
            ok;
        _ ->
            ok = flush(),
            _ = put(?MODULE, {Log, Line, 1}),
            ok
    end.

%% @doc Hands the buffered lines over to the writer.
-spec flush() -> ok.
flush() ->
    case erase(?MODULE) of
        undefined -> ok;
        {Log, Lines, Count} -> hand_over(Lines, Count, writer(Log), Log)
    end.

%% The table exists only while the application runs.
writer(#log{key = Key}) ->
    try
        ets:lookup(?MODULE, Key)
    catch
        error:badarg -> []
    end.

hand_over(Lines, Count, [{_, Writer, Queue, _}], Log) ->
    %% A killed writer without a successor yet writes nothing more.
    case is_process_alive(Writer) of
        true -> enqueue(Lines, Count, Writer, Queue, Log);
        false -> dropped(Count, Log)
    end;
hand_over(_Lines, Count, [], Log) ->
    dropped(Count, Log).

enqueue(Lines, Count, Writer, Queue, Log) ->
    case atomics:add_get(Queue, ?BYTES, byte_size(Lines)) =< ?WAITING of
        true ->
            case atomics:add_get(Queue, ?LINES, Count) of
                %% It was killed since the lookup.
                Counted when Counted < 0 -> dropped(Count, Log);
                _ -> Writer ! {lines, Lines, Count}, ok
            end;
        false ->
            ok = atomics:sub(Queue, ?BYTES, byte_size(Lines)),
            _ = atomics:exchange(Queue, ?TOLD, 1) =:= 0 andalso tell(Log),
            dropped(Count, Log)
    end.

dropped(Count, #log{counters = Counters}) -> weir_http_counters:add(Counters, log_dropped, Count).

tell(#log{name = Name}) ->
    weir_reports:log(warning, #{
        what => "the access log grows faster than it is written; lines are dropped",
        domain => [weir, http],
        listener => Name
    }).

%%% The writer.

-spec start_link(log()) -> {ok, pid()} | {error, term()}.
start_link(Log) -> gen_server:start_link(?MODULE, Log, []).

-spec init(log()) -> {ok, #writer{}} | {ok, #writer{}, {continue, close}} | {stop, term()}.
init(Log = #log{key = Key}) ->
    case ets:lookup(?MODULE, Key) of
        [{_, none, none, _}] ->
            case device(Log) of
                {ok, Device} -> begun(Log, Device);
                %% The caller that starts the listener gets the error. A crash report would add nothing.
                {error, Reason} -> {stop, {shutdown, Reason}}
            end;
        %% The previous writer was killed: its lines are lost, including those on their way to it.
        [{_, _, Queue, _}] ->
            ok = lost(atomics:exchange(Queue, ?LINES, ?COUNTED), Log),
            case device(Log) of
                {ok, Device} -> begun(Log, Device);
                {error, _} = Error -> begun(Log, Error)
            end;
        [] ->
            closed(Log)
    end.

lost(Count, Log = #log{name = Name}) when Count > 0 ->
    ok = weir_reports:log(warning, #{
        what => "the writer of the access log was killed; the lines that it had are lost",
        domain => [weir, http],
        listener => Name,
        lines => Count
    }),
    dropped(Count, Log);
lost(_Count, _Log) ->
    ok.

begun(Log = #log{key = Key}, Device) ->
    Queue = atomics:new(3, []),
    case ets:update_element(?MODULE, Key, [{2, self()}, {3, Queue}]) of
        true ->
            _ = [monitor(process, Listener) || {_, Listener} <- ets:lookup(?MODULE, {listener, Key})],
            {ok, #writer{log = Log, device = Device, queue = Queue}};
        false ->
            closed(Log)
    end.

%% The log was closed after the previous writer was killed.
closed(Log) -> {ok, #writer{log = Log, device = logger, queue = none}, {continue, close}}.

device(#log{to = logger}) ->
    {ok, logger};
device(#log{to = {file, Path}}) ->
    case file:open(Path, [append, raw, binary]) of
        {ok, Device} -> {ok, Device};
        {error, Reason} -> {error, {file, Path, Reason}}
    end.

-spec handle_continue(close, #writer{}) -> {stop, normal, #writer{}}.
handle_continue(close, Writer) -> {stop, normal, Writer}.

-spec handle_call(close | reopen, gen_server:from(), #writer{}) ->
    {reply, ok | {error, term()}, #writer{}} | {stop, normal, ok, #writer{}}.
handle_call(close, _From, Writer) ->
    {stop, normal, ok, Writer};
handle_call(reopen, _From, Writer = #writer{log = Log, device = Old}) ->
    case device(Log) of
        {ok, Device} ->
            ok = close_device(Old),
            {reply, ok, Writer#writer{device = Device}};
        {error, {file, Path, Reason}} ->
            {reply, {error, bad_file(Path, Reason)}, Writer}
    end.

-spec handle_cast({listener, pid()}, #writer{}) -> {noreply, #writer{}}.
handle_cast({listener, Listener}, Writer) ->
    _ = monitor(process, Listener),
    {noreply, Writer}.

-spec handle_info(term(), #writer{}) -> {noreply, #writer{}} | {stop, normal, #writer{}}.
handle_info({lines, Lines, Count}, Writer = #writer{log = Log, queue = Queue}) ->
    {All, AllCount} = more(?BATCHES, [Lines], Count),
    ok = written(write(All, Writer), AllCount, Log),
    ok = atomics:sub(Queue, ?LINES, AllCount),
    case atomics:sub_get(Queue, ?BYTES, iolist_size(All)) of
        0 -> ok = atomics:put(Queue, ?TOLD, 0);
        _ -> ok
    end,
    {noreply, Writer};
%% The reactors of the listener may still be ending.
handle_info({'DOWN', _Monitor, process, _Listener, _Reason}, Writer) ->
    _ = erlang:send_after(?LISTENER_MS, self(), close),
    {noreply, Writer};
handle_info(close, Writer = #writer{log = Log}) ->
    _ = taken(Log),
    {stop, normal, Writer};
handle_info(_Message, Writer) ->
    {noreply, Writer}.

more(0, Before, Count) ->
    {lists:reverse(Before), Count};
more(N, Before, Count) ->
    receive
        {lines, Lines, More} -> more(N - 1, [Lines | Before], Count + More)
    after 0 -> {lists:reverse(Before), Count}
    end.

write(Batches, #writer{device = logger}) ->
    Lines = binary:split(iolist_to_binary(Batches), <<"\n">>, [global, trim]),
    lists:foreach(fun(Line) -> logger:log(notice, "~ts", [Line], #{domain => [weir, http, access]}) end, Lines);
%% The file could not be opened after the previous writer was killed.
write(_Batches, #writer{device = {error, Reason}}) ->
    {error, Reason};
write(Batches, #writer{device = Device}) ->
    file:write(Device, Batches).

close_device(logger) -> ok;
close_device({error, _}) -> ok;
close_device(Device) -> file:close(Device).

written(ok, _Count, _Log) ->
    ok;
written({error, Reason}, Count, Log = #log{name = Name, to = To}) ->
    ok = weir_reports:say(fun() ->
        weir_reports:log(error, #{
            what => "the access log cannot be written; lines are dropped",
            domain => [weir, http],
            listener => Name,
            to => To,
            reason => Reason
        })
    end),
    dropped(Count, Log).
