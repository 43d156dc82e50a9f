%% @private
%% @doc Messages one after the other in the body of one response: in chunks of their own, in parts of `multipart/mixed', or raw with an
%% end of line each.
-module(weir_pubsub_http_bytes).
-behaviour(weir_http_events).
-behaviour(weir_pubsub_framing).

-export([new/4]).
-export([open/2]).
-export([info/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-type form() :: chunked | multipart | raw.

-record(bytes, {
    channel :: weir_pubsub:channel(),
    from :: weir_pubsub:from(),
    tag :: term(),
    %% The second element: whether the body is sent in chunks; to a client of HTTP/1.0 it is not.
    framing :: {form(), chunked | whole}
}).

%% @doc The result for the listener.
-spec new(form(), weir_pubsub:channel(), weir_pubsub:from(), weir_http_request:request()) -> weir_http_direct:result().
new(Form, Channel, From, Http) ->
    State = #bytes{
        channel = Channel,
        from = From,
        tag = {weir_reactor, weir_http_request:socket(Http), make_ref()},
        framing = {Form, case weir_http_request:version(Http) of {1, 1} -> chunked; _ -> whole end}
    },
    {Type, Last} =
        case Form of
            multipart -> {[{<<"content-type">>, <<"multipart/mixed; boundary=", (boundary())/binary>>}], <<"--\r\n">>};
            _ -> {[], <<>>}
        end,
    {events, ?MODULE, State, #{body => {bytes, Last}, fields => Type ++ weir_pubsub_http_fields:origin(Http)}}.

%% All responses of a virtual machine have the same one, so that a part is made once for all.
boundary() ->
    case persistent_term:get(?MODULE, none) of
        none ->
            Boundary = binary:encode_hex(erlang:md5(term_to_binary({node(), os:getpid(), erlang:system_info(start_time)}))),
            persistent_term:put(?MODULE, Boundary),
            Boundary;
        Boundary ->
            Boundary
    end.

-spec open(weir_http_events:stream(), #bytes{}) -> weir_http_events:result().
open(Stream, #bytes{channel = Channel, from = From, tag = Tag, framing = Framing} = State) ->
    Head = case Framing of {multipart, _} -> framed(Framing, <<"--", (boundary())/binary>>); _ -> <<>> end,
    case weir_pubsub_socket:subscribe(Channel, Stream, {?MODULE, Framing}, #{from => From, tag => Tag, head => Head}) of
        ok -> {ok, State#bytes{from = new}};
        {error, _} -> {close, State}
    end.

-spec info(term(), #bytes{}) -> weir_http_events:result().
info({_, _Reference, _Channel, {answer, {error, _}}}, State) -> {close, State};
info({_, _Reference, _Channel, {closed, _}}, State) -> {close, State};
info(_Answer, State) -> {ok, State}.

-spec closed(weir_http_events:reason(), #bytes{}) -> term().
closed(Reason, #bytes{channel = Channel, tag = Tag}) -> weir_pubsub_socket:ended(Reason, Channel, Tag).

%% Framing -----------------------------------------------------------------------------

%% @doc The bytes of a message. An empty chunk would be the end of the body: an empty message has none.
-spec message({form(), chunked | whole}, weir_pubsub:channel(), weir_pubsub:message()) -> binary().
message({chunked, _} = Framing, _Channel, {message, _Id, Data, _Meta}) ->
    framed(Framing, Data);
message({raw, _} = Framing, _Channel, {message, _Id, Data, _Meta}) ->
    framed(Framing, <<Data/binary, "\n">>);
message({multipart, _} = Framing, _Channel, {message, Id, Data, Meta}) ->
    part(Framing, Id, Meta, Data).

%% @doc A part whose type is `weir/gap' and whose data is the number of messages that are missing, or `unknown'. In the other forms nobody
%% could tell it from messages: nothing.
-spec gap({form(), chunked | whole}, weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_id:id()) -> binary().
gap({multipart, _} = Framing, _Channel, Missed, Position) ->
    Count = case Missed of unknown -> <<"unknown">>; _ -> integer_to_binary(Missed) end,
    part(Framing, Position, #{type => <<"weir/gap">>}, Count);
gap(_Framing, _Channel, _Missed, _Position) ->
    <<>>.

part(Framing, {Epoch, Number}, Meta, Data) ->
    Type = case Meta of #{type := Of} -> ["Content-Type: ", Of, "\r\n"]; #{} -> [] end,
    framed(
        Framing,
        iolist_to_binary([
            "\r\nLast-Modified: ", weir_http_nif:format_date(Epoch), "\r\nEtag: ", integer_to_binary(Number), "\r\n", Type, "\r\n",
            Data, "\r\n--", boundary()
        ])
    ).

framed({_Form, chunked}, Bytes) -> weir_http_events:chunk(Bytes);
framed({_Form, whole}, Bytes) -> Bytes.
