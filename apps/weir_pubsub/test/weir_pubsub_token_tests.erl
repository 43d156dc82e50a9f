%% Tokens: which are valid, and why the others are not.
-module(weir_pubsub_token_tests).

-include_lib("eunit/include/eunit.hrl").
-include_lib("public_key/include/public_key.hrl").

-define(NOW, 1000000).
-define(SECRET, <<"a secret of thirty-two bytes or more">>).

%% Keys and tokens ------------------------------------------------------------------------

url(Bytes) -> <<<<(case C of $+ -> $-; $/ -> $_; _ -> C end)>> || <<C>> <= base64:encode(Bytes), C =/= $=>>.

json(Term) -> string:trim(iolist_to_binary(weir_json:encode(Term))).

token(Header, Claims, Sign) ->
    Signed = <<(url(json(Header)))/binary, ".", (url(json(Claims)))/binary>>,
    <<Signed/binary, ".", (url(Sign(Signed)))/binary>>.

by(hs256, Secret) ->
    fun(Signed) -> crypto:mac(hmac, sha256, Secret, Signed) end;
by(rs256, Key) ->
    fun(Signed) -> public_key:sign(Signed, sha256, Key) end;
by(es256, Key) ->
    fun(Signed) ->
        #'ECDSA-Sig-Value'{r = R, s = S} = public_key:der_decode(
            'ECDSA-Sig-Value', public_key:sign(Signed, sha256, Key)
        ),
        <<R:256, S:256>>
    end;
by(eddsa, {_, Private}) ->
    fun(Signed) -> crypto:sign(eddsa, none, Signed, [Private, ed25519]) end.

file(Bytes) ->
    Name = filename:join(
        "/tmp", "weir_key_" ++ os:getpid() ++ "_" ++ integer_to_list(erlang:unique_integer([positive]))
    ),
    ok = file:write_file(Name, Bytes),
    Name.

load(Sources) ->
    Result = weir_pubsub_keys:load(?MODULE, Sources),
    [file:delete(File) || {_, File} <- Sources],
    Result.

pem(Public) -> public_key:pem_encode([public_key:pem_entry_encode('SubjectPublicKeyInfo', Public)]).

