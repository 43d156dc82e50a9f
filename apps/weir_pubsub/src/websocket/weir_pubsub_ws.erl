%% @doc A WebSocket for many channels, whose subscriptions can change while it is open: the route `/ws'. The guide
%% describes the protocol, in the page on the push protocol.
%%
%% ```
%% {ok, _} = weir_http:start_listener(push, #{port => 8080}, [weir_pubsub_ws:route(#{})]).
%% '''
-module(weir_pubsub_ws).
-behaviour(weir_http_direct).
-behaviour(weir_http_websocket).

-export([route/1]).

-export([handle/2]).
-export([open/2]).
-export([message/2]).
-export([info/2]).
-export([written/2]).
-export([closed/2]).

-export_type([options/0]).

-type options() :: #{
    may => fun(
        (weir_pubsub_access:right(), weir_http_request:request(), weir_pubsub:channel()) -> weir_pubsub_access:verdict()
    ),
    origins => any | same | [binary()],
    max_channels => pos_integer(),
    max_message => pos_integer()
}.
%% <dl>
%% <dt>`may'</dt><dd>whether the client that has connected with a request has a right in a channel. The fun runs in
%%   the reactor and must not wait, but may return `{wait, Fun}'. By default all clients may subscribe and read the
%%   history, and local clients may also publish and see the subscribers</dd>
%% <dt>`origins' (`any')</dt><dd>the origins whose pages may connect, see {@link weir_http_websocket:options()}</dd>
%% <dt>`max_channels' (1000)</dt><dd>the maximum number of channels that one client subscribes to</dd>
%% <dt>`max_message' (1048576)</dt><dd>the maximum size of a frame of a client in bytes</dd>
%% </dl>

-record(ws, {
    request :: weir_http_request:request(),
    socket :: weir_http_websocket:websocket() | undefined,
    options :: options(),
    %% By channel, until the client unsubscribes or the shard says that the subscription has ended.
    subscriptions = #{} :: #{weir_pubsub:channel() => reference()},
    %% Requests to shards that are not answered yet.
    asked = #{} :: #{reference() => {publish | unsubscribe, weir_pubsub_ws_frames:ref(), weir_pubsub:channel()}},
    %% Requests that wait for the decision whether they are allowed.
    verdicts = weir_pubsub_ws_verdicts:new() :: weir_pubsub_ws_verdicts:verdicts(),
    %% The refs of requests to subscribe. They are answered by the head of the subscription, or by an error.
    subscribing = #{} :: #{reference() => weir_pubsub_ws_frames:ref()},
    %% Where subscriptions continue when the queue of the client is written.
    left = [] :: [weir_pubsub_socket:left()]
}).

-define(FRAMING, {weir_pubsub_ws_frames, []}).

%% Messages of a channel in flight to a TLS connection.
-define(WINDOW, 16).

%% Answers of shards that a client may wait for.
-define(MOST_ASKED, 1000).

%% A decided request is answered only if fewer bytes than that wait for the client.
-define(MOST_PENDING, 65536).

%% Bytes of the messages in an answer, which is one frame.
-define(HISTORY_BYTES, 1048576).

-define(DEFAULTS, #{may => fun may/3, origins => any, max_channels => 1000, max_message => 1048576}).

%% @doc The route. Fails with `{bad_option, Name, Value, Allowed}' for a wrong option.
-spec route(options()) -> weir_http_routes:route().
route(Options) ->
    case weir_checked_options:check(Options, maps:keys(?DEFAULTS), fun allowed/2) of
        ok -> {"/ws", ?MODULE, maps:merge(?DEFAULTS, Options), #{methods => [<<"GET">>]}};
        {error, Bad} -> error(Bad)
    end.

allowed(may, May) ->
    is_function(May, 3) orelse "a fun of three arguments";
allowed(origins, Origins) ->
    Origins =:= any orelse Origins =:= same orelse is_list(Origins) orelse "any, same, or a list of origins";
allowed(_Most, Count) ->
    (is_integer(Count) andalso Count > 0) orelse "an integer from 1 on".

may(Right, Request, _Channel) ->
    lists:member(Right, [subscribe, history]) orelse weir_pubsub_access:is_local(Request).

%% @private
-spec handle(weir_http_request:request(), options()) -> weir_http_direct:result().
handle(Request, #{origins := Origins, max_message := Most} = Options) ->
    State = #ws{request = weir_http_request:copy(Request), options = Options},
    {websocket, ?MODULE, State, #{origins => Origins, drain_code => 1012, max_message => Most}}.

%% @private
-spec open(weir_http_websocket:websocket(), #ws{}) -> weir_http_websocket:result().
open(Socket, State) ->
    {send, weir_pubsub_ws_frames:answer(null, #{type => welcome, protocol => 1}), State#ws{socket = Socket}}.

%% @private
-spec message(weir_http_websocket:message(), #ws{}) -> weir_http_websocket:result().
message({binary, _}, State) ->
    {close, 1003, <<"only text frames are accepted">>, State};
message({text, Text}, State) ->
    case weir_pubsub_ws_frames:request(Text) of
        {ok, Ref, ping} -> answer(Ref, #{type => pong}, State);
        {ok, Ref, Request} -> allowed(Request, Ref, State);
        {error, Ref, What} -> fail(Ref, bad_request, What, State)
    end.

allowed(Request, Ref, #ws{request = Http, options = #{may := May}} = State) ->
    Channel = element(2, Request),
    case weir_pubsub_access:all([fun() -> May(Right, Http, Channel) end || Right <- rights(Request)]) of
        {wait, _} = Verdict -> wait(Verdict, Request, Ref, State);
        IsAllowed -> decided(IsAllowed, Request, Ref, State)
    end.

decided(true, Request, Ref, State) -> act(Request, Ref, State);
decided(false, _Request, Ref, State) -> fail(Ref, forbidden, <<"not allowed in this channel">>, State).

%% Later requests are not held up.
wait(Verdict, Request, Ref, #ws{socket = Socket, verdicts = Verdicts} = State) ->
    case weir_pubsub_ws_verdicts:wait(Verdict, {Ref, Request}, Socket, Verdicts) of
        {ok, Waiting} -> {ok, State#ws{verdicts = Waiting}};
        too_many -> fail(Ref, too_many, <<"waits for as many answers as it may">>, State)
    end.

%% An answer may be long, so the next one is made after the kernel has taken what waits for the client. Not before,
%% because it is unknown how much callbacks of the same batch have sent.
next_decided(#ws{socket = Socket, verdicts = Verdicts} = State) ->
    case weir_http_socket:pending(Socket) < ?MOST_PENDING andalso weir_pubsub_ws_verdicts:next_decided(Verdicts) of
        {IsAllowed, {Ref, Request}, Left} ->
            Next = State#ws{verdicts = Left},
            ok = notify_if_waiting(Next),
            decided(IsAllowed, Request, Ref, Next);
        _ ->
            ok = notify_if_waiting(State),
            {ok, State}
    end.

notify_if_waiting(#ws{socket = Socket, verdicts = Verdicts}) ->
    case weir_pubsub_ws_verdicts:is_any_decided(Verdicts) of
        true -> weir_http_socket:notify_writable(Socket);
        false -> ok
    end.

rights({subscribe, _, new, _}) -> [subscribe];
rights({subscribe, _, _, _}) -> [subscribe, history];
rights({unsubscribe, _}) -> [];
rights(Request) -> [element(1, Request)].

act({subscribe, Channel, _, _}, Ref, #ws{subscriptions = Subscriptions} = State) when
    is_map_key(Channel, Subscriptions)
->
    fail(Ref, subscribed, <<"already subscribed to this channel">>, State);
act({subscribe, _, _, _}, Ref, #ws{subscriptions = Subscriptions, options = #{max_channels := Most}} = State) when
    map_size(Subscriptions) >= Most
->
    fail(Ref, too_many, <<"subscribed to the maximum number of channels">>, State);
act({subscribe, Channel, From, Info}, Ref, State) ->
    #ws{subscriptions = Subscriptions, subscribing = Subscribing} = State,
    Reference = make_ref(),
    Next = State#ws{subscriptions = Subscriptions#{Channel => Reference}, subscribing = Subscribing#{Reference => Ref}},
    case
        subscribe(Channel, {From, Info, weir_pubsub_ws_frames:subscribed(Ref, Channel)}, tag(Reference, State), State)
    of
        {ok, <<>>} -> {ok, Next};
        {ok, Bytes} -> {send, {framed, Bytes}, Next};
        {error, Reason} -> refused(Ref, Reason, State)
    end;
act({unsubscribe, Channel}, Ref, #ws{subscriptions = Subscriptions} = State) ->
    case Subscriptions of
        #{Channel := Reference} ->
            %% With the reference of the subscription: if the shard is killed before it reads this, the next one does
            %% not take the subscription over.
            case ask({unsubscribe, Channel, {self(), tag(Reference, State)}}, Ref, Reference, State) of
                {ok, Asked} -> {ok, Asked#ws{subscriptions = maps:remove(Channel, Subscriptions)}};
                NotAsked -> NotAsked
            end;
        #{} ->
            fail(Ref, not_subscribed, <<"not subscribed to this channel">>, State)
    end;
act({publish, _, _, _} = Request, Ref, State) ->
    ask(Request, Ref, make_ref(), State);
act({history, Channel, From, Limit}, Ref, State) ->
    case weir_pubsub_inspection:history(Channel, From, Limit) of
        {ok, #{position := Position, missed := Missed, messages := Messages, last_id := Last}} ->
            answer(
                Ref,
                #{
                    type => history,
                    channel => Channel,
                    id => weir_pubsub_id:to_text(Position),
                    last_id => weir_pubsub_id:to_text(Last),
                    missed => weir_pubsub_ws_frames:missed(Missed),
                    messages => weir_pubsub_ws_frames:messages(weir_pubsub_history:of_bytes(Messages, ?HISTORY_BYTES))
                },
                State
            );
        {error, Reason} ->
            refused(Ref, Reason, State)
    end;
act({presence, Channel}, Ref, State) ->
    case weir_pubsub:presence(Channel) of
        {ok, Present} ->
            answer(Ref, #{type => presence, channel => Channel, present => [present(One) || One <- Present]}, State);
        {error, Reason} ->
            refused(Ref, Reason, State)
    end.

%% Native groups do not write through TLS: the messages go to this connection, which sends them.
subscribe(Channel, {From, Info, Head}, Tag, #ws{socket = Socket, request = Http}) ->
    case weir_http_request:is_tls(Http) of
        false ->
            Options = #{from => From, info => Info, tag => Tag, head => Head},
            case weir_pubsub_socket:subscribe(Channel, Socket, ?FRAMING, Options) of
                ok -> {ok, <<>>};
                {error, _} = Error -> Error
            end;
        true ->
            case weir_pubsub_socket:pace(Channel, Tag, #{from => From, info => Info, window => ?WINDOW}) of
                ok -> {ok, Head};
                {error, _} = Error -> Error
            end
    end.

present(#{info := Info, age := Age}) -> #{info => weir_pubsub_ws_frames:info(Info), age => Age}.

tag(Reference, #ws{socket = Socket}) -> {weir_reactor, Socket, Reference}.

ask(_Request, Ref, _Reference, #ws{asked = Asked} = State) when map_size(Asked) >= ?MOST_ASKED ->
    fail(Ref, too_many, <<"waits for as many answers as it may">>, State);
ask(Request, Ref, Reference, #ws{asked = Asked} = State) ->
    Channel = element(2, Request),
    case weir_pubsub_shards:send(Channel, Request, tag(Reference, State)) of
        ok -> {ok, State#ws{asked = Asked#{Reference => {element(1, Request), Ref, Channel}}}};
        {error, Reason} -> refused(Ref, Reason, State)
    end.

%% @private
-spec info(term(), #ws{}) -> weir_http_websocket:result().
info({_, Reference, may, IsAllowed}, #ws{socket = Socket, verdicts = Verdicts} = State) ->
    Next = State#ws{verdicts = weir_pubsub_ws_verdicts:said(Reference, IsAllowed, Socket, Verdicts)},
    ok = notify_if_waiting(Next),
    {ok, Next};
%% Comes before the answer to an `unsubscribe' with the same reference.
info({_, Reference, Channel, {answer, Answer}}, #ws{subscribing = Subscribing} = State) when
    is_map_key(Reference, Subscribing)
->
    {Ref, Left} = maps:take(Reference, Subscribing),
    case Answer of
        {ok, Position} -> {send, weir_pubsub_ws_frames:position(Channel, Position), State#ws{subscribing = Left}};
        {error, Reason} -> refused(Ref, Reason, forget(Channel, Reference, State#ws{subscribing = Left}))
    end;
info({_, Reference, _Channel, {answer, Answer}}, #ws{asked = Asked} = State) when is_map_key(Reference, Asked) ->
    {Asking, Left} = maps:take(Reference, Asked),
    answered(Asking, Answer, State#ws{asked = Left});
info({_, Reference, Channel, {closed, Reason}}, #ws{subscriptions = Subscriptions} = State) ->
    case Subscriptions of
        #{Channel := Reference} ->
            {send, weir_pubsub_ws_frames:closed(Channel, Reason), forget(Channel, Reference, State)};
        #{} ->
            {ok, State}
    end;
info({{weir_reactor, Socket}, left, Group, Mark}, #ws{left = Left} = State) ->
    _ = weir:notify_writable(Socket),
    {ok, State#ws{left = [{Group, Mark} | Left]}};
info({_, Reference, Channel, What}, #ws{subscriptions = Subscriptions} = State) when
    element(1, What) =:= message; element(1, What) =:= gap
->
    case Subscriptions of
        #{Channel := Reference} -> {send, {framed, paced(What, Channel, tag(Reference, State))}, State};
        #{} -> {ok, State}
    end;
info(_Earlier, State) ->
    {ok, State}.

%% With TLS, what is sent is written before the next message is handled.
paced({message, _, _, _} = Message, Channel, Tag) ->
    _ = weir_pubsub_socket:taken(Channel, Tag, 1),
    weir_pubsub_ws_frames:message([], Channel, Message);
paced({gap, Missed, Position}, Channel, _Tag) ->
    weir_pubsub_ws_frames:gap([], Channel, Missed, Position).

forget(Channel, Reference, #ws{subscriptions = Subscriptions} = State) ->
    case Subscriptions of
        #{Channel := Reference} -> State#ws{subscriptions = maps:remove(Channel, Subscriptions)};
        #{} -> State
    end.

answered({publish, Ref, Channel}, {ok, #{id := Id, subscribers := Count}}, State) ->
    answer(
        Ref, #{type => published, channel => Channel, id => weir_pubsub_id:to_text(Id), subscribers => Count}, State
    );
answered({publish, Ref, _Channel}, {error, Reason}, State) ->
    refused(Ref, Reason, State);
%% The client has ended it, or the shard.
answered({unsubscribe, Ref, Channel}, _Answer, State) ->
    answer(Ref, #{type => unsubscribed, channel => Channel}, State).

refused(Ref, {limit, Kind, _Group, Most}, State) ->
    fail(Ref, limit, ["no more than ", integer_to_binary(Most), " ", atom_to_binary(Kind)], State);
refused(Ref, {too_large, Most}, State) ->
    fail(Ref, too_large, ["a message has at most ", integer_to_binary(Most), " bytes"], State);
refused(Ref, no_channel, State) ->
    fail(Ref, no_channel, <<"no such channel">>, State);
refused(Ref, no_presence, State) ->
    fail(Ref, no_presence, <<"presence is off in this channel">>, State);
refused(Ref, _Unavailable, State) ->
    fail(Ref, unavailable, <<"try again">>, State).

answer(Ref, Answer, State) -> {send, weir_pubsub_ws_frames:answer(Ref, Answer), State}.

fail(Ref, Code, Text, State) -> {send, weir_pubsub_ws_frames:failed(Ref, Code, Text), State}.

%% @private
%% The client was slow, and its queue is written. A slow client has mostly left the groups of all its channels: for
%% each group only its own channel is asked.
-spec written(weir_http_websocket:websocket(), #ws{}) -> weir_http_websocket:result().
written(_Socket, #ws{left = Left, subscriptions = Subscriptions} = State) ->
    ByGroup = weir_pubsub_inspection:groups(maps:keys(Subscriptions), ?FRAMING),
    lists:foreach(
        fun({Group, _Mark} = One) ->
            %% A channel that was just created may not be in its table yet.
            Asked =
                case ByGroup of
                    #{Group := Channel} -> [Channel];
                    #{} -> maps:keys(Subscriptions) -- maps:values(ByGroup)
                end,
            [weir_pubsub_socket:rejoin(Channel, tag(map_get(Channel, Subscriptions), State), One) || Channel <- Asked]
        end,
        Left
    ),
    next_decided(State#ws{left = []}).

%% @private
-spec closed(weir_http_websocket:reason(), #ws{}) -> term().
closed(Reason, #ws{subscriptions = Subscriptions} = State) ->
    _ = Reason =:= slow andalso weir_pubsub_observation:slow(maps:keys(Subscriptions)),
    maps:foreach(
        fun(Channel, Reference) -> weir_pubsub_socket:unsubscribe(Channel, tag(Reference, State)) end,
        Subscriptions
    ).
