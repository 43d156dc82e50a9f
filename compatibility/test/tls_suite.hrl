%% Setup and cleanup of the TLS suites.

all() ->
    [{group, stock}, {group, weir}].

init_per_suite(Config) ->
    case weir_with:needs([ssl, "openssl"], Config) of
        {skip, _} = Skip ->
            Skip;
        _ ->
            {ok, _} = application:ensure_all_started(ssl),
            Certificates = weir_compatibility_certificates:make(),
            Files = weir_compatibility_certificates:write(Certificates, ?config(priv_dir, Config)),
            [{certificates, Certificates}, {files, Files} | Config]
    end.

end_per_suite(_Config) ->
    ok.

init_per_group(Backend, Config) when Backend =:= stock; Backend =:= weir ->
    weir_with:init_group(Backend, Config);
init_per_group(Version, Config) ->
    [{version, Version} | Config].

end_per_group(_Group, _Config) ->
    ok.

end_per_testcase(_Case, _Config) ->
    weir_with:nothing_left().
