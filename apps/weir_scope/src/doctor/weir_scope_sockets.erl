%% @doc Facts about the TCP sockets of a node for the doctor: listeners, and how ports and Weir's sockets are read and
%% what they receive.
-module(weir_scope_sockets).

-export([facts/1]).
-export([counters/1]).

%% Sockets whose bytes are counted.
-define(COUNTED, 2000).

%% @doc Returns `listeners' (see {@link weir_scope_listeners:all/1}), `modes' (the option `active' of each socket that
%% {@link counters/1} counts) and `module_sockets' (the number of sockets of OTP's module `socket').
-spec facts(weir_scope_facts:ask()) -> weir_scope_facts:facts().
facts(Ask) ->
    Sockets = sockets(Ask),
    #{
        module_sockets => module_sockets(Ask),
        listeners => weir_scope_listeners:all(Ask),
        modes => maps:from_list([
            {Socket, Mode}
         || {Socket, {ok, [{active, Mode}]}} <- counted(Ask, fun inet:getopts/2, Sockets, [active])
        ])
    }.

%% @doc Returns `received': the bytes that each of the first 2,000 sockets has received.
-spec counters(weir_scope_facts:ask()) -> #{received := #{term() => non_neg_integer()}}.
counters(Ask) ->
    #{
        received => maps:from_list([
            {Socket, Bytes}
         || {Socket, {ok, [{recv_oct, Bytes}]}} <- counted(Ask, fun inet:getstat/2, sockets(Ask), [recv_oct])
        ])
    }.

%% Calls `Function(Socket, Argument)' for all sockets in one call to the node.
counted(Ask, Function, Sockets, Argument) ->
    Some = lists:sublist(Sockets, ?COUNTED),
    lists:zip(Some, Ask(lists, zipwith, [Function, Some, lists:duplicate(length(Some), Argument)])).

sockets(Ask) ->
    All = Ask(erlang, ports, []),
    Names = Ask(lists, zipwith, [fun erlang:port_info/2, All, lists:duplicate(length(All), name)]),
    Ports = [Port || {Port, {name, "tcp_inet"}} <- lists:zip(All, Names)],
    case Ask(erlang, whereis, [weir_sup]) of
        undefined -> Ports;
        _ -> Ports ++ Ask(weir, sockets, [])
    end.

%% A node that has not loaded the module has no such sockets.
module_sockets(Ask) ->
    case Ask(code, is_loaded, [socket]) of
        false -> 0;
        _ -> Ask(socket, number_of, [])
    end.
