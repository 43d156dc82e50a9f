%% Random histories of listeners: several operators start, stop, suspend, drain and change them under the same names,
%% while clients connect, are served, relayed and reset, and leave, and handlers die. No call raises an exception, a
%% client gets only what a handler sends, no process of a listener lives after stop has returned, and in the end
%% nothing is left.
-module(weir_scenario_listeners).
-behaviour(weir_reactor).

-include_lib("stdlib/include/assert.hrl").

-export([run/2]).
-export([serve/2]).
-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).

-import(weir_test_wait, [patience/0]).
-import(weir_scenario, [one_of/1, seed/1, start_disturber/2]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(OPERATORS, 3).
-define(OPERATIONS, 40).
-define(CLIENTS, 6).

%% Runs rounds with random numbers of this seed, and fails with what violated an invariant.
-spec run(term(), pos_integer()) -> ok.
run(Seed, Rounds) ->
    lists:foreach(fun(Round) -> play({Seed, Round}) end, lists:seq(1, Rounds)).

play(Seed) ->
    ok = seed(Seed),
    Served = ets:new(served, [public, bag]),
    {ok, Echo} = gen_tcp:listen(0, [{tcp_module, weir_tcp}, binary, {active, false}, {ip, ?LOOPBACK}, {backlog, 64}]),
    {ok, Port} = inet:port(Echo),
    Server = spawn_link(fun() -> accept(Echo) end),
    Names = [{?MODULE, N} || N <- lists:seq(1, ?OPERATORS)],
    Clients = [start_disturber({Seed, client, N}, fun() -> visit(one_of(Names)) end) || N <- lists:seq(1, ?CLIENTS)],
    Operators = [start_operator({Seed, Name}, Name, Names, {Served, Port}) || Name <- Names],
    try
        Wrong = [
            {Name, Outcome}
         || {Name, Pid} <- lists:zip(Names, Operators), Outcome <- [outcome(Pid)], Outcome =/= ok
        ],
        ?assertEqual({Seed, []}, {Seed, Wrong})
    after
        lists:foreach(fun weir_scenario:stop_disturber/1, Clients),
        _ = [weir:stop_listener(Name) || Name <- Names],
        unlink(Server),
        exit(Server, kill),
        ok = gen_tcp:close(Echo),
        ets:delete(Served)
    end,
    ?assertEqual({Seed, []}, {Seed, [Name || Name <- weir:listeners(), lists:member(Name, Names)]}).

outcome(Pid) ->
    receive
        {ended, Pid, Outcome} -> Outcome
    after patience() -> no_end
    end.

accept(Echo) ->
    {ok, Socket} = gen_tcp:accept(Echo),
    Server = spawn(fun() -> receive go -> serve_echo(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Server),
    Server ! go,
    accept(Echo).

serve_echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            serve_echo(Socket);
        {error, _} ->
            gen_tcp:close(Socket)
    end.

%% Operators ----------------------------------------------------------------------

%% Each operator starts and stops the listener with its own name, and knows what must be gone then. All change the
%% listeners of all.
start_operator(Seed, Name, Names, Served) ->
    Parent = self(),
    spawn_link(fun() ->
        ok = seed(Seed),
        Outcome =
            try
                lists:foreach(fun(_) -> operate(rand:uniform(10), Name, Names, Served) end, lists:seq(1, ?OPERATIONS))
            catch
                Class:Reason:Stack -> {Class, Reason, Stack}
            end,
        Parent ! {ended, self(), Outcome}
    end).

operate(N, Name, _Names, Served) when N =< 2 -> stop(Name, Served);
operate(N, Name, _Names, {Served, Port}) when N =< 5 -> start(rand:uniform(3), Name, {Served, Port});
operate(_, _Name, Names, _Served) -> change(rand:uniform(7), one_of(Names)).

start(Kind, Name, Served) ->
    Options = #{
        ip => ?LOOPBACK,
        port => 0,
        shutdown => one_of([brutal_kill, 50]),
        max_connections => one_of([1, 3, 100, infinity])
    },
    case start_of(Kind, Name, Options, Served) of
        {ok, _} -> ok;
        {error, {already_started, _}} -> ok
    end.

start_of(1, Name, Options, {Served, Port}) ->
    weir:start_listener(Name, Options#{reactor => #{affinity => one_of([soft, bound])}}, ?MODULE, {Name, Served, Port});
start_of(_, Name, Options, {Served, Port}) ->
    weir:start_listener(Name, Options#{affinity => one_of([soft, bound])}, fun ?MODULE:serve/2, {Name, Served, Port}).

%% A process that has lost its connection may be about to end.
stop(Name, {Served, _Port}) ->
    case weir:stop_listener(Name) of
        ok ->
            Alive = [Pid || {_, Pid, Socket} <- ets:lookup(Served, Name), is_process_alive(Pid), is_open(Socket)],
            ?assertEqual({stopped, Name, []}, {stopped, Name, Alive});
        {error, {no_listener, Name}} ->
            ok
    end,
    true = ets:delete(Served, Name).

is_open(Socket) -> inet:getopts(Socket, [active]) =/= {error, einval}.

change(1, Name) -> weir:suspend_listener(Name);
change(2, Name) -> weir:resume_listener(Name);
change(3, Name) -> weir:set_max_connections(Name, one_of([0, 1, 5, infinity]));
change(4, Name) -> weir:set_options(Name, #{socket_opts => [{nodelay, one_of([true, false])}]});
change(5, Name) -> weir:drain_listener(Name, one_of([0, 10]));
change(6, Name) -> {weir:info(Name), weir:connections(Name)};
change(7, _Name) -> [weir:info(Each) || Each <- weir:listeners()].

%% Handlers -----------------------------------------------------------------------

serve(Socket, {Name, Served, Port}) ->
    ets:insert(Served, {Name, self(), Socket}),
    case rand:uniform(8) of
        1 -> exit(kill);
        2 -> exit(self(), kill);
        3 -> relay(Socket, Port);
        _ -> serve_echo(Socket)
    end.

relay(Socket, Port) ->
    {ok, Server} = gen_tcp:connect(?LOOPBACK, Port, [{tcp_module, weir_tcp}, binary, {active, false}]),
    case weir:relay(Socket, Server) of
        {ok, _} -> ok;
        {error, _} -> gen_tcp:close(Server)
    end.

init(_Socket, _Args) -> {ok, no_state}.

handle_data(_Socket, Data, State) ->
    case rand:uniform(50) of
        1 -> error(this_callback_fails);
        2 -> {close, Data, State};
        _ -> {send, Data, State}
    end.

handle_close(_Socket, _Reason, State) -> {ok, State}.

%% Clients ------------------------------------------------------------------------

visit(Name) ->
    case weir:get_port(Name) of
        Port when is_integer(Port) -> connect(Port);
        {error, {no_listener, Name}} -> ok
    end.

connect(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {nodelay, true}], 100) of
        {ok, Peer} ->
            ok = talk(Peer, rand:uniform(3)),
            _ = inet:setopts(Peer, [{linger, {one_of([true, false]), 0}}]),
            gen_tcp:close(Peer);
        {error, _} ->
            ok
    end.

talk(_Peer, 0) ->
    ok;
talk(Peer, Times) ->
    Word = <<(rand:uniform(1 bsl 62)):64>>,
    case gen_tcp:send(Peer, Word) of
        ok ->
            %% The client may have to wait for a slot.
            case gen_tcp:recv(Peer, 8, 50) of
                {ok, Word} -> talk(Peer, Times - 1);
                {ok, Other} -> error({said, Word, heard, Other});
                {error, _} -> ok
            end;
        {error, _} ->
            ok
    end.
