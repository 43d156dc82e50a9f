%% @private
%% @doc What tokens and keys have in common: names of algorithms (RFC 7518), and base64url (RFC 7515).
-module(weir_pubsub_jose).

-export([algorithm/1]).
-export([decode_base64url/1]).

-export_type([algorithm/0]).

-type algorithm() :: hs256 | rs256 | es256 | eddsa.

%% @doc Returns the algorithm of a name, or `undefined' for an unknown one.
-spec algorithm(term()) -> algorithm() | undefined.
algorithm(<<"HS256">>) -> hs256;
algorithm(<<"RS256">>) -> rs256;
algorithm(<<"ES256">>) -> es256;
algorithm(<<"EdDSA">>) -> eddsa;
algorithm(_Other) -> undefined.

%% @doc Decodes base64url without padding. A text that is not the canonical encoding of its bytes is an error.
-spec decode_base64url(binary()) -> {ok, binary()} | error.
decode_base64url(Text) ->
    Padded = <<<<(standard(Character))>> || <<Character>> <= Text>>,
    Padding = case byte_size(Text) rem 4 of 2 -> <<"==">>; 3 -> <<"=">>; _ -> <<>> end,
    try base64:decode(<<Padded/binary, Padding/binary>>) of
        Bytes ->
            case encode_base64url(Bytes) of
                Text -> {ok, Bytes};
                _ -> error
            end
    catch
        error:_ -> error
    end.

standard($-) -> $+;
standard($_) -> $/;
standard(Character) -> Character.

encode_base64url(Bytes) ->
    <<<<(url(Character))>> || <<Character>> <= base64:encode(Bytes), Character =/= $=>>.

url($+) -> $-;
url($/) -> $_;
url(Character) -> Character.
