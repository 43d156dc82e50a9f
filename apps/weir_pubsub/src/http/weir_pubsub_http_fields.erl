%% @private
%% @doc Header fields of responses, and the responses to errors.
-module(weir_pubsub_http_fields).

-export([options/2]).
-export([origin/1]).
-export([poll/1]).
-export([poll_from/1]).
-export([no_message/1]).
-export([no_message_from/2]).
-export([message/2]).
-export([id/2]).
-export([date_and_tag/1]).
-export([refusal/2]).
-export([refusal_from/2]).

%% Those of Nchan, and those that our clients and clients with tokens send.
-define(SUBSCRIBER,
    <<"If-None-Match, If-Modified-Since, Content-Type, Cache-Control, X-EventSource-Event, Authorization, "
        "Last-Event-ID">>
).
-define(PUBLISHER, <<"Content-Type, Authorization, X-EventSource-Event">>).

%% @doc Returns the allowed methods of a path, with the CORS fields if the request is from a page.
-spec options(weir_http_request:request(), pub | sub | pubsub) -> weir_http_direct:fields().
options(Request, Role) ->
    {Methods, Headers} =
        case Role of
            sub -> {<<"GET">>, ?SUBSCRIBER};
            pub -> {<<"GET, POST, PUT, DELETE">>, ?PUBLISHER};
            pubsub -> {<<"GET, POST, PUT, DELETE">>, ?SUBSCRIBER}
        end,
    Cors =
        case origin(Request) of
            [] ->
                [];
            Fields ->
                [{<<"access-control-allow-headers">>, Headers}, {<<"access-control-allow-methods">>, Methods} | Fields]
        end,
    [{<<"allow">>, Methods} | Cors].

%% @doc Returns the CORS fields that let pages of the request's origin read the response.
-spec origin(weir_http_request:request()) -> weir_http_direct:fields().
origin(Request) ->
    case weir_http_request:field(<<"origin">>, Request) of
        undefined ->
            [];
        Origin ->
            [
                {<<"access-control-allow-credentials">>, <<"true">>},
                {<<"access-control-allow-origin">>, binary:copy(Origin)}
            ]
    end.

%% @doc Returns the fields of every response to a long poll.
-spec poll(weir_http_request:request()) -> weir_http_direct:fields().
poll(Request) -> poll_from(origin(Request)).

%% @doc Same as {@link poll/1}, with the result of {@link origin/1} for the request.
-spec poll_from(Origin :: weir_http_direct:fields()) -> weir_http_direct:fields().
poll_from(Origin) -> [{<<"vary">>, <<"If-None-Match, If-Modified-Since">>} | Origin].

%% @doc Returns the fields of a long poll that ends without a message. They repeat the tag of the request.
-spec no_message(weir_http_request:request()) -> weir_http_direct:fields().
no_message(Request) -> no_message_from(origin(Request), Request).

%% @doc Same as {@link no_message/1}, with the result of {@link origin/1} for the request.
-spec no_message_from(Origin :: weir_http_direct:fields(), weir_http_request:request()) -> weir_http_direct:fields().
no_message_from(Origin, Request) ->
    Fields = exposed(poll_from(Origin)),
    case weir_http_request:field(<<"if-none-match">>, Request) of
        undefined -> Fields;
        Tag -> [{<<"etag">>, binary:copy(Tag)} | Fields]
    end.

%% @doc Adds the fields of a message: its type, and its id as a date and a tag, as with Nchan. See
%% {@link weir_pubsub_id}.
-spec message(weir_pubsub_framing:message(), weir_http_direct:fields()) -> weir_http_direct:fields().
message({message, Id, _Data, Meta}, Fields) ->
    WithId = id(Id, Fields),
    case Meta of
        #{type := Type} -> [{<<"content-type">>, Type} | WithId];
        #{} -> WithId
    end.

%% @doc Adds the fields of a position, if it is an id. Pages of other sites may read these fields.
-spec id(weir_pubsub:from() | weir_pubsub_id:several(), weir_http_direct:fields()) -> weir_http_direct:fields().
id(From, Fields) when From =:= new; From =:= oldest; element(1, From) =:= last ->
    exposed(Fields);
id(Id, Fields) ->
    {Date, Tag} = date_and_tag(Id),
    [{<<"last-modified">>, Date}, {<<"etag">>, Tag} | exposed(Fields)].

%% @doc Returns an id as a date and a tag. With several channels the tag is the whole id; the date is there because
%% clients send one.
-spec date_and_tag(weir_pubsub_id:id() | weir_pubsub_id:several()) -> {binary(), binary()}.
date_and_tag(Id) -> {weir_http_nif:format_date(epoch(Id)), weir_pubsub_id:to_tag(Id)}.

epoch({several, Which, Ids}) -> epoch(lists:nth(Which, Ids));
epoch({Epoch, _Number}) -> Epoch.

exposed(Fields) ->
    case lists:keymember(<<"access-control-allow-origin">>, 1, Fields) of
        true -> [{<<"access-control-expose-headers">>, <<"Last-Modified, Etag, Content-Type, Weir-Missed">>} | Fields];
        false -> Fields
    end.

%% @doc Returns the response to an error of a channel.
-spec refusal(term(), weir_http_request:request()) -> weir_http_direct:response().
refusal(Reason, Request) -> refusal_from(Reason, origin(Request)).

%% @doc Same as {@link refusal/2}, with the result of {@link origin/1} for the request.
-spec refusal_from(term(), Origin :: weir_http_direct:fields()) -> weir_http_direct:response().
refusal_from(Reason, Origin) -> {reply, status(Reason), Origin, <<>>}.

status(no_channel) -> 404;
status({too_large, _}) -> 413;
status({limit, _, _, _}) -> 403;
status(_Unavailable) -> 503.
