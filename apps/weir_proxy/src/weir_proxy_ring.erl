%% @private
%% @doc A ring for consistent hashing as a value. Every server has points on it by its name and its weight; a key belongs to the
%% first point after its own. When a server comes or goes, only the keys of its own points move.
-module(weir_proxy_ring).

-export([new/1]).
-export([from/2]).
-export([next/2]).

-export_type([ring/0, place/0]).

-type ring() :: {Hashes :: tuple(), Servers :: tuple()}.
-type place() :: pos_integer().

%% Points for each unit of weight: the shares of equal servers differ by about a tenth.
-define(POINTS, 128).
%% Points in all, at most, but for one of each server: a ring is made anew whenever a server changes, in about 2 microseconds a point.
-define(MOST, 16#8000).
-define(RANGE, 16#100000000).

%% @doc The ring of servers with weights above 0, which may be fractions. They are numbered from 1 on.
-spec new([{Name :: binary(), Weight :: number()}, ...]) -> ring().
new(Servers) ->
    Sum = lists:sum([Weight || {_, Weight} <- Servers]),
    Points = min(?POINTS, ?MOST / Sum),
    Numbered = lists:zip(lists:seq(1, length(Servers)), Servers),
    %% Equal hashes are ordered by name and not by number, which changes when a server goes.
    All = [
        {hash({Name, Point}), Name, Number}
     || {Number, {Name, Weight}} <- Numbered, Point <- lists:seq(1, max(1, trunc(Weight * Points)))
    ],
    {Hashes, _Names, Numbers} = lists:unzip3(lists:sort(All)),
    {list_to_tuple(Hashes), list_to_tuple(Numbers)}.

%% Another mixing than phash2 alone, whose values of similar terms are near to each other.
hash(Term) -> binary:decode_unsigned(binary:part(erlang:md5(term_to_binary(Term)), 0, 4)).

%% @doc The place of a key.
-spec from(term(), ring()) -> place().
from(Key, {Hashes, _}) ->
    Place = search(hash(Key) rem ?RANGE, Hashes, 1, tuple_size(Hashes) + 1),
    case Place > tuple_size(Hashes) of
        true -> 1;
        false -> Place
    end.

%% The first place whose hash is not less.
search(_Hash, _Hashes, Low, Low) -> Low;
search(Hash, Hashes, Low, High) ->
    Middle = (Low + High) div 2,
    case element(Middle, Hashes) < Hash of
        true -> search(Hash, Hashes, Middle + 1, High);
        false -> search(Hash, Hashes, Low, Middle)
    end.

%% @doc The server at a place, and the place after it.
-spec next(place(), ring()) -> {Server :: pos_integer(), place()}.
next(Place, {_, Servers}) -> {element(Place, Servers), Place rem tuple_size(Servers) + 1}.
