%% @doc Reports the events of Common Test to the runner: an event handler of ct_event.
-module(weir_test_events).

-behaviour(gen_event).

-export([init/1, handle_event/2, handle_call/2]).

-record(state, {groups = [] :: [atom()], started = #{} :: #{term() => integer()}}).

%% @private
init(_) -> {ok, #state{}}.

%% @private Matches the events as tuples: a machine that only compiles has no Common Test headers.
handle_event({event, start_info, _Node, {_Tests, _Suites, Cases}}, State) when is_integer(Cases) ->
    weir_test_connection:tell({planned, Cases}),
    {ok, State};
handle_event({event, tc_start, _Node, {Suite, Function}}, State) ->
    {ok, started(Suite, Function, State)};
handle_event({event, tc_done, _Node, {Suite, Function, Outcome}}, State) ->
    {ok, done(Suite, Function, outcome(Outcome), State)};
handle_event({event, tc_user_skip, _Node, {Suite, Function, Reason}}, State) ->
    {ok, skipped(Suite, Function, {skipped, Reason}, State)};
%% Common Test skips these cases because a configuration function failed.
handle_event({event, tc_auto_skip, _Node, {Suite, Function, Reason}}, State) ->
    {ok, skipped(Suite, Function, {failed, {not_run, Reason}}, State)};
handle_event(_Event, State) ->
    {ok, State}.

%% @private
handle_call(_Request, State) -> {ok, ok, State}.

started(Suite, Function, #state{started = Started} = State0) ->
    State = enter(Function, State0),
    weir_test_connection:tell({started, Suite, path(Function, State), name(Function)}),
    State#state{started = Started#{name(Function) => erlang:monotonic_time(millisecond)}}.

enter({init_per_group, Group, _}, #state{groups = Groups} = State) -> State#state{groups = [Group | Groups]};
enter(_, State) -> State.

leave({end_per_group, Group, _}, State) -> leave({end_per_group, Group}, State);
leave({end_per_group, Group}, #state{groups = [Group | Groups]} = State) -> State#state{groups = Groups};
leave(_, State) -> State.

done(Suite, Function, Outcome, #state{started = Started} = State) ->
    Name = name(Function),
    Now = erlang:monotonic_time(millisecond),
    case is_configuration(Name) andalso not is_failure(Outcome) of
        %% Each case that is skipped for this reason is reported.
        true ->
            ok;
        false ->
            weir_test_connection:tell(
                {result, Suite, path(Function, State), Name, Now - maps:get(Name, Started, Now), Outcome}
            )
    end,
    leave(Function, State#state{started = maps:remove(Name, Started)}).

skipped(Suite, Function, Outcome, State) ->
    Name = name(Function),
    case is_configuration(Name) of
        true -> ok;
        false -> weir_test_connection:tell({result, Suite, skipped_path(Function, State), Name, 0, Outcome})
    end,
    leave(Function, State).

outcome(ok) -> passed;
outcome({failed, Reason}) -> {failed, Reason};
outcome({skipped, {failed, Reason}}) -> {failed, Reason};
outcome({skipped, Reason}) -> {skipped, Reason};
outcome({auto_skipped, Reason}) -> {failed, {not_run, Reason}};
outcome(_) -> passed.

is_failure(passed) -> false;
is_failure({Kind, _}) -> Kind =:= failed.

is_configuration(Name) -> lists:member(Name, [init_per_suite, end_per_suite, init_per_group, end_per_group]).

name({Function, _Group, _Properties}) -> Function;
name({Function, _Group}) -> Function;
name(Function) -> Function.

path(_Function, #state{groups = Groups}) -> lists:reverse(Groups).

%% A group whose init_per_group failed is already left.
skipped_path({_Function, Group}, #state{groups = Groups}) ->
    case lists:member(Group, Groups) of
        true -> lists:reverse(Groups);
        false -> lists:reverse([Group | Groups])
    end;
skipped_path(_Function, State) ->
    path(none, State).
