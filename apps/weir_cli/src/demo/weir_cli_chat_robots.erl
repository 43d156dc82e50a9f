%% @doc Keeps as many robots running as the dial says. The dial is a channel whose last message is the number. Each
%% second a summary of the delays that the robots have recorded is published to another channel.
-module(weir_cli_chat_robots).
-behaviour(gen_server).

-export([start_link/3]).
-export([stop/1]).
-export([most/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(robots, {
    port :: inet:port_number(),
    rooms :: [weir_pubsub:channel(), ...],
    dial :: weir_pubsub:channel(),
    report :: weir_pubsub:channel(),
    delays :: weir_cli_chat_delay:delays(),
    wanted = 0 :: non_neg_integer(),
    %% Robots by their number, from 1.
    running = #{} :: #{pos_integer() => pid()}
}).

-define(MOST, 1000).

%% Robots that start or stop in one step: 1,000 take 5 seconds.
-define(STEP, 20).
-define(STEP_MS, 100).

-define(REPORT_MS, 1000).

-spec start_link(inet:port_number(), [weir_pubsub:channel(), ...], {
    Dial :: weir_pubsub:channel(), Report :: weir_pubsub:channel()
}) ->
    {ok, pid()}.
start_link(Port, Rooms, {Dial, Report}) ->
    {ok, _} = gen_server:start_link(?MODULE, {Port, Rooms, Dial, Report}, []).

%% @doc Stops this process and all robots.
-spec stop(pid()) -> ok.
stop(Robots) -> gen_server:stop(Robots).

%% @doc Returns the maximum number of robots.
-spec most() -> pos_integer().
most() -> ?MOST.

-spec init({inet:port_number(), [weir_pubsub:channel(), ...], weir_pubsub:channel(), weir_pubsub:channel()}) ->
    {ok, #robots{}}.
init({Port, Rooms, Dial, Report}) ->
    %% A robot ends when its connection breaks. The next step starts another in its place.
    process_flag(trap_exit, true),
    {ok, _} = weir_pubsub:subscribe(Dial, #{}),
    {ok, _} = timer:send_interval(?STEP_MS, step),
    {ok, _} = timer:send_interval(?REPORT_MS, report),
    {ok, #robots{port = Port, rooms = Rooms, dial = Dial, report = Report, delays = weir_cli_chat_delay:new()}}.

-spec handle_call(term(), gen_server:from(), #robots{}) -> {reply, ok, #robots{}}.
handle_call(_Request, _From, State) -> {reply, ok, State}.

-spec handle_cast(term(), #robots{}) -> {noreply, #robots{}}.
handle_cast(_Request, State) -> {noreply, State}.

-spec handle_info(term(), #robots{}) -> {noreply, #robots{}}.
handle_info({weir_pubsub, Dial, {message, _Id, Text, _}}, #robots{dial = Dial} = State) ->
    {noreply, State#robots{wanted = wanted(Text, State)}};
handle_info(step, State) ->
    {noreply, step(State)};
handle_info(report, #robots{report = Report, delays = Delays, running = Running, wanted = Wanted} = State) ->
    Summary = weir_cli_chat_delay:take(Delays),
    _ = weir_pubsub:publish(Report, weir_json:compact(Summary#{robots => map_size(Running), wanted => Wanted})),
    {noreply, State};
handle_info({'EXIT', Pid, _}, #robots{running = Running} = State) ->
    {noreply, State#robots{running = maps:filter(fun(_, Robot) -> Robot =/= Pid end, Running)}};
handle_info(_Other, State) ->
    {noreply, State}.

%% Every client may publish to the dial, so the text may be no number.
wanted(Text, #robots{wanted = Before}) ->
    try binary_to_integer(Text) of
        Count -> max(0, min(?MOST, Count))
    catch
        error:badarg -> Before
    end.

step(#robots{wanted = Wanted, running = Running} = State) ->
    Missing = [Number || Number <- lists:seq(1, Wanted), not is_map_key(Number, Running)],
    Surplus = [Number || Number <- maps:keys(Running), Number > Wanted],
    lists:foreach(fun(Number) -> exit(map_get(Number, Running), shutdown) end, lists:sublist(Surplus, ?STEP)),
    State#robots{
        running = maps:merge(
            Running, maps:from_list([{Number, robot(Number, State)} || Number <- lists:sublist(Missing, ?STEP)])
        )
    }.

robot(Number, #robots{port = Port, rooms = Rooms, delays = Delays}) ->
    Room = lists:nth(1 + Number rem length(Rooms), Rooms),
    weir_cli_chat_robot:start_link(Port, Room, Number, Delays).
