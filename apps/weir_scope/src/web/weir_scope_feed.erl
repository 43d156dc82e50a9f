%% @private
%% @doc Feeds all open pages from one view of a node. While no page is open, it makes no calls to the node. For a
%% recording, {@link weir_scope_replay} runs in its place and under its name.
-module(weir_scope_feed).
-behaviour(gen_server).

-export([start_link/2]).
-export([about/0]).
-export([metrics/0]).
-export([history/2]).
-export([look/3]).
-export([stream/0]).
-export([explain/1]).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-type source() :: {node(), weir_scope_visit:options()}.

%% Twice a second, so that no second is missed.
-define(TICK, 500).

%% Milliseconds until a lost node is tried again.
-define(RETRY, 2000).

-define(PATIENCE, 60_000).

-record(state, {
    node :: node(),
    options :: weir_scope_visit:options(),
    view = none :: none | weir_scope:view(),
    failure = none :: none | term(),
    group :: weir_group:group(),
    most :: pos_integer(),
    %% The last second that was sent.
    last = none :: none | integer(),
    past = [] :: [float()],
    %% Running measurements of tabs, and the callers that wait for each.
    looks = #{} :: #{{weir_scope_tabs:tab(), atom()} => {reference(), [gen_server:from()]}}
}).

-spec start_link(source(), MaxStreams :: pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Source, Most) -> gen_server:start_link({local, ?MODULE}, ?MODULE, {Source, Most}, []).

%% @doc Returns the node and the tabs.
-spec about() -> {ok, map()}.
about() -> {ok, gen_server:call(?MODULE, about, ?PATIENCE)}.

-spec metrics() -> {ok, iodata()} | {error, term()}.
metrics() -> asked(metrics).

%% @doc Returns the samples later than `After', for JSON.
-spec history(weir_scope_history:grain(), integer()) -> {ok, [map()]} | {error, term()}.
history(Grain, After) ->
    case asked({history, Grain, After}) of
        {ok, Series} -> {ok, [series(One) || One <- Series]};
        {error, _} = Error -> Error
    end.

%% The caller itself calls the node, so that the feed never blocks.
asked(Question) ->
    case gen_server:call(?MODULE, Question, ?PATIENCE) of
        {view, View} -> noticed(View, asked(Question, View));
        Answer -> Answer
    end.

%% Reports a lost view to the feed, which opens another for the next request.
noticed(View, {error, Reason} = Error) ->
    gen_server:cast(?MODULE, {lost, View, Reason}),
    Error;
noticed(_View, Answer) ->
    Answer.

asked({history, Grain, After}, View) ->
    weir_scope:history(View, Grain, After);
asked(metrics, View) ->
    case weir_scope:sample(View) of
        {ok, Sample} -> {ok, weir_scope_metrics:text(Sample)};
        {error, _} = Error -> Error
    end.

%% @doc Returns what a tab shows. A live node ignores `At'.
-spec look(weir_scope_tabs:tab(), atom(), At :: integer()) -> {ok, weir_scope_tabs:document()} | {error, term()}.
look(Tab, Sort, At) -> gen_server:call(?MODULE, {look, Tab, Sort, At}, ?PATIENCE).

%% @doc Returns the group for a new stream. Errors: `full' if there are `max_streams', `recorded' for a recording.
-spec stream() -> {ok, weir_group:group()} | {error, full | recorded}.
stream() -> gen_server:call(?MODULE, stream, ?PATIENCE).

%% @doc Returns a one-line message for an error.
-spec explain(term()) -> iodata().
explain({no_connection, Node}) -> io_lib:format("cannot reach ~s~n", [Node]);
explain({timeout, Node}) -> io_lib:format("~s does not answer~n", [Node]);
explain({not_sampled, Node, Why}) -> io_lib:format("~s cannot be sampled: ~ts~n", [Node, Why]);
explain({disturbed, Node}) -> io_lib:format("another visit of ~s has removed the modules of this one~n", [Node]);
explain({needs_load, What}) -> io_lib:format("~s cannot be measured without modules on the node~n", [What]);
explain({not_recorded, Tab}) -> io_lib:format("~ts is not in the recording~n", [Tab]);
explain(recorded) -> "this is a recording\n";
explain(full) -> "too many pages are open: see the option max_streams\n";
explain(Other) -> io_lib:format("~0tp~n", [Other]).

series(#{columns := Columns, rows := Rows}) ->
    #{
        set => set(Columns),
        columns => Columns,
        rows => [[At | weir_scope_history:short(Values)] || {At, Values} <- Rows]
    }.

%% Identifies a list of columns, so that a page knows whether it has their names.
set(Columns) -> erlang:phash2(Columns).

