%% @private
%% @doc The messages in the response to a long poll. As with Nchan (`nchan_longpoll_multipart_response'), the position
%% of several messages is that of the last, parts have no fields but their type, and a single message is sent as it
%% is. Unlike Nchan, a single message whose own type is `multipart/mixed' is sent as a part, so that a publisher
%% cannot fake several messages of others.
-module(weir_pubsub_http_messages).

-export([form/2]).
-export([most/1]).
-export([reply/4]).

-export_type([form/0]).

-type form() :: one | multipart | raw.

%% Messages and bytes of a response at most. Clients that are further behind ask again.
-define(MOST, {256, 65536}).

%% @doc Returns the form that a request asks for in its query, or the default of the route.
-spec form(weir_http_request:request(), form()) -> form().
form(Request, Default) ->
    case lists:keyfind(<<"poll_answer">>, 1, weir_http_request:query_pairs(Request)) of
        {_, <<"multipart">>} -> multipart;
        _ -> Default
    end.

%% @doc Returns how much a response has at most.
-spec most(form()) -> weir_pubsub_http_next:most().
most(one) -> {1, 1};
most(_) -> ?MOST.

%% @doc Returns the response. `Origin' is the result of {@link weir_pubsub_http_fields:origin/1} for the request.
-spec reply(
    form(), [weir_pubsub_framing:message(), ...], none | weir_pubsub:missed(), Origin :: weir_http_direct:fields()
) ->
    weir_http_direct:response().
reply(multipart, [{message, _, _, #{type := Type}}] = Messages, Missed, Origin) ->
    case is_of_parts(weir_http_value:lower(Type)) of
        true -> parts(Messages, Missed, Origin);
        false -> alone(Messages, Missed, Origin)
    end;
reply(_Form, [_] = Messages, Missed, Origin) ->
    alone(Messages, Missed, Origin);
reply(raw, Messages, Missed, Origin) ->
    {reply, 200, last(Messages, Missed, Origin), [[Data, $\n] || {message, _, Data, _} <- Messages]};
reply(multipart, Messages, Missed, Origin) ->
    parts(Messages, Missed, Origin).

alone([{message, _, Data, _} = Message], Missed, Origin) ->
    {reply, 200, gap(Missed, weir_pubsub_http_fields:message(Message, weir_pubsub_http_fields:poll_from(Origin))),
        Data}.

%% White space before a value is not part of it.
is_of_parts(<<Space, Type/binary>>) when Space =:= $\s; Space =:= $\t -> is_of_parts(Type);
is_of_parts(Type) -> binary:longest_common_prefix([Type, <<"multipart/mixed">>]) =:= byte_size(<<"multipart/mixed">>).

parts(Messages, Missed, Origin) ->
    %% Random for each response, so that the publisher of a message cannot know it.
    Boundary = binary:encode_hex(crypto:strong_rand_bytes(16)),
    Type = {<<"content-type">>, <<"multipart/mixed; boundary=", Boundary/binary>>},
    Begin = <<"--", Boundary/binary>>,
    Body = [
        [[Begin, type(Meta), <<"\r\n\r\n">>, Data, <<"\r\n">>] || {message, _, Data, Meta} <- Messages],
        Begin,
        <<"--\r\n">>
    ],
    {reply, 200, [Type | last(Messages, Missed, Origin)], Body}.

type(#{type := Type}) -> [<<"\r\nContent-Type: ">>, Type];
type(_Meta) -> [].

last(Messages, Missed, Origin) ->
    {message, Id, _, _} = lists:last(Messages),
    gap(Missed, weir_pubsub_http_fields:id(Id, weir_pubsub_http_fields:poll_from(Origin))).

%% Adds how many messages are missing before the first.
gap(none, Fields) -> Fields;
gap(unknown, Fields) -> [{<<"weir-missed">>, <<"unknown">>} | Fields];
gap(Missed, Fields) -> [{<<"weir-missed">>, integer_to_binary(Missed)} | Fields].
