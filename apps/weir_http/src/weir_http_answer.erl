%% @private
%% @doc From a request to the bytes of its response: calls the handler, and has its result checked and written.
-module(weir_http_answer).

-export([target/2]).
-export([max_body/2]).
-export([answer/4]).
-export([enter/4]).
-export([respond/3]).
-export([reply/3]).
-export([frame/1]).
-export([in_process/2]).
-export([crashed/6]).
-export([stream/4]).
-export([trailers/1]).
-export([sized/5]).
-export([pieces/6]).
-export([refusal/2]).
-export([upgrade_required/4]).
-export([without_arguments/1]).

-export_type([after_it/0, wanted/0, listener/0, output/0, response/0]).

-include("weir_http.hrl").

-type after_it() :: keep | close.

-type wanted() :: keep | close | asked.
%% What is to become of the connection: `asked' has the client to close it.

-type output() :: iodata() | {pieces, Size :: non_neg_integer(), weir_http_file:pieces()}.
%% What is sent: bytes, or bytes and parts of files, so many in all.

-type response() :: {after_it(), output()} | {process, weir_http_routes:found()}.

-type listener() :: {weir_listener:name(), weir_http_counters:counters(), weir_reports:limit()}.

%% Bodies up to this many bytes are copied behind their heads; larger ones go to the kernel as they are.
-define(COPIED, 2048).

%% @doc Who serves a request; and the request with what its response will have in any case.
-spec target(weir_http_request:request(), #http{}) -> {weir_http_routes:found(), weir_http_request:request()}.
target(Request, Http = #http{routes = Routes, request_ids = off}) ->
    Found = weir_http_routes:find(weir_http_request:method(Request), Request, Routes),
    shared(Found, weir_http_request:with_gzip(gzip(Found, Http), Request), Routes);
target(Request, Http = #http{request_ids = Ids}) ->
    target(weir_http_request:identify(weir_http_id:of_request(Request, Ids), Request), Http#http{request_ids = off}).

gzip({ok, #{gzip := default}, _}, #http{gzip = Gzip}) -> Gzip;
gzip({ok, #{gzip := Gzip}, _}, _Http) -> Gzip;
gzip(_Found, _Http) -> off.

shared(Found = {ok, #{cors := off}, _}, Request, _Routes) ->
    {Found, Request};
shared(Found = {ok, #{cors := Cors}, _}, Request, Routes) ->
    preflight(Found, weir_http_request:add(weir_http_cors:fields(Request, Cors), Request), Request, Routes);
shared(Found = {allow, 204, _}, Request, Routes) ->
    preflight(Found, Request, Request, Routes);
shared(Found, Request, _Routes) ->
    {Found, Request}.

%% A browser asks whether it may send another request: that one's route answers.
preflight(Found, Shared, Request, Routes) ->
    case weir_http_cors:is_preflight(Request) of
        {true, Method} ->
            case weir_http_routes:find(Method, Request, Routes) of
                {ok, #{cors := Cors}, _} when Cors =/= off -> {{preflight, weir_http_cors:preflight(Request, Cors)}, Request};
                _ -> {Found, Shared}
            end;
        false ->
            {Found, Shared}
    end.

%% @doc The most bytes that the body of its request may have.
-spec max_body(weir_http_routes:found(), #http{}) -> non_neg_integer().
max_body({ok, #{max_body := Bytes}, _}, _Http) when is_integer(Bytes) -> Bytes;
max_body(_Found, #http{max_body = Bytes}) -> Bytes.

%% @doc The response to a request that has come whole, and what becomes of the connection: a handler may close what was to
%% stay open.
%% `process': one has to serve it, since a disk may make it wait.
-spec answer(weir_http_routes:found(), weir_http_request:request(), wanted(), #http{}) ->
    weir_http_switched:entered().
answer(Found, Request, Wanted, Http) ->
    Answer = made_of(Found, Request, Wanted, Http),
    case weir_http_request:begun(Request) of
        undefined ->
            ok;
        _ ->
            weir_http_observation:answered(Request, Answer, Http)
    end,
    Answer.

made_of({ok, #{handler := Handler, state := State}, Bindings}, Request, Wanted, Http) ->
    Bound = weir_http_request:bind(Bindings, Request),
    try
        result(Handler(Bound, State), Bound, Wanted, Http)
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, Request, Wanted, {Http#http.name, Http#http.counters, Http#http.reports})
    end;
made_of({failed, {Class, Reason, Stack}}, Request, Wanted, Http) ->
    crashed(Class, Reason, Stack, Request, Wanted, {Http#http.name, Http#http.counters, Http#http.reports});
made_of({status, Status}, Request, Wanted, _Http) ->
    plain(Status, Request, Wanted);
made_of({preflight, Fields}, Request, Wanted, _Http) ->
    response(204, Fields, <<>>, Request, Wanted);
made_of({allow, Status, Allow}, Request, Wanted, _Http) ->
    response(Status, [{<<"allow">>, Allow}], <<>>, Request, Wanted).

result(Result, Request, Wanted, Http) when element(1, Result) =:= events -> weir_http_stream:enter(Result, Request, Wanted, Http);
result(Result, Request, Wanted, Http) when element(1, Result) =:= hold -> weir_http_parked:enter(Result, Request, Wanted, Http);
result(Result, Request, Wanted, Http) when element(1, Result) =:= websocket ->
    weir_http_websocket_connection:enter(Result, Request, Wanted, Http);
result(Result, Request, Wanted, _Http) ->
    respond(Result, Request, Wanted).

%% @doc What the process of a request has decided to go on as: an event stream, a held request or a WebSocket.
-spec enter(weir_http_direct:result(), weir_http_request:request(), wanted(), #http{}) -> weir_http_switched:entered().
enter(Result, Request, Wanted, Http) ->
    try
        result(Result, Request, Wanted, Http)
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, Request, Wanted, {Http#http.name, Http#http.counters, Http#http.reports})
    end.

%% @doc The response that a handler of the reactor has described. `process': one goes on, since it may have to wait.
-spec respond(term(), weir_http_request:request(), wanted()) -> response().
respond({file, Place}, Request, Wanted) -> file(Place, [], Request, Wanted);
respond({file, Place, Fields}, Request, Wanted) -> file(Place, Fields, Request, Wanted);
respond({process, Fun}, Request, _Wanted) when is_function(Fun, 1) -> {process, in_process(Fun, Request)};
respond({reply, _, _, Body} = Result, Request, Wanted) ->
    case weir_http_gzip:is_work(Body, Request) of
        true -> {process, in_process(fun(_) -> Result end, Request)};
        false -> reply(Result, Request, Wanted)
    end;
respond(Result, Request, Wanted) ->
    reply(Result, Request, Wanted).

%% A file that is not open is opened by a process.
file(Place, Fields, Request, Wanted) ->
    Found = weir_http_socket:sends_files(weir_http_request:connection(Request)) andalso weir_http_file:find(Request, Place, Fields),
    case Found of
        {ok, {pieces, Status, AllFields, Length, Pieces}} -> pieces(Status, AllFields, Length, Pieces, Request, Wanted);
        {ok, Result} -> reply(Result, Request, Wanted);
        _ -> {process, in_process(fun(_) -> {file, Place, Fields} end, Request)}
    end.

%% @doc Who serves a request in a process, by a fun that gets it with its bindings.
-spec in_process(fun((weir_http_request:request()) -> weir_http_process:result()), weir_http_request:request()) ->
    weir_http_routes:found().
in_process(Fun, Bound) ->
    Target = #{
        kind => process, handler => fun(Request, _) -> Fun(Request) end, state => none, max_body => default, body => whole, cors => off,
        gzip => default
    },
    {ok, Target, weir_http_request:bindings(Bound)}.

%% @doc Counts and reports a handler that has failed. Returns what its client gets, if that has got nothing yet.
-spec crashed(error | exit | throw, term(), list(), weir_http_request:request(), wanted(), listener()) ->
    {after_it(), iodata()}.
crashed(Class, Reason, Stack, Request, Wanted, {Name, Counters, Reports}) ->
    ok = weir_http_counters:add(Counters, crashes),
    ok = weir_http_observation:crashed({Class, Reason, Stack}, Request, Name),
    ok = report(Class, Reason, Stack, Request, Name, Reports),
    plain(500, Request, Wanted).

%% @doc The response that a handler has described. Fails if it may not be sent.
-spec reply(term(), weir_http_request:request(), wanted()) -> {after_it(), iodata()}.
reply({reply, Status, Fields, Body}, Request, Wanted) when is_integer(Status), Status >= 200, Status =< 599 ->
    {Encoded, Bytes} = weir_http_gzip:encode(Status, Fields, Body, Request),
    response(Status, Encoded, Bytes, Request, Wanted);
reply({redirect, Status, Location}, Request, Wanted) when
    Status =:= 301; Status =:= 302; Status =:= 303; Status =:= 307; Status =:= 308
->
    response(Status, [{<<"location">>, Location}], <<>>, Request, Wanted);
reply(Other, _Request, _Wanted) ->
    error({bad_return_value, Other}).

%% @doc A response to requests of HTTP/1.1 that leaves their connections open.
-spec frame(term()) -> binary().
frame({reply, Status, Fields, Body}) when is_integer(Status), Status >= 200, Status =< 599 ->
    case sized_or_not(Status, Fields, 0, Body, false) of
        {keep, Bytes} -> iolist_to_binary(Bytes);
        {close, _} -> error({forbidden_field, <<"connection">>, <<"close">>})
    end;
frame(Other) ->
    error({bad_return_value, Other}).

%% @doc The head of a response whose length nobody knows yet, and how its body goes on: in chunks, up to the close of the
%% connection, or not at all.
-spec stream(term(), weir_http_direct:fields(), weir_http_request:request(), wanted()) ->
    {chunked | raw | nothing, after_it(), binary()}.
stream(Status, Fields, Request, Wanted) when is_integer(Status), Status >= 200, Status =< 599, Status =/= 204, Status =/= 304 ->
    Is11 = weir_http_request:is_1_1(Request),
    {Kind, Closes, Flags} =
        case Is11 of
            true -> {chunked, Wanted, ?CHUNKED bor connection_flags(Wanted, true)};
            false -> {raw, close, ?NO_LENGTH bor ?SAY_CLOSE}
        end,
    case weir_http_nif:response(Status, all(Fields, Request), Flags, 0, <<>>) of
        {forbidden, Name, Value} -> error({forbidden_field, Name, Value});
        {After, Head} when Closes =:= keep -> {kind(Kind, Request), After, Head};
        {_, Head} -> {kind(Kind, Request), close, Head}
    end.

%% @doc The lines of fields behind a body in chunks. Fails if one may not be sent there.
-spec trailers(weir_http_direct:fields()) -> binary().
trailers(Fields) ->
    case weir_http_nif:trailer_fields(Fields) of
        {forbidden, Name, Value} -> error({forbidden_field, Name, Value});
        Lines -> Lines
    end.

%% @doc The head of a response whose body of so many bytes follows, or does not for HEAD.
-spec sized(200 | 206, weir_http_direct:fields(), Length :: non_neg_integer(), weir_http_request:request(), wanted()) ->
    {raw | nothing, after_it(), iodata()}.
sized(Status, Fields, Length, Request, Wanted) ->
    Flags = connection_flags(Wanted, weir_http_request:is_1_1(Request)),
    {After, Head} = made(weir_http_nif:response(Status, all(Fields, Request), Flags, Length, <<>>), <<>>),
    {kind(raw, Request), After, Head}.

%% @doc The response whose body are those pieces, of so many bytes.
-spec pieces(200 | 206, weir_http_direct:fields(), Length, weir_http_file:pieces(), weir_http_request:request(), wanted()) ->
    {after_it(), output()}
when
    Length :: non_neg_integer().
pieces(Status, Fields, Length, Pieces, Request, Wanted) ->
    case sized(Status, Fields, Length, Request, Wanted) of
        {nothing, After, Head} -> {After, Head};
        {raw, After, Head} -> {After, {pieces, iolist_size(Head) + Length, [Head | Pieces]}}
    end.

kind(Kind, Request) ->
    case weir_http_request:is_head(Request) of
        true -> nothing;
        false -> Kind
    end.

plain(Status, Request, Wanted) ->
    response(Status, [], <<>>, Request, Wanted).

%% @doc The response to a request that should ask for another protocol. The fields have its name.
-spec upgrade_required(weir_http_direct:fields(), iodata(), weir_http_request:request(), wanted()) -> {after_it(), iodata()}.
upgrade_required(Fields, Body, Request, Wanted) ->
    Flags = connection_flags(Wanted, weir_http_request:is_1_1(Request)) bor ?SAY_UPGRADE,
    with_body(426, all(Fields, Request), Flags, Body, weir_http_request:is_head(Request)).

response(Status, Given, Body, Request, Wanted) ->
    Fields = all(Given, Request),
    Flags = connection_flags(Wanted, weir_http_request:is_1_1(Request)),
    sized_or_not(Status, Fields, Flags, Body, weir_http_request:is_head(Request)).

sized_or_not(Status, Fields, Flags, _Body, _IsHead) when Status =:= 204; Status =:= 304 ->
    made(weir_http_nif:response(Status, Fields, Flags bor ?NO_LENGTH, 0, <<>>), <<>>);
sized_or_not(Status, Fields, Flags, Body, IsHead) ->
    with_body(Status, Fields, Flags, Body, IsHead).

all(Fields, Request) ->
    case weir_http_request:added(Request) of
        [] -> Fields;
        Added -> Added ++ Fields
    end.

with_body(Status, Fields, Flags, Body, true) ->
    made(weir_http_nif:response(Status, Fields, Flags, iolist_size(Body), <<>>), <<>>);
with_body(Status, Fields, Flags, Body, false) ->
    case iolist_size(Body) of
        Length when Length =< ?COPIED, is_binary(Body) ->
            made(weir_http_nif:response(Status, Fields, Flags, Length, Body), <<>>);
        Length when Length =< ?COPIED ->
            made(weir_http_nif:response(Status, Fields, Flags, Length, iolist_to_binary(Body)), <<>>);
        Length ->
            made(weir_http_nif:response(Status, Fields, Flags, Length, <<>>), Body)
    end.

connection_flags(keep, true) -> 0;
connection_flags(keep, false) -> ?SAY_KEEP_ALIVE;
connection_flags(_Close, _Is11) -> ?SAY_CLOSE.

made({After, Head}, <<>>) -> {After, Head};
made({After, Head}, Body) -> {After, [Head, Body]};
made({forbidden, Name, Value}, _Body) -> error({forbidden_field, Name, Value}).

%% @doc The response to what is no request that could be served, after which the connection is closed.
-spec refusal(Status :: 400..599, Reason :: atom()) -> binary().
refusal(Status, Reason) ->
    Body = <<(atom_to_binary(Reason))/binary, "\n">>,
    {close, Bytes} =
        weir_http_nif:response(Status, [{<<"content-type">>, <<"text/plain">>}], ?SAY_CLOSE, byte_size(Body), Body),
    Bytes.

%% Neither fields nor body are told: they may hold what is secret.
report(Class, Reason, Stack, Request, Name, Reports) ->
    Report = #{
        what => "a handler of HTTP failed, its client gets a 500 or is cut off",
        domain => [weir, http],
        listener => Name,
        method => weir_http_request:method(Request),
        path => weir_http_request:path(Request),
        request_id => weir_http_request:id(Request),
        reason => {Class, Reason},
        stacktrace => [without_arguments(Call) || Call <- Stack]
    },
    weir_reports:log(error, Report, Reports).

%% @doc A call of a stack trace without its arguments, which may hold what is secret.
-spec without_arguments(tuple()) -> tuple().
without_arguments({Module, Function, Arguments, Where}) when is_list(Arguments) ->
    {Module, Function, length(Arguments), Where};
without_arguments({Function, Arguments, Where}) when is_list(Arguments) ->
    {Function, length(Arguments), Where};
without_arguments(Call) ->
    Call.
