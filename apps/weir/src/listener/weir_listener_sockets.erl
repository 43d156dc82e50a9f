%% @private
%% @doc The listening sockets of a listener: one for each pollset of an online scheduler.
%%
%% With SO_REUSEPORT each is a socket of its own on the same port, and the kernel distributes connections. Unix
%% sockets and inherited descriptors are duplicated instead: the first pollset to accept gets the connection.
%%
%% When schedulers go offline all sockets stay, because the kernel resets the backlog of a closed one. The remaining
%% pollsets share them.
-module(weir_listener_sockets).

-include_lib("kernel/include/file.hrl").
-include("weir_socket.hrl").

-export([open/3]).
-export([follow/4]).
-export([share/2]).
-export([attach/4]).
-export([change/3]).
-export([port/1]).
-export([close_backlog/2]).
-export([has_backlog/1]).
-export([close/1]).

-type socket() :: weir_tcp:socket().

%% @doc Opens the sockets, owned by the caller, for the first pollsets. `Port' takes precedence over the option.
%% `claim' fails with `eaddrinuse' if another socket listens there, even with SO_REUSEPORT. `share' is for a
%% successor, whose predecessor's sockets may not be closed yet.
-spec open(weir_listener_options:normal(), {claim | share, inet:port_number()}, pos_integer()) ->
    {ok, [socket()]} | {error, term()}.
open(Options = #{fd := Fd}, _Port, Count) when Fd =/= undefined ->
    open_descriptor(Options, [inet, inet6, local], Count);
open(Options = #{ip := {local, Path} = IP, shared := IsShared, mode := Mode}, {How, _Port}, Count) ->
    %% Another listener keeps its socket and loses the name. A predecessor's socket is about to close.
    _ = (IsShared orelse How =:= share) andalso remove(Path),
    Permit = fun() -> permit(Path, Mode) end,
    Listen = fun() -> listen(0, [{ip, IP} | settings(Options)], Permit) end,
    case Listen() of
        {error, eaddrinuse} ->
            case is_left_over(IP) of
                true -> duplicated(Listen(), Count);
                false -> {error, eaddrinuse}
            end;
        Result ->
            duplicated(Result, Count)
    end;
open(Options, {How, Port}, Count) ->
    case How =:= share orelse Port =:= 0 orelse is_free(Options, Port) of
        true -> open_group(group(Options), Port, Count);
        Error -> Error
    end.

group(Options = #{ip := IP}) -> [{ip, IP}, {reuseport, true} | settings(Options)].

%% Called before listen(2): no client has been able to connect yet.
permit(_Path, undefined) -> ok;
permit(Path, Mode) -> file:change_mode(Path, Mode).

%% The file of a Unix socket outlives its sockets. It is removed if no socket listens on it.
is_left_over(IP = {local, Path}) ->
    case gen_tcp:connect(IP, 0, [{tcp_module, weir_tcp}]) of
        {error, econnrefused} ->
            remove(Path);
        {error, _} ->
            false;
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            false
    end.

%% A file of another kind is not ours to delete.
remove(Path) ->
    case file:read_link_info(Path) of
        {ok, #file_info{type = other}} -> file:delete(Path) =:= ok;
        _ -> false
    end.

%% Tries all families, because the descriptor does not tell its own.
open_descriptor(_Options, [], _Count) ->
    {error, einval};
open_descriptor(Options = #{fd := Fd}, [Family | Families], Count) ->
    case listen(0, [Family, {fd, Fd} | settings(Options)]) of
        {error, einval} -> open_descriptor(Options, Families, Count);
        Result -> duplicated(Result, Count)
    end.

settings(#{socket_opts := Options}) -> Options.

%% gen_tcp exits with `badarg' for wrong options.
listen(Port, Options) -> listen(Port, Options, fun() -> ok end).

listen(Port, Options, Bound) ->
    try
        weir_open:listen(any, Port, Options, Bound)
    catch
        exit:badarg -> {error, {bad_option, socket_opts, Options, "compatible options of gen_tcp:listen/2"}}
    end.

