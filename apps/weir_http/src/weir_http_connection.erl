%% @private
%% @doc A connection: the callbacks of a reactor that turn bytes into requests and answers into bytes.
%%
%% Between requests a connection is one `#idle{}', which all connections of a reactor share as long as nothing distinguishes
%% them: it costs no memory, and a request that is answered changes nothing.
%%
%% Times are counted in ticks of the reactor, so that no connection has a timer.
-module(weir_http_connection).
-behaviour(weir_reactor).

-export([arguments/1]).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).
-export([handle_writable/2]).
-export([handle_info/2]).
-export([handle_tick/2]).

-include("weir_http.hrl").

%% Bytes of responses after which a connection waits until the client has taken them, before more of its requests are
%% answered: requests are small, and what they ask for is not.
-define(OUTPUT, 65536).

%% Bytes that may wait for that. Then the connection is not read.
-define(INPUT, 65536).

%% When a connection is closed although its client may still be sending: milliseconds until the end of our direction is
%% said, after which the client has as many ticks to read what was sent. A close at once would be a reset, which may
%% overtake the response.
-define(SHUTDOWN_MS, 10).
-define(LINGER_TICKS, 2).

%% Between requests.
-record(idle, {
    key :: term(),
    client :: {inet:ip_address(), inet:port_number()} | undefined,
    requests = 0 :: non_neg_integer(),
    %% Ticks without a request, and bytes that the client had not taken at the last look.
    quiet = 0 :: non_neg_integer(),
    pending = 0 :: non_neg_integer()
}).

%% A head has begun to come; nothing of it yet on a new connection.
-record(head, {idle :: #idle{}, bytes = <<>> :: binary(), ticks = 0 :: non_neg_integer()}).

%% The body of a request is coming. The response may be decided already, but not before its turn.
-record(body, {
    idle :: #idle{},
    request :: weir_http_request:request(),
    found :: weir_http_routes:found(),
    body :: weir_http_body:body(),
    ticks = 0 :: non_neg_integer()
}).

%% The client takes the responses to its former requests first.
-record(paused, {idle :: #idle{}, bytes :: binary(), is_read = true :: boolean()}).

%% The last response is sent, what still comes is thrown away.
-record(closing, {ticks = 0 :: non_neg_integer()}).

%% What a batch of requests has come to: responses, the last one first, and their bytes.
-record(out, {responses = [] :: [iodata()], size = 0 :: non_neg_integer()}).

%% @doc The arguments of the reactors of a listener that is found by Key.
-spec arguments(Key :: term()) -> term().
arguments(Key) -> #idle{key = Key}.

-spec init(weir_tcp:socket(), #idle{}) -> weir_reactor:result().
init(_Socket, Idle) ->
    case weir:proxy_header() of
        {ok, #{src_address := Address, src_port := Port}} -> {ok, #head{idle = Idle#idle{client = {Address, Port}}}};
        _ -> {ok, #head{idle = Idle}}
    end.

-spec handle_close(weir_tcp:socket(), term(), term()) -> {ok, term()}.
handle_close(_Socket, _Reason, State) -> {ok, State}.

%%% Bytes.

-spec handle_data(weir_tcp:socket(), binary(), term()) -> weir_reactor:result().
handle_data(Socket, Data, Idle = #idle{key = Key}) ->
    requests(Socket, Data, 0, #out{}, Idle, persistent_term:get(Key));
handle_data(Socket, Data, #head{bytes = <<>>, idle = Idle = #idle{key = Key}}) ->
    requests(Socket, Data, 0, #out{}, Idle, persistent_term:get(Key));
handle_data(Socket, Data, Head = #head{bytes = Before, idle = Idle = #idle{key = Key}}) ->
    Http = persistent_term:get(Key),
    Bytes = <<Before/binary, Data/binary>>,
    %% Read again only when it may be complete, or too long: it may come one byte at a time.
    case may_end(byte_size(Before), Bytes) orelse is_long(Bytes, Http) of
        true -> head(Socket, Bytes, Head, Idle, Http);
        false -> {ok, Head#head{bytes = Bytes}}
    end;
handle_data(Socket, Data, Body = #body{idle = #idle{key = Key}}) ->
    body(Socket, Data, 0, #out{}, Body, persistent_term:get(Key));
handle_data(Socket, Data, Paused = #paused{bytes = Bytes}) ->
    More = <<Bytes/binary, Data/binary>>,
    IsRead = byte_size(More) =< ?INPUT,
    _ = IsRead orelse inet:setopts(Socket, [{active, false}]),
    {ok, Paused#paused{bytes = More, is_read = IsRead}};
handle_data(_Socket, _Data, Closing = #closing{}) ->
    {ok, Closing}.

%% An empty line ends a head, whether it may be written so or not.
may_end(Known, Bytes) ->
    From = max(0, Known - 3),
    binary:match(Bytes, [<<"\n\r\n">>, <<"\n\n">>], [{scope, {From, byte_size(Bytes) - From}}]) =/= nomatch.

is_long(Bytes, #http{limits = {Line, Whole, _}}) -> byte_size(Bytes) > min(Line, Whole).

head(Socket, Bytes, Head, Idle, Http = #http{limits = Limits}) ->
    case weir_http_nif:head(Bytes, 0, Limits) of
        more -> {ok, Head#head{bytes = Bytes}};
        _ -> requests(Socket, Bytes, 0, #out{}, Idle, Http)
    end.

%% All requests of the data from an offset on.
requests(Socket, Data, Offset, Out, Idle, Http = #http{limits = Limits}) ->
    case weir_http_nif:head(Data, Offset, Limits) of
        Head when tuple_size(Head) =:= 7 ->
            ok = weir_http_counters:add(Http#http.counters, requests),
            Request = weir_http_request:new(Head, Socket, Idle#idle.client),
            Found = weir_http_answer:target(Request, Http),
            case element(6, Head) of
                0 -> answer(Socket, Data, element(7, Head), Out, Found, Request, Idle, Http);
                Length -> begin_body(Socket, Data, element(7, Head), Length, Out, Found, Request, Idle, Http)
            end;
        more ->
            begin_head(binary:part(Data, Offset, byte_size(Data) - Offset), Out, Idle);
        {refused, Status, Reason} ->
            refuse(Socket, Status, Reason, Out, Http)
    end.

%% Empty lines between requests are nothing that has begun.
begin_head(<<"\r\n">>, Out, Idle) -> sent(Out, Idle);
begin_head(Bytes, Out, Idle) -> sent(Out, #head{idle = Idle, bytes = binary:copy(Bytes)}).

%% A request is there with all that belongs to it.
answer(Socket, Data, End, Out, Found, Request, Idle, Http) ->
    Wanted = wanted(Request, Idle, Http),
    {After, Response} = weir_http_answer:answer(Found, Request, Wanted, Http),
    NewOut = add(Response, Out),
    IsLast = End =:= byte_size(Data),
    case After of
        keep when IsLast -> sent(NewOut, served(Idle, Http));
        keep -> go_on(Socket, Data, End, NewOut, served(Idle, Http), Http);
        %% A client that has asked for it sends nothing more.
        close when IsLast, Wanted =:= asked -> {close, bytes(NewOut), Idle};
        close -> close_later(Socket, NewOut)
    end.

go_on(Socket, Data, Offset, Out = #out{size = Size}, Idle, Http) when Size < ?OUTPUT ->
    requests(Socket, Data, Offset, Out, Idle, Http);
go_on(Socket, Data, Offset, Out, Idle, _Http) ->
    %% The responses are written when this callback has returned. See handle_writable/2.
    _ = weir:notify_writable(Socket),
    sent(Out, #paused{idle = Idle, bytes = binary:copy(binary:part(Data, Offset, byte_size(Data) - Offset))}).

%% Whether the connection stays open, as far as it is not for the handler to say: `asked' to be closed by the client.
wanted(Request, #idle{requests = Requests}, Http = #http{max_requests = Max}) ->
    case weir_http_request:is_keep_alive(Request) of
        false ->
            asked;
        true when Requests + 1 >= Max ->
            close;
        true ->
            case is_draining(Http) of
                true -> close;
                false -> keep
            end
    end.

served(Idle = #idle{quiet = 0}, #http{max_requests = infinity}) -> Idle;
served(Idle, #http{max_requests = infinity}) -> Idle#idle{quiet = 0, pending = 0};
served(Idle = #idle{requests = Requests}, _Http) -> Idle#idle{requests = Requests + 1, quiet = 0, pending = 0}.

begin_body(Socket, Data, End, Length, Out, Found, Request, Idle, Http) ->
    Here = byte_size(Data) - End,
    case weir_http_body:new(Length, weir_http_answer:max_body(Found, Http)) of
        {refused, Status, Reason} ->
            refuse(Socket, Status, Reason, Out, Http);
        {ok, Body} when Length >= 0, Here >= Length ->
            body(Socket, Data, End, Out, #body{idle = Idle, request = Request, found = Found, body = Body}, Http);
        {ok, Body} ->
            Coming = #body{idle = Idle, request = weir_http_request:copy(Request), found = Found, body = Body},
            case Here =:= 0 andalso weir_http_request:expects_continue(Request) of
                true -> continue(Socket, Out, Coming, Http);
                false -> body(Socket, Data, End, Out, Coming, Http)
            end
    end.

continue(_Socket, Out, Coming = #body{found = {ok, _, _}}, _Http) ->
    sent(add(<<"HTTP/1.1 100 Continue\r\n\r\n">>, Out), Coming);
continue(Socket, Out, #body{found = Found, request = Request}, Http) ->
    %% The client waits to hear this, and may then send the body or not.
    {_, Response} = weir_http_answer:answer(Found, Request, close, Http),
    close_later(Socket, add(Response, Out)).

body(Socket, Data, Offset, Out, Coming = #body{body = Body, request = Request, found = Found, idle = Idle}, Http) ->
    case weir_http_body:feed(Data, Offset, Body, Http#http.limits) of
        {done, Bytes, Trailers, End} ->
            answer(Socket, Data, End, Out, Found, weir_http_request:with_body(Bytes, Trailers, Request), Idle, Http);
        {more, More} ->
            sent(Out, Coming#body{body = More});
        {refused, Status, Reason} ->
            refuse(Socket, Status, Reason, Out, Http)
    end.

refuse(Socket, Status, Reason, Out, #http{counters = Counters}) ->
    ok = weir_http_counters:add(Counters, refused),
    close_later(Socket, add(weir_http_answer:refusal(Status, Reason), Out)).

close_later(Socket, Out) ->
    _ = erlang:send_after(?SHUTDOWN_MS, self(), {{weir_reactor, Socket}, shutdown}),
    sent(Out, #closing{}).

%%% What is sent.

add(Response, #out{responses = Responses, size = Size}) ->
    #out{responses = [Response | Responses], size = Size + iolist_size(Response)}.

sent(#out{responses = []}, State) -> {ok, State};
sent(Out, State) -> {send, bytes(Out), State}.

bytes(#out{responses = [Response]}) -> Response;
bytes(#out{responses = Responses}) -> lists:reverse(Responses).

%%% What is not data.

-spec handle_writable(weir_tcp:socket(), term()) -> weir_reactor:result().
handle_writable(Socket, Paused = #paused{idle = Idle = #idle{key = Key}, bytes = Bytes, is_read = IsRead}) ->
    case pending(Socket) of
        0 ->
            _ = IsRead orelse inet:setopts(Socket, [{active, true}]),
            requests(Socket, Bytes, 0, #out{}, Idle, persistent_term:get(Key));
        _ ->
            _ = weir:notify_writable(Socket),
            {ok, Paused}
    end;
handle_writable(_Socket, State) ->
    {ok, State}.

-spec handle_info(term(), term()) -> weir_reactor:result().
handle_info({{weir_reactor, Socket}, shutdown}, Closing = #closing{}) ->
    _ = gen_tcp:shutdown(Socket, write),
    {ok, Closing};
handle_info(_Message, State) ->
    {ok, State}.

%% What the client has not taken yet. A connection that is closed has nothing left.
pending(Socket) ->
    case inet:getstat(Socket, [send_pend]) of
        {ok, [{send_pend, Bytes}]} -> Bytes;
        {error, _} -> 0
    end.

%%% Time.

-spec handle_tick(weir_tcp:socket(), term()) -> weir_reactor:result().
handle_tick(Socket, Idle = #idle{key = Key, quiet = Quiet}) ->
    Http = #http{idle_ticks = Most} = persistent_term:get(Key),
    case Quiet + 1 < Most andalso not (Quiet > 0 andalso is_draining(Http)) of
        true -> {ok, Idle#idle{quiet = Quiet + 1}};
        false -> quiet(Socket, Idle, Http)
    end;
handle_tick(Socket, Head = #head{bytes = Bytes, ticks = Ticks, idle = #idle{key = Key}}) ->
    Http = #http{header_ticks = Most} = persistent_term:get(Key),
    case Ticks + 1 =< Most of
        true when Bytes =:= <<>>, Ticks > 0 ->
            case is_draining(Http) of
                true -> {close, Head};
                false -> {ok, Head#head{ticks = Ticks + 1}}
            end;
        true ->
            {ok, Head#head{ticks = Ticks + 1}};
        false ->
            late(Socket, Bytes, Head, Http)
    end;
handle_tick(Socket, Body = #body{ticks = Ticks, body = Coming, idle = #idle{key = Key}}) ->
    Http = #http{body_ticks = Most, body_bytes = Bytes} = persistent_term:get(Key),
    case Most =:= infinity orelse Ticks + 1 =< Most + weir_http_body:received(Coming) div Bytes of
        true -> {ok, Body#body{ticks = Ticks + 1}};
        false -> late(Socket, a_body, Body, Http)
    end;
handle_tick(Socket, Paused = #paused{idle = Idle = #idle{key = Key, quiet = Quiet}}) ->
    Http = #http{idle_ticks = Most} = persistent_term:get(Key),
    case Quiet + 1 < Most of
        true ->
            {ok, Paused#paused{idle = Idle#idle{quiet = Quiet + 1}}};
        false ->
            case pending(Socket) of
                Same when Same >= Idle#idle.pending, Idle#idle.pending > 0 -> late(Socket, <<>>, Paused, Http);
                Fewer -> {ok, Paused#paused{idle = Idle#idle{quiet = 0, pending = Fewer}}}
            end
    end;
handle_tick(_Socket, Closing = #closing{ticks = Ticks}) when Ticks >= ?LINGER_TICKS ->
    {close, Closing};
handle_tick(_Socket, #closing{ticks = Ticks}) ->
    {ok, #closing{ticks = Ticks + 1}}.

is_draining(#http{draining = Draining}) -> atomics:get(Draining, 1) =/= 0.

%% Nothing was asked for long. A client that still takes a response has another period, as often as it has taken something.
quiet(Socket, Idle = #idle{pending = Before}, _Http) ->
    case pending(Socket) of
        0 -> {close, Idle};
        Same when Before > 0, Same >= Before -> {close, Idle};
        Fewer -> {ok, Idle#idle{quiet = 0, pending = Fewer}}
    end.

%% A client that has said nothing is told nothing.
late(_Socket, <<>>, State, #http{counters = Counters}) ->
    ok = weir_http_counters:add(Counters, timeouts),
    {close, State};
late(Socket, _Begun, _State, #http{counters = Counters}) ->
    ok = weir_http_counters:add(Counters, timeouts),
    close_later(Socket, add(weir_http_answer:refusal(408, timeout), #out{})).
