%% Short-lived certificates: a chain for a server on localhost, one for a client, and their files.
-module(weir_compatibility_certificates).

-export([make/0]).
-export([write/2]).

-export_type([certificates/0]).

-type certificates() :: #{server := [ssl:tls_server_option()], client := [ssl:tls_client_option()]}.

-spec make() -> certificates().
make() ->
    %% OpenSSL refuses the default digest of OTP 25, SHA-1.
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server, client_config := Client} =
        public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    #{server => Server, client => Client}.

%% Writes PEM files for programs that read nothing else: certificate, key and CA certificates of either side.
-spec write(certificates(), file:filename()) ->
    #{server | client := #{certfile | keyfile | cacertfile := file:filename()}}.
write(Certificates, Directory) ->
    maps:map(fun(Side, Options) -> write(Side, Options, Directory) end, Certificates).

write(Side, Options, Directory) ->
    File = fun(What, Entries) ->
        Name = filename:join(Directory, lists:concat([Side, "-", What, ".pem"])),
        ok = file:write_file(Name, public_key:pem_encode(Entries)),
        Name
    end,
    {KeyType, Key} = proplists:get_value(key, Options),
    #{
        certfile => File(certificate, [{'Certificate', proplists:get_value(cert, Options), not_encrypted}]),
        keyfile => File(key, [{KeyType, Key, not_encrypted}]),
        cacertfile => File(authorities, [
            {'Certificate', Authority, not_encrypted} || Authority <- proplists:get_value(cacerts, Options)
        ])
    }.
