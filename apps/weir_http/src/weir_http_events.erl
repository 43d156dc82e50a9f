%% @doc Event streams (server-sent events, as browsers read them with `EventSource'): a handler whose connections live in the
%% reactor, and what any process can do with them.
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
%% A direct handler begins a stream with `{events, Module, State}' or `{events, Module, State, Options}': the client gets 200 and
%% `Content-Type: text/event-stream'. What follows are calls of Module. An idle stream has no process and no timer.
%%
%% The callbacks run in the reactor: while one runs, all connections of its scheduler wait. A handler that has to wait for
%% something returns `{process, Fun}'.
%%
%% <h2>Callbacks</h2>
%% <ul>
%% <li>`open(Stream, State)': the head of the response is sent. The stream is known by its socket, to other processes and to
%% groups too. No callback comes before this one.</li>
%% <li>`info(Message, State)', optional: what {@link tell/2} has sent, or a message for the connection as of {@link
%% weir_reactor:send/2}.</li>
%% <li>`written(Stream, State)', optional: what was sent is with the kernel. Called after `weir:notify_writable(Stream)', which streams
%% over TLS have not.</li>
%% <li>`closed(Reason, State)', optional: the last call, exactly one for each stream that was opened and not given to a process;
%% see {@type reason()}. What it returns is ignored.</li>
%% </ul>
%%
%% <h2>Results</h2>
%% <ul>
%% <li>`{ok, State}'</li>
%% <li>`{send, Events, State}': an {@type event()}, a list of them, or `{framed, Bytes}' with what {@link frame/1} or {@link chunk/1}
%% has made.</li>
%% <li>`{close, State}', `{close, Events, State}': the stream ends in an orderly way. A browser connects again.</li>
%% <li>`{process, Fun}': `Fun()' runs in a process of its own, which sends with `weir_http_process:send(event(Event))', as fast as
%% the client takes it. When it returns, the stream ends.</li>
%% </ul>
%% A callback that raises, or returns something else, closes its own stream, with a report in the log.
%%
%% <h2>A client that comes back</h2>
%% says in the field `last-event-id' which event it has seen last. One process that keeps the latest events and sends all new
%% ones can give each client exactly what it has missed: with `gen_tcp:send(Stream, frame(Missed))', and `weir_group:join(Group,
%% Stream)' behind it. Bytes that one process sends so, and what it broadcasts to a group after it has joined the stream to it,
%% arrive in that order.
%%
%% <h2>Groups</h2>
%% A frame is made once for all members of a group. Members must be joined in `open/2' or later. A stream over TLS cannot be a
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
%% At least one of them. `data' may have several lines, ended by LF, CR or both: the client gets LF. `event' is the name of the
%% event, `message' if there is none, and `id' what the client says when it comes back: no line ends, and no NUL in an id.
%% `retry' says after how many milliseconds a client connects again. A `comment' is for nobody.

-type events() :: event() | [event()].

-type result(State) ::
    {ok, State}
    | {send, events() | {framed, binary()}, State}
    | {close, State}
    | {close, events(), State}
    | {process, fun(() -> term())}.

-type result() :: result(term()).

