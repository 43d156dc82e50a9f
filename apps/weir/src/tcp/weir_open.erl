%% @private
%% @doc Opens listening and connected sockets from options, for every family. `weir_tcp', `weir_tcp6' and `weir_local'
%% are the entry points.
%%
%% `weir_tcp' serves all families, because with `{tcp_module, weir_tcp}' gen_tcp does not choose the module by the
%% address: it wants `any', and the address decides. The other two want their own family.
-module(weir_open).

-include("weir_socket.hrl").

-export([listen/3]).
-export([listen/4]).
-export([connect/4]).
-export([connect/5]).
-export([fdopen/3]).
-export([unconnected/3]).

-export_type([wanted/0]).

-type wanted() :: any | weir_address:family().
%% The family of the calling module.

%% The module in the term of every socket.
-define(MODULE_OF_SOCKETS, weir_tcp).

%% @doc Opens a listening socket. A port in the options takes precedence over the argument. Exits with `badarg' for
%% wrong options.
-spec listen(wanted(), inet:port_number(), [gen_tcp:listen_option()]) ->
    {ok, inet:socket()} | {error, system_limit | inet:posix()}.
listen(Wanted, Port, Options) -> listen(Wanted, Port, Options, fun() -> ok end).

%% @doc The same. `Bound' is called between bind(2) and listen(2), when no client can connect yet.
-spec listen(wanted(), inet:port_number(), [gen_tcp:listen_option()], Bound :: fun(() -> ok | {error, Reason})) ->
    {ok, inet:socket()} | {error, system_limit | inet:posix() | Reason}.
listen(Wanted, Port, Options, Bound) ->
    Parsed = #{port := PortOption, backlog := Backlog} = parsed(weir_options:listen(Options)),
    Family = bound_family(Wanted, Parsed),
    Bind = listen_address(Family, Parsed, valid_port(Family, default(PortOption, Port))),
    case is_native() of
        true ->
            open(Family, Parsed, Bind, fun(Handle) ->
                maybe_all([Bound, fun() -> weir_nif:listen(Handle, Backlog) end])
            end);
        false ->
            (stock(Family)):listen(Port, without_families(Options))
    end.

%% As in gen_tcp, a new listening socket is always bound; an inherited descriptor only if an address is given.
listen_address(Family, Parsed = #{descriptor := Descriptor}, Port) ->
    case {translate(Family, Parsed), Descriptor} of
        {undefined, _} when Family =:= local -> none;
        {undefined, {fd, _}} when Port =:= 0 -> none;
        {undefined, {fd, _}} -> exit(badarg);
        {undefined, _} -> {any, Port};
        {IP, _} -> {IP, Port}
    end.

%% As in local_tcp: for a local socket `any' is no address, and `loopback' a name that the kernel chooses.
translate(local, #{ip := any}) -> undefined;
translate(local, #{ip := loopback}) -> {local, <<>>};
translate(_Family, #{ip := IP}) -> IP.

%% @doc Connects to a socket address, `socket:sockaddr_in()' or `socket:sockaddr_in6()'.
-spec connect(wanted(), map(), [gen_tcp:connect_option()], timeout()) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Wanted, Address, Options, Timeout) ->
    case weir_options:socket_address(Address) of
        {ok, Full} ->
            connect_to(Wanted, Full, 0, Options, Timeout, fun(Stock) ->
                Stock:connect(Full, without_families(Options), Timeout)
            end);
        {error, badarg} ->
            exit(badarg)
    end.

%% @doc Connects to an address and a port. Exits with `badarg' for wrong options or a wrong address.
-spec connect(
    wanted(), inet:socket_address(), inet:port_number(), [gen_tcp:connect_option()], timeout()
) ->
    {ok, inet:socket()} | {error, timeout | inet:posix()}.
connect(Wanted, Address, Port, Options, Timeout) ->
    connect_to(Wanted, Address, Port, Options, Timeout, fun(Stock) ->
        Stock:connect(Address, Port, without_families(Options), Timeout)
    end).

connect_to(Wanted, Address, Port, Options, Timeout, Stock) ->
    Parsed = parsed(weir_options:connect(Options)),
    Family = peer_family(Wanted, Address),
    Bind = connect_address(Family, Parsed),
    Peer = native(Family, Address, valid_port(Family, Port)),
    case {is_native(), Peer} of
        {false, _} -> Stock(stock(Family));
        {true, {error, _} = Error} -> Error;
        {true, {ok, Native}} -> open(Family, Parsed, Bind, fun(Handle) -> await_connect(Handle, Native, Timeout) end)
    end.

%% @doc Opens a socket of the caller with its options set and bound, for another process to connect. Returns it with
%% the address for the native side. Exits with `badarg' for wrong options or a wrong address.
-spec unconnected(inet:socket_address(), inet:port_number(), [gen_tcp:connect_option()]) ->
    {ok, weir_nif:handle(), weir_address:native()} | {error, no_native_part | inet:posix()}.
unconnected(Address, Port, Options) ->
    Parsed = parsed(weir_options:connect(Options)),
    Family = peer_family(any, Address),
    Bind = connect_address(Family, Parsed),
    case {is_native(), native(Family, Address, valid_port(Family, Port))} of
        {false, _} ->
            {error, no_native_part};
        {true, {error, _} = Error} ->
            Error;
        {true, {ok, Native}} ->
            case open(Family, Parsed, Bind, fun(_Handle) -> ok end) of
                {ok, ?SOCKET(Handle)} -> {ok, Handle, Native};
                {error, _} = Error -> Error
            end
    end.

await_connect(Handle, Peer, Timeout) ->
    case weir_nif:connect(Handle, Peer) of
        {wait, Operation} -> weir_operation:await(Handle, Operation, Timeout);
        Result -> Result
    end.

%% A connecting socket is only bound on request: otherwise the kernel has more ports to choose from.
connect_address(Family, Parsed = #{port := PortOption, descriptor := Descriptor}) ->
    Port = valid_port(Family, default(PortOption, 0)),
    _ = bound_family(Family, Parsed),
    case {translate(Family, Parsed), Descriptor} of
        {undefined, _} when Port =:= 0 -> none;
        {undefined, {fd, _}} -> exit(badarg);
        {undefined, _} -> {any, Port};
        {IP, _} -> {IP, Port}
    end.

%% @doc Makes a socket of an open descriptor: connected, if the descriptor is, and passive. As in gen_tcp, closing the
%% socket leaves the descriptor open. The options are those of `inet:setopts/2'.
-spec fdopen(wanted(), non_neg_integer(), [gen_tcp:option()]) -> {ok, inet:socket()} | {error, inet:posix()}.
fdopen(Wanted, Fd, Options) when is_integer(Fd), Fd >= 0 ->
    Settings = without_families(Options),
    Family = bound_family(Wanted, #{family => asked_family(Options), ip => undefined}),
    case {is_native(), weir_options:settings(Settings)} of
        {false, _} -> (stock(Family)):fdopen(Fd, Settings);
        {true, {error, _} = Error} -> Error;
        {true, {ok, Set}} -> open(Family, #{descriptor => {fd, Fd}, settings => Set}, none, fun(_Handle) -> ok end)
    end.

asked_family(Options) ->
    case [Family || Family <- Options, Family =:= inet orelse Family =:= inet6 orelse Family =:= local] of
        [] -> undefined;
        Families -> lists:last(Families)
    end.

%%% Families.

%% The family of a bound socket: that of the module or the options, or of the address.
bound_family(Wanted, #{family := Asked, ip := IP}) ->
    Want =
        case Wanted of
            any -> Asked;
            _ -> Wanted
        end,
    case {Want, weir_address:family(IP)} of
        {undefined, undefined} -> inet;
        {undefined, Family} -> Family;
        {Family, undefined} -> Family;
        {Family, Family} -> Family;
        %% The kernel decides, as in gen_tcp.
        {Family, _} when is_map(IP) -> Family;
        _ -> exit(badarg)
    end.

peer_family(Wanted, Address) ->
    weir_address:is_valid(Address) orelse exit(badarg),
    case {Wanted, weir_address:family(Address)} of
        {_, undefined} -> exit(badarg);
        {any, Family} -> Family;
        {Family, Family} -> Family;
        _ -> exit(badarg)
    end.

stock(inet) -> inet_tcp;
stock(inet6) -> inet6_tcp;
stock(local) -> local_tcp.

%% OTP's modules do not accept a family among the options.
without_families(Options) -> [Option || Option <- Options, not lists:member(Option, [inet, inet6, local])].

%%% Opening.

%% Opens a socket of the caller, sets its options, binds it, and calls `Prepare' to listen or connect. Closes it if
%% that fails or exits.
open(Family, #{descriptor := Descriptor, settings := Settings}, Bind, Prepare) ->
    case descriptor(Family, Descriptor) of
        {ok, Handle} ->
            Calls = [
                fun() -> weir_succession:finish(Handle, weir_nif:setopts(Handle, Settings)) end,
                fun() -> bind(Family, Handle, Bind) end,
                fun() -> Prepare(Handle) end
            ],
            try maybe_all(Calls) of
                ok -> {ok, ?SOCKET(Handle)};
                Error -> close_and(Handle, Error)
            catch
                Class:Reason:Stack ->
                    _ = weir_nif:close(Handle, now),
                    erlang:raise(Class, Reason, Stack)
            end;
        Error ->
            Error
    end.

descriptor(Family, new) -> weir_nif:open(?MODULE_OF_SOCKETS, Family, weir_pollsets:here());
descriptor(Family, {netns, Path}) -> weir_nif:open_in(?MODULE_OF_SOCKETS, Family, weir_pollsets:here(), Path);
descriptor(Family, {fd, Fd}) -> weir_nif:fdopen(?MODULE_OF_SOCKETS, Family, weir_pollsets:here(), Fd).

bind(_Family, _Handle, none) ->
    ok;
bind(Family, Handle, {IP, Port}) ->
    case native(Family, IP, Port) of
        {ok, Address} -> weir_nif:bind(Handle, Address);
        Error -> Error
    end.

native(Family, Address, Port) -> weir_address:native(Family, Address, Port).

close_and(Handle, Result) ->
    _ = weir_nif:close(Handle, now),
    Result.

%% Calls the funs in order, up to the first that fails.
maybe_all([Call | Calls]) ->
    case Call() of
        ok -> maybe_all(Calls);
        Error -> Error
    end;
maybe_all([]) ->
    ok.

is_native() ->
    case weir_pollsets:ensure_started() of
        ok -> true;
        {error, no_native_part} -> false;
        {error, Reason} -> exit({not_started, weir, Reason})
    end.

parsed({ok, Parsed}) -> Parsed;
parsed({error, badarg}) -> exit(badarg).

default(undefined, Default) -> Default;
default(Value, _Default) -> Value.

valid_port(local, 0) -> 0;
valid_port(Family, Port) when Family =/= local, is_integer(Port), Port >= 0, Port =< 65535 -> Port;
valid_port(_Family, _Port) -> exit(badarg).
