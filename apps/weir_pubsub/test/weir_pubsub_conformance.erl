%% One script of requests, for Nchan and for us: what each answers, without dates, ids and boundaries.
-module(weir_pubsub_conformance).

-export([cases/0, run/2]).

-define(DATE, "Sat, 21 Nov 2026 23:13:24 GMT").
-define(STREAM, accept("text/event-stream")).

%% Opcodes of WebSocket frames.
-define(TEXT, 1).
-define(BINARY, 2).
-define(PING, 9).

%% The script -------------------------------------------------------------------------------

%% A case is a name and steps. In paths `A', `B' and `C' stand for channels that no other case has.
cases() ->
    publishing() ++ telling() ++ polls() ++ poll_answers() ++ buffers() ++ streams() ++ websockets() ++ several() ++
        refusals() ++ methods() ++ origins().

read(Path) -> read(Path, []).
read(Path, Fields) -> {request, <<"GET">>, Path, Fields, <<>>}.
post(Path, Body) -> post(Path, [], Body).
post(Path, Fields, Body) -> {request, <<"POST">>, Path, Fields, Body}.
delete(Path) -> {request, <<"DELETE">>, Path, [], <<>>}.
type(Type) -> [{"Content-Type", Type}].
accept(Type) -> [{"Accept", Type}].

publishing() ->
    [
        {"publish, nobody there", [post("/pub/A", <<"x">>)]},
        {"publish by PUT", [{request, <<"PUT">>, "/pub/A", [], <<"x">>}]},
        {"publish nothing", [post("/pub/A", <<>>)]},
        {"publish twice", [post("/pub/A", <<"x">>), post("/pub/A", <<"y">>)]},
        {"publish, somebody there", [
            {stream, s, "/sub/A", accept("text/event-stream")}, {subscribers, "A", 1}, post("/pub/A", <<"x">>)
        ]},
        {"publish with a type", [post("/pub/A", type("text/x-foo; charset=utf-8"), <<"x">>), read("/sub/A")]},
        {"publish with the name of an event", [
            post("/pub/A", [{"X-EventSource-Event", "born"}], <<"x">>),
            {stream, s, "/sub/A", accept("text/event-stream")},
            {until, s, <<"data: x\n\n">>},
            {cut, s}
        ]},
        {"publish by /pubsub", [post("/pubsub/A", <<"x">>), read("/pub/A")]},
        {"eleven messages: ten are kept", [post("/pub/A", <<N>>) || N <- lists:seq($a, $k)] ++ [read("/sub/A")]},
        {"delete", [post("/pub/A", <<"x">>), delete("/pub/A")]},
        {"delete what is not there", [delete("/pub/A")]},
        {"delete by /pubsub", [post("/pub/A", <<"x">>), delete("/pubsub/A")]}
    ].

telling() ->
    [{"tell of nothing", [read("/pub/A")]}] ++
        [
            {"tell as " ++ Type, [post("/pub/A", <<"x">>), read("/pub/A", accept(Type))]}
         || Type <- [
                "*/*",
                "text/plain",
                "text/json",
                "application/json",
                "text/xml",
                "application/xml",
                "text/yaml",
                "text/x-yaml",
                "application/yaml",
                "application/x-yaml",
                "text/html",
                "image/png"
            ]
        ] ++
        [
            {"answer to a publisher as " ++ Type, [post("/pub/A", accept(Type), <<"x">>)]}
         || Type <- ["text/json", "application/json", "text/xml", "text/yaml"]
        ].

