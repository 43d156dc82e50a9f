%% @private
%% @doc A head that comes in pieces, one byte at a time perhaps.
-module(weir_http_head).

-export([is_worth_reading/3]).

%% @doc Whether it has to be read again from its beginning: it may be complete, or too long. So many of its bytes were looked at
%% before.
-spec is_worth_reading(Known :: non_neg_integer(), Bytes :: binary(), weir_http_nif:limits()) -> boolean().
is_worth_reading(Known, Bytes, {Line, Whole, _}) -> may_end(Known, Bytes) orelse byte_size(Bytes) > min(Line, Whole).

%% An empty line ends a head, whether it may be written so or not.
may_end(Known, Bytes) ->
    From = max(0, Known - 3),
    binary:match(Bytes, [<<"\n\r\n">>, <<"\n\n">>], [{scope, {From, byte_size(Bytes) - From}}]) =/= nomatch.
