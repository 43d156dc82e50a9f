%% Shared by the suites of the drop-in: the same cases on two backends, sockets with a stock gen_tcp socket at the
%% other end, and a check after each case that nothing is left.
%%
%% The group `inet' runs the cases on stock gen_tcp, which proves that they expect gen_tcp's behaviour on this
%% release; the group `weir' runs them on `{tcp_module, weir_tcp}'. Some suites also run each case in two roles: on a
%% socket that was accepted and on one that connected.
-module(weir_test_peer).

-export([by_backend/1]).
-export([by_backend_and_role/1]).
-export([init_group/2]).
-export([end_group/2]).
-export([acquire_pollsets/1]).
-export([init_case/1]).
-export([end_case/1]).

-export([listen/2]).
-export([listen/3]).
-export([connect/4]).
-export([with_urgent_peer/2]).
-export([say_urgently/1]).
-export([connect_raw/1]).
-export([connect_raw/2]).
-export([accept_raw/1]).
-export([socket_pair/2]).
-export([socket_pair/3]).
-export([listener_with_full_backlog/0]).
-export([wait_for_queued/2]).
-export([wait_for_reset/1]).
-export([free_port/0]).
-export([keep/1]).
-export([reset/1]).

-export([async/1]).
-export([await/1]).
-export([await/2]).
-export([assert_waits/1]).
-export([kill/1]).
-export([pid/1]).

-export([silence_pollers/0]).
-export([unsilence_pollers/0]).
-export([without_pollers/2]).

-export([descriptors/0]).

-include_lib("weir_testing/include/weir_test.hrl").

-define(LOOPBACK, {127, 0, 0, 1}).
%% How long silence must last to count as silence, in milliseconds.
-define(QUIET, 20).
%% IPPROTO_TCP, TCP_INFO with this many bytes.
-define(TCP_INFO(Size), {raw, 6, 11, Size}).
%% The kernel's number for the state of a socket whose connection was reset.
-define(CLOSE, 7).

-type config() :: [{atom(), term()}].
-type async() :: {pid(), reference(), reference()}.

-export_type([config/0, async/0]).

%% Groups ---------------------------------------------------------------------

-spec by_backend([atom()]) -> [tuple()].
by_backend(Cases) ->
    [{inet, [], Cases}, {weir, [], Cases}].

-spec by_backend_and_role([atom()]) -> [tuple()].
by_backend_and_role(Cases) ->
    Roles = [{group, accepted}, {group, connected}],
    [{inet, [], Roles}, {weir, [], Roles}, {accepted, [], Cases}, {connected, [], Cases}].

-spec init_group(atom(), config()) -> config().
init_group(inet, Config) ->
    warm_up(),
    [{backend, []} | Config];
init_group(weir, Config) ->
    {ok, _} = application:ensure_all_started(weir),
    warm_up(),
    %% A listener has a reactor for each scheduler, and dead reactors get successors before their pollsets are free.
    acquire_pollsets(max(16, 8 * erlang:system_info(schedulers))),
    [{backend, [{tcp_module, weir_tcp}]} | Config];
init_group(Role, Config) ->
    [{role, Role} | Config].

-spec end_group(atom(), config()) -> ok.
end_group(_Group, _Config) ->
    ok.

%% The first look-up of a name starts the resolver, which keeps descriptors open.
warm_up() ->
    {ok, _} = inet:getaddr("localhost", inet),
    ok.

%% A process's pollset and its descriptor are kept for the next process that needs one. After this call there are this
%% many.
-spec acquire_pollsets(pos_integer()) -> ok.
acquire_pollsets(Count) ->
    Self = self(),
    Acquire = fun() ->
        {ok, _} = weir_nif:acquire(),
        Self ! {acquired, self()},
        receive stop -> ok end
    end,
    Holders = [spawn_monitor(Acquire) || _ <- lists:seq(1, Count)],
    [receive {acquired, Pid} -> ok end || {Pid, _} <- Holders],
    [Pid ! stop || {Pid, _} <- Holders],
    [receive {'DOWN', Monitor, process, Pid, normal} -> ok end || {Pid, Monitor} <- Holders],
    weir_test_wait:wait_until(fun() -> weir_nif:abandoned() =:= [] end).

