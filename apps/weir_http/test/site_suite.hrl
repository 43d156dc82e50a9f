%% Common code of the file suites: each case has a directory `www', whose files are served.

-define(LISTENER, ?MODULE).

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(weir_http),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) -> weir_http_site:directory(Case, Config).

end_per_testcase(_Case, _Config) ->
    _ = weir_http:stop_listener(?LISTENER),
    ok.

serve(Config) -> serve(Config, #{}).

serve(Config, Options) ->
    weir_http_site:start(?LISTENER, [weir_http_directory:route("/", ?config(www, Config), Options)]).
