%% @private
%% @doc WebSockets that publish and do not subscribe. Each message is answered with a report on the channel, in the
%% order of the messages.
-module(weir_pubsub_http_publisher).
-behaviour(weir_http_websocket).

-include("weir_pubsub_http.hrl").

-export([new/3]).
-export([open/2]).
-export([message/2]).
-export([info/2]).

-record(publisher, {
    channels :: [weir_pubsub:channel()],
    http :: weir_http_request:request(),
    %% The number of the latest message that is answered with all before it, and of the latest message.
    answered = 0 :: non_neg_integer(),
    last = 0 :: non_neg_integer(),
    %% The answers so far to the messages between them.
    waiting = #{} :: #{pos_integer() => {Missing :: non_neg_integer(), [weir_pubsub_http_ask:answer()]}}
}).

%% @doc The result for the listener.
-spec new([weir_pubsub:channel()], weir_http_request:request(), weir_pubsub_http_websocket:options()) ->
    weir_http_direct:result().
new(Channels, Http, Options) ->
    State = #publisher{channels = [binary:copy(Channel) || Channel <- Channels], http = Http},
    {websocket, ?MODULE, State, weir_pubsub_http_websocket:options(Http, Options)}.

-spec open(weir_http_websocket:websocket(), #publisher{}) -> weir_http_websocket:result().
open(_Socket, State) -> {ok, State}.

-spec message(weir_http_websocket:message(), #publisher{}) -> weir_http_websocket:result().
message(_Message, #publisher{waiting = Waiting} = State) when map_size(Waiting) >= ?MOST_UNANSWERED ->
    {close, 1008, <<"too many messages wait">>, State};
message({Kind, Data}, #publisher{channels = Channels, last = Last} = State) ->
    Meta = weir_pubsub_http_websocket:meta(Kind),
    Tried = [{Channel, tried(Channel, Data, Meta, State)} || Channel <- Channels],
    Tag = {weir_reactor, weir_http_request:socket(State#publisher.http), {published, Last + 1}},
    Asked = [weir_pubsub_shards:send(Channel, {publish, Channel, Data, Meta}, Tag) || {Channel, busy} <- Tried],
    Answers = [Answer || {_, Answer} <- Tried, Answer =/= busy] ++ [Error || {error, _} = Error <- Asked],
    told(State, Last + 1, {length(Channels) - length(Answers), Answers}).

%% In the reactor, but only if no earlier message waits, so that messages keep their order.
tried(Channel, Data, Meta, #publisher{answered = Last, last = Last, http = Http}) ->
    case weir_http_request:is_tls(Http) of
        false -> weir_pubsub_publication:in_reactor(Channel, Data, Meta);
        true -> busy
    end;
tried(_Channel, _Data, _Meta, _State) ->
    busy.

-spec info(term(), #publisher{}) -> weir_http_websocket:result().
info({_, {published, Number}, _Channel, {answer, Answer}}, #publisher{waiting = Waiting} = State) ->
    #{Number := {Missing, Answers}} = Waiting,
    told(State, Number, {Missing - 1, [Answer | Answers]});
info(_Other, State) ->
    {ok, State}.

told(#publisher{waiting = Waiting, last = Last} = State, Number, Entry) ->
    answer(State#publisher{waiting = Waiting#{Number => Entry}, last = max(Last, Number)}, []).

answer(#publisher{waiting = Waiting, answered = Answered, http = Http} = State, Frames) ->
    case Waiting of
        #{(Answered + 1) := {0, Answers}} ->
            Next = State#publisher{waiting = maps:remove(Answered + 1, Waiting), answered = Answered + 1},
            case weir_pubsub_http_ask:answer(Answers, Http) of
                {reply, Status, _, Body} when Status < 300 -> answer(Next, [{text, Body} | Frames]);
                {reply, 403, _, _} -> {close, 1008, <<"403 Forbidden">>, Next};
                {reply, 413, _, _} -> {close, 1009, <<"413 Request Entity Too Large">>, Next};
                {reply, _, _, _} -> {close, 1013, <<"503 Service Unavailable">>, Next}
            end;
        #{} when Frames =:= [] ->
            {ok, State};
        #{} ->
            {send, lists:reverse(Frames), State}
    end.