polls() ->
    [
        {"long poll", [post("/pub/A", <<"x">>), read("/sub/A")]},
        {"long poll, and on", [
            post("/pub/A", <<"x">>), post("/pub/A", <<"y">>), read("/sub/A"), {resume, "/sub/A", []}
        ]},
        {"long poll that waits", [
            {stream, s, "/sub/A", []}, {subscribers, "A", 1}, post("/pub/A", <<"x">>), {rest, s}
        ]},
        {"long poll: timeout", [read("/brief/A")]},
        {"long poll, and on: timeout", [post("/pub/A", <<"x">>), read("/brief/A"), {resume, "/brief/A", []}]},
        {"long poll: deleted", [{stream, s, "/sub/A", []}, {subscribers, "A", 1}, delete("/pub/A"), {rest, s}]},
        {"long poll, and on: deleted", [
            post("/pub/A", <<"x">>),
            read("/sub/A"),
            {begin_resume, s, "/sub/A"},
            {subscribers, "A", 1},
            delete("/pub/A"),
            {rest, s}
        ]},
        {"long poll: a date without a tag", [read("/sub/A", [{"If-Modified-Since", ?DATE}])]},
        {"long poll: a date that is none", [
            post("/pub/A", <<"x">>), read("/sub/A", [{"If-Modified-Since", "yesterday"}])
        ]},
        {"long poll: a tag alone", [post("/pub/A", <<"x">>), read("/sub/A", [{"If-None-Match", "foo"}])]},
        {"long poll: Last-Event-ID that is none", [
            post("/pub/A", <<"x">>), read("/sub/A", [{"Last-Event-ID", "foo"}])
        ]},
        {"long poll: last_event_id that is none", [post("/pub/A", <<"x">>), read("/sub/A?last_event_id=foo")]},
        {"long poll: a tag of three channels", [
            post("/pub/A", <<"x">>), read("/sub/A", [{"If-Modified-Since", ?DATE}, {"If-None-Match", "0,99,110"}])
        ]},
        {"long poll: brackets in brackets", [
            post("/pub/A", <<"x">>),
            read("/sub/A", [{"If-Modified-Since", ?DATE}, {"If-None-Match", "[[[0,13,[9],[11]]]]"}])
        ]},
        {"long poll: a bracket too many", [
            post("/pub/A", <<"x">>), read("/sub/A", [{"If-Modified-Since", ?DATE}, {"If-None-Match", "0,13,[9]]"}])
        ]},
        {"long poll by /pubsub", [post("/pub/A", <<"x">>), read("/pubsub/A")]},
        {"interval poll: nothing", [read("/poll/A")]},
        {"interval poll, and on", [post("/pub/A", <<"x">>), read("/poll/A"), {resume, "/poll/A", []}]}
    ].

%% Several messages in the response to a long poll.
poll_answers() ->
    Several = [
        post("/pub/A", type("text/x-foo"), <<"one">>),
        post("/pub/A", <<"two\r\n--">>),
        post("/pub/A", <<>>),
        post("/pub/A", <<"four">>)
    ],
    lists:append([
        [
            {"several in " ++ How, Several ++ [read(Path ++ "A")]},
            {
                "several in " ++ How ++ ", and on",
                Several ++ [read(Path ++ "A"), post("/pub/A", <<"five">>), {resume, Path ++ "A", []}]
            },
            {"several in " ++ How ++ ", and on: timeout", Several ++ [read(Brief ++ "A"), {resume, Brief ++ "A", []}]},
            {"several in " ++ How ++ ", but one", [post("/pub/A", type("text/x-foo"), <<"x">>), read(Path ++ "A")]},
            {"several in " ++ How ++ ", but none: timeout", [read(Brief ++ "A")]},
            {"several in " ++ How ++ ", but it waits for one", [
                {stream, s, Path ++ "A", []}, {subscribers, "A", 1}, post("/pub/A", <<"x">>), {rest, s}
            ]},
            {"several in " ++ How ++ ", of several channels", Several ++ [read(Path ++ "A,B")]},
            {"several in " ++ How ++ ", of a page", Several ++ [read(Path ++ "A", [{"Origin", "http://example.org"}])]}
        ]
     || {How, Path, Brief} <- [{"parts", "/parts/", "/brief-parts/"}, {"lines", "/lines/", "/brief-lines/"}]
    ]).

