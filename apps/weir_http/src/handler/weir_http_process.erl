%% @doc A handler that runs in its own process, for code that waits: for a database, another service, a file.
%%
%% ```
%% -module(report).
%% -behaviour(weir_http_process).
%% -export([serve/2]).
%%
%% serve(Request, Database) ->
%%     Rows = database:rows(Database, weir_http_request:binding(id, Request)),
%%     {reply, 200, [{<<"content-type">>, <<"text/csv">>}], Rows}.
%% '''
%%
%% It is called once for each request, in a new process. It may return what a {@link weir_http_direct} handler may, and
%% `streamed' or `{streamed, Trailers}' after {@link stream/3}. So it can authenticate the client first and then return
%% `{websocket, Module, State}', an event stream or a held request, which continue in the reactor; a body that comes in
%% pieces must have been read to its end before that. A failure is logged, and the client gets a 500; if the response
%% has begun, the connection is closed, which shows the client that it is incomplete. The requests of one connection
%% are served one after the other.
%%
%% Trailers are fields after a response in chunks: a checksum, the time that it took. Fields that change how the
%% response is read (such as Content-Type, Set-Cookie, Vary) are refused there. Clients of HTTP/1.0 and HEAD requests
%% get none, and many others ignore them.
%%
%% Call these functions only in that process. They find the connection in its dictionary.
%%
%% <h2>Disconnected clients</h2>
%% When the connection is closed, the process gets an exit signal at once, with the
%% reason `{shutdown, client_gone}', also while it waits for something else. If it traps exits, it gets the message
%% `{'EXIT', Pid, {shutdown, client_gone}}' and may continue; {@link send/1} and {@link read_body/0} then return
%% `{error, closed}'. While a client has more than 64 KiB of pipelined requests buffered, its connection is not read,
%% so its close is noticed only after the response.
%%
%% <h2>Bodies</h2>
%% The whole body has arrived when the process starts, unless the route has `body => stream'. Then
%% {@link read_body/0} returns it in pieces; the connection is not read while more than 64 KiB wait to be read. If the
%% body was not read to its end, the rest is not awaited: the connection is closed after the response.
-module(weir_http_process).

-export([stream/3]).
-export([send/1]).
-export([read_body/0]).

%% For the process itself.
-export([begin_with/4]).
-export([file/1]).
-export([finish/1]).
-export([has_begun/0]).
-export([is_body_open/0]).

%% For its connection.
-export([client_gone/1]).

-export_type([handler/0, result/0, body/0]).

-type result() :: weir_http_direct:result() | streamed | {streamed, Trailers :: weir_http_direct:fields()}.

-type handler() :: fun((weir_http_request:request(), State :: term()) -> result()).

-type body() :: whole | open | {begun, chunked | raw}.

-callback serve(weir_http_request:request(), State :: term()) -> result().

%% Bytes that may be on their way to the client before the process waits until it has read them.
-define(WINDOW, 65536).

-record(exchange, {
    socket :: weir_http_socket:socket(),
    request :: weir_http_request:request(),
    wanted :: weir_http_response:wanted(),
    %% Whether the body was read to its end.
    body :: body(),
    response = none :: none | chunked | raw | nothing,
    unconfirmed = 0 :: non_neg_integer()
}).

%% @doc Begins a response whose body follows with {@link send/1}; the handler then returns `streamed'. The fields are
%% as in a reply. The body is sent in chunks, to clients of HTTP/1.0 until the connection is closed, and for HEAD not
%% at all. Fails with `response_has_begun', for a field that may not be sent, and for a status without a body (204,
%% 304).
-spec stream(weir_http_request:request(), weir_http_direct:status(), weir_http_direct:fields()) -> ok | {error, closed}.
stream(Request, Status, Fields) ->
    Exchange = #exchange{response = Response} = exchange(),
    Response =:= none orelse error(response_has_begun),
    {Kind, After, Head} = weir_http_response:stream(Status, Fields, Request, wanted(Exchange)),
    give(more, Head, Exchange#exchange{response = Kind, wanted = After}).

%% @doc Sends a piece of the body. Returns at once while less than 64 KiB are on their way; otherwise it waits until
%% the client has read them. A client that reads nothing for the `idle_timeout' of the listener is disconnected. Fails
%% with `response_has_not_begun'.
-spec send(iodata()) -> ok | {error, closed}.
send(Data) ->
    case exchange() of
        #exchange{response = none} -> error(response_has_not_begun);
        #exchange{response = nothing} -> ok;
        #exchange{response = Kind} = Exchange -> send(iolist_size(Data), Data, Kind, Exchange)
    end.

send(0, _Data, _Kind, _Exchange) ->
    ok;
send(Size, Data, Kind, Exchange = #exchange{unconfirmed = Unconfirmed}) when
    Unconfirmed > 0, Unconfirmed + Size > ?WINDOW
->
    case give(sync, <<>>, Exchange) of
        ok -> send(Size, Data, Kind, exchange());
        {error, closed} = Error -> Error
    end;
send(Size, Data, Kind, Exchange = #exchange{unconfirmed = Unconfirmed}) ->
    Bytes = framed(Kind, Size, Data),
    case Unconfirmed + Size >= ?WINDOW of
        true -> give(sync, Bytes, Exchange);
        false -> give(more, Bytes, Exchange#exchange{unconfirmed = Unconfirmed + Size})
    end.

framed(raw, _Size, Data) -> Data;
framed(chunked, Size, Data) -> [integer_to_binary(Size, 16), <<"\r\n">>, Data, <<"\r\n">>].

%% @doc Waits for and returns the next piece of a body that comes in pieces. `done' comes with the last bytes, which
%% may be empty, and on every further call. The trailers are in the order received.
-spec read_body() -> {more, binary()} | {done, binary(), Trailers :: [{binary(), binary()}]} | {error, closed}.
read_body() ->
    case exchange() of
        #exchange{body = whole} ->
            {done, <<>>, []};
        #exchange{socket = Socket} = Exchange ->
            case tell(Socket, read) of
                ok -> receive_body(Exchange);
                {error, closed} = Error -> Error
            end
    end.

