%% @private
%% @doc Event streams in a reactor: the results of a handler become events. See {@link weir_http_events}.
%%
%% Timeouts are checked at ticks of the reactor. A stream stores when it is due next, so its state does not change with
%% each tick.
-module(weir_http_stream).
-behaviour(weir_http_upgrade).

-export([enter/4, data/4, info/4, writable/3, tick/3, gone/3]).

-include("weir_http.hrl").

-record(settings, {
    heartbeat = 15000 :: timeout(),
    retry = undefined :: pos_integer() | undefined,
    max_pending = 65536 :: pos_integer(),
    slow = close :: close | drop,
    body = events :: events | {bytes, Last :: binary()}
}).

%% One term for all streams without options.
-define(DEFAULTS, #settings{}).

-record(stream, {
    handler :: module(),
    settings :: #settings{},
    framing :: chunked | raw,
    %% When it is checked next, in milliseconds of the monotonic clock.
    due :: integer(),
    %% Since when the client has read nothing of the waiting output, and how many bytes wait.
    stuck = none :: none | {Since :: integer(), Pending :: pos_integer()},
    state :: term()
}).

%% The state of a handler before open/2, and messages for it, the last one first.
-record(opening, {state :: term(), messages = [] :: [term()]}).

%% How often a stream without heartbeats is checked, and after how long clients reconnect, in milliseconds.
-define(LOOK_MS, 15000).
-define(RETRY_MS, 2000).

-spec enter(tuple(), weir_http_request:request(), weir_http_response:wanted(), #http{}) -> weir_http_upgrade:entered().
enter({events, Module, State}, Request, Wanted, Http) ->
    enter({events, Module, State, #{}}, Request, Wanted, Http);
enter({events, Module, State, Options}, Request, Wanted, Http) ->
    Settings = settings(Options),
    ok = weir_http_callback:check(Module, open),
    case weir_http_request:is_head(Request) of
        true ->
            {nothing, After, Head} = weir_http_response:stream(200, fields(Options), Request, Wanted),
            {After, Head};
        false ->
            {Framing, close, Head} = weir_http_response:stream(200, fields(Options), Request, close),
            ok = weir_http_counters:add(Http#http.counters, streams),
            Socket = weir_http_request:connection(Request),
            ok = weir_http_socket:notify_writable(Socket),
            Stream = #stream{
                handler = Module, settings = Settings, framing = Framing, due = now_ms() + look(Socket, Settings),
                state = #opening{state = State}
            },
            {switched, ?MODULE, [Head | first(Framing, Settings)], Stream}
    end.

first(_Framing, #settings{retry = undefined}) -> [];
first(_Framing, #settings{body = {bytes, _}}) -> [];
first(Framing, #settings{retry = Retry}) -> [framed(Framing, weir_http_events:event(#{retry => Retry}))].

look(_Socket, #settings{heartbeat = infinity}) -> ?LOOK_MS;
look(_Socket, #settings{body = {bytes, _}}) -> ?LOOK_MS;
look(Socket, #settings{heartbeat = Heartbeat}) -> weir_http_timeouts:staggered(Socket, Heartbeat).

now_ms() -> erlang:monotonic_time(millisecond).

%%% Options.

settings(Options) when map_size(Options) =:= 0 ->
    ?DEFAULTS;
settings(Options) ->
    case weir_checked_options:check(Options, [fields, heartbeat, retry, max_pending, slow, body], fun allowed/2) of
        ok -> shared(maps:fold(fun set/3, ?DEFAULTS, Options));
        {error, Bad} -> error(Bad)
    end.

%% Options that only set fields share the default settings.
shared(Settings) ->
    case Settings =:= ?DEFAULTS of
        true -> ?DEFAULTS;
        false -> weir_http_shared:term(?MODULE, Settings)
    end.

allowed(fields, Fields) -> is_list(Fields) orelse "a list of {Name, Value}";
allowed(heartbeat, infinity) -> true;
allowed(heartbeat, Time) -> is_positive(Time) orelse "milliseconds from 1 on, or infinity";
allowed(retry, Time) -> is_positive(Time) orelse "milliseconds from 1 on";
allowed(max_pending, Bytes) -> is_positive(Bytes) orelse "a number of bytes from 1 on";
allowed(body, {bytes, Last}) when is_binary(Last) -> true;
allowed(body, Body) -> Body =:= events orelse "events, or {bytes, Last}";
allowed(slow, Slow) -> lists:member(Slow, [close, drop]) orelse "close or drop".

is_positive(Number) -> is_integer(Number) andalso Number > 0 andalso Number < 1 bsl 31.

set(fields, _Fields, Settings) -> Settings;
set(heartbeat, Time, Settings) -> Settings#settings{heartbeat = Time};
set(retry, Time, Settings) -> Settings#settings{retry = Time};
set(max_pending, Bytes, Settings) -> Settings#settings{max_pending = Bytes};
set(slow, Slow, Settings) -> Settings#settings{slow = Slow};
set(body, Body, Settings) -> Settings#settings{body = Body}.

fields(#{body := {bytes, _}} = Options) ->
    maps:get(fields, Options, []);
fields(#{fields := Fields}) ->
    Given = [weir_http_value:lower(Name) || {Name, _} <- Fields],
    [Field || Field = {Name, _} <- fields(#{}), not lists:member(Name, Given)] ++ Fields;
fields(#{}) ->
    [{<<"content-type">>, <<"text/event-stream">>}, {<<"cache-control">>, <<"no-cache">>}].

%%% Input.

%% Further requests are never answered, since the stream ends the connection.
-spec data(weir_http_socket:socket(), binary(), #stream{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
data(_Socket, _Bytes, Stream, _Key) -> {ok, Stream}.

-spec info(weir_http_socket:socket(), term(), #stream{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
info(Socket, {events_send, Bytes}, Stream, Key) ->
    sent(Socket, Bytes, Stream, Key);
info(Socket, {events_tell, Message}, Stream, Key) ->
    told(Socket, Message, Stream, Key);
info(Socket, Message, Stream, Key) when element(1, element(1, Message)) =:= weir_reactor ->
    told(Socket, Message, Stream, Key);
info(_Socket, _Message, Stream, _Key) ->
    {ok, Stream}.

told(_Socket, Message, Stream = #stream{state = Opening = #opening{messages = Messages}}, _Key) ->
    {ok, Stream#stream{state = Opening#opening{messages = [Message | Messages]}}};
told(Socket, Message, Stream = #stream{handler = Handler}, Key) ->
    case erlang:function_exported(Handler, info, 2) of
        true -> call(info, Message, Socket, Stream, Key);
        false -> {ok, Stream}
    end.

%% The head is written: from now on other processes may write after it.
-spec writable(weir_http_socket:socket(), #stream{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
writable(Socket, Stream = #stream{state = #opening{state = State, messages = Messages}}, Key) ->
    Opened = call(open, Socket, Socket, Stream#stream{state = State}, Key),
    lists:foldr(fun(Message, Result) -> then(Result, Message, Socket, Key) end, Opened, Messages);
writable(Socket, Stream = #stream{handler = Handler}, Key) ->
    case erlang:function_exported(Handler, written, 2) andalso weir_http_socket:is_written(Socket) of
        true -> call(written, Socket, Socket, Stream, Key);
        false -> {ok, Stream}
    end.

then({ok, Stream}, Message, Socket, Key) -> told(Socket, Message, Stream, Key);
then({send, Bytes, Stream}, Message, Socket, Key) -> behind(Bytes, told(Socket, Message, Stream, Key));
then(Over, _Message, _Socket, _Key) -> Over.

behind(Bytes, {ok, Stream}) -> {send, Bytes, Stream};
behind(Bytes, {send, More, Stream}) -> {send, [Bytes, More], Stream};
behind(Bytes, {close_later, More}) -> {close_later, [Bytes, More]};
behind(Bytes, {process, Process, More}) -> {process, Process, [Bytes, More]}.

%%% Results of the handler.

call(Callback, Argument, Socket, Stream = #stream{handler = Handler, state = State}, Key) ->
    Run = fun() -> said(Handler:Callback(Argument, State), Socket, Stream, Key) end,
    case weir_http_callback:run(Handler, Callback, Key, Run) of
        {crashed, _} = Reason -> ended(Reason, <<>>, Stream, Key);
        Result -> Result
    end.

%% Fails for an invalid result.
said({ok, State}, _Socket, Stream, _Key) ->
    {ok, with_state(State, Stream)};
said({send, {framed, Bytes}, State}, Socket, Stream, Key) when is_binary(Bytes) ->
    bounded(Socket, Bytes, with_state(State, Stream), Key);
said({send, Events, State}, Socket, Stream, Key) ->
    sent(Socket, weir_http_events:bytes(Events), with_state(State, Stream), Key);
said({close, State}, _Socket, Stream, Key) ->
    ended(closed, <<>>, with_state(State, Stream), Key);
said({close, Events, State}, _Socket, Stream, Key) ->
    ended(closed, weir_http_events:bytes(Events), with_state(State, Stream), Key);
said({process, Fun}, Socket, #stream{framing = Framing}, _Key) when is_function(Fun, 0) ->
    Request = weir_http_request:of_stream(Socket, Framing =:= chunked),
    Serve = fun(_Request) ->
        _ = Fun(),
        streamed
    end,
    Found = weir_http_response:in_process(Serve, Request),
    {process,
        #{found => Found, request => Request, body => {begun, Framing}, wanted => close, rest => <<>>, is_read => true},
        <<>>};
said(Other, _Socket, _Stream, _Key) ->
    error({bad_return_value, Other}).

with_state(State, Stream = #stream{state = State}) -> Stream;
with_state(State, Stream) -> Stream#stream{state = State}.

framed(_Framing, <<>>) -> <<>>;
framed(raw, Bytes) -> Bytes;
framed(chunked, Bytes) -> [integer_to_binary(byte_size(Bytes), 16), <<"\r\n">>, Bytes, <<"\r\n">>].

sent(Socket, Bytes, Stream = #stream{framing = Framing}, Key) -> bounded(Socket, framed(Framing, Bytes), Stream, Key).

%% Limits the output that waits for a client.
bounded(Socket, Bytes, Stream = #stream{settings = #settings{max_pending = Most, slow = Slow}}, Key) ->
    case weir_http_socket:pending(Socket) < Most of
        true ->
            {send, Bytes, Stream};
        false when Slow =:= drop ->
            ok = count(stream_dropped, Key),
            {ok, Stream};
        false ->
            slow(Stream, Key)
    end.

slow(Stream, Key) ->
    ok = count(stream_slow, Key),
    ended(slow, <<>>, Stream, Key).

count(Name, Key) -> weir_http_counters:add_for(Key, Name).

ended(Reason, _Events, Stream = #stream{framing = Framing, settings = #settings{body = {bytes, Last}}}, Key) ->
    ok = closed(Reason, Stream, Key),
    {close_later, [framed(Framing, Last), last(Framing)]};
ended(Reason, Bytes, Stream = #stream{framing = Framing}, Key) ->
    ok = closed(Reason, Stream, Key),
    {close_later, [framed(Framing, Bytes), last(Framing)]}.

last(chunked) -> <<"0\r\n\r\n">>;
last(raw) -> <<>>.

closed(_Reason, #stream{state = #opening{}}, _Key) ->
    ok;
closed(Reason, #stream{handler = Handler, state = State}, Key) ->
    _ = erlang:function_exported(Handler, closed, 2) andalso
        weir_http_callback:run(Handler, closed, Key, fun() -> Handler:closed(Reason, State) end),
    ok.

-spec gone(term(), #stream{}, weir_http_upgrade:key()) -> ok.
gone(send_queue_full, Stream, Key) ->
    ok = count(stream_slow, Key),
    closed(slow, Stream, Key);
gone(Reason, Stream, Key) ->
    closed({lost, Reason}, Stream, Key).

%%% Time.

-spec tick(weir_http_socket:socket(), #stream{}, weir_http_upgrade:key()) ->
    weir_http_upgrade:result() | weir_http_upgrade:sleep().
tick(Socket, Stream = #stream{due = Due}, Key) ->
    Http = persistent_term:get(Key),
    case weir_http_timeouts:is_dismissed(Http) of
        true ->
            drained(Stream, Key);
        false ->
            case now_ms() of
                Now when Now < Due -> {sleep, Due, Stream};
                Now -> due(Socket, Now, Stream, Http, Key)
            end
    end.

%% Spreads the reconnects of clients.
drained(Stream = #stream{settings = #settings{retry = Retry}}, Key) ->
    Least =
        case Retry of
            undefined -> ?RETRY_MS;
            _ -> Retry
        end,
    ended(drained, weir_http_events:event(#{retry => Least + rand:uniform(Least)}), Stream, Key).

due(Socket, Now, Stream = #stream{settings = Settings, framing = Framing, stuck = Stuck}, Http, Key) ->
    Next = Stream#stream{due = Now + look(Socket, Settings)},
    case weir_http_socket:pending(Socket) of
        0 when Settings#settings.heartbeat =:= infinity; Settings#settings.body =/= events ->
            {ok, Next#stream{stuck = none}};
        0 ->
            {send, framed(Framing, <<":\n\n">>), Next#stream{stuck = none}};
        Pending ->
            case Stuck of
                {Since, Pending} ->
                    case Now - Since >= patience(Http) of
                        true -> slow(Stream, Key);
                        false -> {ok, Next}
                    end;
                _ ->
                    {ok, Next#stream{stuck = {Now, Pending}, due = Now + min(look(Socket, Settings), patience(Http))}}
            end
    end.

%% Callers compare this: in the order of terms a number is less than infinity.
patience(#http{idle_ticks = infinity}) -> infinity;
patience(#http{idle_ticks = Ticks, tick = Tick}) -> Ticks * Tick.
