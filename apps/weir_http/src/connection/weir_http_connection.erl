%% @private
%% @doc A connection: the reactor callbacks that turn bytes into requests and responses into bytes.
%%
%% Between requests a connection's state is an `#idle{}'. All connections of a reactor share one until they differ: it
%% costs no memory, and answering a request does not change it.
%%
%% Timeouts are counted in ticks of the reactor, so no connection has a timer. Connections with nothing due sleep
%% through ticks.
-module(weir_http_connection).
-behaviour(weir_reactor).

-export([arguments/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).
-export([handle_writable/2]).
-export([handle_info/2]).
-export([begin_tick/1]).
-export([handle_tick/2]).
-export([terminate/2]).

-include("weir_http.hrl").
-include("weir_http_states.hrl").

%% Bytes that may be buffered while the client has not read the earlier responses. Beyond that the connection is not
%% read.
-define(INPUT, 65536).

%% @doc Returns the arguments for the reactors of the listener with that key.
-spec arguments(Key :: term()) -> term().
arguments(Key) -> #idle{key = Key}.

-spec init(weir_http_socket:socket(), #idle{}) -> weir_reactor:result().
init(Socket, Idle = #idle{key = Key}) ->
    case weir_http_observation:connected(Socket, persistent_term:get(Key)) of
        {undefined, undefined} -> {ok, #head{idle = Idle}};
        {Client, Since} -> {ok, #head{idle = Idle#idle{client = Client, since = Since}}}
    end.

%% `enodata': a file became shorter while it was sent. The next request may have arrived, so the state can be any.
-spec handle_close(weir_http_socket:socket(), term(), term()) -> {ok, term()}.
handle_close(_Socket, Reason, State) ->
    _ = Reason =:= enodata andalso cut(State),
    {ok, State}.

cut(State) ->
    #idle{key = Key} = idle(State),
    weir_http_counters:add_for(Key, cut_off).

%%% Bytes.

-spec handle_data(weir_http_socket:socket(), binary(), term()) -> weir_reactor:result().
handle_data(Socket, Data, Idle = #idle{until = Until}) when Until =/= awake ->
    ok = weir_http_socket:tick_soon(Socket),
    handle_data(Socket, Data, weir_http_timeouts:woken(Idle));
handle_data(Socket, Data, Idle = #idle{key = Key}) ->
    requests(Socket, Data, 0, weir_http_batch:new(), Idle, persistent_term:get(Key));
handle_data(Socket, Data, #head{bytes = <<>>, idle = Idle = #idle{key = Key}}) ->
    requests(Socket, Data, 0, weir_http_batch:new(), Idle, persistent_term:get(Key));
handle_data(Socket, Data, Head = #head{bytes = Before, idle = Idle = #idle{key = Key}}) ->
    Http = persistent_term:get(Key),
    Bytes = <<Before/binary, Data/binary>>,
    case weir_http_head:is_worth_reading(byte_size(Before), Bytes, Http#http.limits) of
        true -> head(Socket, Bytes, Head, Idle, Http);
        false -> {ok, Head#head{bytes = Bytes}}
    end;
handle_data(Socket, Data, Body = #body{idle = #idle{key = Key}}) ->
    body(Socket, Data, 0, weir_http_batch:new(), Body, persistent_term:get(Key));
handle_data(Socket, Data, Paused = #paused{bytes = Bytes}) ->
    More = <<Bytes/binary, Data/binary>>,
    IsRead = byte_size(More) =< ?INPUT,
    _ = IsRead orelse weir_http_socket:active(Socket, false),
    {ok, Paused#paused{bytes = More, is_read = IsRead}};
handle_data(Socket, Data, Busy = #busy{idle = #idle{key = Key}}) ->
    Http = persistent_term:get(Key),
    case weir_http_request_process:data(Socket, Data, Busy, Http) of
        {ok, NewBusy} ->
            {ok, NewBusy};
        {refused, _Status, _Reason} when Busy#busy.has_begun ->
            {close, Busy};
        {refused, Status, Reason} ->
            ok = weir_http_request_process:stop(Busy),
            refuse(Socket, {Status, Reason}, weir_http_batch:new(), Busy#busy.idle, Http)
    end;
handle_data(Socket, Data, Switched = #switched{module = Module, state = State, idle = #idle{key = Key}}) ->
    switched(Module:data(Socket, Data, State, Key), Socket, Switched, weir_http_batch:new());
handle_data(_Socket, _Data, Closing = #closing{}) ->
    {ok, Closing}.

head(Socket, Bytes, Head, Idle, Http = #http{limits = Limits}) ->
    case weir_http_nif:head(Bytes, 0, Limits) of
        more -> {ok, Head#head{bytes = Bytes}};
        _ -> requests(Socket, Bytes, 0, weir_http_batch:new(), Idle, Http)
    end.

%% Serves all requests in Data from Offset on.
requests(Socket, Data, Offset, Out, Idle, Http = #http{limits = Limits}) ->
    case weir_http_nif:head(Data, Offset, Limits) of
        Head when tuple_size(Head) =:= 7 ->
            ok = weir_http_counters:add(Http#http.counters, requests),
            Asked = weir_http_request:new(Head, Socket, Idle#idle.client, weir_http_observation:begun(Http)),
            {Found, Request} = weir_http_answer:target(Asked, Http),
            case element(6, Head) of
                0 -> answer(Socket, Data, element(7, Head), Out, Found, Request, Idle, Http);
                Length -> begin_body(Socket, Data, element(7, Head), Length, Out, Found, Request, Idle, Http)
            end;
        more ->
            begin_head(binary:part(Data, Offset, byte_size(Data) - Offset), Out, Idle);
        {refused, Status, Reason} ->
            refuse(Socket, {Status, Reason}, Out, Idle, Http)
    end.

%% Skips an empty line between requests.
begin_head(<<"\r\n">>, Out, Idle) -> weir_http_batch:result(Out, Idle);
begin_head(Bytes, Out, Idle) -> weir_http_batch:result(Out, #head{idle = Idle, bytes = binary:copy(Bytes)}).

%% The request is complete, with its body.
answer(_Socket, Data, End, Out, Found = {ok, #{kind := process}, _}, Request, Idle, Http) ->
    weir_http_batch:result(
        Out,
        weir_http_request_process:start(
            Found, Request, whole, rest(Data, End), {wanted(Request, End < byte_size(Data), Idle, Http), Idle}, Http
        )
    );
answer(Socket, Data, End, Out, Found, Request, Idle, Http) ->
    IsLast = End =:= byte_size(Data),
    Wanted = wanted(Request, not IsLast, Idle, Http),
    case weir_http_answer:answer(Found, Request, Wanted, Http) of
        {keep, Response} when IsLast -> weir_http_batch:result(weir_http_batch:add(Response, Out), served(Idle, Http));
        {keep, Response} ->
            go_on(Socket, Data, End, weir_http_batch:add(Response, Out), served(Idle, Http), Http);
        %% The client asked for the close and sends nothing more.
        {close, Response} when IsLast, Wanted =:= asked ->
            {close, weir_http_batch:bytes(weir_http_batch:add(Response, Out)), Idle};
        {close, Response} ->
            close_later(Socket, weir_http_batch:add(Response, Out), Idle);
        {process, Serving} ->
            weir_http_batch:result(
                Out, weir_http_request_process:start(Serving, Request, whole, rest(Data, End), {Wanted, Idle}, Http)
            );
        {switched, Module, Bytes, State} ->
            Seen = weir_http_observation:add(Bytes, weir_http_observation:lasting(Request)),
            switch(Socket, rest(Data, End), weir_http_batch:add(Bytes, Out), #switched{
                idle = Idle, module = Module, state = State, seen = Seen
            })
    end.

switch(_Socket, <<>>, Out, Switched) ->
    weir_http_batch:result(Out, Switched);
switch(Socket, Rest, Out, Switched = #switched{idle = #idle{key = Key}, module = Module, state = State}) ->
    switched(Module:data(Socket, Rest, State, Key), Socket, Switched, Out).

%% Handles the result of a switched connection's callback. An unchanged state costs no memory.
switched({ok, State}, _Socket, Switched = #switched{state = State}, Out) ->
    weir_http_batch:result(Out, Switched);
switched({ok, State}, _Socket, Switched, Out) ->
    weir_http_batch:result(Out, Switched#switched{state = State});
switched({send, Bytes, State}, _Socket, Switched = #switched{state = State, seen = unseen}, Out) ->
    weir_http_batch:result(weir_http_batch:add(Bytes, Out), Switched);
switched({send, Bytes, State}, _Socket, Switched = #switched{seen = Seen}, Out) ->
    weir_http_batch:result(weir_http_batch:add(Bytes, Out), Switched#switched{
        state = State, seen = weir_http_observation:add(Bytes, Seen)
    });
switched({close, Bytes}, _Socket, Switched = #switched{idle = Idle}, Out) ->
    ok = heard(Bytes, Switched),
    {close, weir_http_batch:bytes(weir_http_batch:add(Bytes, Out)), Idle};
switched({sleep, Until, State}, _Socket, Switched = #switched{idle = #idle{key = Key}}, _Out) ->
    {sleep, weir_http_timeouts:ticks_until(Until, persistent_term:get(Key)), Switched#switched{state = State}};
switched({close_later, Bytes}, Socket, Switched = #switched{idle = Idle}, Out) ->
    ok = heard(Bytes, Switched),
    ok = weir_http_socket:tick_soon(Socket),
    close_later(Socket, weir_http_batch:add(Bytes, Out), Idle);
switched({process, Process, Bytes}, Socket, #switched{idle = Idle = #idle{key = Key}, seen = Seen}, Out) ->
    #{found := Found, request := Request, body := Body, wanted := Wanted, rest := Rest, is_read := IsRead} = Process,
    Busy = weir_http_request_process:start(Found, Request, Body, Rest, {Wanted, Idle}, persistent_term:get(Key)),
    ok = weir_http_socket:tick_soon(Socket),
    weir_http_batch:result(weir_http_batch:add(Bytes, Out), Busy#busy{
        is_read = IsRead, seen = weir_http_observation:add(Bytes, Seen)
    });
switched({finished, Wanted, Bytes, Rest, IsRead}, Socket, Switched = #switched{idle = Idle}, Out) ->
    ok = heard(Bytes, Switched),
    ok = weir_http_socket:tick_soon(Socket),
    finished(Socket, Wanted, weir_http_batch:add(Bytes, Out), Rest, IsRead, Idle).

heard(Bytes, #switched{seen = Seen, idle = #idle{key = Key}}) ->
    weir_http_observation:stop(weir_http_observation:add(Bytes, Seen), normal, Key).

go_on(Socket, Data, Offset, Out, Idle, Http) ->
    case weir_http_batch:is_full(Out) of
        false -> requests(Socket, Data, Offset, Out, Idle, Http);
        true -> pause(Socket, Out, #paused{idle = Idle, bytes = rest(Data, Offset)})
    end.

%% The responses are written after the callback has returned. See handle_writable/2.
pause(Socket, Out, Paused) ->
    ok = weir_http_socket:notify_writable(Socket),
    weir_http_batch:result(Out, Paused).

%% Copies the rest: a sub-binary would keep all of Data alive.
rest(Data, Offset) -> binary:copy(binary:part(Data, Offset, byte_size(Data) - Offset)).

%% Returns what happens to the connection unless the handler closes it. `asked': the client asked for a close. During a
%% drain, requests that have already arrived are still answered.
wanted(Request, HasMore, #idle{requests = Requests}, Http = #http{max_requests = Max}) ->
    case weir_http_request:is_keep_alive(Request) of
        false -> asked;
        true when Requests + 1 >= Max -> close;
        true when HasMore -> keep;
        true -> wanted(weir_http_timeouts:is_draining(Http))
    end.

wanted(true) -> close;
wanted(false) -> keep.

served(Idle = #idle{quiet = 0}, #http{max_requests = infinity}) -> Idle;
served(Idle, #http{max_requests = infinity}) -> Idle#idle{quiet = 0, pending = 0};
served(Idle = #idle{requests = Requests}, _Http) -> Idle#idle{requests = Requests + 1, quiet = 0, pending = 0}.

begin_body(Socket, Data, End, Length, Out, Found, Request, Idle, Http) ->
    Here = byte_size(Data) - End,
    case weir_http_body:new(Length, weir_http_answer:max_body(Found, Http)) of
        {refused, Status, Reason} ->
            refuse(Socket, {Status, Reason}, Out, Idle, Http);
        {ok, Body} when Length >= 0, Here >= Length ->
            body(Socket, Data, End, Out, #body{idle = Idle, request = Request, found = Found, body = Body}, Http);
        {ok, Body} ->
            Coming = #body{idle = Idle, request = weir_http_request:copy(Request), found = Found, body = Body},
            case Here =:= 0 andalso weir_http_request:expects_continue(Request) of
                true -> continue(Socket, Out, Coming, Http);
                false -> body(Socket, Data, End, Out, Coming, Http)
            end
    end.

continue(Socket, Out, Coming = #body{found = {ok, _, _}}, Http) ->
    body(Socket, <<>>, 0, weir_http_batch:add(<<"HTTP/1.1 100 Continue\r\n\r\n">>, Out), Coming, Http);
continue(Socket, Out, #body{found = Found, request = Request, idle = Idle}, Http) ->
    %% The client waits for this answer, and may then send the body or not.
    {_, Response} = weir_http_answer:answer(Found, Request, close, Http),
    close_later(Socket, weir_http_batch:add(Response, Out), Idle).

body(Socket, Data, Offset, Out, Coming = #body{body = Body, request = Request, found = Found, idle = Idle}, Http) ->
    case weir_http_body:feed(Data, Offset, Body, Http#http.limits) of
        {done, Bytes, Trailers, End} ->
            answer(Socket, Data, End, Out, Found, weir_http_request:with_body(Bytes, Trailers, Request), Idle, Http);
        {more, More} ->
            weir_http_batch:result(Out, coming(Found, More, Coming, Http));
        {refused, Status, Reason} ->
            refuse(Socket, {Status, Reason}, Out, Idle, Http)
    end.

%% A handler that reads the body in pieces starts before the body is complete.
coming(Found = {ok, #{body := stream}, _}, Body, #body{request = Request, idle = Idle}, Http) ->
    weir_http_request_process:start(Found, Request, Body, <<>>, {wanted(Request, false, Idle, Http), Idle}, Http);
coming(_Found, Body, Coming, _Http) ->
    Coming#body{body = Body}.

refuse(Socket, Why = {Status, Reason}, Out, Idle = #idle{client = Client}, Http = #http{counters = Counters}) ->
    ok = weir_http_counters:add(Counters, refused),
    ok = weir_http_observation:refused(Socket, Client, Why, Http),
    close_later(Socket, weir_http_batch:add(weir_http_response:refusal(Status, Reason), Out), Idle).

%% The client may still be sending. Closing now would send a reset, which can overtake the response. So we shut down
%% our direction once the response is out (see handle_writable/2), and give the client time to read it.
close_later(Socket, Out, Idle) ->
    ok = weir_http_socket:notify_writable(Socket),
    weir_http_batch:result(Out, #closing{idle = Idle}).

-spec handle_writable(weir_http_socket:socket(), term()) -> weir_reactor:result().
handle_writable(Socket, Paused = #paused{idle = Idle = #idle{key = Key}, bytes = Bytes, is_read = IsRead}) ->
    case weir_http_socket:pending(Socket) of
        0 ->
            read(Socket, IsRead),
            requests(Socket, Bytes, 0, weir_http_batch:new(), Idle, persistent_term:get(Key));
        _ ->
            ok = weir_http_socket:notify_writable(Socket),
            {ok, Paused}
    end;
handle_writable(Socket, Closing = #closing{}) ->
    ok =
        case weir_http_socket:pending(Socket) of
            0 -> weir_http_socket:shutdown_write(Socket);
            _ -> weir_http_socket:notify_writable(Socket)
        end,
    {ok, Closing};
handle_writable(Socket, Busy = #busy{}) ->
    {ok, weir_http_request_process:writable(Socket, Busy)};
handle_writable(Socket, Switched = #switched{module = Module, state = State, idle = #idle{key = Key}}) ->
    switched(Module:writable(Socket, State, Key), Socket, Switched, weir_http_batch:new());
handle_writable(_Socket, State) ->
    {ok, State}.

-spec handle_info(term(), term()) -> weir_reactor:result().
handle_info({weir_http, Socket, Pid, What}, Busy = #busy{pid = Pid}) ->
    case weir_http_request_process:message(Socket, What, Busy) of
        {finished, After, Bytes, #busy{idle = Idle, wanted = Wanted, bytes = Rest, is_read = IsRead, seen = Seen}} ->
            ok = weir_http_observation:stop(weir_http_observation:add(Bytes, Seen), normal, Idle#idle.key),
            finished(
                Socket, wanted(After, Wanted), weir_http_batch:add(Bytes, weir_http_batch:new()), Rest, IsRead, Idle
            );
        {enter, Result, Request, NewBusy} ->
            entered(Socket, Result, Request, NewBusy);
        Result ->
            Result
    end;
handle_info(
    {{weir_reactor, Socket}, Monitor, process, _Pid, Reason}, Busy = #busy{monitor = Monitor, idle = #idle{key = Key}}
) ->
    ended(Socket, Reason, Busy, persistent_term:get(Key));
handle_info({weir_http, Socket, Message}, Switched = #switched{}) ->
    info(Socket, Message, Switched);
handle_info({weir_group, served, Socket} = Message, Switched = #switched{}) ->
    info(Socket, Message, Switched);
handle_info(Message, Switched = #switched{}) when element(1, element(1, Message)) =:= weir_reactor ->
    info(element(2, element(1, Message)), Message, Switched);
handle_info(_Message, State) ->
    {ok, State}.

info(Socket, Message, Switched = #switched{module = Module, state = State, idle = #idle{key = Key}}) ->
    switched(Module:info(Socket, Message, State, Key), Socket, Switched, weir_http_batch:new()).

%% The process of a request turns it into an event stream, a held request or a WebSocket.
entered(Socket, Result, Request, #busy{idle = Idle, wanted = Wanted, bytes = Rest, is_read = IsRead, seen = Seen}) ->
    Switched = #switched{idle = Idle, module = undefined, state = undefined, seen = Seen},
    Out = weir_http_batch:new(),
    case weir_http_answer:enter(Result, Request, Wanted, persistent_term:get(Idle#idle.key)) of
        {switched, Module, Bytes, State} ->
            read(Socket, IsRead),
            NewSeen = weir_http_observation:add(Bytes, Seen),
            switch(Socket, Rest, weir_http_batch:add(Bytes, Out), Switched#switched{
                module = Module, state = State, seen = NewSeen
            });
        {process, Found} ->
            Process = #{
                found => Found, request => Request, body => whole, wanted => Wanted, rest => Rest, is_read => IsRead
            },
            switched({process, Process, <<>>}, Socket, Switched, Out);
        {After, Bytes} ->
            switched({finished, wanted(After, Wanted), Bytes, Rest, IsRead}, Socket, Switched, Out)
    end.

%% A client that asked for the close sends nothing more.
wanted(keep, _Wanted) -> keep;
wanted(close, asked) -> asked;
wanted(close, _Wanted) -> close.

%% A delayed response is complete: goes on with the next request, if it has arrived.
finished(Socket, keep, Out, Bytes, IsRead, Idle = #idle{key = Key}) ->
    Http = persistent_term:get(Key),
    case Bytes of
        <<>> ->
            read(Socket, IsRead),
            weir_http_batch:result(Out, served(Idle, Http));
        _ ->
            case not weir_http_batch:is_full(Out) andalso weir_http_socket:pending(Socket) =:= 0 of
                true ->
                    read(Socket, IsRead),
                    requests(Socket, Bytes, 0, Out, served(Idle, Http), Http);
                false ->
                    pause(Socket, Out, #paused{idle = served(Idle, Http), bytes = Bytes, is_read = IsRead})
            end
    end;
finished(_Socket, asked, Out, <<>>, _IsRead, Idle) ->
    {close, weir_http_batch:bytes(Out), Idle};
finished(Socket, _Close, Out, _Bytes, IsRead, Idle) ->
    read(Socket, IsRead),
    close_later(Socket, Out, Idle).

%% Resumes reading if it was paused.
read(_Socket, true) ->
    ok;
read(Socket, false) ->
    weir_http_socket:active(Socket, true).

%% The process was killed, or failed after its response had begun: closing the connection shows the client that the
%% response is incomplete. A process that failed has reported that itself.
ended(_Socket, Reason, Busy = #busy{has_begun = true, idle = Idle, seen = Seen}, Http) ->
    _ = Reason =:= normal orelse weir_http_request_process:killed(Reason, Busy, Http),
    ok = weir_http_observation:stop(Seen, process_ended, Idle#idle.key),
    {close, Idle};
ended(Socket, Reason, Busy = #busy{is_read = IsRead, idle = Idle, seen = Seen}, Http) ->
    {close, Response} = weir_http_request_process:killed(Reason, Busy, Http),
    ok = weir_http_observation:stop(weir_http_observation:add(Response, Seen), process_ended, Idle#idle.key),
    read(Socket, IsRead),
    close_later(Socket, weir_http_batch:add(Response, weir_http_batch:new()), Idle).

-spec terminate(term(), term()) -> ok.
terminate(Reason, State) ->
    ok = gone(Reason, State),
    weir_http_observation:disconnected(Reason, idle(State)).

%% Stops the process of a client that disconnected.
gone(_Reason, Busy = #busy{seen = Seen, idle = #idle{key = Key}}) ->
    ok = weir_http_observation:stop(Seen, client_gone, Key),
    weir_http_request_process:stop(Busy);
gone(Reason, #switched{module = Module, state = State, seen = Seen, idle = #idle{key = Key}}) ->
    ok = weir_http_observation:stop(Seen, client_gone, Key),
    Module:gone(Reason, State, Key);
gone(_Reason, _State) ->
    ok.

%% All other states have it as their first field.
idle(Idle = #idle{}) -> Idle;
idle(State) -> element(2, State).

%%% Time.

-spec begin_tick(#idle{}) -> all | due.
begin_tick(#idle{key = Key}) ->
    ok = weir_http_log:flush(),
    ok = weir_http_observation:listen(),
    weir_http_timeouts:begin_tick(Key).

-spec handle_tick(weir_http_socket:socket(), State) -> weir_reactor:result() | {sleep, pos_integer(), State}.
handle_tick(Socket, Switched = #switched{module = Module, state = State, idle = #idle{key = Key}}) ->
    switched(Module:tick(Socket, State, Key), Socket, Switched, weir_http_batch:new());
handle_tick(Socket, State) ->
    case weir_http_timeouts:tick(Socket, State) of
        {late, Http} ->
            Idle = #idle{client = Client} = idle(State),
            ok = weir_http_counters:add(Http#http.counters, timeouts),
            ok = weir_http_observation:refused(Socket, Client, {408, timeout}, Http),
            close_later(
                Socket, weir_http_batch:add(weir_http_response:refusal(408, timeout), weir_http_batch:new()), Idle
            );
        Result ->
            Result
    end.
