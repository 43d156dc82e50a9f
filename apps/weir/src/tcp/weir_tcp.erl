%% @doc The drop-in: `{tcp_module, weir_tcp}' among the options of `gen_tcp:listen/2' and `gen_tcp:connect/3,4'
%% replaces OTP's `inet_tcp' with this module.
%%
%% gen_tcp and inet dispatch every call on a socket `{'$inet', weir_tcp, _}' to this module. Users do not call it. Its
%% functions return what the manuals of gen_tcp and inet say; `docs/differences.md' lists the intended differences.
%%
%% A call that has to wait (for a connection, for data, for room in the send queue) waits in the calling process, for
%% one message of the native side.
-module(weir_tcp).

-include("weir_socket.hrl").

%% Addresses and services.
-export([getserv/1]).
-export([getaddr/1]).
-export([getaddr/2]).
-export([getaddrs/1]).
-export([getaddrs/2]).
-export([translate_ip/1]).

%% Opening.
-export([listen/2]).
-export([accept/1]).
-export([accept/2]).
-export([connect/3]).
-export([connect/4]).
-export([fdopen/2]).

%% Data.
-export([send/2]).
-export([sendfile/4]).
-export([recv/3]).
-export([unrecv/2]).

%% Closing.
-export([shutdown/2]).
-export([close/1]).

%% Owner and options.
-export([controlling_process/2]).
-export([setopts/2]).
-export([getopts/2]).

%% Continuations after a wait, for {@link weir_operation}.
-export([accepted/1]).
-export([sent/3]).
-export([received/3]).

%% Information.
-export([getstat/2]).
-export([sockname/1]).
-export([peername/1]).
-export([socknames/1]).
-export([info/1]).
-export([which_packet_type/1]).
-export([socket_to_list/1]).
-export([monitor/1]).
-export([cancel_monitor/1]).

-export_type([socket/0, name/0]).

-type socket() :: ?SOCKET(Handle :: non_neg_integer()).
%% A socket. Equal sockets are equal terms; a handle is never used again after its socket is closed.

-type name() :: {inet:ip_address(), inet:port_number()} | {local, binary()}.
%% An address, as `inet:sockname/1' and `inet:peername/1' return it.


-import(weir_operation, [await/4, cancel/3]).
-import(weir_pollsets, [here/0]).

%% The most binaries of one native send. More are flattened first, by a BIF that yields.
-define(PARTS, 64).

%% @doc Returns the port number of a service, as inet_tcp.
-spec getserv(inet:port_number() | atom()) -> {ok, inet:port_number()} | {error, einval}.
getserv(Port) -> inet_tcp:getserv(Port).

%% @doc Returns the first of {@link getaddrs/1}.
-spec getaddr(inet:socket_address() | inet:hostname()) -> {ok, inet:socket_address()} | {error, inet:posix()}.
getaddr(Address) -> first(getaddrs(Address)).

%% @doc Returns the first of {@link getaddrs/2}.
-spec getaddr(inet:socket_address() | inet:hostname(), term()) -> {ok, inet:socket_address()} | {error, inet:posix()}.
getaddr(Address, Timer) -> first(getaddrs(Address, Timer)).

first({ok, [Address | _]}) -> {ok, Address};
first(Error) -> Error.

%% @doc Returns the addresses of a host: the IPv4 addresses of a name, as inet_tcp; an address of any family as it is.
-spec getaddrs(inet:socket_address() | inet:hostname()) -> {ok, [inet:socket_address()]} | {error, inet:posix()}.
getaddrs({local, _} = Address) -> {ok, [Address]};
getaddrs(Address) when tuple_size(Address) =:= 8 -> inet6_tcp:getaddrs(Address);
getaddrs(Address) -> inet_tcp:getaddrs(Address).

%% @doc {@link getaddrs/1} with a timer of inet.
-spec getaddrs(inet:socket_address() | inet:hostname(), term()) ->
    {ok, [inet:socket_address()]} | {error, inet:posix()}.
