%% @private
%% @doc Where a subscriber wants to begin, as Nchan lets it be said: a date and a tag, a whole id as a tag, the id of the last event, or one
%% in the query. Who says nothing begins with the oldest message, unless the query has `from=new', or `from=N' for the latest N. A date without a tag is an error.
-module(weir_pubsub_http_from).

-export([position/1]).

-spec position(weir_http_request:request()) -> {ok, weir_pubsub:from()} | error.
position(Request) ->
    Tag = unquoted(weir_http_request:field(<<"if-none-match">>, Request, <<>>)),
    case date(weir_http_request:field(<<"if-modified-since">>, Request)) of
        Epoch when is_integer(Epoch), Tag =:= <<>> -> error;
        Epoch when is_integer(Epoch) -> {ok, first([<<(integer_to_binary(Epoch))/binary, $:, Tag/binary>>], Request)};
        undefined -> {ok, first([Tag, weir_http_request:field(<<"last-event-id">>, Request, <<>>), in_query(Request)], Request)}
    end.

date(undefined) -> undefined;
date(Text) -> weir_http_nif:parse_date(Text).

in_query(Request) ->
    case lists:keyfind(<<"last_event_id">>, 1, weir_http_request:query_pairs(Request)) of
        {_, Id} -> Id;
        false -> <<>>
    end.

%% The first that is an id. What is none is as if it were not there, as with Nchan.
first([Text | Texts], Request) ->
    case weir_pubsub_id:from_text(Text) of
        {ok, Id} -> Id;
        error -> first(Texts, Request)
    end;
first([], Request) ->
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

%% A proxy may have added quotes, and a W/ in front.
unquoted(<<"W/", Tag/binary>>) -> unquoted(Tag);
unquoted(Tag) -> string:trim(Tag, both, "\" ").
