%% @private
%% @doc The active subscriptions to the Mercure hub of this node: a table of them, and a private update about each
%% that begins or ends.
%%
%% A stream announces its begin and its end. If its reactor is killed, or its TLS process, all streams of that process
%% have ended. The table changes before the update is published. So a reader misses nothing if it reads the id of the
%% latest update first, then the table, and then follows the updates after that id.
-module(weir_pubsub_mercure_subscriptions).
-behaviour(gen_server).

-include("weir_pubsub_mercure.hrl").

-export([new/0]).
-export([start_link/0]).
-export([begun/2]).
-export([ended/1]).
-export([all/0]).
-export([document/3]).
-export([id/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([subscriber/0, active/0, payload/0]).

-type subscriber() :: binary().
%% The name under which others know a stream: a URN with a UUID.

-type active() :: {subscriber(), Selectors :: [binary()], payload()}.

-type payload() :: none | {some, weir_json:value()}.
%% What the token of a subscriber says about it, for others.

-record(subscriptions, {monitors = #{} :: #{pid() => reference()}}).

%% @doc Creates the table. The caller owns it, so that it outlives the process that writes to it.
-spec new() -> ets:tab().
new() -> ets:new(?MODULE, [named_table, ordered_set, public]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Announces that the stream of the calling reactor or process has subscribed to these selectors. Does not wait.
-spec begun([binary()], payload()) -> subscriber().
begun(Selectors, Payload) ->
    Subscriber = uuid(crypto:strong_rand_bytes(16)),
    ok = gen_server:cast(?MODULE, {begun, self(), {Subscriber, Selectors, Payload}}),
    Subscriber.

uuid(<<A:32, B:16, _:4, C:12, _:2, D:14, E:48>>) ->
    iolist_to_binary(
        io_lib:format("urn:uuid:~8.16.0b-~4.16.0b-4~3.16.0b-~4.16.0b-~12.16.0b", [A, B, C, 2#10 bsl 14 bor D, E])
    ).

%% @doc Announces that a stream has ended. Does not wait.
-spec ended(subscriber()) -> ok.
ended(Subscriber) -> gen_server:cast(?MODULE, {ended, self(), Subscriber}).

%% @doc Returns all active subscriptions. Takes time in proportion to their number.
-spec all() -> [active()].
all() -> [{Subscriber, Selectors, Payload} || {{_Pid, Subscriber}, Selectors, Payload} <- ets:tab2list(?MODULE)].

%% @doc Returns the document about the subscription to one of the selectors of a subscriber.
-spec document(Selector :: binary(), active(), IsActive :: boolean()) -> #{atom() => term()}.
document(Selector, {Subscriber, _Selectors, Payload}, IsActive) ->
    Document = #{
        id => id([Selector, Subscriber]),
        type => <<"Subscription">>,
        topic => Selector,
        subscriber => Subscriber,
        active => IsActive
    },
    case Payload of
        none -> Document;
        {some, Said} -> Document#{payload => Said}
    end.

%% @doc Returns the path of a document: about all, about a selector, or about a selector and a subscriber. It is also
%% the topic of updates.
-spec id([binary()]) -> binary().
id(Names) -> iolist_to_binary([?HUB_PATH, "/subscriptions" | [[$/, weir_http_percent:encode(Name)] || Name <- Names]]).

-spec init([]) -> {ok, #subscriptions{}}.
init([]) -> {ok, lists:foldl(fun watch/2, #subscriptions{}, [Pid || {{Pid, _}, _, _} <- ets:tab2list(?MODULE)])}.

watch(Pid, #subscriptions{monitors = Monitors} = State) when is_map_key(Pid, Monitors) -> State;
watch(Pid, #subscriptions{monitors = Monitors} = State) ->
    State#subscriptions{monitors = Monitors#{Pid => monitor(process, Pid)}}.

-spec handle_call(term(), gen_server:from(), #subscriptions{}) -> {noreply, #subscriptions{}}.
handle_call(_Request, _From, State) -> {noreply, State}.

-spec handle_cast(term(), #subscriptions{}) -> {noreply, #subscriptions{}}.
handle_cast({begun, Pid, {Subscriber, Selectors, Payload} = Active}, State) ->
    true = ets:insert(?MODULE, {{Pid, Subscriber}, Selectors, Payload}),
    ok = publish(Active, true),
    {noreply, watch(Pid, State)};
handle_cast({ended, Pid, Subscriber}, State) ->
    ok = over({Pid, Subscriber}),
    {noreply, State}.

-spec handle_info(term(), #subscriptions{}) -> {noreply, #subscriptions{}}.
handle_info({'DOWN', _, process, Pid, _}, #subscriptions{monitors = Monitors} = State) ->
    lists:foreach(fun([Subscriber]) -> over({Pid, Subscriber}) end, ets:match(?MODULE, {{Pid, '$1'}, '_', '_'})),
    {noreply, State#subscriptions{monitors = maps:remove(Pid, Monitors)}};
handle_info(_Other, State) ->
    {noreply, State}.

over({_Pid, Subscriber} = Key) ->
    case ets:take(?MODULE, Key) of
        [{_, Selectors, Payload}] -> publish({Subscriber, Selectors, Payload}, false);
        [] -> ok
    end.

%% If the shard is restarting it does not get the update, but then all streams have ended.
publish({_, Selectors, _} = Active, IsActive) ->
    lists:foreach(
        fun(Selector) ->
            #{id := Id} = Document = document(Selector, Active, IsActive),
            Data = iolist_to_binary(weir_json:compact(Document#{'@context' => <<"https://mercure.rocks/">>})),
            Update = {publish, ?HUB_CHANNEL, Data, #{mercure => {[Id], true, none}}},
            weir_pubsub_shards:cast(?HUB_CHANNEL, Update)
        end,
        Selectors
    ).
