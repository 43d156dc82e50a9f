%% @private
%% @doc Where a subscriber wants to begin, in the forms of Nchan: a date and a tag, a whole id as a tag, the id of the
%% last event, or an id in the query. Without one it begins with the oldest message, with `from=new' in the query with
%% the next one, with `from=N' with the latest N. A date without a tag is an error, and so is a date with the tag of
%% several channels for a single one.
-module(weir_pubsub_http_from).

-export([positions/2]).

%% @doc Returns where to begin in each of `Count' channels. `tag': the date has no tag, or that of several channels
%% for a single one. `count': the id is of another number of channels.
-spec positions(Count :: pos_integer(), weir_http_request:request()) ->
    {ok, [weir_pubsub:from()]} | {error, tag | count}.
positions(Count, Request) ->
    Tag = unquoted(weir_http_request:field(<<"if-none-match">>, Request, <<>>)),
    case date(weir_http_request:field(<<"if-modified-since">>, Request)) of
        Epoch when is_integer(Epoch), Tag =:= <<>> -> {error, tag};
        Epoch when is_integer(Epoch), Count =:= 1 ->
            case {weir_pubsub_id:from_tag(Epoch, Tag), binary:match(Tag, <<",">>)} of
                {{ok, Id}, _} -> {ok, [Id]};
                {error, nomatch} -> first([], Count, Request);
                {error, _} -> {error, tag}
            end;
        Epoch when is_integer(Epoch) -> first([Tag], Count, Request);
        undefined ->
            %% The client of Nchan sends a whole id in a field Etag when it begins a long poll with one.
            Said = [weir_http_request:field(Name, Request, <<>>) || Name <- [<<"etag">>, <<"last-event-id">>]],
            first([Tag | Said ++ [in_query(Request)]], Count, Request)
    end.

date(undefined) -> undefined;
date(Text) -> weir_http_nif:parse_date(Text).

in_query(Request) ->
    case lists:keyfind(<<"last_event_id">>, 1, weir_http_request:query_pairs(Request)) of
        {_, Id} -> Id;
        false -> <<>>
    end.

%% The first that is an id. Others are ignored, as with Nchan.
first([Text | Texts], 1, Request) ->
    case weir_pubsub_id:from_text(Text) of
        {ok, Id} -> {ok, [Id]};
        error -> first(Texts, 1, Request)
    end;
first([Text | Texts], Count, Request) ->
    case weir_pubsub_id:several_from_text(Text, Count) of
        {ok, Ids} ->
            Default = default(Request),
            {ok, [case Id of none -> Default; _ -> Id end || Id <- Ids]};
        {error, count} ->
            {error, count};
        {error, none} ->
            first(Texts, Count, Request)
    end;
first([], Count, Request) ->
    {ok, lists:duplicate(Count, default(Request))}.

default(Request) ->
    case lists:keyfind(<<"from">>, 1, weir_http_request:query_pairs(Request)) of
        {_, <<"new">>} -> new;
        {_, Digits} when byte_size(Digits) < 10 ->
            try {last, binary_to_integer(Digits)} of
                {last, Count} when Count >= 0 -> {last, Count};
                _ -> oldest
            catch
                error:badarg -> oldest
            end;
        _ -> oldest
    end.

%% A proxy may have added quotes, and a W/ in front. The tag between them may have any bytes, for which the module
%% `string' would fail.
unquoted(<<"W/", Tag/binary>>) -> unquoted(Tag);
unquoted(Tag) -> without_end(without_begin(Tag)).

without_begin(<<First, Rest/binary>>) when First =:= $"; First =:= $\s -> without_begin(Rest);
without_begin(Tag) -> Tag.

without_end(<<>>) ->
    <<>>;
without_end(Tag) ->
    case binary:last(Tag) of
        Last when Last =:= $"; Last =:= $\s -> without_end(binary:part(Tag, 0, byte_size(Tag) - 1));
        _ -> Tag
    end.
