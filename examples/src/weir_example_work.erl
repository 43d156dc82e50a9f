%% @doc Simulates the computation of a server for each message.
-module(weir_example_work).

-export([of_options/1]).
-export([do/1]).

-export_type([work/0]).

-opaque work() :: binary().

%% Bytes that MD5 hashes in about a microsecond. It counts reductions for them, as other work does.
-define(BYTES_PER_MICROSECOND, 560).

%% @doc Returns the work of a message, of as many microseconds as the option `work' says (default: none).
-spec of_options(#{work => non_neg_integer(), _ => _}) -> work().
of_options(Options) ->
    binary:copy(<<0>>, ?BYTES_PER_MICROSECOND * maps:get(work, Options, 0)).

%% @doc Does the work once.
-spec do(work()) -> ok.
do(<<>>) -> ok;
do(Bytes) ->
    _ = erlang:md5(Bytes),
    ok.
