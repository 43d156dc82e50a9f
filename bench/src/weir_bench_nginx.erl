%% @doc nginx as a measured server: one process without a master, with its own configuration. It serves hello world!,
%% proxies streams or, with Nchan, is a push server.
-module(weir_bench_nginx).

-export([start/3]).
-export([start_origin/2]).
-export([configuration/3]).

%% worker_connections, which sizes its tables. A proxied connection counts twice.
-define(MOST_CONNECTIONS, 20000).
%% worker_connections of a push server, which holds 20,000 clients.
-define(MOST_SUBSCRIBERS, 40000).

%% Messages that a channel keeps, as the other push servers do.
-define(KEPT, 1000).

%% @doc Starts nginx and waits until it listens; as a proxy it connects to 127.0.0.1:`Backend'. `Pin' is a prefix of
%% the command.
-spec start(weir_bench_scenario:run(), weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(#{server := Server} = Run, Pin, Backend) ->
    Serves =
        case Server of
            proxy -> {proxy, (maps:with([sni], Run))#{backend => Backend}};
            push -> {push, maps:with([several, sndbuf], Run)};
            http_file -> {file, weir_bench_tree:file_of(map_get(size, Run))};
            _ -> http
        end,
    %% The master process reloads the configuration.
    Master = case Run of #{changes := _} -> ""; #{} -> "master_process off;\n" end,
    start_with(
        fun(Port, Directory, Changes) ->
            [Master, configuration(Port, with_servers(Serves, weir_bench_proxy:servers(Changes)), Directory)]
        end,
        Pin
    ).

%% @doc Starts the origin of Pushpin: it answers each subscription, and publishes over HTTP at 127.0.0.1:`Control'.
-spec start_origin(weir_bench_machine:pin(), Control :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start_origin(Pin, Control) ->
    start_with(
        fun(Port, Directory, _Changes) ->
            ["master_process off;\n", configuration(Port, {origin, Control}, Directory)]
        end,
        Pin
    ).

start_with(Configuration, Pin) ->
    weir_bench_daemon:start(
        Configuration,
        %% -e: where errors go before the configuration is read.
        fun(File) -> [weir_bench_peers:executable(nginx), "-e", "stderr", "-p", filename:dirname(File), "-c", File] end,
        "HUP",
        Pin
    ).

with_servers({proxy, Settings}, Servers) -> {proxy, Settings#{servers => Servers}};
with_servers(Other, _Servers) -> Other.

%% @doc Returns the default configuration without logs, with limits that no run reaches. nginx writes only its pid
%% file into `Directory'.
-spec configuration(
    inet:port_number(),
    http | {push, Push} | {origin, inet:port_number()} | {file, file:filename()} | {proxy, Settings},
    file:filename()
) -> iodata() when
    Push :: #{several => boolean(), sndbuf => pos_integer()},
    Settings :: #{backend := inet:port_number(), servers := pos_integer(), sni => boolean()}.
configuration(Port, Serves, Directory) ->
    [
        case Serves of
            {proxy, _} -> load_module(weir_bench_peers:stream_module());
            {push, _} -> load_module(weir_bench_peers:nchan_module());
            _ -> ""
        end,
        "daemon off;\n"
        "worker_processes 1;\n"
        "error_log stderr crit;\n",
        io_lib:format("pid ~ts/nginx-~b.pid;\n", [Directory, Port]),
        io_lib:format("events { worker_connections ~b; }\n", [
            case Serves of
                {push, _} -> ?MOST_SUBSCRIBERS;
                _ -> ?MOST_CONNECTIONS
            end
        ]),
        serves(Serves, Port)
    ].

serves({proxy, #{backend := Backend, servers := Servers} = Settings}, Port) ->
    [
        "stream {\n"
        "    upstream main {\n",
        %% max_fails=0: a server that refused a connection is still used.
        [io_lib:format("        server 127.0.0.1:~b max_fails=0;\n", [Backend]) || _ <- lists:seq(1, Servers)],
        "    }\n",
        by_name(Settings),
        "    server {\n",
        io_lib:format("        listen 127.0.0.1:~b backlog=1024;\n", [Port]),
        "        tcp_nodelay on;\n",
        case Settings of
            #{sni := true} ->
                "        ssl_preread on;\n        preread_buffer_size 32k;\n        proxy_pass $chosen;\n";
            #{} ->
                "        proxy_pass main;\n"
        end,
        "    }\n"
        "}\n"
    ];
serves(Http, Port) ->
    io_lib:format(
        "http {\n"
        "    access_log off;\n"
        "    sendfile on;\n"
        "    keepalive_requests 1000000000;\n"
        "    client_body_temp_path temporary;\n"
        "    proxy_temp_path temporary;\n"
        "    fastcgi_temp_path temporary;\n"
        "    uwsgi_temp_path temporary;\n"
        "    scgi_temp_path temporary;\n"
        "    server {\n"
        "        listen 127.0.0.1:~b backlog=1024~ts;\n"
        "        ~ts\n"
        "    }\n"
        "}\n",
        [Port, send_buffer(Http), answers(Http)]
    ).

send_buffer({push, #{sndbuf := Bytes}}) -> " sndbuf=" ++ integer_to_list(Bytes);
send_buffer(_Serves) -> "".

answers({push, Push}) ->
    [
        "nchan_message_buffer_length ",
        integer_to_list(?KEPT),
        ";",
        case Push of
            #{several := true} -> " nchan_longpoll_multipart_response on;";
            #{} -> ""
        end,
        " location ~ /sub/(.+)$ { nchan_subscriber; nchan_channel_id $1; }",
        " location ~ /pub/(.+)$ { nchan_publisher; nchan_channel_id $1; }"
    ];
%% Subscribes to the requested channel. The WebSocket answer supports only names of six letters, because it contains
%% its own length.
answers({origin, Control}) ->
    Subscribe = "c:{\"type\":\"subscribe\",\"channel\":\"$room\"}",
    Length = integer_to_list(length(Subscribe) - length("$room") + length("room-0"), 16),
    [
        "location ~ /sub/(.+)$ {"
        " set $room $1; if ($content_type ~ websocket-events) { rewrite ^ /websocket last; }"
        " default_type text/event-stream; add_header Grip-Hold stream; add_header Grip-Channel $room; return 200; }"
        " location /websocket {"
        " default_type application/websocket-events; add_header Sec-WebSocket-Extensions 'grip; message-prefix=\"\"';"
        " return 200 'OPEN\\r\\nTEXT ",
        Length,
        "\\r\\n",
        Subscribe,
        "\\r\\n'; }"
        " location ~ /pub/(.+)$ {"
        " set $room $1; rewrite ^ /publish/ break;"
        " proxy_set_body '{\"items\":[{\"channel\":\"$room\",\"formats\":{"
        "\"http-stream\":{\"content\":\"data: $request_body\\\\n\\\\n\"},"
        "\"ws-message\":{\"content\":\"$request_body\"}}}]}';",
        io_lib:format(" proxy_pass http://127.0.0.1:~b; }", [Control])
    ];
answers(Page) ->
    ["location / { ", page(Page), " }"].

page(http) -> "return 200 \"hello world!\";";
%% Every path gets the file. `try_files' with a root would look for an index.
page({file, File}) -> ["root ", filename:dirname(File), "; rewrite ^ /", filename:basename(File), " break;"].

by_name(#{sni := true}) ->
    ["    map $ssl_preread_server_name $chosen { ", weir_bench_proxy:server_name(), " main; default 127.0.0.1:1; }\n"];
by_name(_) ->
    "".

load_module(built_in) -> "";
load_module(File) -> ["load_module ", File, ";\n"].
