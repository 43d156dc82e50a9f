%% @doc A reactor and a listening socket on each scheduler, shared by the examples on reactors.
-module(weir_example_reactors).

-export([start/2]).

-export_type([server/0]).

%% `stop' ends the reactors, closes their connections and the listening sockets.
-type server() :: #{port := inet:port_number(), stop := fun(() -> ok)}.

%% @doc Listens on `port' (default 0: a free one) with the options `listen', and starts reactors with the options
%% `Reactor'. The caller owns the listening sockets: when it ends, so does the server.
%%
%% All sockets listen on the same port, and the kernel distributes connections among them (`reuseport').
%%
%% Errors are those of `gen_tcp:listen/2' and of {@link weir_reactor:start_link/1}.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}, weir_reactor:options()) ->
    {ok, server()} | {error, term()}.
start(Options, Reactor) ->
    Listen = [
        Option
     || Option <- maps:get(listen, Options, []), Option =/= {tcp_module, weir_tcp}
    ],
    start(lists:seq(1, erlang:system_info(schedulers_online)), maps:get(port, Options, 0), Listen, Reactor, []).

start([], Port, _Listen, _Reactor, Started) ->
    {ok, #{port => Port, stop => fun() -> stop(Started) end}};
start([Scheduler | Schedulers], Port, Listen, Reactor, Started) ->
    Ours = [{tcp_module, weir_tcp}, binary, {nodelay, true}, {reuseaddr, true}, {reuseport, true}, {backlog, 1024}],
    case gen_tcp:listen(Port, Listen ++ Ours) of
        {ok, Socket} ->
            {ok, Actual} = inet:port(Socket),
            case weir_reactor:start_link(Reactor#{listen => Socket, scheduler => Scheduler}) of
                {ok, Pid} -> start(Schedulers, Actual, Listen, Reactor, [{Pid, Socket} | Started]);
                {error, _} = Error -> fail([{none, Socket} | Started], Error)
            end;
        {error, _} = Error ->
            fail(Started, Error)
    end.

fail(Started, Error) ->
    ok = stop(Started),
    Error.

stop(Started) ->
    lists:foreach(fun({Reactor, Socket}) ->
        ok = gen_tcp:close(Socket),
        Reactor =:= none orelse proc_lib:stop(Reactor)
    end, Started).
