%% @private
%% @doc How a connection begins, in the process that serves it: takes it from the listener, reads its PROXY header and
%% negotiates TLS.
-module(weir_connection).

-include("weir_step.hrl").
-include("weir_socket.hrl").

-export([terms/2]).
-export([change/2]).
-export([listener/1]).
-export([version/1]).
-export([handshakes/1]).
-export([transport/1]).
-export([serve/5]).
-export([handshake_message/2]).
-export([handshake/1]).
-export([handshake/2]).
-export([handshake_pending/3]).
-export([handshake_continued/1]).
-export([read_proxy_header/2]).
-export([proxy_header/0]).
-export([with_proxy_header/2]).

-export_type([terms/0, pending/0]).

-record(terms, {
    name :: weir_listener:name(),
    %% The version of the listener's options, which each change increments.
    version :: non_neg_integer(),
    timeout :: timeout(),
    proxy :: boolean(),
    tls :: [ssl:tls_server_option()] | undefined,
    handshakes :: weir_handshake:handshakes()
}).

-opaque terms() :: #terms{}.
%% The options and counters that a connection begins with.

-type pending() :: {weir_pending, weir_tcp:socket(), terms()}.
%% A connection before its PROXY header and its TLS handshake. It is in the place of the socket in ranch's message,
%% for the transport to continue.

%% The key of the PROXY header in the process dictionary.
-define(HEADER, {?MODULE, proxy_header}).

%% The key of a paused handshake in the process dictionary.
-define(PAUSED, {?MODULE, paused}).

-define(STARTED, [weir, connection, start]).
-define(STOPPED, [weir, connection, stop]).

%% @doc Returns the terms of a listener.
-spec terms(weir_listener:name(), weir_listener_options:normal()) -> terms().
terms(Name, #{handshake_timeout := Timeout, proxy_protocol := Proxy, tls := Tls}) ->
    #terms{
        name = Name, version = 0, timeout = Timeout, proxy = Proxy, tls = Tls, handshakes = weir_handshake:new(Name)
    }.

