%% @doc Channels with history: publish and subscribe.
%%
%% ```
%% {ok, _} = application:ensure_all_started(weir_pubsub),
%% {ok, Position} = weir_pubsub:subscribe(<<"news">>, #{}),
%% {ok, #{id := Id}} = weir_pubsub:publish(<<"news">>, <<"Hello">>),
%% receive {weir_pubsub, <<"news">>, {message, Id, <<"Hello">>, #{}}} -> ok end.
%% '''
%%
%% A channel is created on first use and removed after its `idle_timeout', see {@link weir_pubsub_policies:policy()}.
%% Its messages have consecutive ids, see {@link weir_pubsub_id}. A subscriber gets each message of a channel once, in
%% the order of the ids; where messages are missing it gets a gap. {@link configure/1} sets what channels keep, and
%% their limits.
-module(weir_pubsub).

-include("weir_pubsub_subscriber.hrl").

-export([publish/2]).
-export([publish/3]).
-export([subscribe/2]).
-export([unsubscribe/1]).
-export([unsubscribe/2]).
-export([taken/2]).
-export([taken/3]).
-export([history/2]).
-export([presence/1]).
-export([delete/1]).
-export([channels/1]).
-export([info/1]).
-export([usage/1]).
-export([counters/0]).
-export([configure/1]).

-export_type([channel/0, message/0, meta/0, from/0, missed/0, info/0, history/0, present/0]).
-export_type([subscription/0, limit/0, unavailable/0]).

-type channel() :: binary().
%% The name of a channel: 1 to 1,024 bytes, of which the first is not zero.

-type message() :: {message, weir_pubsub_id:id(), Data :: binary(), meta()}.

-type meta() :: #{
    type => binary(),
    event => binary(),
    mercure => {Topics :: [binary(), ...], IsPrivate :: boolean(), Retry :: non_neg_integer() | none}
}.
%% What a publisher says about a message beside its data: a media type and the name of an event, each in one line.
%% Only {@link weir_pubsub_mercure} sets `mercure'.

-type from() :: new | oldest | {last, Count :: non_neg_integer()} | weir_pubsub_id:id().
%% Where a reader begins: with the next message, with the oldest that is kept, with the latest `Count', or after an
%% id.

-type missed() :: pos_integer() | unknown.
%% How many messages a gap has. `unknown' if the id is of another life of the channel.

-type subscription() :: #{from => from(), window => pos_integer() | infinity, tag => term(), info => term()}.
%% See {@link subscribe/2}.

-type info() :: #{
    channel := channel(),
    group := binary(),
    messages := non_neg_integer(),
    bytes := non_neg_integer(),
    subscribers := non_neg_integer(),
    last_id := weir_pubsub_id:id(),
    age := non_neg_integer(),
    requested := non_neg_integer() | never
}.
%% A channel: what it keeps, how many subscribe, the id of its latest message, and how many milliseconds ago it was
%% created and last subscribed to.

-type history() :: #{
    position := weir_pubsub_id:id(),
    missed := missed() | none,
    messages := [message()],
    last_id := weir_pubsub_id:id()
}.
%% Messages of a channel after `position', the id of the latest one in the channel, and how many of the requested
%% messages are gone.

-type present() :: #{pid := pid(), info := term(), age := non_neg_integer()}.
%% A subscriber: its process, the `info' that it gave, and for how many milliseconds it has subscribed.

-type limit() :: {limit, weir_pubsub_limits:kind(), weir_pubsub_limits:group() | channel, Limit :: non_neg_integer()}.
%% A limit that is reached: of a group of channels, of all channels (`total'), or of the channel.