getaddrs({local, _} = Address, _Timer) -> {ok, [Address]};
getaddrs(Address, Timer) when tuple_size(Address) =:= 8 -> inet6_tcp:getaddrs(Address, Timer);
getaddrs(Address, Timer) -> inet_tcp:getaddrs(Address, Timer).

%% @doc Translates `any' and `loopback' to IPv4 addresses, as inet_tcp.
-spec translate_ip(any | loopback | inet:ip_address() | undefined) -> inet:ip_address() | undefined.
translate_ip(IP) -> inet_tcp:translate_ip(IP).

%% @doc Opens a listening socket, as `gen_tcp:listen/2'. A port among the options takes precedence over the argument;
%% ranch relies on that. The family is that of the address in the options, or IPv4. Exits with `badarg' for an unknown
%% option or a wrong value.
-spec listen(inet:port_number(), [gen_tcp:listen_option()]) ->
    {ok, socket() | port()} | {error, system_limit | inet:posix()}.
listen(Port, Options) -> weir_open:listen(any, Port, Options).

%% @doc Accepts a connection, without a timeout.
-spec accept(socket()) -> {ok, socket()} | {error, closed | system_limit | inet:posix()}.
accept(Listener) -> accept(Listener, infinity).

%% @doc Accepts a connection, as `gen_tcp:accept/2'.
-spec accept(socket(), timeout()) ->
    {ok, socket()} | {error, closed | timeout | system_limit | inet:posix()}.
accept(?SOCKET(Listener), Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    case weir_nif:accept(Listener, here(), Timeout =:= 0) of
        {wait, Operation} -> await(Listener, Operation, Timeout, {?MODULE, accepted, []});
        Result -> accepted(Result)
    end.

%% @private
-spec accepted({ok, weir_nif:handle()} | Error) -> {ok, socket()} | Error.
accepted({ok, Handle}) -> {ok, ?SOCKET(Handle)};
accepted(Error) -> Error.

%% @doc Connects to a socket address, as `gen_tcp:connect/3'; with an address and a port, as {@link connect/4} without
%% a timeout.
-spec connect
    (inet:socket_address(), inet:port_number(), [gen_tcp:connect_option()]) ->
        {ok, socket() | port()} | {error, timeout | inet:posix()};
    (socket:sockaddr_in() | socket:sockaddr_in6(), [gen_tcp:connect_option()], timeout()) ->
        {ok, socket() | port()} | {error, timeout | inet:posix()}.
connect(Address, Options, Timeout) when is_map(Address) -> weir_open:connect(any, Address, Options, Timeout);
connect(Address, Port, Options) -> connect(Address, Port, Options, infinity).

%% @doc Connects to one address of any family; `gen_tcp:connect/4' calls it for each address in turn. Exits with
%% `badarg' for an unknown option or a wrong value.
-spec connect(inet:socket_address(), inet:port_number(), [gen_tcp:connect_option()], timeout()) ->
    {ok, socket() | port()} | {error, timeout | inet:posix()}.
connect(Address, Port, Options, Timeout) when Timeout =:= infinity; is_integer(Timeout), Timeout >= 0 ->
    weir_open:connect(any, Address, Port, Options, Timeout).

%% @doc Makes a socket of an open descriptor, as `inet_tcp:fdopen/2'. Closing the socket leaves the descriptor open.
-spec fdopen(non_neg_integer(), [gen_tcp:option()]) -> {ok, socket() | port()} | {error, inet:posix()}.
fdopen(Fd, Options) -> weir_open:fdopen(any, Fd, Options).

%% @doc Sends data, as `gen_tcp:send/2'. Returns when the kernel or the send queue has taken it.
%%
%% `{error, timeout}' after `send_timeout': the data is queued and will be sent if the peer reads again. `{error,
%% {timeout, Data}}': nothing was taken, because the queue was over its high watermark already.
-spec send(socket(), iodata()) -> ok | {error, closed | timeout | {timeout, binary() | [binary()]} | inet:posix()}.
send(?SOCKET(Handle), Data) when is_binary(Data) ->
    send_data(Handle, Data);
