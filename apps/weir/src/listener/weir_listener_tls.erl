%% @private
%% @doc Checks whether TLS can work with a listener's options, before the first client connects.
%%
%% OTP's ssl checks the values of options when it listens, and certificates and keys at the first handshake. So this
%% calls its listen with a dummy transport ({@link listen/2}), and reads the files.
-module(weir_listener_tls).

-export([check/1]).

%% The transport of `cb_info'.
-export([listen/2]).

%% These options choose the certificate at the handshake, or work without one.
-define(CHOSEN_LATER, [sni_fun, sni_hosts, user_lookup_fun]).

-type wrong() :: {Option :: term(), Allowed :: string()}.

%% @doc Checks options of `ssl:handshake/3', and returns the first that cannot work. Reads files.
-spec check([ssl:tls_server_option()]) -> ok | {error, {not_started, ssl} | wrong()}.
check(Options) ->
    case whereis(ssl_sup) of
        undefined ->
            {error, {not_started, ssl}};
        _ ->
            %% OTP 29 also reads the files in listen, with other error terms.
            try
                ok = certificates(Options),
                ok = values(Options)
            catch
                throw:{wrong, Option, Allowed} -> {error, {Option, Allowed}}
            end
    end.

-spec wrong(term(), string()) -> no_return().
wrong(Option, Allowed) -> throw({wrong, Option, Allowed}).

%%% Values.

values(Options) ->
    try (weir_ssl:ssl()):listen(0, [{cb_info, {?MODULE, tcp, tcp_closed, tcp_error, tcp_passive}} | Options]) of
        {error, {?MODULE, OfTransport}} -> foreign(Options, OfTransport);
        {error, {options, Reason}} -> wrong(culprit(Reason, Options), "compatible options of ssl:handshake/3");
        {error, Reason} -> wrong(Reason, "options of ssl:handshake/3")
    catch
        error:_ -> wrong(Options, "a list of options of ssl:handshake/3")
    end.

%% OTP names the option in one of several forms, and some values in its internal form.
culprit({_, Option = {Name, _}}, Options) when is_atom(Name) -> given(Name, Options, Option);
culprit(Option = {Name, _}, Options) when is_atom(Name) -> given(Name, Options, Option);
culprit(Reason, _Options) -> Reason.

given(Name, Options, Otherwise) ->
    case lists:keyfind(Name, 1, [Option || Option <- Options, is_tuple(Option)]) of
        false -> Otherwise;
        Option -> Option
    end.

%% @doc The dummy transport. When ssl calls it, all options of TLS are valid; it gets the other options.
-spec listen(inet:port_number(), list()) -> {error, {?MODULE, list()}}.
listen(_Port, Options) -> {error, {?MODULE, Options}}.

%% ssl passes unknown options on to the transport.
foreign(Options, OfTransport) ->
    Given = [Option || Option <- Options, lists:member(Option, OfTransport)],
    case [Option || Option <- Given, weir_options:listen([Option]) =:= {error, badarg}] of
        [] -> ok;
        [Option | _] -> wrong(Option, "an option of ssl:handshake/3")
    end.

%%% Certificates.

certificates(Options) ->
    Pairs = [Option || Option = {_, _} <- Options],
    Sets =
        case lists:keyfind(certs_keys, 1, Pairs) of
            false -> [maps:with([cert, certfile, key, keyfile, password], maps:from_list(lists:reverse(Pairs)))];
            {certs_keys, Listed} = Option ->
                is_list_of_maps(Listed) orelse wrong(Option, "a list of maps"),
                Listed
        end,
    ChosenLater = [Option || Option = {Name, _} <- Pairs, lists:member(Name, ?CHOSEN_LATER)],
    case ChosenLater =/= [] orelse lists:any(fun has_certificate/1, Sets) of
        true -> lists:foreach(fun certificate_and_key/1, [Set || Set <- Sets, has_certificate(Set)]);
        false -> wrong(Options, "a certificate: certfile and keyfile, cert and key, certs_keys, or sni_fun")
    end.

is_list_of_maps([Set | Others]) when is_map(Set) -> is_list_of_maps(Others);
is_list_of_maps(Rest) -> Rest =:= [].

has_certificate(Set) -> is_map_key(cert, Set) orelse is_map_key(certfile, Set).

