%% @private
%% @doc Encodes the response that a handler has returned, after checking it.
-module(weir_http_response).

-export([respond/3]).
-export([in_process/2]).
-export([reply/3]).
-export([without_body/4]).
-export([frame/1]).
-export([stream/4]).
-export([trailers/1]).
-export([sized/5]).
-export([pieces/6]).
-export([upgrade_required/4]).
-export([refusal/2]).

-export_type([after_it/0, wanted/0, output/0, response/0]).

-include("weir_http.hrl").

-type after_it() :: keep | close.

-type wanted() :: keep | close | asked.
%% What happens to the connection after the response. `asked': closed because the client asked for it.

-type output() :: iodata() | {pieces, Size :: non_neg_integer(), weir_http_file:pieces()}.
%% Bytes to send, or a list of bytes and parts of files with its total size.

-type response() :: {after_it(), output()} | {process, weir_http_routes:found()}.

%% Bodies up to this many bytes are copied behind their heads; larger ones go to the kernel as separate buffers.
-define(COPIED, 2048).

%% @doc Returns the response for the result of a handler in the reactor. `process': a process has to make it, since it
%% may wait.
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

%% A file that is not open yet is opened by a process.
file(Place, Fields, Request, Wanted) ->
    Found =
        weir_http_socket:sends_files(weir_http_request:connection(Request)) andalso
            weir_http_file:find(Request, Place, Fields),
    case Found of
        {ok, {pieces, Status, AllFields, Length, Pieces}} -> pieces(Status, AllFields, Length, Pieces, Request, Wanted);
        {ok, Result} -> reply(Result, Request, Wanted);
        _ -> {process, in_process(fun(_) -> {file, Place, Fields} end, Request)}
    end.

%% @doc Returns a target that serves the request in a process, by calling the fun with it.
-spec in_process(fun((weir_http_request:request()) -> weir_http_process:result()), weir_http_request:request()) ->
    weir_http_routes:found().
in_process(Fun, Bound) ->
    Target = #{
        kind => process,
        handler => fun(Request, _) -> Fun(Request) end,
        state => none,
        max_body => default,
        body => whole,
        cors => off,
        gzip => default
    },
    {ok, Target, weir_http_request:bindings(Bound)}.

%% @doc Returns the response for the result of a handler. Fails with `{bad_return_value, Other}', or with
%% `{forbidden_field, Name, Value}' for a field that may not be sent.
-spec reply(term(), weir_http_request:request(), wanted()) -> {after_it(), iodata()}.
reply({reply, Status, Fields, Body}, Request, Wanted) when is_integer(Status), Status >= 200, Status =< 599 ->
    {Encoded, Bytes} = weir_http_gzip:encode(Status, Fields, Body, Request),
    response(Status, Encoded, Bytes, Request, Wanted);
reply({redirect, Status, Location}, Request, Wanted) when
    Status =:= 301; Status =:= 302; Status =:= 303; Status =:= 307; Status =:= 308
->
    without_body(Status, [{<<"location">>, Location}], Request, Wanted);
reply(Other, _Request, _Wanted) ->
    error({bad_return_value, Other}).

%% @doc Returns a response without a body.
-spec without_body(weir_http_direct:status(), weir_http_direct:fields(), weir_http_request:request(), wanted()) ->
    {after_it(), iodata()}.
without_body(Status, Fields, Request, Wanted) -> response(Status, Fields, <<>>, Request, Wanted).

%% @doc Returns the bytes of a response to HTTP/1.1 requests whose connections stay open. Fails as reply/3.
-spec frame(term()) -> binary().
frame({reply, Status, Fields, Body}) when is_integer(Status), Status >= 200, Status =< 599 ->
    case sized_or_not(Status, Fields, 0, Body, false) of
        {keep, Bytes} -> iolist_to_binary(Bytes);
        {close, _} -> error({forbidden_field, <<"connection">>, <<"close">>})
    end;
frame(Other) ->
    error({bad_return_value, Other}).

%% @doc Returns the head of a response of unknown length, and how its body is framed: in chunks, raw until the
%% connection closes, or not at all.
-spec stream(term(), weir_http_direct:fields(), weir_http_request:request(), wanted()) ->
    {chunked | raw | nothing, after_it(), binary()}.
stream(Status, Fields, Request, Wanted) when
    is_integer(Status), Status >= 200, Status =< 599, Status =/= 204, Status =/= 304
->
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

%% @doc Returns the lines of trailer fields. Fails with `{forbidden_field, Name, Value}'.
-spec trailers(weir_http_direct:fields()) -> binary().
trailers(Fields) ->
    case weir_http_nif:trailer_fields(Fields) of
        {forbidden, Name, Value} -> error({forbidden_field, Name, Value});
        Lines -> Lines
    end.

%% @doc Returns the head of a response whose body has that many bytes, and whether the body follows (not for HEAD).
-spec sized(200 | 206, weir_http_direct:fields(), Length :: non_neg_integer(), weir_http_request:request(), wanted()) ->
    {raw | nothing, after_it(), iodata()}.
sized(Status, Fields, Length, Request, Wanted) ->
    Flags = connection_flags(Wanted, weir_http_request:is_1_1(Request)),
    {After, Head} = made(weir_http_nif:response(Status, all(Fields, Request), Flags, Length, <<>>), <<>>),
    {kind(raw, Request), After, Head}.

%% @doc Returns a response whose body consists of pieces with Length bytes in total.
-spec pieces(
    200 | 206, weir_http_direct:fields(), Length, weir_http_file:pieces(), weir_http_request:request(), wanted()
) ->
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

%% @doc Returns a 426 response. The fields name the protocol to upgrade to.
-spec upgrade_required(weir_http_direct:fields(), iodata(), weir_http_request:request(), wanted()) ->
    {after_it(), iodata()}.
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

%% @doc Returns the response to a request that is refused. The connection is closed after it.
-spec refusal(Status :: 400..599, Reason :: atom()) -> binary().
refusal(Status, Reason) ->
    Body = <<(atom_to_binary(Reason))/binary, "\n">>,
    {close, Bytes} =
        weir_http_nif:response(Status, [{<<"content-type">>, <<"text/plain">>}], ?SAY_CLOSE, byte_size(Body), Body),
    Bytes.
