%% A handler of streams and held requests for tests: its state is a map of funs, one for each callback of interest. It
%% reports `open' and `closed' to the process in `tell'.
-module(weir_http_funs).
-behaviour(weir_http_direct).
-behaviour(weir_http_events).

-export([start/3, start/4, opened/0, closed/0]).
-export([hold/1, hold/2, reply/1, direct/1]).
-export([handle/2, open/2, info/2, written/2, closed/2]).

%% Starts a listener whose route /go returns that kind of result, with these funs.
start(Listener, Kind, Funs) -> start(Listener, Kind, Funs, #{}).

start(Listener, Kind, Funs, Options) ->
    State = Funs#{tell => self(), kind => Kind},
    {ok, _} = weir_http:start_listener(
        Listener, weir_http_client:options(maps:merge(#{ip => {127, 0, 0, 1}}, Options)), [
            {"/go", ?MODULE, State},
            {"/direct", weir_http_echo, {reply, 200, [], <<"direct">>}}
        ]
    ),
    weir:get_port(Listener).

%% Wait for the reports: the stream or held request, and the reason of its end.
opened() -> receive {open, Known} -> Known after weir_test_wait:patience() -> error(not_open) end.

closed() -> receive {closed, Reason} -> Reason after weir_test_wait:patience() -> error(not_closed) end.

%% Sends a request that is held. Returns its handle.
hold(Client) -> hold(Client, weir_http_client:get("/go")).

hold(Client, Request) ->
    ok = weir_http_client:send(Client, Request),
    opened().

reply(Text) -> {reply, 200, [], Text}.

%% Sends a request that is answered at once, after the earlier ones.
direct(Client) ->
    ok = weir_http_client:send(Client, weir_http_client:get("/direct")),
    {200, _, <<"direct">>} = weir_http_client:response(Client),
    ok.

handle(Request, State = #{kind := Kind}) ->
    case State of
        #{handle := Handle} -> Handle(Request, State);
        #{options := Options} -> {Kind, ?MODULE, State, Options};
        #{} -> {Kind, ?MODULE, State}
    end.

%% Reports after the call, so that a case can rely on groups joined in it.
open(Known, State = #{tell := Pid}) ->
    Result = call(open, Known, State),
    Pid ! {open, Known},
    Result.

info(Message, State) -> call(info, Message, State).

written(Stream, State) -> call(written, Stream, State).

closed(Reason, State = #{tell := Pid}) ->
    Pid ! {closed, Reason},
    call(closed, Reason, State).

call(Name, Argument, State) ->
    case State of
        #{Name := Fun} -> Fun(Argument, State);
        #{} -> {ok, State}
    end.