verify(Token) -> verify(Token, #{}).

verify(Token, Options) -> weir_pubsub_token:verify(Token, ?MODULE, Options#{now => ?NOW}).

claims() -> #{exp => ?NOW + 1}.

rsa() ->
    #'RSAPrivateKey'{modulus = Modulus, publicExponent = Exponent} =
        Private = public_key:generate_key({rsa, 2048, 65537}),
    {Private, #'RSAPublicKey'{modulus = Modulus, publicExponent = Exponent}}.

ec() ->
    #'ECPrivateKey'{publicKey = Point} = Private = public_key:generate_key({namedCurve, ?secp256r1}),
    {Private, Point, {#'ECPoint'{point = Point}, {namedCurve, ?secp256r1}}}.

%% Tests ------------------------------------------------------------------------------------

every_algorithm_test() ->
    {Rsa, RsaPublic} = rsa(),
    {Ec, <<4, X:32/binary, Y:32/binary>>, EcPublic} = ec(),
    {Ed, EdPrivate} = crypto:generate_key(eddsa, ed25519),
    #'RSAPublicKey'{modulus = Modulus, publicExponent = Exponent} = RsaPublic,
    Set = json(#{
        keys => [
            #{kty => oct, kid => a, k => url(?SECRET)},
            #{
                kty => 'RSA',
                kid => b,
                n => url(binary:encode_unsigned(Modulus)),
                e => url(binary:encode_unsigned(Exponent)),
                alg => 'RS256'
            },
            #{kty => 'EC', kid => c, crv => 'P-256', x => url(X), y => url(Y), use => sig},
            #{kty => 'OKP', kid => d, crv => 'Ed25519', x => url(Ed)},
            #{kty => 'RSA', kid => e, n => <<"!">>, e => <<"AQAB">>},
            #{kty => 'EC', kid => f, crv => 'P-521', x => url(X), y => url(Y)}
        ]
    }),
    Signers = [
        {<<"HS256">>, a, by(hs256, ?SECRET)},
        {<<"RS256">>, b, by(rs256, Rsa)},
        {<<"ES256">>, c, by(es256, Ec)},
        {<<"EdDSA">>, d, by(eddsa, {Ed, EdPrivate})}
    ],
    ok = load([{jwks, file(Set)}]),
    [
        ?assertMatch({ok, #{<<"exp">> := _}}, verify(token(#{alg => Alg, kid => Id}, claims(), Sign)))
     || {Alg, Id, Sign} <- Signers
    ],
    [
        ?assertEqual({error, no_key}, verify(token(#{alg => Alg, kid => z}, claims(), Sign)))
     || {Alg, _, Sign} <- Signers
    ],
    ok = load([{secret, file([?SECRET, "\n"])}, {public_key, file(pem(RsaPublic))}, {public_key, file(pem(EcPublic))}]),
    [
        ?assertMatch({ok, _}, verify(token(#{alg => Alg}, claims(), Sign)))
     || {Alg, _, Sign} <- lists:sublist(Signers, 3)
    ],
    %% Every bit of a token counts.
    [
        begin
            Token = token(#{alg => Alg}, claims(), Sign),
            [?assertMatch({error, _}, verify(changed(Token, At))) || At <- lists:seq(0, byte_size(Token) - 1, 7)]
        end
     || {Alg, _, Sign} <- lists:sublist(Signers, 3)
    ].

changed(Token, At) ->
    <<Before:At/binary, Character, After/binary>> = Token,
    Other = case Character of $A -> $Q; _ -> $A end,
    <<Before/binary, Other, After/binary>>.

%% An issuer's set of keys has keys for other uses, too, and shorter ones.
keys_for_others_test() ->
    Short = [
        #{kty => oct, alg => 'A128KW', k => url(<<0:128>>)},
        #{kty => 'RSA', alg => 'RSA-OAEP', n => url(binary:copy(<<255>>, 128)), e => <<"AQAB">>},
        #{kty => 'RSA', use => enc, n => url(binary:copy(<<255>>, 128)), e => <<"AQAB">>}
    ],
    ok = load([{jwks, file(json(#{keys => Short ++ [#{kty => oct, k => url(?SECRET)}]}))}]),
    ?assertMatch({ok, _}, verify(token(#{alg => 'HS256'}, claims(), by(hs256, ?SECRET)))),
    ?assertMatch(
        {error, {bad_key, _, too_short}},
        load([{jwks, file(json(#{keys => [#{kty => oct, alg => 'HS256', k => url(<<0:128>>)}]}))}])
    ).

%% A token cannot be verified with a point off the curve.
no_point_test() ->
    Jwk = #{kty => 'EC', crv => 'P-256', x => url(<<1:256>>), y => url(<<2:256>>)},
    ?assertMatch({error, {bad_key, _, no_key}}, load([{jwks, file(json(#{keys => [Jwk]}))}])),
    Pem = pem({#'ECPoint'{point = <<4, 1:256, 2:256>>}, {namedCurve, ?secp256r1}}),
    ?assertMatch({error, {bad_key, _, no_key}}, load([{public_key, file(Pem)}])).

%% The file is read while it is being written.
half_a_file_test() ->
    {_, Public} = rsa(),
    Pem = pem(Public),
    Half = binary:part(Pem, 0, byte_size(Pem) div 2),
    ?assertMatch({error, {bad_key, _, no_key}}, load([{public_key, file(Half)}])),
    ?assertMatch({error, {bad_key, _, no_key}}, load([{public_key, file([Pem, Half])}])),
    Certificates = weir_pubsub_file_value:certificates_in("/"),
    ?assertMatch({error, _}, Certificates(list_to_binary(file("-----BEGIN CERTIFICATE-----\nAAAA")))).

%% A stream ends when its token expires, and not earlier.
end_of_a_stream_test() ->
    Now = os:system_time(second),
    ?assertEqual(0, weir_pubsub_mercure_access:expires_in(#{<<"exp">> => Now - 100}, #{leeway => 50})),
    Left = weir_pubsub_mercure_access:expires_in(#{<<"exp">> => Now - 100}, #{leeway => 3600}),
    ?assert(Left > 0 andalso Left =< 3500000),
    ?assertEqual(infinity, weir_pubsub_mercure_access:expires_in(#{<<"exp">> => 1.0e307}, #{})),
    ?assertEqual(infinity, weir_pubsub_mercure_access:expires_in(#{}, #{})).

%% A public key is public: used as a secret it would sign anything.
confusion_test() ->
    {_, Public} = rsa(),
    Pem = pem(Public),
    ok = load([{public_key, file(Pem)}]),
    ?assertEqual({error, no_key}, verify(token(#{alg => 'HS256'}, claims(), by(hs256, Pem)))),
    [
        ?assertEqual({error, algorithm}, verify(token(#{alg => Alg}, claims(), fun(_) -> <<>> end)))
     || Alg <- [none, 'None', 'NONE', 'HS512', <<>>, 1]
    ],
    ?assertEqual({error, malformed}, verify(token(#{typ => 'JWT'}, claims(), fun(_) -> <<>> end))).

another_key_test() ->
    ok = load([{secret, file(?SECRET)}]),
    ?assertEqual({error, signature}, verify(token(#{alg => 'HS256'}, claims(), by(hs256, <<?SECRET/binary, "x">>)))),
    %% Keys are replaced while they are in use.
    Token = token(#{alg => 'HS256'}, claims(), by(hs256, ?SECRET)),
    ?assertMatch({ok, _}, verify(Token)),
    ok = load([{secret, file(<<?SECRET/binary, "x">>)}]),
    ?assertEqual({error, signature}, verify(Token)),
    ok = weir_pubsub_keys:forget(?MODULE),
    ?assertEqual({error, no_key}, verify(Token)).

claims_test() ->
    ok = load([{secret, file(?SECRET)}]),
    Verify = fun(Claims, Options) -> verify(token(#{alg => 'HS256'}, Claims, by(hs256, ?SECRET)), Options) end,
    Right = claims(),
    [
        ?assertEqual({Claims, Options, Reason}, {Claims, Options, element(2, Verify(Claims, Options))})
     || {Claims, Options, Reason} <- [
            {#{exp => ?NOW}, #{}, expired},
            {#{exp => <<"soon">>}, #{}, {claim, exp}},
            {#{}, #{}, {claim, exp}},
            {Right#{nbf => ?NOW + 1}, #{}, {claim, nbf}},
            {Right#{nbf => null}, #{}, {claim, nbf}},
            {Right#{aud => us}, #{}, {claim, aud}},
            {Right#{aud => them}, #{audience => <<"us">>}, {claim, aud}},
            {Right#{aud => [them]}, #{audience => <<"us">>}, {claim, aud}},
            {Right, #{audience => <<"us">>}, {claim, aud}},
            {Right, #{issuer => <<"me">>}, {claim, iss}},
            {Right#{iss => you}, #{issuer => <<"me">>}, {claim, iss}}
        ]
    ],
    [
        ?assertMatch({ok, _}, Verify(Claims, Options))
     || {Claims, Options} <- [
            {Right, #{}},
            {#{}, #{require_exp => false}},
            {#{exp => ?NOW - 5}, #{leeway => 10}},
            {Right#{nbf => ?NOW + 5}, #{leeway => 10}},
            {Right#{aud => us, iss => me}, #{audience => <<"us">>, issuer => <<"me">>}},
            {Right#{aud => [them, us]}, #{audience => <<"us">>}}
        ]
    ].

malformed_test() ->
    ok = load([{secret, file(?SECRET)}]),
    Token = token(#{alg => 'HS256'}, claims(), by(hs256, ?SECRET)),
    [
        ?assertEqual({Wrong, {error, malformed}}, {Wrong, verify(Wrong)})
     || Wrong <- [
            <<>>,
            <<".">>,
            <<"..">>,
            <<"a.b">>,
            <<Token/binary, ".x">>,
            <<Token/binary, "=">>,
            <<" ", Token/binary>>,
            <<"e30=.e30.e30">>
        ]
    ],
    ?assertEqual({error, too_long}, verify(binary:copy(<<"a">>, 8193))),
    ?assertEqual({error, critical}, verify(token(#{alg => 'HS256', crit => [exp]}, claims(), by(hs256, ?SECRET)))).

files_test() ->
    Wrong = fun(Kind, Bytes) -> {error, {bad_key, {Kind, _}, Reason}} = load([{Kind, file(Bytes)}]), Reason end,
    ?assertEqual({error, {bad_key, {secret, "/none"}, enoent}}, weir_pubsub_keys:load(?MODULE, [{secret, "/none"}])),
    ?assertEqual(too_short, Wrong(secret, <<"short">>)),
    ?assertEqual(no_key, Wrong(public_key, <<"nothing">>)),
    ?assertEqual(not_json, Wrong(jwks, <<"{">>)),
    ?assertEqual(no_key, Wrong(jwks, <<"{\"keys\": [{\"kty\": \"oct\"}]}">>)),
    #'RSAPrivateKey'{modulus = Modulus, publicExponent = Exponent} = public_key:generate_key({rsa, 1024, 65537}),
    ?assertEqual(too_short, Wrong(public_key, pem(#'RSAPublicKey'{modulus = Modulus, publicExponent = Exponent}))).

rights_test() ->
    Claims = #{
        <<"weir">> => #{<<"publish">> => [<<"chat/*">>], <<"subscribe">> => [<<"*">>, 1], <<"presence">> => <<"all">>}
    },
    ?assert(weir_pubsub_access:may(publish, <<"chat/1">>, Claims)),
    ?assertNot(weir_pubsub_access:may(publish, <<"news">>, Claims)),
    ?assert(weir_pubsub_access:may(subscribe, <<"news">>, Claims)),
    ?assertNot(weir_pubsub_access:may(presence, <<"news">>, Claims)),
    ?assertNot(weir_pubsub_access:may(history, <<"news">>, Claims)),
    ?assertNot(weir_pubsub_access:may(publish, <<"news">>, #{})).

patterns_test() ->
    Fits = fun(Pattern, Name) -> weir_pubsub_pattern:fits(Name, weir_pubsub_pattern:new(Pattern)) end,
    [
        ?assert(Fits(P, N))
     || {P, N} <- [
            {<<"a">>, <<"a">>},
            {<<"*">>, <<"x">>},
            {<<"a*">>, <<"a">>},
            {<<"a*c">>, <<"abc">>},
            {<<"a*b*c">>, <<"aXbYc">>},
            {<<"*b*">>, <<"abc">>},
            {<<"a**c">>, <<"ac">>},
            {<<"*ab">>, <<"aab">>},
            {<<"a*bc*bc">>, <<"abcbc">>}
        ]
    ],
    [
        ?assertNot(Fits(P, N))
     || {P, N} <- [
            {<<"a">>, <<"ab">>},
            {<<"a*">>, <<"ba">>},
            {<<"a*c">>, <<"ab">>},
            {<<"ab*bc">>, <<"abc">>},
            {<<"a*b*b">>, <<"ab">>}
        ]
    ].
