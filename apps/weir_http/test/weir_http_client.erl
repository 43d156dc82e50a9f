%% The HTTP client of the tests, on stock gen_tcp. It sends bytes as given and does not correct responses. In a
%% process that has called with_tls/0 it uses TLS, to a listener that was started with options/1.
-module(weir_http_client).

-export([with_tls/0, options/1]).
-export([connect/1, connect/2, send/2, recv/2, take_more/1, close/1]).
-export([response/1, response/2, request/2, request/3, responses/2]).
-export([head/1, chunk/1, rest/1]).
-export([is_closed/1, is_closed/2, recv_all/1]).
-export([get/1, get/2, observe/3, statuses/1]).

-compile({no_auto_import, [get/1]}).

-include_lib("stdlib/include/assert.hrl").

connect(Port) -> connect(Port, []).

connect(Port, Options) ->
    All = [binary, {active, false}, {nodelay, true} | Options],
    {ok, Socket} =
        case erlang:get(?MODULE) of
            tls -> ssl:connect({127, 0, 0, 1}, Port, [{verify, verify_none} | All], weir_test_wait:patience());
            undefined -> gen_tcp:connect({127, 0, 0, 1}, Port, All, weir_test_wait:patience())
        end,
    put({rest, Socket}, <<>>),
    Socket.

send(Socket, Data) -> (transport(Socket)):send(Socket, Data).

recv(Socket, Time) -> (transport(Socket)):recv(Socket, 0, Time).

%% Makes a slow client fast from now on.
take_more(Socket) ->
    Options = [{recbuf, 1 bsl 20}, {buffer, 1 bsl 20}],
    case transport(Socket) of
        ssl -> ssl:setopts(Socket, Options);
        gen_tcp -> inet:setopts(Socket, Options)
    end.

close(Socket) -> (transport(Socket)):close(Socket).

transport(Socket) when element(1, Socket) =:= sslsocket -> ssl;
transport(_Socket) -> gen_tcp.

with_tls() ->
    {ok, _} = application:ensure_all_started(ssl),
    _ = put(?MODULE, tls),
    ok.

%% Returns the options of a listener.
options(Options) ->
    case erlang:get(?MODULE) of
        tls -> Options#{tls => certificate()};
        undefined -> Options
    end.

certificate() ->
    case persistent_term:get(?MODULE, none) of
        none ->
            Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
            Chain = #{root => Key, intermediates => [], peer => Key},
            #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
            Certificate = [Option || Option = {Name, _} <- Server, Name =:= cert orelse Name =:= key],
            ok = persistent_term:put(?MODULE, Certificate),
            Certificate;
        Certificate ->
            Certificate
    end.

get(Path) -> get(Path, "").

get(Path, Fields) -> ["GET ", Path, " HTTP/1.1\r\nHost: localhost\r\n", Fields, "\r\n"].

