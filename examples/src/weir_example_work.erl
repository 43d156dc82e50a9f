%% @doc What a server does with a message besides sending it: computing that takes about so long.
-module(weir_example_work).

-export([of_options/1]).
-export([do/1]).

-export_type([work/0]).

-opaque work() :: binary().

%% MD5 takes about a microsecond for so many bytes. It counts reductions by them, as other work does.
-define(BYTES_PER_MICROSECOND, 560).

%% @doc The work of a message, of so many microseconds as the option `work' says (none).
-spec of_options(#{work => non_neg_integer(), _ => _}) -> work().
of_options(Options) ->
    binary:copy(<<0>>, ?BYTES_PER_MICROSECOND * maps:get(work, Options, 0)).

%% @doc Does it once.
-spec do(work()) -> ok.
do(<<>>) -> ok;
do(Bytes) ->
    _ = erlang:md5(Bytes),
    ok.
