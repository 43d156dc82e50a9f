%% @doc Samples a node once a second, for all who read. Its memory is bounded, and what it costs is part of each sample.
%%
%% It reads what the VM and the system count. The time of schedulers is kept for as long as it lives, and the VM puts that back
%% when it ends. Nobody's tracer or system monitor is touched.
-module(weir_scope_sampler).
-behaviour(gen_server).

-export([start_link/0]).
-export([start_guest/0]).
-export([from_afar/2]).
-export([latest/1]).
-export([history/3]).
-export([microstates/2]).
-export([memory/1]).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-export_type([microstates/0]).

-type microstates() :: [#{type := atom(), id := non_neg_integer(), states := #{atom() => float()}}].
%% Of each thread of the VM: the parts of its time, 0 to 1, as {@link //runtime_tools/msacc} names them.

-define(INTERVAL, 1000).

%% Microstates are looked at for so long, at most, milliseconds.
-define(LONGEST_LOOK, 60_000).

-record(state, {
    ask :: weir_scope_facts:ask(),
    sources :: weir_scope_sample:sources(),
    last :: weir_scope_sample:reading(),
    due :: integer(),
    cost = none :: none | #{us := non_neg_integer(), reductions := non_neg_integer()},
    sample = none :: none | weir_scope_sample:sample(),
    history :: weir_scope_history:history(),
    %% Who waits for the next sample.
    waiting = [] :: [gen_server:from()],
    %% Who looks at microstates, each with what was counted before, and whether the VM counted then already.
    looks = #{} :: #{reference() => {gen_server:from(), Before :: list()}},
    previous = false :: boolean()
}).

%% @doc Starts that of this node, registered by the name of this module: there is one at a time.
-spec start_link() -> {ok, pid()} | {error, {already_started, pid()}}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, fun erlang:apply/3, []).

%% @private
%% @doc Starts one for visits. It has no name: a release may start its own meanwhile.
-spec start_guest() -> {ok, pid()}.
start_guest() ->
    {ok, _} = gen_server:start_link(?MODULE, fun erlang:apply/3, []).

%% @private
%% @doc Starts one here for a node that takes no module. It ends with the calling process.
-spec from_afar(module(), term()) -> pid() | no_return().
from_afar(Module, Argument) ->
    case gen_server:start(?MODULE, {afar, Module, Argument, self()}, []) of
        {ok, Sampler} -> Sampler;
        {error, {shutdown, Reason}} -> error({erpc, Reason})
    end.

%% @doc The last sample. The first takes a second.
-spec latest(gen_server:server_ref()) -> weir_scope_sample:sample().
latest(Sampler) -> gen_server:call(Sampler, latest).

%% @doc What was sampled after a moment (milliseconds since 1970; 0 for all).
-spec history(gen_server:server_ref(), weir_scope_history:grain(), After :: integer()) -> [weir_scope_history:series()].
history(Sampler, Grain, After) -> gen_server:call(Sampler, {history, Grain, After}).

%% @doc What the threads of the VM do for so many milliseconds, 60,000 at most. While that lasts, the VM counts it: a few percent. If
%% somebody else had it count already, it goes on to.
-spec microstates(gen_server:server_ref(), pos_integer()) -> microstates().
microstates(Sampler, Milliseconds) when Milliseconds > 0, Milliseconds =< ?LONGEST_LOOK ->
    gen_server:call(Sampler, {microstates, Milliseconds}, Milliseconds + 5000).

%% @doc The bytes that the histories take.
-spec memory(gen_server:server_ref()) -> non_neg_integer().
memory(Sampler) -> gen_server:call(Sampler, memory).

%% @private
-spec init(term()) -> {ok, #state{}} | {stop, term()}.
init({afar, Module, Argument, Owner}) ->
    _ = monitor(process, Owner),
    try
        look(Module:ask(Argument))
    catch
        error:{erpc, Reason} -> {stop, {shutdown, Reason}}
    end;
init(Here) ->
    %% So that terminate/2 puts back what is on.
    _ = process_flag(trap_exit, true),
    look(Here).

look(Ask) ->
    Sources = weir_scope_sample:open(Ask),
    First = weir_scope_sample:read(Ask, Sources),
    Due = erlang:monotonic_time(millisecond) + ?INTERVAL,
    _ = erlang:send_after(Due, self(), sample, [{abs, true}]),
    {ok, #state{ask = Ask, sources = Sources, last = First, due = Due, history = weir_scope_history:new()}}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(latest, From, #state{sample = none, waiting = Waiting} = State) ->
    {noreply, State#state{waiting = [From | Waiting]}};
handle_call(latest, _From, #state{sample = Sample} = State) ->
    {reply, Sample, State};
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
    {noreply, State#state{looks = Looks#{Look => {From, Ask(erlang, statistics, [microstate_accounting])}}, previous = Previous}}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info(sample, #state{due = Due} = State) ->
    try sampled(State) of
        Next ->
            %% After a pause (the machine slept) one sample is about all of it.
            Later = max(Due + ?INTERVAL, erlang:monotonic_time(millisecond) + ?INTERVAL div 2),
            _ = erlang:send_after(Later, self(), sample, [{abs, true}]),
            {noreply, Next#state{due = Later}}
    catch
        %% The node that is asked from afar is gone, or does not answer.
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
%% The owner of one that asks from afar.
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
        %% The node is gone just now.
        error:{erpc, _} -> ok
    end.

%% The last who looks.
put_back(#state{looks = Looks}) when map_size(Looks) =:= 0 ->
    ok;
put_back(#state{previous = Previous, ask = Ask}) ->
    _ = Ask(erlang, system_flag, [microstate_accounting, Previous]),
    ok.

sampled(#state{ask = Ask, sources = Sources, last = Last, cost = Cost, history = History, waiting = Waiting} = State) ->
    Begin = erlang:monotonic_time(microsecond),
    {reductions, Reductions} = process_info(self(), reductions),
    Reading = weir_scope_sample:read(Ask, Sources),
    Between = weir_scope_sample:between(Last, Reading),
    Sample =
        case Cost of
            none -> Between;
            _ -> Between#{cost => Cost}
        end,
    #{at := At} = Sample,
    Later = weir_scope_history:add(At, weir_scope_sample:numbers(Sample#{cost => maps:get(cost, Sample, #{us => 0})}), History),
    lists:foreach(fun(From) -> gen_server:reply(From, Sample) end, Waiting),
    {reductions, After} = process_info(self(), reductions),
    Took = #{us => erlang:monotonic_time(microsecond) - Begin, reductions => After - Reductions},
    State#state{last = Reading, sample = Sample, history = Later, waiting = [], cost = Took}.
