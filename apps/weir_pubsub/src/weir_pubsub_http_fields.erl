%% @private
%% @doc Fields of responses, and what refusals say.
-module(weir_pubsub_http_fields).

-export([options/2]).
-export([origin/1]).
-export([poll/1]).
-export([message/2]).
-export([id/2]).
-export([refusal/2]).

-define(SUBSCRIBER, <<"If-None-Match, If-Modified-Since, Content-Type, Cache-Control, X-EventSource-Event">>).

%% @doc What is allowed at a path, for everybody and for pages of other sites.
-spec options(weir_http_request:request(), pub | sub | pubsub) -> weir_http_direct:fields().
options(Request, Role) ->
    {Methods, Headers} =
        case Role of
            sub -> {<<"GET">>, ?SUBSCRIBER};
            pub -> {<<"GET, POST, PUT, DELETE">>, <<"Content-Type">>};
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

%% @doc Who may read it: a page of the site that the request names.
-spec origin(weir_http_request:request()) -> weir_http_direct:fields().
origin(Request) ->
    case weir_http_request:field(<<"origin">>, Request) of
        undefined ->
            [];
        Origin ->
            [{<<"access-control-allow-credentials">>, <<"true">>}, {<<"access-control-allow-origin">>, binary:copy(Origin)}]
    end.

%% @doc Of every answer to a long poll.
-spec poll(weir_http_request:request()) -> weir_http_direct:fields().
poll(Request) ->
    [{<<"vary">>, <<"If-None-Match, If-Modified-Since">>} | origin(Request)].

%% @doc Of a message: its id is a date and a tag, as Nchan has it. See {@link weir_pubsub_id}.
-spec message(weir_pubsub:message(), weir_http_direct:fields()) -> weir_http_direct:fields().
message({message, Id, _Data, Meta}, Fields) ->
    WithId = id(Id, exposed(Fields)),
    case Meta of
        #{type := Type} -> [{<<"content-type">>, Type} | WithId];
        #{} -> WithId
    end.

%% @doc Of a position, if it is one.
-spec id(weir_pubsub:from(), weir_http_direct:fields()) -> weir_http_direct:fields().
id({Epoch, Number}, Fields) when is_integer(Epoch) ->
    [{<<"last-modified">>, weir_http_nif:format_date(Epoch)}, {<<"etag">>, integer_to_binary(Number)} | Fields];
id(_From, Fields) ->
    Fields.

exposed(Fields) ->
    case lists:keymember(<<"access-control-allow-origin">>, 1, Fields) of
        true -> [{<<"access-control-expose-headers">>, <<"Last-Modified, Etag, Content-Type">>} | Fields];
        false -> Fields
    end.

%% @doc The response for an error of a channel.
-spec refusal(term(), weir_http_request:request()) -> weir_http_direct:response().
refusal(Reason, Request) -> {reply, status(Reason), origin(Request), <<>>}.

status(no_channel) -> 404;
status({too_large, _}) -> 413;
status({limit, _, _, _}) -> 403;
status(_Unavailable) -> 503.
