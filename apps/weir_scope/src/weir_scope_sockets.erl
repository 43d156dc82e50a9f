%% @doc The TCP sockets of a node that are ports, and Weir's. Those of OTP's `socket' are only counted.
-module(weir_scope_sockets).

-export([facts/1]).
-export([counters/1]).

%% Sockets whose bytes are counted. From another node each takes a message.
-define(COUNTED, 2000).

%% @doc `listeners': of each a map with `port', `kind' (`port', `weir', or `distribution' for that of the node itself), `buffer' (bytes that are
%% read at once into its connections) and, where `ss' is there, `backlog' and `waiting' (connections that nobody has accepted yet). `modes': of each socket that {@link counters/1}
%% counts, its `active'. `module_sockets': how many sockets of OTP's module `socket' there are.
-spec facts(weir_scope_facts:ask()) -> weir_scope_facts:facts().
facts(Ask) ->
    Sockets = sockets(Ask),
    Queues = queues(Ask),
    #{
        module_sockets => module_sockets(Ask),
        listeners => [maps:merge(maps:get(Port, Queues, #{}), Listener) || Socket <- Sockets, Listener = #{port := Port} <- listener(Ask, Socket)],
        modes => maps:from_list([{Socket, Mode} || Socket <- lists:sublist(Sockets, ?COUNTED), {ok, [{active, Mode}]} <- [Ask(inet, getopts, [Socket, [active]])]])
    }.

%% @doc `received': the bytes that each of the first 2,000 sockets has received.
-spec counters(weir_scope_facts:ask()) -> #{received := #{term() => non_neg_integer()}}.
counters(Ask) ->
    #{
        received => maps:from_list([
            {Socket, Bytes}
         || Socket <- lists:sublist(sockets(Ask), ?COUNTED), {ok, [{recv_oct, Bytes}]} <- [Ask(inet, getstat, [Socket, [recv_oct]])]
        ])
    }.

sockets(Ask) ->
    Ports = [Port || Port <- Ask(erlang, ports, []), {name, "tcp_inet"} =:= Ask(erlang, port_info, [Port, name])],
    case Ask(erlang, whereis, [weir_sup]) of
        undefined -> Ports;
        _ -> Ports ++ Ask(weir, sockets, [])
    end.

%% A socket that has a port and no peer.
listener(Ask, Socket) ->
    case {Ask(inet, peername, [Socket]), Ask(inet, sockname, [Socket]), Ask(inet, getopts, [Socket, [buffer]])} of
        {{error, enotconn}, {ok, {_, Port}}, {ok, [{buffer, Buffer}]}} when Port > 0 -> [#{port => Port, buffer => Buffer, kind => kind(Ask, Socket)}];
        _ -> []
    end.

kind(Ask, Socket) when is_port(Socket) ->
    Kernel = Ask(erlang, whereis, [net_kernel]),
    case Ask(erlang, port_info, [Socket, connected]) of
        {connected, Kernel} -> distribution;
        _ -> port
    end;
kind(_Ask, _Socket) ->
    weir.

%% Where the module is not loaded, nobody has a socket of it.
module_sockets(Ask) ->
    case Ask(code, is_loaded, [socket]) of
        false -> 0;
        _ -> Ask(socket, number_of, [])
    end.

%% By port, as ss(8) prints them: `LISTEN WAITING BACKLOG ADDRESS:PORT ...'.
queues(Ask) ->
    Lines = string:lexemes(Ask(os, cmd, ["ss -ltnH 2>/dev/null"]), "\n"),
    maps:from_list(lists:append([queue(string:lexemes(Line, " ")) || Line <- Lines])).

queue(["LISTEN", Waiting, Backlog, Address | _]) ->
    Port = lists:last(string:lexemes(Address, ":")),
    [{list_to_integer(Port), #{waiting => list_to_integer(Waiting), backlog => list_to_integer(Backlog)}}];
queue(_) ->
    [].
