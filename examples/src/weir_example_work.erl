%% @doc What a server does with a message besides sending it back: computing that takes about a given time.
-module(weir_example_work).

-export([of_options/1]).
-export([do/1]).

-export_type([work/0]).

-opaque work() :: binary().

%% MD5 counts reductions by the bytes, as other work does.
-define(SAMPLE, 100_000).

%% @doc The work of a message, as many microseconds of it as the option `work' says (none). How many bytes MD5 takes in
%% a microsecond differs by a factor of three between machines, so it is measured: the fastest of some samples, which
%% nothing else held up.
-spec of_options(#{work => non_neg_integer(), _ => _}) -> work().
of_options(#{work := Microseconds}) when Microseconds > 0 ->
    binary:copy(<<0>>, max(1, round(?SAMPLE * Microseconds / lists:min([sample() || _ <- lists:seq(1, 20)]))));
of_options(_Options) ->
    <<>>.

%% Microseconds that MD5 of `?SAMPLE' bytes takes.
sample() ->
    Bytes = binary:copy(<<0>>, ?SAMPLE),
    Started = erlang:monotonic_time(nanosecond),
    _ = erlang:md5(Bytes),
    max(1, erlang:monotonic_time(nanosecond) - Started) / 1000.

%% @doc Does it once.
-spec do(work()) -> ok.
do(<<>>) -> ok;
do(Bytes) ->
    _ = erlang:md5(Bytes),
    ok.
