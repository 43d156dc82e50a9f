%% @private
%% @doc Event streams: what they are framed with, and what becomes of them.
-module(weir_pubsub_http_stream).
-behaviour(weir_http_events).
-behaviour(weir_pubsub_framing).

-export([new/3]).
-export([open/2]).
-export([info/2]).
-export([closed/2]).

-export([message/3]).
-export([gap/4]).

-record(stream, {
    channel :: weir_pubsub:channel(),
    from :: weir_pubsub:from(),
    tag :: term()
}).

-spec new(weir_pubsub:channel(), weir_pubsub:from(), weir_http_request:request()) -> #stream{}.
new(Channel, From, Http) ->
    #stream{channel = Channel, from = From, tag = {weir_reactor, weir_http_request:socket(Http), make_ref()}}.

%% The head is written: what the shard writes comes behind it.
-spec open(weir_http_events:stream(), #stream{}) -> weir_http_events:result().
open(Stream, #stream{channel = Channel, from = From, tag = Tag} = State) ->
    Options = #{from => From, tag => Tag, head => weir_http_events:frame(#{comment => <<"hi">>})},
    case weir_pubsub_socket:subscribe(Channel, Stream, {?MODULE, []}, Options) of
        ok -> {ok, State#stream{from = new}};
        {error, _} -> over(<<"503 Service Unavailable">>, State)
    end.

-spec info(term(), #stream{}) -> weir_http_events:result().
info({_, _Reference, _Channel, {answer, {error, {limit, _, _, _}}}}, State) -> over(<<"403 Forbidden">>, State);
info({_, _Reference, _Channel, {answer, {error, _}}}, State) -> over(<<"503 Service Unavailable">>, State);
info({_, _Reference, _Channel, {closed, deleted}}, State) -> over(<<"410 Gone">>, State);
info({_, _Reference, _Channel, {closed, _}}, State) -> over(<<"503 Service Unavailable">>, State);
info(_Answer, State) -> {ok, State}.

%% Nchan says the status twice, in a comment.
over(<<Code:3/binary, _/binary>> = Status, State) -> {close, #{comment => [Code, ": ", Status]}, State}.

-spec closed(weir_http_events:reason(), #stream{}) -> term().
closed(Reason, #stream{channel = Channel, tag = Tag}) -> weir_pubsub_socket:ended(Reason, Channel, Tag).

%% Framing -----------------------------------------------------------------------------

%% @doc An event. An id is made of digits, and the name of an event was in a line of a request.
-spec message(term(), weir_pubsub:channel(), weir_pubsub:message()) -> binary().
message(_Argument, _Channel, {message, Id, Data, Meta}) ->
    Event = #{id => weir_pubsub_id:to_text(Id), data => Data},
    weir_http_events:frame(
        case Meta of
            #{event := Name} -> Event#{event => Name};
            #{} -> Event
        end
    ).

%% @doc An event of the name `gap', whose data is the number of messages that are missing, or `unknown'.
-spec gap(term(), weir_pubsub:channel(), weir_pubsub:missed(), weir_pubsub_id:id()) -> binary().
gap(_Argument, _Channel, Missed, Position) ->
    Count = case Missed of unknown -> <<"unknown">>; _ -> integer_to_binary(Missed) end,
    weir_http_events:frame(#{event => <<"gap">>, id => weir_pubsub_id:to_text(Position), data => Count}).
