%% @doc Emits the event `[weir, scope, sample]' once a second, in a release that runs `weir_scope' and the library
%% `telemetry'.
%%
%% <table>
%% <tr><td>measurement</td><td>meaning</td></tr>
%% <tr><td>`utilisation'</td><td>mean of the schedulers, 0 to 1</td></tr>
%% <tr><td>`run_queue', `processes', `ports'</td><td>numbers of them</td></tr>
%% <tr><td>`reductions', `context_switches', `collections'</td><td>per second</td></tr>
%% <tr><td>`memory', `carriers', `blocks'</td><td>bytes: total of the VM, taken by allocators, used of these</td></tr>
%% </table>
%% The metadata are `node' and `sample', the whole {@link weir_scope_sample:sample()}.
%%
%% Handlers run in a separate process. A handler that blocks delays no sample, but the seconds that it blocks have no
%% event.
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
%% @doc Returns the module `telemetry'. It is a remote call so that the compiler and xref do not miss the optional
%% library.
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
    %% `telemetry' runs if its supervisor exists.
    case whereis(telemetry_sup) of
        undefined -> {noreply, Last};
        _ ->
            try weir_scope_sampler:latest(weir_scope_sampler) of
                Sample -> {noreply, told(Sample, Last)}
            catch
                %% The sampler is restarting, or the node is too busy.
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
        maps:merge(
            maps:with([reductions, context_switches, collections], Rates),
            maps:with([run_queue, processes, ports], Counts)
        ),
        (maps:with([carriers, blocks], Memory))#{memory => Total, utilisation => lists:sum(Busy) / max(1, length(Busy))}
    ),
    ok = (?TELEMETRY):execute(?EVENT, Measurements, #{node => Node, sample => Sample}),
    At.
