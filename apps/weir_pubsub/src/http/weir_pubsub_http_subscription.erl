%% @private
%% @doc The subscription of a connection. Messages of one channel are framed once and written natively; messages of
%% several channels go through the reactor. With TLS all messages go through the process of the connection. The
%% transports need not know which.
-module(weir_pubsub_http_subscription).

-export([new/4]).
-export([open/4]).
-export([info/3]).
-export([written/1]).
-export([publish/3]).
-export([closed/2]).

-export_type([subscription/0]).

%% There are many of these at a time.
-record(one, {
    channel :: weir_pubsub:channel(),
    from :: weir_pubsub:from(),
    socket :: weir_tcp:socket(),
    timeout :: timeout(),
    %% Where it continues when its queue is written.
    left = no :: no | weir_pubsub_socket:left()
}).

-record(several, {
    reader :: weir_pubsub_multi_reader:several(),
    channels :: [weir_pubsub:channel()],
    socket :: weir_tcp:socket() | ssl:sslsocket(),
    is_tls :: boolean(),
    %% Whether it will be notified when all is written.
    is_writing = false :: boolean(),
    timeout :: timeout()
}).

-opaque subscription() :: #one{} | #several{}.

%% Messages of each of several channels in flight to the client.
-define(WINDOW, 16).

%% A connection has one subscription for the rest of its life, which needs no reference of its own. Polls before it
%% had references.
-define(TAG(Socket), {weir_reactor, Socket, subscription}).

%% @doc Makes a subscription that is not open yet. It ends after `Timeout' milliseconds without a message. Channels
%% are copied, because they are parts of the request.
-spec new([weir_pubsub:channel()], [weir_pubsub:from()], timeout(), weir_http_request:request()) -> subscription().
new(Channels, Froms, Timeout, Http) ->
    Socket = weir_http_request:socket(Http),
    Copies = [binary:copy(Channel) || Channel <- Channels],
    case {weir_http_request:is_tls(Http), Copies, Froms} of
        {false, [Channel], [From]} ->
            #one{channel = Channel, from = From, socket = Socket, timeout = Timeout};
        {IsTls, _, _} ->
            Reader = weir_pubsub_multi_reader:new(Copies, Froms, ?WINDOW, Socket),
            #several{reader = Reader, channels = Copies, socket = Socket, is_tls = IsTls, timeout = Timeout}
    end.

%% @doc Opens a subscription. The head comes before all messages. If the result is `send', the caller has to send it;
%% otherwise it is written.
-spec open(weir_tcp:socket(), weir_pubsub_framing:framing(), Head :: binary(), subscription()) ->
    {ok, subscription()} | {send, binary(), subscription()} | {over, Reason :: term()}.
open(Socket, Framing, Head, Subscription) ->
    ok = wake(Socket, timeout(Subscription), erlang:monotonic_time(millisecond)),
    opened(Socket, Framing, Head, Subscription).

