%% @private
%% @doc The responses to a batch of requests, which are written together.
-module(weir_http_batch).

-export([new/0]).
-export([add/2]).
-export([is_full/1]).
-export([bytes/1]).
-export([result/2]).

-export_type([batch/0]).

%% Bytes of responses after which the client has to read before more of its requests are answered: small requests can
%% have large responses.
-define(FULL, 65536).

%% The responses, the last one first, and their total size in bytes.
-record(batch, {responses = [] :: [weir_http_response:output()], size = 0 :: non_neg_integer()}).

-opaque batch() :: #batch{}.

-spec new() -> batch().
new() -> #batch{}.

-spec add(weir_http_response:output(), batch()) -> batch().
add({pieces, Bytes, _} = Response, #batch{responses = Responses, size = Size}) ->
    #batch{responses = [Response | Responses], size = Size + Bytes};
add(Response, #batch{responses = Responses, size = Size}) ->
    #batch{responses = [Response | Responses], size = Size + iolist_size(Response)}.

-spec is_full(batch()) -> boolean().
is_full(#batch{size = Size}) -> Size >= ?FULL.

%% @doc Returns all responses in their order.
-spec bytes(batch()) -> weir_reactor:output().
bytes(#batch{responses = [{pieces, _, Pieces}]}) -> Pieces;
bytes(#batch{responses = [Response]}) -> Response;
bytes(#batch{responses = Responses}) -> in_order(Responses, []).

%% Parts of files must be elements of the list itself.
in_order([{pieces, _, Pieces} | Responses], Later) -> in_order(Responses, Pieces ++ Later);
in_order([Response | Responses], Later) -> in_order(Responses, [Response | Later]);
in_order([], All) -> All.

%% @doc Returns the result for the reactor's callback.
-spec result(batch(), State) -> weir_reactor:result(State).
result(#batch{responses = []}, State) -> {ok, State};
result(Batch, State) -> {send, bytes(Batch), State}.