%% Sends one request on its own connection.
request(Port, Request) -> request(Port, Request, #{}).

request(Port, Request, Options) ->
    Socket = connect(Port),
    ok = send(Socket, Request),
    Response = response(Socket, Options),
    ok = close(Socket),
    Response.

responses(Socket, N) -> [response(Socket) || _ <- lists:seq(1, N)].

%% Returns the next response: {Status, Fields, Body}. Fields are a map by lower-case names.
response(Socket) -> response(Socket, #{}).

response(Socket, Options) ->
    {Status, Fields} = head(Socket),
    Length =
        case {Options, Fields} of
            {#{is_head := true}, _} -> 0;
            _ when Status < 200; Status =:= 204; Status =:= 304 -> 0;
            {_, #{<<"content-length">> := N}} -> binary_to_integer(N)
        end,
    {Body, After} = take(Socket, Length, erlang:get({rest, Socket})),
    put({rest, Socket}, After),
    {Status, Fields, Body}.

%% Returns the head of the next response. Its body stays unread.
head(Socket) ->
    {Head, Rest} = head(Socket, erlang:get({rest, Socket})),
    put({rest, Socket}, Rest),
    [<<"HTTP/1.1 ", Status:3/binary, " ", _Reason/binary>> | Lines] = binary:split(Head, <<"\r\n">>, [global]),
    Fields = maps:from_list([field(Line) || Line <- Lines]),
    ?assertEqual(length(Lines), map_size(Fields)),
    {binary_to_integer(Status), Fields}.

field(Line) ->
    [Name, Value] = binary:split(Line, <<": ">>),
    ?assertEqual(nomatch, binary:match(Value, [<<"\r">>, <<"\n">>])),
    {string:lowercase(Name), Value}.

head(Socket, Bytes) ->
    case binary:split(Bytes, <<"\r\n\r\n">>) of
        [Head, Rest] -> {Head, Rest};
        [_] -> head(Socket, <<Bytes/binary, (recv(Socket))/binary>>)
    end.

take(_Socket, Length, Bytes) when byte_size(Bytes) >= Length ->
    <<Body:Length/binary, Rest/binary>> = Bytes,
    {Body, Rest};
take(Socket, Length, Bytes) ->
    take(Socket, Length, <<Bytes/binary, (recv(Socket))/binary>>).

recv(Socket) ->
    case recv(Socket, weir_test_wait:patience()) of
        {ok, Bytes} -> Bytes;
        {error, Reason} -> error({no_response, Reason})
    end.

%% Returns the next chunk of a body in chunks; `done' after the last.
chunk(Socket) ->
    Bytes = erlang:get({rest, Socket}),
    case binary:split(Bytes, <<"\r\n">>) of
        [Size, Rest] -> chunk(Socket, binary_to_integer(Size, 16), Rest);
        [_] -> chunk_of_more(Socket)
    end.

chunk(Socket, Length, Rest) ->
    case Rest of
        <<Chunk:Length/binary, "\r\n", After/binary>> ->
            put({rest, Socket}, After),
            case Chunk of
                <<>> -> done;
                _ -> Chunk
            end;
        _ ->
            chunk_of_more(Socket)
    end.

chunk_of_more(Socket) ->
    put({rest, Socket}, <<(erlang:get({rest, Socket}))/binary, (recv(Socket))/binary>>),
    chunk(Socket).

%% Whether the connection ends without further bytes.
is_closed(Socket) -> is_closed(Socket, weir_test_wait:patience()).

is_closed(Socket, Time) ->
    case erlang:get({rest, Socket}) of
        <<>> ->
            case recv(Socket, Time) of
                {error, closed} -> true;
                {error, econnreset} -> true;
                {error, timeout} -> false;
                {ok, Bytes} -> error({not_expected, Bytes})
            end;
        Bytes ->
            error({not_expected, Bytes})
    end.

%% Returns all bytes until the connection ends.
recv_all(Socket) ->
    case recv(Socket, weir_test_wait:patience()) of
        {ok, Bytes} -> <<Bytes/binary, (recv_all(Socket))/binary>>;
        {error, closed} -> <<>>
    end.

%% Like recv_all/1, including the bytes already received.
rest(Socket) -> <<(erlang:get({rest, Socket}))/binary, (recv_all(Socket))/binary>>.

%% Sends bytes to a listener. Returns the statuses of its responses, and whether the connection is open after it has
%% read all bytes.
observe(Listener, Port, Bytes) ->
    Socket = connect(Port),
    {ok, Name} = inet:sockname(Socket),
    _ = send(Socket, Bytes),
    {End, Text} = until_read(Socket, {Listener, Name, iolist_size(Bytes)}, <<>>),
    ok = close(Socket),
    #{statuses => statuses(Text), text => Text, connection => End}.

until_read(Socket, Sent, Text) ->
    %% Checked before recv/2: if the server had read everything by then, its answer arrives without a wait.
    IsRead = is_read(Sent),
    case recv(Socket, 40) of
        {ok, Bytes} -> until_read(Socket, Sent, <<Text/binary, Bytes/binary>>);
        {error, timeout} when IsRead -> {open, Text};
        {error, timeout} -> until_read(Socket, Sent, Text);
        {error, _} -> {closed, Text}
    end.

%% Whether the server has read all bytes of this client and acted on them.
is_read({Listener, Name, Size}) ->
    case
        [
            {Connection, Reactor}
         || {Connection, Reactor} <- weir:connections(Listener), inet:peername(Connection) =:= {ok, Name}
        ]
    of
        [{Connection, Reactor}] ->
            inet:getstat(Connection, [recv_oct]) =:= {ok, [{recv_oct, Size}]} andalso has_gone_on(Reactor);
        [] ->
            false
    end.

%% Waits until a reactor has written its output for earlier input: it writes with the next poll, and then polls again.
has_gone_on(Reactor) ->
    case polls(Reactor) of
        gone ->
            false;
        Before ->
            ok =:=
                weir_test_wait:wait_until(fun() ->
                    Now = polls(Reactor),
                    Now >= Before + 2 orelse {polls, Before, Now}
                end)
    end.

polls(Reactor) ->
    case weir_reactor:info(Reactor) of
        {ok, #{polls := Polls}} -> Polls;
        {error, noproc} -> gone;
        {error, timeout} -> polls(Reactor)
    end.

%% Returns the statuses in a text.
statuses(Text) ->
    case re:run(Text, "HTTP/1\\.1 (\\d\\d\\d) ", [global, {capture, all_but_first, binary}]) of
        {match, All} -> [binary_to_integer(Status) || [Status] <- All];
        nomatch -> []
    end.
