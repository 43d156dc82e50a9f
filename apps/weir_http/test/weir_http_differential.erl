%% Sends the same bytes to several servers. If ours accepts a request that others refuse, or finds its end elsewhere,
%% an attacker can use the difference when both are in one chain (request smuggling).
%%
%% The observation is `{Requests, End}'. Requests are those that the server accepted, as `{Method, Target, Length}', or
%% `any' if it does not say. End: it `refused' what followed, `closed' regularly, or `waits' for more.
-module(weir_http_differential).

-export([start/0, stop/1, run/2]).
-export([findings/2, explained/2, unexplained/1, table/1]).

-define(AT_ONCE, 16).

%% Starts the peers, and a listener of ours that describes a request as they do.
start() ->
    case weir_http_peers:start() of
        {ok, Peers} ->
            {ok, _} = application:ensure_all_started(weir_http),
            {ok, _} = weir_http:start_listener(?MODULE, #{ip => {127, 0, 0, 1}}, [
                {"/*path", weir_http_echo, {call, fun describe/1}, #{
                    methods => [<<"GET">>, <<"POST">>, <<"PUT">>, <<"DELETE">>, <<"PATCH">>]
                }}
            ]),
            {ok, Peers};
        {skip, _} = Skip ->
            Skip
    end.

stop(Peers) ->
    ok = weir_http:stop_listener(?MODULE),
    weir_http_peers:stop(Peers).

describe(Request) ->
    Length = integer_to_binary(byte_size(weir_http_request:body(Request))),
    Target = [weir_http_request:path(Request), "?", weir_http_request:query(Request)],
    {reply, 200, [], lists:join(" ", [weir_http_request:method(Request), Target, [Length, "\n"]])}.

%% Sends each case to our listener and to the peers: `{Bytes, Ours, Theirs}'.
run(Cases, #{sockets := Peers}) ->
    Self = self(),
    Port = weir:get_port(?MODULE),
    Numbered = lists:zip(lists:seq(1, length(Cases)), Cases),
    Workers = [
        spawn_link(fun() ->
            Self ! {self(), [seen(Case, Port, Peers) || {N, Case} <- Numbered, N rem ?AT_ONCE =:= Worker]}
        end)
     || Worker <- lists:seq(0, ?AT_ONCE - 1)
    ],
    lists:append([receive {Worker, Seen} -> Seen end || Worker <- Workers]).

seen(Case, Port, Peers) ->
    Bytes = <<Case/binary, (weir_http_mutations:last())/binary, (weir_http_mutations:last())/binary>>,
    {Case, observe(Port, Bytes), [{Name, observe({local, Socket}, Bytes)} || {Name, Socket} <- Peers]}.

%% Sends the bytes, shuts down our direction, and reads to the end.
observe(Address, Bytes) ->
    {ok, Socket} = connect(Address),
    _ = gen_tcp:send(Socket, Bytes),
    _ = gen_tcp:shutdown(Socket, write),
    Answer = received(Socket, Address, Bytes, <<>>),
    ok = gen_tcp:close(Socket),
    responses(Answer, [], waits).

connect({local, _} = Address) -> gen_tcp:connect(Address, 0, [binary, {active, false}]);
connect(Port) -> gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]).

received(Socket, Address, Bytes, Before) ->
    case gen_tcp:recv(Socket, 0, weir_test_wait:patience()) of
        {ok, Data} -> received(Socket, Address, Bytes, <<Before/binary, Data/binary>>);
        {error, timeout} -> error({does_not_end, Address, Bytes, Before});
        {error, _} -> Before
    end.

responses(<<"HTTP/1.", _, " 100", _/binary>> = Bytes, Requests, End) ->
    [_, Rest] = binary:split(Bytes, <<"\r\n\r\n">>),
    responses(Rest, Requests, End);
responses(<<"HTTP/1.", _, " ", Status:3/binary, _/binary>> = Bytes, Requests, _End) ->
    [Head | Rest] = binary:split(Bytes, <<"\r\n\r\n">>),
    {Body, After} = body(Head, iolist_to_binary(Rest)),
    case is_refusal(binary_to_integer(Status)) of
        true -> {lists:reverse(Requests), refused};
        false -> responses(After, [described(Body) | Requests], end_of(Head))
    end;
responses(_, Requests, End) ->
    {lists:reverse(Requests), End}.

%% Other statuses answer a request that was understood.
is_refusal(Status) -> lists:member(Status, [400, 408, 411, 413, 414, 417, 431, 501, 505]).

end_of(Head) ->
    case re:run(Head, "\r\nconnection: *close", [caseless]) of
        {match, _} -> closed;
        nomatch -> waits
    end.

body(Head, Bytes) ->
    case re:run(Head, "\r\ncontent-length: *(\\d+)", [caseless, {capture, all_but_first, binary}]) of
        {match, [Digits]} ->
            Length = min(binary_to_integer(Digits), byte_size(Bytes)),
            <<Body:Length/binary, After/binary>> = Bytes,
            {Body, After};
        nomatch ->
            {<<>>, Bytes}
    end.

%% Removes the host from an absolute target.
described(Body) ->
    case re:run(Body, "^([^ ]+) (?:[a-zA-Z]+://[^/?]*)?(.*) ([0-9]*)\n$", [{capture, all_but_first, binary}, dotall]) of
        {match, [Method, Target, Length]} -> {Method, path(Target), length_of(Length)};
        nomatch -> any
    end.

%% A trailing question mark is not a difference.
path(<<"/", _/binary>> = Path) -> re:replace(Path, "\\?$", "", [{return, binary}]);
path(Other) -> path(<<"/", Other/binary>>).