receive_body(Exchange) ->
    receive
        {weir_http, body, more, Bytes} ->
            {more, Bytes};
        {weir_http, body, {done, Trailers}, Bytes} ->
            ok = keep(Exchange#exchange{body = whole}),
            {done, Bytes, weir_http_nif:fields(Trailers)};
        {weir_http, gone} = Gone ->
            gone(Gone)
    end.

%%% The connection.

give(Kind, Bytes, Exchange = #exchange{socket = Socket}) ->
    ok = keep(Exchange),
    case tell(Socket, {Kind, Bytes}) of
        ok when Kind =:= sync -> confirmed(Exchange);
        ok -> ok;
        {error, closed} = Error -> Error
    end.

confirmed(Exchange) ->
    receive
        {weir_http, taken} -> keep(Exchange#exchange{unconfirmed = 0});
        {weir_http, gone} = Gone -> gone(Gone)
    end.

%% The message stays in the mailbox for later calls.
gone(Gone) ->
    self() ! Gone,
    {error, closed}.

tell(Socket, What) -> weir_http_socket:tell(Socket, {weir_http, Socket, self(), What}).

%%% The process.

%% @private
%% @doc Sets the request that the calling process serves.
-spec begin_with(weir_http_socket:socket(), weir_http_request:request(), weir_http_response:wanted(), body()) -> ok.
begin_with(Socket, Request, Wanted, {begun, Response}) ->
    keep(#exchange{socket = Socket, request = Request, wanted = Wanted, body = whole, response = Response});
begin_with(Socket, Request, Wanted, Body) ->
    keep(#exchange{socket = Socket, request = Request, wanted = Wanted, body = Body}).

%% @private
%% @doc Makes a response with a file. If the connection can send files, returns it for {@link finish/1}. Otherwise
%% (TLS) reads the file and sends it here.
-spec file(weir_http_file:response()) ->
    result() | {made, {weir_http_response:after_it(), weir_http_response:output()}}.
file({pieces, Status, Fields, Length, Pieces}) ->
    Exchange = #exchange{socket = Socket, request = Request, response = none} = exchange(),
    case weir_http_socket:sends_files(Socket) of
        true ->
            {made, weir_http_response:pieces(Status, Fields, Length, Pieces, Request, wanted(Exchange))};
        false ->
            {Kind, After, Head} = weir_http_response:sized(Status, Fields, Length, Request, wanted(Exchange)),
            Begun = give(more, Head, Exchange#exchange{response = Kind, wanted = After}),
            _ = Begun =:= ok andalso Kind =/= nothing andalso send_pieces(weir_http_file:read(Pieces, <<>>)),
            streamed
    end;
file(Other) ->
    Other.

send_pieces({Bytes, Pieces}) ->
    case send(Bytes) of
        ok -> send_pieces(weir_http_file:read(Pieces, <<>>));
        {error, closed} -> ok
    end;
send_pieces(done) ->
    ok.

%% @private
%% @doc Whether the caller serves a request whose body has not been read to its end.
-spec is_body_open() -> boolean().
is_body_open() ->
    case get(?MODULE) of
        #exchange{body = open} -> true;
        _ -> false
    end.

%% @private
%% @doc Whether the response has begun.
-spec has_begun() -> boolean().
has_begun() ->
    #exchange{response = Response} = exchange(),
    Response =/= none.

%% @private
%% @doc Ends the response: of a stream, or with the result of the handler. Fails if that may not be sent. Results that
%% continue without this process are passed to the reactor.
-spec finish(result() | {made, Made} | {crash, fun((weir_http_response:wanted()) -> Made)}) -> ok | {error, closed} when
    Made :: {weir_http_response:after_it(), weir_http_response:output()}.
finish(streamed) ->
    finish({streamed, []});
finish({streamed, Trailers} = Result) ->
    Lines = weir_http_response:trailers(Trailers),
    case exchange() of
        #exchange{response = none} ->
            error({bad_return_value, Result});
        #exchange{response = chunked, wanted = After, socket = Socket} ->
            tell(Socket, {After, [<<"0\r\n">>, Lines, <<"\r\n">>]});
        #exchange{wanted = After, socket = Socket} ->
            tell(Socket, {After, <<>>})
    end;
finish(Result) when element(1, Result) =:= events; element(1, Result) =:= hold; element(1, Result) =:= websocket ->
    case exchange() of
        #exchange{response = none, body = whole, socket = Socket, request = Request} ->
            tell(Socket, {enter, Result, Request});
        _ ->
            error({bad_return_value, Result})
    end;
finish(Result) ->
    Exchange = #exchange{socket = Socket, request = Request, response = Response} = exchange(),
    Response =:= none orelse error({bad_return_value, Result}),
    Wanted = wanted(Exchange),
    Made =
        case Result of
            {crash, Plain} -> Plain(Wanted);
            {made, Already} -> Already;
            _ -> weir_http_response:reply(Result, Request, Wanted)
        end,
    tell(Socket, Made).

%% If the body is not read to its end, the start of the next request is unknown.
wanted(#exchange{body = open, wanted = keep}) -> close;
wanted(#exchange{wanted = Wanted}) -> Wanted.

%% @private
%% @doc Tells the process of a request that its client disconnected. It ends unless it traps exits.
-spec client_gone(pid()) -> ok.
client_gone(Pid) ->
    Pid ! {weir_http, gone},
    _ = exit(Pid, {shutdown, client_gone}),
    ok.

exchange() ->
    case get(?MODULE) of
        undefined -> error(not_a_process_of_weir_http);
        Exchange -> Exchange
    end.

keep(Exchange) ->
    _ = put(?MODULE, Exchange),
    ok.