-type unavailable() :: unavailable | {not_started, weir_pubsub}.
%% `unavailable': the process that serves the channel was killed during the call, or did not answer within five
%% seconds. It is unknown whether the call took effect. A call that is not begun after five seconds is dropped.

%% How often a channel is fetched from the broker if it is removed again before its history is read.
-define(OPENINGS, 10).

-define(SUBSCRIPTION, #{from => new, window => infinity, tag => weir_pubsub, info => undefined}).

%% @doc Same as {@link publish/3} without anything about the message.
-spec publish(channel(), iodata()) ->
    {ok, #{id := weir_pubsub_id:id(), subscribers := non_neg_integer(), messages := non_neg_integer()}}
    | {error, {too_large, Most :: pos_integer()} | limit() | unavailable() | weir_checked_options:bad_option()}.
publish(Channel, Data) ->
    publish(Channel, Data, #{}).

%% @doc Publishes a message, and returns its id, the number of subscribers, and the number of messages that are kept.
%% Messages from one process to a channel keep the order of the calls.
%%
%% Errors: `{too_large, Most}': more bytes than `max_message'; `{limit, Kind, Group, Limit}': see {@type limit()};
%% `unavailable': see {@type unavailable()}; `{bad_option, Name, Value, Allowed}': a wrong argument.
-spec publish(channel(), iodata(), meta()) ->
    {ok, #{id := weir_pubsub_id:id(), subscribers := non_neg_integer(), messages := non_neg_integer()}}
    | {error, {too_large, Most :: pos_integer()} | limit() | unavailable() | weir_checked_options:bad_option()}.
publish(Channel, Data, Meta) ->
    case {check_channel(Channel), check_meta(Meta)} of
        {ok, ok} -> weir_pubsub_shards:call(Channel, {once, {publish, Channel, flat(Data), Meta}});
        {ok, Error} -> Error;
        {Error, _} -> Error
    end.

flat(Data) when is_binary(Data) -> Data;
flat(Data) -> iolist_to_binary(Data).

check_meta(Meta) when Meta =:= #{} -> ok;
check_meta(Meta) -> weir_checked_options:check(Meta, [type, event], fun allowed/2).

%% @doc Subscribes the calling process to a channel. Returns the position after which its messages begin. If the
%% process subscribes already, with the same tag, the subscription starts over.
%%
%% The process gets `{weir_pubsub, Channel, What}', where What is
%% <ul>
%% <li>`{message, Id, Data, Meta}': a message</li>
%% <li>`{gap, Missed, Position}': `Missed' messages are missing here, `unknown' if their number is not known; the next
%%   message is the one after `Position'</li>
%% <li>`{closed, Reason}': the subscription has ended. `deleted': the channel was deleted. `slow': the process lagged
%%   behind, and the policy is `disconnect'. `unavailable': the channel could not be created again after its shard was
%%   killed</li>
%% </ul>
%% Options:
%% <dl>
%% <dt>`from' (`new')</dt><dd>see {@type from()}. If the id is too old, or of another life of the channel, a gap comes
%%   first</dd>
%% <dt>`window' (`infinity')</dt><dd>how many messages are sent before the process confirms them with {@link taken/3}.
%%   Further messages wait in the history. If the history drops them first, the process gets a gap, or the
%%   subscription ends, see `slow' in {@link weir_pubsub_policies:policy()}. Without a window the mailbox of a slow
%%   process grows</dd>
%% <dt>`tag' (`weir_pubsub')</dt><dd>the first element of its messages. With the tag
%%   `{weir_reactor, Socket, Reference}' they are `{{weir_reactor, Socket}, Reference, Channel, What}', and are
%%   delivered to that connection of the calling reactor. Subscriptions with different tags are independent</dd>
%% <dt>`info' (`undefined')</dt><dd>what {@link presence/1} returns for the subscription</dd>
%% </dl>
%% The subscription ends with the process. Errors are those of {@link publish/3}.
-spec subscribe(channel(), subscription()) ->
    {ok, weir_pubsub_id:id()} | {error, limit() | unavailable() | weir_checked_options:bad_option()}.
