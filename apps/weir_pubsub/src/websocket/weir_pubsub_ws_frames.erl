%% @private
%% @doc The frames of the protocol at `/ws': decodes requests from JSON, and encodes messages, gaps and answers. The
%% guide describes them, in the page on the push protocol.
-module(weir_pubsub_ws_frames).
-behaviour(weir_pubsub_framing).

-export([request/1]).
-export([answer/2]).
-export([failed/3]).
-export([subscribed/2]).
-export([position/2]).
-export([closed/2]).
-export([messages/1]).
-export([missed/1]).
-export([info/1]).

-export([message/3]).
-export([gap/4]).

-export_type([request/0, ref/0]).

-type ref() :: binary() | number() | null.
%% The client's name of a request, which is repeated in the answer.

-type request() ::
    {subscribe, weir_pubsub:channel(), weir_pubsub:from(), Info :: term()}
    | {unsubscribe, weir_pubsub:channel()}
    | {publish, weir_pubsub:channel(), Data :: binary(), weir_pubsub:meta()}
    | {history, weir_pubsub:channel(), weir_pubsub:from(), Limit :: pos_integer()}
    | {presence, weir_pubsub:channel()}
    | ping.

%% What a client may say about itself at most, in bytes of JSON.
-define(INFO_BYTES, 1024).
-define(MOST_HISTORY, 1000).

%% Data is copied only if its frame is more than this many times larger.
-define(SPARE, 2).

%% @doc Decodes a request from the text of a frame.
-spec request(binary()) -> {ok, ref(), request()} | {error, ref(), Text :: binary()}.
request(Text) ->
    case weir_json:decode(Text) of
        {ok, #{<<"type">> := Type} = Frame} ->
            Ref = ref(Frame),
            try
                {ok, Ref, request(Type, Frame)}
            catch
                throw:{wrong, What} -> {error, Ref, What}
            end;
        {ok, #{} = Frame} ->
            {error, ref(Frame), <<"type is missing">>};
        {ok, _} ->
            {error, null, <<"a frame must be a JSON object">>};
        {error, {not_json, _}} ->
            {error, null, <<"not JSON">>}
    end.

%% What is kept of a frame is copied, because it would keep the whole frame.
ref(#{<<"ref">> := Ref}) when is_number(Ref) -> Ref;
ref(#{<<"ref">> := Ref}) when is_binary(Ref), byte_size(Ref) =< 64 -> binary:copy(Ref);
ref(#{}) -> null.

request(<<"subscribe">>, Frame) ->
    Info = iolist_to_binary(weir_json:compact(maps:get(<<"info">>, Frame, null))),
    byte_size(Info) =< ?INFO_BYTES orelse wrong(<<"info has more than 1024 bytes">>),
    {ok, Own} = weir_json:decode(Info),
    {subscribe, channel(Frame), from(Frame, new), Own};
request(<<"unsubscribe">>, Frame) ->
    {unsubscribe, channel(Frame)};
request(<<"publish">>, Frame) ->
    {publish, channel(Frame), data(Frame), meta(Frame)};
request(<<"history">>, Frame) ->
    case maps:get(<<"limit">>, Frame, 100) of
        Limit when is_integer(Limit), Limit > 0, Limit =< ?MOST_HISTORY ->
            {history, channel(Frame), from(Frame, oldest), Limit};
        _ ->
            wrong(<<"limit is an integer from 1 to 1000">>)
    end;
request(<<"presence">>, Frame) ->
    {presence, channel(Frame)};
request(<<"ping">>, _Frame) ->
    ping;
request(_Type, _Frame) ->
    wrong(<<"type is subscribe, unsubscribe, publish, history, presence or ping">>).

-spec wrong(binary()) -> no_return().
wrong(What) -> throw({wrong, What}).

channel(Frame) ->
    Channel = maps:get(<<"channel">>, Frame, none),
    weir_pubsub_shards:is_channel(Channel) orelse wrong(<<"channel is a string of 1 to 1024 bytes">>),
    binary:copy(Channel).

from(Frame, Default) ->
    case maps:get(<<"from">>, Frame, Default) of
        Atom when Atom =:= new; Atom =:= oldest -> Atom;
        <<"new">> -> new;
        <<"oldest">> -> oldest;
        Count when is_integer(Count), Count >= 0 -> {last, Count};
        Text ->
            case is_binary(Text) andalso weir_pubsub_id:from_text(Text) of
                {ok, Id} -> Id;
                _ -> wrong(<<"from is \"new\", \"oldest\", a number of messages, or the id of one">>)
            end
    end.

data(#{<<"data">> := Data}) when is_binary(Data) ->
    case binary:referenced_byte_size(Data) > ?SPARE * byte_size(Data) of
        true -> binary:copy(Data);
        false -> Data
    end;
data(#{<<"base64">> := Text}) when is_binary(Text) ->
    try
        base64:decode(Text)
    catch
        error:_ -> wrong(<<"base64 is not base64">>)
    end;
data(_Frame) ->
    wrong(<<"data is a string, or base64 bytes">>).

%% Other transports send both in header fields and lines.
meta(Frame) ->
    maps:from_list([
        {Key, line(Name, Value)}
     || {Key, Name} <- [{type, <<"content_type">>}, {event, <<"event">>}], {ok, Value} <- [maps:find(Name, Frame)]
    ]).

line(Name, Value) ->
    case
        is_binary(Value) andalso byte_size(Value) =< 256 andalso
            [] =:= [Byte || <<Byte>> <= Value, Byte < 32 orelse Byte =:= 127]
    of
        true -> binary:copy(Value);
        false -> wrong(<<Name/binary, " is a string of at most 256 bytes in one line">>)
    end.

%% @doc Returns the answer to a request.
-spec answer(ref(), #{atom() => term()}) -> weir_http_websocket:frame().
answer(Ref, Answer) -> {text, weir_json:compact(Answer#{ref => Ref})}.

%% @doc Returns the answer to a request that has failed.
-spec failed(ref(), Code :: atom(), Text :: iodata()) -> weir_http_websocket:frame().
failed(Ref, Code, Text) -> answer(Ref, #{type => error, code => Code, text => iolist_to_binary(Text)}).

%% @doc Returns the frame before the first message of a subscription.
-spec subscribed(ref(), weir_pubsub:channel()) -> binary().
subscribed(Ref, Channel) -> weir_http_websocket:frame(answer(Ref, #{type => subscribed, channel => Channel})).

%% @doc Returns the position after which a subscription has begun. A client that has got no message comes back with
%% it. It may be sent after messages.
-spec position(weir_pubsub:channel(), weir_pubsub_id:id()) -> weir_http_websocket:frame().
position(Channel, Id) ->
    {text, weir_json:compact(#{type => position, channel => Channel, id => weir_pubsub_id:to_text(Id)})}.

%% @doc Returns the frame about a subscription that has ended without a request of the client.
-spec closed(weir_pubsub:channel(), Reason :: atom()) -> weir_http_websocket:frame().
closed(Channel, Reason) -> {text, weir_json:compact(#{type => closed, channel => Channel, reason => Reason})}.

%% @doc Returns the messages of a history, for JSON.
-spec messages([weir_pubsub:message()]) -> [#{atom() => term()}].
messages(Messages) -> [described(Message) || Message <- Messages].

described({message, Id, Data, Meta}) ->
    Message = content(Data, #{id => weir_pubsub_id:to_text(Id)}),
    case Meta of
        #{type := Type, event := Event} -> Message#{content_type => text(Type), event => text(Event)};
        #{type := Type} -> Message#{content_type => text(Type)};
        #{event := Event} -> Message#{event => text(Event)};
        #{} -> Message
    end.

content(Data, Message) ->
    case unicode:characters_to_binary(Data) of
        Data -> Message#{data => Data};
        _ -> Message#{base64 => base64:encode(Data)}
    end.

%% Fields of an HTTP request may have any bytes.
text(Bytes) ->
    case unicode:characters_to_binary(Bytes) of
        Bytes -> Bytes;
        _ -> unicode:characters_to_binary(Bytes, latin1)
    end.

%% @doc Returns how many messages are missing, for JSON.
-spec missed(weir_pubsub:missed() | none) -> non_neg_integer() | null.
missed(unknown) -> null;
missed(none) -> 0;
missed(Missed) -> Missed.

%% @doc Returns the `info' of a subscriber for JSON: `null' if it has none, or if it is a process whose `info' is not
%% JSON.
-spec info(term()) -> weir_json:value() | atom() | #{atom() => term()}.
info(undefined) -> null;
info(Info) ->
    case is_json(Info) of
        true -> Info;
        false -> null
    end.

%% Keys and values may be atoms.
is_json(Text) when is_binary(Text) -> unicode:characters_to_binary(Text) =:= Text;
is_json([First | Rest]) when is_list(Rest) -> is_json(First) andalso is_json(Rest);
is_json(#{} = Object) ->
    lists:all(
        fun({Key, Value}) -> (is_atom(Key) orelse is_binary(Key)) andalso is_json(Key) andalso is_json(Value) end,
        maps:to_list(Object)
    );
is_json(Value) ->
    is_atom(Value) orelse is_number(Value) orelse Value =:= [].

%% Framing -----------------------------------------------------------------------------

%% @doc Returns the frame with a message of a channel.
-spec message(term(), weir_pubsub:channel(), weir_pubsub:message()) -> binary().
message(_Argument, Channel, Message) ->
    weir_http_websocket:frame({text, weir_json:compact((described(Message))#{type => message, channel => Channel})}).

%% @doc Returns the frame with a gap in a channel. The next message is the one after that position.
-spec gap(term(), weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_id:id()) -> binary().
gap(_Argument, Channel, Missed, Position) ->
    Gap = #{type => gap, channel => Channel, missed => missed(Missed), id => weir_pubsub_id:to_text(Position)},
    weir_http_websocket:frame({text, weir_json:compact(Gap)}).