send(?SOCKET(Handle), Data) ->
    try erlang:iolist_to_iovec(Data) of
        [Binary] -> send_data(Handle, Binary);
        Binaries when length(Binaries) =< ?PARTS -> send_data(Handle, Binaries);
        Binaries -> send_data(Handle, iolist_to_binary(Binaries))
    catch
        error:badarg -> bad_data(Handle)
    end.

%% `closed' takes precedence over `einval'.
bad_data(Handle) ->
    case weir_nif:owner(Handle) of
        {ok, _} -> {error, einval};
        Error -> Error
    end.

send_data(Handle, Data) ->
    case weir_nif:send(Handle, Data) of
        ok -> ok;
        {wait, Operation, Timeout} -> await(Handle, Operation, Timeout, {?MODULE, sent, [Handle, taken]});
        %% Refused data is returned with the error, so that the queue does not grow when callers do not wait.
        {full, Operation, Timeout} -> await(Handle, Operation, Timeout, {?MODULE, sent, [Handle, {refused, Data}]});
        Error -> Error
    end.

%% @private
%% @doc Continues after a wait for room in the send queue, which has taken the data or refused it.
-spec sent(weir_nif:handle(), taken | {refused, Data}, Result :: term()) ->
    ok | {error, closed | timeout | {timeout, Data} | inet:posix()}
when
    Data :: binary() | [binary()].
sent(Handle, Data, {error, timeout}) ->
    _ =
        case weir_nif:getopts(Handle, [send_timeout_close]) of
            {ok, [{send_timeout_close, true}]} -> weir_nif:close(Handle, descriptor);
            _ -> ok
        end,
    case Data of
        taken -> {error, timeout};
        {refused, Refused} -> {error, {timeout, Refused}}
    end;
sent(Handle, {refused, Data}, retry) ->
    send_data(Handle, Data);
sent(_Handle, _Data, Result) ->
    Result.

%% @doc Sends a part of a raw file in the kernel, as `file:sendfile/5'; only the owner of the socket may. `Bytes' of 0
%% means up to the end of the file. `{error, enotsup}' makes file:sendfile read the file and send its data: the file
%% is not on a disk, or its bytes differ from those on the disk (`compressed', for example).
-spec sendfile(socket(), file:fd(), integer(), integer()) ->
    {ok, non_neg_integer()} | {error, closed | badarg | not_owner | enotsup | inet:posix()}.
sendfile(?SOCKET(Handle), File, Offset, Bytes) -> weir_sendfile:send(Handle, File, Offset, Bytes).