%% @private
-spec init({source(), pos_integer()}) -> {ok, #state{}} | {stop, term()}.
init({{Node, Options}, Most}) ->
    %% A page that does not read is disconnected. It reconnects and asks for the rows that it has missed.
    case weir_group:new(#{policy => disconnect, max_messages => 30}) of
        {ok, Group} ->
            self() ! tick,
            {ok, #state{node = Node, options = Options, group = Group, most = Most}};
        {error, Reason} ->
            {stop, Reason}
    end.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(about, _From, #state{node = Node} = State) ->
    Tabs = [#{name => Name, sorts => Sorts} || {Name, Sorts} <- weir_scope_tabs:all()],
    {reply, #{node => Node, tabs => Tabs, recorded => false, now => erlang:system_time(millisecond)}, State};
handle_call(Question, _From, State) when Question =:= metrics; element(1, Question) =:= history ->
    case opened(State) of
        #state{view = none, failure = Reason} = Next -> {reply, {error, Reason}, Next};
        #state{view = View} = Next -> {reply, {view, View}, Next}
    end;
handle_call(stream, _From, #state{group = Group, most = Most} = State) ->
    case weir_group:size(Group) < Most of
        true -> {reply, {ok, Group}, State};
        false -> {reply, {error, full}, State}
    end;
handle_call({look, Tab, Sort, _At}, From, #state{looks = Looks} = State) ->
    case {Looks, opened(State)} of
        {#{{Tab, Sort} := {Monitor, Waiting}}, Next} ->
            {noreply, Next#state{looks = Looks#{{Tab, Sort} := {Monitor, [From | Waiting]}}}};
        {_, #state{view = none, failure = Reason} = Next} ->
            {reply, {error, Reason}, Next};
        {_, #state{view = View, node = Node, options = Options, past = Past} = Next} ->
            Self = self(),
            Look = #{node => Node, load => maps:get(load, Options, true), past => lists:reverse(Past)},
            {_, Monitor} = spawn_monitor(fun() ->
                Self ! {looked, View, {Tab, Sort}, weir_scope_tabs:look(Tab, Sort, View, Look)}
            end),
            {noreply, Next#state{looks = Looks#{{Tab, Sort} => {Monitor, [From]}}}}
    end.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({lost, View, Reason}, #state{view = View} = State) -> {noreply, lost(Reason, State)};
handle_cast(_, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(tick, #state{group = Group} = State) ->
    Next =
        case weir_group:size(Group) of
            0 -> State#state{last = none};
            _ -> fed(opened(State))
        end,
    Pause =
        case Next of
            #state{failure = none} -> ?TICK;
            _ -> ?RETRY
        end,
    _ = erlang:send_after(Pause, self(), tick),
    {noreply, Next};
handle_info({looked, View, Key, Answer}, State) ->
    Next = looked(Key, Answer, State),
    case {Answer, Next} of
        {{error, Reason}, #state{view = View}} -> {noreply, lost(Reason, Next)};
        _ -> {noreply, Next}
    end;
%% If the measurement had answered, its monitor would be gone: it has failed.
handle_info({'DOWN', Monitor, process, _, Reason}, #state{looks = Looks} = State) ->
    {noreply,
        lists:foldl(fun(Key, Before) -> looked(Key, {error, Reason}, Before) end, State, [
            Key
         || {Key, {Same, _}} <- maps:to_list(Looks), Same =:= Monitor
        ])};
handle_info(_, State) ->
    {noreply, State}.

looked(Key, Answer, #state{looks = Looks} = State) ->
    {{Monitor, Waiting}, Others} = maps:take(Key, Looks),
    true = demonitor(Monitor, [flush]),
    lists:foreach(fun(From) -> gen_server:reply(From, Answer) end, Waiting),
    State#state{looks = Others}.

opened(#state{view = none, node = Node, options = Options} = State) ->
    case weir_scope:open(Node, Options) of
        {ok, View} -> State#state{view = View, failure = none};
        {error, Reason} -> failed(Reason, State)
    end;
opened(State) ->
    State.

failed(Reason, #state{group = Group} = State) ->
    tell(failure, string:trim(explain(Reason)), Group),
    State#state{view = none, failure = Reason, last = none}.

fed(#state{view = none} = State) ->
    State;
fed(#state{view = View, last = none} = State) ->
    case weir_scope:sample(View) of
        {ok, #{at := At}} -> State#state{last = At, failure = none};
        {error, Reason} -> lost(Reason, State)
    end;
fed(#state{view = View, last = Last, group = Group, past = Past} = State) ->
    case weir_scope:history(View, second, Last) of
        {ok, Series} ->
            Rows = lists:sort([
                {At, Columns, Values}
             || #{columns := Columns, rows := All} <- Series, {At, Values} <- All
            ]),
            lists:foreach(
                fun({At, Columns, Values}) ->
                    tell(
                        row,
                        weir_json:compact(#{set => set(Columns), row => [At | weir_scope_history:short(Values)]}),
                        Group
                    )
                end,
                Rows
            ),
            Utilisations = [utilisation(Columns, Values) || {_, Columns, Values} <- Rows],
            State#state{
                last = lists:max([Last | [At || {At, _, _} <- Rows]]),
                past = lists:sublist(lists:reverse(Utilisations, Past), 60),
                failure = none
            };
        {error, Reason} ->
            lost(Reason, State)
    end.

%% The node answers, and its sampler tries again. So the view is kept.
lost({not_sampled, _, _} = Reason, #state{group = Group} = State) ->
    tell(failure, string:trim(explain(Reason)), Group),
    State#state{failure = Reason, last = none};
lost(Reason, #state{view = View} = State) ->
    ok = weir_scope:close(View),
    failed(Reason, State).

utilisation(Columns, Values) ->
    All = [
        Value
     || {<<"scheduler.normal.", Name/binary>>, Value} <- lists:zip(Columns, Values),
        binary:longest_common_suffix([Name, <<".utilisation">>]) =:= 12
    ],
    lists:sum(All) / max(1, length(All)).

%% The result may be `busy': pages that are far behind are disconnected.
tell(Event, Data, Group) ->
    _ = weir_group:broadcast(Group, weir_http_events:frame(#{event => atom_to_binary(Event), data => Data})),
    ok.
