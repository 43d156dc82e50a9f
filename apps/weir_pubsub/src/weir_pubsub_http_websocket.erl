%% @private
%% @doc WebSockets as Nchan has them: messages of a channel to the client, and messages of the client to the channel where publishing is
%% allowed. With the subprotocol `ws+meta.nchan' a message has its id and type in front.
-module(weir_pubsub_http_websocket).
-behaviour(weir_http_websocket).
-behaviour(weir_pubsub_framing).

-export([new/4]).
-export([open/2]).
-export([message/2]).
-export([info/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-record(websocket, {
    channel :: weir_pubsub:channel(),
    from :: weir_pubsub:from(),
    tag :: term(),
    form :: plain | meta,
    may_publish :: boolean()
}).

-define(META, <<"ws+meta.nchan">>).

%% @doc The result for the listener: a WebSocket that subscribes.
-spec new(weir_pubsub:channel(), weir_pubsub:from(), MayPublish :: boolean(), weir_http_request:request()) -> weir_http_direct:result().
new(Channel, From, MayPublish, Http) ->
    %% It counts only if it is the first.
    {Form, Options} =
        case weir_http_websocket:protocols(Http) of
            [?META | _] -> {meta, #{protocol => ?META}};
            _ -> {plain, #{}}
        end,
    State = #websocket{
        channel = Channel,
        from = From,
        tag = {weir_reactor, weir_http_request:socket(Http), make_ref()},
        form = Form,
        may_publish = MayPublish
    },
    {websocket, ?MODULE, State, Options#{origins => any, drain_code => 1012, max_message => 1000000}}.

%% The handshake is written: what the shard writes comes behind it.
-spec open(weir_http_websocket:websocket(), #websocket{}) -> weir_http_websocket:result().
open(Socket, #websocket{channel = Channel, from = From, tag = Tag, form = Form} = State) ->
    case weir_pubsub_socket:subscribe(Channel, Socket, {?MODULE, Form}, #{from => From, tag => Tag}) of
        ok -> {ok, State#websocket{from = new}};
        {error, _} -> {close, 1013, <<"503 Service Unavailable">>, State}
    end.

-spec message(weir_http_websocket:message(), #websocket{}) -> weir_http_websocket:result().
message(_Message, #websocket{may_publish = false} = State) ->
    {close, 1008, <<"Publish">>, State};
message({Kind, Data}, #websocket{channel = Channel, tag = Tag} = State) ->
    Meta = case Kind of binary -> #{type => <<"application/octet-stream">>}; text -> #{} end,
    case weir_pubsub_shards:send(Channel, {publish, Channel, Data, Meta}, Tag) of
        ok -> {ok, State};
        {error, _} -> {close, 1013, <<"503 Service Unavailable">>, State}
    end.

-spec info(term(), #websocket{}) -> weir_http_websocket:result().
info({_, _Reference, _Channel, {answer, {error, {limit, _, _, _}}}}, State) -> {close, 1008, <<"403 Forbidden">>, State};
info({_, _Reference, _Channel, {answer, {error, {too_large, _}}}}, State) -> {close, 1009, <<"413 Request Entity Too Large">>, State};
info({_, _Reference, _Channel, {answer, {error, _}}}, State) -> {close, 1013, <<"503 Service Unavailable">>, State};
info({_, _Reference, _Channel, {closed, deleted}}, State) -> {close, 1001, <<"410 Gone">>, State};
info({_, _Reference, _Channel, {closed, _}}, State) -> {close, 1013, <<"503 Service Unavailable">>, State};
info(_Answer, State) -> {ok, State}.

-spec closed(weir_http_websocket:reason(), #websocket{}) -> term().
closed(Reason, #websocket{channel = Channel, tag = Tag}) -> weir_pubsub_socket:ended(Reason, Channel, Tag).

%% Framing -----------------------------------------------------------------------------

%% @doc A frame: binary for `application/octet-stream', as with Nchan, and for what is no text.
-spec message(plain | meta, weir_pubsub:channel(), weir_pubsub:message()) -> binary().
message(Form, _Channel, {message, Id, Data, Meta}) ->
    Kind =
        case Meta of
            #{type := <<"application/octet-stream">>} -> binary;
            #{} -> kind(Data)
        end,
    weir_http_websocket:frame({Kind, [front(Form, Id, Meta), Data]}).

kind(Data) ->
    case unicode:characters_to_binary(Data) of
        Data -> text;
        _ -> binary
    end.

front(plain, _Id, _Meta) -> [];
front(meta, Id, #{type := Type}) -> [<<"id: ">>, weir_pubsub_id:to_text(Id), <<"\ncontent-type: ">>, Type, <<"\n\n">>];
front(meta, Id, #{}) -> [<<"id: ">>, weir_pubsub_id:to_text(Id), <<"\n\n">>].

%% @doc With the subprotocol, a message whose type is `weir/gap' and whose data is the number of messages that are missing, or `unknown'.
%% Without, nobody could tell it from others: nothing.
-spec gap(plain | meta, weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_id:id()) -> binary().
gap(plain, _Channel, _Missed, _Position) ->
    <<>>;
gap(meta, _Channel, Missed, Position) ->
    Count = case Missed of unknown -> <<"unknown">>; _ -> integer_to_binary(Missed) end,
    weir_http_websocket:frame({text, [front(meta, Position, #{type => <<"weir/gap">>}), Count]}).