-spec init_case(config()) -> config().
init_case(Config) ->
    put(?MODULE, []),
    [{descriptors, descriptors()}, {opened, opened()}, {sockets, weir_sockets(Config)} | Config].

%% Closes everything that the case has left open, and fails it if a descriptor or a socket of Weir survives. Peers are
%% reset first, so that no close waits for unread output.
-spec end_case(config()) -> ok | {fail, term()}.
end_case(Config) ->
    %% If the time limit ended the case, the process that kept them is gone, and so are they.
    Kept =
        case get(?MODULE) of
            undefined -> [];
            List -> List
        end,
    [reset(Socket) || {peer, Socket} <- Kept],
    [catch gen_tcp:close(Socket) || {socket, Socket} <- Kept],
    [kill(Async) || {process, Async} <- Kept],
    Released = fun() ->
        %% A file stays open while a term refers to it, even garbage or a log entry.
        (descriptors() =< proplists:get_value(descriptors, Config) orelse collect_garbage()) andalso
            weir_sockets(Config) =< proplists:get_value(sockets, Config) andalso
            counted_sockets(Config) =:= weir_sockets(Config)
    end,
    case weir_test_wait:becomes_true(Released, weir_test_wait:patience()) of
        true ->
            ok;
        false ->
            {fail,
                {left_behind,
                    {descriptors, proplists:get_value(descriptors, Config), descriptors(),
                        opened() -- proplists:get_value(opened, Config)},
                    {sockets, proplists:get_value(sockets, Config), weir_sockets(Config)},
                    {counted_sockets, counted_sockets(Config)}}}
    end.

collect_garbage() ->
    lists:foreach(fun erlang:garbage_collect/1, processes()),
    false.

weir_sockets(Config) ->
    case proplists:get_value(backend, Config) of
        [] -> 0;
        _ -> length(weir:sockets())
    end.

