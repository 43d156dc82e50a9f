%% @private
%% @doc WebSockets as with Nchan: the client gets the messages of channels, and publishes to them if that is allowed.
%% With the subprotocol `ws+meta.nchan' a message begins with its id and its type.
-module(weir_pubsub_http_websocket).
-behaviour(weir_http_websocket).
-behaviour(weir_pubsub_framing).

-include("weir_pubsub_http.hrl").

-export([new/4]).
-export([options/2]).
-export([meta/1]).
-export([open/2]).
-export([message/2]).
-export([info/2]).
-export([written/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-export_type([options/0]).

-type options() :: #{
    stream_timeout := timeout(),
    deflate := boolean() | weir_http_websocket_deflate:options(),
    max_body := pos_integer(),
    _ => _
}.
%% The options of the routes that apply to WebSockets.

-record(websocket, {
    subscription :: weir_pubsub_http_subscription:subscription(),
    form :: form(),
    may_publish :: boolean(),
    %% Messages of the client that shards have not published yet.
    unanswered = 0 :: non_neg_integer()
}).

-type form() :: {plain | meta, weir_http_websocket:shared()}.
%% Whether id and type come before the data, and how frames are compressed.

-define(META, <<"ws+meta.nchan">>).

%% @doc The result for the listener: a WebSocket that subscribes.
-spec new(
    [weir_pubsub:channel()], [weir_pubsub:from()], MayPublish :: boolean(), {weir_http_request:request(), Options}
) -> weir_http_direct:result()
when
    Options :: options().
new(Channels, Froms, MayPublish, {Http, #{stream_timeout := Timeout, deflate := Deflate} = Given}) ->
    Options = options(Http, Given),
    Front = case Options of #{protocol := _} -> meta; #{} -> plain end,
    State = #websocket{
        subscription = weir_pubsub_http_subscription:new(Channels, Froms, Timeout, Http),
        form = weir_http_shared:term(?MODULE, {Front, weir_http_websocket:shared(Http, Deflate)}),
        may_publish = MayPublish
    },
    {websocket, ?MODULE, State, Options}.

%% @doc Returns the options of a handshake. The subprotocol is used only if it is the first that the client offers.
-spec options(weir_http_request:request(), options()) -> weir_http_websocket:options().
options(Http, #{deflate := Deflate, max_body := Most}) ->
    Options = #{
        origins => any, drain_code => 1012, max_message => Most, max_pending => ?MOST_PENDING, deflate => Deflate
    },
    case weir_http_websocket:protocols(Http) of
        [?META | _] -> Options#{protocol => ?META};
        _ -> Options
    end.

%% The response to the handshake is written: the shard writes after it.
-spec open(weir_http_websocket:websocket(), #websocket{}) -> weir_http_websocket:result().
open(Socket, #websocket{subscription = Subscription, form = Form} = State) ->
    result(weir_pubsub_http_subscription:open(Socket, {?MODULE, Form}, <<>>, Subscription), State).

-spec message(weir_http_websocket:message(), #websocket{}) -> weir_http_websocket:result().
message(_Message, #websocket{may_publish = false} = State) ->
    {close, 1008, <<"Publish">>, State};
message(_Message, #websocket{unanswered = Unanswered} = State) when Unanswered >= ?MOST_UNANSWERED ->
    {close, 1008, <<"too many messages wait">>, State};
message({Kind, Data}, #websocket{subscription = Subscription, unanswered = Unanswered} = State) ->
    case weir_pubsub_http_subscription:publish(Data, meta(Kind), Subscription) of
        {ok, Answers} -> {ok, State#websocket{unanswered = Unanswered + Answers}};
        {error, Reason} -> result({over, Reason}, State)
    end.

%% @doc Returns the metadata of a message that a client has sent.
-spec meta(text | binary) -> weir_pubsub:meta().
meta(binary) -> #{type => <<"application/octet-stream">>};
meta(text) -> #{}.

-spec info(term(), #websocket{}) -> weir_http_websocket:result().
info({_, _, _Channel, {answer, {ok, #{}}}}, #websocket{unanswered = Unanswered} = State) ->
    {ok, State#websocket{unanswered = Unanswered - 1}};
info(Message, #websocket{subscription = Subscription, form = Form} = State) ->
    result(weir_pubsub_http_subscription:info(Message, {?MODULE, Form}, Subscription), State).

result({ok, Next}, State) -> {ok, State#websocket{subscription = Next}};
result({send, Bytes, Next}, State) -> {send, {framed, Bytes}, State#websocket{subscription = Next}};
result({over, deleted}, State) -> {close, 1001, <<"410 Gone">>, State};
result({over, timeout}, State) -> {close, 1000, <<"408 408 Request Timeout">>, State};
result({over, {limit, _, _, _}}, State) -> {close, 1008, <<"403 Forbidden">>, State};
result({over, {too_large, _}}, State) -> {close, 1009, <<"413 Request Entity Too Large">>, State};
result({over, _Unavailable}, State) -> {close, 1013, <<"503 Service Unavailable">>, State}.

-spec written(weir_http_websocket:websocket(), #websocket{}) -> weir_http_websocket:result().
written(_Socket, #websocket{subscription = Subscription} = State) ->
    {ok, State#websocket{subscription = weir_pubsub_http_subscription:written(Subscription)}}.

-spec closed(weir_http_websocket:reason(), #websocket{}) -> term().
closed(Reason, #websocket{subscription = Subscription}) -> weir_pubsub_http_subscription:closed(Reason, Subscription).

%% Framing -----------------------------------------------------------------------------

%% @doc Returns a frame: binary for `application/octet-stream', as with Nchan, and for data that is not UTF-8.
-spec message(form(), weir_pubsub:channel(), weir_pubsub_framing:message()) -> binary().
message({Front, Shared}, _Channel, {message, Id, Data, Meta}) ->
    Whole = [front(Front, Id, Meta), Data],
    Kind =
        case Meta of
            #{type := <<"application/octet-stream">>} -> binary;
            #{} -> kind(Front, Data, Whole)
        end,
    weir_http_websocket:frame({Kind, Whole}, Shared).

%% A client closes its connection at a text frame that is not UTF-8, and the type comes from a field that may have any
%% bytes.
kind(plain, Data, _Whole) -> kind(Data);
kind(meta, _Data, Whole) -> kind(iolist_to_binary(Whole)).

kind(Bytes) ->
    case unicode:characters_to_binary(Bytes) of
        Bytes -> text;
        _ -> binary
    end.

front(plain, _Id, _Meta) -> [];
front(meta, Id, #{type := Type}) -> [<<"id: ">>, weir_pubsub_id:to_text(Id), <<"\ncontent-type: ">>, Type, <<"\n\n">>];
front(meta, Id, #{}) -> [<<"id: ">>, weir_pubsub_id:to_text(Id), <<"\n\n">>].

%% @doc With the subprotocol, returns a message whose type is `weir/gap' and whose data is the number of messages that
%% are missing, or `unknown'. Without it there are no bytes, because clients could not tell it from other messages.
-spec gap(form(), weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_framing:place()) -> binary().
gap({plain, _}, _Channel, _Missed, _Position) ->
    <<>>;
gap({meta, Shared}, _Channel, Missed, Position) ->
    Count = case Missed of unknown -> <<"unknown">>; _ -> integer_to_binary(Missed) end,
    weir_http_websocket:frame({text, [front(meta, Position, #{type => <<"weir/gap">>}), Count]}, Shared).
