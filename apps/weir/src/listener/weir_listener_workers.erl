%% @private
%% @doc The workers of a listener: an acceptor or a reactor for each pollset of an online scheduler, linked to the
%% listener's process.
%%
%% A worker runs on the scheduler of its poller. A dead worker is replaced. So is an acceptor whose poller has moved;
%% the old acceptor stays while it is the parent of connections.
%%
%% When schedulers go offline their workers stay: an acceptor for its accept queue, a reactor for its connections.
%% They get no new connections, because other pollsets have the listening sockets, and resume when their schedulers
%% are back.
-module(weir_listener_workers).

-export([new/4]).
-export([start/3]).
-export([restart/3]).
-export([change/4]).
-export([listen/3]).
-export([died/3]).
-export([acceptors/1]).
-export([children/1]).

-export_type([workers/0]).

%% A worker that lived shorter than this is not replaced at once, so that a bug does not cause a storm of restarts.
-define(SHORT_LIFE_MS, 50).

-record(worker, {pid :: pid(), home :: weir_pollsets:home(), born :: integer()}).

-record(workers, {
    terms :: weir_connection:terms(),
    options :: weir_listener_options:normal(),
    listener :: weir_nif:listener(),
    ranch :: weir_ranch:bridge(),
    %% How many pollsets, the first ones, get connections.
    count = 1 :: pos_integer(),
    running = #{} :: #{weir_nif:pollset() => #worker{}},
    %% Replaced acceptors that still have connections.
    retired = [] :: [pid()]
}).

-opaque workers() :: #workers{}.

