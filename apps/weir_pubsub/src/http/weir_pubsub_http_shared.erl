%% @private
%% @doc A response with several messages that is kept for polls from the same position which follow soon: on a busy
%% channel, most of them. The reactor that made it keeps it, one for each hash of a channel's name, and finds it
%% without the claim on the shard. Only for reactors.
-module(weir_pubsub_http_shared).

-export([find/1]).
-export([share/3]).

-export_type([key/0]).

-type key() :: {
    weir_pubsub_http_messages:form(), weir_pubsub:channel(), weir_pubsub:from(), Origin :: weir_http_direct:fields()
}.

-record(shared, {
    key :: key(),
    last :: weir_pubsub_id:id(),
    count :: pos_integer(),
    until :: integer(),
    reply :: weir_http_direct:response()
}).

%% Slots of a reactor, and the maximum size of a response in bytes.
-define(SLOTS, 256).
-define(MOST_BYTES, 16384).

%% Milliseconds. For that long, messages that become too old and limits that are reached are not noticed.
-define(KEPT, 50).

%% @doc Returns the response that is kept, if no message has come since.
-spec find(key()) -> {ok, weir_http_direct:response()} | none.
find({_, Channel, _, _} = Key) ->
    case get(slot(Channel)) of
        #shared{key = Key, last = Last, count = Count, until = Until, reply = Reply} ->
            case weir_pubsub_socket:is_latest(Channel, Last) andalso erlang:monotonic_time(millisecond) < Until of
                true ->
                    ok = weir_pubsub_counters:add(delivered, Count),
                    {ok, Reply};
                false ->
                    none
            end;
        _ ->
            none
    end.

%% @doc Keeps an answer, unless it is too large. Returns it.
-spec share(key(), [weir_pubsub:message(), ...], weir_http_direct:response()) -> weir_http_direct:response().
share({Form, Channel, From, Origin}, Messages, {reply, 200, Fields, Body} = Reply) ->
    case iolist_size(Body) of
        Size when Size =< ?MOST_BYTES ->
            {message, Last, _, _} = lists:last(Messages),
            Whole = {reply, 200, Fields, iolist_to_binary(Body)},
            _ = put(slot(Channel), #shared{
                %% Copied, because it is part of the request.
                key = {Form, binary:copy(Channel), From, Origin},
                last = Last,
                count = length(Messages),
                until = erlang:monotonic_time(millisecond) + ?KEPT,
                reply = Whole
            }),
            Whole;
        _ ->
            Reply
    end.

slot(Channel) -> {?MODULE, erlang:phash2(Channel, ?SLOTS)}.
