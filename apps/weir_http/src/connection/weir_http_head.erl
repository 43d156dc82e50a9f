%% @private
%% @doc A head that arrives in pieces, possibly one byte at a time.
-module(weir_http_head).

-export([is_worth_reading/3]).

%% @doc Whether to parse the head again: it may be complete, or too long. Known: how many of its bytes were checked
%% before.
-spec is_worth_reading(Known :: non_neg_integer(), Bytes :: binary(), weir_http_nif:limits()) -> boolean().
is_worth_reading(Known, Bytes, {Line, Whole, _}) -> may_end(Known, Bytes) orelse byte_size(Bytes) > min(Line, Whole).

%% An empty line ends a head, also with bare LF, which the parser may refuse.
may_end(Known, Bytes) ->
    From = max(0, Known - 3),
    binary:match(Bytes, [<<"\n\r\n">>, <<"\n\n">>], [{scope, {From, byte_size(Bytes) - From}}]) =/= nomatch.