length_of(<<>>) -> 0;
length_of(Digits) -> binary_to_integer(Digits).

%% Returns the differences: `{accepts, Request, Name}' is refused by that server; `{otherwise, Request, Name, Theirs}'
%% is another request for it, or not complete yet.
findings({Requests, _End}, Others) -> lists:append([finding(Requests, Name, Seen) || {Name, Seen} <- Others]).

finding([Same | Requests], Name, {[Same | Seen], End}) -> finding(Requests, Name, {Seen, End});
finding([any | Requests], Name, {[_ | Seen], End}) -> finding(Requests, Name, {Seen, End});
finding([_ | Requests], Name, {[any | Seen], End}) -> finding(Requests, Name, {Seen, End});
finding([Ours | _], Name, {[Theirs | _], _End}) -> [{otherwise, Ours, Name, Theirs}];
finding([Ours | _], Name, {[], waits}) -> [{otherwise, Ours, Name, nothing}];
finding([Ours | _], Name, {[], refused}) -> [{accepts, Ours, Name}];
finding(_Requests, _Name, _Seen) -> [].

%% The known differences, and why our behaviour is right.
explanations() ->
    [
        {nginx, "a tab is white space around a value (RFC 9110, 5.6.3)", fun(_, Bytes) -> has("\t", Bytes) end},
        {nginx, "OPTIONS * is a request (RFC 9110, 9.3.7)", fun(Request, Bytes) ->
            Request =:= any andalso has("OPTIONS \\*", Bytes)
        end},
        {nginx, "a field stands twice: as a list it is one (RFC 9110, 5.3)", fun(_, Bytes) ->
            has("\r\n(If-[a-z-]+|Expect):[^\r]*\r\n(?s:.*\r\n)?\\1:", Bytes)
        end},
        {nginx, "`//../` does not leave the root: an empty segment is one (RFC 3986, 5.2.4)", fun(_, Bytes) ->
            has("//", Bytes)
        end},
        {node, "a method that nobody serves: 405, and the connection stays (RFC 9110, 15.5.6)", fun(Request, _) ->
            Request =:= any
        end},
        {node, "what a trailer says of the connection does not count (RFC 9110, 6.5.1)", fun(_, Bytes) ->
            has("\r\n0+\r\n([^\r]+\r\n)*Connection: close\r\n", Bytes)
        end},
        {h11, "an empty line before a request is skipped (RFC 9112, 2.2)", fun(_, Bytes) ->
            has("(^|\r\n|[^\r]\n)\r\n", Bytes)
        end}
    ].

has(Pattern, Bytes) -> re:run(Bytes, Pattern, [caseless]) =/= nomatch.

explained({accepts, Request, Name}, Bytes) ->
    case [Reason || {Of, Reason, Is} <- explanations(), Of =:= Name, Is(Request, Bytes)] of
        [Reason | _] -> Reason;
        [] -> none
    end;
explained({otherwise, _, _, _}, _Bytes) ->
    none.

%% Returns the differences without an explanation.
unexplained(Seen) ->
    [
        {Finding, Bytes}
     || {Bytes, Ours, Theirs} <- Seen, Finding <- findings(Ours, Theirs), explained(Finding, Bytes) =:= none
    ].

%%% The table.

table(Seen) ->
    Found = [
        {Name, explained(Finding, Bytes)}
     || {Bytes, Ours, Theirs} <- Seen, Finding <- findings(Ours, Theirs), Name <- [element(3, Finding)]
    ],
    Stricter = [
        Name
     || {_, {Ours, refused}, Theirs} <- Seen, {Name, {Requests, _}} <- Theirs, length(Requests) > length(Ours)
    ],
    Names = lists:usort([Name || {_, _, Theirs} <- Seen, {Name, _} <- Theirs]),
    unicode:characters_to_binary([
        "# The same bytes before weir_http and others\n"
        "\n"
        "Written by `weir_http_differential_soak_SUITE` (`make soak`) with `WEIR_WRITE_RESULTS=1`. "
        "Seeds are the requests of\n"
        "[http11-probes.md](http11-probes.md) and some that are right; "
        "each further case is one of them with up to two random changes.\n"
        "Every server says of each request its method, target and the length of its body. "
        "`make test` has the first 2,000 cases.\n"
        "\n",
        io_lib:format("~b cases; ~b are refused by weir_http.~n", [
            length(Seen), length([refused || {_, {_, refused}, _} <- Seen])
        ]),
        "\n"
        "| server | refuses what weir_http takes | ends or names a request otherwise | takes what weir_http refuses |\n"
        "| --- | --- | --- | --- |\n",
        [
            io_lib:format("| ~s | ~b | ~b | ~b |~n", [
                Name,
                length([N || {N, _} <- Found, N =:= Name]) - otherwise(Seen, Name),
                otherwise(Seen, Name),
                length([N || N <- Stricter, N =:= Name])
            ])
         || Name <- Names
        ],
        "\n"
        "Why weir_http takes what the server refuses:\n"
        "\n"
        "| server | cases | reason |\n"
        "| --- | --- | --- |\n",
        [
            io_lib:format("| ~s | ~b | ~s |~n", [
                Name, length([R || {N, R} <- Found, N =:= Name, R =:= Reason]), Reason
            ])
         || {Name, Reason, _} <- explanations()
        ],
        io_lib:format("~nUnexplained: ~b.~n", [length([none || {_, none} <- Found])])
    ]).

otherwise(Seen, Name) ->
    length([otherwise || {_, Ours, Theirs} <- Seen, {otherwise, _, Of, _} <- findings(Ours, Theirs), Of =:= Name]).
