%% @doc nginx as a server that is measured: one process without a master, on a configuration of its own; a web server
%% that says hello world!, a proxy of streams, or, with Nchan, a push server.
-module(weir_bench_nginx).

-export([start/3]).
-export([configuration/3]).
-export([stream_module/0]).
-export([nchan_module/0]).

%% It sizes its tables by it. A connection through a proxy is two.
-define(MOST_CONNECTIONS, 20000).
%% Of a push server, which holds 20,000 clients.
-define(MOST_SUBSCRIBERS, 40000).

%% Messages that a channel keeps, as the others do.
-define(KEPT, 1000).

%% @doc Starts it and waits until it listens; as a proxy in front of 127.0.0.1:`Backend'. `Pin' is what goes before the
%% command.
-spec start(weir_bench_scenario:run(), weir_bench_machine:pin(), Backend :: inet:port_number()) ->
    {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(#{server := Server} = Run, Pin, Backend) ->
    Serves =
        case Server of
            proxy -> {proxy, Backend};
            push -> push;
            http_file -> {file, weir_bench_tree:file_of(map_get(size, Run))};
            _ -> http
        end,
    weir_bench_daemon:start(
        fun(Port, Directory) -> configuration(Port, Serves, Directory) end,
        %% What it says before it has read its configuration.
        fun(File) -> [weir_bench_peers:executable(nginx), "-e", "stderr", "-p", filename:dirname(File), "-c", File] end,
        Pin
    ).

%% @doc The configuration: what it comes with, but no log and no limit that a run meets. `Directory' is where it keeps
%% what it writes, which is nothing but the file with its pid.
-spec configuration(inet:port_number(), http | push | {file, file:filename()} | {proxy, Backend :: inet:port_number()}, file:filename()) ->
    iodata().
configuration(Port, Serves, Directory) ->
    [
        case Serves of {proxy, _} -> load_module(stream_module()); push -> load_module(nchan_module()); _ -> "" end,
        "daemon off;\n"
        "master_process off;\n"
        "worker_processes 1;\n"
        "error_log stderr crit;\n",
        io_lib:format("pid ~ts/nginx-~b.pid;\n", [Directory, Port]),
        io_lib:format("events { worker_connections ~b; }\n", [case Serves of push -> ?MOST_SUBSCRIBERS; _ -> ?MOST_CONNECTIONS end]),
        serves(Serves, Port)
    ].

serves({proxy, Backend}, Port) ->
    io_lib:format(
        "stream {\n"
        "    server {\n"
        "        listen 127.0.0.1:~b backlog=1024;\n"
        "        proxy_pass 127.0.0.1:~b;\n"
        "        tcp_nodelay on;\n"
        "    }\n"
        "}\n",
        [Port, Backend]
    );
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
        "        listen 127.0.0.1:~b backlog=1024;\n"
        "        ~ts\n"
        "    }\n"
        "}\n",
        [Port, answers(Http)]
    ).

answers(push) ->
    [
        "nchan_message_buffer_length ", integer_to_list(?KEPT), ";",
        " location ~ /sub/(.+)$ { nchan_subscriber; nchan_channel_id $1; }",
        " location ~ /pub/(.+)$ { nchan_publisher; nchan_channel_id $1; }"
    ];
answers(Page) -> ["location / { ", page(Page), " }"].

page(http) -> "return 200 \"hello world!\";";
%% For whatever is asked for: a root with a file that is tried first would ask for an index.
page({file, File}) -> ["root ", filename:dirname(File), "; rewrite ^ /", filename:basename(File), " break;"].

load_module(built_in) -> "";
load_module(File) -> ["load_module ", File, ";\n"].

%% @doc Where its module for push is, or `false'.
-spec nchan_module() -> file:filename() | false.
nchan_module() ->
    File = "/usr/lib/nginx/modules/ngx_nchan_module.so",
    case filelib:is_regular(File) of
        true -> File;
        false -> false
    end.

%% @doc Where its module for streams is: a file, or in the program itself, or `false'.
-spec stream_module() -> file:filename() | built_in | false.
stream_module() ->
    File = "/usr/lib/nginx/modules/ngx_stream_module.so",
    case filelib:is_regular(File) of
        true -> File;
        false ->
            Program = weir_bench_program:start([weir_bench_peers:executable(nginx), "-V"], []),
            case weir_bench_program:await_exit(Program, 5000) of
                {ok, Told} ->
                    case re:run(Told, "--with-stream( |$)", [{capture, none}]) of
                        match -> built_in;
                        nomatch -> false
                    end;
                {error, _} ->
                    ok = weir_bench_program:stop(Program),
                    false
            end
    end.