%% @doc Returns the workers of a listener, none of them started. `Ranch' is the process that ranch knows for it.
-spec new(weir_connection:terms(), weir_listener_options:normal(), weir_ranch:bridge(), weir_nif:listener()) ->
    workers().
new(Terms, Options, Ranch, Listener) -> #workers{terms = Terms, options = Options, ranch = Ranch, listener = Listener}.

%% @doc Starts a worker for each of the first `Count' pollsets, where its poller runs. If the poller has just died, it
%% starts later, with the poller's successor. Reactors listen on the sockets.
-spec start(pos_integer(), [weir_tcp:socket()], workers()) -> workers().
start(Count, Sockets, Workers = #workers{running = Running}) ->
    Pollers = pollers(),
    Pollsets = lists:umerge(lists:seq(1, Count), lists:sort(maps:keys(Running))),
    Start = fun(Pollset, Now) -> start(Pollset, Pollers, Sockets, Now) end,
    lists:foldl(Start, Workers#workers{count = Count}, Pollsets).

%% In a process of its own, which waits even if this one is killed.
retire(Old, Workers = #workers{retired = Retired}) ->
    _ = spawn(fun() -> weir_acceptor:retire([Old]) end),
    Workers#workers{retired = [Old | Retired]}.

%% @doc Starts another worker for a pollset, if it needs one. A reactor beyond the first `Count' pollsets is not
%% replaced.
-spec restart(weir_nif:pollset(), [weir_tcp:socket()], workers()) -> workers().
restart(Pollset, _Sockets, Workers = #workers{count = Count, options = #{handler := {reactor, _}}}) when
    Pollset > Count
->
    Workers;
restart(Pollset, Sockets, Workers) ->
    start(Pollset, pollers(), Sockets, Workers).

%% While Weir is being stopped there are no pollers.
pollers() ->
    try
        weir_pollsets:pollers()
    catch
        exit:_ -> #{}
    end.

start(Pollset, Pollers, Sockets, Workers = #workers{running = Running, options = #{handler := {Kind, _}}}) ->
    case {Pollers, Running} of
        {#{Pollset := {_, Home}}, #{Pollset := #worker{home = Home}}} ->
            Workers;
        %% A reactor keeps its connections and runs on. It is only bound if its options say so.
        {#{Pollset := _}, #{Pollset := _}} when Kind =:= reactor ->
            Workers;
        {#{Pollset := {_, Home}}, #{Pollset := #worker{pid = Old}}} ->
            %% The old one may be frozen on an offline scheduler. It keeps its connections.
            new_worker(Pollset, Home, Sockets, retire(Old, Workers));
        {#{Pollset := {_, Home}}, #{}} ->
            new_worker(Pollset, Home, Sockets, Workers);
        {#{}, #{}} ->
            start_later(Pollset, ?SHORT_LIFE_MS, Workers)
    end.

start_later(Pollset, Pause, Workers) ->
    _ = erlang:send_after(Pause, self(), {start_worker, Pollset}),
    Workers.

new_worker(Pollset, Home, Sockets, Workers = #workers{running = Running, terms = Terms}) ->
    Born = erlang:monotonic_time(millisecond),
    case start_link(Pollset, Home, Sockets, Workers) of
        {ok, Pid} ->
            ok = listen_on_others(Pollset, Pid, Sockets, Workers),
            Workers#workers{running = Running#{Pollset => #worker{pid = Pid, home = Home, born = Born}}};
        {error, Reason} ->
            ok = weir_reports:log(warning, #{
                what => "a worker of a listener did not start; it will be tried again",
                listener => weir_connection:listener(Terms),
                pollset => Pollset,
                reason => Reason
            }),
            start_later(Pollset, ?SHORT_LIFE_MS, Workers)
    end.

start_link(Pollset, Home, Sockets, Workers = #workers{options = #{handler := {reactor, Module}, args := Args}}) ->
    #workers{options = Options, terms = Terms} = Workers,
    Scheduler =
        case Home of
            anywhere -> Pollset;
            _ -> Home
        end,
    Given = maps:merge(maps:get(reactor, Options), maps:with([proxy_protocol, handshake_timeout, measure], Options)),
    Reactor = Given#{module => Module, args => Args, scheduler => Scheduler, listen => listening(Pollset, Sockets)},
    weir_reactor_start:start_link(Reactor, weir_connection:handshakes(Terms));
start_link(Pollset, Home, _Sockets, #workers{terms = Terms, options = Options, ranch = Ranch, listener = Listener}) ->
    {ok, weir_acceptor:start_link(Terms, Options, Ranch, Listener, Pollset, Home)}.

%% There are fewer sockets if descriptors have run out.
listening(Pollset, Sockets) when Pollset =< length(Sockets) -> lists:nth(Pollset, Sockets);
listening(_Pollset, _Sockets) -> none.

%% The sockets of offline schedulers.
listen_on_others(Pollset, Pid, Sockets, #workers{options = #{handler := {reactor, _}}, count = Count}) ->
    Own = listening(Pollset, Sockets),
    Shares = weir_listener_sockets:share(Sockets, Count),
    _ = [weir_reactor:listen(Pid, Socket) || {Socket, Of} <- Shares, Of =:= Pollset, Socket =/= Own],
    ok;
listen_on_others(_Pollset, _Pid, _Sockets, _Workers) ->
    ok.

%% @doc Changes the options of later connections. A running reactor keeps its options, except `measure'.
-spec change(weir_connection:terms(), weir_listener_options:normal(), weir_ranch:bridge(), workers()) -> workers().
change(Terms, Options, Ranch, Workers = #workers{running = Running, retired = Retired}) ->
    case Options of
        #{handler := {reactor, _}, measure := Measured} ->
            _ = [weir_reactor:measure(Pid, Measured) || #worker{pid = Pid} <- maps:values(Running)],
            ok;
        #{} ->
            Pids = [Pid || #worker{pid = Pid} <- maps:values(Running)] ++ Retired,
            lists:foreach(fun(Pid) -> Pid ! {change, Terms, Options, Ranch} end, Pids)
    end,
    Workers#workers{terms = Terms, options = Options, ranch = Ranch}.

%% @doc Distributes the sockets over the first `Count' running reactors.
-spec listen(pos_integer(), [weir_tcp:socket()], workers()) -> ok.
listen(Count, Sockets, #workers{options = #{handler := {reactor, _}}, running = Running}) ->
    Shares = weir_listener_sockets:share(Sockets, Count),
    _ = [
        weir_reactor:listen(Pid, Socket)
     || {Socket, Pollset} <- Shares, #{Pollset := #worker{pid = Pid}} <- [Running]
    ],
    ok;
listen(_Count, _Sockets, _Workers) ->
    ok.

%% @doc Handles the death of a linked process. If it was a worker, the message `{start_worker, Pollset}' comes when it
%% is time for {@link restart/3}.
-spec died(pid(), Reason :: term(), workers()) -> workers().
died(Pid, Reason, Workers = #workers{terms = Terms, running = Running, retired = Retired}) ->
    case [Entry || Entry = {_, #worker{pid = P}} <- maps:to_list(Running), P =:= Pid] of
        [{Pollset, #worker{born = Born}}] ->
            ok = weir_reports:log(warning, #{
                what => "a worker of a listener died; another is started",
                listener => weir_connection:listener(Terms),
                pollset => Pollset,
                reason => Reason
            }),
            Pause =
                case erlang:monotonic_time(millisecond) - Born < ?SHORT_LIFE_MS of
                    true -> ?SHORT_LIFE_MS;
                    false -> 0
                end,
            start_later(Pollset, Pause, Workers#workers{running = maps:remove(Pollset, Running)});
        [] ->
            Workers#workers{retired = lists:delete(Pid, Retired)}
    end.

%% @doc Returns all workers, including replaced ones.
-spec acceptors(workers()) -> [pid()].
acceptors(#workers{running = Running, retired = Retired}) ->
    [Pid || #worker{pid = Pid} <- maps:values(Running)] ++ Retired.

%% @doc Returns the workers in the form of `supervisor:which_children/1'.
-spec children(workers()) -> [{term(), pid(), worker | supervisor, [module()]}].
children(Workers = #workers{options = #{handler := {Kind, Handler}}}) ->
    {Type, Module} =
        case Kind of
            reactor -> {worker, Handler};
            protocol -> {supervisor, weir_acceptor};
            function -> {worker, weir_acceptor}
        end,
    [{Pid, Pid, Type, [Module]} || Pid <- acceptors(Workers)].
