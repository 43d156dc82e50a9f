%% @private
%% @doc WebSockets in a reactor: frames become calls of a handler, and its results become frames. See {@link
%% weir_http_websocket}.
%%
%% Timeouts are checked at ticks of the reactor, so no WebSocket has a timer.
-module(weir_http_websocket_connection).
-behaviour(weir_http_upgrade).

-export([enter/4, data/4, info/4, writable/3, tick/3, gone/3]).

-include("weir_http.hrl").
-include("weir_http_websocket.hrl").

%% Bytes of answers that may wait before further messages of the client are handled, and bytes of such messages that
%% may be buffered. Beyond that the connection is not read.
-define(OUTPUT, 65536).
-define(INPUT, 65536).

%%% The beginning.

-spec enter(tuple(), weir_http_request:request(), weir_http_response:wanted(), #http{}) -> weir_http_upgrade:entered().
enter({websocket, Module, State}, Request, Wanted, Http) ->
    enter({websocket, Module, State, #{}}, Request, Wanted, Http);
enter({websocket, Module, State, Options}, Request, Wanted, Http) ->
    Settings = weir_http_websocket_options:settings(Options),
    is_handler(Module) orelse error({not_a_handler, Module}),
    case weir_http_timeouts:is_draining(Http) of
        true -> weir_http_response:reply({reply, 503, [], <<"draining\n">>}, Request, close);
        false -> respond(Module, State, Settings, Options, Request, Wanted, Http)
    end.

is_handler(Module) ->
    is_atom(Module) andalso is_tuple(code:ensure_loaded(Module)) andalso erlang:function_exported(Module, message, 2).

respond(Module, State, Settings, Options, Request, Wanted, Http) ->
    case weir_http_websocket_handshake:respond(Request, Options, Settings) of
        {ok, Head, Deflate} ->
            ok = weir_http_counters:add(Http#http.counters, websockets),
            ok = weir_http_socket:notify_writable(weir_http_request:connection(Request)),
            Now = now_ms(),
            WebSocket = #websocket{
                handler = Module,
                state = State,
                settings = Settings,
                deflate = Deflate,
                seen = Now,
                pinged = Now,
                opened = Now
            },
            ok = weir_event:execute([weir, websocket, start], #{monotonic_time => erlang:monotonic_time()}, #{
                name => Http#http.name, socket => weir_http_request:socket(Request)
            }),
            {switched, ?MODULE, Head, WebSocket};
        {refused, 426, Fields, Reason} ->
            weir_http_response:upgrade_required(Fields, Reason, Request, Wanted);
        {refused, Status, Fields, Reason} ->
            weir_http_response:reply({reply, Status, Fields, Reason}, Request, Wanted)
    end.

now_ms() -> erlang:monotonic_time(millisecond).

%%% Bytes.

-spec data(weir_http_socket:socket(), binary(), #websocket{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
data(Socket, Data, WebSocket = #websocket{phase = Phase, bytes = Bytes}, Key) ->
    All = joined(Bytes, Data),
    case Phase of
        _ when Phase =:= opening; Phase =:= paused ->
            {ok, held(Socket, WebSocket#websocket{bytes = All})};
        _ ->
            decode(Socket, All, {[], 0}, seen(Socket, WebSocket), Key)
    end.

joined(<<>>, Bytes) -> Bytes;
joined(Before, Bytes) -> <<Before/binary, Bytes/binary>>.

%% The next tick stores the time, so the state changes once per tick and not with each message.
seen(_Socket, WebSocket = #websocket{has_come = true}) ->
    WebSocket;
seen(Socket, WebSocket) ->
    ok = weir_http_socket:tick_soon(Socket),
    WebSocket#websocket{has_come = true}.

held(Socket, WebSocket = #websocket{bytes = Bytes, is_read = true}) when byte_size(Bytes) > ?INPUT ->
    ok = weir_http_socket:active(Socket, false),
    WebSocket#websocket{is_read = false};
held(_Socket, WebSocket) ->
    WebSocket.

decode(Socket, Data, Out, WebSocket = #websocket{begun = Begun, deflate = Deflate, settings = Settings}, Key) ->
    case weir_http_nif:frames(Data, Begun, Settings#settings.max_message, Deflate =/= none) of
        Items when is_list(Items), Begun =:= none, WebSocket#websocket.bytes =:= <<>> ->
            items(Items, none, Socket, Out, WebSocket, Key);
        Items when is_list(Items) ->
            items(Items, none, Socket, Out, WebSocket#websocket{begun = none, bytes = <<>>}, Key);
        {Stop, Items, NewBegun, End} ->
            Left = binary:part(Data, End, byte_size(Data) - End),
            items(Items, Stop, Socket, Out, WebSocket#websocket{begun = NewBegun, bytes = Left}, Key)
    end.

%% Handles decoded items one after the other. Out: the output so far.
items([], again, Socket, Out, WebSocket = #websocket{bytes = Bytes}, Key) ->
    decode(Socket, Bytes, Out, WebSocket#websocket{bytes = <<>>}, Key);
items([], _Stop, _Socket, Out, WebSocket, _Key) ->
    sent(Out, kept(WebSocket));
items(Items, _Stop, Socket, {_, Size} = Out, WebSocket = #websocket{phase = open}, _Key) when Size >= ?OUTPUT ->
    ok = weir_http_socket:notify_writable(Socket),
    sent(Out, kept(WebSocket#websocket{phase = paused, items = Items}));
items([{close, Code, Text} | _], _Stop, _Socket, Out, WebSocket = #websocket{phase = Phase, bytes = Left}, Key) ->
    Last =
        case Phase of
            {closing, _} ->
                out(<<>>, Out);
            open ->
                ok = closed({peer, Code, Text}, WebSocket, Key),
                out(weir_http_websocket_frames:close(Code, <<>>), Out)
        end,
    case Left of
        <<>> -> {close, bytes(Last)};
        %% The client sends after its close frame, which is forbidden: it gets time to read our last frame.
        _ -> {close_later, bytes(Last)}
    end;
items([{failed, Code, What} | _], _Stop, _Socket, Out, WebSocket, Key) ->
    failed(Code, What, Out, WebSocket, Key);
items([_ | Items], Stop, Socket, Out, WebSocket = #websocket{phase = {closing, _}}, Key) ->
    items(Items, Stop, Socket, Out, WebSocket, Key);
items([{ping, Payload} | Items], Stop, Socket, Out, WebSocket, Key) ->
    items(Items, Stop, Socket, out(weir_http_websocket_frames:frame({pong, Payload}), Out), WebSocket, Key);
items([{pong, _} | Items], Stop, Socket, Out, WebSocket, Key) ->
    items(Items, Stop, Socket, Out, WebSocket, Key);
items([{piece, Bytes} | Items], Stop, Socket, Out, WebSocket = #websocket{message = Message}, Key) ->
    items(Items, Stop, Socket, Out, WebSocket#websocket{message = <<Message/binary, Bytes/binary>>}, Key);
items([{info, Message} | Items], Stop, Socket, Out, WebSocket, Key) ->
    acted(act(Socket, info, Message, WebSocket, Key), Items, Stop, Socket, Out, Key);
items([{compressed, Kind, Bytes} | Items], Stop, Socket, Out, WebSocket, Key) ->
    {Whole, Rest = #websocket{deflate = Deflate, settings = Settings}} = whole(Bytes, WebSocket),
    case weir_http_websocket_deflate:inflate(Kind, Whole, Settings#settings.max_message, Deflate) of
        {ok, Plain, NewDeflate} ->
            message({Kind, Plain}, Items, Stop, Socket, Out, Rest#websocket{deflate = NewDeflate}, Key);
        {failed, Code, What} ->
            failed(Code, What, Out, Rest, Key)
    end;
items([{Kind, Bytes} | Items], Stop, Socket, Out, WebSocket, Key) ->
    {Whole, Rest} = whole(Bytes, WebSocket),
    message({Kind, Whole}, Items, Stop, Socket, Out, Rest, Key).

whole(Bytes, WebSocket = #websocket{message = <<>>}) ->
    {Bytes, WebSocket};
whole(Bytes, WebSocket = #websocket{message = Before}) ->
    {<<Before/binary, Bytes/binary>>, WebSocket#websocket{message = <<>>}}.

message(Message, Items, Stop, Socket, Out, WebSocket, Key) ->
    #http{counters = Counters} = persistent_term:get(Key),
    ok = weir_http_counters:add(Counters, websocket_messages),
    acted(act(Socket, message, Message, WebSocket, Key), Items, Stop, Socket, Out, Key).

acted({ok, WebSocket}, Items, Stop, Socket, Out, Key) ->
    items(Items, Stop, Socket, Out, WebSocket, Key);
acted({send, Bytes, WebSocket}, Items, Stop, Socket, Out, Key) ->
    items(Items, Stop, Socket, out(Bytes, Out), WebSocket, Key).

%% Copies the remaining bytes: a sub-binary would keep the whole read alive.
kept(WebSocket = #websocket{bytes = <<>>}) -> WebSocket;
kept(WebSocket = #websocket{bytes = Bytes}) -> WebSocket#websocket{bytes = binary:copy(Bytes)}.

out(Bytes, {Out, Size}) -> {[Bytes | Out], Size + iolist_size(Bytes)}.

sent({[], _}, WebSocket) -> {ok, WebSocket};
sent(Out, WebSocket) -> {send, bytes(Out), WebSocket}.

bytes({[Bytes], _}) -> Bytes;
bytes({Out, _}) -> lists:reverse(Out).

%% The client has broken the protocol: the bytes that follow cannot be decoded.
failed(_Code, _What, Out, #websocket{phase = {closing, _}}, _Key) ->
    {close_later, bytes(out(<<>>, Out))};
failed(Code, What, Out, WebSocket, Key) ->
    #http{counters = Counters} = persistent_term:get(Key),
    ok = weir_http_counters:add(Counters, websocket_failures),
    ok = closed({failed, Code, What}, WebSocket, Key),
    {close_later, bytes(out(weir_http_websocket_frames:close(Code, <<>>), Out))}.

%%% Calls of the handler.

act(Socket, Callback, Argument, WebSocket = #websocket{handler = Handler, state = State}, Key) ->
    try
        result(Handler:Callback(Argument, State), Socket, WebSocket, Key)
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, Socket, Callback, WebSocket, Key)
    end.

%% Fails for an invalid result.
result({ok, State}, _Socket, WebSocket, _Key) ->
    {ok, with_state(State, WebSocket)};
result({send, Frames, State}, _Socket, WebSocket = #websocket{deflate = Deflate}, _Key) ->
    {Bytes, NewDeflate} = weir_http_websocket_frames:encode(Frames, Deflate),
    {send, Bytes, with_state(State, with_deflate(NewDeflate, WebSocket))};
result({close, State}, Socket, WebSocket, Key) ->
    close(Socket, {closed, 1000, <<>>}, with_state(State, WebSocket), Key);
result({close, Code, Text, State}, Socket, WebSocket, Key) ->
    close(Socket, {closed, Code, iolist_to_binary(Text)}, with_state(State, WebSocket), Key);
result({process, Fun}, Socket, WebSocket = #websocket{handler = Handler}, _Key) when
    is_function(Fun, 1), Handler =/= weir_http_websocket_process
->
    Process = weir_http_websocket_process:start(Fun, Socket),
    {ok, WebSocket#websocket{handler = weir_http_websocket_process, state = Process}};
result(Other, _Socket, _WebSocket, _Key) ->
    error({bad_return_value, Other}).

with_state(State, WebSocket = #websocket{state = State}) -> WebSocket;
with_state(State, WebSocket) -> WebSocket#websocket{state = State}.

with_deflate(none, WebSocket) -> WebSocket;
with_deflate(Deflate, WebSocket) -> WebSocket#websocket{deflate = Deflate}.

crashed(Class, Reason, Stack, Socket, Callback, WebSocket = #websocket{handler = Handler}, Key) ->
    #http{counters = Counters, name = Name, reports = Reports} = persistent_term:get(Key),
    ok = weir_http_counters:add(Counters, crashes),
    %% Messages and state are not logged: they may contain secrets.
    Report = #{
        what => "a WebSocket handler failed; its WebSocket is closed with 1011",
        domain => [weir, http],
        listener => Name,
        callback => {Handler, Callback},
        reason => {Class, Reason},
        stacktrace => [weir_http_crash:without_arguments(Call) || Call <- Stack]
    },
    ok = weir_reports:log(error, Report, Reports),
    close(Socket, {crashed, {Class, Reason}}, WebSocket, Key).

%%% The end.

%% Sends a close frame and waits for that of the client. Fails for an invalid code or text.
close(Socket, Reason, WebSocket = #websocket{settings = Settings}, Key) ->
    Bytes =
        case Reason of
            {closed, Code, Text} -> weir_http_websocket_frames:close(Code, Text);
            slow -> weir_http_websocket_frames:close(1013, <<"slow">>);
            {crashed, _} -> weir_http_websocket_frames:close(1011, <<>>)
        end,
    ok = closed(Reason, WebSocket, Key),
    _ = WebSocket#websocket.is_read orelse weir_http_socket:active(Socket, true),
    ok = weir_http_socket:tick_soon(Socket),
    Until = now_ms() + Settings#settings.close_timeout,
    {send, Bytes, WebSocket#websocket{
        phase = {closing, Until}, handler = undefined, state = undefined, message = <<>>, items = [], is_read = true
    }}.

%% Calls the last callback of the handler.
closed(Reason, #websocket{handler = Handler, state = State, opened = Opened}, Key) ->
    _ = [
        weir_event:execute(
            [weir, websocket, stop],
            #{duration => erlang:convert_time_unit(now_ms() - Opened, millisecond, native)},
            #{name => Name, reason => Reason}
        )
     || #http{name = Name} <- [persistent_term:get(Key, forgotten)]
    ],
    try erlang:function_exported(Handler, closed, 2) andalso Handler:closed(Reason, State) of
        _ -> ok
    catch
        Class:Error:Stack ->
            weir_http_crash:report(#{
                what => "the closed/2 callback of a WebSocket handler failed",
                domain => [weir, http],
                callback => {Handler, closed},
                reason => {Class, Error},
                stacktrace => [weir_http_crash:without_arguments(Call) || Call <- Stack]
            }, Key)
    end.

-spec gone(term(), #websocket{}, weir_http_upgrade:key()) -> ok.
gone(_Reason, #websocket{phase = {closing, _}}, _Key) ->
    ok;
gone(send_queue_full, WebSocket, Key) ->
    ok = weir_http_counters:add_for(Key, websocket_slow),
    closed(slow, WebSocket, Key);
gone(Reason, WebSocket, Key) ->
    closed({lost, Reason}, WebSocket, Key).

%%% Messages of processes.

-spec info(weir_http_socket:socket(), term(), #websocket{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
info(_Socket, _Message, WebSocket = #websocket{phase = {closing, _}}, _Key) ->
    {ok, WebSocket};
info(Socket, {websocket_send, Frames}, WebSocket = #websocket{deflate = Deflate}, Key) ->
    {Bytes, NewDeflate} = weir_http_websocket_frames:encode(Frames, Deflate),
    pushed(Socket, Bytes, length(Frames), with_deflate(NewDeflate, WebSocket), WebSocket, Key);
info(Socket, {websocket_info, Message}, WebSocket, Key) ->
    told(Socket, Message, WebSocket, Key);
info(Socket, Message, WebSocket, Key) ->
    told(Socket, Message, WebSocket, Key).

%% Messages before open/2 are kept until then.
told(_Socket, Message, WebSocket = #websocket{phase = opening, items = Items}, _Key) ->
    {ok, WebSocket#websocket{items = Items ++ [{info, Message}]}};
told(Socket, Message, WebSocket, Key) ->
    called(info, Message, Socket, WebSocket, Key).

%% Calls an optional callback, whose output is unsolicited.
called(Callback, Argument, Socket, WebSocket = #websocket{handler = Handler}, Key) ->
    case erlang:function_exported(Handler, Callback, 2) andalso act(Socket, Callback, Argument, WebSocket, Key) of
        false -> {ok, WebSocket};
        {ok, NewWebSocket} -> {ok, NewWebSocket};
        {send, Bytes, Closing = #websocket{phase = {closing, _}}} -> {send, Bytes, Closing};
        {send, Bytes, NewWebSocket} -> pushed(Socket, Bytes, 1, NewWebSocket, WebSocket, Key)
    end.

%% Limits the unsolicited output that waits for a client.
pushed(Socket, Bytes, Count, NewWebSocket, WebSocket = #websocket{settings = Settings}, Key) ->
    #settings{max_pending = Most, slow = Slow} = Settings,
    #http{counters = Counters} = persistent_term:get(Key),
    case weir_http_socket:pending(Socket) < Most of
        true ->
            {send, Bytes, NewWebSocket};
        false when Slow =:= drop ->
            ok = weir_http_counters:add(Counters, websocket_dropped, Count),
            %% Without the frames, the window must not contain them either.
            {ok, NewWebSocket#websocket{deflate = WebSocket#websocket.deflate}};
        false ->
            ok = weir_http_counters:add(Counters, websocket_slow),
            close(Socket, slow, NewWebSocket, Key)
    end.

%%% Writable.

-spec writable(weir_http_socket:socket(), #websocket{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
writable(Socket, WebSocket = #websocket{phase = opening, handler = Handler}, Key) ->
    Open = WebSocket#websocket{phase = open},
    case erlang:function_exported(Handler, open, 2) of
        true -> go_on(Socket, opened(Socket, Open, Key), Key);
        false -> go_on(Socket, {ok, Open}, Key)
    end;
writable(Socket, WebSocket = #websocket{phase = paused}, Key) ->
    %% The handler may have asked for the same notification.
    go_on(Socket, written(Socket, WebSocket#websocket{phase = open}, Key), Key);
writable(Socket, WebSocket = #websocket{phase = open}, Key) ->
    written(Socket, WebSocket, Key);
writable(_Socket, WebSocket, _Key) ->
    {ok, WebSocket}.

written(Socket, WebSocket = #websocket{handler = Handler}, Key) ->
    case erlang:function_exported(Handler, written, 2) andalso weir_http_socket:is_written(Socket) of
        true -> called(written, Socket, Socket, WebSocket, Key);
        false -> {ok, WebSocket}
    end.

opened(Socket, WebSocket, Key) -> act(Socket, open, Socket, WebSocket, Key).

%% Continues with what was held back: items first, then bytes.
go_on(Socket, Acted, Key) ->
    {Out, WebSocket} =
        case Acted of
            {ok, Same} -> {{[], 0}, Same};
            {send, Bytes, Changed} -> {out(Bytes, {[], 0}), Changed}
        end,
    #websocket{items = Items, is_read = IsRead} = WebSocket,
    _ = IsRead orelse weir_http_socket:active(Socket, true),
    items(Items, again, Socket, Out, WebSocket#websocket{items = [], is_read = true}, Key).

%%% Time.

-spec tick(weir_http_socket:socket(), #websocket{}, weir_http_upgrade:key()) ->
    weir_http_upgrade:result() | weir_http_upgrade:sleep().
tick(_Socket, WebSocket = #websocket{phase = {closing, Until}}, _Key) ->
    case now_ms() < Until of
        true -> {sleep, Until, WebSocket};
        false -> {close, <<>>}
    end;
tick(Socket, WebSocket = #websocket{has_come = true}, Key) ->
    tick(Socket, WebSocket#websocket{has_come = false, seen = now_ms()}, Key);
tick(Socket, WebSocket = #websocket{settings = Settings, seen = Seen, pinged = Pinged}, Key) ->
    #settings{idle_timeout = Idle, ping_interval = Longest, drain_code = Code} = Settings,
    Interval = weir_http_timeouts:staggered(Socket, Longest),
    Http = persistent_term:get(Key),
    Now = now_ms(),
    case weir_http_timeouts:is_dismissed(Http) of
        true ->
            close(Socket, {closed, Code, <<>>}, WebSocket, Key);
        false when Now - Seen >= Idle ->
            idle(Socket, Now, WebSocket, Http, Key);
        false when Now - Seen >= Interval, Now - Pinged >= Interval ->
            {send, weir_http_websocket_frames:frame({ping, <<>>}), forgetting(WebSocket#websocket{pinged = Now})};
        false ->
            {sleep, min(later(Seen, Idle), later(max(Seen, Pinged), Interval)), WebSocket}
    end.

%% In the order of terms a number is less than infinity.
later(_Time, infinity) -> infinity;
later(Time, Milliseconds) -> Time + Milliseconds.

forgetting(WebSocket = #websocket{deflate = none}) ->
    WebSocket;
forgetting(WebSocket = #websocket{deflate = Deflate}) ->
    WebSocket#websocket{deflate = weir_http_websocket_deflate:forget(Deflate)}.

%% Nothing has arrived for long. But the client may be paused by us, and still reading.
idle(Socket, Now, WebSocket = #websocket{is_read = IsRead, pending = Before}, Http, Key) ->
    case weir_http_socket:pending(Socket) of
        Pending when not IsRead, Pending > 0, Pending =/= Before ->
            {ok, WebSocket#websocket{seen = Now, pending = Pending}};
        _ ->
            ok = weir_http_counters:add(Http#http.counters, timeouts),
            ok = closed(timeout, WebSocket, Key),
            {close_later, weir_http_websocket_frames:close(1001, <<"timeout">>)}
    end.
