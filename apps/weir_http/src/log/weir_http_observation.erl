%% @private
%% @doc Events and access log lines for requests and connections. {@link weir_http} describes the events.
%%
%% Requests are timed only if there is an access log or an attached event handler. Without them, nothing here is called
%% per request.
-module(weir_http_observation).

-export([listen/0]).
-export([begun/1]).
-export([new/1]).
-export([lasting/1]).
-export([add/2]).
-export([answered/3]).
-export([stop/3]).
-export([refused/4]).
-export([timeout/3]).
-export([crashed/3]).
-export([connected/2]).
-export([disconnected/2]).



-export_type([seen/0, since/0]).

-include("weir_http.hrl").
-include("weir_http_states.hrl").

-define(STOP, [weir, request, stop]).
-define(EXCEPTION, [weir, request, exception]).
-define(REFUSE, [weir, request, refuse]).
-define(TIMEOUT, [weir, request, timeout]).
-define(CONNECTED, [weir, connection, start]).
-define(DISCONNECTED, [weir, connection, stop]).

-record(seen, {
    request :: weir_http_request:request(), status = 0 :: non_neg_integer(), bytes = 0 :: non_neg_integer()
}).

-type seen() :: #seen{} | unseen.
%% A request whose response goes out in pieces: its status, and the bytes of the body so far.

-type since() :: {integer(), weir_http_socket:socket()} | undefined.

%% @doc Checks whether an event handler for requests is attached, and remembers it in the calling process. Called for
%% each connection and each tick: to check for each request would cost more than everything else here.
-spec listen() -> ok.
listen() ->
    _ = put(?MODULE, weir_event:is_attached(?STOP)),
    ok.

%% @doc Returns the start time of a request; `undefined' if neither the log nor an event handler wants it.
-spec begun(#http{}) -> integer() | undefined.
begun(#http{log = off}) ->
    case get(?MODULE) of
        true -> erlang:monotonic_time();
        _ -> undefined
    end;
begun(#http{}) ->
    erlang:monotonic_time().

%% @doc Begins to observe a request that a process serves.
-spec new(weir_http_request:request()) -> seen().
new(Request) ->
    case weir_http_request:begun(Request) of
        undefined -> unseen;
        _ -> #seen{request = weir_http_request:with_body(<<>>, <<>>, Request)}
    end.

%% @doc Like new/1, for a request that may last: copies its parts, so that it keeps no other input alive.
-spec lasting(weir_http_request:request()) -> seen().
lasting(Request) ->
    case weir_http_request:begun(Request) of
        undefined -> unseen;
        _ -> new(weir_http_request:copy(Request))
    end.

%% @doc Adds a piece of the response. The first piece contains the head.
-spec add(weir_http_response:output(), seen()) -> seen().
add(_Bytes, unseen) ->
    unseen;
add({pieces, Size, [Head | _]}, Seen = #seen{status = 0}) ->
    Begun = #seen{bytes = Bytes} = add(Head, Seen),
    Begun#seen{bytes = Bytes + Size - iolist_size(Head)};
add(Bytes, Seen = #seen{status = 0}) ->
    case head(Bytes) of
        <<"HTTP/1.1 ", A, B, C, _/binary>> = Head ->
            {End, 4} = binary:match(Head, <<"\r\n\r\n">>),
            Seen#seen{status = (A - $0) * 100 + (B - $0) * 10 + C - $0, bytes = iolist_size(Bytes) - End - 4};
        _ ->
            Seen
    end;
add(Bytes, Seen = #seen{bytes = Before}) ->
    Seen#seen{bytes = Before + iolist_size(Bytes)}.

%% weir_http_response makes the head as one binary.
head(Head) when is_binary(Head) -> Head;
head([Head | _]) when is_binary(Head) -> Head;
head(Bytes) -> iolist_to_binary(Bytes).

%% @doc Reports a request that was answered at once. Does nothing if its response is still to come.
-spec answered(
    weir_http_request:request(), {weir_http_response:after_it(), weir_http_response:output()} | tuple(), #http{}
) -> ok.
answered(Request, {After, Response}, Http) when After =:= keep; After =:= close ->
    over(add(Response, #seen{request = Request}), normal, Http);
answered(_Request, _GoesOn, _Http) ->
    ok.

%% @doc Reports the end of a request. `normal': the response was complete.
-spec stop(seen(), normal | client_gone | process_ended, Key :: term()) -> ok.
stop(unseen, _Reason, _Key) ->
    ok;
stop(Seen, Reason, Key) ->
    case persistent_term:get(Key, forgotten) of
        forgotten -> ok;
        Http -> over(Seen, Reason, Http)
    end.

