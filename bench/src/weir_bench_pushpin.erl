%% @doc Pushpin as a measured push server: four processes and their parent, in front of an nginx that answers each
%% subscription and forwards what is published. Their CPU time is added up.
-module(weir_bench_pushpin).

-export([start/1]).
-export([configuration/3]).

%% As for nginx as a push server; more than any row has.
-define(MOST_CONNECTIONS, 40000).

%% More than any row sends. By default Pushpin delivers 2,500 messages a second, and drops those beyond ten times that
%% number.
-define(MOST_MESSAGES, 10000000).

-define(READY_TIMEOUT, 30000).
-define(ANSWER_TIMEOUT, 1000).
-define(TRY_EVERY, 50).

%% @doc Starts all of them and waits until a client has subscribed. `Pin' is a prefix of the commands.
-spec start(weir_bench_machine:pin()) -> {ok, weir_bench_server:server()} | {error, weir_bench_program:failure()}.
start(Pin) ->
    Control = weir_bench_machine:free_port(),
    case weir_bench_nginx:start_origin(Pin, Control) of
        {ok, Origin} -> start(Pin, Control, Origin);
        {error, _} = Error -> Error
    end.

start(Pin, Control, #{port := OriginPort, pid := OriginPid} = Origin) ->
    Route = io_lib:format("* 127.0.0.1:~b,over_http", [OriginPort]),
    Started = weir_bench_daemon:start(
        fun(Port, Directory, _Changes) ->
            Own = directory(Directory, Port),
            ok = file:make_dir(Own),
            configuration(Port, Control, Own)
        end,
        fun(File) ->
            [weir_bench_peers:executable(pushpin), "--config", File, "--route", lists:flatten(Route), "--merge-output"]
        end,
        %% The configuration does not change.
        "CONT",
        Pin
    ),
    case Started of
        {ok, #{port := Port, pid := Pid, file := File} = Server} ->
            Whole = Server#{origin => Origin, directory => directory(filename:dirname(File), Port)},
            case subscribed(Port, erlang:monotonic_time(millisecond) + ?READY_TIMEOUT) of
                ok ->
                    {ok, Whole#{others => [OriginPid | children(Pid)]}};
                timeout ->
                    ok = weir_bench_daemon:stop(Whole),
                    {error, {timeout, [<<"no client could subscribe">>]}}
            end;
        {error, _} = Error ->
            ok = weir_bench_daemon:stop(Origin),
            Error
    end.

%% Directory of the sockets between its processes. Paths of sockets must be short.
directory(Directory, Port) -> filename:join(Directory, "pushpin-" ++ integer_to_list(Port)).

%% The processes start one by one. Until all run, a client is refused or gets no answer.
subscribed(Port, Deadline) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"GET /sub/ready HTTP/1.1\r\nHost: localhost\r\n\r\n">>),
    Answer = gen_tcp:recv(Socket, 0, ?ANSWER_TIMEOUT),
    ok = gen_tcp:close(Socket),
    case Answer of
        {ok, <<"HTTP/1.1 200 ", _/binary>>} ->
            ok;
        _ ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> timer:sleep(?TRY_EVERY), subscribed(Port, Deadline);
                false -> timeout
            end
    end.

children(Pid) -> string:lexemes(os:cmd("ps -o pid= --ppid " ++ Pid), " \n").

%% @doc Returns the default configuration, but with everything on 127.0.0.1, without logs, and with limits that no run
%% reaches. `Directory' is for this Pushpin only.
-spec configuration(inet:port_number(), Control :: inet:port_number(), file:filename()) -> iodata().
configuration(Port, Control, Directory) ->
    io_lib:format(
        "[global]\n"
        "include={libdir}/internal.conf\n"
        "rundir=~ts\n"
        "[runner]\n"
        "services=condure,zurl,pushpin-proxy,pushpin-handler\n"
        "http_port=127.0.0.1:~b\n"
        "logdir=~ts\n"
        "log_level=0\n"
        "client_maxconn=~b\n"
        "[proxy]\n"
        %% Its own zurl instead of Debian's service.
        "zurl_out_specs=ipc://{rundir}/{ipc_prefix}zurl-in\n"
        "zurl_out_stream_specs=ipc://{rundir}/{ipc_prefix}zurl-in-stream\n"
        "zurl_in_specs=ipc://{rundir}/{ipc_prefix}zurl-out\n"
        "updates_check=off\n"
        "[handler]\n"
        "push_in_http_addr=127.0.0.1\n"
        "push_in_http_port=~b\n"
        "command_spec=ipc://{rundir}/{ipc_prefix}command\n"
        "message_rate=~b\n"
        "message_hwm=~b\n",
        [Directory, Port, Directory, ?MOST_CONNECTIONS, Control, ?MOST_MESSAGES, ?MOST_MESSAGES]
    ).
