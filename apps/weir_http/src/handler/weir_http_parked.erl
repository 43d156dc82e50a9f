%% @private
%% @doc Held requests in a reactor: when and how they are answered. See {@link weir_http_held}.
-module(weir_http_parked).
-behaviour(weir_http_upgrade).

-export([enter/4, data/4, info/4, writable/3, tick/3, gone/3]).

-include("weir_http.hrl").

%% Bytes of further requests that may be buffered. Beyond that the connection is not read.
-define(INPUT, 65536).

-define(TIMEOUT_MS, 30000).
-define(OTHERWISE, {reply, 204, [], <<>>}).

-define(IS_TIMEOUT(Time), (Time =:= infinity orelse (is_integer(Time) andalso Time > 0 andalso Time < 1 bsl 31))).

-record(parked, {
    handler :: module(),
    state :: term(),
    held :: weir_http_held:held(),
    request :: weir_http_request:request(),
    wanted :: weir_http_response:wanted(),
    %% Whether it has joined groups. Most requests never join, and need not be withdrawn.
    joined :: none | joined,
    %% When it times out, in milliseconds of the monotonic clock, and the response then.
    until :: integer() | infinity,
    otherwise :: weir_http_held:response(),
    bytes = <<>> :: binary(),
    is_read = true :: boolean()
}).