%% @doc Receives data from a passive socket, as `gen_tcp:recv/3'.
-spec recv(socket(), non_neg_integer(), timeout()) ->
    {ok, binary() | string()} | {error, closed | timeout | inet:posix()}.
recv(?SOCKET(Handle), Length, Timeout) when
    is_integer(Length), Length >= 0, (Timeout =:= infinity orelse (is_integer(Timeout) andalso Timeout >= 0))
->
    case weir_nif:recv(Handle, Length, Timeout =:= 0) of
        {wait, Operation} when Timeout =:= 0 -> cancel(Handle, Operation, {error, timeout});
        {wait, Operation} -> await(Handle, Operation, Timeout, {?MODULE, received, [Handle, Length]});
        Result -> Result
    end.

%% @private
%% @doc Continues after a wait for data. After a timeout it reads once more, as gen_tcp does: data may have come that
%% no poller has delivered yet.
-spec received(weir_nif:handle(), non_neg_integer(), Result) -> Result when
    Result :: {ok, binary() | string()} | {error, closed | timeout | inet:posix()}.
received(Handle, Length, {error, timeout}) ->
    case weir_nif:recv(Handle, Length, true) of
        {wait, Operation} -> cancel(Handle, Operation, {error, timeout});
        %% Another process is receiving, or the socket has become active.
        {error, Refused} when Refused =:= ealready; Refused =:= einval -> {error, timeout};
        Result -> Result
    end;
received(_Handle, _Length, Result) ->
    Result.

%% @doc Puts data back in front of the bytes to be received.
-spec unrecv(socket(), iodata()) -> ok | {error, closed | inet:posix()}.
unrecv(?SOCKET(Handle), Data) ->
    try iolist_to_binary(Data) of
        Binary -> weir_succession:finish(Handle, weir_nif:unrecv(Handle, Binary))
    catch
        error:badarg -> {error, einval}
    end.

%% @doc Shuts down a direction, as `gen_tcp:shutdown/2'. Writing is shut down after the last queued byte.
-spec shutdown(socket(), read | write | read_write) -> ok | {error, closed | inet:posix()}.
shutdown(?SOCKET(Handle), How) ->
    weir_nif:shutdown(Handle, How).

%% @doc Closes the socket, as `gen_tcp:close/1': after the last queued byte, if the peer takes it. Removes a
%% `{tcp_closed, Socket}' from the mailbox.
-spec close(socket()) -> ok.
close(Socket = ?SOCKET(Handle)) ->
    case weir_nif:close(Handle, flush) of
        ok -> ok;
        {wait, Operation} -> weir_flush:close(Handle, Operation)
    end,
    receive
        {tcp_closed, Socket} -> ok
    after 0 -> ok
    end.

%% @doc Gives the socket to another process, as `gen_tcp:controlling_process/2'. Its messages in the caller's mailbox
%% are forwarded.
-spec controlling_process(socket(), pid()) -> ok | {error, closed | not_owner | badarg | inet:posix()}.
controlling_process(?SOCKET(Handle), NewOwner) when is_pid(NewOwner) ->
    Self = self(),
    case weir_nif:owner(Handle) of
        {ok, NewOwner} -> ok;
        {ok, Self} -> weir_handover:to(NewOwner, Handle);
        {ok, _} -> {error, not_owner};
        Error -> Error
    end.

%% @doc Sets options, as `inet:setopts/2'. `[{active, once}]', the option set for each message, costs one native call
%% and no system call.
-spec setopts(socket(), [gen_tcp:option()]) -> ok | {error, inet:posix()}.
setopts(?SOCKET(Handle), [{active, once}]) ->
    weir_succession:finish(Handle, weir_nif:activate_once(Handle));
setopts(?SOCKET(Handle), Options) ->
    case weir_options:settings(Options) of
        {ok, Settings} -> weir_succession:finish(Handle, weir_nif:setopts(Handle, Settings));
        Error -> Error
    end.

%% @doc Returns options, as `inet:getopts/2'.
-spec getopts(socket(), [gen_tcp:option_name()]) -> {ok, [gen_tcp:option()]} | {error, inet:posix()}.
getopts(?SOCKET(Handle), Names) when is_list(Names) ->
    try weir_nif:getopts(Handle, Names) of
        {ok, Values} -> {ok, weir_options:shown(Values)};
        Error -> Error
    catch
        error:badarg -> {error, einval}
    end.

%% @doc Returns statistics, as `inet:getstat/2'.
-spec getstat(socket(), [inet:stat_option()]) ->
    {ok, [{inet:stat_option(), integer()}]} | {error, inet:posix()}.
getstat(?SOCKET(Handle), Names) when is_list(Names) ->
    case weir_nif:getstat(Handle) of
        {ok, Values} ->
            Found = [lists:keyfind(Name, 1, Values) || Name <- Names],
            case lists:member(false, Found) of
                false -> {ok, Found};
                true -> {error, einval}
            end;
        Error ->
            Error
    end.

