%% @doc Events for the library `telemetry', where it runs: `[weir, scope, sample]', once a second in a release that has `weir_scope'.
%%
%% <table>
%% <tr><td>measurement</td><td>meaning</td></tr>
%% <tr><td>`utilisation'</td><td>mean of the schedulers, 0 to 1</td></tr>
%% <tr><td>`run_queue', `processes', `ports'</td><td>how many there are</td></tr>
%% <tr><td>`reductions', `context_switches', `collections'</td><td>per second</td></tr>
%% <tr><td>`memory', `carriers', `blocks'</td><td>bytes: as the VM counts them, taken by allocators, used of that</td></tr>
%% </table>
%% The metadata are `node', and `sample', all of the second as {@link weir_scope_sample:sample()}.
%%
%% Handlers run in a process of their own: one that waits delays events, and no sample. Seconds that pass meanwhile have none.
-module(weir_scope_events).
-behaviour(gen_server).

-export([start_link/0]).
-export([library/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(TELEMETRY, (?MODULE:library())).

-define(EVENT, [weir, scope, sample]).

%% Twice a second, so that no second is missed.
-define(TICK, 500).

-spec start_link() -> {ok, pid()}.
start_link() ->
    {ok, _} = gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @private
%% @doc It may not be there: what comes out of a remote call is not known to the compiler.
-spec library() -> module().
library() -> telemetry.

%% @private
-spec init([]) -> {ok, Last :: integer()}.
init([]) ->
    _ = erlang:send_after(?TICK, self(), tick),
    {ok, 0}.

%% @private
-spec handle_call(term(), gen_server:from(), integer()) -> {reply, ok, integer()}.
handle_call(_, _From, Last) -> {reply, ok, Last}.

%% @private
-spec handle_cast(term(), integer()) -> {noreply, integer()}.
handle_cast(_, Last) -> {noreply, Last}.

%% @private
-spec handle_info(term(), integer()) -> {noreply, integer()}.
handle_info(tick, Last) ->
    _ = erlang:send_after(?TICK, self(), tick),
    %% Its supervisor is there as long as the application is.
    case whereis(telemetry_sup) of
        undefined -> {noreply, Last};
        _ ->
            try weir_scope_sampler:latest(weir_scope_sampler) of
                Sample -> {noreply, told(Sample, Last)}
            catch
                %% It begins anew, or waits for a scheduler.
                exit:_ -> {noreply, Last}
            end
    end;
handle_info(_, Last) ->
    {noreply, Last}.

told(#{at := Last}, Last) ->
    Last;
told(#{at := At, node := Node, schedulers := Schedulers, activity := Activity, memory := Memory} = Sample, _Last) ->
    #{rates := Rates, counts := Counts} = Activity,
    #{kinds := #{total := Total}} = Memory,
    Busy = [Utilisation || #{kind := normal, utilisation := Utilisation} <- Schedulers],
    Measurements = maps:merge(
        maps:merge(maps:with([reductions, context_switches, collections], Rates), maps:with([run_queue, processes, ports], Counts)),
        (maps:with([carriers, blocks], Memory))#{memory => Total, utilisation => lists:sum(Busy) / max(1, length(Busy))}
    ),
    ok = (?TELEMETRY):execute(?EVENT, Measurements, #{node => Node, sample => Sample}),
    At.
