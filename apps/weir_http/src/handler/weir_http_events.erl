%% @doc Event streams (server-sent events, the browser's `EventSource'): a handler whose connections live in the
%% reactor, and functions that any process can use to send to them.
%%
%% ```
%% -module(clock).
%% -behaviour(weir_http_direct).
%% -behaviour(weir_http_events).
%% -export([handle/2, open/2]).
%%
%% handle(_Request, Group) -> {events, clock, Group}.
%%
%% open(Stream, Group) ->
%%     ok = weir_group:join(Group, Stream),
%%     {send, #{comment => <<"welcome">>}, Group}.
%% '''
%% and every second, in any process:
%% ```
%% weir_group:broadcast(Group, weir_http_events:frame(#{data => Time}))
%% '''
%%
%% A direct handler begins a stream with `{events, Module, State}' or `{events, Module, State, Options}': the client
%% gets 200 and `Content-Type: text/event-stream'. From then on callbacks of Module are called. An idle stream has no
%% process and no timer.
%%
%% The callbacks run in the reactor: while one runs, all connections of its scheduler wait. A handler that has to wait
%% returns `{process, Fun}'.
%%
%% <h2>Callbacks</h2>
%% <ul>
%% <li>`open(Stream, State)': the head of the response has been written. Stream is the socket, for other processes and
%% for groups too. No callback is called before this one.</li>
%% <li>`info(Message, State)', optional: a message of {@link tell/2}, or another for the connection (see {@link
%% weir_reactor:send/2}).</li>
%% <li>`written(Stream, State)', optional: the kernel has all output. Called after `weir:notify_writable(Stream)',
%% which does not work for streams over TLS.</li>
%% <li>`closed(Reason, State)', optional: the last call, exactly one for each stream that was opened and not given to a
%% process; see {@type reason()}. Its result is ignored.</li>
%% </ul>
%%
%% <h2>Results</h2>
%% <ul>
%% <li>`{ok, State}'</li>
%% <li>`{send, Events, State}': an {@type event()}, a list of them, or `{framed, Bytes}' with the result of
%% {@link frame/1} or {@link chunk/1}.</li>
%% <li>`{close, State}', `{close, Events, State}': ends the stream in an orderly way. Browsers reconnect.</li>
%% <li>`{process, Fun}': `Fun()' runs in a new process, which sends with `weir_http_process:send(event(Event))', as
%% fast as the client reads. When it returns, the stream ends.</li>
%% </ul>
%% If a callback raises or returns something else, its stream is closed and the failure is logged.
%%
%% <h2>Reconnecting clients</h2>
%% A client that reconnects sends the id of the last event that it received in the field
%% `last-event-id'. A process that keeps the latest events and sends all new ones can give each client exactly those
%% that it missed: it calls `gen_tcp:send(Stream, frame(Missed))', then `weir_group:join(Group, Stream)'. Bytes that
%% one process sends this way arrive before what it broadcasts to the group after joining the stream to it.
%%
%% <h2>Groups</h2>
%% A frame is made once for all members of a group. Join in `open/2' or later. A stream over TLS cannot be a
%% member.
-module(weir_http_events).

-export([send/2]).
-export([tell/2]).
-export([event/1]).
-export([frame/1]).
-export([chunk/1]).

%% For the reactor.
-export([bytes/1]).

-export_type([stream/0, event/0, events/0, result/1, result/0, reason/0, options/0]).

-type stream() :: weir_tcp:socket().

-type event() :: #{
    data => iodata(),
    event => iodata(),
    id => iodata(),
    retry => non_neg_integer(),
    comment => iodata()
}.
%% At least one key. `data' may have several lines, ended by LF, CR or both: the client gets LF. `event' is the name of
%% the event (clients default to `message'). `id' is what the client sends when it reconnects. Neither may contain a
%% line end, nor `id' a NUL. `retry' is the number of milliseconds after which a client reconnects. Clients ignore a
%% `comment'.

-type events() :: event() | [event()].

-type result(State) ::
    {ok, State}
    | {send, events() | {framed, binary()}, State}
    | {close, State}
    | {close, events(), State}
    | {process, fun(() -> term())}.

-type result() :: result(term()).

-type reason() :: closed | drained | slow | {lost, term()} | {crashed, {error | exit | throw, term()}}.
%% Why a stream ended. `closed': by a result. `drained': the listener is drained. `slow': the client does not read fast
%% enough, or has read nothing for the `idle_timeout' of the listener. `lost': the connection ended, by the client or
%% with the listener.
%% `crashed': a callback failed.

-type options() :: #{
    fields => weir_http_direct:fields(),
    heartbeat => timeout(),
    retry => pos_integer(),
    max_pending => pos_integer(),
    slow => close | drop,
    body => events | {bytes, Last :: binary()}
}.
%% Times are milliseconds, accurate to a tick of the listener (a second).
%% <dl>
%% <dt>`fields' (`[]')</dt><dd>Fields of the response. `Cache-Control: no-cache' is added unless they contain that
%% field.</dd>
%% <dt>`heartbeat' (15000)</dt><dd>Interval of comments that keep proxies from closing a silent stream, and detect
%% clients that vanished. It is up to a quarter shorter, so that streams are not all due together.</dd>
%% <dt>`retry'</dt><dd>Milliseconds after which clients reconnect, sent at the beginning. When the listener is drained,
%% each client is sent a random time between this (default 2000) and twice as much, so that they do not reconnect all
%% at once.</dd>
%% <dt>`max_pending' (65536), `slow' (`close')</dt><dd>When this many bytes wait for the client, further events of
%% callbacks and of {@link send/2} are dropped, or the stream is closed: the client then reconnects and says which
%% event it got last. For broadcasts the limits of the group apply.</dd>
%% <dt>`body' (`events')</dt><dd>`{bytes, Last}': not an event stream, but bytes that groups write (see
%% {@link chunk/1}), with Last at the end. There are no heartbeats, no `retry', and no fields except `fields'.
%% Callbacks may send only `{framed, Bytes}'.</dd>
%% </dl>

-callback open(stream(), State :: term()) -> result().
-callback info(Message :: term(), State :: term()) -> result().
-callback written(stream(), State :: term()) -> result().
-callback closed(reason(), State :: term()) -> term().

-optional_callbacks([info/2, written/2, closed/2]).

%% @doc Sends events, from any process. Returns at once, without confirmation of delivery. Fails like {@link event/1}.
-spec send(stream(), events()) -> ok | {error, closed}.
send(Stream, Events) -> weir_http_upgrade:send(Stream, {events_send, bytes(Events)}).

%% @doc Sends a message to a stream, for the callback `info/2' of its handler.
-spec tell(stream(), Message :: term()) -> ok | {error, closed}.
tell(Stream, Message) -> weir_http_upgrade:send(Stream, {events_tell, Message}).

%% @doc Encodes an event. Fails with `{bad_option, Name, Value, Allowed}' for values that it may not contain.
-spec event(event()) -> binary().
event(Event) when is_map(Event), map_size(Event) > 0 ->
    Lines = [line(Key, maps:get(Key, Event)) || Key <- [comment, event, id, retry, data], is_map_key(Key, Event)],
    length(Lines) =:= map_size(Event) orelse bad(event, Event),
    iolist_to_binary([Lines, $\n]);
event(Event) ->
    bad(event, Event).

%% @doc Encodes events as clients of an event stream receive them, once for many clients: send the result with {@link
%% weir_group:broadcast/2} or `gen_tcp:send/2'. Fails like {@link event/1}.
-spec frame(events()) -> binary().
frame(Events) ->
    %% A chunk. Clients of HTTP/1.0 see its length as a line with an unknown field name, and its end as an empty line:
    %% they have to ignore both.
    chunk(bytes(Events)).

%% @doc Frames bytes for a response that is sent in chunks (HTTP/1.1): a stream whose `body' is `{bytes, Last}'.
-spec chunk(binary()) -> binary().
chunk(<<>>) -> <<>>;
chunk(Bytes) -> <<(integer_to_binary(byte_size(Bytes), 16))/binary, "\r\n", Bytes/binary, "\r\n">>.

%% @private
%% @doc Encodes events as clients of HTTP/1.0 receive them.
-spec bytes(events()) -> binary().
bytes(Events) when is_list(Events) -> << <<(event(Event))/binary>> || Event <- Events >>;
bytes(Event) -> event(Event).

line(data, Data) -> [[<<"data: ">>, Line, $\n] || Line <- lines(data, Data)];
line(comment, Comment) -> [[<<": ">>, Line, $\n] || Line <- lines(comment, Comment)];
line(event, Name) -> [<<"event: ">>, one_line(event, Name), $\n];
line(id, Id) -> [<<"id: ">>, without_nul(one_line(id, Id)), $\n];
line(retry, Time) when is_integer(Time), Time >= 0 -> [<<"retry: ">>, integer_to_binary(Time), $\n];
line(Key, Value) -> bad(Key, Value).

%% Usually there is one line. Searching for a single byte is much faster than for several patterns.
lines(Key, Text) ->
    Bytes = text(Key, Text),
    case is_one_line(Bytes) of
        true -> [Bytes];
        false -> binary:split(Bytes, [<<"\r\n">>, <<"\r">>, <<"\n">>], [global])
    end.

one_line(Key, Text) ->
    Bytes = text(Key, Text),
    is_one_line(Bytes) orelse bad(Key, Text),
    Bytes.

is_one_line(Bytes) -> binary:match(Bytes, <<"\n">>) =:= nomatch andalso binary:match(Bytes, <<"\r">>) =:= nomatch.

without_nul(Id) ->
    binary:match(Id, <<0>>) =:= nomatch orelse bad(id, Id),
    Id.

text(Key, Text) ->
    try
        iolist_to_binary(Text)
    catch
        error:badarg -> bad(Key, Text)
    end.

-spec bad(atom(), term()) -> no_return().
bad(Key, Value) -> error({bad_option, Key, Value, allowed(Key)}).

allowed(event) ->
    "a map with at least one of data, event, id, retry and comment; an event name may not contain line ends";
allowed(id) ->
    "iodata without CR, LF and NUL";
allowed(retry) ->
    "a number of milliseconds from 0 on";
allowed(_) ->
    "iodata".
