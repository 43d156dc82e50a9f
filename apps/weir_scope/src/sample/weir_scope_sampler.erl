%% @doc Samples a node once a second, for all readers. Its memory is bounded, and each sample contains the cost of the
%% one before.
%%
%% It reads counters of the VM and of the operating system. It turns `scheduler_wall_time' on; the VM resets that when
%% the sampler ends. It uses no tracer and no system monitor.
%%
%% A failed sample is counted and logged, and tried again after one second, two, four and so on, up to a minute. Until
%% one succeeds, readers get the last good sample with the reason of the failure.
-module(weir_scope_sampler).
-behaviour(gen_server).

-export([start_link/0]).
-export([start_guest/0]).
-export([from_afar/2]).
-export([latest/1, latest/2]).
-export([history/4]).
-export([microstates/3]).
-export([memory/1]).
-export([pause/1]).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-export_type([microstates/0]).

-type microstates() :: [#{type := atom(), id := non_neg_integer(), states := #{atom() => float()}}].
%% For each thread of the VM the fractions of its time, 0 to 1, in the states of {@link //runtime_tools/msacc}.

-define(INTERVAL, 1000).

%% The longest pause after a failed sample, milliseconds.
-define(LONGEST_PAUSE, 60_000).

%% The longest measurement of microstates, milliseconds.
-define(LONGEST_LOOK, 60_000).

-record(state, {
    ask :: weir_scope_facts:ask(),
    %% Whether failures are logged: in a release, but not on a visited node.
    reports :: boolean(),
    sources = none :: none | weir_scope_sample:sources(),
    last = none :: none | weir_scope_sample:reading(),
    due = 0 :: integer(),
    %% Failed samples in all, failed samples since the last good one, and why the last one has failed.
    failures = 0 :: non_neg_integer(),
    streak = 0 :: non_neg_integer(),
    why = <<>> :: binary(),
    cost = none :: none | #{us := non_neg_integer(), reductions := non_neg_integer()},
    sample = none :: none | weir_scope_sample:sample(),
    history :: weir_scope_history:history(),
    %% Callers that wait for the next sample.
    waiting = [] :: [gen_server:from()],
    %% Callers that measure microstates, with the counts at their start, and whether accounting was on before the
    %% first.
    looks = #{} :: #{reference() => {gen_server:from(), Before :: list()}},
    previous = false :: boolean()
}).

%% @doc Starts the sampler of this node. It is registered with the name of this module, so there is one at a time.
-spec start_link() -> {ok, pid()} | {error, {already_started, pid()}}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, {here, true}, []).

%% @private
%% @doc Starts a sampler for visits. It has no name, because a release may start its own sampler later.
-spec start_guest() -> {ok, pid()}.
start_guest() ->
    {ok, _} = gen_server:start_link(?MODULE, {here, false}, []).

%% @private
%% @doc Starts a sampler on this node for a node where no module may be loaded. It ends with the calling process.
%% Raises `{erpc, Reason}' if the node cannot be reached.
-spec from_afar(module(), term()) -> pid() | no_return().
from_afar(Module, Argument) ->
    case gen_server:start(?MODULE, {afar, Module, Argument, self()}, []) of
        {ok, Sampler} -> Sampler;
        {error, {shutdown, Reason}} -> error({erpc, Reason})
    end.

%% @doc Calls {@link latest/2} with a patience of five seconds.
-spec latest(gen_server:server_ref()) -> weir_scope_sample:sample() | no_return().
latest(Sampler) -> latest(Sampler, 5000).

%% @doc Returns the last sample. Waits up to a second for the first one. The caller exits if the sampler does not
%% answer within `Patience' milliseconds, and with `{not_sampled, Why}' if all samples have failed so far.
-spec latest(gen_server:server_ref(), Patience :: pos_integer()) -> weir_scope_sample:sample() | no_return().
latest(Sampler, Patience) ->
    case gen_server:call(Sampler, latest, Patience) of
        {ok, Sample} -> Sample;
        {error, Why} -> exit({not_sampled, Why})
    end.

