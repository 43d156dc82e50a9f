%% @private
%% @doc Messages one after the other in the body of one response: as chunks, as parts of `multipart/mixed', or raw,
%% each followed by a line feed.
-module(weir_pubsub_http_bytes).
-behaviour(weir_http_events).
-behaviour(weir_pubsub_framing).

-include("weir_pubsub_http.hrl").

-export([new/5]).
-export([open/2]).
-export([info/2]).
-export([written/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-type form() :: chunked | multipart | raw.

-record(bytes, {
    subscription :: weir_pubsub_http_subscription:subscription(),
    %% The second element: whether the body is sent in chunks. For clients of HTTP/1.0 it is not.
    framing :: {form(), chunked | whole}
}).

%% @doc The result for the listener.
-spec new(form(), [weir_pubsub:channel()], [weir_pubsub:from()], timeout(), weir_http_request:request()) ->
    weir_http_direct:result().
new(Form, Channels, Froms, Timeout, Http) ->
    State = #bytes{
        subscription = weir_pubsub_http_subscription:new(Channels, Froms, Timeout, Http),
        framing = {Form, case weir_http_request:version(Http) of {1, 1} -> chunked; _ -> whole end}
    },
    {Type, Last} =
        case Form of
            multipart -> {[{<<"content-type">>, <<"multipart/mixed; boundary=", (boundary())/binary>>}], <<"--\r\n">>};
            _ -> {[], <<>>}
        end,
    Fields = Type ++ weir_pubsub_http_fields:origin(Http),
    {events, ?MODULE, State, #{body => {bytes, Last}, max_pending => ?MOST_PENDING, fields => Fields}}.

%% The same for all responses of a virtual machine, so that a part is framed once for all.
boundary() ->
    case persistent_term:get(?MODULE, none) of
        none ->
            Boundary = binary:encode_hex(
                erlang:md5(term_to_binary({node(), os:getpid(), erlang:system_info(start_time)}))
            ),
            persistent_term:put(?MODULE, Boundary),
            Boundary;
        Boundary ->
            Boundary
    end.

-spec open(weir_http_events:stream(), #bytes{}) -> weir_http_events:result().
open(Stream, #bytes{subscription = Subscription, framing = Framing} = State) ->
    Head = case Framing of {multipart, _} -> framed(Framing, <<"--", (boundary())/binary>>); _ -> <<>> end,
    result(weir_pubsub_http_subscription:open(Stream, {?MODULE, Framing}, Head, Subscription), State).

-spec info(term(), #bytes{}) -> weir_http_events:result().
info(Message, #bytes{subscription = Subscription, framing = Framing} = State) ->
    result(weir_pubsub_http_subscription:info(Message, {?MODULE, Framing}, Subscription), State).

result({ok, Next}, State) -> {ok, State#bytes{subscription = Next}};
result({send, Bytes, Next}, State) -> {send, {framed, Bytes}, State#bytes{subscription = Next}};
result({over, _Reason}, State) -> {close, State}.

-spec written(weir_http_events:stream(), #bytes{}) -> weir_http_events:result().
written(_Stream, #bytes{subscription = Subscription} = State) ->
    {ok, State#bytes{subscription = weir_pubsub_http_subscription:written(Subscription)}}.

-spec closed(weir_http_events:reason(), #bytes{}) -> term().
closed(Reason, #bytes{subscription = Subscription}) -> weir_pubsub_http_subscription:closed(Reason, Subscription).

%% Framing -----------------------------------------------------------------------------

%% @doc Returns the bytes of a message. An empty message has none, because an empty chunk ends the body.
-spec message({form(), chunked | whole}, weir_pubsub:channel(), weir_pubsub_framing:message()) -> binary().
message({chunked, _} = Framing, _Channel, {message, _Id, Data, _Meta}) ->
    framed(Framing, Data);
message({raw, _} = Framing, _Channel, {message, _Id, Data, _Meta}) ->
    framed(Framing, <<Data/binary, "\n">>);
message({multipart, _} = Framing, _Channel, {message, Id, Data, Meta}) ->
    part(Framing, Id, Meta, Data).

%% @doc Returns a part whose type is `weir/gap' and whose data is the number of messages that are missing, or
%% `unknown'. The other forms have no bytes for it, because clients could not tell it from a message.
-spec gap({form(), chunked | whole}, weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_framing:place()) ->
    binary().
gap({multipart, _} = Framing, _Channel, Missed, Position) ->
    Count = case Missed of unknown -> <<"unknown">>; _ -> integer_to_binary(Missed) end,
    part(Framing, Position, #{type => <<"weir/gap">>}, Count);
gap(_Framing, _Channel, _Missed, _Position) ->
    <<>>.

part(Framing, Id, Meta, Data) ->
    {Date, Tag} = weir_pubsub_http_fields:date_and_tag(Id),
    Type = case Meta of #{type := Of} -> ["Content-Type: ", Of, "\r\n"]; #{} -> [] end,
    framed(
        Framing,
        iolist_to_binary([
            "\r\nLast-Modified: ", Date, "\r\nEtag: ", Tag, "\r\n", Type, "\r\n", Data, "\r\n--", boundary()
        ])
    ).

framed({_Form, chunked}, Bytes) -> weir_http_events:chunk(Bytes);
framed({_Form, whole}, Bytes) -> Bytes.
