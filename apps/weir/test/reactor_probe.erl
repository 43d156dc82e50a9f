%% A reactor whose callbacks report their calls to a process and do what the test says. The state of a connection is a
%% map: `tell' is the process, the other keys are funs that replace a callback's result.
%%
%% Also has what the suites of reactors share.
-module(reactor_probe).
-behaviour(weir_reactor).

-export([init/2]).
-export([handle_data/3]).
-export([handle_close/3]).
-export([handle_writable/2]).
-export([handle_info/2]).
-export([begin_tick/1]).
-export([handle_tick/2]).
-export([terminate/2]).

-export([prepare/0]).
-export([tell_only/3, fail/2]).
-export([start/1]).
-export([start/2]).
-export([start/3]).
-export([start_on/3]).
-export([listen/1]).
-export([client/1]).
-export([stop/1]).
-export([kill_reactor/1]).
-export([told/1]).
-export([told/2]).
-export([told_of/2]).
-export([recv_all/1]).
-export([exchange/2]).
-export([send_apart/2]).
-export([reports/1]).
-export([log/2]).

-include_lib("stdlib/include/assert.hrl").

-import(weir_test_wait, [patience/0, wait_until/1]).

-define(LOOPBACK, {127, 0, 0, 1}).

init(Socket, Args = #{tell := Pid}) ->
    Pid ! {init, Socket},
    answer(init, [Socket], Args#{socket => Socket}).

handle_data(Socket, Data, State) ->
    answer(data, [Socket, Data], State).

handle_close(Socket, {connect, Reason}, #{tell := Pid}) ->
    Pid ! {not_connected, Socket, Reason},
    {ok, none};
handle_close(Socket, Reason, State = #{tell := Pid}) ->
    Pid ! {closed, Socket, Reason},
    answer(close, [Reason], State).

handle_writable(Socket, State = #{tell := Pid}) ->
    Pid ! {writable, Socket},
    answer(writable, [Socket], State).

handle_info(Message, State = #{tell := Pid, socket := Socket}) ->
    Pid ! {info, Socket, Message},
    answer(info, [Message], State).

begin_tick(Args) ->
    case Args of
        #{begin_tick := Fun} -> Fun();
        #{} -> due
    end.

handle_tick(Socket, State) ->
    answer(tick, [Socket], State).

terminate(Reason, State = #{tell := Pid, socket := Socket}) ->
    Pid ! {terminated, Socket, Reason},
    answer(terminate, [Reason], State).

answer(Callback, Arguments, State) ->
    case State of
        #{Callback := Fun} -> apply(Fun, Arguments ++ [State]);
        #{} when Callback =:= data -> {send, lists:last(Arguments), State};
        #{} -> {ok, State}
    end.

%%% For the suites.

%% A pollset is kept with its descriptor once created, so those that a case needs are created before descriptors are
%% counted.
prepare() ->
    {ok, _} = application:ensure_all_started(weir),
    Reactors = [element(2, {ok, _} = weir_reactor:start_link(#{module => ?MODULE})) || _ <- lists:seq(1, 4)],
    lists:foreach(fun(Reactor) -> ok = proc_lib:stop(Reactor) end, Reactors),
    wait_until(fun() -> weir_nif:abandoned() =:= [] end).

%% Starts a reactor that listens, and returns its port. Its reports go to the caller.
start(Args) ->
    start(Args, []).

start(Args, Listen) ->
    start(Args, Listen, #{}).

start(Args, Listen, Options) ->
    {Socket, Port} = listen(Listen),
    {start_on(Socket, Args, Options), Port}.

start_on(Socket, Args, Options) ->
    Full = maps:merge(#{module => ?MODULE, args => Args#{tell => self()}, listen => Socket}, Options),
    {ok, Reactor} = weir_reactor:start_link(Full),
    Reactor.

listen(Options) ->
    Ours = [{tcp_module, weir_tcp}, binary, {ip, ?LOOPBACK}, {nodelay, true}, {backlog, 1024}],
    {ok, Socket} = weir_test_peer:keep(gen_tcp:listen(0, Ours ++ Options)),
    {ok, Port} = inet:port(Socket),
    {Socket, Port}.

stop(Reactor) ->
    ok = proc_lib:stop(Reactor).

%% Returns the next report of this callback.
told(Kind) ->
    receive
        Message when element(1, Message) =:= Kind -> Message
    after patience() -> ct:fail({not_told, Kind, process_info(self(), messages)})
    end.

told(Kind, Socket) ->
    receive
        {Kind, Socket, What} -> What
    after patience() -> ct:fail({not_told, Kind, process_info(self(), messages)})
    end.

%% Returns the bytes before the end of the stream.
recv_all(Socket) ->
    {Bytes, _Reason} = weir_test_wait:recv_all(Socket),
    Bytes.

exchange(Peer, Bytes) ->
    ok = gen_tcp:send(Peer, Bytes),
    ?assertEqual(iolist_to_binary(Bytes), weir_test_wait:recv_exactly(Peer, iolist_size(Bytes))).

%% Sends pieces to a socket of Weir, each after the previous one was read, so that no two are read together. Nothing
%% else may be read meanwhile.
send_apart(Peer, Pieces) ->
    lists:foldl(
        fun(Piece, Before) ->
            ok = gen_tcp:send(Peer, Piece),
            After = Before + iolist_size(Piece),
            wait_until(fun() -> read_bytes() =:= After orelse {read, read_bytes(), 'of', After} end),
            After
        end,
        read_bytes(),
        Pieces
    ).

%% Bytes read by all pollsets, including those of reactors.
read_bytes() ->
    OfReactors = [weir_nif:counters(Pollset) || #{pollset := Pollset} <- weir:reactors()],
    lists:sum([Bytes || #{read_bytes := Bytes} <- weir:pollsets() ++ OfReactors]).

%% Returns the text that is logged while a function runs.
reports(Fun) ->
    Self = self(),
    Id = list_to_atom(lists:flatten(io_lib:format("~p", [make_ref()]))),
    ok = logger:add_handler(Id, ?MODULE, #{config => #{pid => Self}}),
    try
        Fun()
    after
        %% A reactor logs before it answers this call, and the log handler runs in the reactor's process.
        [catch sys:get_state(Reactor, patience()) || #{reactor := Reactor} <- weir:reactors()],
        ok = logger:remove_handler(Id)
    end,
    reported().

reported() ->
    receive
        {reported, Text} -> [Text | reported()]
    after 0 -> []
    end.

log(#{msg := {Format, Arguments}}, #{config := #{pid := Pid}}) when is_list(Format) ->
    Pid ! {reported, lists:flatten(io_lib:format(Format, Arguments))};
log(#{msg := {report, Report = #{what := _}}, meta := #{report_cb := Shown}}, #{config := #{pid := Pid}}) ->
    {Format, Arguments} = Shown(Report),
    Pid ! {reported, lists:flatten(io_lib:format(Format, Arguments))};
log(_Event, _Config) ->
    ok.

client(Args) ->
    {ok, Reactor} = weir_reactor:start_link(#{module => ?MODULE, args => Args#{tell => self()}}),
    Reactor.

told_of(Kind, Socket) ->
    receive
        {Kind, Socket} -> {Kind, Socket}
    after patience() -> ct:fail({not_told, Kind})
    end.

kill_reactor(Reactor) ->
    Monitor = monitor(process, Reactor),
    exit(Reactor, kill),
    receive
        {'DOWN', Monitor, process, Reactor, _} -> ok
    after patience() -> ct:fail({still_alive, Reactor})
    end.

%% A callback that reports data, and one that fails in every way.
tell_only(Socket, Data, State = #{tell := Pid}) ->
    Pid ! {data, Socket, Data},
    {ok, State}.

fail(raise, _State) -> error(on_purpose);
fail(exit, _State) -> exit(on_purpose);
fail(throw, _State) -> throw(on_purpose);
fail(garbage, _State) -> garbage;
fail(nothing, _State) -> {};
fail(unsendable, State) -> {send, [256], State}.