over(#seen{request = Request, status = Sent, bytes = Bytes}, Reason, #http{name = Name, log = Log}) ->
    Now = erlang:monotonic_time(),
    Duration = Now - weir_http_request:begun(Request),
    Status = status(Sent, Reason),
    _ = get(?MODULE) =:= true andalso
        weir_event:execute(
            ?STOP,
            #{monotonic_time => Now, duration => Duration, bytes => Bytes},
            (of_request(Request, Name))#{status => Status, reason => Reason}
        ),
    case Log of
        off ->
            ok;
        _ ->
            Microseconds = erlang:convert_time_unit(Duration, native, microsecond),
            Numbers = {Status, Bytes, Microseconds},
            log({peer(Request), weir_http_request:parts(Request), Numbers, weir_http_request:id(Request)}, Log)
    end.

log({Peer, Request, Numbers, Id}, Log) ->
    weir_http_log:line(weir_http_nif:log_line(weir_http_log:is_json(Log), Peer, Request, Numbers, Id), Log).

%% 499 as in nginx: the client disconnected before the response.
status(0, client_gone) -> 499;
status(0, process_ended) -> 500;
%% A group answered the held request. Its frame was not made here, so the status is unknown.
status(0, normal) -> 200;
status(Status, _Reason) -> Status.

%% @doc Reports a request that was refused.
-spec refused(weir_tcp:socket(), weir_http_request:client(), {400..599, Reason :: atom()}, #http{}) -> ok.
refused(Socket, Client, {Status, Reason}, #http{name = Name, log = Log}) ->
    _ = weir_event:is_attached(?REFUSE) andalso
        weir_event:execute(?REFUSE, #{count => 1}, (about(Socket, Client, Name))#{status => Status, reason => Reason}),
    case Log of
        off ->
            ok;
        _ ->
            log({peer(Socket, Client), undefined, {Status, 0, 0}, undefined}, Log)
    end.

%% @doc Reports a connection that was closed after a timeout.
-spec timeout(weir_tcp:socket(), weir_http_request:client(), #http{}) -> ok.
timeout(Socket, Client, #http{name = Name}) ->
    _ =
        weir_event:is_attached(?TIMEOUT) andalso
            weir_event:execute(?TIMEOUT, #{count => 1}, about(Socket, Client, Name)),
    ok.

%% @doc Reports a handler that failed.
-spec crashed({error | exit | throw, term(), Stack :: list()}, weir_http_request:request(), weir_listener:name()) -> ok.
crashed({Class, Reason, Stack}, Request, Name) ->
    _ = weir_event:is_attached(?EXCEPTION) andalso
        weir_event:execute(
            ?EXCEPTION,
            #{count => 1},
            (of_request(Request, Name))#{kind => Class, reason => Reason, stacktrace => Stack}
        ),
    ok.

of_request(Request, Name) ->
    #{
        name => Name,
        method => weir_http_request:method(Request),
        path => weir_http_request:path(Request),
        request_id => weir_http_request:id(Request),
        peer => peer(Request),
        socket => weir_http_request:socket(Request),
        pid => self()
    }.

peer(Request) -> named(weir_http_request:peer(Request)).

peer(Socket, undefined) -> named(weir_http_socket:peername(Socket));
peer(_Socket, Client) -> Client.

named({ok, Peer}) -> Peer;
named({error, _}) -> undefined.

about(Socket, Client, Name) ->
    #{name => Name, peer => peer(Socket, Client), socket => weir_http_socket:public(Socket), pid => self()}.

%%% Connections.

%% @doc Reports a new connection. Returns the peer if log or events need it, and the start time if events do.
-spec connected(weir_http_socket:socket(), #http{}) -> {weir_http_request:client(), since()}.
connected(Socket, Http) ->
    case weir:proxy_header() of
        {ok, #{src_address := Address, src_port := Port}} -> connected(Socket, {Address, Port}, Http);
        _ -> connected(Socket, undefined, Http)
    end.

connected(Socket, Client, #http{name = Name, log = Log}) ->
    %% A connection may be for one request only: one check covers all events while none is attached.
    IsAny = weir_event:is_any_attached([?STOP, ?CONNECTED, ?DISCONNECTED]),
    _ = put(?MODULE, IsAny andalso weir_event:is_attached(?STOP)),
    %% For TLS the listener emits these events.
    case
        IsAny andalso not weir_http_socket:is_tls(Socket) andalso
            weir_event:is_any_attached([?CONNECTED, ?DISCONNECTED])
    of
        true ->
            Now = erlang:monotonic_time(),
            Metadata = #{peer := Peer} = about(Socket, Client, Name),
            ok = weir_event:execute(
                ?CONNECTED, #{monotonic_time => Now, system_time => erlang:system_time()}, Metadata
            ),
            {Peer, {Now, Socket}};
        false when Log =:= off ->
            {Client, undefined};
        false ->
            {peer(Socket, Client), undefined}
    end.

%% @doc Reports the end of a connection. Flushes the log, because no other connection may follow that would.
-spec disconnected(term(), #idle{}) -> ok.
disconnected(_Reason, #idle{since = undefined}) ->
    weir_http_log:flush();
disconnected(Reason, #idle{since = {Start, Socket}, client = Client, key = Key}) ->
    ok = weir_http_log:flush(),
    case persistent_term:get(Key, forgotten) of
        #http{name = Name} ->
            Now = erlang:monotonic_time(),
            Measurements = #{monotonic_time => Now, duration => Now - Start},
            weir_event:execute(?DISCONNECTED, Measurements, (about(Socket, Client, Name))#{reason => Reason});
        forgotten ->
            ok
    end.
