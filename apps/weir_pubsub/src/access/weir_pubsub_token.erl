%% @doc JSON Web Tokens (RFC 7519), signed with HS256, RS256, ES256 or EdDSA (Ed25519).
%%
%% No other algorithm is accepted, nor is `none'. The key that verifies a token follows from its algorithm and the
%% `kid' in its header; a public key is never used as a secret.
-module(weir_pubsub_token).

-include_lib("public_key/include/public_key.hrl").

-export([verify/3]).

-export_type([options/0, claims/0, reason/0]).

-type claims() :: #{binary() => term()}.

-type options() :: #{
    audience => binary(), issuer => binary(), leeway => non_neg_integer(), require_exp => boolean(), now => integer()
}.
%% <dl>
%% <dt>`audience', `issuer'</dt><dd>what `aud' must contain, and `iss' must be. If no audience is set, a token with
%%   `aud' is refused</dd>
%% <dt>`leeway' (0)</dt><dd>the seconds by which clocks may differ</dd>
%% <dt>`require_exp' (`true')</dt><dd>whether a token must have `exp'</dd>
%% <dt>`now'</dt><dd>the time in seconds since 1970, by default that of the system clock</dd>
%% </dl>

-type reason() ::
    malformed | too_long | algorithm | critical | no_key | signature | expired | {claim, exp | nbf | aud | iss}.
%% `algorithm': it is not supported. `critical': the header has `crit', which is not supported. `no_key': there is
%% none for the algorithm and the `kid'. `claim': it is missing, has another type, or says that the token is not valid
%% yet, or not for us.

-define(MOST_BYTES, 8192).

%% @doc Verifies a token with keys that {@link weir_pubsub_keys:load/2} has loaded, and returns its claims.
-spec verify(binary(), weir_pubsub_keys:name(), options()) -> {ok, claims()} | {error, reason()}.
verify(Token, _Keys, _Options) when byte_size(Token) > ?MOST_BYTES ->
    {error, too_long};
verify(Token, Keys, Options) ->
    try
        {Header, Payload, Signature} = parts(Token),
        Signed = binary:part(Token, 0, byte_size(Token) - byte_size(last(Token)) - 1),
        ok = signed(Signed, Signature, object(Header), Keys),
        Claims = object(Payload),
        ok = times(Claims, Options),
        ok = audience(Claims, Options),
        ok = issuer(Claims, Options),
        {ok, Claims}
    catch
        throw:Reason -> {error, Reason}
    end.

parts(Token) ->
    case [weir_pubsub_jose:decode_base64url(Part) || Part <- binary:split(Token, <<".">>, [global])] of
        [{ok, Header}, {ok, Payload}, {ok, Signature}] -> {Header, Payload, Signature};
        _ -> throw(malformed)
    end.

last(Token) -> lists:last(binary:split(Token, <<".">>, [global])).

object(Bytes) ->
    case weir_json:decode(Bytes) of
        {ok, Object} when is_map(Object) -> Object;
        _ -> throw(malformed)
    end.

signed(_Signed, _Signature, #{<<"crit">> := _}, _Keys) ->
    throw(critical);
signed(Signed, Signature, #{<<"alg">> := Name} = Header, Keys) ->
    Algorithm = known(weir_pubsub_jose:algorithm(Name)),
    Id = case Header of #{<<"kid">> := Text} when is_binary(Text) -> Text; #{} -> any end,
    case weir_pubsub_keys:find(Keys, Algorithm, Id) of
        [] -> throw(no_key);
        Found -> lists:any(fun(Key) -> fits(Algorithm, Signed, Signature, Key) end, Found) orelse throw(signature)
    end,
    ok;
signed(_Signed, _Signature, _Header, _Keys) ->
    throw(malformed).

known(undefined) -> throw(algorithm);
known(Algorithm) -> Algorithm.

%% Compares in constant time, which does not reveal how much of a forged code is right.
fits(hs256, Signed, Signature, Secret) ->
    byte_size(Signature) =:= 32 andalso crypto:hash_equals(crypto:mac(hmac, sha256, Secret, Signed), Signature);
fits(rs256, Signed, Signature, Key) ->
    public_key:verify(Signed, sha256, Signature, Key);
fits(es256, Signed, <<R:256, S:256>>, Key) ->
    Der = public_key:der_encode('ECDSA-Sig-Value', #'ECDSA-Sig-Value'{r = R, s = S}),
    public_key:verify(Signed, sha256, Der, Key);
fits(eddsa, Signed, <<Signature:64/binary>>, Point) ->
    crypto:verify(eddsa, none, Signed, Signature, [Point, ed25519]);
fits(_Algorithm, _Signed, _Signature, _Key) ->
    false.

times(Claims, Options) ->
    Now = maps:get(now, Options, os:system_time(second)),
    Leeway = maps:get(leeway, Options, 0),
    case Claims of
        #{<<"exp">> := End} when is_number(End) -> Now < End + Leeway orelse throw(expired);
        #{<<"exp">> := _} -> throw({claim, exp});
        #{} -> maps:get(require_exp, Options, true) andalso throw({claim, exp})
    end,
    case Claims of
        #{<<"nbf">> := Begin} when is_number(Begin) -> Now + Leeway >= Begin orelse throw({claim, nbf});
        #{<<"nbf">> := _} -> throw({claim, nbf});
        #{} -> ok
    end,
    ok.

audience(#{<<"aud">> := Audience}, #{audience := Ours}) when Audience =:= Ours -> ok;
audience(#{<<"aud">> := Audience}, #{audience := Ours}) when is_list(Audience) ->
    lists:member(Ours, Audience) orelse throw({claim, aud}),
    ok;
audience(#{<<"aud">> := _}, _Options) -> throw({claim, aud});
audience(_Claims, #{audience := _}) -> throw({claim, aud});
audience(_Claims, _Options) -> ok.

issuer(#{<<"iss">> := Issuer}, #{issuer := Issuer}) -> ok;
issuer(_Claims, #{issuer := _}) -> throw({claim, iss});
issuer(_Claims, _Options) -> ok.
