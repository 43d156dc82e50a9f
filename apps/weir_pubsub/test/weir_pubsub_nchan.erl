%% Nchan and we ourselves, behind the same requests: a client that returns responses without ids and dates.
-module(weir_pubsub_nchan).

-export([find/0, start/0, stop/1]).
-export([init_group/2, init_case/3, end_case/1, same/3, by_configuration/3, publish/3, wait_for_subscribers/3]).
-export([websocket/3, websocket/4, handshake/5, send_frame/3, frames/2]).
-export([request/4, request/5, begin_request/4, answer/1, parsed/1, read_stream/2, normal/1, field/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("weir_testing/include/weir_test.hrl").

-define(MODULE_FILE, "/usr/lib/nginx/modules/ngx_nchan_module.so").

%% A client may have to wait long for a message; in a script about the timeout it need not.
-define(LONG, "nchan_subscriber_timeout 1h;").
-define(BRIEF, "nchan_subscriber_timeout 1s;").

find() ->
    case {os:find_executable("nginx", os:getenv("PATH") ++ ":/usr/sbin"), filelib:is_regular(?MODULE_FILE)} of
        {Nginx, true} when is_list(Nginx) -> {ok, Nginx};
        _ -> {skip, "no nginx with Nchan (scripts/setup test installs libnginx-mod-nchan)"}
    end.

start() ->
    {ok, Nginx} = find(),
    Directory = filename:join(
        "/tmp", "weir_nchan_" ++ os:getpid() ++ "_" ++ integer_to_list(erlang:unique_integer([positive]))
    ),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    %% The caller holds the port until it ends.
    Port = weir_test_port:claim(),
    File = filename:join(Directory, "nginx.conf"),
    ok = file:write_file(File, configuration(Directory, Port)),
    %% It ends with this virtual machine, however that ends.
    Program = open_port({spawn_executable, os:find_executable("setpriv")}, [
        {args, ["--pdeathsig", "TERM", Nginx, "-c", File, "-p", Directory]}, exit_status, stderr_to_stdout, binary
    ]),
    {ok, Socket} = ?waitMatch({ok, _}, gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    ok = gen_tcp:close(Socket),
    {os_pid, Pid} = erlang:port_info(Program, os_pid),
    #{port => Port, program => Program, pid => Pid, directory => Directory}.

configuration(Directory, Port) ->
    [
        "load_module ",
        ?MODULE_FILE,
        ";\nworker_processes 1; daemon off; master_process off;\n",
        "pid ",
        Directory,
        "/pid; error_log ",
        Directory,
        "/error;\nevents { worker_connections 1024; }\n",
        "http { access_log off; client_body_temp_path ",
        Directory,
        "/body; proxy_temp_path ",
        Directory,
        "/proxy;\n",
        " fastcgi_temp_path ",
        Directory,
        "/fastcgi; uwsgi_temp_path ",
        Directory,
        "/uwsgi; scgi_temp_path ",
        Directory,
        "/scgi;\n",
        " server { listen 127.0.0.1:",
        integer_to_list(Port),
        ";\n",
        "  nchan_channel_id_split_delimiter \",\"; nchan_channel_timeout 1h;\n",
        limited(),
        subscribers(),
        others(),
        " } }\n"
    ].

%% Locations of channels that keep less than others, or have one subscriber at most.
limited() ->
    [
        [
            [
                "  location ~ ",
                Path,
                "/(single-.+)$ { nchan_subscriber; nchan_channel_id $1; ",
                Timeout,
                " nchan_channel_group t;",
                " nchan_max_channel_subscribers 1; }\n"
            ]
         || {Path, Timeout} <- [{"/sub", ?LONG}, {"/brief", ?BRIEF}]
        ],
        [
            [
                "  location ~ /pub/(",
                Kind,
                "-.+)$ { nchan_publisher; nchan_channel_id $1; nchan_channel_group t; ",
                Directive,
                "; }\n"
            ]
         || {Kind, Directive} <- [
                {"two", "nchan_message_buffer_length 2"},
                {"none", "nchan_store_messages off"},
                {"brief", "nchan_message_timeout 1s"}
            ]
        ]
    ].

subscribers() ->
    [
        [
            [
                "  location ~ ",
                Path,
                "/(.+)$ { nchan_subscriber; nchan_channel_id $1; ",
                Timeout,
                " nchan_channel_group t; }\n"
            ]
         || {Path, Timeout} <- [{"/sub", ?LONG}, {"/brief", ?BRIEF}]
        ],
        "  location ~ /raw/(.+)$ { nchan_subscriber http-raw-stream; nchan_channel_id $1; nchan_channel_group t; }\n",
        [
            [
                "  location ~ /",
                Path,
                "/(.+)$ { nchan_subscriber; nchan_channel_id $1; ",
                Timeout,
                " nchan_channel_group t;",
                " nchan_longpoll_multipart_response ",
                Several,
                "; }\n"
            ]
         || {Path, Timeout, Several} <- [
                {"parts", ?LONG, "on"},
                {"lines", ?LONG, "raw"},
                {"brief-parts", ?BRIEF, "on"},
                {"brief-lines", ?BRIEF, "raw"}
            ]
        ]
    ].

others() ->
    [
        "  location ~ /poll/(.+)$ { nchan_subscriber interval-poll; nchan_channel_id $1; nchan_channel_group t; }\n",
        [
            [
                "  location ~ ",
                Path,
                "/(.+)$ { ",
                Kind,
                "; nchan_channel_id $1; nchan_channel_group t; nchan_channel_events_channel_id ev;",
                " nchan_channel_event_string \"$nchan_channel_event $nchan_channel_id\"; }\n"
            ]
         || {Path, Kind} <- [{"/evpub", "nchan_publisher"}, {"/evsub", "nchan_subscriber"}]
        ],
        "  location = /events { nchan_subscriber; nchan_channel_id ev; nchan_channel_group meta; }\n",
        "  location ~ /pub/(.+)$ { nchan_publisher; nchan_channel_id $1; nchan_channel_group t; }\n",
        "  location ~ /pubsub/(.+)$ { nchan_pubsub; nchan_channel_id $1; nchan_channel_group t; }\n"
    ].

%% The caller may be another process than the one that started it, whose end has closed the port.
stop(#{program := Program, pid := Pid, directory := Directory}) ->
    Monitor = monitor(port, Program),
    _ = os:cmd("kill " ++ integer_to_list(Pid)),
    receive
        {'DOWN', Monitor, port, Program, _} -> ok
    after weir_test_wait:patience() -> error(nginx_does_not_stop)
    end,
    ok = file:del_dir_r(Directory).

%% For suites with a group of cases that run with both.
init_group(nchan, Config) ->
    case find() of
        {ok, _} -> Config;
        {skip, _} = Skip -> Skip
    end;
init_group(_Group, Config) ->
    Config.

init_case(Case, Groups, Config) ->
    case [nchan || {nchan, _, Cases} <- Groups, lists:member(Case, Cases)] of
        [nchan] -> [{nchan, start()} | Config];
        [] -> Config
    end.

end_case(Config) ->
    case proplists:get_value(nchan, Config) of
        undefined -> ok;
        Nchan -> stop(Nchan)
    end.

%% Both give the same response to a script, which gets a port.
same(Config, Port, Script) ->
    #{port := Nchan} = proplists:get_value(nchan, Config),
    Theirs = Script(Nchan),
    Ours = Script(Port),
    [
        ?assertEqual({Step, normal(Answer)}, {Step, normal(Own)})
     || {{Step, Answer}, {Step, Own}} <- lists:zip(Theirs, Ours)
    ],
    ok.

%% Nchan has another path for it, we have an option of the listener.
by_configuration(Config, Theirs, Ours) ->
    #{port := Nchan} = proplists:get_value(nchan, Config),
    fun(Port) -> case Port of Nchan -> Theirs; _ -> Ours end end.

publish(Port, Channels, Data) -> request(Port, <<"POST">>, ["/pub/", Channels], [], Data).

wait_for_subscribers(Port, Channel, Count) ->
    ?waitEqual(Count, subscribers(request(Port, <<"GET">>, ["/pub/", Channel], []))),
    ok.

%% A channel without users may be gone.
subscribers({404, _, _}) ->
    0;
%% Its shard has been killed and is not back.
subscribers({503, _, _}) ->
    unavailable;
subscribers({200, _, Body}) ->
    {match, [Count]} = re:run(Body, "active subscribers: ([0-9]+)", [{capture, all_but_first, binary}]),
    binary_to_integer(Count).

%% Sends a request, and returns the response.
request(Port, Method, Path, Fields) -> request(Port, Method, Path, Fields, <<>>).

request(Port, Method, Path, Fields, Body) -> answer(begin_request(Port, {Method, Body}, Path, Fields)).

%% Sends a request whose response comes later.
begin_request(Port, {Method, Body}, Path, Fields) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    Length = case Method of <<"GET">> -> []; _ -> ["Content-Length: ", integer_to_list(byte_size(Body)), "\r\n"] end,
    ok = gen_tcp:send(Socket, [
        Method, " ", Path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", Length,
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Fields], "\r\n", Body
    ]),
    Socket;
begin_request(Port, Method, Path, Fields) ->
    begin_request(Port, {Method, <<>>}, Path, Fields).

answer(Socket) -> parsed(read_all(Socket, [])).

parsed(Bytes) ->
    [Head, Body] = binary:split(Bytes, <<"\r\n\r\n">>),
    {Status, Fields} = head(Head),
    {Status, Fields, unchunked(Fields, Body)}.

read_all(Socket, Parts) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Part} -> read_all(Socket, [Part | Parts]);
        {error, closed} -> iolist_to_binary(lists:reverse(Parts))
    end.

head(Head) ->
    [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
    Fields = [
        {string:lowercase(Name), string:trim(Value)}
     || Line <- Lines, [Name, Value] <- [binary:split(Line, <<":">>)]
    ],
    {binary_to_integer(Status), Fields}.

unchunked(Fields, Body) ->
    case lists:keyfind(<<"transfer-encoding">>, 1, Fields) of
        {_, <<"chunked">>} -> iolist_to_binary(chunks(Body));
        false -> Body
    end.

chunks(Body) ->
    case binary:split(Body, <<"\r\n">>) of
        [Size, Rest] when Size =/= <<>> ->
            Length = binary_to_integer(Size, 16),
            case Rest of
                <<Chunk:Length/binary, "\r\n", More/binary>> when Length > 0 -> [Chunk | chunks(More)];
                _ -> []
            end;
        _ ->
            []
    end.

%% Reads a stream until it contains `Until'.
read_stream(Socket, Until) -> read_stream(Socket, Until, <<>>).

read_stream(Socket, Until, Bytes) ->
    Stream =
        case binary:split(Bytes, <<"\r\n\r\n">>) of
            [Head, Body] -> {Status, Fields} = head(Head), {Status, Fields, unchunked(Fields, Body)};
            [_] -> {0, [], <<>>}
        end,
    case binary:match(element(3, Stream), Until) of
        nomatch ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            read_stream(Socket, Until, <<Bytes/binary, More/binary>>);
        _ ->
            ok = gen_tcp:close(Socket),
            Stream
    end.

%% Without what must differ: dates, ids, and how the end of the body is found.
normal({Status, Fields, Body}) ->
    Skipped = [
        <<"date">>, <<"server">>, <<"connection">>, <<"content-length">>, <<"transfer-encoding">>, <<"cache-control">>
    ],
    Kept = lists:sort([field(Field) || {Name, _} = Field <- Fields, not lists:member(Name, Skipped)]),
    case lists:keyfind(<<"content-type">>, 1, Fields) of
        {_, <<"multipart/mixed; boundary=", Boundary/binary>>} ->
            {Status, Kept, parts(binary:replace(Body, Boundary, <<"B">>, [global]))};
        _ ->
            {Status, Kept, ids(Body)}
    end.

parts(Body) ->
    re:replace(several(Body), "Last-Modified: [^\r]+\r\nEtag: (ID)?[0-9]+\r\n", "ID\r\n", [global, {return, binary}]).

%% Our fields come after Nchan's.
field({<<"access-control-allow-headers">> = Name, Value}) ->
    {Name, re:replace(Value, ", Authorization.*$", "", [{return, binary}])};
field({<<"access-control-expose-headers">> = Name, Value}) ->
    {Name, re:replace(Value, ", Weir-Missed$", "", [{return, binary}])};
field({<<"last-modified">>, _}) ->
    {<<"last-modified">>, <<"DATE">>};
field({<<"content-type">>, <<"multipart/mixed; boundary=", _/binary>>}) ->
    {<<"content-type">>, <<"multipart/mixed">>};
field({<<"etag">>, Tag}) ->
    {<<"etag">>, re:replace(several(Tag), "^[0-9]+$", "TAG", [{return, binary}])};
field(Field) ->
    Field.

ids(Body) -> re:replace(several(Body), "[0-9]{6,}:[0-9]+", "ID", [global, {return, binary}]).

%% Of an id of several channels only the brackets are kept: they say which channel it is about.
several(Text) ->
    Place = "(?:[0-9]+\\.)?(?:[0-9]+|-)",
    case re:run(Text, ["(?:[0-9]{6,}:)?((?:", Place, ",)*)\\[(?:[0-9]+\\.)?[0-9]+\\](?:,", Place, ")*"]) of
        {match, [{Start, Length}, {_, _} = Before]} ->
            <<Front:Start/binary, _:Length/binary, Rest/binary>> = Text,
            Which = length(binary:matches(binary:part(Text, Before), <<",">>)) + 1,
            <<Front/binary, "ID", (integer_to_binary(Which))/binary, (several(Rest))/binary>>;
        nomatch ->
            Text
    end.

%% WebSockets ---------------------------------------------------------------------------

%% Returns the response to the handshake, and the socket.
websocket(Port, Path, Protocols) -> websocket(Port, Path, Protocols, none).

websocket(Port, Path, Protocols, Extensions) ->
    {{Status, Fields, <<>>}, Socket} = handshake(Port, Path, Protocols, Extensions, []),
    {{Status, proplists:get_value(<<"sec-websocket-protocol">>, Fields)}, Socket}.

%% Returns the whole response to a handshake, also a refusal.
handshake(Port, Path, Protocols, Extensions, Others) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    ok = gen_tcp:send(Socket, [
        "GET ", Path, " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        [["Sec-WebSocket-Protocol: ", Protocols, "\r\n"] || Protocols =/= none],
        [["Sec-WebSocket-Extensions: ", Extensions, "\r\n"] || Extensions =/= none],
        [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Others], "\r\n"
    ]),
    {Status, Fields} = head(read_head(Socket, <<>>)),
    Body =
        case proplists:get_value(<<"content-length">>, Fields, <<"0">>) of
            <<"0">> -> <<>>;
            Length -> {ok, Bytes} = gen_tcp:recv(Socket, binary_to_integer(Length), weir_test_wait:patience()), Bytes
        end,
    {{Status, Fields, Body}, Socket}.

read_head(Socket, Bytes) ->
    {ok, Byte} = gen_tcp:recv(Socket, 1, weir_test_wait:patience()),
    Size = byte_size(Bytes) - 3,
    case <<Bytes/binary, Byte/binary>> of
        <<Head:Size/binary, "\r\n\r\n">> -> Head;
        More -> read_head(Socket, More)
    end.

send_frame(Socket, Opcode, Data) ->
    ok = gen_tcp:send(Socket, [<<1:1, 0:3, Opcode:4, 1:1, (byte_size(Data)):7, 0:32>>, Data]).

%% Reads `Count' frames: their kinds, and their bytes without ids.
frames(Socket, Count) -> [frame(Socket) || _ <- lists:seq(1, Count)].

frame(Socket) ->
    {ok, <<1:1, 0:3, Opcode:4, 0:1, Short:7>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()),
    Length =
        case Short of
            126 -> {ok, <<Long:16>>} = gen_tcp:recv(Socket, 2, weir_test_wait:patience()), Long;
            _ -> Short
        end,
    {ok, Data} = case Length of 0 -> {ok, <<>>}; _ -> gen_tcp:recv(Socket, Length, weir_test_wait:patience()) end,
    {Opcode, ids(Data)}.
