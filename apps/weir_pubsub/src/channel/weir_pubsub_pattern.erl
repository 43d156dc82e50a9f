%% @private
%% @doc Patterns of names, in which `*' stands for any number of bytes, including none.
-module(weir_pubsub_pattern).

-export([new/1]).
-export([fits/2]).

-export_type([pattern/0]).

-type pattern() :: [binary(), ...].
%% The parts between the stars.

%% @doc Parses a pattern.
-spec new(binary()) -> pattern().
new(Text) -> binary:split(Text, <<"*">>, [global]).

%% @doc Whether a name matches. The time is at worst in proportion to the product of the two lengths: each part is
%% searched once, for its first occurrence, which leaves the most for the parts after it.
-spec fits(binary(), pattern()) -> boolean().
fits(Name, [Whole]) -> Name =:= Whole;
fits(Name, [Prefix | Parts]) ->
    Size = byte_size(Prefix),
    case Name of
        <<Prefix:Size/binary, Rest/binary>> -> later(Rest, Parts);
        _ -> false
    end.

later(Rest, [Suffix]) ->
    byte_size(Rest) >= byte_size(Suffix) andalso binary:longest_common_suffix([Rest, Suffix]) =:= byte_size(Suffix);
later(Rest, [<<>> | Parts]) ->
    later(Rest, Parts);
later(Rest, [Part | Parts]) ->
    case binary:match(Rest, Part) of
        {At, Size} -> later(binary:part(Rest, At + Size, byte_size(Rest) - At - Size), Parts);
        nomatch -> false
    end.