duplicated({ok, First}, Count) -> first(First, fun duplicate/2, Count);
duplicated(Error, _Count) -> Error.

duplicate(?SOCKET(Handle), Pollset) ->
    case weir_nif:duplicate(Handle, Pollset) of
        {ok, Duplicate} -> {ok, ?SOCKET(Duplicate)};
        Error -> Error
    end.

open_group(Options, Port, Count) ->
    case listen(Port, Options) of
        {ok, First} -> first(First, fun(Socket, Pollset) -> join_group(Socket, Options, Pollset) end, Count);
        Error -> Error
    end.

join_group(First, Options, Pollset) ->
    case inet:port(First) of
        {ok, Port} -> placed(listen(Port, Options), Pollset);
        Error -> Error
    end.

placed({ok, Socket = ?SOCKET(Handle)}, Pollset) ->
    ok = weir_nif:move(Handle, Pollset),
    {ok, Socket};
placed(Error, _Pollset) ->
    Error.

%% The first socket may be on any pollset.
first(First = ?SOCKET(Handle), Open, Count) ->
    ok = weir_nif:move(Handle, 1),
    case others(First, Open, 2, Count) of
        {ok, Others} ->
            {ok, [First | Others]};
        Error ->
            ok = close([First]),
            Error
    end.

%% Opens all or none.
others(_First, _Open, Pollset, Count) when Pollset > Count ->
    {ok, []};
others(First, Open, Pollset, Count) ->
    case Open(First, Pollset) of
        {ok, Socket} ->
            case others(First, Open, Pollset + 1, Count) of
                {ok, Sockets} ->
                    {ok, [Socket | Sockets]};
                Error ->
                    ok = close([Socket]),
                    Error
            end;
        Error ->
            Error
    end.

%% @doc Makes a listener use the first `Count' pollsets: opens missing sockets and distributes all. Returns the
%% sockets; after an error these are the previous ones.
-spec follow([socket(), ...], weir_nif:listener(), weir_listener_options:normal(), pos_integer()) ->
    {ok | {error, term()}, [socket()]}.
follow(Before, Listener, Options, Count) ->
    case others(hd(Before), opener(Options), length(Before) + 1, Count) of
        {ok, More} ->
            Sockets = Before ++ More,
            {attach(Sockets, Listener, Options, Count), Sockets};
        {error, _} = Error ->
            _ = attach(Before, Listener, Options, Count),
            {Error, Before}
    end.

%% In the way in which the first sockets were opened.
opener(#{fd := Fd}) when Fd =/= undefined -> fun duplicate/2;
opener(#{ip := {local, _}}) -> fun duplicate/2;
opener(Options) -> fun(Socket, Pollset) -> join_group(Socket, group(Options), Pollset) end.

%% @doc Distributes sockets over the first `Count' pollsets.
-spec share([socket()], pos_integer()) -> [{socket(), weir_nif:pollset()}].
share(Sockets, Count) ->
    [{Socket, (Index - 1) rem Count + 1} || {Index, Socket} <- lists:zip(lists:seq(1, length(Sockets)), Sockets)].

