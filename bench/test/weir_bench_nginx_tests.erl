-module(weir_bench_nginx_tests).

-include_lib("eunit/include/eunit.hrl").

one_process_serves_or_relays_test() ->
    Web = configuration(http),
    Parts = ["worker_processes 1;", "listen 127.0.0.1:8080", "return 200", "access_log off"],
    [?assert(has(Part, Web)) || Part <- Parts],
    case weir_bench_peers:missing([nginx, nginx_stream]) of
        [] ->
            Proxy = configuration({proxy, #{backend => 8081, servers => 2}}),
            [?assert(has(Part, Proxy)) || Part <- ["server 127.0.0.1:8081 max_fails=0;", "proxy_pass main;"]],
            ByName = configuration({proxy, #{backend => 8081, servers => 1, sni => true}}),
            [?assert(has(Part, ByName)) || Part <- ["bench.example main;", "ssl_preread on;", "proxy_pass $chosen;"]];
        _ ->
            ok
    end.

a_push_server_is_nchan_test() ->
    case weir_bench_peers:missing([nchan]) of
        [] ->
            Push = configuration({push, #{}}),
            [
                ?assert(has(Part, Push))
             || Part <- ["load_module", "nchan_subscriber;", "nchan_publisher;", "nchan_message_buffer_length 1000;"]
            ];
        _ ->
            ok
    end.

what_pushpin_asks_test() ->
    Origin = configuration({origin, 8082}),
    Parts = [
        "Grip-Hold stream",
        "TEXT 29\\r\\nc:{\"type\":",
        "\"data: $request_body\\\\n\\\\n\"",
        "proxy_pass http://127.0.0.1:8082;"
    ],
    [?assert(has(Part, Origin)) || Part <- Parts].

a_file_is_sent_by_sendfile_test() ->
    File = configuration({file, "/tmp/bench/bytes-65536"}),
    [
        ?assertNotEqual(nomatch, binary:match(File, Part))
     || Part <- [<<"sendfile on;">>, <<"root /tmp/bench;">>, <<"rewrite ^ /bytes-65536 break;">>]
    ].

configuration(Serves) ->
    iolist_to_binary(weir_bench_nginx:configuration(8080, Serves, "/tmp")).

has(Part, Text) -> binary:match(Text, list_to_binary(Part)) =/= nomatch.
