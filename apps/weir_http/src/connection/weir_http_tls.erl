%% @private
%% @doc A TLS connection: a process that does what a reactor does for its connections, with the same callbacks of
%% {@link weir_http_connection}.
%%
%% It blocks while the client reads its output, for at most `send_timeout' of the socket per piece. It can outlive its
%% listener; then it ends silently.
%%
%% Between requests it has one timer, for the idle timeout, so that an idle connection does nothing.
-module(weir_http_tls).

-export([options/2]).
-export([serve/2]).
-export([loop/1]).
-export([drain/1]).

-include("weir_http.hrl").
-include("weir_http_states.hrl").

%% Idle milliseconds after which garbage is collected, here and in the processes of ssl.
-define(IDLE_MS, 1000).

%% Bytes per read. While a client is not read, ssl buffers a hundred times as much.
-define(BUFFER, 4096).

%% Bytes of a response that a client has to read within `send_timeout': a TLS record.
-define(PIECE, 16384).

-record(tls, {
    socket :: weir_http_socket:socket(),
    ssl :: ssl:sslsocket(),
    key :: term(),
    state :: term(),
    %% When the next tick is due.
    due :: integer() | infinity,
    is_collected = false :: boolean()
}).

%% @doc Returns the options of a listener with TLS, in addition to the given ones.
-spec options(term(), SendTimeout :: timeout()) -> {ok, weir_listener:options()} | {error, weir_listener:bad_option()}.
options(Tls, Timeout) when length(Tls) >= 0 ->
    case [Option || Option = {Name, _} <- Tls, Name =:= alpn_preferred_protocols] of
        [] ->
            Ours = [
                {alpn_preferred_protocols, [<<"http/1.1">>]}
                | [{hibernate_after, ?IDLE_MS} || not has(hibernate_after, Tls)]
            ],
            {ok, #{
                tls => Tls ++ Ours,
                socket_opts => [{send_timeout, Timeout}, {send_timeout_close, true}, {buffer, ?BUFFER}]
            }};
        [Option | _] ->
            {error, {bad_option, tls, Option, "no alpn_preferred_protocols: the listener sets http/1.1"}}
    end;
options(Tls, _Timeout) ->
    {error, {bad_option, tls, Tls, "a list of options of ssl:handshake/3"}}.

has(Name, Options) -> lists:any(fun(Option) -> is_tuple(Option) andalso element(1, Option) =:= Name end, Options).

