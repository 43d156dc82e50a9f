%% @private
%% @doc The listening sockets of a listener: one for each pollset.
%%
%% Where the kernel knows SO_REUSEPORT they are sockets of their own on one port, and it spreads connections over them.
%% A unix socket and a descriptor that came from elsewhere are duplicated instead: whichever pollset comes first accepts.
-module(weir_listener_sockets).

-include_lib("kernel/include/file.hrl").
-include("weir_socket.hrl").

-export([open/3]).
-export([attach/3]).
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
open(Options = #{ip := IP}, {How, Port}, Count) ->
    case How =:= share orelse Port =:= 0 orelse is_free(Options, Port) of
        true -> open_group([{ip, IP}, {reuseport, true} | settings(Options)], Port, Count);
        Error -> Error
    end.

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

duplicated({ok, First = {_, _, Handle}}, Count) ->
    Duplicate = fun(Pollset) ->
        case weir_nif:duplicate(Handle, Pollset) of
            {ok, Duplicate} -> {ok, ?SOCKET(Duplicate)};
            Error -> Error
        end
    end,
    place([First], Duplicate, 2, Count);
duplicated(Error, _Count) ->
    Error.

open_group(Options, Port, Count) ->
    case listen(Port, Options) of
        {ok, First} ->
            {ok, Chosen} = inet:port(First),
            Open = fun(Pollset) ->
                case listen(Chosen, Options) of
                    {ok, Socket = {_, _, Handle}} ->
                        ok = weir_nif:move(Handle, Pollset),
                        {ok, Socket};
                    Error ->
                        Error
                end
            end,
            place([First], Open, 2, Count);
        Error ->
            Error
    end.

%% The first may have been made anywhere, the others know their place.
place(Sockets, _Open, Pollset, Count) when Pollset > Count ->
    [First = {_, _, Handle} | Others] = lists:reverse(Sockets),
    ok = weir_nif:move(Handle, 1),
    {ok, [First | Others]};
place(Sockets, Open, Pollset, Count) ->
    case Open(Pollset) of
        {ok, Socket} ->
            place([Socket | Sockets], Open, Pollset + 1, Count);
        Error ->
            close(Sockets),
            Error
    end.

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

%% @doc Has what the sockets accept go through the native listener, with the options that they have now. The kernel may
%% refuse to watch one (epoll_ctl(2): ENOMEM, ENOSPC).
-spec attach([socket()], weir_nif:listener(), weir_listener_options:normal()) -> ok | {error, closed | inet:posix()}.
attach(Sockets, Listener, Options) -> attach(1, Sockets, Listener, Options).

attach(_Pollset, [], _Listener, _Options) ->
    ok;
attach(Pollset, [?SOCKET(Handle) | Sockets], Listener, Options) ->
    case weir_nif:listener_add_socket(Listener, queue(Pollset, Options), Handle) of
        ok -> attach(Pollset + 1, Sockets, Listener, Options);
        {error, _} = Error -> Error
    end.

%% Reactors take their connections from the listening socket, without a queue.
queue(_Pollset, #{handler := {reactor, _}}) -> reactor;
queue(Pollset, _Options) -> Pollset.

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
