%% @doc Conditional requests (RFC 9110, 13): whether the client's copy is current, or would overwrite a version that it
%% has not seen. Files are handled automatically; this module is for handlers of other resources.
-module(weir_http_conditions).

-export([check/3]).
-export([may_be_in_parts/3]).

-type time() :: non_neg_integer().
%% Seconds since 1970.

%% @doc Evaluates the conditions of a request for a resource with that entity tag (including its quotes: `<<"\"5\"">>')
%% and time of last change. `not_modified': answer 304; only for GET and HEAD. `failed': answer 412; also for other
%% methods whose If-None-Match contains the tag. Follows the order of RFC 9110, 13.2.2: a tag takes precedence over a
%% time. If-Modified-Since applies to GET and HEAD only.
-spec check(weir_http_request:request(), Tag :: binary(), time()) -> proceed | not_modified | failed.
check(Request, Tag, Modified) ->
    Holds =
        case field(<<"if-match">>, Request) of
            undefined -> not_after(Modified, field(<<"if-unmodified-since">>, Request), true);
            Tags -> is_among(Tag, Tags, strong)
        end,
    case Holds of
        true -> is_new(Request, Tag, Modified);
        false -> failed
    end.

is_new(Request, Tag, Modified) ->
    IsRead = lists:member(weir_http_request:method(Request), [<<"GET">>, <<"HEAD">>]),
    Has =
        case field(<<"if-none-match">>, Request) of
            undefined -> IsRead andalso not_after(Modified, field(<<"if-modified-since">>, Request), false);
            Tags -> is_among(Tag, Tags, weak)
        end,
    case Has of
        true when IsRead -> not_modified;
        true -> failed;
        false -> proceed
    end.

%% @private
%% @doc Evaluates If-Range: whether the parts that the client has belong to this file. Its date must equal that of the
%% file.
-spec may_be_in_parts(weir_http_request:request(), Tag :: binary(), time()) -> boolean().
may_be_in_parts(Request, Tag, Modified) ->
    case field(<<"if-range">>, Request) of
        undefined -> true;
        Tag -> is_same(Tag, Tag, strong);
        Date -> weir_http_nif:parse_date(Date) =:= Modified
    end.

%% A malformed date is ignored.
not_after(_Modified, undefined, Default) ->
    Default;
not_after(Modified, Date, Default) ->
    case weir_http_nif:parse_date(Date) of
        undefined -> Default;
        Time -> Modified =< Time
    end.

is_among(_Tag, <<"*">>, _Comparison) ->
    true;
is_among(Tag, Tags, Comparison) ->
    lists:any(
        fun(Text) -> is_same(Tag, weir_http_value:trim(Text), Comparison) end, binary:split(Tags, <<",">>, [global])
    ).

%% RFC 9110, 8.8.3.2. Tags that contain a comma never match.
is_same(Tag, Given, weak) -> opaque(Tag) =:= opaque(Given);
is_same(Tag, Given, strong) -> Tag =:= Given andalso opaque(Tag) =:= Tag.

opaque(<<"W/", Tag/binary>>) -> Tag;
opaque(Tag) -> Tag.

field(Name, Request) -> weir_http_request:field(Name, Request).