certificate_and_key(Set) ->
    Certificate = certificate(Set),
    {Option, Key} = key(Set),
    case belong_together(Certificate, Key) of
        true -> ok;
        false -> wrong(Option, "the private key of the certificate")
    end.

%% The first certificate is the server's own.
certificate(#{cert := [Certificate | _]}) ->
    Certificate;
certificate(#{cert := Certificate}) ->
    Certificate;
certificate(#{certfile := File}) ->
    case lists:keyfind('Certificate', 1, entries(certfile, File)) of
        {_, Certificate, _} -> Certificate;
        false -> wrong({certfile, File}, "a PEM file with a certificate")
    end.

%% The file of the certificate may also contain the key.
key(#{key := Key = {Type, Der}}) -> {{key, Key}, fun() -> (weir_ssl:public_key()):der_decode(Type, Der) end};
key(#{key := Key}) -> {{key, Key}, fun() -> Key end};
key(Set = #{keyfile := File}) -> key(keyfile, File, Set);
key(Set = #{certfile := File}) -> key(certfile, File, Set);
key(#{cert := Certificate}) -> wrong({cert, Certificate}, "together with key or keyfile").

key(Name, File, Set) ->
    case [Entry || Entry = {Type, _, _} <- entries(Name, File), is_key(Type)] of
        [] -> wrong({Name, File}, "a PEM file with a private key");
        [Entry | _] -> opened(Entry, Set, {Name, File})
    end.

is_key(Type) ->
    lists:member(Type, ['PrivateKeyInfo', 'RSAPrivateKey', 'ECPrivateKey', 'DSAPrivateKey', 'EncryptedPrivateKeyInfo']).

password(#{password := Password}) when is_function(Password, 0) -> Password();
password(#{password := Password}) -> Password;
password(_) -> "".

%% The password may be a fun, which may raise.
opened(Entry, Set, Option) ->
    try (weir_ssl:public_key()):pem_entry_decode(Entry, password(Set)) of
        Key -> {Option, fun() -> Key end}
    catch
        error:_ -> wrong(Option, "an intact private key that the password decrypts")
    end.

%% Signs with the key and verifies with the certificate. Keys and certificates that cannot be tested here, such as
%% keys in hardware, are left to the handshake.
belong_together(Certificate, Key) ->
    try {public(Certificate), signed(<<?MODULE_STRING>>, private(Key()))} of
        {Public, {Digest, Signature}} -> confirms(Public, <<?MODULE_STRING>>, Digest, Signature)
    catch
        error:_ -> true
    end.

%% Verifying with a key of another type may raise.
confirms(Public, Data, Digest, Signature) ->
    try
        (weir_ssl:public_key()):verify(Data, Digest, Signature, Public)
    catch
        error:_ -> false
    end.

%% RSA-PSS keys come with parameters.
private({Key, _Parameters}) -> Key;
private(Key) -> Key.

%% EdDSA takes no digest.
signed(Data, Key) ->
    PublicKey = weir_ssl:public_key(),
    try
        {sha256, PublicKey:sign(Data, sha256, Key)}
    catch
        error:_ -> {none, PublicKey:sign(Data, none, Key)}
    end.

%% Uses the records of public_key as plain tuples: the application may be missing when this is compiled.
public(Certificate) ->
    {'OTPCertificate', Signed, _, _} = (weir_ssl:public_key()):pkix_decode_cert(Certificate, otp),
    {'OTPSubjectPublicKeyInfo', {'PublicKeyAlgorithm', Algorithm, Parameters}, Key} =
        lists:keyfind('OTPSubjectPublicKeyInfo', 1, [Part || Part <- tuple_to_list(Signed), is_tuple(Part)]),
    case {Key, Parameters} of
        {{'ECPoint', _}, {namedCurve, _}} -> {Key, Parameters};
        %% EdDSA names its curve as the algorithm.
        {{'ECPoint', _}, _} -> {Key, {namedCurve, Algorithm}};
        _ -> Key
    end.

entries(Name, File) ->
    case file:read_file(File) of
        {ok, Pem} ->
            try
                (weir_ssl:public_key()):pem_decode(Pem)
            catch
                error:_ -> wrong({Name, File}, "a PEM file")
            end;
        {error, Reason} ->
            wrong({Name, File}, "a readable file (" ++ atom_to_list(Reason) ++ ")")
    end.