%% @doc Returns the local address, as `inet:sockname/1'.
-spec sockname(socket()) -> {ok, name()} | {error, inet:posix()}.
sockname(?SOCKET(Handle)) -> weir_nif:sockname(Handle).

%% @doc Returns the peer's address, as `inet:peername/1'.
-spec peername(socket()) -> {ok, name()} | {error, inet:posix()}.
peername(?SOCKET(Handle)) -> weir_nif:peername(Handle).

%% @doc Returns the local addresses, as `inet:socknames/1'. A TCP socket has one.
-spec socknames(socket()) -> {ok, [name()]} | {error, inet:posix()}.
socknames(Socket) ->
    case sockname(Socket) of
        {ok, Address} -> {ok, [Address]};
        Error -> Error
    end.

%% @doc Returns information about a socket, in the form of `inet:info/1'; `#{states => [closed]}' for a closed one.
-spec info(socket()) -> #{atom() => term()}.
info(Socket = ?SOCKET(Handle)) ->
    case weir_nif:info(Handle) of
        {ok, Info = #{state := closed}} ->
            (maps:with([owner, pollset, fd], Info))#{states => [closed]};
        {ok, Info = #{state := State, acceptors := Acceptors}} ->
            Known = (maps:with([owner, pollset, fd], Info))#{states => states(State, Acceptors)},
            maps:merge(Known, maps:from_list(counters(Socket) ++ active(Handle)));
        {error, closed} ->
            #{states => [closed]}
    end.

states(open, _) -> [open];
states(listening, 0) -> [listen, open];
states(listening, _) -> [accepting, listen, open];
states(State, _) -> [State, open].

counters(Socket) ->
    case inet:getstat(Socket) of
        {ok, Counters} ->
            Map = #{recv_oct := Received, send_oct := Sent} = maps:from_list(Counters),
            [{counters, Map}, {input, Received}, {output, Sent}];
        {error, _} ->
            []
    end.

active(Handle) ->
    case weir_nif:getopts(Handle, [active]) of
        {ok, Active} -> Active;
        {error, _} -> []
    end.

%% @doc Returns the packet type, which inet asks for when it prints a socket.
-spec which_packet_type(socket()) -> {ok, term()} | {error, inet:posix()}.
which_packet_type(?SOCKET(Handle)) ->
    case weir_nif:getopts(Handle, [packet]) of
        {ok, [{packet, 0}]} -> {ok, raw};
        {ok, [{packet, Type}]} -> {ok, Type};
        Error -> Error
    end.

%% @doc Returns a socket as text, which inet asks for since OTP 27.
-spec socket_to_list(socket()) -> string().
socket_to_list(?SOCKET(Handle)) -> "#Weir<" ++ integer_to_list(Handle) ++ ">".

%% @doc Monitors a socket, as `inet:monitor/1': when it closes the caller gets `{'DOWN', Reference, socket, Socket,
%% Reason}'. The reason is `normal', or `noproc' if the socket is closed already.
-spec monitor(socket()) -> reference().
monitor(Socket = ?SOCKET(Handle)) ->
    Reference = make_ref(),
    case weir_nif:monitor(Handle, Reference) of
        ok ->
            %% cancel_monitor/1 gets only the reference.
            put({?MODULE, Reference}, Handle);
        {error, closed} ->
            self() ! {'DOWN', Reference, socket, Socket, noproc}
    end,
    Reference.

%% @doc Cancels a {@link monitor/1} of the calling process, as `inet:cancel_monitor/1'. Returns `false' if there is
%% none.
-spec cancel_monitor(reference()) -> boolean().
cancel_monitor(Reference) ->
    case erase({?MODULE, Reference}) of
        undefined -> false;
        Handle -> weir_nif:demonitor(Handle, Reference)
    end.