%% @doc Returns the samples that are later than `After' (milliseconds since 1970; 0 for all).
-spec history(gen_server:server_ref(), weir_scope_history:grain(), After :: integer(), Patience :: pos_integer()) ->
    [weir_scope_history:series()].
history(Sampler, Grain, After, Patience) -> gen_server:call(Sampler, {history, Grain, After}, Patience).

%% @doc Measures for 1 to 60,000 milliseconds what the threads of the VM do. Microstate accounting is on in this time,
%% which costs the VM a few percent. It stays on if it was on before.
-spec microstates(gen_server:server_ref(), pos_integer(), Patience :: pos_integer()) -> microstates().
microstates(Sampler, Milliseconds, Patience) when Milliseconds > 0, Milliseconds =< ?LONGEST_LOOK ->
    gen_server:call(Sampler, {microstates, Milliseconds}, Milliseconds + Patience).

%% @doc Returns the bytes that the histories take.
-spec memory(gen_server:server_ref()) -> non_neg_integer().
memory(Sampler) -> gen_server:call(Sampler, memory).

%% @private
-spec init(term()) -> {ok, #state{}} | {stop, term()}.
init({afar, Module, Argument, Owner}) ->
    _ = monitor(process, Owner),
    try tried(begun(Module:ask(Argument), false)) of
        State -> {ok, State}
    catch
        error:{erpc, Reason} -> {stop, {shutdown, Reason}}
    end;
init({here, Reports}) ->
    %% So that terminate/2 is called, which resets microstate accounting.
    _ = process_flag(trap_exit, true),
    {ok, tried(begun(fun erlang:apply/3, Reports))}.

begun(Ask, Reports) ->
    #state{ask = Ask, reports = Reports, history = weir_scope_history:new()}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(latest, From, #state{sample = none, streak = 0, waiting = Waiting} = State) ->
    {noreply, State#state{waiting = [From | Waiting]}};
handle_call(latest, _From, #state{sample = none, why = Why} = State) ->
    {reply, {error, Why}, State};
handle_call(latest, _From, #state{sample = Sample} = State) ->
    {reply, {ok, maps:merge(Sample, failures(State))}, State};
handle_call({history, Grain, After}, _From, #state{history = History} = State) ->
    {reply, weir_scope_history:rows(Grain, After, History), State};
handle_call(memory, _From, #state{history = History} = State) ->
    {reply, weir_scope_history:bytes(History), State};
handle_call({microstates, Milliseconds}, From, #state{looks = Looks, ask = Ask} = State) ->
    Previous =
        case map_size(Looks) of
            0 -> Ask(erlang, system_flag, [microstate_accounting, true]);
            _ -> State#state.previous
        end,
    Look = make_ref(),
    _ = erlang:send_after(Milliseconds, self(), {looked, Look}),
    {noreply, State#state{
        looks = Looks#{Look => {From, Ask(erlang, statistics, [microstate_accounting])}}, previous = Previous
    }}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info(sample, State) ->
    try tried(State) of
        Next -> {noreply, Next}
    catch
        %% The other node is gone, or does not answer.
        error:{erpc, Reason} -> {stop, {shutdown, Reason}, State}
    end;
handle_info({looked, Look}, #state{looks = Looks, ask = Ask} = State) ->
    {{From, Before}, Others} = maps:take(Look, Looks),
    After = Ask(erlang, statistics, [microstate_accounting]),
    _ = [put_back(State) || map_size(Others) =:= 0],
    gen_server:reply(From, weir_scope_microstates:between(Before, After)),
    {noreply, State#state{looks = Others}};
handle_info({'EXIT', _, Reason}, State) ->
    {stop, Reason, State};
%% The owner of a sampler for another node has ended.
handle_info({'DOWN', _, process, _, _}, State) ->
    {stop, normal, State};
handle_info(_, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate({shutdown, Gone}, _State) when Gone =:= noconnection; Gone =:= timeout ->
    ok;
terminate(_Reason, State) ->
    try
        put_back(State)
    catch
        %% The node has gone in between.
        error:{erpc, _} -> ok
    end.

%% Resets microstate accounting after the last measurement.
put_back(#state{looks = Looks}) when map_size(Looks) =:= 0 ->
    ok;
put_back(#state{previous = Previous, ask = Ask}) ->
    _ = Ask(erlang, system_flag, [microstate_accounting, Previous]),
    ok.

%% Raises only if the other node is gone.
tried(State) ->
    try read(State) of
        Next ->
            %% After a pause, such as a suspend of the machine, one sample covers the whole pause.
            Now = erlang:monotonic_time(millisecond),
            later(max(Next#state.due + ?INTERVAL, Now + ?INTERVAL div 2), Next)
    catch
        error:{erpc, Reason} -> error({erpc, Reason});
        Class:Reason:Stack -> failed({Class, Reason, lists:sublist(Stack, 3)}, State)
    end.

later(Due, State) ->
    _ = erlang:send_after(Due, self(), sample, [{abs, true}]),
    State#state{due = Due}.

%% The next try opens and reads everything again, because old files or readings may be the cause.
failed(Reason, #state{failures = Failures, streak = Streak, waiting = Waiting, reports = Reports} = State) ->
    Why = unicode:characters_to_binary(io_lib:format("~0tP", [Reason, 30])),
    _ =
        Reports andalso Streak =:= 0 andalso
            logger:warning(
                #{what => "a sample of this node has failed, trying again", reason => Why, failures => Failures + 1}, #{
                    domain => [weir, scope]
                }
            ),
    lists:foreach(fun(From) -> gen_server:reply(From, {error, Why}) end, Waiting),
    later(
        erlang:monotonic_time(millisecond) + pause(Streak),
        State#state{sources = none, last = none, failures = Failures + 1, streak = Streak + 1, why = Why, waiting = []}
    ).

%% @private
%% @doc Returns the milliseconds until the next try, when `Streak' tries have failed before the last one.
-spec pause(non_neg_integer()) -> pos_integer().
pause(Streak) -> min(?LONGEST_PAUSE, ?INTERVAL bsl min(Streak, 10)).

