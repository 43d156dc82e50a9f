%% @private
%% @doc A connection whose request is served by a process: the protocol between the two. The bytes of the response go
%% through the reactor, so that they stay in order with other responses.
-module(weir_http_request_process).

-export([start/6]).
-export([data/4]).
-export([message/3]).
-export([writable/2]).
-export([killed/3]).
-export([stop/1]).

-include("weir_http.hrl").
-include("weir_http_states.hrl").

%% Bytes of the body or of further requests that may be buffered. Beyond that the connection is not read.
-define(INPUT, 65536).

%% @doc Starts the process of a request. Rest: the bytes received after the request. `begun': its response has begun.
-spec start(
    weir_http_routes:found(),
    weir_http_request:request(),
    Body,
    Rest :: binary(),
    {weir_http_response:wanted(), #idle{}},
    #http{}
) ->
    #busy{}
when
    Body :: whole | {begun, chunked | raw} | weir_http_body:body().
start({ok, Target, Bindings}, Request, Body, Rest, {Wanted, Idle}, Http) ->
    {Kind, Left, HasBegun} =
        case Body of
            whole -> {whole, whole, false};
            {begun, _} -> {Body, whole, true};
            _ -> {open, Body, false}
        end,
    {Pid, Monitor} = weir_http_worker:start(Target, weir_http_request:bind(Bindings, Request), Wanted, Kind, Http),
    #busy{
        idle = Idle, wanted = Wanted, pid = Pid, monitor = Monitor, bytes = Rest, body = Left, has_begun = HasBegun,
        request = weir_http_request:with_body(<<>>, <<>>, Request), seen = weir_http_observation:new(Request)
    }.

%% @doc Handles received bytes: of the body, or of further requests.
-spec data(weir_http_socket:socket(), binary(), #busy{}, #http{}) -> {ok, #busy{}} | weir_http_nif:refused().
data(Socket, Data, Busy = #busy{body = Body, bytes = Bytes}, #http{limits = Limits}) ->
    case is_complete(Body) of
        true -> {ok, bounded(Socket, Busy#busy{bytes = <<Bytes/binary, Data/binary>>})};
        false -> fed(Socket, weir_http_body:feed(Data, 0, Body, Limits), Data, Busy)
    end.

fed(Socket, Fed, Data, Busy) ->
    case Fed of
        {more, More} ->
            {ok, bounded(Socket, delivered(Busy#busy{body = More}))};
        {done, Bytes, Trailers, End} ->
            Rest = binary:copy(binary:part(Data, End, byte_size(Data) - End)),
            {ok, bounded(Socket, delivered(Busy#busy{body = {ended, Bytes, Trailers}, bytes = Rest}))};
        {refused, _, _} ->
            Fed
    end.

%% Sends buffered bytes of the body to the process if it waits for them.
delivered(Busy = #busy{is_reading = false}) ->
    Busy;
delivered(Busy = #busy{pid = Pid, body = {ended, Bytes, Trailers}}) ->
    Pid ! {weir_http, body, {done, Trailers}, Bytes},
    Busy#busy{body = whole, is_reading = false};
delivered(Busy = #busy{pid = Pid, body = Body}) ->
    case weir_http_body:take(Body) of
        {<<>>, _} ->
            Busy;
        {Bytes, More} ->
            Pid ! {weir_http, body, more, Bytes},
            Busy#busy{body = More, is_reading = false}
    end.

%% Pauses reading while too many bytes are buffered.
bounded(Socket, Busy = #busy{is_read = IsRead}) ->
    case waiting(Busy) =< ?INPUT of
        IsRead ->
            Busy;
        MayRead ->
            ok = weir_http_socket:active(Socket, MayRead),
            Busy#busy{is_read = MayRead}
    end.

waiting(#busy{body = whole, bytes = Bytes}) -> byte_size(Bytes);
waiting(#busy{body = {ended, Body, _}, bytes = Bytes}) -> byte_size(Body) + byte_size(Bytes);
waiting(#busy{body = Body}) -> weir_http_body:held(Body).

%% @doc Handles a message of the process.
-spec message(weir_http_socket:socket(), What, #busy{}) ->
    {ok, #busy{}}
    | {send, iodata(), #busy{}}
    | {finished, keep | close, iodata(), #busy{}}
    | {enter, Result, Request, #busy{}}
when
    What :: read | {more | sync | keep | close, iodata()} | {enter, Result, Request},
    Result :: weir_http_direct:result(),
    Request :: weir_http_request:request().
message(Socket, read, Busy) ->
    {ok, bounded(Socket, delivered(Busy#busy{is_reading = true}))};
message(_Socket, {more, Bytes}, Busy = #busy{seen = Seen}) ->
    {send, Bytes, Busy#busy{has_begun = true, seen = weir_http_observation:add(Bytes, Seen)}};
message(Socket, {sync, Bytes}, Busy = #busy{seen = Seen}) ->
    %% Written after the callback has returned; see writable/2.
    ok = weir_http_socket:notify_writable(Socket),
    {send, Bytes, Busy#busy{has_begun = true, is_waiting = true, seen = weir_http_observation:add(Bytes, Seen)}};
message(_Socket, {enter, Result, Request}, Busy = #busy{monitor = Monitor}) ->
    _ = erlang:demonitor(Monitor, [flush]),
    {enter, Result, Request, Busy};
message(_Socket, {After, Bytes}, Busy = #busy{monitor = Monitor, body = Body}) ->
    _ = erlang:demonitor(Monitor, [flush]),
    case is_complete(Body) of
        true -> {finished, After, Bytes, Busy};
        false -> {finished, close, Bytes, Busy}
    end.

is_complete(whole) -> true;
is_complete({ended, _, _}) -> true;
is_complete(_) -> false.

%% @doc Tells a waiting process when the client has read everything.
-spec writable(weir_http_socket:socket(), #busy{}) -> #busy{}.
writable(_Socket, Busy = #busy{is_waiting = false}) ->
    Busy;
writable(Socket, Busy = #busy{pid = Pid}) ->
    case weir_http_socket:pending(Socket) of
        0 ->
            Pid ! {weir_http, taken},
            Busy#busy{is_waiting = false};
        _ ->
            ok = weir_http_socket:notify_writable(Socket),
            Busy
    end.

%% @doc Reports that the process was killed. Returns the response, for a client that has received nothing yet.
-spec killed(Reason :: term(), #busy{}, #http{}) -> {weir_http_response:after_it(), iodata()}.
killed(Reason, #busy{request = Request}, #http{name = Name, counters = Counters, reports = Reports}) ->
    weir_http_crash:response(exit, Reason, [], Request, close, {Name, Counters, Reports}).

%% @doc Tells the process that the client disconnected. It ends unless it traps exits.
-spec stop(#busy{}) -> ok.
stop(#busy{pid = Pid, monitor = Monitor}) ->
    _ = erlang:demonitor(Monitor, [flush]),
    weir_http_process:client_gone(Pid).