-spec enter(tuple(), weir_http_request:request(), weir_http_response:wanted(), #http{}) -> weir_http_upgrade:entered().
enter({hold, Module, State}, Request, Wanted, Http) ->
    enter({hold, Module, State, #{}}, Request, Wanted, Http);
enter({hold, Module, State, Options}, Request, Wanted, Http) ->
    {Timeout, Otherwise} = settings(Options),
    ok = weir_http_callback:check(Module, open),
    case weir_http_request:is_head(Request) of
        true -> weir_http_response:respond(Otherwise, Request, Wanted);
        false -> open(Module, State, {until(Timeout), Otherwise}, Request, Wanted, Http)
    end.

open(Module, State, {Until, Otherwise}, Request, Wanted, Http) ->
    Socket = weir_http_request:connection(Request),
    Held = weir_http_held:new(Socket),
    try weir_http_held:in(Held, Request, Wanted, fun() -> Module:open(Held, State) end) of
        {{ok, NewState}, Joined} ->
            ok = weir_http_counters:add(Http#http.counters, held),
            Parked = #parked{
                handler = Module,
                state = NewState,
                held = Held,
                request = weir_http_request:copy(Request),
                wanted = Wanted,
                joined = Joined,
                until = Until,
                otherwise = Otherwise
            },
            {switched, ?MODULE, <<>>, Parked};
        {Response, Joined} ->
            %% A group's message is sent at the next call of the engine or later, so it can still be withdrawn.
            _ = withdraw(Socket, Joined),
            weir_http_response:respond(Response, Request, Wanted)
    catch
        Class:Reason:Stack ->
            _ = withdraw(Socket, joined),
            erlang:raise(Class, Reason, Stack)
    end.

withdraw(_Socket, none) -> ok;
withdraw(Socket, joined) -> weir_http_socket:withdraw(Socket).

%% The common case, both options: checking a map would take as long as answering.
settings(#{timeout := Timeout, otherwise := Otherwise} = Options) when
    map_size(Options) =:= 2, ?IS_TIMEOUT(Timeout), is_tuple(Otherwise)
->
    {Timeout, Otherwise};
settings(Options) ->
    case weir_checked_options:check(Options, [timeout, otherwise], fun allowed/2) of
        ok -> {maps:get(timeout, Options, ?TIMEOUT_MS), maps:get(otherwise, Options, ?OTHERWISE)};
        {error, Bad} -> error(Bad)
    end.

allowed(timeout, Time) when ?IS_TIMEOUT(Time) -> true;
allowed(timeout, _Time) -> "milliseconds from 1 on, or infinity";
allowed(otherwise, Response) -> is_tuple(Response) orelse "a response, such as {reply, 204, [], <<>>}".

until(infinity) -> infinity;
until(Timeout) -> erlang:monotonic_time(millisecond) + Timeout.

%%% Input.

%% Buffers further requests.
-spec data(weir_http_socket:socket(), binary(), #parked{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
data(Socket, Data, Parked = #parked{bytes = Bytes}, _Key) ->
    All = <<Bytes/binary, Data/binary>>,
    IsRead = byte_size(All) =< ?INPUT,
    _ = IsRead orelse weir_http_socket:active(Socket, false),
    {ok, Parked#parked{bytes = All, is_read = IsRead}}.

-spec info(weir_http_socket:socket(), term(), #parked{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
info(_Socket, {weir_group, served, _}, Parked, Key) ->
    served(Parked, Key);
info(Socket, {held_reply, Held, Response}, Parked = #parked{held = Held}, Key) ->
    answered(Socket, Response, answered, Parked, Key);
info(Socket, {held_tell, Held, Message}, Parked = #parked{held = Held}, Key) ->
    told(Socket, Message, Parked, Key);
info(Socket, Message, Parked, Key) when element(1, element(1, Message)) =:= weir_reactor ->
    told(Socket, Message, Parked, Key);
%% The message was for an earlier request.
info(_Socket, _Message, Parked, _Key) ->
    {ok, Parked}.

told(
    Socket,
    Message,
    Parked = #parked{handler = Handler, state = State, held = Held, request = Request, wanted = Wanted},
    Key
) ->
    Call = fun() -> weir_http_held:in(Held, Request, Wanted, fun() -> Handler:info(Message, State) end) end,
    case erlang:function_exported(Handler, info, 2) andalso weir_http_callback:run(Handler, info, Key, Call) of
        false ->
            {ok, Parked};
        {crashed, _} = Crashed ->
            answered(Socket, {reply, 500, [], <<>>}, Crashed, Parked#parked{joined = joined}, Key);
        {Result, none} ->
            result(Socket, Result, Parked, Key);
        {Result, joined} ->
            result(Socket, Result, Parked#parked{joined = joined}, Key)
    end.

result(_Socket, {ok, State}, Parked = #parked{state = State}, _Key) -> {ok, Parked};
result(_Socket, {ok, State}, Parked, _Key) -> {ok, Parked#parked{state = State}};
result(Socket, Response, Parked, Key) -> answered(Socket, Response, answered, Parked, Key).

-spec writable(weir_http_socket:socket(), #parked{}, weir_http_upgrade:key()) -> weir_http_upgrade:result().
writable(_Socket, Parked, _Key) -> {ok, Parked}.

-spec tick(weir_http_socket:socket(), #parked{}, weir_http_upgrade:key()) ->
    weir_http_upgrade:result() | weir_http_upgrade:sleep().
tick(Socket, Parked = #parked{until = Until, otherwise = Otherwise}, Key) ->
    case weir_http_timeouts:is_dismissed(persistent_term:get(Key)) of
        true ->
            answered(Socket, Otherwise, drained, Parked, Key);
        false ->
            %% In the order of terms a number is less than infinity.
            case erlang:monotonic_time(millisecond) < Until of
                true -> {sleep, Until, Parked};
                false -> answered(Socket, Otherwise, timeout, Parked, Key)
            end
    end.

-spec gone(term(), #parked{}, weir_http_upgrade:key()) -> ok.
gone(Reason, Parked, Key) ->
    ok = count(held_lost, Key),
    closed({lost, Reason}, Parked, Key).

%%% Answers.

%% If a group has already answered, withdraw/2 fails, and its `served' message is on its way.
answered(Socket, Response, Reason, Parked = #parked{handler = Handler, joined = Joined}, Key) ->
    case withdraw(Socket, Joined) of
        ok ->
            ok = closed(Reason, Parked, Key),
            Run = fun() -> weir_http_response:respond(Response, Parked#parked.request, wanted(Parked, Key)) end,
            case weir_http_callback:run(Handler, response, Key, Run) of
                {crashed, _} ->
                    over(
                        weir_http_response:reply({reply, 500, [], <<>>}, Parked#parked.request, wanted(Parked, Key)),
                        Parked
                    );
                Made ->
                    over(Made, Parked)
            end;
        {error, _} ->
            {ok, Parked}
    end.

over({process, Found}, #parked{request = Request, wanted = Wanted, bytes = Rest, is_read = IsRead}) ->
    {process, #{found => Found, request => Request, body => whole, wanted => Wanted, rest => Rest, is_read => IsRead},
        <<>>};
over({keep, Bytes}, #parked{bytes = Rest, is_read = IsRead}) ->
    {finished, keep, Bytes, Rest, IsRead};
over({close, Bytes}, #parked{wanted = asked, bytes = Rest, is_read = IsRead}) ->
    {finished, asked, Bytes, Rest, IsRead};
over({close, Bytes}, #parked{bytes = Rest, is_read = IsRead}) ->
    {finished, close, Bytes, Rest, IsRead}.

%% A group's frame cannot say that the connection is closed. It is closed only if the client does not expect it to stay
%% open.
served(Parked = #parked{wanted = Wanted, request = Request, bytes = Rest, is_read = IsRead}, Key) ->
    ok = closed(answered, Parked, Key),
    case weir_http_request:is_1_1(Request) of
        _ when Wanted =:= asked -> {finished, asked, <<>>, Rest, IsRead};
        true -> {finished, keep, <<>>, Rest, IsRead};
        false -> {finished, close, <<>>, Rest, IsRead}
    end.

%% The listener may be draining by now.
wanted(#parked{wanted = keep}, Key) ->
    case weir_http_timeouts:is_draining(persistent_term:get(Key)) of
        true -> close;
        false -> keep
    end;
wanted(#parked{wanted = Wanted}, _Key) ->
    Wanted.

closed(Reason, #parked{handler = Handler, state = State}, Key) ->
    ok = count_of(Reason, Key),
    _ = erlang:function_exported(Handler, closed, 2) andalso
        weir_http_callback:run(Handler, closed, Key, fun() -> Handler:closed(Reason, State) end),
    ok.

count_of(timeout, Key) -> count(held_timeouts, Key);
count_of(_Reason, _Key) -> ok.

count(Name, Key) -> weir_http_counters:add_for(Key, Name).