%% bind(2) with SO_REUSEPORT succeeds although another listener has the port. Without it, it fails.
is_free(#{ip := IP, socket_opts := Settings}, Port) ->
    Family =
        case {weir_address:family(IP), lists:member(inet6, Settings)} of
            {undefined, true} -> inet6;
            {undefined, false} -> inet;
            {Known, _} -> Known
        end,
    {ok, Address} = weir_address:native(Family, IP, Port),
    case weir_nif:open(weir_tcp, Family, 1) of
        {ok, Handle} ->
            Only6 = [Option || Option = {ipv6_v6only, _} <- Settings],
            _ = weir_nif:setopts(Handle, [{reuseaddr, true} | Only6]),
            Bound = weir_nif:bind(Handle, Address),
            _ = weir_nif:close(Handle, now),
            Bound =:= ok orelse Bound;
        Error ->
            Error
    end.

%% @doc Connects the sockets, with their current options, to the native listener, on the first `Count' pollsets. The
%% kernel may refuse to watch one (epoll_ctl(2): ENOMEM, ENOSPC).
-spec attach([socket()], weir_nif:listener(), weir_listener_options:normal(), pos_integer()) ->
    ok | {error, closed | reactor | inet:posix()}.
attach(Sockets, Listener, Options, Count) -> attach(share(Sockets, Count), Listener, Options).

attach([], _Listener, _Options) ->
    ok;
attach([{?SOCKET(Handle), Pollset} | Sockets], Listener, Options) ->
    case attach_one(Handle, Pollset, Listener, Options) of
        ok -> attach(Sockets, Listener, Options);
        {error, _} = Error -> Error
    end.

%% Reactors accept from the listening socket, without a queue.
attach_one(Handle, _Pollset, Listener, #{handler := {reactor, _}}) ->
    weir_nif:listener_add_socket(Listener, reactor, Handle);
attach_one(Handle, Pollset, Listener, _Options) ->
    case weir_nif:move(Handle, Pollset) of
        ok -> weir_nif:listener_add_socket(Listener, Pollset, Handle);
        {error, _} = Error -> Error
    end.

%% @doc Makes the kernel refuse new connections. Connections in the backlog, or in a TCP handshake, can still be
%% accepted. The backlog of an inherited descriptor is shared with other programs, so it stays open.
-spec close_backlog(weir_listener_options:normal(), [socket()]) -> ok.
close_backlog(#{fd := undefined}, Sockets) ->
    lists:foreach(fun(?SOCKET(Handle)) -> weir_nif:refuse(Handle) end, Sockets);
close_backlog(_Options, _Sockets) ->
    ok.

%% @doc Whether a backlog holds connections.
-spec has_backlog([socket()]) -> boolean().
has_backlog(Sockets) -> lists:any(fun(?SOCKET(Handle)) -> weir_nif:has_backlog(Handle) =:= true end, Sockets).

%% @doc Sets new `socket_opts' on the sockets and for later connections. Options in both lists are not set again. The
%% error names the option that a listening socket refuses; the options before it are set.
-spec change(Old :: weir_listener_options:normal(), New :: weir_listener_options:normal(), [socket()]) ->
    ok | {error, weir_listener:bad_option()}.
change(#{socket_opts := Old}, #{socket_opts := New}, Sockets) -> change_each(New -- Old, Sockets).

change_each([], _Sockets) ->
    ok;
change_each([Option | Options], Sockets) ->
    case [Error || {_, _, Handle} <- Sockets, {error, _} = Error <- [change_one(Option, Handle)]] of
        [] -> change_each(Options, Sockets);
        [{error, Reason} | _] -> {error, {bad_option, socket_opts, Option, refused(Reason)}}
    end.

refused(Reason) ->
    lists:flatten(io_lib:format("an option that a listening socket accepts (~p)", [Reason])).

change_one({backlog, Backlog}, Handle) ->
    weir_nif:listen(Handle, Backlog);
change_one(Option, Handle) ->
    case weir_options:settings([Option]) of
        {ok, Settings} -> weir_nif:setopts(Handle, Settings);
        {error, einval} = Error -> Error
    end.

%% @doc Returns the port of the sockets; `undefined' for Unix sockets.
-spec port([socket()]) -> inet:port_number() | undefined.
port([Socket | _]) ->
    case inet:sockname(Socket) of
        {ok, {local, _}} -> undefined;
        {ok, {_, Port}} -> Port
    end.

%% @doc Closes the sockets. The kernel resets connections in their backlogs.
-spec close([socket()]) -> ok.
close(Sockets) ->
    lists:foreach(fun({_, _, Handle}) -> weir_nif:close(Handle, now) end, Sockets).