%% How much is kept and for how long: the location of a publication decides with Nchan, and a policy here, for
%% channels whose names begin with `two-', `none-' and `brief-'. Channels named `single-' have one subscriber at most.
buffers() ->
    [
        {"two of three are kept",
            [post("/pub/two-A", Data) || Data <- [<<"1">>, <<"2">>, <<"3">>]] ++
                [
                    read("/pub/two-A"), {stream, s, "/sub/two-A", ?STREAM}, {until, s, <<"data: 3\n\n">>}, {cut, s}
                ]},
        {"none is kept: told", [post("/pub/none-A", <<"x">>), read("/pub/none-A")]},
        {"none is kept: long poll", [post("/pub/none-A", <<"x">>), read("/brief/none-A")]},
        {"none is kept: who waits gets it", [
            {stream, s, "/sub/none-A", []}, {subscribers, "none-A", 1}, post("/pub/none-A", <<"x">>), {rest, s}
        ]},
        {"none is kept: event stream", [
            post("/pub/none-A", <<"1">>),
            {stream, s, "/sub/none-A", ?STREAM},
            {subscribers, "none-A", 1},
            post("/pub/none-A", <<"2">>),
            post("/pub/none-A", <<"3">>),
            {until, s, <<"data: 3\n\n">>},
            {cut, s}
        ]},
        {"none is kept in one of several", [
            {stream, s, "/sub/A,none-B", ?STREAM},
            {subscribers, "A", 1},
            {subscribers, "none-B", 1},
            post("/pub/A", <<"1">>),
            post("/pub/none-B", <<"2">>),
            post("/pub/A", <<"3">>),
            {until, s, <<"data: 3\n\n">>},
            {cut, s}
        ]},
        {"too old", [post("/pub/brief-A", <<"x">>), {pause, 2500}, read("/brief/brief-A")]},
        {"too old: told", [post("/pub/brief-A", <<"x">>), {pause, 2500}, read("/pub/brief-A")]},
        {"too old in one of several", [
            post("/pub/brief-A", <<"1">>),
            post("/pub/B", <<"2">>),
            {pause, 2500},
            {stream, s, "/sub/brief-A,B", ?STREAM},
            {until, s, <<"data: 2\n\n">>},
            {cut, s}
        ]},
        {"100,000 bytes", [post("/pub/A", binary:copy(<<"x">>, 100000)), read("/sub/A")]},
        {"one subscriber at most: long poll", [
            {stream, s, "/sub/single-A", ?STREAM}, {subscribers, "single-A", 1}, read("/sub/single-A")
        ]},
        {"one subscriber at most: event stream", [
            {stream, s, "/sub/single-A", ?STREAM},
            {subscribers, "single-A", 1},
            {stream, t, "/sub/single-A", ?STREAM},
            {rest, t}
        ]},
        {"one subscriber at most: the next", [
            {stream, s, "/sub/single-A", []},
            {subscribers, "single-A", 1},
            post("/pub/single-A", <<"x">>),
            {rest, s},
            {subscribers, "single-A", 0},
            {resume, "/brief/single-A", []}
        ]}
    ].

streams() ->
    Ways = [
        {"event stream", accept("text/event-stream"), <<"data: two\n\n">>},
        {"chunks", [{"TE", "chunked"}], <<"two\r\n">>},
        {"parts", accept("multipart/mixed"), <<"two\r\n--">>}
    ],
    lists:append([
        [
            {Way ++ ": history, and on", [
                post("/pub/A", type("text/x-foo"), <<"one">>),
                {stream, s, "/sub/A", Fields},
                {subscribers, "A", 1},
                post("/pub/A", type("text/x-foo"), <<"two">>),
                {until, s, Until},
                {cut, s}
            ]},
            {Way ++ ": timeout", [{stream, s, "/brief/A", Fields}, {rest, s}]},
            {Way ++ ": deleted", [{stream, s, "/sub/A", Fields}, {subscribers, "A", 1}, delete("/pub/A"), {rest, s}]},
            {Way ++ ": empty message", [
                {stream, s, "/sub/A", Fields},
                {subscribers, "A", 1},
                post("/pub/A", type("text/x-foo"), <<>>),
                post("/pub/A", type("text/x-foo"), <<"two">>),
                {until, s, Until},
                {cut, s}
            ]}
        ]
     || {Way, Fields, Until} <- Ways
    ]) ++
        [
            {"event stream: several lines", [
                post("/pub/A", <<"one\ntwo">>),
                {stream, s, "/sub/A", accept("text/event-stream")},
                {until, s, <<"data: two\n\n">>},
                {cut, s}
            ]},
            {"event stream: CR LF in a message", [
                post("/pub/A", <<"one\r\ntwo">>),
                {stream, s, "/sub/A", accept("text/event-stream")},
                {until, s, <<"data: two\n\n">>},
                {cut, s}
            ]},
            {"raw", [
                post("/pub/A", <<"one">>),
                {stream, s, "/raw/A", []},
                {subscribers, "A", 1},
                post("/pub/A", <<"two">>),
                {until, s, <<"two\n">>},
                {cut, s}
            ]}
        ].

websockets() ->
    [
        {"WebSocket: history, and on", [
            post("/pub/A", <<"one">>),
            {websocket, w, "/sub/A", none, none},
            {frames, w, 1},
            post("/pub/A", <<"two">>),
            {frames, w, 1}
        ]},
        {"WebSocket: bytes", [
            post("/pub/A", type("application/octet-stream"), <<0, 255>>),
            {websocket, w, "/sub/A", none, none},
            {frames, w, 1}
        ]},
        {"WebSocket: text of another type", [
            post("/pub/A", type("text/x-foo"), <<"x">>), {websocket, w, "/sub/A", none, none}, {frames, w, 1}
        ]},
        {"WebSocket: deleted", [
            {websocket, w, "/sub/A", none, none}, {subscribers, "A", 1}, delete("/pub/A"), {frames, w, 1}
        ]},
        {"WebSocket: timeout", [{websocket, w, "/brief/A", none, none}, {frames, w, 1}]},
        {"WebSocket: ping", [{websocket, w, "/pubsub/A", none, none}, {say, w, ?PING, <<"p">>}, {frames, w, 1}]},
        {"WebSocket: publish where only subscribing is allowed", [
            {websocket, w, "/sub/A", none, none}, {say, w, ?TEXT, <<"x">>}, {frames, w, 1}
        ]},
        {"WebSocket: publish and subscribe", [
            {websocket, w, "/pubsub/A", none, none},
            {say, w, ?TEXT, <<"x">>},
            {say, w, ?BINARY, <<0, 255>>},
            {frames, w, 2},
            read("/sub/A")
        ]},
        {"WebSocket: publish", [
            {websocket, w, "/pub/A", none, none},
            {say, w, ?TEXT, <<"x">>},
            {frames, w, 1},
            {say, w, ?BINARY, <<0, 255>>},
            {frames, w, 1}
        ]},
        {"WebSocket: publish, ws+meta.nchan", [
            {websocket, w, "/pub/A", "ws+meta.nchan", none}, {say, w, ?TEXT, <<"x">>}, {frames, w, 1}
        ]},
        {"ws+meta.nchan", [
            post("/pub/A", <<"one">>),
            post("/pub/A", type("text/x-foo"), <<"two">>),
            {websocket, w, "/sub/A", "ws+meta.nchan", none},
            {frames, w, 2}
        ]},
        {"ws+meta.nchan is not the first", [
            post("/pub/A", <<"one">>), {websocket, w, "/sub/A", "other, ws+meta.nchan", none}, {frames, w, 1}
        ]},
        {"another subprotocol", [post("/pub/A", <<"one">>), {websocket, w, "/sub/A", "other", none}, {frames, w, 1}]},
        {"permessage-deflate", [{websocket, w, "/sub/A", none, "permessage-deflate"}]},
        {"permessage-deflate, a window of ours", [
            {websocket, w, "/sub/A", none, "permessage-deflate; server_max_window_bits=12"}
        ]},
        {"permessage-deflate, a window that is too small", [
            {websocket, w, "/sub/A", none, "permessage-deflate; server_max_window_bits=8"}
        ]},
        {"a date without a tag", [{websocket, w, "/sub/A", none, none, [{"If-Modified-Since", ?DATE}]}]}
    ].

several() ->
    [
        {"several: publish", [
            post("/pub/A,B", <<"x">>), post("/pub/B", <<"y">>), post("/pub/A,B,C", accept("text/json"), <<"z">>)
        ]},
        {"several: tell", [post("/pub/A,B", <<"x">>), read("/pub/A,B")]},
        {"several: delete", [post("/pub/A,B", <<"x">>), delete("/pub/A,B"), read("/poll/A,B")]},
        {"several: delete what is not there", [delete("/pub/A,B")]},
        {"several: long poll, and on", [
            post("/pub/B", <<"x">>), read("/sub/A,B"), post("/pub/A", <<"y">>), {resume, "/sub/A,B", []}
        ]},
        {"several: long poll: timeout", [read("/brief/A,B")]},
        {"several: one is deleted", [{stream, s, "/sub/A,B", []}, {subscribers, "B", 1}, delete("/pub/B"), {rest, s}]},
        {"several: an id of another number", [
            post("/pub/A", <<"x">>), read("/sub/A,B", [{"If-Modified-Since", ?DATE}, {"If-None-Match", "[0],-,-"}])
        ]},
        {"several: twice the same", [
            post("/pub/A", <<"x">>),
            {stream, s, "/sub/A,A", accept("text/event-stream")},
            {until, s, <<"data: x\n\n">>, 2},
            {cut, s}
        ]},
        {"several: ws+meta.nchan", [
            post("/pub/B", <<"x">>), {websocket, w, "/sub/A,B", "ws+meta.nchan", none}, {frames, w, 1}
        ]},
        {"several: 255, whose names have more than 1,024 bytes together", [post(["/pub/", many(255)], <<"x">>)]},
        {"several: 256", [post(["/pub/", many(256)], <<"x">>)]}
    ].

many(Count) -> lists:join($,, ["A" ++ integer_to_list(Number) || Number <- lists:seq(1, Count)]).

refusals() ->
    [
        {[Method, " ", Path], [{request, list_to_binary(Method), Path ++ "/A", [], <<"x">>}]}
     || {Method, Path} <- [{"POST", "/sub"}, {"PUT", "/sub"}, {"DELETE", "/sub"}]
    ] ++
        [
            {"a name of 1,025 bytes", [post(["/pub/", lists:duplicate(1025, $x)], <<"x">>)]},
            {"a name with escapes", [post("/pub/A%20%c3%a9", <<"x">>), read("/sub/A%20%c3%a9")]}
        ].

methods() ->
    [
        {Method ++ " " ++ Path, [post("/pub/A", <<"x">>), {perhaps, list_to_binary(Method), Path ++ "/A"}]}
     || Method <- ["HEAD", "PATCH"], Path <- ["/sub", "/pub"]
    ].

origins() ->
    Origin = [{"Origin", "http://x.y"}],
    [
        {"OPTIONS " ++ Path ++ With, [{request, <<"OPTIONS">>, Path ++ "/A", Fields, <<>>}]}
     || Path <- ["/sub", "/pub", "/pubsub"], {With, Fields} <- [{"", []}, {" of a page", Origin}]
    ] ++
        [
            {"publish from a page", [post("/pub/A", Origin, <<"x">>)]},
            {"long poll of a page", [post("/pub/A", <<"x">>), read("/sub/A", Origin)]},
            {"long poll of a page: timeout", [read("/brief/A", Origin)]},
            {"long poll of a page: deleted", [
                {stream, s, "/sub/A", Origin}, {subscribers, "A", 1}, delete("/pub/A"), {rest, s}
            ]},
            {"interval poll of a page, and on", [
                post("/pub/A", <<"x">>), read("/poll/A", Origin), {resume, "/poll/A", Origin}
            ]},
            {"event stream of a page", [
                post("/pub/A", <<"x">>),
                {stream, s, "/sub/A", accept("text/event-stream") ++ Origin},
                {until, s, <<"data: x\n\n">>},
                {cut, s}
            ]}
        ].

%% Running it ---------------------------------------------------------------------------------

-record(run, {server, prefix, last = [], open = #{}, seen = []}).

%% Returns the response to each step that has one: a list of parts, `{status, S}', `{Field, Value}', `{body, B}'.
%% `Server' maps a path to a port and a path.
run(Server, {Number, {_Name, Steps}}) ->
    Run = lists:foldl(fun step/2, #run{server = Server, prefix = ["n", integer_to_list(Number)]}, Steps),
    _ = [gen_tcp:close(Socket) || {Socket, _} <- maps:values(Run#run.open)],
    lists:reverse(Run#run.seen).

step({request, Method, Path, Fields, Body}, Run) ->
    answered(request(Method, Path, Fields, Body, Run), Run);
step({perhaps, Method, Path}, #run{seen = Seen} = Run) ->
    {Port, There} = place(Path, Run),
    Socket = weir_pubsub_nchan:begin_request(Port, Method, There, []),
    Bytes = rest(Socket, <<>>),
    ok = gen_tcp:close(Socket),
    case Bytes of
        <<>> -> Run#run{seen = [[{status, none}] | Seen]};
        _ -> answered(weir_pubsub_nchan:parsed(Bytes), Run)
    end;
step({pause, Milliseconds}, Run) ->
    %% What is kept for a second is gone then.
    ok = timer:sleep(Milliseconds),
    Run;
step({resume, Path, Fields}, Run) ->
    answered(request(<<"GET">>, Path, resume(Run) ++ Fields, <<>>, Run), Run);
step({begin_resume, Key, Path}, Run) ->
    step({stream, Key, Path, resume(Run)}, Run);
step({stream, Key, Path, Fields}, #run{open = Open} = Run) ->
    {Port, There} = place(Path, Run),
    Run#run{open = Open#{Key => {weir_pubsub_nchan:begin_request(Port, <<"GET">>, There, Fields), <<>>}}};
step({subscribers, Channel, Count}, Run) ->
    wait_for_subscribers(Channel, Count, Run);
step({until, Key, Text}, Run) ->
    step({until, Key, Text, 1}, Run);
step({until, Key, Text, Times}, #run{open = Open} = Run) ->
    #{Key := {Socket, Bytes}} = Open,
    Run#run{open = Open#{Key := {Socket, until(Socket, Text, Times, Bytes)}}};
step({cut, Key}, #run{open = Open} = Run) ->
    {{Socket, Bytes}, Others} = maps:take(Key, Open),
    ok = gen_tcp:close(Socket),
    answered(weir_pubsub_nchan:parsed(Bytes), Run#run{open = Others});
step({rest, Key}, #run{open = Open} = Run) ->
    {{Socket, Bytes}, Others} = maps:take(Key, Open),
    Rest = rest(Socket, Bytes),
    ok = gen_tcp:close(Socket),
    answered(weir_pubsub_nchan:parsed(Rest), Run#run{open = Others});
step({websocket, Key, Path, Protocols, Extensions}, Run) ->
    step({websocket, Key, Path, Protocols, Extensions, []}, Run);
step({websocket, Key, Path, Protocols, Extensions, Fields}, #run{open = Open} = Run) ->
    {Port, There} = place(Path, Run),
    {Answer, Socket} = weir_pubsub_nchan:handshake(Port, There, Protocols, Extensions, Fields),
    answered(Answer, Run#run{open = Open#{Key => {Socket, <<>>}}});
step({say, Key, Opcode, Data}, #run{open = Open} = Run) ->
    #{Key := {Socket, _}} = Open,
    ok = weir_pubsub_nchan:send_frame(Socket, Opcode, Data),
    Run;
step({frames, Key, Count}, #run{open = Open, seen = Seen} = Run) ->
    #{Key := {Socket, _}} = Open,
    Frames = weir_pubsub_nchan:frames(Socket, Count),
    Run#run{seen = [[{frame, {Opcode, without_times(Data)}} || {Opcode, Data} <- Frames] | Seen]}.

%% The fields for a request after the last id of a response.
resume(#run{last = Last}) ->
    [
        {Name, Value}
     || {Name, Of} <- [{"If-Modified-Since", <<"last-modified">>}, {"If-None-Match", <<"etag">>}],
        {F, Value} <- Last,
        F =:= Of
    ].

%% Maps a path to its place: capitals are names of channels.
place(Path, #run{server = Server, prefix = Prefix}) ->
    Server(
        lists:flatten([
            case Byte >= $A andalso Byte =< $C of
                true -> [Prefix, Byte];
                false -> Byte
            end
         || Byte <- lists:flatten(Path)
        ])
    ).

request(Method, Path, Fields, Body, Run) ->
    {Port, There} = place(Path, Run),
    weir_pubsub_nchan:request(Port, Method, There, Fields, Body).

answered({Status, Fields, Raw} = Answer, #run{seen = Seen, last = Before} = Run) ->
    {_, _, Body} = weir_pubsub_nchan:normal(Answer),
    Normal = [
        normal(Field, Raw)
     || {Name, _} = Field <- Fields, not lists:member(Name, [<<"date">>, <<"server">>, <<"connection">>])
    ],
    Last =
        case lists:keymember(<<"last-modified">>, 1, Fields) of
            true -> Fields;
            false -> Before
        end,
    Run#run{last = Last, seen = [[{status, Status} | lists:sort(Normal)] ++ [{body, without_times(Body)}] | Seen]}.

%% Ids differ in length, so a length is right if it is that of the body.
normal({<<"content-length">> = Name, Length}, Body) ->
    {Name, case binary_to_integer(Length) =:= byte_size(Body) of true -> <<"LENGTH">>; false -> Length end};
normal(Field, _Body) ->
    weir_pubsub_nchan:field(Field).

%% Times depend on how long the script takes.
without_times(Text) ->
    lists:foldl(
        fun(Pattern, Rest) -> re:replace(Rest, Pattern, "\\1N", [global, {return, binary}]) end,
        Text,
        ["(last requested: )-?[0-9]+", "(\"requested\": )-?[0-9]+", "(<requested>)-?[0-9]+", "(requested: )-?[0-9]+"]
    ).

until(Socket, Text, Times, Bytes) ->
    case length(binary:matches(Bytes, Text)) of
        Count when Count >= Times ->
            Bytes;
        _ ->
            {ok, More} = gen_tcp:recv(Socket, 0, weir_test_wait:patience()),
            until(Socket, Text, Times, <<Bytes/binary, More/binary>>)
    end.

rest(Socket, Bytes) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, More} -> rest(Socket, <<Bytes/binary, More/binary>>);
        {error, closed} -> Bytes
    end.

wait_for_subscribers(Channel, Count, Run) ->
    {Port, There} = place("/pub/" ++ Channel, Run),
    "/pub/" ++ Name = There,
    ok = weir_pubsub_nchan:wait_for_subscribers(Port, Name, Count),
    Run.
