%% @private
%% @doc A minimal ClientHello for checks. A TLS server answers it with its own hello or an alert.
-module(weir_proxy_hello).

-export([build/1]).

%% @doc Returns the TLS record with a ClientHello for a server of that name.
-spec build(Host :: binary()) -> binary().
build(Host) ->
    Extensions = iolist_to_binary([
        extension(0, sized(16, [0, sized(16, Host)])),
        %% x25519, secp256r1
        extension(10, sized(16, <<16#1d:16, 16#17:16>>)),
        %% Uncompressed points.
        extension(11, sized(8, <<0>>)),
        %% ecdsa_secp256r1_sha256, rsa_pss_rsae_sha256, rsa_pkcs1_sha256
        extension(13, sized(16, <<16#0403:16, 16#0804:16, 16#0401:16>>))
    ]),
    %% TLS 1.2, with cipher suites that most servers have.
    Ciphers = <<16#c02f:16, 16#c02b:16, 16#c030:16, 16#c02c:16, 16#cca8:16, 16#cca9:16, 16#009c:16>>,
    Body = [
        <<3, 3>>,
        crypto:strong_rand_bytes(32),
        sized(8, <<>>),
        sized(16, Ciphers),
        sized(8, <<0>>),
        sized(16, Extensions)
    ],
    iolist_to_binary([<<22, 3, 1>>, sized(16, [1, sized(24, Body)])]).

extension(Type, Data) -> [<<Type:16>>, sized(16, Data)].

sized(Bits, Data) -> [<<(iolist_size(Data)):Bits>>, Data].
