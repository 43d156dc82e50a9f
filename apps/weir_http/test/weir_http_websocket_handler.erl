%% A WebSocket handler for the tests: a map of funs, one for each callback of interest. By default it echoes
%% messages.
-module(weir_http_websocket_handler).
-behaviour(weir_http_direct).
-behaviour(weir_http_websocket).

-export([handle/2]).
-export([open/2, message/2, info/2, written/2, closed/2]).

-export([start/2, start/3]).
-export([with/1, telling/1, telling_open/1]).

%% Starts a listener whose route /websocket is that handler.
start(Listener, Funs) -> start(Listener, Funs, #{}).

start(Listener, Funs, Options) ->
    {ok, _} = weir_http:start_listener(Listener, Options#{ip => {127, 0, 0, 1}}, [
        {"/websocket", ?MODULE, Funs},
        {"/direct", weir_http_echo, {reply, 200, [], <<"direct">>}}
    ]),
    weir:get_port(Listener).

with(Options) -> #{options => Options}.

%% Adds a fun that reports the end of the WebSocket to the case.
telling(Funs) ->
    Self = self(),
    Funs#{closed => fun(Reason, _) -> Self ! {told, Reason} end}.

telling_open(Funs) ->
    Self = self(),
    Funs#{open => fun(Socket, State) -> Self ! {told, Socket}, {ok, State} end}.

handle(Request, #{handle := Fun}) -> Fun(Request);
handle(_Request, Funs) -> {websocket, ?MODULE, Funs, maps:get(options, Funs, #{})}.

open(Socket, Funs) -> call(open, Socket, Funs, {ok, Funs}).

message(Message, Funs) -> call(message, Message, Funs, {send, Message, Funs}).

info(Message, Funs) -> call(info, Message, Funs, {ok, Funs}).

written(Socket, Funs) -> call(written, Socket, Funs, {ok, Funs}).

closed(Reason, Funs) -> call(closed, Reason, Funs, ok).

call(Name, Argument, Funs, Default) ->
    case Funs of
        #{Name := Fun} -> Fun(Argument, Funs);
        #{} -> Default
    end.