%% The number of sockets by the pollsets' counters.
counted_sockets(Config) ->
    case proplists:get_value(backend, Config) of
        [] -> 0;
        _ -> lists:sum([Sockets || #{sockets := Sockets} <- weir:pollsets()])
    end.

-spec descriptors() -> non_neg_integer().
descriptors() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    length(Names).

%% All descriptors with their targets.
opened() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    [{Name, file:read_link_all("/proc/self/fd/" ++ Name)} || Name <- Names].

%% Sockets --------------------------------------------------------------------

-spec listen(config(), [term()]) -> {inet:socket(), inet:port_number()}.
listen(Config, Options) ->
    {ok, Listener} = listen(Config, 0, [{ip, ?LOOPBACK} | Options]),
    {ok, Port} = inet:port(Listener),
    {Listener, Port}.

-spec listen(config(), term(), [term()]) -> {ok, inet:socket()} | {error, term()}.
listen(Config, Port, Options) ->
    keep(gen_tcp:listen(Port, proplists:get_value(backend, Config) ++ Options)).

-spec connect(config(), term(), term(), [term()] | {[term()], term()}) ->
    {ok, inet:socket()} | {error, term()}.
connect(Config, Address, Port, {Options, Timeout}) ->
    Backend = proplists:get_value(backend, Config),
    keep(gen_tcp:connect(Address, Port, Backend ++ Options, Timeout));
connect(Config, Address, Port, Options) ->
    keep(gen_tcp:connect(Address, Port, proplists:get_value(backend, Config) ++ Options)).

%% Runs a fun with a peer that can send urgent data, which gen_tcp cannot, connected to a port of the loopback.
-spec with_urgent_peer(inet:port_number(), fun((socket:socket()) -> Result)) -> Result.
with_urgent_peer(Port, Fun) ->
    {ok, Peer} = socket:open(inet, stream, tcp),
    try
        ok = socket:connect(Peer, #{family => inet, addr => loopback, port => Port}),
        ok = socket:setopt(Peer, {tcp, nodelay}, true),
        Fun(Peer)
    after
        socket:close(Peer)
    end.

%% Sends `abcefg' with an urgent byte in the middle, which is not part of the stream.
-spec say_urgently(socket:socket()) -> ok.
say_urgently(Peer) ->
    ok = socket:send(Peer, <<"abc">>),
    ok = socket:send(Peer, <<"!">>, [oob]),
    ok = socket:send(Peer, <<"efg">>).

%% A stock, passive, binary socket connected to a port of the loopback.
-spec connect_raw(inet:port_number()) -> gen_tcp:socket().
connect_raw(Port) ->
    connect_raw(Port, []).

-spec connect_raw(inet:port_number(), [term()]) -> gen_tcp:socket().
connect_raw(Port, Options) ->
    {ok, Peer} = gen_tcp:connect(?LOOPBACK, Port, raw_options() ++ Options, weir_test_wait:patience()),
    keep_peer(Peer).

-spec accept_raw(gen_tcp:socket()) -> gen_tcp:socket().
accept_raw(Listener) ->
    {ok, Peer} = gen_tcp:accept(Listener, weir_test_wait:patience()),
    keep_peer(Peer).

raw_options() ->
    [binary, {active, false}, {nodelay, true}].

%% A socket of the backend under test, owned by the caller, and its stock peer.
-spec socket_pair(config(), [term()]) -> {inet:socket(), gen_tcp:socket()}.
socket_pair(Config, Options) ->
    socket_pair(Config, Options, []).

-spec socket_pair(config(), [term()], [term()]) -> {inet:socket(), gen_tcp:socket()}.
socket_pair(Config, Options, PeerOptions) ->
    case proplists:get_value(role, Config, accepted) of
        accepted ->
            {Listener, Port} = listen(Config, Options),
            Peer = connect_raw(Port, PeerOptions),
            {ok, Socket} = keep(gen_tcp:accept(Listener, weir_test_wait:patience())),
            ok = gen_tcp:close(Listener),
            {Socket, Peer};
        connected ->
            {ok, Listener} = gen_tcp:listen(0, [{ip, ?LOOPBACK} | raw_options() ++ PeerOptions]),
            {ok, Port} = inet:port(Listener),
            {ok, Socket} = connect(Config, ?LOOPBACK, Port, {Options, weir_test_wait:patience()}),
            Peer = accept_raw(Listener),
            ok = gen_tcp:close(Listener),
            {Socket, Peer}
    end.

%% A stock listener to which further connections hang: the kernel drops them while the backlog is full.
-spec listener_with_full_backlog() -> inet:port_number().
listener_with_full_backlog() ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, ?LOOPBACK}, {backlog, 0}]),
    _ = keep_peer(Listener),
    {ok, Port} = inet:port(Listener),
    _ = connect_raw(Port),
    wait_for_queued(Listener, 1),
    Port.

%% Waits until this many connections are in the backlog. The connecting side is notified before the kernel has queued
%% the connection on the other side.
-spec wait_for_queued(inet:socket(), non_neg_integer()) -> ok.
wait_for_queued(Listener, Count) ->
    _ = ?waitEqual(Count, queued(Listener)),
    ok.

%% For a listener the field tcpi_unacked has this number, after 8 bytes and 4 words.
queued(Listener) ->
    {ok, [{raw, 6, 11, <<_:24/binary, Queued:32/native>>}]} = inet:getopts(Listener, [?TCP_INFO(28)]),
    Queued.

%% Waits until the kernel has received the peer's reset, without a use of the socket that would report it.
-spec wait_for_reset(inet:socket()) -> ok.
wait_for_reset(Socket) ->
    _ = ?waitMatch({ok, [{raw, 6, 11, <<?CLOSE>>}]}, inet:getopts(Socket, [?TCP_INFO(1)])),
    ok.

%% A port of the loopback on which nothing listens, and which no other test takes before the end of the case.
-spec free_port() -> inet:port_number().
free_port() ->
    await(async(fun weir_test_port:claim/0)).

%% Closes the socket when the case is over.
-spec keep(Result) -> Result when Result :: {ok, inet:socket()} | {error, term()}.
keep({ok, Socket} = Result) ->
    put(?MODULE, [{socket, Socket} | get(?MODULE)]),
    Result;
keep({error, _} = Result) ->
    Result.

keep_peer(Socket) ->
    put(?MODULE, [{peer, Socket} | get(?MODULE)]),
    Socket.

%% Closes with a reset instead of an orderly end.
-spec reset(gen_tcp:socket()) -> ok.
reset(Peer) ->
    _ = inet:setopts(Peer, [{linger, {true, 0}}]),
    gen_tcp:close(Peer).

%% Processes ------------------------------------------------------------------

%% Runs a function in another process, which lives until the end of the case or of the caller: what it opened stays
%% open, and its mailbox can be inspected. The result is sent on request only, so that the caller's mailbox has only
%% messages of sockets.
-spec async(fun(() -> term())) -> async().
async(Fun) ->
    Reference = make_ref(),
    {Pid, Monitor} = weir_test_process:start(fun() ->
        Result = Fun(),
        _ = put(Reference, returned),
        receive
            {Reference, From} -> From ! {Reference, Result}
        end,
        receive
            Reference -> ok
        end
    end),
    Async = {Pid, Monitor, Reference},
    put(?MODULE, [{process, Async} | get(?MODULE)]),
    Async.

-spec await(async()) -> term().
await(Async) ->
    await(Async, weir_test_wait:patience()).

%% As await/1, with a limit in milliseconds.
-spec await(async(), timeout()) -> term().
await({Pid, Monitor, Reference}, Patience) ->
    Pid ! {Reference, self()},
    receive
        {Reference, Result} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> ct:fail({process_died, Reason})
    after Patience ->
        ct:fail({no_result, process_info(Pid, current_stacktrace)})
    end.

%% Checks that the function has not returned and does not return while nothing happens.
-spec assert_waits(async()) -> ok.
assert_waits({Pid, _Monitor, Reference}) ->
    %% On a busy machine it may not have started yet.
    weir_test_wait:wait_until(fun() ->
        not lists:member(process_info(Pid, status), [{status, runnable}, {status, running}])
    end),
    receive
    after ?QUIET ->
        {dictionary, Dictionary} = process_info(Pid, dictionary),
        case lists:keymember(Reference, 1, Dictionary) of
            false -> ok;
            true -> ct:fail(did_not_wait)
        end
    end.

-spec kill(async()) -> ok.
kill({Pid, Monitor, _Reference}) ->
    Again = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Again, process, Pid, _} -> ok
    end,
    demonitor(Monitor, [flush]),
    ok.

-spec pid(async()) -> pid().
pid({Pid, _Monitor, _Reference}) ->
    Pid.

%% The log ----------------------------------------------------------------------

%% Weir logs each death of a poller; suites that kill many of them suppress that.
-spec silence_pollers() -> ok.
silence_pollers() ->
    logger:add_primary_filter(?MODULE, {fun ?MODULE:without_pollers/2, []}).

-spec unsilence_pollers() -> ok | {error, term()}.
unsilence_pollers() ->
    logger:remove_primary_filter(?MODULE).

-spec without_pollers(logger:log_event(), term()) -> stop | ignore.
without_pollers(#{msg := {report, #{what := "a poller died" ++ _}}}, _) -> stop;
without_pollers(#{msg := {report, #{what := "a worker of a listener" ++ _}}}, _) -> stop;
without_pollers(_Event, _) -> ignore.
