%% @private
%% @doc Requests of one client for which it is decided elsewhere whether they are allowed. A few processes wait for
%% decisions; further requests wait in line, up to a limit. Decided requests also wait here, until the client has
%% taken earlier answers.
-module(weir_pubsub_ws_verdicts).

-export([new/0]).
-export([wait/4]).
-export([said/4]).
-export([next_decided/1]).
-export([is_any_decided/1]).

-export_type([verdicts/0]).

-type request() :: {weir_pubsub_ws_frames:ref(), weir_pubsub_ws_frames:request()}.

-record(verdicts, {
    running = #{} :: #{reference() => request()},
    line = queue:new() :: queue:queue({weir_pubsub_access:verdict(), request()}),
    decided = queue:new() :: queue:queue({IsAllowed :: boolean(), request()}),
    count = 0 :: non_neg_integer(),
    bytes = 0 :: non_neg_integer()
}).

-opaque verdicts() :: #verdicts{}.

%% Processes for one client at most.
-define(AT_A_TIME, 16).

%% All requests that wait, and the bytes that they would publish, at most. A single one may have any size.
-define(MOST, 1000).
-define(MOST_BYTES, 4194304).

-spec new() -> verdicts().
new() -> #verdicts{}.

%% @doc Starts a process that waits for a verdict, or puts the request in line for one. The connection gets
%% `{{weir_reactor, Socket}, Reference, may, IsAllowed}', which is for {@link said/4}.
-spec wait(weir_pubsub_access:verdict(), request(), weir_http_websocket:websocket(), verdicts()) ->
    {ok, verdicts()} | too_many.
wait(Verdict, Request, Socket, #verdicts{line = Line, count = Count, bytes = Before} = Verdicts) ->
    case Before + bytes(Request) of
        Bytes when Count < ?MOST, Bytes =< ?MOST_BYTES orelse Before =:= 0 ->
            {ok,
                next(Socket, Verdicts#verdicts{
                    line = queue:in({Verdict, Request}, Line), count = Count + 1, bytes = Bytes
                })};
        _ ->
            too_many
    end.

%% @doc Keeps a verdict for {@link next_decided/1}, and starts a process for the next request in line.
-spec said(reference(), IsAllowed :: boolean(), weir_http_websocket:websocket(), verdicts()) -> verdicts().
said(Reference, IsAllowed, Socket, #verdicts{running = Running, decided = Decided} = Verdicts) ->
    case maps:take(Reference, Running) of
        {Request, Left} ->
            next(Socket, Verdicts#verdicts{running = Left, decided = queue:in({IsAllowed, Request}, Decided)});
        error ->
            Verdicts
    end.

%% @doc Returns the request that was decided first, and removes it.
-spec next_decided(verdicts()) -> {IsAllowed :: boolean(), request(), verdicts()} | none.
next_decided(#verdicts{decided = Decided, count = Count, bytes = Bytes} = Verdicts) ->
    case queue:out(Decided) of
        {{value, {IsAllowed, Request}}, Left} ->
            {IsAllowed, Request, Verdicts#verdicts{decided = Left, count = Count - 1, bytes = Bytes - bytes(Request)}};
        {empty, _} ->
            none
    end.

%% @doc Whether there is a request for {@link next_decided/1}.
-spec is_any_decided(verdicts()) -> boolean().
is_any_decided(#verdicts{decided = Decided}) -> not queue:is_empty(Decided).

bytes({_Ref, {publish, _Channel, Data, _Meta}}) -> byte_size(Data);
bytes(_Request) -> 0.

next(Socket, #verdicts{running = Running, line = Line} = Verdicts) when map_size(Running) < ?AT_A_TIME ->
    case queue:out(Line) of
        {{value, {Verdict, Request}}, Left} ->
            Reference = make_ref(),
            Own = self(),
            _ = spawn(fun() -> Own ! {{weir_reactor, Socket}, Reference, may, weir_pubsub_access:wait(Verdict)} end),
            Verdicts#verdicts{running = Running#{Reference => Request}, line = Left};
        {empty, _} ->
            Verdicts
    end;
next(_Socket, Verdicts) ->
    Verdicts.
