%% @private
%% @doc The listening sockets of a listener: one for each pollset of a scheduler that is online.
%%
%% Where the kernel knows SO_REUSEPORT they are sockets of their own on one port, and it spreads connections over them.
%% A unix socket and a descriptor that came from elsewhere are duplicated instead: whichever pollset comes first accepts.
%%
%% When schedulers go offline, all sockets stay, because the kernel resets what waits in the backlog of one that is closed. They
%% are then dealt out to the pollsets that are left.
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

%% @doc Opens the sockets of the caller, one for each of the first pollsets. `Port' wins over that of the options. `Claim'
%% fails with `eaddrinuse' if somebody listens there already, even with SO_REUSEPORT; a successor, whose predecessor's
%% sockets may be on their way out, only shares.
-spec open(weir_listener_options:normal(), {claim | share, inet:port_number()}, pos_integer()) ->
    {ok, [socket()]} | {error, term()}.
open(Options = #{fd := Fd}, _Port, Count) when Fd =/= undefined ->
    open_descriptor(Options, [inet, inet6, local], Count);
open(Options = #{ip := {local, Path} = IP, shared := IsShared, mode := Mode}, {How, _Port}, Count) ->
    %% Who listens there keeps the socket, but not its name. That of a predecessor is on its way out.
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

%% Before it listens: nobody else has been able to connect until then.
permit(_Path, undefined) -> ok;
permit(Path, Mode) -> file:change_mode(Path, Mode).

%% The file of a unix socket stays behind its sockets. One on which nobody listens is removed.
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

%% A file of another kind was put there by mistake.
remove(Path) ->
    case file:read_link_info(Path) of
        {ok, #file_info{type = other}} -> file:delete(Path) =:= ok;
        _ -> false
    end.

%% Families are tried, as the descriptor does not say.
open_descriptor(_Options, [], _Count) ->
    {error, einval};
open_descriptor(Options = #{fd := Fd}, [Family | Families], Count) ->
    case listen(0, [Family, {fd, Fd} | settings(Options)]) of
        {error, einval} -> open_descriptor(Options, Families, Count);
        Result -> duplicated(Result, Count)
    end.

settings(#{socket_opts := Options}) -> Options.

%% What is wrong in the options of gen_tcp is an exit there.
listen(Port, Options) -> listen(Port, Options, fun() -> ok end).

listen(Port, Options, Bound) ->
    try
        weir_open:listen(any, Port, Options, Bound)
    catch
        exit:badarg -> {error, {bad_option, socket_opts, Options, "options of gen_tcp:listen/2 that go together"}}
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

%% It may have been made anywhere.
first(First = ?SOCKET(Handle), Open, Count) ->
    ok = weir_nif:move(Handle, 1),
    case others(First, Open, 2, Count) of
        {ok, Others} ->
            {ok, [First | Others]};
        Error ->
            ok = close([First]),
            Error
    end.

%% All or none.
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

%% @doc Has a listener use so many pollsets, the first ones: opens the sockets that are missing, and deals out all. Returns them; after
%% an error there are those that were there.
-spec follow([socket(), ...], weir_nif:listener(), weir_listener_options:normal(), pos_integer()) -> {ok | {error, term()}, [socket()]}.
follow(Before, Listener, Options, Count) ->
    case others(hd(Before), opener(Options), length(Before) + 1, Count) of
        {ok, More} ->
            Sockets = Before ++ More,
            {attach(Sockets, Listener, Options, Count), Sockets};
        {error, _} = Error ->
            _ = attach(Before, Listener, Options, Count),
            {Error, Before}
    end.

%% As the first ones were opened.
opener(#{fd := Fd}) when Fd =/= undefined -> fun duplicate/2;
opener(#{ip := {local, _}}) -> fun duplicate/2;
opener(Options) -> fun(Socket, Pollset) -> join_group(Socket, group(Options), Pollset) end.

%% @doc Deals sockets out to so many pollsets, the first ones.
-spec share([socket()], pos_integer()) -> [{socket(), weir_nif:pollset()}].
share(Sockets, Count) ->
    [{Socket, (Index - 1) rem Count + 1} || {Index, Socket} <- lists:zip(lists:seq(1, length(Sockets)), Sockets)].

%% Sockets with SO_REUSEPORT share a port without a word, also with those of another listener. One without tells.
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

%% @doc Has what the sockets accept go through the native listener, with the options that they have now, to so many pollsets. The
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

%% Reactors take their connections from the listening socket, without a queue.
attach_one(Handle, _Pollset, Listener, #{handler := {reactor, _}}) ->
    weir_nif:listener_add_socket(Listener, reactor, Handle);
attach_one(Handle, Pollset, Listener, _Options) ->
    case weir_nif:move(Handle, Pollset) of
        ok -> weir_nif:listener_add_socket(Listener, Pollset, Handle);
        {error, _} = Error -> Error
    end.

%% @doc Has the kernel take no more connections. Those that are there, or shake hands, can be accepted. A backlog that came from
%% elsewhere is others' too, and stays.
-spec close_backlog(weir_listener_options:normal(), [socket()]) -> ok.
close_backlog(#{fd := undefined}, Sockets) ->
    lists:foreach(fun(?SOCKET(Handle)) -> weir_nif:refuse(Handle) end, Sockets);
close_backlog(_Options, _Sockets) ->
    ok.

%% @doc Whether connections wait in a backlog.
-spec has_backlog([socket()]) -> boolean().
has_backlog(Sockets) -> lists:any(fun(?SOCKET(Handle)) -> weir_nif:has_backlog(Handle) =:= true end, Sockets).

%% @doc Has the sockets, and what they accept from now on, have other `socket_opts'. Those that both lists hold are not set
%% again. The error names the one that a listening socket does not take; those before it are set then.
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
    lists:flatten(io_lib:format("what can be set while it listens (~p)", [Reason])).

change_one({backlog, Backlog}, Handle) ->
    weir_nif:listen(Handle, Backlog);
change_one(Option, Handle) ->
    case weir_options:settings([Option]) of
        {ok, Settings} -> weir_nif:setopts(Handle, Settings);
        {error, einval} = Error -> Error
    end.

%% @doc The port of the sockets; none of unix sockets.
-spec port([socket()]) -> inet:port_number() | undefined.
port([Socket | _]) ->
    case inet:sockname(Socket) of
        {ok, {local, _}} -> undefined;
        {ok, {_, Port}} -> Port
    end.

%% @doc Closes the sockets. What waits in their backlogs is reset by the kernel.
-spec close([socket()]) -> ok.
close(Sockets) ->
    lists:foreach(fun({_, _, Handle}) -> weir_nif:close(Handle, now) end, Sockets).