%% @doc Returns the terms of a listener after a change of its options.
-spec change(weir_listener_options:normal(), terms()) -> terms().
change(#{handshake_timeout := Timeout, proxy_protocol := Proxy, tls := Tls}, Terms = #terms{version = Version}) ->
    Terms#terms{version = Version + 1, timeout = Timeout, proxy = Proxy, tls = Tls}.

%% @doc Returns the name of the listener.
-spec listener(terms()) -> weir_listener:name().
listener(#terms{name = Name}) -> Name.

%% @doc Returns the version of the listener's options, for `weir_nif:listener_set_version/2'.
-spec version(terms()) -> non_neg_integer().
version(#terms{version = Version}) -> Version.

%% @doc Returns the counters of PROXY headers and TLS handshakes.
-spec handshakes(terms()) -> weir_handshake:handshakes().
handshakes(#terms{handshakes = Handshakes}) -> Handshakes.

%% @doc Returns the module of ranch's transport.
-spec transport(terms() | weir_listener_options:normal()) -> module().
transport(#terms{tls = Tls}) -> transport_with(Tls);
transport(#{tls := Tls}) -> transport_with(Tls).

transport_with(undefined) -> weir_transport;
transport_with(_Tls) -> weir_transport_tls.

%% @doc Serves one connection of a queue with a fun. Does nothing if the queue is empty, because another process took
%% the connection when an acceptor was replaced; or if the options have changed since, because then another process is
%% started.
-spec serve(weir_nif:listener(), pos_integer(), terms(), fun((_, _) -> term()), Args :: term()) -> term().
serve(Listener, Queue, Terms = #terms{version = Version}, Handler, Args) ->
    ?STEP,
    case weir_nif:listener_accept(Listener, Queue, Version) of
        {ok, Handle} -> begin_with(?SOCKET(Handle), Terms, Handler, Args);
        empty -> ok;
        outdated -> ok;
        %% The socket table is full, and the connection is closed.
        {error, _} -> ok
    end.

begin_with(Socket, Terms = #terms{name = Name, timeout = Timeout}, Handler, Args) ->
    ?STEP,
    case establish(Socket, [], Terms, Timeout) of
        {ok, Connection} ->
            case weir_event:is_attached(?STOPPED) orelse weir_event:is_attached(?STARTED) of
                false -> Handler(Connection, Args);
                true -> observed(Name, Connection, Handler, Args)
            end;
        %% `{handshake, hello}' pauses the handshake, and a fun cannot continue it.
        {ok, Connection, _Extensions} ->
            (weir_ssl:ssl()):close(Connection);
        %% A connection without a valid header or handshake is closed with its process.
        {error, _} ->
            ok
    end.

observed(Name, Connection, Handler, Args) ->
    Metadata = #{name => Name, socket => Connection, peer => weir_handshake:peer(Connection), pid => self()},
    Start = erlang:monotonic_time(),
    weir_event:execute(?STARTED, #{monotonic_time => Start, system_time => erlang:system_time()}, Metadata),
    try Handler(Connection, Args) of
        _ -> stopped(?STOPPED, Start, Metadata, normal)
    catch
        Class:Reason:Stack ->
            stopped(?STOPPED, Start, Metadata, {Class, Reason}),
            erlang:raise(Class, Reason, Stack)
    end.

stopped(Event, Start, Metadata, Reason) ->
    Now = erlang:monotonic_time(),
    weir_event:execute(Event, #{monotonic_time => Now, duration => Now - Start}, Metadata#{reason => Reason}).

%% `More' are options of TLS that precede those of the listener.
establish(Socket, _More, #terms{proxy = false, tls = undefined}, _Timeout) ->
    {ok, Socket};
establish(Socket, More, Terms, Timeout) ->
    Peer = weir_handshake:peer(Socket),
    case headed(Socket, Peer, Terms, Timeout) of
        ok -> secured(Socket, More, Peer, Terms, Timeout);
        {error, _} = Error -> Error
    end.

headed(_Socket, _Peer, #terms{proxy = false}, _Timeout) ->
    ok;
headed(Socket, Peer, #terms{handshakes = Handshakes}, Timeout) ->
    Start = erlang:monotonic_time(),
    case weir_handshake:ended(proxy, Peer, Start, read_proxy_header(Socket, Timeout), Handshakes) of
        {ok, Header} ->
            _ = put(?HEADER, Header),
            ok;
        {error, _} = Error ->
            Error
    end.

secured(Socket, _More, _Peer, #terms{tls = undefined}, _Timeout) ->
    {ok, Socket};
secured(Socket, More, Peer, Terms = #terms{tls = Tls}, Timeout) ->
    Start = erlang:monotonic_time(),
    Result =
        try
            (weir_ssl:ssl()):handshake(Socket, More ++ Tls, Timeout)
        catch
            exit:{noproc, _} -> {error, {not_started, ssl}}
        end,
    shaken(Peer, Start, Terms, Result).

%% A paused handshake has not ended.
shaken(Peer, Start, Terms, Result = {ok, _Hello, _Extensions}) ->
    _ = put(?PAUSED, {Peer, Start, Terms}),
    Result;
shaken(Peer, Start, #terms{handshakes = Handshakes}, Result) ->
    weir_handshake:ended(tls, Peer, Start, Result, Handshakes).

%% @doc Counts and reports the result of a continued TLS handshake, and returns it.
-spec handshake_continued(Result) -> Result when Result :: {ok, ssl:sslsocket()} | {error, term()}.
handshake_continued(Result) ->
    case erase(?PAUSED) of
        undefined -> Result;
        {Peer, Start, Terms} -> shaken(Peer, Start, Terms, Result)
    end.

%% @doc Reads a PROXY header. Bytes after it stay to be read.
-spec read_proxy_header(weir_tcp:socket(), timeout()) ->
    {ok, weir_proxy_protocol:header()} | {error, closed | timeout | weir_proxy_protocol:reason() | inet:posix()}.
read_proxy_header(Socket, infinity) -> read_proxy_header(Socket, infinity, <<>>);
read_proxy_header(Socket, Timeout) -> read_proxy_header(Socket, erlang:monotonic_time(millisecond) + Timeout, <<>>).

read_proxy_header(Socket, Deadline, Before) ->
    case gen_tcp:recv(Socket, 0, remaining(Deadline)) of
        {ok, Data} ->
            All = iolist_to_binary([Before, Data]),
            case weir_proxy_protocol:parse(All) of
                {ok, Header, Rest} ->
                    ok = gen_tcp:unrecv(Socket, Rest),
                    {ok, Header};
                more ->
                    read_proxy_header(Socket, Deadline, All);
                {error, _} = Error ->
                    Error
            end;
        {error, _} = Error ->
            Error
    end.

remaining(infinity) -> infinity;
remaining(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

%% @doc Returns the PROXY header of the connection that the calling process serves.
-spec proxy_header() -> {ok, weir_proxy_protocol:header()} | undefined.
proxy_header() ->
    case get(?HEADER) of
        undefined -> undefined;
        Header -> {ok, Header}
    end.

%% @doc Calls a fun with the PROXY header of one connection set, in a process that serves many.
-spec with_proxy_header(weir_proxy_protocol:header(), fun(() -> Result)) -> Result.
with_proxy_header(Header, Fun) ->
    _ = put(?HEADER, Header),
    try
        Fun()
    after
        erase(?HEADER)
    end.

%% @doc Returns the message that ranch sends to the process of a connection.
-spec handshake_message(weir_tcp:socket(), terms()) ->
    {handshake, weir_listener:name(), module(), weir_tcp:socket() | pending(), timeout()}.
handshake_message(Socket, Terms = #terms{name = Name, proxy = false, tls = undefined, timeout = Timeout}) ->
    {handshake, Name, transport(Terms), Socket, Timeout};
handshake_message(Socket, Terms = #terms{name = Name, timeout = Timeout}) ->
    {handshake, Name, transport(Terms), {weir_pending, Socket, Terms}, Timeout}.

%% @doc See `weir:handshake/1'.
-spec handshake(weir_listener:name()) -> {ok, weir_listener:connection()} | {continue, term()}.
handshake(Name) ->
    receive
        {handshake, Name, Transport, Socket, Timeout} ->
            result(Transport:handshake(Socket, Timeout), Name, Transport, Socket, Timeout)
    end.

%% @doc See `weir:handshake/2'.
-spec handshake(weir_listener:name(), term()) -> {ok, weir_listener:connection()} | {continue, term()}.
handshake(Name, Options) ->
    receive
        {handshake, Name, Transport, Socket, Timeout} ->
            result(Transport:handshake(Socket, Options, Timeout), Name, Transport, Socket, Timeout)
    end.

%% As in ranch, a peer that closes, times out or fails the TLS handshake does not crash the process. Nor does one that
%% resets its connection or sends a wrong PROXY header: clients must not be able to fill the log with crash reports.
result({ok, _} = Ok, _Name, _Transport, _Socket, _Timeout) ->
    Ok;
result({ok, Hello, Info}, Name, Transport, _Socket, Timeout) ->
    self() ! {handshake_continue, Name, Transport, Hello, Timeout},
    {continue, Info};
result({error, Reason}, _Name, Transport, Socket, _Timeout) ->
    ok = Transport:close(Socket),
    case Reason of
        {tls_alert, _} -> exit(normal);
        _ when Reason =:= closed; Reason =:= timeout -> exit(normal);
        _ when Reason =:= econnreset; Reason =:= epipe; Reason =:= etimedout -> exit(normal);
        _ when Reason =:= not_proxy; Reason =:= bad_header -> exit(normal);
        _ -> error(Reason)
    end.

%% @doc Continues with the socket of {@link handshake_message/2}, for the transports. `More' are options of TLS that
%% precede those of the listener.
-spec handshake_pending(weir_tcp:socket() | pending(), More :: list(), timeout()) ->
    {ok, weir_listener:connection()} | {ok, ssl:sslsocket(), term()} | {error, term()}.
handshake_pending({weir_pending, Socket, Terms}, More, Timeout) -> establish(Socket, More, Terms, Timeout);
handshake_pending(Socket, _More, _Timeout) -> {ok, Socket}.
