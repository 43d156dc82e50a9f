%% @private
%% @doc A ring for consistent hashing. Pure functions. The name of a server determines its points on the ring, its
%% weight their number. A key belongs to the first point at or after its hash. When a server is added or removed, only
%% the keys of its points move.
-module(weir_proxy_ring).

-export([new/1]).
-export([from/2]).
-export([next/2]).

-export_type([ring/0, place/0]).

-type ring() :: {Hashes :: tuple(), Servers :: tuple()}.
-type place() :: pos_integer().

%% Points for each unit of weight. With 128, the shares of equal servers differ by about a tenth.
-define(POINTS, 128).
%% Most points of a ring; each server has at least one. Building a ring, after each change of a server, takes about 2
%% us per point.
-define(MOST, 16#8000).
-define(RANGE, 16#100000000).

%% @doc Returns the ring of these servers. Weights are above 0 and may be fractions. Servers are numbered from 1 in
%% this order.
-spec new([{Name :: binary(), Weight :: number()}, ...]) -> ring().
new(Servers) ->
    Sum = lists:sum([Weight || {_, Weight} <- Servers]),
    Points = min(?POINTS, ?MOST / Sum),
    Numbered = lists:zip(lists:seq(1, length(Servers)), Servers),
    %% Equal hashes are ordered by name, because numbers change when a server is removed.
    All = [
        {hash({Name, Point}), Name, Number}
     || {Number, {Name, Weight}} <- Numbered, Point <- lists:seq(1, max(1, trunc(Weight * Points)))
    ],
    {Hashes, _Names, Numbers} = lists:unzip3(lists:sort(All)),
    {list_to_tuple(Hashes), list_to_tuple(Numbers)}.

%% Not erlang:phash2/1, whose values for similar terms are close together.
hash(Term) -> binary:decode_unsigned(binary:part(erlang:md5(term_to_binary(Term)), 0, 4)).

%% @doc Returns the place of a key on the ring.
-spec from(term(), ring()) -> place().
from(Key, {Hashes, _}) ->
    Place = search(hash(Key) rem ?RANGE, Hashes, 1, tuple_size(Hashes) + 1),
    case Place > tuple_size(Hashes) of
        true -> 1;
        false -> Place
    end.

%% Binary search for the first place whose hash is not less.
search(_Hash, _Hashes, Low, Low) -> Low;
search(Hash, Hashes, Low, High) ->
    Middle = (Low + High) div 2,
    case element(Middle, Hashes) < Hash of
        true -> search(Hash, Hashes, Middle + 1, High);
        false -> search(Hash, Hashes, Low, Middle)
    end.

%% @doc Returns the server at a place, and the next place.
-spec next(place(), ring()) -> {Server :: pos_integer(), place()}.
next(Place, {_, Servers}) -> {element(Place, Servers), Place rem tuple_size(Servers) + 1}.