subscribe(Channel, Options) ->
    case {check_channel(Channel), weir_checked_options:check(Options, maps:keys(?SUBSCRIPTION), fun allowed/2)} of
        {ok, ok} ->
            #{from := From, window := Window, tag := Tag, info := Info} = maps:merge(?SUBSCRIPTION, Options),
            Subscriber = #subscriber{
                name = Channel, pid = self(), tag = Tag, info = Info, since = erlang:monotonic_time(millisecond)
            },
            Request =
                case Window of
                    infinity -> {subscribe, Channel, process, Subscriber, {From, []}};
                    _ -> {subscribe, Channel, paced, Subscriber#subscriber{window = Window}, {From, []}}
                end,
            subscribe(Channel, Tag, Request);
        {ok, Error} ->
            Error;
        {Error, _} ->
            Error
    end.

%% The killed shard may have recorded the subscription, and the next shard takes it over. End it before trying again.
subscribe(Channel, Tag, Request) ->
    case weir_pubsub_shards:call(Channel, {once, Request}) of
        {error, unavailable} ->
            case unsubscribe(Channel, Tag) of
                {error, Reason} when Reason =/= not_subscribed ->
                    {error, Reason};
                _ ->
                    ok = forget(Channel, Tag),
                    subscribe(Channel, Tag, Request)
            end;
        Result ->
            Result
    end.

forget(Channel, Tag) ->
    receive
        {Tag, Channel, _} -> forget(Channel, Tag)
    after 0 -> ok
    end.

%% @doc Ends the subscription of the calling process to a channel. Messages that are already in its mailbox stay
%% there.
-spec unsubscribe(channel()) -> ok | {error, not_subscribed | unavailable()}.
unsubscribe(Channel) ->
    unsubscribe(Channel, weir_pubsub).

%% @doc Same as {@link unsubscribe/1}, for the subscription with a tag.
-spec unsubscribe(channel(), Tag :: term()) -> ok | {error, not_subscribed | unavailable()}.
unsubscribe(Channel, Tag) ->
    weir_pubsub_shards:call(Channel, {again, {unsubscribe, Channel, {self(), Tag}}}).

%% @doc Confirms `Count' messages of the calling process's subscription, which has a `window' and the default tag.
-spec taken(channel(), pos_integer()) -> ok | {error, unavailable()}.
taken(Channel, Count) -> taken(Channel, Count, weir_pubsub).

%% @doc Confirms `Count' messages of the calling process's subscription with this tag, which has a `window'.
-spec taken(channel(), pos_integer(), Tag :: term()) -> ok | {error, unavailable()}.
taken(Channel, Count, Tag) when is_integer(Count), Count > 0 ->
    weir_pubsub_shards:cast(Channel, {taken, Channel, {self(), Tag}, Count}).

%% @doc Returns messages that are kept, without a subscription. Options: `from' (`oldest'), and `limit' (100), how
%% many at most.
-spec history(channel(), #{from => from(), limit => pos_integer()}) ->
    {ok, history()} | {error, no_channel | unavailable() | weir_checked_options:bad_option()}.
history(Channel, Options) ->
    case weir_checked_options:check(Options, [from, limit], fun allowed/2) of
        ok ->
            history(Channel, maps:get(from, Options, oldest), maps:get(limit, Options, 100), ?OPENINGS);
        {error, _} = Error -> Error
    end.

history(Channel, From, Limit, Openings) ->
    %% A channel that is not in use on this node is fetched first, with what other nodes have published.
    IsThere = weir_pubsub_broker:kind() =:= redis andalso weir_pubsub_shards:call(Channel, {again, {open, Channel}}),
    case weir_pubsub_inspection:history(Channel, From, Limit) of
        %% The channel was removed before it was read: its idle_timeout is short.
        {error, no_channel} when IsThere =:= true, Openings > 1 -> history(Channel, From, Limit, Openings - 1);
        Result -> Result
    end.

%% @doc Returns the subscribers of a channel. `no_presence': `presence' is off in its policy.
-spec presence(channel()) -> {ok, [present()]} | {error, no_presence | no_channel | unavailable()}.
presence(Channel) -> weir_pubsub_inspection:presence(Channel).

%% @doc Deletes a channel with its messages, and returns its last state. Its subscriptions end.
-spec delete(channel()) -> {ok, info()} | {error, no_channel | unavailable()}.
delete(Channel) -> weir_pubsub_shards:call(Channel, {once, {delete, Channel}}).

%% @doc Returns channels in the order of their names. Options: `prefix' (`<<>>') of the names, `after' (`<<>>'), the
%% name after which to begin, and `limit' (100), how many at most. Scans the names of all channels: about 1 ms for
%% some thousand.
-spec channels(#{prefix => binary(), 'after' => binary(), limit => pos_integer()}) ->
    {ok, [info()]} | {error, weir_checked_options:bad_option()}.
channels(Options) ->
    case weir_checked_options:check(Options, [prefix, 'after', limit], fun allowed/2) of
        ok ->
            #{prefix := Prefix, 'after' := After, limit := Limit} =
                maps:merge(#{prefix => <<>>, 'after' => <<>>, limit => 100}, Options),
            {ok, weir_pubsub_inspection:channels(Prefix, After, Limit)};
        {error, _} = Error ->
            Error
    end.

%% @doc Returns the state of a channel.
-spec info(channel()) -> {ok, info()} | {error, no_channel | unavailable()}.
info(Channel) -> weir_pubsub_inspection:info(Channel).

%% @doc Returns how much a group of channels uses, or all channels (`total').
-spec usage(weir_pubsub_limits:group()) ->
    {ok, #{weir_pubsub_limits:kind() => non_neg_integer()}} | {error, {no_group, weir_pubsub_limits:group()}}.
usage(Group) -> weir_pubsub_limits:usage(Group).

%% @doc Returns what was counted since the first start of the application. {@link weir_pubsub_counters:table/0}
%% describes each counter.
-spec counters() -> #{weir_pubsub_counters:name() => non_neg_integer()}.
counters() -> weir_pubsub_counters:get().

%% @doc Sets policies and limits, see {@link weir_pubsub_policies:configure/1}. When the application starts it reads
%% them from its environment, `{weir_pubsub, [{config, Configuration}]}'.
-spec configure(weir_pubsub_policies:configuration()) ->
    ok | {error, weir_checked_options:bad_option() | unavailable()}.
configure(Configuration) -> weir_pubsub_policies:configure(Configuration).

check_channel(Channel) ->
    case weir_pubsub_shards:is_channel(Channel) of
        true -> ok;
        false -> {error, {bad_option, channel, Channel, "a binary of 1 to 1024 bytes that does not begin with zero"}}
    end.

allowed(Text, Value) when Text =:= type; Text =:= event ->
    %% Transports send them in header fields and lines.
    (is_binary(Value) andalso binary:match(Value, [<<"\r">>, <<"\n">>, <<0>>]) =:= nomatch) orelse
        "a binary that is one line";
allowed(Text, Value) when Text =:= prefix; Text =:= 'after' ->
    is_binary(Value) orelse "a binary";
allowed(limit, Value) ->
    (is_integer(Value) andalso Value > 0) orelse "an integer from 1 on";
allowed(window, Value) ->
    Value =:= infinity orelse (is_integer(Value) andalso Value > 0) orelse "an integer from 1 on, or infinity";
allowed(from, From) ->
    is_from(From) orelse "new, oldest, {last, Count}, or the id of a message";
allowed(_Any, _Value) ->
    true.

is_from(new) -> true;
is_from(oldest) -> true;
is_from({last, Count}) -> is_integer(Count) andalso Count >= 0;
is_from({Epoch, Number}) -> is_integer(Epoch) andalso Epoch >= 0 andalso is_integer(Number) andalso Number >= 0;
is_from(_) -> false.