timeout(#one{timeout = Timeout}) -> Timeout;
timeout(#several{timeout = Timeout}) -> Timeout.

wake(_Socket, infinity, _Since) ->
    ok;
wake(Socket, Milliseconds, Since) ->
    _ = erlang:send_after(Milliseconds, self(), {{weir_reactor, Socket}, silent, Since}),
    ok.

opened(Socket, Framing, Head, #one{channel = Channel, from = From} = One) ->
    case weir_pubsub_socket:subscribe(Channel, Socket, Framing, #{from => From, tag => ?TAG(Socket), head => Head}) of
        ok -> {ok, One#one{from = new}};
        {error, Reason} -> {over, Reason}
    end;
opened(_Socket, _Framing, Head, #several{reader = Reader} = Several) ->
    case weir_pubsub_multi_reader:subscribe(Reader) of
        ok when Head =:= <<>> -> {ok, Several};
        ok -> {send, Head, Several};
        {error, Reason} -> {over, Reason}
    end.

%% @doc Handles a message to the connection. Returns bytes to send, or the end.
-spec info(term(), weir_pubsub_framing:framing(), subscription()) ->
    {ok, subscription()} | {send, binary(), subscription()} | {over, Reason :: term()}.
info({{weir_reactor, Socket}, silent, Since}, _Framing, Subscription) ->
    silent(Socket, Since, Subscription);
info({{weir_reactor, Socket}, left, Group, Mark}, _Framing, #one{} = One) ->
    _ = weir:notify_writable(Socket),
    {ok, One#one{left = {Group, Mark}}};
info({_, subscription, _Channel, {answer, {error, Reason}}}, _Framing, #one{}) ->
    {over, Reason};
info({_, subscription, _Channel, {closed, Reason}}, _Framing, #one{}) ->
    {over, Reason};
info(_Answer, _Framing, #one{} = One) ->
    {ok, One};
info({_, published, _Channel, {answer, {error, Reason}}}, _Framing, _Several) ->
    {over, Reason};
info(Message, Framing, #several{reader = Reader, channels = Channels} = Several) ->
    case weir_pubsub_multi_reader:heard(Message, Reader) of
        {ok, [], Next} ->
            {ok, Several#several{reader = Next}};
        {ok, Items, Next} ->
            Bytes = iolist_to_binary([framed(Item, Framing, Channels) || Item <- Items]),
            sending(Bytes, Several#several{reader = Next});
        {over, Reason} ->
            {over, Reason}
    end.

%% Messages may have been written by a group since then. The channels know when.
silent(Socket, Since, Subscription) ->
    Latest = lists:max([
        Since | [At || At <- [weir_pubsub_inspection:latest_at(C) || C <- channels(Subscription)], At =/= none]
    ]),
    case Latest + timeout(Subscription) - erlang:monotonic_time(millisecond) of
        Left when Left > 0 ->
            ok = wake(Socket, Left, Latest),
            {ok, Subscription};
        _ ->
            {over, timeout}
    end.

channels(#one{channel = Channel}) -> [Channel];
channels(#several{channels = Channels}) -> Channels.

framed({message, Id, _, _} = Message, Framing, Channels) ->
    weir_pubsub_framing:message(Framing, channel(Id, Channels), Message);
framed({gap, Missed, Id}, Framing, Channels) ->
    weir_pubsub_framing:gap(Framing, channel(Id, Channels), Missed, Id).

channel({several, Number, _}, Channels) -> lists:nth(Number, Channels);
channel(_Id, [Channel]) -> Channel.

%% A gap for which the framing has no bytes, or an empty message.
sending(<<>>, Several) -> {ok, notified(Several)};
sending(Bytes, Several) -> {send, Bytes, notified(Several)}.

%% With TLS, what is sent is written before the next message is handled.
notified(#several{is_tls = true} = Several) ->
    written(Several);
notified(#several{is_writing = true} = Several) ->
    Several;
notified(#several{socket = Socket} = Several) ->
    _ = weir:notify_writable(Socket),
    Several#several{is_writing = true}.

%% @doc Handles that the kernel has taken all that was sent: the channels send more.
-spec written(subscription()) -> subscription().
written(#several{reader = Reader} = Several) ->
    Several#several{reader = weir_pubsub_multi_reader:taken(Reader), is_writing = false};
written(#one{left = no} = One) ->
    One;
written(#one{channel = Channel, socket = Socket, left = Left} = One) ->
    _ = weir_pubsub_socket:rejoin(Channel, ?TAG(Socket), Left),
    One#one{left = no}.

%% @doc Publishes to its channels without waiting. Each channel answers: `{_, _, Channel, {answer, {ok, #{}}}}', or an
%% error that is for {@link info/3}.
-spec publish(binary(), weir_pubsub:meta(), subscription()) ->
    {ok, Answers :: pos_integer()} | {error, weir_pubsub:unavailable()}.
publish(Data, Meta, #one{channel = Channel, socket = Socket}) ->
    sent([Channel], Data, Meta, ?TAG(Socket));
publish(Data, Meta, #several{channels = Channels, socket = Socket}) ->
    sent(Channels, Data, Meta, {weir_reactor, Socket, published}).

sent(Channels, Data, Meta, Tag) ->
    Sent = [weir_pubsub_shards:send(Channel, {publish, Channel, Data, Meta}, Tag) || Channel <- Channels],
    case [Error || {error, _} = Error <- Sent] of
        [] -> {ok, length(Sent)};
        [Error | _] -> Error
    end.

%% @doc Handles the end of the connection.
-spec closed(Reason :: term(), subscription()) -> term().
closed(Reason, #one{channel = Channel, socket = Socket}) ->
    weir_pubsub_socket:ended(Reason, Channel, ?TAG(Socket));
closed(Reason, #several{reader = Reader, channels = Channels}) ->
    Reason =:= slow andalso weir_pubsub_observation:slow(Channels),
    weir_pubsub_multi_reader:unsubscribe(Reader).
