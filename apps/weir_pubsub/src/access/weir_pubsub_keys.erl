%% @doc Keys that verify tokens, from files. They can be loaded again while the node runs.
%%
%% The algorithm of a key follows from the key, not from the token: a token with another algorithm does not find it.
-module(weir_pubsub_keys).

-include_lib("public_key/include/public_key.hrl").

-export([load/2]).
-export([check/1]).
-export([forget/1]).
-export([find/3]).

-export_type([name/0, source/0, reason/0]).

-type name() :: term().

-type source() :: {secret, file:filename_all()} | {public_key, file:filename_all()} | {jwks, file:filename_all()}.
%% Files. `secret': a secret for HS256 of at least 32 bytes, without the line ends after it. `public_key': public keys
%% in PEM, for RS256, ES256 or EdDSA. `jwks': a set of JSON Web Keys (RFC 7517); those with another algorithm, for
%% encryption, or not on their curve are ignored.

-type reason() :: file:posix() | badarg | terminated | system_limit | too_short | no_key | not_json.
%% `too_short': a secret of less than 32 bytes, or an RSA key of less than 2048 bits. `no_key': the file has no usable
%% key.

-define(SECRET_BYTES, 32).
-define(RSA_BITS, 2048).
-define(ED25519, {1, 3, 101, 112}).

%% @doc Loads keys under a name, and replaces those that it had. If a file is invalid, nothing changes.
-spec load(name(), [source()]) -> ok | {error, {bad_key, source(), reason()}}.
load(Name, Sources) ->
    case read_all(Sources) of
        {ok, Keys} -> persistent_term:put({?MODULE, Name}, Keys);
        {error, _} = Error -> Error
    end.

%% @doc Whether {@link load/2} would accept them now.
-spec check([source()]) -> ok | {error, {bad_key, source(), reason()}}.
check(Sources) ->
    case read_all(Sources) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

read_all(Sources) ->
    try
        {ok, lists:append([read(Source) || Source <- Sources])}
    catch
        throw:{bad_key, _, _} = Bad -> {error, Bad}
    end.

%% @doc Removes the keys of a name: no token is valid then.
-spec forget(name()) -> ok.
forget(Name) ->
    _ = persistent_term:erase({?MODULE, Name}),
    ok.

%% @private
%% @doc Returns the keys for an algorithm and the key id of a token, `any' if the token has none. A key without an id
%% matches all tokens.
-spec find(name(), weir_pubsub_jose:algorithm(), Id :: binary() | any) -> [Material :: term()].
find(Name, Algorithm, Id) ->
    [
        Material
     || {Of, KeyId, Material} <- persistent_term:get({?MODULE, Name}, []),
        Of =:= Algorithm,
        Id =:= any orelse KeyId =:= any orelse KeyId =:= Id
    ].

-spec bad(source(), reason()) -> no_return().
bad(Source, Reason) -> throw({bad_key, Source, Reason}).

read({Kind, File} = Source) ->
    case file:read_file(File) of
        {ok, Bytes} -> keys(Kind, Bytes, Source);
        {error, Reason} -> bad(Source, Reason)
    end.

keys(secret, Bytes, Source) ->
    [{hs256, any, long_enough(string:trim(Bytes, trailing, "\r\n"), Source)}];
keys(public_key, Bytes, Source) ->
    case [Key || Entry <- weir_pubsub_pem:entries(Bytes), {ok, Key} <- [of_pem(Entry, Source)]] of
        [] -> bad(Source, no_key);
        Keys -> Keys
    end;
keys(jwks, Bytes, Source) ->
    case weir_json:decode(Bytes) of
        {ok, #{<<"keys">> := Set}} when is_list(Set) ->
            case [Key || Jwk <- Set, not is_for_others(Jwk), {ok, Key} <- [of_jwk(Jwk, Source)]] of
                [] -> bad(Source, no_key);
                Keys -> Keys
            end;
        {ok, _} ->
            bad(Source, no_key);
        {error, _} ->
            bad(Source, not_json)
    end.

long_enough(Secret, _Source) when byte_size(Secret) >= ?SECRET_BYTES -> Secret;
long_enough(_Secret, Source) -> bad(Source, too_short).

of_pem({Type, _, not_encrypted} = Entry, Source) when Type =:= 'SubjectPublicKeyInfo'; Type =:= 'RSAPublicKey' ->
    try usable(public_key:pem_entry_decode(Entry)) of
        #'RSAPublicKey'{} = Key -> {ok, {rs256, any, rsa(Key, Source)}};
        {#'ECPoint'{}, {namedCurve, ?secp256r1}} = Key -> {ok, {es256, any, Key}};
        {#'ECPoint'{point = Point}, {namedCurve, ?ED25519}} -> {ok, {eddsa, any, Point}};
        _ -> none
    catch
        error:_ -> none
    end;
of_pem(_Other, _Source) ->
    none.

%% Verification with a point that is not on the curve fails: let it fail here, and not for each token.
usable({#'ECPoint'{}, {namedCurve, ?secp256r1}} = Key) ->
    _ = public_key:verify(<<>>, sha256, <<>>, Key),
    Key;
usable(Key) ->
    Key.

rsa(#'RSAPublicKey'{modulus = Modulus} = Key, Source) ->
    byte_size(binary:encode_unsigned(Modulus)) * 8 >= ?RSA_BITS orelse bad(Source, too_short),
    Key.

%% Keys for other purposes may be shorter than ours.
is_for_others(#{<<"use">> := Use}) when Use =/= <<"sig">> -> true;
is_for_others(#{<<"alg">> := Name}) -> weir_pubsub_jose:algorithm(Name) =:= undefined;
is_for_others(_Jwk) -> false.

of_jwk(#{<<"kty">> := Type} = Jwk, Source) ->
    try material(Type, Jwk, Source) of
        {Algorithm, Material} ->
            case Jwk of
                #{<<"alg">> := Name} ->
                    weir_pubsub_jose:algorithm(Name) =:= Algorithm andalso {ok, {Algorithm, id(Jwk), Material}};
                #{} ->
                    {ok, {Algorithm, id(Jwk), Material}}
            end;
        none ->
            none
    catch
        error:_ -> none
    end;
of_jwk(_Other, _Source) ->
    none.

id(#{<<"kid">> := Id}) when is_binary(Id) -> Id;
id(#{}) -> any.

material(<<"oct">>, #{<<"k">> := Secret}, Source) ->
    {hs256, long_enough(bytes(Secret), Source)};
material(<<"RSA">>, #{<<"n">> := Modulus, <<"e">> := Exponent}, Source) ->
    Key = #'RSAPublicKey'{
        modulus = binary:decode_unsigned(bytes(Modulus)), publicExponent = binary:decode_unsigned(bytes(Exponent))
    },
    {rs256, rsa(Key, Source)};
material(<<"EC">>, #{<<"crv">> := <<"P-256">>, <<"x">> := X, <<"y">> := Y}, _Source) ->
    {<<_:32/binary>> = Left, <<_:32/binary>> = Right} = {bytes(X), bytes(Y)},
    {es256, usable({#'ECPoint'{point = <<4, Left/binary, Right/binary>>}, {namedCurve, ?secp256r1}})};
material(<<"OKP">>, #{<<"crv">> := <<"Ed25519">>, <<"x">> := X}, _Source) ->
    <<_:32/binary>> = Point = bytes(X),
    {eddsa, Point};
material(_Type, _Jwk, _Source) ->
    none.

bytes(Text) ->
    {ok, Bytes} = weir_pubsub_jose:decode_base64url(Text),
    Bytes.