-type reason() :: closed | drained | slow | {lost, term()} | {crashed, {error | exit | throw, term()}}.
%% Why a stream is over. `closed': by a result. `drained': its listener is. `slow': the client does not take what is sent, or has
%% taken nothing for the `idle_timeout' of the listener. `lost': the connection has ended, by the client or with the listener.
%% `crashed': a callback has failed.

-type options() :: #{
    fields => weir_http_direct:fields(),
    heartbeat => timeout(),
    retry => pos_integer(),
    max_pending => pos_integer(),
    slow => close | drop,
    body => events | {bytes, Last :: binary()}
}.
%% Times are milliseconds, kept to within a tick of the listener (a second).
%% <dl>
%% <dt>`fields' (`[]')</dt><dd>Fields of the response. `Cache-Control: no-cache' is there unless they say another.</dd>
%% <dt>`heartbeat' (15000)</dt><dd>A comment is sent so often, or up to a quarter more often so that not all are due together, for
%% those in between that close what is silent, and to learn of
%% a client that is gone without a word.</dd>
%% <dt>`retry'</dt><dd>After how many milliseconds clients come back, told at the beginning. When the listener is drained they are
%% told a time between that (2000 unless given) and twice as much, so that they do not come back all at once.</dd>
%% <dt>`max_pending' (65536), `slow' (`close')</dt><dd>When so many bytes wait for the client, further events of callbacks and of
%% {@link send/2} are dropped, or the stream is closed: the client comes back and says what it has seen. What waits of a group
%% is the group's matter.</dd>
%% <dt>`body' (`events')</dt><dd>`{bytes, Last}': no event stream, but bytes that groups write (see {@link chunk/1}), with Last at the end.
%% There are no heartbeats, no `retry', and no fields but those of `fields'. Callbacks send `{framed, Bytes}' only.</dd>
%% </dl>

-callback open(stream(), State :: term()) -> result().
-callback info(Message :: term(), State :: term()) -> result().
-callback written(stream(), State :: term()) -> result().
-callback closed(reason(), State :: term()) -> term().

-optional_callbacks([info/2, written/2, closed/2]).

%% @doc Sends events, from any process. Returns at once: nothing says whether they have arrived. Fails as {@link event/1}.
-spec send(stream(), events()) -> ok | {error, closed}.
send(Stream, Events) -> weir_http_switched:send(Stream, {events_send, bytes(Events)}).

%% @doc Sends a message to a stream: its handler's `info/2' is called with it.
-spec tell(stream(), Message :: term()) -> ok | {error, closed}.
tell(Stream, Message) -> weir_http_switched:send(Stream, {events_tell, Message}).

%% @doc The bytes of an event. Fails with `{bad_option, Name, Value, Allowed}' for what may not be in one.
-spec event(event()) -> binary().
event(Event) when is_map(Event), map_size(Event) > 0 ->
    Lines = [line(Key, maps:get(Key, Event)) || Key <- [comment, event, id, retry, data], is_map_key(Key, Event)],
    length(Lines) =:= map_size(Event) orelse bad(event, Event),
    iolist_to_binary([Lines, $\n]);
event(Event) ->
    bad(event, Event).

%% @doc The bytes of events as a client of an event stream gets them, made once and sent to many: with {@link
%% weir_group:broadcast/2}, or `gen_tcp:send/2'. Fails as {@link event/1}.
-spec frame(events()) -> binary().
frame(Events) ->
    %% A chunk. To a client of HTTP/1.0 its length is a line with the name of a field that nobody knows, and its end an empty
    %% line: both are to be ignored.
    chunk(bytes(Events)).

%% @doc Bytes as a client of HTTP/1.1 gets them in a response that is sent in chunks: of a stream whose `body' is bytes.
-spec chunk(binary()) -> binary().
chunk(<<>>) -> <<>>;
chunk(Bytes) -> <<(integer_to_binary(byte_size(Bytes), 16))/binary, "\r\n", Bytes/binary, "\r\n">>.

%% @private
%% @doc The bytes of events as a client of HTTP/1.0 gets them.
-spec bytes(events()) -> binary().
bytes(Events) when is_list(Events) -> << <<(event(Event))/binary>> || Event <- Events >>;
bytes(Event) -> event(Event).

line(data, Data) -> [[<<"data: ">>, Line, $\n] || Line <- lines(data, Data)];
line(comment, Comment) -> [[<<": ">>, Line, $\n] || Line <- lines(comment, Comment)];
line(event, Name) -> [<<"event: ">>, one_line(event, Name), $\n];
line(id, Id) -> [<<"id: ">>, without_nul(one_line(id, Id)), $\n];
line(retry, Time) when is_integer(Time), Time >= 0 -> [<<"retry: ">>, integer_to_binary(Time), $\n];
line(Key, Value) -> bad(Key, Value).

%% Mostly it is one. To look for single bytes is much cheaper than to look for one of several patterns.
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

allowed(event) -> "a map with one of data, event, id, retry and comment at least, and the name of an event in one line";
allowed(id) -> "iodata without CR, LF and NUL";
allowed(retry) -> "a number of milliseconds from 0 on";
allowed(_) -> "iodata".
