%% @private
%% @doc How large the heap of a reactor is. A value: its words.
%%
%% Events and states die young but for the states of now, which each collection has to look at, one by one. So the heap
%% grows with the connections, up to 8 MiB, as soon as data comes, and collections stay rare; with few connections it stays
%% in the caches, and with silent ones it is small.
-module(weir_reactor_heap).

-export([new/0]).
-export([fit/2]).
-export([shrink/0]).

-export_type([heap/0]).

-opaque heap() :: pos_integer().

-define(HEAP_WORDS, 32768).
-define(HEAP_WORDS_MAX, 1048576).
-define(HEAP_WORDS_PER_CONNECTION, 32).

%% @doc The heap of a reactor with few connections.
-spec new() -> heap().
new() -> ?HEAP_WORDS.

%% @doc Makes the heap of the calling reactor large enough for so many connections that have sent something.
-spec fit(Connections :: non_neg_integer(), heap()) -> heap().
fit(Count, Heap) when Count * ?HEAP_WORDS_PER_CONNECTION =< Heap; Heap >= ?HEAP_WORDS_MAX ->
    Heap;
fit(Count, Heap) ->
    Larger = larger(Heap * 2, Count * ?HEAP_WORDS_PER_CONNECTION),
    _ = process_flag(min_heap_size, Larger),
    %% A collection is when the heap becomes that large.
    erlang:garbage_collect(),
    Larger.

larger(Heap, Needed) when Heap < Needed, Heap < ?HEAP_WORDS_MAX -> larger(Heap * 2, Needed);
larger(Heap, _Needed) -> Heap.

%% @doc Gives back what the heap of the calling reactor has for events. It grows again when some come.
-spec shrink() -> heap().
shrink() ->
    _ = process_flag(min_heap_size, ?HEAP_WORDS),
    erlang:garbage_collect(),
    ?HEAP_WORDS.
