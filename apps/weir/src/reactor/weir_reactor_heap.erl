%% @private
%% @doc The heap size of a reactor, in words.
%%
%% Most data of a reactor dies young. Only the current states survive, and each collection scans them all. So the heap
%% grows with the number of connections, up to 8 MiB, as soon as data comes, which keeps collections rare. With few
%% connections it stays within the CPU caches, and with silent ones it is small.
-module(weir_reactor_heap).

-export([new/0]).
-export([fit/2]).
-export([shrink/0]).

-export_type([heap/0]).

-opaque heap() :: pos_integer().

-define(HEAP_WORDS, 32768).
-define(HEAP_WORDS_MAX, 1048576).
-define(HEAP_WORDS_PER_CONNECTION, 32).

%% @doc Returns the heap size of a reactor with few connections.
-spec new() -> heap().
new() -> ?HEAP_WORDS.

%% @doc Makes the heap of the calling reactor large enough for this many active connections.
-spec fit(Connections :: non_neg_integer(), heap()) -> heap().
fit(Count, Heap) when Count * ?HEAP_WORDS_PER_CONNECTION =< Heap; Heap >= ?HEAP_WORDS_MAX ->
    Heap;
fit(Count, Heap) ->
    Larger = larger(Heap * 2, Count * ?HEAP_WORDS_PER_CONNECTION),
    _ = process_flag(min_heap_size, Larger),
    %% The heap takes the new size at a collection.
    erlang:garbage_collect(),
    Larger.

larger(Heap, Needed) when Heap < Needed, Heap < ?HEAP_WORDS_MAX -> larger(Heap * 2, Needed);
larger(Heap, _Needed) -> Heap.

%% @doc Shrinks the heap of the calling reactor to its initial size. It grows again with events.
-spec shrink() -> heap().
shrink() ->
    _ = process_flag(min_heap_size, ?HEAP_WORDS),
    erlang:garbage_collect(),
    ?HEAP_WORDS.