%% @doc Has the connections of a draining listener check whether they are idle.
-spec drain(weir_listener:name()) -> ok.
drain(Name) ->
    case {weir:info(Name), weir:connections(Name)} of
        {#{handler := {function, _}}, Connections} when is_list(Connections) ->
            lists:foreach(fun({_, Pid}) -> Pid ! weir_http_drain end, Connections);
        _ ->
            ok
    end.

%% @doc Serves a connection until it ends: the fun of the listener.
-spec serve(ssl:sslsocket(), #idle{}) -> ok.
serve(Ssl, Idle = #idle{key = Key}) ->
    %% To clean up when the listener ends.
    _ = process_flag(trap_exit, true),
    Socket = weir_http_socket:tls(Ssl),
    {ok, State} = weir_http_connection:init(Socket, Idle),
    Tls = #tls{socket = Socket, ssl = Ssl, key = Key, state = State, due = infinity},
    ok = weir_http_socket:active(Socket, true),
    next(Tls).

%% @doc Handles one message. Each round calls the current version of the code.
-spec loop(#tls{}) -> ok.
loop(Tls = #tls{ssl = Ssl, socket = Socket, due = Due, is_collected = IsCollected}) ->
    receive
        {ssl, Ssl, Data} ->
            data(Tls, Data);
        {ssl_closed, Ssl} ->
            closed(closed, Tls);
        {ssl_error, Ssl, Reason} ->
            closed(Reason, Tls);
        weir_http_writable ->
            called(Tls, handle_writable, Socket);
        weir_http_drain ->
            next(Tls);
        {weir_http_tls, Message} ->
            called(Tls, handle_info, Message);
        {'EXIT', _Pid, normal} ->
            loop(Tls);
        {'EXIT', _Pid, {shutdown, send_queue_full}} ->
            closed(send_queue_full, Tls);
        {'EXIT', _Pid, Reason} ->
            ended(Reason, Tls);
        Message when is_tuple(Message), tuple_size(Message) > 0, element(1, Message) =:= {weir_reactor, Socket} ->
            called(Tls, handle_info, Message);
        %% Handlers know the socket as the result of weir_http_request:socket/1.
        Message when is_tuple(Message), tuple_size(Message) > 0, element(1, Message) =:= {weir_reactor, Ssl} ->
            called(Tls, handle_info, setelement(1, Message, {weir_reactor, Socket}));
        _ ->
            loop(Tls)
    after wait(Due, IsCollected) ->
        timeout(Tls)
    end.

wait(infinity, true) -> infinity;
wait(infinity, false) -> ?IDLE_MS;
wait(Due, true) -> max(0, Due - erlang:monotonic_time(millisecond));
wait(Due, false) -> min(?IDLE_MS, wait(Due, true)).

timeout(Tls = #tls{due = Due, is_collected = IsCollected}) ->
    %% Due may be infinity: in the order of terms a number is less than an atom.
    case erlang:monotonic_time(millisecond) < Due of
        true when IsCollected ->
            ?MODULE:loop(Tls);
        true ->
            ok = weir_http_log:flush(),
            true = erlang:garbage_collect(),
            ?MODULE:loop(Tls#tls{is_collected = true});
        false ->
            ticked(Tls)
    end.

%% Between requests all ticks are skipped except the last.
ticked(Tls = #tls{key = Key}) ->
    _ = weir_http_connection:begin_tick(#idle{key = Key}),
    tick(Tls).

tick(Tls = #tls{socket = Socket, state = Idle = #idle{}}) ->
    with_http(Tls, fun(Http = #http{idle_ticks = Most}) ->
        Passed =
            case weir_http_timeouts:is_draining(Http) of
                true -> Idle;
                false -> Idle#idle{quiet = Most - 1}
            end,
        called(Tls#tls{state = Passed, due = infinity}, handle_tick, Socket)
    end);
tick(Tls = #tls{socket = Socket}) ->
    called(Tls#tls{due = infinity}, handle_tick, Socket).

data(Tls = #tls{socket = Socket, state = State}, Data) ->
    ok = weir_http_observation:listen(),
    Result = call(Tls, fun() -> weir_http_connection:handle_data(Socket, Data, State) end),
    result(Result, Tls#tls{is_collected = false}, fun(NewTls) ->
        case weir_http_socket:read_on(Socket) of
            ok -> next(NewTls);
            {error, Reason} -> closed(Reason, NewTls)
        end
    end).

called(Tls = #tls{state = State}, Callback, Argument) ->
    result(call(Tls, fun() -> weir_http_connection:Callback(Argument, State) end), Tls, fun next/1).

call(#tls{key = Key}, Callback) ->
    try
        Callback()
    catch
        Class:Reason:Stack -> {failed, {Class, Reason, Stack}, Key}
    end.

result({ok, State}, Tls, Next) ->
    Next(Tls#tls{state = State});
result({sleep, Ticks, State}, Tls, _Next) ->
    with_http(Tls, fun(#http{tick = Tick}) ->
        ?MODULE:loop(Tls#tls{state = State, due = erlang:monotonic_time(millisecond) + Ticks * Tick})
    end);
result({send, Bytes, State}, Tls = #tls{ssl = Ssl}, Next) ->
    case send(Ssl, Bytes) of
        ok -> Next(Tls#tls{state = State});
        {error, Reason} -> closed(Reason, Tls#tls{state = State})
    end;
result({close, State}, Tls, _Next) ->
    ended(normal, Tls#tls{state = State});
result({close, Bytes, State}, Tls = #tls{ssl = Ssl}, _Next) ->
    _ = send(Ssl, Bytes),
    ended(normal, Tls#tls{state = State});
result({failed, {Class, Reason, Stack}, Key}, Tls, _Next) ->
    with_http(Tls, fun(#http{}) ->
        ok = weir_http_crash:report(#{
            what => "a callback of an HTTP connection over TLS failed; the connection is closed",
            domain => [weir, http],
            reason => {Class, Reason},
            stacktrace => [weir_http_crash:without_arguments(Call) || Call <- Stack]
        }, Key),
        ended({error, {Class, Reason, Stack}}, Tls)
    end).

%% Continues with the configuration of the listener, or ends the connection if the listener is gone.
with_http(Tls = #tls{key = Key}, GoOn) ->
    case persistent_term:get(Key, forgotten) of
        forgotten -> ended(normal, Tls);
        Http -> GoOn(Http)
    end.

%% `send_timeout' applies to one call. In pieces, a client that reads a large response slowly gets the full time for
%% each.
send(Ssl, Bytes) ->
    case iolist_size(Bytes) of
        Size when Size =< ?PIECE -> weir_transport_tls:send(Ssl, Bytes);
        _ -> send_pieces(Ssl, iolist_to_binary(Bytes))
    end.

send_pieces(Ssl, <<Piece:?PIECE/binary, Rest/binary>>) when Rest =/= <<>> ->
    case weir_transport_tls:send(Ssl, Piece) of
        ok -> send_pieces(Ssl, Rest);
        {error, _} = Error -> Error
    end;
send_pieces(Ssl, Last) ->
    weir_transport_tls:send(Ssl, Last).

%% Waits for the next message, at most until the next check is due.
next(Tls = #tls{state = State, due = Due}) ->
    with_http(Tls, fun(Http = #http{tick = Tick}) ->
        Now = erlang:monotonic_time(millisecond),
        NewDue =
            case State of
                #idle{} -> later(Now, Tick, idle_ticks(Http));
                _ -> min(Due, Now + Tick)
            end,
        ?MODULE:loop(Tls#tls{due = NewDue})
    end).

idle_ticks(Http = #http{idle_ticks = Most}) ->
    case weir_http_timeouts:is_draining(Http) of
        true -> 1;
        false -> Most
    end.

later(_Now, _Tick, infinity) -> infinity;
later(Now, Tick, Ticks) -> Now + Tick * Ticks.

closed(Reason, Tls = #tls{socket = Socket, state = State}) ->
    {ok, NewState} = weir_http_connection:handle_close(Socket, Reason, State),
    ended(Reason, Tls#tls{state = NewState}).

ended(Reason, #tls{socket = Socket, ssl = Ssl, state = State}) ->
    ok = weir_http_socket:closed(Socket),
    ok = weir_http_connection:terminate(Reason, State),
    weir_transport_tls:close(Ssl).