failures(#state{failures = 0}) -> #{};
failures(#state{failures = Failures, streak = 0}) -> #{failures => Failures};
failures(#state{failures = Failures, why = Why}) -> #{failures => Failures, failing => Why}.

read(#state{sources = none, ask = Ask} = State) ->
    Sources = weir_scope_sample:open(Ask),
    State#state{
        sources = Sources, last = weir_scope_sample:read(Ask, Sources), due = erlang:monotonic_time(millisecond)
    };
read(State) ->
    sampled(State).

sampled(#state{ask = Ask, sources = Sources, last = Last, cost = Cost, history = History, waiting = Waiting} = State) ->
    Begin = erlang:monotonic_time(microsecond),
    {reductions, Reductions} = process_info(self(), reductions),
    Reading = weir_scope_sample:read(Ask, Sources, Last),
    Between = weir_scope_sample:between(Last, Reading),
    Sample =
        case Cost of
            none -> Between;
            _ -> Between#{cost => Cost}
        end,
    #{at := At} = Sample,
    Later = weir_scope_history:add(
        At, weir_scope_sample:numbers(Sample#{cost => maps:get(cost, Sample, #{us => 0})}), History
    ),
    lists:foreach(
        fun(From) -> gen_server:reply(From, {ok, maps:merge(Sample, failures(State#state{streak = 0}))}) end, Waiting
    ),
    {reductions, After} = process_info(self(), reductions),
    Took = #{us => erlang:monotonic_time(microsecond) - Begin, reductions => After - Reductions},
    State#state{last = Reading, sample = Sample, history = Later, waiting = [], cost = Took, streak = 0}.
